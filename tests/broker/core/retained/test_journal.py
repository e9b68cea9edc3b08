"""The journal has the retained messages, and endpoints read it when slots come without theirs. SPEC section 8.10."""

from __future__ import annotations

from typing import Any

import pytest

from ingeborg.broker.core.cluster.membership import LEASE_S
from ingeborg.broker.core.entries import Entry
from ingeborg.broker.core.limits import Limits
from ingeborg.broker.core.model import NO_SETTINGS, VOID, RetainedMessage, Settings, Shape
from ingeborg.broker.core.part import Part
from ingeborg.broker.core.retained import journal as journal_module
from ingeborg.broker.core.retained.clock import STAMPS_PER_MS
from ingeborg.broker.core.retained.journal import AGAIN_S, RETAINED_PER_PAGE, SLOTS_PER_READ, Unread
from ingeborg.protocol.hashes import slot_of
from tests import wants

from .here import EPOCH, IN_MEMORY, IN_STORE, Keeper

UNIX_S = 1_800_000_000.0
#: The clock's leap at the moment at which all these tests begin.
LEAPT = int(UNIX_S + 100.0) * 1_000 * STAMPS_PER_MS
SLOT = slot_of("t")


class Informed(Part):
    """A part that notes its events."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def informed(self) -> None:
        self.told.append("informed")


@pytest.fixture
def here() -> Keeper:
    here = Keeper(settings=IN_STORE, unix_s=UNIX_S + 100.0)
    begin(here)
    return here


def written(here: Keeper) -> list[tuple[Any, str]]:
    """Return the results for messages' entries since the last call: the entry, and the reason if it was not written."""
    found = [(dispatch, str(error or "")) for dispatch, error in here.journal.written]
    here.journal.written.clear()
    return found


def begin(here: Keeper) -> None:
    """End the past epochs of the cluster."""
    here.journal.write()
    here.stored("reach")[0].end(([], here.clock.value))


def keep(here: Keeper, stamp: int, name: Any) -> Entry:
    """Keep a message of the topic ``t`` that must be written while something waits for it."""
    entry = here.keep("t", stamp)
    here.journal.keep(SLOT, entry, name)
    return entry


def goes(here: Keeper, slot: int) -> None:
    """Make another endpoint the home of the slot from now on."""
    here.members.table = [*here.members.table[:slot], "other", *here.members.table[slot + 1 :]]
    here.state.gone([slot])


def kept(number: int, stamp: int, left_s: float = 60.0, topic: str = "t") -> RetainedMessage:
    return RetainedMessage(slot_of(topic), stamp, topic, b"1", "o", number, UNIX_S + 100.0 + left_s)


def test_the_lives_before_are_ended_before_the_first_write() -> None:
    here = Keeper(settings=IN_STORE)
    here.journal.floor(SLOT, 5)
    here.journal.write()
    (call,) = here.stored("reach")
    assert call.arguments == ([EPOCH], 0)
    here.journal.write()
    assert here.stored() == []  # or the former epoch would end with this endpoint's own writes
    call.end(([("before", 4)], 6))
    assert here.watermarks.past == {"before": 4}
    here.journal.write()
    (call,) = here.stored("keep")
    assert call.arguments == ([], [], [(SLOT, 5)], [])


def test_a_position_is_told_once_the_journal_knows_that_it_may_be() -> None:
    here = Keeper("a", "b", settings=IN_STORE)
    begin(here)
    watermarks = here.watermarks
    here.clock.see(9)
    here.told("a", 8)
    here.told("b", 9)
    assert watermarks.cluster_watermark == 0  # the journal has stamps up to there
    here.journal.write()
    (call,) = here.stored("reach")
    assert call.arguments == ([EPOCH], 8)
    here.told("b", 10)
    here.journal.write()
    assert here.stored() == []
    call.end(None, OSError("the disk is full"))
    assert watermarks.cluster_watermark == 0
    here.desk.now += AGAIN_S
    here.journal.write()
    (call,) = here.stored("reach")
    assert call.arguments == ([EPOCH], 8)
    call.end(([("before", 4)], 11))  # after others' writes
    assert watermarks.cluster_watermark == 8
    assert [watermarks.stamp_of(position) for position in ("before.4", "before.5")] == [4, None]
    here.told("a", 11)
    here.told("b", 11)
    here.journal.write()
    assert (watermarks.cluster_watermark, here.stored()) == (11, [])


