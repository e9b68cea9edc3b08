"""The lists at both ends of a link, and their bounds."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ingeborg.broker.core.links.lists import Lists


@given(st.lists(st.tuples(st.sampled_from("tuvw"), st.integers(1, 6), st.booleans()), max_size=60))
def test_what_the_sender_takes_for_kept_is_kept(messages: list[tuple[str, int, bool]]) -> None:
    sender, receiver = Lists(10), Lists(10)
    for topic, size, other in messages:
        clients = [f"{number}{'x' * other}" for number in range(size)]
        if sender.holds(topic, list(clients)):
            assert receiver.use(topic) == clients
        else:
            sender.keep(topic, clients)
            receiver.keep(topic, clients)
        assert sender.ids == receiver.ids <= 10


def test_a_topic_has_its_latest_list_only() -> None:
    kept = Lists(100)
    kept.keep("t", ["a", "b"])
    kept.keep("t", ["b"])
    assert (kept.use("t"), kept.ids) == (["b"], 1)
    assert kept.holds("t", ["b"])
    assert not kept.holds("t", ["a", "b"])
    assert kept.use("u") is None
    assert not kept.holds("u", ["b"])


def test_the_lists_unused_for_longest_go_first() -> None:
    kept = Lists(4)
    kept.keep("t", ["a", "b"])
    kept.keep("u", ["c", "d"])
    kept.use("t")
    kept.keep("v", ["e"])
    assert kept.holds("t", ["a", "b"])
    assert not kept.holds("u", ["c", "d"])
    assert kept.ids == 3
