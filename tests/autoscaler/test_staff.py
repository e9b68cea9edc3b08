"""Orders to the scaler, and missing members."""

from __future__ import annotations

import pytest

from ingeborg.autoscaler.effects import Note, Notes, Scale
from ingeborg.autoscaler.scalers.base import Running
from ingeborg.autoscaler.settings import GroupSettings
from ingeborg.autoscaler.staff import AGAIN_S, Staff

SETTINGS = GroupSettings(members_max=4, start_s=20.0, lost_s=10.0)


def running(*names: str) -> Running:
    return Running(len(names), frozenset(names))


class Bed:
    def __init__(self) -> None:
        self.notes = Notes()
        self.staff = Staff(SETTINGS, self.notes)

    def events(self) -> list[str]:
        return [note.event for note in self.notes.take() if isinstance(note, Note)]


@pytest.fixture
def bed() -> Bed:
    return Bed()


def test_an_order_is_given_once_and_again_if_it_is_not_carried_out(bed: Bed) -> None:
    staff = bed.staff
    staff.listed(0, running(), [])
    assert staff.order(0, 2, [], set()) == Scale(2, ())
    assert staff.order(1, 2, [], set()) is None
    assert staff.order(AGAIN_S, 2, [], set()) == Scale(2, ())
    staff.listed(11, running("a", "b"), [])
    assert staff.order(30, 2, ["a", "b"], set()) is None


def test_one_with_work_is_not_ended_and_one_without_is(bed: Bed) -> None:
    staff = bed.staff
    staff.listed(0, running("a", "b", "c"), ["a", "b", "c"])
    staff.leaving = {"b": 0.0, "c": 0.0}
    assert staff.order(0, 1, ["a"], {"a", "b"}) == Scale(2, ("c",))
    assert staff.order(1, 1, ["a"], {"a"}) == Scale(1, ("b", "c"))
    assert staff.left("b")
    assert not staff.left("a")


def test_for_a_silent_one_another_is_started_and_it_is_ended(bed: Bed) -> None:
    staff = bed.staff
    staff.listed(0, running("a", "b"), ["a", "b"])
    staff.lost("b")
    assert staff.order(0, 2, ["a"], {"a"}) == Scale(3, ("b",))
    staff.listed(1, running("a", "b", "c"), ["a", "c"])
    assert staff.order(1, 2, ["a", "c"], {"a", "c"}) == Scale(2, ("b",))
    staff.listed(2, running("a", "c"), ["a", "c"])
    assert staff.order(2, 2, ["a", "c"], {"a", "c"}) is None


def test_where_no_more_may_run_the_silent_one_goes_first(bed: Bed) -> None:
    staff = bed.staff
    staff.listed(0, running("a", "b", "c", "d"), ["a", "b", "c", "d"])
    staff.lost("d")
    assert staff.order(0, 4, ["a", "b", "c"], {"a"}) == Scale(3, ("d",))


def test_a_scaler_that_knows_no_names_is_told_numbers(bed: Bed) -> None:
    staff = bed.staff
    staff.listed(0, Running(3, None), ["a", "b", "c"])
    staff.lost("c")
    assert staff.order(0, 2, ["a", "b"], {"a"}) == Scale(2, ())


def test_members_that_somebody_else_runs_count_after_a_while(bed: Bed) -> None:
    staff = bed.staff
    staff.listed(0, running(), ["by hand"])
    assert staff.order(0, 2, ["by hand"], set()) == Scale(2, ())
    staff.listed(11, running(), ["by hand"])
    assert staff.order(11, 2, ["by hand"], set()) == Scale(1, ())


def test_those_that_do_not_come_are_missed_once_and_told_when_they_are_there(bed: Bed) -> None:
    staff = bed.staff
    staff.count(0, 3, ["a"])
    staff.count(19, 3, ["a"])
    assert not staff.is_short
    staff.count(21, 3, ["a"])
    staff.count(22, 3, ["a"])
    assert staff.is_short
    assert bed.events() == ["absent"]
    staff.count(30, 3, ["a", "b", "c"])
    assert not staff.is_short
    assert bed.events() == ["complete"]


def test_a_pause_of_the_controller_is_nobodys_fault(bed: Bed) -> None:
    staff = bed.staff
    staff.listed(0, running("x"), [])
    staff.count(0, 1, [])
    staff.paused(100.0)
    staff.count(101, 1, [])
    staff.listed(101, running("x"), [])
    assert bed.events() == []


def test_who_runs_and_is_never_heard_is_to_end(bed: Bed) -> None:
    staff = bed.staff
    for now_s in (0, 10, 21):
        staff.listed(now_s, running("ghost"), [])
    assert bed.events() == ["never_heard"]
    assert staff.order(21, 1, [], set()) == Scale(2, ("ghost",))
    staff.joined("ghost")
    assert staff.order(22, 1, ["ghost"], set()) is None


def test_a_scaler_that_does_not_end_one_is_told_about_once(bed: Bed) -> None:
    staff = bed.staff
    staff.leaving = {"a": 0.0}
    for now_s in (0, 10, 21, 40):
        staff.order(now_s, 1, ["b"], {"b"})
    assert bed.events() == ["stays"]
    assert staff.call_back() == "a"
    assert staff.leaving == {}


def test_a_scaler_that_fails_is_told_about_once_for_each_reason(bed: Bed) -> None:
    staff = bed.staff
    for words in ("down", "down", "forbidden"):
        staff.failed(words)
    assert staff.failures == 3
    staff.listed(0, running(), [])
    assert bed.events() == ["scaler_failed", "scaler_failed", "scaler_works"]
