"""Times of repacking: the hysteresis, the cooldowns, the bounds."""

from __future__ import annotations

import dataclasses

import pytest

from ingeborg.autoscaler.dry import DryRun
from ingeborg.autoscaler.effects import Note, Notes
from ingeborg.autoscaler.model import Flow, Queue, Speeds
from ingeborg.autoscaler.sentinel import Sentinel
from ingeborg.autoscaler.settings import GroupSettings

SETTINGS = GroupSettings(
    members_max=4, capacity_bytes_per_s=120.0, look_s=5.0, down_cooldown_s=60.0, catch_up_s=0.0, topics=("t",)
)


class Bed:
    """A group whose wanted members are always present, with the numbers of the targets."""

    def __init__(self, **changes: object) -> None:
        self.settings = dataclasses.replace(SETTINGS, **changes)  # type: ignore[arg-type]
        self.notes = Notes()
        self.sentinel = Sentinel(self.settings, self.notes)
        self.now_s = 0.0
        self.present: set[int] = set()

    def run(self, seconds: int, *sizes: float, is_moving: bool = False, is_short: bool = False) -> list[str]:
        """Return the events of the notes."""
        events = []
        for _ in range(seconds):
            self.now_s += 1.0
            self.sentinel.measured(self.now_s, [Flow(Queue("t", n), size, 0.0) for n, size in enumerate(sizes)])
            going = self.sentinel.look(
                self.now_s,
                dict.fromkeys(sorted(self.present), 120.0),
                frozenset(),
                is_moving=is_moving,
                is_short=is_short,
            )
            self.present -= going
            if not is_short:
                self.present |= set(self.sentinel.targets.values())
                fresh = (number for number in range(1, 20) if number not in self.present)
                while len(self.present) < self.sentinel.wanted:
                    self.present.add(next(fresh))
            events += [note.event for note in self.notes.take() if isinstance(note, Note)]
        return events


def test_nothing_is_decided_of_the_first_measurements() -> None:
    bed = Bed()
    assert bed.run(5, 90.0, 90.0) == []
    assert bed.run(2, 90.0, 90.0) == ["decided"]
    assert bed.sentinel.wanted == 2


def test_between_fill_and_capacity_nothing_happens() -> None:
    bed = Bed()
    bed.run(10, 50.0, 50.0)
    assert bed.sentinel.wanted == 1
    assert bed.run(100, 59.0, 60.0) == []
    assert bed.run(10, 61.0, 60.0) == ["decided"]
    assert bed.sentinel.wanted == 2


def test_while_queues_move_only_one_without_an_owner_is_a_reason() -> None:
    bed = Bed()
    bed.run(10, 50.0, 50.0)
    assert bed.run(20, 90.0, 90.0, is_moving=True) == []
    assert bed.run(6, 90.0, 90.0, 1.0, is_moving=True) == ["decided"]


def test_fewer_only_if_fewer_would_have_done_all_the_time() -> None:
    bed = Bed()
    bed.run(10, 90.0, 90.0)
    assert bed.run(50, 10.0, 10.0) == []
    assert bed.run(1, 90.0, 90.0) == []
    assert bed.run(55, 10.0, 10.0) == []
    assert bed.run(15, 10.0, 10.0) == ["decided"]
    assert bed.sentinel.wanted == 1
    assert len(bed.present) == 1


def test_more_only_after_the_cooldown_where_there_is_one() -> None:
    bed = Bed(up_cooldown_s=40.0)
    bed.run(10, 60.0, 60.0)
    bed.run(20, 90.0, 90.0, 90.0)
    assert bed.sentinel.wanted == 2
    bed.run(40, 90.0, 90.0, 90.0)
    assert bed.sentinel.wanted == 3


def test_spare_members_are_wanted_beyond_those_that_are_needed() -> None:
    bed = Bed(spare=1)
    bed.run(10, 10.0)
    assert bed.sentinel.wanted == 2
    bed.run(200, 10.0)
    assert bed.sentinel.wanted == 2


def test_capped_and_hot_are_told_when_they_begin() -> None:
    bed = Bed(members_max=2)
    events = bed.run(60, 130.0, 70.0, 70.0, 70.0)
    assert events.count("capped") == events.count("hot") == 1
    assert bed.sentinel.is_capped
    bed.run(10, 10.0, 10.0, 10.0, 10.0)
    assert not bed.sentinel.is_capped
    assert "capped" in bed.run(20, 10.0, 110.0, 110.0, 110.0)


def test_where_ordered_members_do_not_come_those_that_are_there_get_all() -> None:
    bed = Bed()
    bed.run(10, 50.0, 50.0)
    bed.present = {1}
    assert "decided" in bed.run(10, 110.0, 110.0, 110.0, is_short=True)
    assert set(bed.sentinel.targets.values()) == {1}
    assert bed.sentinel.wanted == 3


def test_what_waits_for_a_member_gets_the_one_that_came_with_another_number() -> None:
    bed = Bed()
    bed.run(10, 50.0, 50.0)
    bed.sentinel.targets = {Queue("t", 0): 1, Queue("t", 1): 3}
    bed.present = {1, 7}
    bed.run(1, 50.0, 50.0)
    assert bed.sentinel.targets == {Queue("t", 0): 1, Queue("t", 1): 7}


def test_a_queue_that_is_gone_is_forgotten() -> None:
    bed = Bed()
    bed.run(10, 50.0, 50.0)
    bed.run(1, 50.0)
    assert bed.sentinel.targets.keys() == {Queue("t", 0)}


@pytest.mark.parametrize("parts", [1, 2])
def test_a_dry_run_decides_as_if_each_decision_were_carried_out(parts: int) -> None:
    dry = DryRun(SETTINGS)
    found = []
    for serial in range(1, 160):
        size = 90.0 if serial < 60 else 5.0
        flows = tuple(Flow(Queue("t", number), size, 0.0) for number in range(2))
        for part in range(parts):
            some = flows if parts == 1 else flows[part : part + 1]
            found += dry.heard(float(serial), Speeds("m", serial, part, parts, 30.0, some, ()))
    assert [note.event for note in found] == ["decided", "decided"]
    assert "2 members" in found[0].words
    assert "1 members" in found[1].words
