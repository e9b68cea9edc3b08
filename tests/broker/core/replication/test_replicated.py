"""The messages in a replica: packed at their home, absorbed elsewhere, and handed on after a crash of the home."""

from __future__ import annotations

import struct
from typing import Any

import ormsgpack
import pytest
from hypothesis import given
from hypothesis import strategies as some

from ingeborg.broker.core.dedup.dedup import KEY_BYTES, Dedup, key_of, slot_of_key
from ingeborg.broker.core.dedup.names import Names
from ingeborg.broker.core.dispatch import Dispatch
from ingeborg.broker.core.links.requests import Carried
from ingeborg.broker.core.message import Message
from ingeborg.broker.core.replication.replicated import SLICE_BYTES, ReplicatedMessages
from ingeborg.protocol.hashes import SLOTS, slot_of

from ..fake_desk import FakeDesk

TTL_S = 60.0


class Endpoint:
    """One endpoint's replicated messages."""

    def __init__(self) -> None:
        self.desk = FakeDesk()
        self.dedup: Dedup[Dispatch] = Dedup(TTL_S, 10_000)
        self.state = ReplicatedMessages(self.desk.real, self.dedup, Names())

    def begin(self, topic: str, payload: bytes, number: int = 1) -> bytes:
        """Begin the dispatch of a message here."""
        key = key_of(slot_of(topic), topic, payload)
        self.state.under_way[key] = Message(topic, payload, "origin", number, 0.0)
        return key

    def see(self, topic: str, payload: bytes) -> bytes:
        """Record a dispatched message here."""
        key = key_of(slot_of(topic), topic, payload)
        self.dedup.add(key, self.desk.now)
        return key


def test_a_message_that_its_home_has_dispatched_is_known_by_its_name_at_the_next_one() -> None:
    home, replica = Endpoint(), Endpoint()
    key, other = home.see("t", b"1"), home.see("t", b"2")
    home.state.names.learn(key, "origin", 1)
    replica.state.absorb(home.state.pack([other, key]))
    one, another = (Message("t", b"1", "origin", number, 0.0) for number in (1, 2))
    known = [replica.state.names.has(*pair) for pair in ((key, one), (key, another), (other, one))]
    assert known == [True, False, False]


def test_what_is_under_way_and_what_was_seen_is_taken_in() -> None:
    home, replica = Endpoint(), Endpoint()
    under_way, seen = home.begin("t", b"1"), home.see("t", b"2")
    unknown = key_of(slot_of("t"), "t", b"3")
    home.desk.now += 20.0
    assert replica.state.absorb(home.state.pack([under_way, seen, unknown])) == 3
    assert replica.state.of_others == {under_way: Carried("t", b"1", "origin", 1)}
    assert replica.dedup.left([seen], replica.desk.now)[0] == pytest.approx(40.0)
    assert replica.dedup.left([under_way], replica.desk.now)[0] == 0
    assert replica.dedup.left([unknown], replica.desk.now)[0] == 0


def test_a_message_that_has_been_dispatched_is_not_kept_any_more() -> None:
    home, replica = Endpoint(), Endpoint()
    key, failed = home.begin("t", b"1"), home.begin("t", b"2")
    replica.state.absorb(home.state.pack([key, failed]))
    home.state.under_way.clear()
    home.see("t", b"1")
    replica.state.absorb(home.state.pack([key, failed]))
    assert replica.state.of_others == {}
    assert replica.dedup.left([key], replica.desk.now)[0] == pytest.approx(TTL_S)
    assert replica.dedup.left([failed], replica.desk.now)[0] == 0


def test_a_crashed_home_s_messages_are_given_on_and_those_of_others_stay() -> None:
    home, replica = Endpoint(), Endpoint()
    topics = ["a", "b", "c"]
    keys = [home.begin(topic, b"x", number) for number, topic in enumerate(topics)]
    replica.state.absorb(home.state.pack(keys))
    replica.state.arrived([slot_of("b")], False)
    assert replica.state.left == [(keys[1], Carried("b", b"x", "origin", 1))]
    replica.state.dropped([slot_of("c")])
    replica.state.arrived(range(SLOTS), True)
    assert [key for key, _ in replica.state.left] == [keys[1], keys[0]]
    replica.state.arrived(range(SLOTS), True)
    assert len(replica.state.left) == 2


