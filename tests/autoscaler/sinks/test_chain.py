"""Chains of entries: the steps of an owner, one by one, with another owner's actions between any two steps."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ingeborg.autoscaler.sinks.base import Place, RefusedError, SinkError
from ingeborg.autoscaler.sinks.chain import Chain, entry_name, is_entry, partition_folder
from ingeborg.autoscaler.sinks.disk import Disk
from ingeborg.autoscaler.sinks.reading import records

from .stages import PLACE, TAKEN, WatchedDisk, batch, lines


def folder_of(root: Path) -> Path:
    return partition_folder(root, PLACE.table, PLACE.topic, PLACE.partition)


def chain(root: Path, place: Place = PLACE, disk: Disk | None = None) -> Chain:
    return Chain(root, place, disk or Disk())


def sizes(root: Path) -> dict[str, int]:
    """Return the number of lines in each entry; a fence has 0."""
    return {path.name: path.stat().st_size for path in sorted(folder_of(root).iterdir()) if is_entry(path.name)}


def drafts(root: Path) -> list[Path]:
    return [path for path in folder_of(root).iterdir() if path.name.startswith(".")]


def test_an_owner_adds_a_fence_and_then_a_file_for_each_batch(tmp_path: Path) -> None:
    owner = chain(tmp_path)
    assert owner.enter() is None
    owner.append(batch(0, 2))
    owner.append(batch(2, 3))
    folder = folder_of(tmp_path)
    assert folder == tmp_path / "clicks" / "web-3"
    first, second, third = sizes(tmp_path).items()
    assert first == ("00000000000000000001.jsonl", 0)
    assert (second[0], third[0]) == (entry_name(2), entry_name(3))
    assert [line.count(b"\n") for line in ((folder / name).read_bytes() for name in sizes(tmp_path))] == [0, 2, 1]
    assert (folder / "epochs" / "00000000000000000007").read_text() == "m-1"
    assert drafts(tmp_path) == []


STEPS_OF_ENTER = range(18)
STEPS_OF_APPEND = range(5)


def test_the_steps_are_as_many_as_are_tried(tmp_path: Path) -> None:
    steps: list[str] = []
    disk = WatchedDisk(lambda step, path: steps.append(step))
    chain(tmp_path, PLACE._replace(epoch=1)).append(batch(0, 2))
    owner = chain(tmp_path, disk=disk)
    owner.enter()
    assert len(steps) == len(STEPS_OF_ENTER)
    steps.clear()
    owner.append(batch(2, 3))
    assert steps == ["names", "draft", "publish", "sync", "remove"]
    assert len(steps) == len(STEPS_OF_APPEND)


class Takeover:
    """Let another owner with a newer epoch enter and add a batch, at one step of an owner."""

    def __init__(self, root: Path, at: int) -> None:
        self._root, self._left = root, at
        self.next: int | None = -1

    def __call__(self, step: str, path: Path) -> None:
        self._left -= 1
        if self._left == -1:
            other = chain(self._root, TAKEN)
            self.next = other.enter()
            first = self.next or 0
            other.append(batch(first, first + 2))


@pytest.mark.parametrize("at", STEPS_OF_APPEND)
def test_whoever_is_overtaken_at_any_step_of_a_batch_has_added_it_before_or_is_refused(tmp_path: Path, at: int) -> None:
    disk = WatchedDisk()
    old = chain(tmp_path, disk=disk)
    old.enter()
    old.append(batch(0, 2))
    disk.at = takeover = Takeover(tmp_path, at)
    if at <= 2:  # before the link
        with pytest.raises(RefusedError) as refused:
            old.append(batch(2, 4))
        assert refused.value.epoch == TAKEN.epoch
    else:
        old.append(batch(2, 4))
    assert takeover.next == (2 if at <= 2 else 4)
    assert [line.offset for line in records(folder_of(tmp_path))] == list(range(takeover.next + 2))
    assert drafts(tmp_path) == []
    with pytest.raises(RefusedError):
        old.append(batch(4, 6))


@pytest.mark.parametrize("at", STEPS_OF_ENTER)
def test_whoever_is_overtaken_at_any_step_of_entering_is_refused_then_or_at_its_first_batch(
    tmp_path: Path, at: int
) -> None:
    chain(tmp_path, PLACE._replace(epoch=1)).append(batch(0, 2))
    takeover = Takeover(tmp_path, at)
    old = chain(tmp_path, disk=WatchedDisk(takeover))

    def enter_and_append() -> None:
        assert old.enter() == 2
        old.append(batch(2, 3))

    with pytest.raises(RefusedError):
        enter_and_append()
    assert takeover.next == 2
    assert [line.offset for line in records(folder_of(tmp_path))] == [0, 1, 2, 3]
    # The new owner continues, although the old one may have added a later fence.
    new = chain(tmp_path, TAKEN)
    assert new.enter() == 4


def test_an_owner_goes_on_behind_a_fence_that_an_older_one_has_added(tmp_path: Path) -> None:
    new = chain(tmp_path, TAKEN)
    new.enter()
    new.append(batch(0, 2))
    (folder_of(tmp_path) / entry_name(3)).touch()
    new.append(batch(2, 4))
    assert list(sizes(tmp_path)) == [entry_name(number) for number in (1, 2, 3, 4, 5)]
    assert list(records(folder_of(tmp_path))) == lines(TAKEN, batch(0, 4))


def test_no_number_is_passed_over(tmp_path: Path) -> None:
    """A paused owner could add its batch in a gap."""
    for epoch in range(1, 6):
        owner = chain(tmp_path, PLACE._replace(epoch=epoch))
        owner.enter()
        owner.enter()
        owner.append(batch(epoch, epoch + 1))
    assert list(sizes(tmp_path)) == [entry_name(number) for number in range(1, 16)]


def test_a_writer_that_was_paused_for_an_hour_finds_its_draft_gone_and_writes_another(tmp_path: Path) -> None:
    disk = WatchedDisk()
    owner = chain(tmp_path, disk=disk)
    owner.enter()

    def swept(step: str, path: Path) -> None:
        if step == "publish":
            disk.at = lambda step, path: None
            [draft] = drafts(tmp_path)
            os.utime(draft, (1_000, 1_000))
            chain(tmp_path).sweep(2_000)
            assert drafts(tmp_path) == []

    disk.at = swept
    owner.append(batch(0, 2))
    assert list(records(folder_of(tmp_path))) == lines(PLACE, batch(0, 2))
    assert list(sizes(tmp_path)) == [entry_name(number) for number in (1, 2, 3)]


def test_where_others_take_every_number_somebody_is_told(tmp_path: Path) -> None:
    def taken(step: str, path: Path) -> None:
        if step == "publish" and is_entry(path.name):
            path.touch()

    with pytest.raises(SinkError, match="find out what writes to this folder"):
        chain(tmp_path, disk=WatchedDisk(taken)).enter()


def test_a_batch_of_an_owner_before_is_not_taken_for_one_whose_answer_was_lost(tmp_path: Path) -> None:
    chain(tmp_path).append(batch(0, 2))
    for place in (TAKEN, PLACE._replace(epoch=9)):
        with pytest.raises(SinkError, match="offset 1 is stored already, but a batch begins at 0"):
            chain(tmp_path, place).append(batch(0, 2))


def test_a_file_that_is_not_of_the_sink_is_named(tmp_path: Path) -> None:
    chain(tmp_path).append(batch(0, 2))
    (folder_of(tmp_path) / entry_name(3)).write_text("something\n")
    with pytest.raises(SinkError, match=rf"{entry_name(3)}: its last line is not a record"):
        chain(tmp_path).enter()


def test_old_entries_may_be_moved_away(tmp_path: Path) -> None:
    owner = chain(tmp_path)
    for offset in range(5):
        owner.append(batch(offset, offset + 1))
    for number in range(1, 6):
        (folder_of(tmp_path) / entry_name(number)).unlink()
    owner.append(batch(5, 6))
    assert chain(tmp_path, TAKEN).enter() == 6


def test_a_partition_whose_folder_was_moved_away_begins_anew(tmp_path: Path) -> None:
    owner = chain(tmp_path)
    owner.append(batch(5, 6))
    folder_of(tmp_path).rename(tmp_path / "away")
    owner.append(batch(0, 2))
    assert list(records(folder_of(tmp_path))) == lines(PLACE, batch(0, 2))


def test_epochs_of_before_are_swept_and_still_refused(tmp_path: Path) -> None:
    first, second, third = (chain(tmp_path, PLACE._replace(epoch=epoch)) for epoch in (5, 6, 9))
    for owner in (first, second, third):
        owner.enter()
    third.sweep(0.0)
    assert [path.name for path in tmp_path.rglob("epochs/*")] == ["00000000000000000009"]
    for older in (first, second):
        with pytest.raises(RefusedError) as refused:
            older.append(batch(0, 1))
        assert refused.value.epoch == 9
    third.append(batch(0, 1))
