"""The files of one partition: a chain of numbered entries, to which one owner at a time can add.

Owns: who may add an entry, and where. Must never: hold a lock, for a writer may be paused for an hour at any
instruction, or killed; wait; know of other partitions.

A partition's folder has

- ``00000000000000000001.jsonl``, and so on without a gap: *entries*. One has the lines of a batch, whole, or it is a
  *fence* and empty.
- ``epochs/00000000000000000007``: a file for each epoch that has been told of, the newest at least; it has the owner's
  name.
- files whose names begin with a dot: drafts. What is to become an entry is written whole as a draft, and then linked to
  its number. Of several that link to one number, one succeeds.

Three rules make that enough.

1. An owner tells its epoch, then adds a fence, then looks for a newer epoch. If there is one, the owner is refused.
2. An owner adds a batch only directly behind its own fence or its own last batch.
3. An owner whose number is taken begins again with rule 1.

So an owner whose epoch is newer has told that before its fence. Whoever has an older epoch and a fence behind that one
is refused by rule 1. Whoever has a fence before it finds that number taken, and is refused by rule 3. A batch of an
owner that was paused before the link is never added, however late it goes on.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from .base import Place, Record, RefusedError, SinkError
from .disk import Disk
from .lines import decoded, encoded

#: Numbers in names: as many digits as 2 ** 64 has, so that names sort as numbers do.
DIGITS: Final = 20
EPOCHS: Final = "epochs"

_ENTRY = re.compile(rf"[0-9]{{{DIGITS}}}\.jsonl")
_EPOCH = re.compile(rf"[0-9]{{{DIGITS}}}")

#: So often an owner finds its number taken in one call. Each time another writer has added a fence meanwhile: there are
#: as many as the partition had owners of late that were paused, and each adds one.
_TRIES: Final = 100


def entry_name(number: int) -> str:
    """Of the file with this number."""
    return f"{number:0{DIGITS}}.jsonl"


def is_entry(name: str) -> bool:
    """Is it the name of an entry?"""
    return _ENTRY.fullmatch(name) is not None


def partition_folder(folder: Path, table: str, topic: str, partition: int) -> Path:
    """Where a partition's files are below the sink's folder."""
    return folder / table / f"{topic}-{partition}"


class Newest(NamedTuple):
    """The newest record that is kept, and under which ownership."""

    offset: int
    epoch: int
    member: str


class Run(NamedTuple):
    """Where an owner adds next. ``number``: of that entry; the one before it is the owner's. ``newest``: of the records
    before it; ``None``: there is none."""

    number: int
    newest: Newest | None


class Chain:
    """One owner's view of a partition's files. ``folder``: the sink's. Its methods block, and one is called at a time.
    Whoever does not wait for a call's end forgets the object, and makes another: the call may still come to its end."""

    def __init__(self, folder: Path, place: Place, disk: Disk) -> None:
        self._place = place
        self._disk = disk
        self._folder = partition_folder(folder, place.table, place.topic, place.partition)
        self._epochs = self._folder / EPOCHS
        self._run: Run | None = None

    def enter(self) -> int | None:
        """Own the partition from now on. The offset behind all that is kept; ``None``: nothing is. Raises
        ``RefusedError``, ``SinkError``, ``OSError``."""
        newest = self._enter().newest
        return None if newest is None else newest.offset + 1

    def append(self, records: Sequence[Record]) -> None:
        """Add a batch, which is not empty. Enters first where it is not known where to add: the owner has not entered,
        or the last call failed. Raises ``RefusedError``: this call has not kept the batch; ``SinkError``, ``OSError``:
        it may have."""
        if self._run is not None:
            try:
                self.look()
            except FileNotFoundError:
                self._run = None  # somebody has moved the folder away, and the partition begins anew
        run = self._run or self._enter()
        data = encoded(self._place, records)
        for _ in range(_TRIES):
            if self._is_kept(run, records):
                return
            if self._add(data, [run.number]) is not None:
                place = self._place
                self._run = Run(run.number + 1, Newest(records[-1].offset, place.epoch, place.member))
                return
            run = self._enter()
        raise self._crowded()

    def look(self) -> None:
        """Raises ``RefusedError``: there is an owner with a newer epoch."""
        newest = max((int(name) for name in self._disk.names(self._epochs) if _EPOCH.fullmatch(name)), default=0)
        if newest > self._place.epoch:
            raise RefusedError(self._place.topic, self._place.partition, newest)

    def sweep(self, before_s: float) -> None:
        """Remove drafts of writers that were killed: those last written before this time, seconds since 1970. A writer
        that was only paused for so long finds its draft gone, and goes on by rule 3. Older epochs go, too: whoever has
        one is refused by this one as well, and each batch looks at all that are there."""
        for path in self._disk.old(self._folder, before_s):
            self._disk.remove(path)
        for name in list(self._disk.names(self._epochs)):
            if _EPOCH.fullmatch(name) and int(name) < self._place.epoch:
                self._disk.remove(self._epochs / name)

    def _enter(self) -> Run:
        """By rule 1."""
        # The sink's own folder is not made: where its disk is not mounted, it would be made on another one.
        for path in (self._folder.parent, self._folder, self._epochs):
            self._disk.folder(path)
        self.look()
        self._tell_epoch()
        fence = self._add_fence()
        self.look()
        self._run = Run(fence + 1, self._newest_before(fence))
        return self._run

    def _is_kept(self, run: Run, records: Sequence[Record]) -> bool:
        """Is the batch the newest one that is kept? An earlier call has kept it, and its answer was lost."""
        newest, place = run.newest, self._place
        if newest is None or records[0].offset > newest.offset:
            return False
        if newest == (records[-1].offset, place.epoch, place.member):
            return True
        raise SinkError(
            f"{self._folder}: offset {newest.offset} is kept already, and a batch goes back to {records[0].offset}. If "
            "the topic was made anew, move this folder away, and what is in the topic is kept from its beginning"
        )

    def _add(self, data: bytes, numbers: Iterable[int]) -> int | None:
        """Add an entry under the first of these numbers that is not taken, and return that. ``None``: there is none."""
        draft = self._disk.draft(self._folder, data)
        self._run = None  # until it is known again: a step that fails may have been done
        try:
            for number in numbers:
                if self._disk.publish(draft, self._folder / entry_name(number)):
                    self._disk.sync(self._folder)
                    return number
        except FileNotFoundError:
            pass  # this writer was paused for so long that its draft has been swept
        finally:
            self._disk.remove(draft)
        return None

    def _tell_epoch(self) -> None:
        """Have a file of this epoch, which is the owner's alone."""
        disk, place = self._disk, self._place
        path = self._epochs / f"{place.epoch:0{DIGITS}}"
        draft = disk.draft(self._folder, place.member.encode())
        try:
            if not disk.publish(draft, path) and disk.text(path) != place.member:
                # No controller gives an epoch twice. If one did, whoever was first keeps it.
                raise RefusedError(place.topic, place.partition, place.epoch)
            disk.sync(self._epochs)
        finally:
            disk.remove(draft)

    def _add_fence(self) -> int:
        """Its number. None is passed over: in a gap an older owner could still add what it has."""
        newest = max((int(name[:DIGITS]) for name in self._disk.names(self._folder) if is_entry(name)), default=0)
        number = self._add(b"", range(newest + 1, newest + 1 + _TRIES))
        if number is None:
            raise self._crowded()
        return number

    def _newest_before(self, number: int) -> Newest | None:
        """Of the records in the entries before this one."""
        for before in range(number - 1, 0, -1):
            path = self._folder / entry_name(before)
            line = self._disk.last_line(path)
            if line is None:
                return None  # somebody has moved old entries away
            if line:
                try:
                    found = decoded(line)
                except ValueError as error:
                    why = f"its last line is no record ({error}); see who else writes there"
                    raise SinkError(f"{path}: {why}") from None
                return Newest(found.offset, found.epoch, found.member)
        return None

    def _crowded(self) -> SinkError:
        return SinkError(
            f"{self._folder}: others took {_TRIES} numbers in a row, or this process was paused for an hour; if it "
            "comes again, see who writes there"
        )