def test_one_write_is_under_way_at_a_time_and_the_rest_goes_into_the_next(here: Keeper) -> None:
    wants.interpreted()  # a name stands for a message
    first = keep(here, 10, "first")
    here.journal.write()
    (call,) = here.stored("keep")
    row = RetainedMessage(SLOT, 10, "t", b"1", "o", first.number, UNIX_S + first.expires)
    assert call.arguments == ([row], [], [], [])
    keep(here, 11, "second")
    keep(here, 12, "third")
    here.journal.write()
    assert (here.stored(), written(here)) == ([], [])
    call.end()
    assert written(here) == [("first", "")]
    here.journal.write()
    (call,) = here.stored("keep")
    assert [one.stamp for one in call.arguments[0]] == [11, 12]
    call.end()
    assert written(here) == [("second", ""), ("third", "")]
    here.journal.write()
    assert here.stored() == []


def test_a_turn_writes_so_many_and_the_next_ones_the_others(here: Keeper, monkeypatch: pytest.MonkeyPatch) -> None:
    wants.interpreted()
    monkeypatch.setattr(journal_module, "RETAINED_PER_WRITE", 2)
    for stamp in range(10, 15):
        keep(here, stamp, stamp)
    here.journal.forget(SLOT, 9)  # it may be one of these with a new stamp: it goes when they are written
    found = []
    for _ in range(3):
        here.journal.write()
        (call,) = here.stored("keep")
        found.append(([one.stamp for one in call.arguments[0]], call.arguments[1]))
        call.end()
    assert found == [([10, 11], []), ([12, 13], []), ([14], [(SLOT, 9)])]


def test_what_could_not_be_written_is_told_and_counted_and_the_rest_is_written_again(here: Keeper) -> None:
    wants.interpreted()  # a name stands for a message
    keep(here, 10, "first")
    here.journal.forget(SLOT, 9)
    here.journal.floor(SLOT, 7)
    here.journal.write()
    (call,) = here.stored("keep")
    here.journal.floor(SLOT, 8)
    call.end(None, OSError("the disk is full"))
    assert written(here) == [("first", "the disk is full")]
    assert here.desk.drops["not_retained"] == 1
    here.journal.write()
    assert here.stored() == []  # the part does not ask a failing store at every turn
    here.desk.now += AGAIN_S
    here.journal.write()
    (call,) = here.stored("keep")
    assert call.arguments == ([], [(SLOT, 9)], [(SLOT, 8)], [])


def test_a_message_is_written_though_the_write_before_failed_and_takes_the_rest_along(here: Keeper) -> None:
    wants.interpreted()  # a name stands for a message
    here.journal.forget(SLOT, 9)
    here.journal.write()
    (call,) = here.stored("keep")
    call.end(None, OSError("the disk is full"))
    keep(here, 10, "first")
    here.journal.write()
    (call,) = here.stored("keep")
    assert ([one.stamp for one in call.arguments[0]], call.arguments[1]) == ([10], [(SLOT, 9)])
    call.end()
    assert written(here) == [("first", "")]


