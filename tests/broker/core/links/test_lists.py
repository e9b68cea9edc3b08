"""The lists at both ends of a link, and what they may hold."""

from __future__ import annotations

from unittest import mock

from hypothesis import given
from hypothesis import strategies as st

from ingeborg.broker.core.links import lists
from ingeborg.broker.core.links.lists import Lists, Recipients


@given(st.lists(st.tuples(st.sampled_from("tuvw"), st.integers(1, 6), st.booleans()), max_size=60))
def test_what_the_sender_takes_for_kept_is_kept(messages: list[tuple[str, int, bool]]) -> None:
    sender, receiver = Lists(), Lists()
    with mock.patch.object(lists, "IDS_MAX", 10):
        for topic, size, other in messages:
            clients = [f"{number}{'x' * other}" for number in range(size)]
            if sender.holds(topic, list(clients)):
                assert receiver.use(topic) == clients
            else:
                sender.keep(topic, clients)
                receiver.keep(topic, Recipients(clients))
            assert sender.ids == receiver.ids <= 10


def test_a_topic_has_its_latest_list_only() -> None:
    kept = Lists()
    kept.keep("t", ["a", "b"])
    kept.keep("t", ["b"])
    assert (kept.use("t"), kept.ids) == (["b"], 1)
    assert kept.holds("t", ["b"])
    assert not kept.holds("t", ["a", "b"])
    assert not kept.holds("u", ["b"])


def test_the_lists_unused_for_longest_go_first() -> None:
    kept = Lists()
    with mock.patch.object(lists, "IDS_MAX", 4):
        kept.keep("t", ["a", "b"])
        kept.keep("u", ["c", "d"])
        kept.use("t")
        kept.keep("v", ["e"])
    assert kept.holds("t", ["a", "b"])
    assert not kept.holds("u", ["c", "d"])
    assert kept.ids == 3


def test_recipients_are_a_set_too_made_once() -> None:
    clients = Recipients(["b", "a"])
    assert clients.ids == {"a", "b"}
    assert clients.ids is clients.ids
