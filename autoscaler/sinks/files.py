"""The files sink: a folder that several members write to, with one chain of files for each partition.

Owns: the threads for file work, their time limit, the record of refusals, and the error texts for the operator. Must
never: know how two owners are kept apart, which is the task of ``chain``, or let the event loop wait for a disk.

FOLDER/TABLE/TOPIC-PARTITION/ holds the files of a partition (see ``chain``). Each line is a record (see ``lines``).
FOLDER/refused.jsonl has a line for each refused batch, with these fields: ``time_ms`` (since 1970), ``topic``,
``partition``, ``epoch`` (of the refused member), ``newer`` (the epoch of the owner), ``member`` (the refused member),
and ``records`` (the number of records in the batch).

The folder can be on one machine, or on a file system that several machines share. The file system must support hard
links, and a file name that one machine sees must be visible to all machines. The local file systems of Linux and macOS
meet both conditions, and so does NFS.

You can move entries away while members run, the oldest first. Keep every entry that comes after the last entry of a
member that still runs, even if this member is paused. Otherwise, the member could add a batch under a number that the
move has freed. Keep the newest entry that has lines, because it says where the partition continues. Also keep
``epochs``.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from pathlib import Path
from typing import Final, TypeVar

import orjson

from .base import Place, Record, RefusedError, SinkError
from .chain import Chain
from .disk import Disk

log = logging.getLogger("ingeborg.autoscale")

REFUSED: Final = "refused.jsonl"

#: Maximum number of concurrent calls. More calls do not make a disk faster. An abandoned call keeps its thread until
#: the call ends.
THREADS: Final = 8
#: If a draft is older than this many seconds, its writer counts as killed. A writer that was only paused writes another
#: draft.
OLD_S: Final = 3_600.0

#: Advice for the operator, by the system's error number.
_ADVICE: Final = {
    errno.ENOSPC: "free space on its disk; members then continue",
    errno.EDQUOT: "free space in the quota, or raise it; members then continue",
    errno.ENOENT: "create the folder of [sink] folder, or mount its disk",
    errno.EACCES: "let the members' user write there",
    errno.EPERM: "let the members' user write there; the file system must support hard links",
    errno.EROFS: "mount it writable",
    errno.ENOTDIR: "there is a file where a folder should be: move it away",
    errno.EMLINK: "the file system must support hard links",
    errno.ENOTSUP: "the file system must support hard links",
    errno.ENOSYS: "the file system must support hard links",
    errno.EMFILE: "raise the limit of open files (ulimit -n)",
    errno.ENAMETOOLONG: "choose a shorter name in [sink] tables",
}

T = TypeVar("T")


class FilesSink:
    """Stores records in files. ``folder``: the folder to write to, which must exist. ``timeout_s``: the time limit of
    each call. ``now_s``: a function that returns the time, in seconds since 1970. ``disk``, ``threads``: tests replace
    them to stop calls."""

    def __init__(
        self,
        folder: Path,
        timeout_s: float = 30.0,
        *,
        now_s: Callable[[], float] = time.time,
        disk: Disk | None = None,
        threads: Executor | None = None,
    ) -> None:
        self._folder = folder
        self._timeout_s = timeout_s
        self._disk = disk or Disk()
        self._now_s = now_s
        self._threads = threads or ThreadPoolExecutor(THREADS, "files-sink")
        # The chain of each partition that this member has owned, by table, topic and partition. A chain is absent while
        # a call uses it.
        self._chains: dict[tuple[str, str, int], tuple[Place, Chain]] = {}

    async def open(self, place: Place) -> int | None:
        """See ``base.Sink``."""
        _check(place)
        self._chains.pop(place[:3], None)
        chain = Chain(self._folder, place, self._disk)

        def entered() -> int | None:
            next_offset = chain.enter()
            chain.sweep(self._now_s() - OLD_S)
            return next_offset

        return await self._done(place, chain, entered)

    async def append(self, place: Place, records: Sequence[Record]) -> None:
        """See ``base.Sink``. A batch without records does nothing."""
        if not records:
            return
        chain = self._chain(place)

        def appended() -> None:
            try:
                chain.append(records)
            except RefusedError as error:
                self._count(place, error.epoch, len(records))
                raise

        await self._done(place, chain, appended)

    async def close(self) -> None:
        """See ``base.Sink``. Does not wait for abandoned calls."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _chain(self, place: Place) -> Chain:
        """Return the chain that the last call for this place left, or a new chain if that call was abandoned."""
        _check(place)
        found = self._chains.get(place[:3])
        if found is None or found[0] != place:
            return Chain(self._folder, place, self._disk)
        del self._chains[place[:3]]
        return found[1]

    async def _done(self, place: Place, chain: Chain, work: Callable[[], T]) -> T:
        """Run the work in a thread, within the time limit. Keep the chain for the next call only if the work has ended.
        An abandoned thread may still add a batch, and the next call must find that out with a new chain."""

        def told() -> T:
            try:
                return work()
            except OSError as error:
                raise SinkError(_told(self._folder, error)) from error

        try:
            async with asyncio.timeout(self._timeout_s):
                result = await asyncio.get_running_loop().run_in_executor(self._threads, told)
        except TimeoutError:
            raise SinkError(
                f"{self._folder} has not answered in {self._timeout_s:g} s: check its disk, or the network to it"
            ) from None
        except SinkError:
            self._keep(place, chain)
            raise
        self._keep(place, chain)
        return result

    def _keep(self, place: Place, chain: Chain) -> None:
        other = self._chains.get(place[:3])
        if other is None or other[0].epoch <= place.epoch:
            self._chains[place[:3]] = place, chain

    def _count(self, place: Place, newer: int, records: int) -> None:
        line = {
            "time_ms": int(self._now_s() * 1_000),
            "topic": place.topic,
            "partition": place.partition,
            "epoch": place.epoch,
            "newer": newer,
            "member": place.member,
            "records": records,
        }
        try:
            self._disk.add_line(self._folder / REFUSED, orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE))
        except OSError as error:
            # The refusal remains valid, and the member must release the partition anyway.
            log.warning("cannot record a refused batch: %s: %s", _told(self._folder, error), line)


def _check(place: Place) -> None:
    """Check that the names of the table and the topic are valid names of folders below the sink's folder."""
    for what, name in (("a table", place.table), ("a topic", place.topic)):
        if not name or "/" in name or "\0" in name or name in (".", "..", REFUSED):
            raise SinkError(f"{what} cannot be called {name!r} in the files sink; set another name in [sink] tables")


def _told(folder: Path, error: OSError) -> str:
    where = error.filename2 or error.filename or folder
    why = error.strerror or str(error) or type(error).__name__
    number = error.errno or 0
    if number == errno.EEXIST or (number == errno.ENOENT and os.path.isdir(folder)):
        return f"{where}: {why}; something else changes files below {folder}: find out what"
    return f"{where}: {why}; {_ADVICE.get(number, 'check its disk')}"
