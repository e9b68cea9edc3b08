"""The files of one partition: a chain of numbered entries, which one owner at a time can extend.

Owns: the right to add an entry, and the number of a new entry. Must never: wait, know other partitions, or hold a lock.
A writer may be killed, or paused for an hour, at any instruction.

A partition's folder contains

- ``00000000000000000001.jsonl`` and further numbers without a gap: the *entries*. An entry holds the complete lines of
  a batch, or it is an empty *fence*.
- ``epochs/00000000000000000007``: a file for each announced epoch, which holds the owner's name. Files of older epochs
  may have been removed.
- files whose names begin with a dot: the *drafts*. A writer first writes a complete entry as a draft. Then it links the
  draft to the name with the entry's number. If several writers link to the same number, only the first link succeeds.

Three rules make this safe.

1. An owner announces its epoch, then adds a fence, then looks for a newer epoch. If a newer epoch exists, the owner is
   refused.
2. An owner adds a batch only directly after its own fence or its own last batch.
3. If the number of an owner's next entry is taken, the owner restarts with rule 1.

So an owner with a newer epoch has announced its epoch before it adds its fence. Consider an owner with an older epoch.
If the older owner's fence comes after the newer owner's fence, rule 1 refuses the older owner. If the older owner's
fence comes first, the older owner finds the number of its next entry taken. It restarts by rule 3, and rule 1 then
refuses it. If an owner is paused just before it links an entry, the batch is never added, however late the owner
resumes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from .base import Place, Record, RefusedError, SinkError
from .disk import Disk
from .lines import decoded, encoded

#: Number of digits in names. They are enough for 2 ** 64, and with a fixed number of digits the names sort as the
#: numbers do.
DIGITS: Final = 20
EPOCHS: Final = "epochs"

_ENTRY = re.compile(rf"[0-9]{{{DIGITS}}}\.jsonl")
_EPOCH = re.compile(rf"[0-9]{{{DIGITS}}}")

#: How often an owner may find its number taken in one call. Each time, another writer has added a fence in the
#: meantime. Such a writer is a recent owner that was paused, and adds only one fence.
_TRIES: Final = 100


def entry_name(number: int) -> str:
    """Return the name of the file with this number."""
    return f"{number:0{DIGITS}}.jsonl"


def is_entry(name: str) -> bool:
    """Return whether this is the name of an entry."""
    return _ENTRY.fullmatch(name) is not None


def partition_folder(folder: Path, table: str, topic: str, partition: int) -> Path:
    """Return the folder of a partition's files, below the sink's folder."""
    return folder / table / f"{topic}-{partition}"


class Newest(NamedTuple):
    """The offset of the newest stored record, and the epoch and the name of the member that wrote it."""

    offset: int
    epoch: int
    member: str


class Run(NamedTuple):
    """The place for an owner's next entry. ``number``: the number of this entry. The previous entry belongs to the same
    owner. ``newest``: the newest record before this entry, or ``None`` if there is no record."""

    number: int
    newest: Newest | None


class Chain:
    """One owner's view of a partition's files. ``folder``: the sink's folder. The methods block, and only one may run
    at a time. A caller that abandons a call must drop the object and create another one, because the call may still
    complete."""

    def __init__(self, folder: Path, place: Place, disk: Disk) -> None:
        self._place = place
        self._disk = disk
        self._folder = partition_folder(folder, place.table, place.topic, place.partition)
        self._epochs = self._folder / EPOCHS
        self._run: Run | None = None

    def enter(self) -> int | None:
        """Own the partition from now on. Return the offset after the last stored record, or ``None`` if nothing is
        stored. Raises ``RefusedError``, ``SinkError``, ``OSError``."""
        newest = self._enter().newest
        return None if newest is None else newest.offset + 1

    def append(self, records: Sequence[Record]) -> None:
        """Add a batch, which must not be empty. Enter first if the place for the batch is unknown, because the owner
        has not entered or the last call failed. Raises ``RefusedError`` if this call has certainly not stored the
        batch. If it raises ``SinkError`` or ``OSError``, it may have stored the batch."""
        if self._run is not None:
            try:
                self.look()
            except FileNotFoundError:
                self._run = None  # somebody moved the folder away, so the partition starts from its beginning
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
        """Raise ``RefusedError`` if an owner with a newer epoch exists."""
        newest = max((int(name) for name in self._disk.names(self._epochs) if _EPOCH.fullmatch(name)), default=0)
        if newest > self._place.epoch:
            raise RefusedError(self._place.topic, self._place.partition, newest)

    def sweep(self, before_s: float) -> None:
        """Remove the drafts of killed writers, which are the drafts last written before ``before_s``, in seconds since
        1970. A writer that was only paused for that long finds its draft gone, and continues with rule 3. Also remove
        the files of older epochs. These files are not needed, because the file of the current epoch already makes every
        older owner stop. Without the removal, each batch would have to list all these files."""
        for path in self._disk.old(self._folder, before_s):
            self._disk.remove(path)
        for name in list(self._disk.names(self._epochs)):
            if _EPOCH.fullmatch(name) and int(name) < self._place.epoch:
                self._disk.remove(self._epochs / name)

    def _enter(self) -> Run:
        """Enter by rule 1."""
        # Do not create the sink's own folder. If its disk is not mounted, the folder would be created on another disk.
        for path in (self._folder.parent, self._folder, self._epochs):
            self._disk.folder(path)
        self.look()
        self._tell_epoch()
        fence = self._add_fence()
        self.look()
        self._run = Run(fence + 1, self._newest_before(fence))
        return self._run

    def _is_kept(self, run: Run, records: Sequence[Record]) -> bool:
        """Return whether the batch is already stored as the newest batch. This happens if an earlier call stored it but
        the answer was lost."""
        newest, place = run.newest, self._place
        if newest is None or records[0].offset > newest.offset:
            return False
        if newest == (records[-1].offset, place.epoch, place.member):
            return True
        raise SinkError(
            f"{self._folder}: offset {newest.offset} is stored already, but a batch begins at {records[0].offset}. "
            "If the topic was recreated, move this folder away: the sink then stores the topic from its beginning"
        )

    def _add(self, data: bytes, numbers: Iterable[int]) -> int | None:
        """Add an entry under the first free number in ``numbers``, and return this number. Return ``None`` if all are
        taken."""
        draft = self._disk.draft(self._folder, data)
        self._run = None  # unknown until the end, because a step that fails may have taken effect
        try:
            for number in numbers:
                if self._disk.publish(draft, self._folder / entry_name(number)):
                    self._disk.sync(self._folder)
                    return number
        except FileNotFoundError:
            pass  # this writer was paused until its draft was swept
        finally:
            self._disk.remove(draft)
        return None

    def _tell_epoch(self) -> None:
        """Create the file of this epoch, which belongs to this owner alone."""
        disk, place = self._disk, self._place
        path = self._epochs / f"{place.epoch:0{DIGITS}}"
        draft = disk.draft(self._folder, place.member.encode())
        try:
            if not disk.publish(draft, path) and disk.text(path) != place.member:
                # No controller assigns an epoch twice. If one did, the first owner would keep the epoch.
                raise RefusedError(place.topic, place.partition, place.epoch)
            disk.sync(self._epochs)
        finally:
            disk.remove(draft)

    def _add_fence(self) -> int:
        """Add a fence, and return its number. The fence must not leave a gap, because an older owner could still add
        its batch in the gap."""
        newest = max((int(name[:DIGITS]) for name in self._disk.names(self._folder) if is_entry(name)), default=0)
        number = self._add(b"", range(newest + 1, newest + 1 + _TRIES))
        if number is None:
            raise self._crowded()
        return number

    def _newest_before(self, number: int) -> Newest | None:
        """Return the newest record in the entries before this one."""
        for before in range(number - 1, 0, -1):
            path = self._folder / entry_name(before)
            line = self._disk.last_line(path)
            if line is None:
                return None  # somebody moved old entries away
            if line:
                try:
                    found = decoded(line)
                except ValueError as error:
                    why = f"its last line is not a record ({error}); find out what else writes this file"
                    raise SinkError(f"{path}: {why}") from None
                return Newest(found.offset, found.epoch, found.member)
        return None

    def _crowded(self) -> SinkError:
        return SinkError(
            f"{self._folder}: other writers took {_TRIES} numbers in a row, or this process was paused for an hour; if "
            "this happens again, find out what writes to this folder"
        )
