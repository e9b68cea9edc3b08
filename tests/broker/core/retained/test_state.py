"""The retained messages that travel with a slot: packed, absorbed, and equal at both ends. SPEC section 8.10."""

from __future__ import annotations

from typing import Any

import ormsgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingeborg.broker.core.retained import log as log_module
from ingeborg.broker.core.retained import state as state_module
from ingeborg.broker.core.retained.clock import UNHEARD_OF
from ingeborg.broker.core.retained.log import Log
from ingeborg.protocol.hashes import SLOTS, slot_of
from tests import wants

from .here import Keeper

TOPICS = ("t", "u", "v")
ALL = frozenset(range(SLOTS))


def contents(here: Keeper) -> dict[str, Any]:
    """Return everything that its log has."""
    log: Log = here.log
    floors = {slot: log.floor(slot) for slot in range(SLOTS) if log.floor(slot)}
    found: dict[str, Any] = {"floors": floors, "written": set(log.written)}
    for slot in range(SLOTS):
        for topic in log.topics_of(slot):
            rows = [(one.stamp, one.payload, one.origin, one.number, one.expires) for one in topic.entries]
            found[topic.topic] = (topic.forgotten, rows)
    return found


def replicated(here: Keeper, there: Keeper, slots: frozenset[int] = ALL) -> int:
    """Send everything there. Returns the number of keys."""
    keys = 0
    for chunk in here.state.departing(slots):
        while chunk:
            part = here.state.chunk(chunk)
            keys += there.state.absorb(here.state.pack(part))
            chunk = chunk[len(part) :]
    return keys


def apply(here: Keeper, data: st.DataObject) -> None:
    """Keep some messages, and drop some."""
    entries = []
    for _ in range(data.draw(st.integers(0, 12))):
        what = data.draw(st.sampled_from(("keep", "keep", "forget", "remove", "anew", "floor", "written", "wait")))
        if what == "keep":
            expires_s = data.draw(st.sampled_from((1.0, 600.0)))
            entries.append(
                here.keep(data.draw(st.sampled_from(TOPICS)), 0, data.draw(st.binary(max_size=3)), expires_s)
            )
        elif what == "floor":
            here.log.raise_floor(data.draw(st.integers(0, SLOTS - 1)), here.clock.step())
        elif what == "written":
            here.log.written.add(data.draw(st.integers(0, SLOTS - 1)))
        elif what == "wait":
            here.desk.now += 1.0
            here.log.sweep(here.desk.now)
        elif entries:
            one = data.draw(st.sampled_from(entries))
            slot = slot_of(one.topic)
            if what == "forget":
                here.log.forget_to(slot, one.topic, one.stamp)
            elif not one.gone and what == "remove":
                here.log.remove(slot, one)
            elif not one.gone:
                here.log.stamp_anew(slot, one, here.clock.step())


@settings(deadline=None)
@given(st.data())
def test_what_is_packed_is_the_same_at_the_other_end_and_twice_changes_nothing(data: st.DataObject) -> None:
    here, there = Keeper(), Keeper()
    apply(here, data)
    there.desk.now = here.desk.now
    replicated(here, there)
    assert contents(there) == contents(here)
    assert (there.log.bytes, there.log.entries, there.log.topics) == (here.log.bytes, here.log.entries, here.log.topics)
    replicated(here, there)
    assert contents(there) == contents(here)
    assert there.log.bytes == here.log.bytes
    assert there.clock.value >= max(
        [stamp for value in contents(here).values() if isinstance(value, tuple) for stamp, *_ in value[1]], default=0
    )


@settings(deadline=None)
@given(st.data())
def test_changes_that_are_told_later_lead_to_the_same(data: st.DataObject) -> None:
    """A replica gets everything present, and later, for each changed key, the key's state at that moment."""
    here, there = Keeper(), Keeper()
    entries = [here.keep(topic) for topic in TOPICS for _ in range(2)]
    replicated(here, there)
    for one in data.draw(st.lists(st.sampled_from(entries), max_size=6)):
        slot = slot_of(one.topic)
        what = data.draw(st.sampled_from(("remove", "anew")))
        if one.gone:
            continue
        if what == "remove":
            here.log.remove(slot, one)
        else:
            here.log.stamp_anew(slot, one, here.clock.step())
        if data.draw(st.booleans()):
            there.state.absorb(here.state.pack([one]))
    there.state.absorb(here.state.pack(entries))
    assert contents(there) == contents(here)


def test_a_message_that_is_dispatched_again_is_there_once() -> None:
    here, there, third = Keeper(), Keeper(), Keeper()
    entry = here.keep("t", 3)
    replicated(here, there)
    replicated(here, third)
    here.log.stamp_anew(slot_of("t"), entry, 9)
    there.state.absorb(here.state.pack([entry]))
    replicated(there, third)  # it also holds where that replica replicates it to
    for one in (there, third):
        assert [kept.stamp for kept in one.log.get(slot_of("t"), "t").entries] == [9]  # type: ignore[union-attr]
        assert one.log.entries == 1


