"""Traffic and topics: what they send, drawn from a seed alone."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from ingeborg.loadgen.workloads import traffic as traffic_plan
from ingeborg.loadgen.workloads.causal import CausalPlan
from ingeborg.loadgen.workloads.plan import heading, payload
from ingeborg.loadgen.workloads.settings import Causal, Topics, Traffic
from ingeborg.loadgen.workloads.topics import PUBLISHER, SUBSCRIBER, TopicsPlan
from ingeborg.loadgen.workloads.traffic import TrafficPlan


def traffic(**options: Any) -> TrafficPlan:
    made = Traffic(**options)
    return TrafficPlan(made, duplicates=made.duplicates)


def test_the_same_seed_sends_the_same_and_another_does_not() -> None:
    first, same, other = (list(traffic(seed=seed).sends(1000, 2)) for seed in (1, 1, 2))
    assert first == same
    assert first != other
    assert len(first) == 2000


def test_subscribers_follow_zipf_with_the_mean_that_was_asked_for() -> None:
    plan = traffic()
    counts = sorted((plan.expected(topic) for topic in range(1000)), reverse=True)
    assert sum(counts) == 5000
    assert counts[0] == 20  # at most one per connection
    assert counts[100] > counts[900]
    held = Counter(topic for connection in range(20) for topic in plan.receives(connection))
    assert [held[topic] for topic in range(1000)] == [plan.expected(topic) for topic in range(1000)]
    assert sum(len(plan.subscriptions(connection)) for connection in range(20)) == 5000
    everybody = traffic(fanout=20)
    assert all(everybody.expected(topic) == 20 for topic in range(1000))


def test_a_publish_goes_out_to_five_on_average_and_a_quarter_repeats() -> None:
    plan = traffic()
    sends = list(plan.sends(20_000, 5))
    news = [send for send in sends if send.first]
    assert sum(plan.expected(send.topic) for send in news) / len(news) == pytest.approx(5, rel=0.03)
    assert 1 - len(news) / len(sends) == pytest.approx(0.23, abs=0.01)


@hypothesis_settings(max_examples=30)
@given(
    connections=st.integers(1, 30),
    topics=st.integers(1, 50),
    share=st.floats(0, 0.99),
    within_s=st.floats(0.01, 5),
    rate=st.floats(1, 3000),
    skew=st.sampled_from([0.0, 1.0]),
)
def test_what_holds_in_every_segment(
    connections: int, topics: int, share: float, within_s: float, rate: float, skew: float
) -> None:
    plan = traffic(
        connections=connections, topics=topics, fanout=1, duplicates=share, repeat_within_s=within_s, skew=skew
    )
    seqs: Counter[int] = Counter()
    for _ in range(2):  # sequence numbers continue in the second segment
        first: dict[tuple[int, int], tuple[int, int]] = {}
        last_ns = 0
        for send in plan.sends(rate, 1.0):
            assert last_ns <= send.at_ns < 1_000_000_000
            last_ns = send.at_ns
            assert 0 <= send.connection < connections
            if send.first:
                seqs[send.topic] += 1
                assert send.seq == seqs[send.topic]
                assert send.news_ns == send.at_ns
                first[send.topic, send.seq] = send.at_ns, send.connection
            else:  # soon, another connection repeats the message
                at_ns, connection = first[send.topic, send.seq]
                assert send.news_ns == at_ns
                assert send.connection != connection
                assert send.at_ns - at_ns <= within_s * 1e9


@hypothesis_settings(max_examples=30)
@given(st.integers(1, 6), st.integers(1, 20), st.floats(0, 0.9), st.integers(1, 200))
def test_a_message_has_one_publisher_until_another_connection_is_meant_to_repeat_it(
    connections: int, topics: int, share: float, segment: int
) -> None:
    plan = traffic(connections=connections, topics=topics, fanout=1, duplicates=share)
    first: dict[tuple[int, int], int] = {}
    repeated: dict[tuple[int, int], tuple[int, int]] = {}
    for number in range(2):
        for send in plan.sends(segment, 1.0):
            key = send.topic, send.seq
            if send.first:
                first[key] = send.connection
            else:
                repeated.setdefault(key, (number, send.at_ns))
            for by_ns in (send.at_ns - 1, send.at_ns):
                is_alone = repeated.get(key, (9, 9)) > (number, by_ns)
                assert plan.publisher(*key, by_ns) == (first[key] if is_alone else None)
    assert all(plan.publisher(*key, 10**9) == (None if key in repeated else first[key]) for key in first)


def test_of_many_repetitions_the_latest_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traffic_plan, "_REMEMBERED_MIN", 10)
    plan = traffic(topics=3)
    repeated = [(send.topic, send.seq) for send in plan.sends(1000, 1.0) if not send.first]
    assert all(plan.publisher(*key, 10**9) is None for key in repeated[-10:])
    assert len(plan._repeats) + len(plan._repeats_before) <= 20


def test_the_plans_of_closed_loops_have_one_publisher_a_topic() -> None:
    plan = CausalPlan(Causal(rate=20, duration_s=2))
    assert {message.connection == plan.publisher(message.topic, 1, 0) for message in plan.messages} == {True}
    assert TopicsPlan(Topics(), 4, "t").publisher(3, 1, 0) == PUBLISHER


def test_topics_come_in_turn_at_least_once_each() -> None:
    plan = TopicsPlan(Topics(messages=10), 4, "t")
    assert [(send.topic, send.seq) for send in plan.sends(None, 0)] == [
        *((topic, 1) for topic in range(4)),
        *((topic, 2) for topic in range(4)),
        (0, 3),
        (1, 3),
    ]
    assert len(list(TopicsPlan(Topics(messages=10), 64, "t").sends(None, 0))) == 64
    assert plan.subscriptions(SUBSCRIBER) == list(plan.topics)
    assert plan.subscriptions(PUBLISHER) == []
    assert len(set(plan.topics) | set(TopicsPlan(Topics(), 8, "t").topics)) == 12


@given(st.integers(0, 1 << 24), st.integers(1, 1 << 31), st.integers(0, 1 << 62), st.text(), st.integers(64, 300))
def test_a_payload_says_which_message_it_is(topic: int, seq: int, at_ns: int, content: str, size: int) -> None:
    text = payload("ab12", topic, seq, at_ns, content, size)
    assert len(text) >= size
    assert heading("ab12", text) == (topic, seq, at_ns)
    assert heading("ab13", text) is None


@given(st.text())
def test_any_other_text_is_no_payload(text: str) -> None:
    assert heading("ab12", text) is None
    assert heading("ab12", "ab12 x " + text) is None


def test_items_and_weights_are_drawn_apart_and_a_repetition_has_those_of_its_message() -> None:
    plain, about = list(traffic().sends(2000, 2)), list(traffic(items=3, weight=10).sends(2000, 2))
    assert [send._replace(item=None, weight=None) for send in about] == plain
    assert {send.item for send in about} == {"item 0", "item 1", "item 2"}
    weights = [send.weight for send in about if send.weight is not None]
    assert len(weights) == len(about)
    assert 0 <= min(weights) < 1 < 9 < max(weights) < 10
    first = {(send.topic, send.seq): (send.item, send.weight) for send in about if send.first}
    assert all(first[send.topic, send.seq] == (send.item, send.weight) for send in about)
