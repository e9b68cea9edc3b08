"""Questions and answers: the draws from a seed, and the replies to received messages."""

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
from ingeborg.loadgen.workloads.plan import Send, content, payload
from ingeborg.loadgen.workloads.settings import Causal, WorkloadError

MS = 1_000_000


def plan(**options: Any) -> CausalPlan:
    return CausalPlan(Causal(**options))


def said(send: Send) -> str:
    """Return the payload as its receivers have it."""
    return content(payload("tag", send.topic, send.seq, send.news_ns, send.content, send.size))


def test_the_same_seed_makes_the_same_plan_and_another_does_not() -> None:
    def drawn(seed: int) -> tuple[Any, ...]:
        made = plan(seed=seed)
        return made.messages, [made.subscriptions(number) for number in range(32)], list(made.sends(None, 0))

    first, same, other = drawn(1), drawn(1), drawn(2)
    assert first == same
    assert all(mine != its for mine, its in zip(first, other, strict=True))


@hypothesis_settings(max_examples=40)
@given(
    rooms=st.integers(1, 6),
    speakers=st.integers(1, 4),
    partial=st.sampled_from([0.0, 0.3, 1.0]),
    chain=st.integers(0, 3),
    answers=st.integers(0, 3),
    seed=st.integers(-(2**63) + 1, 2**63 - 1),
)
def test_what_holds_in_every_plan(**options: Any) -> None:
    answers = min(options["answers"], max(options["speakers"] - 1, 1))
    made = plan(clients=9, members=4, duration_s=0.5, **{**options, "answers": answers})
    publishers: dict[int, int] = {}
    for message, replies in zip(made.messages, made.replies, strict=True):
        assert publishers.setdefault(message.topic, message.connection) == message.connection
        assert len({made.messages[reply].connection for reply in replies}) == len(replies)
        if message.is_question:
            assert len(replies) == answers
        else:
            assert made.messages[message.parent].topic in made.receives(message.connection)
            assert 0 <= message.delay_ns <= 5 * MS
    heard = Counter(topic for connection in range(9) for topic in made.receives(connection))
    assert [heard[topic] for topic in range(len(made.topics))] == list(map(made.expected, range(len(made.topics))))
    if not options["partial"]:
        assert len(made.messages) == 25 * (1 + answers * (1 + options["chain"]))


def test_a_reply_is_due_once_its_connection_has_heard_and_thought() -> None:
    made = plan(clients=4, members=4, rooms=1, partial=0, duration_s=0.1)
    question = next(made.sends(None, 0))
    one, other = (made.messages[reply] for reply in made.replies[0])
    made.heard(question.connection, said(question), 3 * MS)  # its own question, which it does not answer
    assert (made.pending(), made.next_ns()) == (0, None)

    made.heard(one.connection, said(question), 10 * MS)
    assert made.next_ns() == 10 * MS + one.delay_ns
    assert made.due(10 * MS + one.delay_ns - 1) == []
    [answer] = made.due(10 * MS + one.delay_ns)
    assert answer[:5] == (10 * MS + one.delay_ns, one.connection, one.topic, 1, answer.at_ns)
    assert (question.causal, answer.causal) == (False, True)

    made.heard(other.connection, said(question), 20 * MS)
    assert (made.pending(), made.forget()) == (1, [other.connection])
    assert made.due(99 * MS) == []


@pytest.mark.parametrize("lost", [0.0, 0.2])
def test_a_run_says_all_that_is_planned_but_replies_to_what_was_lost(lost: float) -> None:
    """The system has random latencies, in simulated time."""
    made, random = plan(duration_s=2), Random(1)
    coming: list[tuple[int, int, Send]] = []  # when, to whom
    sent: list[Send] = []
    sending = list(made.sends(None, 0))
    for now_ns in range(0, 4_000 * MS, MS):
        sent += sending
        for send in sending:
            for connection in range(made.connections):
                if send.topic in made.receives(connection) and random.random() >= lost:
                    heappush(coming, (send.at_ns + random.randrange(30 * MS), connection, send))
        while coming and coming[0][0] <= now_ns:
            at_ns, connection, send = heappop(coming)
            made.heard(connection, said(send), at_ns)
        sending = made.due(now_ns)
    numbers = {int(send.content.split()[0]) for send in sent}
    assert len(numbers) == len(sent)
    assert (len(numbers) == len(made.messages)) is (not lost)
    assert {made.messages[number].parent for number in numbers} - {-1} <= numbers
    for topic in range(len(made.topics)):  # numbered in the order sent
        seqs = [send.seq for send in sent if send.topic == topic]
        assert seqs == list(range(1, 1 + len(seqs)))


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"speakers": 9}, "speakers must not exceed members, and members must not exceed clients: not 9, 8 and 32"),
        ({"members": 33}, "not 4, 33 and 32"),
        ({"answers": 2, "speakers": 1}, "answers: only 1 of a room's speakers can answer, not 2"),
        ({"rate": 0.05}, "rate x duration_s makes no question"),
        ({"rate": 1e6}, "make 50,000,000 messages, more than 1,000,000"),
        ({"rooms": 1 << 20}, "make 41,943,040 subscriptions, more than 4,194,304"),
        ({"partial": 1.5}, "partial has to be at least 0 and at most 1, not 1.5"),
        ({"violations": -1}, "violations has to be at least 0"),
    ],
)
def test_what_makes_no_plan_is_refused_in_words(options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(WorkloadError) as caught:
        Causal(**options)
    assert complaint in str(caught.value)