def test_all_there_is_departs_and_messages_by_their_bytes() -> None:
    home = Endpoint()
    keys = [home.begin(f"t{number}", bytes(SLICE_BYTES // 3)) for number in range(10)]
    keys.append(home.see("seen", b"x"))
    slots = frozenset(slot_of_key(key) for key in keys)
    slices = list(home.state.departing(slots))
    assert sorted(key for some_of_them in slices for key in some_of_them) == sorted(keys)
    assert max(map(len, slices)) == 3
    assert [key for of in home.state.departing(frozenset({slot_of("seen")})) for key in of if key == keys[-1]]


def test_nothing_departs_of_other_slots() -> None:
    home = Endpoint()
    home.begin("t", b"x")
    home.see("t", b"y")
    slots = frozenset(range(SLOTS)) - {slot_of("t")}
    assert [key for keys in home.state.departing(slots) for key in keys] == []


ONE_KEY = key_of(slot_of("t"), "t", b"x")
A_TIME = struct.pack("<f", 1.0)


@pytest.mark.parametrize(
    "rows",
    [
        {},
        [],
        [ONE_KEY, A_TIME],
        [ONE_KEY, A_TIME, {}],
        [ONE_KEY, A_TIME, [], {}],
        [ONE_KEY[1:], A_TIME, {}, {}],
        [ONE_KEY, A_TIME * 2, {}, {}],
        [b"\xff" * KEY_BYTES, A_TIME, {}, {}],
        ["key", A_TIME, {}, {}],
        [ONE_KEY, A_TIME, {"0": ["t", b"x", "o", 1]}, {}],
        [ONE_KEY, A_TIME, {0: ["t", b"x", "o"]}, {}],
        [ONE_KEY, A_TIME, {0: ["t", "x", "o", 1]}, {}],
        [ONE_KEY, A_TIME, {0: [b"t", b"x", "o", 1]}, {}],
        [ONE_KEY, A_TIME, {0: ["t", b"x", 5, 1]}, {}],
        [ONE_KEY, A_TIME, {0: ["t", b"x", "o", "1"]}, {}],
        [ONE_KEY, A_TIME, {0: None}, {}],
        [ONE_KEY, A_TIME, {}, []],
        [ONE_KEY, A_TIME, {}, {0: None}],
        [ONE_KEY, A_TIME, {}, {0: ["o"]}],
        [ONE_KEY, A_TIME, {}, {0: ["o", "1"]}],
        [ONE_KEY, A_TIME, {}, {0: [1, 1]}],
        [ONE_KEY, A_TIME, {}, {1: ["o", 1]}],
    ],
)
def test_what_nobody_packs_so_is_refused_and_changes_nothing(rows: Any) -> None:
    replica = Endpoint()
    with pytest.raises(ValueError, match="the chunk"):
        replica.state.absorb(ormsgpack.packb(rows, option=ormsgpack.OPT_NON_STR_KEYS))
    assert (len(replica.dedup), replica.state.of_others) == (0, {})


@given(some.binary(max_size=200))
def test_bytes_of_any_kind_are_refused_by_a_value_error_or_taken(data: bytes) -> None:
    replica = Endpoint()
    try:
        replica.state.absorb(data)
    except ValueError:
        assert (len(replica.dedup), replica.state.of_others) == (0, {})


def test_times_that_are_none_are_passed_over() -> None:
    replica = Endpoint()
    for seconds in (float("nan"), -1.0, 0.0):
        data = ormsgpack.packb([ONE_KEY, struct.pack("<f", seconds), {}, {}], option=ormsgpack.OPT_NON_STR_KEYS)
        assert replica.state.absorb(data) == 1
    assert len(replica.dedup) == 0