def test_of_an_entry_that_is_gone_it_is_said_why() -> None:
    here = Keeper()
    removed, forgotten, floored = here.keep("t", 1), here.keep("u", 2), here.keep("v", 3)
    there = Keeper()
    replicated(here, there)
    here.log.remove(slot_of("t"), removed)
    here.desk.now = forgotten.expires
    here.log.sweep(here.desk.now)
    here.log.drop(slot_of("v"))
    here.log.raise_floor(slot_of("v"), 5)
    rows = ormsgpack.unpackb(here.state.pack([removed, forgotten, floored]))
    assert rows == [
        [state_module.NONE, "t", "o", removed.number],
        [state_module.FORGOTTEN, "u", 2],
        [state_module.FLOOR, slot_of("v"), 5, False],
    ]
    there.state.absorb(ormsgpack.packb(rows))
    assert there.log.get(slot_of("t"), "t") is None
    assert there.log.get(slot_of("u"), "u").forgotten == 2  # type: ignore[union-attr]
    assert there.log.floor(slot_of("v")) == 5


def test_what_is_over_when_it_comes_is_a_gap() -> None:
    here, there = Keeper(), Keeper()
    entry = here.keep("t", 3)
    packed = here.state.pack([entry])
    rows = ormsgpack.unpackb(packed)
    rows[0][-1] = 0
    there.state.absorb(ormsgpack.packb(rows))
    found = there.log.get(slot_of("t"), "t")
    assert found is not None
    assert (found.entries, found.forgotten) == ([], 3)


ROW = [state_module.ENTRY, "t", b"1", "o", 1, 7, 60.0]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xc1",
        ormsgpack.packb(7),
        ormsgpack.packb({}),
        *(
            ormsgpack.packb([ROW, row])
            for row in (
                7,
                [],
                [9, "t"],
                ["0", "t"],
                [True, "t", "o", 1],
                ROW[:-1],
                [*ROW, 1],
                *([*ROW[:index], None, *ROW[index + 1 :]] for index in range(len(ROW))),
                [state_module.NONE, "t", "o"],
                [state_module.FORGOTTEN, "t", "7"],
                [state_module.FLOOR, 7, 7],
                [state_module.FLOOR, 7, 7, 1],
                [state_module.FLOOR, SLOTS, 7, True],
                [state_module.FLOOR, -1, 7, True],
                [state_module.FLOOR, True, 7, True],
            )
        ),
    ],
)
def test_what_nobody_packed_is_refused_and_changes_nothing(data: bytes) -> None:
    here = Keeper()
    here.keep("u", 3)
    before, clock = contents(here), here.clock.value
    with pytest.raises(ValueError, match=r"\w"):
        here.state.absorb(data)
    assert contents(here) == before
    assert here.clock.value == clock


def test_slots_that_come_without_what_belongs_to_them_are_lacking_all_before() -> None:
    here = Keeper()
    here.clock.see(7)
    here.state.arrived([1, 2], False)
    behind = 7 + UNHEARD_OF  # their home may have announced positions that no endpoint here knows
    assert (here.log.floor(1), here.log.floor(2), here.clock.value) == (behind, behind, behind)
    here.state.arrived([3], True)
    assert here.log.floor(3) == 0


@pytest.mark.parametrize("what", ["gone", "dropped"])
def test_slots_that_go_take_all_with_them(what: str) -> None:
    here = Keeper()
    here.keep("t", 3)
    here.log.raise_floor(slot_of("t"), 2)
    here.log.written.add(slot_of("t"))
    getattr(here.state, what)([slot_of("t")])
    assert contents(here) == {"floors": {}, "written": set()}
    assert here.log.bytes == 0


def test_a_replica_goes_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    wants.interpreted()
    monkeypatch.setattr(state_module, "KEYS_PER_CHUNK", 3)
    here, there = Keeper(), Keeper()
    for number in range(10):
        here.keep(f"t{number}")
        here.log.raise_floor(number, 5)
    assert all(len(here.state.chunk(keys)) <= 3 for keys in here.state.departing(ALL))
    assert replicated(here, there) == 20
    assert contents(there) == contents(here)


def test_what_moves_from_a_topic_to_its_floor_while_a_replica_is_made_is_replicated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wants.interpreted()
    monkeypatch.setattr(state_module, "KEYS_PER_CHUNK", 3)
    monkeypatch.setattr(log_module, "HOLES_MAX", 1)
    here, there = Keeper(), Keeper()
    order = list(ALL)
    first, hole, other = sorted(("t", "u", "v"), key=lambda topic: order.index(slot_of(topic)))
    for _ in range(3):
        here.keep(first)
    here.log.forget_to(slot_of(hole), hole, 50)
    departing = here.state.departing(ALL)
    chunks = [next(departing)]  # it has not come to the hole
    here.log.forget_to(slot_of(other), other, 60)  # without room to remember both by their names
    assert here.log.get(slot_of(hole), hole) is None
    chunks += departing
    for keys in chunks:
        there.state.absorb(here.state.pack(keys))
    assert there.log.floor(slot_of(hole)) == 50
    assert contents(there) == contents(here)