def test_what_is_forgotten_while_the_store_fails_is_bounded_and_counted(
    here: Keeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    wants.interpreted()
    monkeypatch.setattr(journal_module, "FORGOTTEN_MAX", 3)
    for stamp in range(5, 10):
        here.journal.forget(SLOT, stamp)
    here.journal.write()
    (call,) = here.stored("keep")
    call.end(None, OSError("the disk is full"))
    assert here.desk.counts["retained_not_erased"] == 2
    here.desk.now += AGAIN_S
    here.journal.write()
    (call,) = here.stored("keep")
    assert call.arguments[1] == [(SLOT, 7), (SLOT, 8), (SLOT, 9)]


def test_what_is_forgotten_before_it_was_written_is_not_written(here: Keeper) -> None:
    wants.interpreted()  # a name stands for a message
    keep(here, 10, "first")
    here.journal.forget(SLOT, 10)
    assert written(here) == [("first", "")]  # everything that waits for it goes on
    here.journal.write()
    assert here.stored() == []


def test_what_the_log_forgets_by_itself_is_forgotten_and_leaves_a_floor(here: Keeper) -> None:
    entry = here.keep("t", 10, expires_s=1.0)
    here.desk.now += 1.0
    here.log.sweep(here.desk.now)
    assert entry.gone
    here.journal.write()
    (call,) = here.stored("keep")
    assert call.arguments == ([], [(SLOT, 10)], [(SLOT, 10)], [])


def test_how_far_those_before_had_come_is_known_before_this_endpoint_acts(here: Keeper) -> None:
    informed = Informed()
    here.cluster.observers.bind([informed])
    here.journal.tick()
    (call,) = here.stored("retained_top")
    here.journal.tick()
    assert here.stored() == []
    call.end(None, OSError("down"))
    here.journal.tick()
    assert here.stored() == []
    here.desk.now += AGAIN_S
    here.journal.tick()
    assert (here.members.informed, informed.told) == (False, [])
    here.stored("retained_top")[0].end(77)
    assert (here.members.informed, informed.told) == (True, ["informed"])
    assert here.clock.value >= 77
    here.desk.now += AGAIN_S
    here.journal.tick()
    assert here.stored() == []


def test_slots_that_come_are_read_page_by_page_and_are_nobodys_before(here: Keeper) -> None:
    here.clock.see(100)
    here.state.arrived([SLOT], False)
    assert here.clock.value == LEAPT  # former endpoints may have given stamps that this one does not know
    assert here.log.floor(SLOT) == 0
    assert SLOT in here.journal.loading
    (call,) = here.stored("retained")
    assert call.arguments == ([SLOT], None, RETAINED_PER_PAGE)
    call.end(([kept(1, 5), kept(2, 6)], [(SLOT, 3)], "more"))
    assert SLOT in here.journal.loading
    (call,) = here.stored("retained")
    assert call.arguments == ([SLOT], "more", RETAINED_PER_PAGE)
    call.end(([kept(3, 7), kept(4, 8, left_s=-1.0)], [], None))
    assert not here.journal.loading
    topic = here.log.get(SLOT, "t")
    assert topic is not None
    assert [entry.stamp for entry in topic.entries] == [5, 6, 7]
    assert topic.forgotten == 8  # a gap
    assert here.log.floor(SLOT) == 3
    here.journal.write()
    (call,) = here.stored("keep")
    assert call.arguments[1:] == ([(SLOT, LEAPT), (SLOT, 8)], [(SLOT, 8)], [])  # the last one was over


def test_who_comes_when_all_have_ended_reads_what_they_kept_and_stamps_behind_all_of_theirs(here: Keeper) -> None:
    here.clock.see(100)
    here.state.begun([SLOT])
    assert here.clock.value == LEAPT
    assert here.journal.loading.keys() == {SLOT}
    here.journal.write()
    written = [call for call in here.desk.stored if call.operation == "keep"]
    # So the next epoch begins behind every stamp of this one, written or not.
    assert written[0].arguments[1] == [(SLOT, LEAPT)]


@pytest.mark.parametrize("how", ["begun", "whole", "lacking"])
def test_a_home_in_memory_voids_its_slots_before_their_first_message_and_writes_nothing_more(how: str) -> None:
    wants.interpreted()  # a name stands for a message
    here = Keeper()
    slots = [SLOT, SLOT + 1]
    if how == "begun":
        here.state.begun(slots)
    else:
        here.state.arrived(slots, how == "whole")
    assert here.journal.holds
    keep(here, 10, "first")
    here.journal.write()
    (call,) = here.stored("keep")
    assert call.arguments == ([], [], [(slot, VOID) for slot in slots], [])
    assert here.journal.holds
    keep(here, 11, "second")
    here.journal.write()
    assert (here.stored(), written(here)) == ([], [])
    call.end()
    here.journal.write()
    assert (here.journal.holds, here.stored()) == (False, [])
    assert written(here) == [("first", ""), ("second", "")]


def test_a_home_in_memory_hands_no_message_over_whose_slot_it_could_not_void() -> None:
    wants.interpreted()  # a name stands for a message
    here = Keeper()
    here.state.begun([SLOT])
    keep(here, 10, "first")
    here.journal.write()
    here.stored("keep")[0].end(None, OSError("the disk is full"))
    assert written(here) == [("first", "the disk is full")]
    keep(here, 11, "second")
    here.journal.write()
    (call,) = here.stored("keep")
    assert call.arguments == ([], [], [(SLOT, VOID)], [])


@pytest.mark.parametrize("settings", [NO_SETTINGS, IN_MEMORY])
def test_of_a_store_without_a_journal_nothing_is_asked(settings: Settings) -> None:
    here = Keeper("a", settings=settings, limits=Limits(), shape=Shape(journal=False))
    state, journal = here.state, here.journal
    state.begun([SLOT])
    state.arrived([SLOT + 1], True)
    state.arrived([SLOT + 2], False)
    journal.tick()
    journal.write()
    assert (here.stored(), journal.holds, here.members.informed) == ([], False, True)
    assert here.log.floor(SLOT) == 0


def test_a_home_that_writes_says_from_where_on_it_has_all_of_a_slot_that_comes_from_memory(here: Keeper) -> None:
    here.clock.see(100)
    memory = Keeper()
    entry = memory.keep("t", 7)
    here.state.absorb(memory.state.pack([entry, SLOT]))
    here.state.arrived([SLOT], True)
    here.journal.write()
    (call,) = here.stored("keep")
    assert call.arguments == ([], [], [(SLOT, 101)], [SLOT])
    assert here.clock.stamp() > 101
    assert here.log.floor(SLOT) == 0  # in memory nothing is missing
    here.state.arrived([SLOT], True)
    call.end()
    here.journal.write()
    assert here.stored() == []


def test_a_slot_whose_copy_says_that_it_is_written_needs_no_other_floor(here: Keeper) -> None:
    before = Keeper(settings=IN_STORE)
    before.state.arrived([SLOT], True)
    for keys in before.state.departing(frozenset([SLOT])):
        here.state.absorb(before.state.pack(keys))
    here.state.arrived([SLOT, SLOT + 1], True)
    here.journal.write()
    (call,) = here.stored("keep")
    assert ([slot for slot, _ in call.arguments[2]], call.arguments[3]) == ([SLOT + 1], [SLOT + 1])
    # This goes on until a home in memory has the slot.
    memory = Keeper()
    for keys in here.state.departing(frozenset([SLOT])):
        memory.state.absorb(here.state.pack(keys))
    assert memory.log.written == {SLOT}
    memory.state.arrived([SLOT], True)
    assert memory.log.written == set()


def test_a_slot_that_was_kept_in_memory_has_a_gap_where_it_is_read_and_is_written_from_there_on(here: Keeper) -> None:
    here.clock.see(100)
    here.state.begun([SLOT, SLOT + 1])
    here.stored("retained")[0].end(([kept(1, 5)], [(SLOT, VOID), (SLOT + 1, 3)], None))
    floor = here.log.floor(SLOT)
    assert LEAPT < floor <= here.clock.value
    assert here.log.floor(SLOT + 1) == 3
    here.journal.write()
    (call,) = here.stored("keep")
    assert call.arguments[2:] == ([(SLOT, floor)], [SLOT])
    call.end()
    here.state.arrived([SLOT], True)
    here.journal.write()
    assert here.stored() == []


def test_a_floor_that_could_not_be_written_makes_only_slots_whole_that_are_still_here(here: Keeper) -> None:
    slots = [SLOT, SLOT + 1]
    here.state.arrived(slots, True)
    here.journal.write()
    (call,) = here.stored("keep")
    assert call.arguments[3] == slots
    floors = call.arguments[2]
    goes(here, SLOT)  # its next home may keep messages in memory, and has announced that by now
    call.end(None, OSError("the disk is full"))
    here.desk.now += AGAIN_S
    here.journal.write()
    (call,) = here.stored("keep")
    assert call.arguments == ([], [], floors, [SLOT + 1])


def test_an_endpoint_that_may_not_act_makes_no_slot_whole(here: Keeper) -> None:
    """Another endpoint may be home, keep messages in memory, and have announced that."""
    here.state.arrived([SLOT, SLOT + 1], True)
    here.desk.now += 10 * LEASE_S
    here.lose_lease()
    here.journal.floor(SLOT + 2, 5)
    here.journal.write()
    (call,) = here.stored("keep")
    assert call.arguments == ([], [], [(SLOT + 2, 5)], [])
    call.end()
    here.journal.write()
    assert here.stored() == []
    goes(here, SLOT)
    here.members.joined = True  # the others have let it in
    here.journal.write()
    (call,) = here.stored("keep")
    assert call.arguments[3] == [SLOT + 1]
    assert [slot for slot, _ in call.arguments[2]] == [SLOT + 1]


def test_a_home_in_memory_does_not_void_a_slot_again_that_has_gone() -> None:
    here = Keeper()
    here.state.begun([SLOT, SLOT + 1])
    here.journal.write()
    (call,) = here.stored("keep")
    goes(here, SLOT)  # its next home may write its messages, and has announced the start by now
    call.end(None, OSError("the disk is full"))
    here.desk.now += AGAIN_S
    here.journal.write()
    (call,) = here.stored("keep")
    assert call.arguments == ([], [], [(SLOT + 1, VOID)], [])


def test_many_slots_are_read_some_at_a_time(here: Keeper) -> None:
    here.state.arrived(list(range(SLOTS_PER_READ + 1)), False)
    (call,) = here.stored("retained")
    assert call.arguments[0] == list(range(SLOTS_PER_READ))
    call.end(([], [], None))
    (call,) = here.stored("retained")
    assert call.arguments[0] == [SLOTS_PER_READ]
    call.end(([], [], None))
    assert not here.journal.loading


def test_where_they_cannot_be_read_what_was_before_may_be_lacking(here: Keeper) -> None:
    here.state.arrived([SLOT], False)
    here.stored("retained")[0].end(None, OSError("down"))
    assert here.desk.counts["retained_reads_failed"] == 1
    assert here.log.floor(SLOT) == here.clock.value
    assert not here.journal.loading


def test_a_slot_that_goes_while_it_is_read_leaves_nothing(here: Keeper) -> None:
    here.state.arrived([SLOT], False)
    (call,) = here.stored("retained")
    here.state.gone([SLOT])
    call.end(([kept(1, 5)], [(SLOT, 3)], None))
    assert (here.log.entries, here.log.floor(SLOT)) == (0, 0)


def test_a_copy_of_a_slot_that_is_being_read_says_so_and_what_is_read_goes_there_too(here: Keeper) -> None:
    def copied() -> list[Any]:
        return [key for slot, key in here.journal.has_read if slot == SLOT]

    here.state.arrived([SLOT], False)
    (call,) = here.stored("retained")
    assert [*here.state.departing(frozenset([SLOT]))] == [[Unread(SLOT, LEAPT), SLOT]]
    assert copied() == [Unread(SLOT, LEAPT)]
    call.end(([kept(1, 5)], [(SLOT, 3)], None))
    entry, *rest = copied()[1:]
    # The mark of completeness comes last: an endpoint that takes over earlier reads the journal itself.
    assert (entry.stamp, rest) == (5, [SLOT, Unread(SLOT, 0)])
    there = Keeper(settings=IN_STORE)
    there.state.absorb(here.state.pack(copied()[1:]))
    assert there.log.written == {SLOT}
    assert [*here.state.departing(frozenset([SLOT]))] == [[entry, SLOT]]


def test_a_slot_whose_home_went_before_it_had_read_all_is_read_here(here: Keeper) -> None:
    """All of the home's state has arrived; the rest is only in the journal."""
    here.state.absorb(here.state.pack([Unread(SLOT, 7)]))
    here.state.arrived([SLOT, SLOT + 1], True)
    (call,) = here.stored("retained")
    assert call.arguments[0] == [SLOT]
    assert here.journal.loading.keys() == {SLOT}
    call.end(([kept(1, 5)], [], None))
    assert (here.log.entries, here.log.unread(SLOT)) == (1, 0)
