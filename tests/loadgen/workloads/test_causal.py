"""Questions and answers: what is drawn from a seed, and what is said to what has been received."""

from __future__ import annotations

from collections import Counter
from heapq import heappop, heappush
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from ingeborg.loadgen.workloads.causal import CausalPlan
from ingeborg.loadgen.workloads.plan import Replying, Send, content, payload
from ingeborg.loadgen.workloads.settings import Causal, WorkloadError

MS = 1_000_000


def plan(**options: Any) -> CausalPlan:
    return CausalPlan(Causal(**options))


def drawn(made: CausalPlan) -> tuple[Any, ...]:
    subscriptions = [made.subscriptions(connection) for connection in range(made.connections)]
    return made.messages, made.replies, subscriptions, list(made.sends(None, 0))


def said(send: Send) -> str:
    """As its receivers have it."""
    return content(payload("tag", send.topic, send.seq, send.news_ns, send.content, send.size))


def test_the_same_seed_makes_the_same_plan_and_another_does_not() -> None:
    first, same, other = (drawn(plan(seed=seed)) for seed in (1, 1, 2))
    assert first == same
    assert first[0] != other[0]
    assert first[2] != other[2]


def test_another_think_time_or_size_changes_nothing_else() -> None:
    usual, other = plan(), plan(think_ms=7.0, size="uniform:64:300")
    places = [[message[:3] for message in each.messages] for each in (usual, other)]
    assert places[0] == places[1]
    assert usual.replies == other.replies


@hypothesis_settings(max_examples=40)
@given(
    clients=st.integers(4, 20),
    rooms=st.integers(1, 6),
    speakers=st.integers(1, 4),
    partial=st.sampled_from([0.0, 0.3, 1.0]),
    chain=st.integers(0, 3),
    answers=st.integers(0, 3),
    seed=st.integers(),
)
def test_what_holds_in_every_plan(
    clients: int, rooms: int, speakers: int, partial: float, chain: int, answers: int, seed: int
) -> None:
    answers = min(answers, max(speakers - 1, 1))
    made = plan(
        clients=clients,
        rooms=rooms,
        members=4,
        speakers=speakers,
        partial=partial,
        chain=chain,
        answers=answers,
        seed=seed,
        duration_s=0.5,
    )
    publishers: dict[int, int] = {}
    for number, message in enumerate(made.messages):
        assert publishers.setdefault(message.topic, message.connection) == message.connection
        repliers = [made.messages[reply].connection for reply in made.replies[number]]
        assert len(set(repliers)) == len(repliers)
        for reply in made.replies[number]:
            assert made.messages[reply].parent == number
        if message.is_question:
            assert len(repliers) == answers
        else:
            parent = made.messages[message.parent]
            assert parent.topic in made.receives(message.connection)
            assert message.connection != parent.connection or partial or speakers == 1
            assert 0 <= message.delay_ns <= 5 * MS
    assert sum(message.is_question for message in made.messages) == 25
    heard = Counter(topic for connection in range(clients) for topic in made.receives(connection))
    assert [heard[topic] for topic in range(len(made.topics))] == [
        made.expected(topic) for topic in range(len(made.topics))
    ]
    if not partial:
        assert len(made.messages) == 25 * (1 + answers * (1 + chain))


def test_a_reply_is_due_once_its_connection_has_heard_and_thought() -> None:
    made = plan(clients=4, members=4, rooms=1, partial=0, duration_s=0.1, chain=1)
    assert isinstance(made, Replying)
    question = next(made.sends(None, 0))
    assert (question.seq, question.causal) == (1, False)
    [one, other] = [made.messages[reply] for reply in made.replies[0]]
    made.heard(question.connection, said(question), 3 * MS)  # its own question, which it does not answer
    assert (made.pending(), made.next_ns()) == (0, None)

    made.heard(one.connection, said(question), 10 * MS)
    assert made.next_ns() == 10 * MS + one.delay_ns
    assert made.due(10 * MS + one.delay_ns - 1) == []
    [answer] = made.due(10 * MS + one.delay_ns)
    assert (answer.connection, answer.topic, answer.seq) == (one.connection, one.topic, 1)
    assert (answer.causal, answer.first, answer.news_ns) == (True, True, answer.at_ns)
    assert answer.content.startswith("1 to 0 ")
    assert made.next_ns() is None

    made.heard(other.connection, said(question), 20 * MS)
    assert (made.pending(), made.forget()) == (1, [other.connection])
    assert made.due(99 * MS) == []


@pytest.mark.parametrize("text", ["", "question", "40 question ...", "-1 to 3 "])
def test_a_message_of_no_plan_is_no_reason_to_reply(text: str) -> None:
    with pytest.raises(ValueError, match=r"invalid literal|has no message"):
        plan(rooms=1, duration_s=0.1, answers=0).heard(0, text, 0)


@pytest.mark.parametrize("lost", [0.0, 0.2])
def test_a_run_says_all_that_is_planned_but_replies_to_what_was_lost(lost: float) -> None:
    """A system of random latencies, in simulated time."""
    made, random = plan(duration_s=2, partial=0.1), Random(1)
    ahead: list[tuple[int, int, Send]] = []  # receipts: when, by whom
    sent: list[Send] = []
    gone = 0
    sending = list(made.sends(None, 0))
    for now_ns in range(0, 4_000 * MS, MS):
        for send in sending:
            sent.append(send)
            for connection in range(made.connections):
                if send.topic in made.receives(connection):
                    if random.random() < lost:
                        gone += 1
                    else:
                        heappush(ahead, (send.at_ns + random.randrange(30 * MS), connection, send))
        while ahead and ahead[0][0] <= now_ns:
            at_ns, connection, send = heappop(ahead)
            made.heard(connection, said(send), at_ns)
        sending = made.due(now_ns)
    numbers = [int(send.content.split()[0]) for send in sent]
    assert len(set(numbers)) == len(numbers)
    assert (len(numbers) == len(made.messages)) is (gone == 0)
    if gone:
        assert {made.messages[number].parent for number in numbers} - {-1} <= set(numbers)
    for topic in range(len(made.topics)):  # numbered without gaps, in the order sent
        assert [send.seq for send in sent if send.topic == topic] == list(
            range(1, 1 + sum(send.topic == topic for send in sent))
        )


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"speakers": 9}, "speakers are members, and members clients: not 9 of 8 of 32"),
        ({"members": 33}, "not 4 of 33 of 32"),
        ({"answers": 4}, "answers: a room has 3 speakers to answer, not 4"),
        ({"answers": 2, "speakers": 1}, "a room has 1 speakers to answer, not 2"),
        ({"rate": 0.05}, "rate x duration_s makes no question"),
        ({"rate": 1e6}, "makes 50,000,000 messages, more than 1,000,000"),
        ({"rooms": 1 << 20}, "makes 41,943,040 subscriptions, more than 4,194,304"),
        ({"partial": 1.5}, "partial has to be at least 0 and at most 1, not 1.5"),
        ({"think_ms": -1}, "think_ms has to be at least 0"),
        ({"violations": -1}, "violations has to be at least 0"),
    ],
)
def test_what_makes_no_plan_is_refused_in_words(options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(WorkloadError) as caught:
        Causal(**options)
    assert complaint in str(caught.value)
