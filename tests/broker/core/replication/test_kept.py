"""What a standby keeps of messages: packed at their home, taken in elsewhere, given on when the home has crashed."""

from __future__ import annotations

import struct
from typing import Any

import ormsgpack
import pytest
from hypothesis import given
from hypothesis import strategies as some

from ingeborg.broker.core.dedup.dedup import KEY_BYTES, Dedup, key_of, slot_of_key
from ingeborg.broker.core.dedup.names import Names
from ingeborg.broker.core.dispatch import Handover
from ingeborg.broker.core.links.requests import Carried
from ingeborg.broker.core.message import Message
from ingeborg.broker.core.replication.kept import SLICE_BYTES, KeptMessages
from ingeborg.protocol.hashes import SLOTS, slot_of

from ..fake_desk import FakeDesk

TTL_S = 60.0


class Kept:
    """One endpoint's."""

    def __init__(self) -> None:
        self.desk = FakeDesk()
        self.dedup: Dedup[Handover] = Dedup(TTL_S, 10_000)
        self.state = KeptMessages(self.desk.real, self.dedup, Names())

    def begin(self, topic: str, payload: bytes, number: int = 1) -> int:
        """A message is being handed over here."""
        key = key_of(slot_of(topic), topic, payload)
        self.state.under_way[key] = Message(topic, payload, "origin", number, 0.0)
        return key

    def see(self, topic: str, payload: bytes) -> int:
        """One has been."""
        key = key_of(slot_of(topic), topic, payload)
        self.dedup.add(key, self.desk.now)
        return key


def test_a_message_that_its_home_has_handed_over_is_known_by_its_name_at_the_next_one() -> None:
    home, standby = Kept(), Kept()
    key, other = home.see("t", b"1"), home.see("t", b"2")
    home.state.names.learn(key, "origin", 1)
    standby.state.absorb(home.state.pack([other, key]))
    one, another = (Message("t", b"1", "origin", number, 0.0) for number in (1, 2))
    known = [standby.state.names.has(*pair) for pair in ((key, one), (key, another), (other, one))]
    assert known == [True, False, False]


def test_what_is_under_way_and_what_was_seen_is_taken_in() -> None:
    home, standby = Kept(), Kept()
    under_way, seen = home.begin("t", b"1"), home.see("t", b"2")
    unknown = key_of(slot_of("t"), "t", b"3")
    home.desk.now += 20.0
    assert standby.state.absorb(home.state.pack([under_way, seen, unknown])) == 3
    assert standby.state.kept == {under_way: Carried("t", b"1", "origin", 1)}
    assert standby.dedup.left([seen], standby.desk.now)[0] == pytest.approx(40.0)
    assert standby.dedup.left([under_way], standby.desk.now)[0] == 0
    assert standby.dedup.left([unknown], standby.desk.now)[0] == 0


def test_a_message_that_has_been_handed_over_is_not_kept_any_more() -> None:
    home, standby = Kept(), Kept()
    key, failed = home.begin("t", b"1"), home.begin("t", b"2")
    standby.state.absorb(home.state.pack([key, failed]))
    home.state.under_way.clear()
    home.see("t", b"1")
    standby.state.absorb(home.state.pack([key, failed]))
    assert standby.state.kept == {}
    assert standby.dedup.left([key], standby.desk.now)[0] == pytest.approx(TTL_S)
    assert standby.dedup.left([failed], standby.desk.now)[0] == 0


def test_a_crashed_home_s_messages_are_given_on_and_those_of_others_stay() -> None:
    home, standby = Kept(), Kept()
    topics = ["a", "b", "c"]
    keys = [home.begin(topic, b"x", number) for number, topic in enumerate(topics)]
    standby.state.absorb(home.state.pack(keys))
    standby.state.arrived([slot_of("b")], False)
    assert standby.state.left == [(keys[1], Carried("b", b"x", "origin", 1))]
    standby.state.dropped([slot_of("c")])
    standby.state.arrived(range(SLOTS), True)
    assert [key for key, _ in standby.state.left] == [keys[1], keys[0]]
    standby.state.arrived(range(SLOTS), True)
    assert len(standby.state.left) == 2


def test_all_there_is_departs_and_messages_by_their_bytes() -> None:
    home = Kept()
    keys = [home.begin(f"t{number}", bytes(SLICE_BYTES // 3)) for number in range(10)]
    keys.append(home.see("seen", b"x"))
    slots = frozenset(slot_of_key(key) for key in keys)
    slices = list(home.state.departing(slots))
    assert sorted(key for some_of_them in slices for key in some_of_them) == sorted(keys)
    assert max(map(len, slices)) == 3
    assert [key for of in home.state.departing(frozenset({slot_of("seen")})) for key in of if key == keys[-1]]


def test_nothing_departs_of_other_slots() -> None:
    home = Kept()
    home.begin("t", b"x")
    home.see("t", b"y")
    slots = frozenset(range(SLOTS)) - {slot_of("t")}
    assert [key for keys in home.state.departing(slots) for key in keys] == []


ONE_KEY = key_of(slot_of("t"), "t", b"x").to_bytes(KEY_BYTES)
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
    standby = Kept()
    with pytest.raises(ValueError, match=r"no |keys"):
        standby.state.absorb(ormsgpack.packb(rows, option=ormsgpack.OPT_NON_STR_KEYS))
    assert (len(standby.dedup), standby.state.kept) == (0, {})


@given(some.binary(max_size=200))
def test_bytes_of_any_kind_are_refused_by_a_value_error_or_taken(data: bytes) -> None:
    standby = Kept()
    try:
        standby.state.absorb(data)
    except ValueError:
        assert (len(standby.dedup), standby.state.kept) == (0, {})


def test_times_that_are_none_are_passed_over() -> None:
    standby = Kept()
    for seconds in (float("nan"), -1.0, 0.0):
        data = ormsgpack.packb([ONE_KEY, struct.pack("<f", seconds), {}, {}], option=ormsgpack.OPT_NON_STR_KEYS)
        assert standby.state.absorb(data) == 1
    assert len(standby.dedup) == 0
