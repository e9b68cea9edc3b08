"""The files sink: a folder that several members write to, with one chain of files for each partition.

Owns: the threads that file work is done in, its limit of time, the count of refusals, and what the operator is told of
an error. Must never: know what keeps two owners apart (``chain`` does), or let the event loop wait for a disk.

FOLDER/TABLE/TOPIC-PARTITION/ has the files of a partition (``chain``), and each of their lines is a record (``lines``).
FOLDER/refused.jsonl has a line for each batch that was refused: ``time_ms`` (since 1970), ``topic``, ``partition``,
``epoch`` (of the refused one), ``newer`` (of the owner), ``member`` (that was refused), ``records`` (of the batch).

The folder may be on one machine or on a file system that several share. It needs hard links, and names that are there
for all once they are there for one: local file systems of Linux and macOS have both, and so has NFS.

Entries may be moved away while members run, oldest first, when no member can be running that wrote before them. The
newest entry that has lines stays, for it says where the partition goes on. ``epochs`` stays as well.
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

#: Calls under way at once: more do not make a disk faster. A call that is given up keeps its thread until it ends.
THREADS: Final = 8
#: A draft of this age is of a writer that was killed, in seconds. One that was only paused writes another.
OLD_S: Final = 3_600.0

#: What the operator can do, by the system's number of the error.
_ADVICE: Final = {
    errno.ENOSPC: "make room on its disk; members go on by themselves",
    errno.EDQUOT: "make room in the quota, or raise it; members go on by themselves",
    errno.ENOENT: "make the folder of [sink] folder, or mount its disk",
    errno.EACCES: "let the members' user write there",
    errno.EPERM: "let the members' user write there; the file system has to have hard links",
    errno.EROFS: "mount it so that it can be written to",
    errno.ENOTDIR: "a file is where a folder has to be: move it away",
    errno.EMLINK: "the file system has to have hard links",
    errno.ENOTSUP: "the file system has to have hard links",
    errno.ENOSYS: "the file system has to have hard links",
    errno.EMFILE: "raise the limit of open files (ulimit -n)",
    errno.ENAMETOOLONG: "choose a shorter name in [sink] tables",
}

T = TypeVar("T")


class FilesSink:
    """``folder``: it has to be there. ``timeout_s``: of each call. ``now_s``: the time, in seconds since 1970. ``disk``
    and ``threads``: where a test stops calls."""

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
        # By table, topic and partition: as many as this member has owned. Absent while a call is under way.
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
        """See ``base.Sink``. A batch without records is nothing to keep."""
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
        """See ``base.Sink``. Does not wait for calls that were given up."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _chain(self, place: Place) -> Chain:
        """As the place's last call has left it; a new one if that is not known."""
        _check(place)
        found = self._chains.get(place[:3])
        if found is None or found[0] != place:
            return Chain(self._folder, place, self._disk)
        del self._chains[place[:3]]
        return found[1]

    async def _done(self, place: Place, chain: Chain, work: Callable[[], T]) -> T:
        """What a thread makes of the work, within the limit of time. The chain is kept for the next call only where the
        work has come to an end: a thread that was given up may still add a batch, and the next call finds out."""

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
                f"{self._folder} has not answered in {self._timeout_s:g} s: see whether its disk, or the network to "
                "it, is well"
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
            # The refusal stands: the member has to let go of the partition all the same.
            log.warning("a refused batch is not counted: %s: %s", _told(self._folder, error), line)


def _check(place: Place) -> None:
    """The names become folders below the sink's, and nothing else."""
    for what, name in (("a table", place.table), ("a topic", place.topic)):
        if not name or "/" in name or "\0" in name or name in (".", "..", REFUSED):
            raise SinkError(f"{what} cannot be called {name!r} in the files sink; name another one in [sink] tables")


def _told(folder: Path, error: OSError) -> str:
    where = error.filename2 or error.filename or folder
    why = error.strerror or str(error) or type(error).__name__
    number = error.errno or 0
    if number == errno.EEXIST or (number == errno.ENOENT and os.path.isdir(folder)):
        return f"{where}: {why}; somebody else changes files below {folder}: see who"
    return f"{where}: {why}; {_ADVICE.get(number, 'see whether its disk is well')}"
