"""A writer whose disk stalls when the test says so, with the arguments of ``ingeborg.broker.store.embedded.writer``.
``stalled_disk`` is the test's side.

The stall is the kernel's: the writer starts a program whose standard input is a pipe that nobody has opened yet. Until
somebody opens it, the kernel keeps the writer in uninterruptible sleep, as it does if a disk does not answer.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import lmdb

from ingeborg.broker.store.embedded import writer
from ingeborg.broker.store.embedded.layout import Lane

PIPE = "stall-{}"
"""A file by lane, next to the lanes' directories, while the disk stalls."""

MODULE = "tests.store.stalling_writer"


class StallingWriter(writer.Writer):
    """Waits in a transaction, holding the write lock, for as long as the disk stalls."""

    @contextmanager
    def _begin(self) -> Iterator[lmdb.Transaction]:
        with super()._begin() as txn:
            pipe = self._path.parent / PIPE.format(self._path.name)
            if pipe.exists():
                program = shutil.which("true")
                assert program is not None
                actions = [(os.POSIX_SPAWN_OPEN, 0, str(pipe), os.O_RDONLY, 0)]
                os.waitpid(os.posix_spawn(program, [program], {}, file_actions=actions), 0)
            yield txn


class Stall:
    """The handle that ``stalled_disk`` yields."""

    def __init__(self, pipe: Path) -> None:
        self._pipe, self._fd = pipe, -1
        os.mkfifo(pipe, 0o600)

    def end(self) -> None:
        """Release all waiting writers, and make no other one wait."""
        if self._fd < 0:
            self._fd = os.open(self._pipe, os.O_RDWR)
            self._pipe.unlink()

    def close(self) -> None:
        """Close the pipe."""
        self.end()
        os.close(self._fd)


@contextmanager
def stalled_disk(directory: Path, lane: Lane) -> Iterator[Stall]:
    """Stall all transactions of the lane until the test ends the stall, or the block ends."""
    stall = Stall(directory / PIPE.format(lane))
    try:
        yield stall
    finally:
        stall.close()


if __name__ == "__main__":
    writer.Writer = StallingWriter  # type: ignore[misc]
    sys.exit(writer.main(sys.argv[1:]))
