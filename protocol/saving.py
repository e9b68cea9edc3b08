"""A small text in a file that is always complete: a client's position. SPEC section 9.

Owns: reading the file, and replacing it with a new one, once a second at most. Must never: know what the text says, or
make the event loop wait for a disk.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

#: Seconds between two writes. A crash repeats the messages of that time, and the disk has little to do.
_INTERVAL_S = 1.0

#: A larger file is not one of ours, which has a position and some 10,000 names of messages.
FILE_BYTES_MAX = 8 << 20


class SavedFile:
    """One file. A failed write is tried again, for the last time by ``close``.

    Args:
        path: the file's path.
        text: returns the content; ``None``: it has none yet.
        on_failure: gets the error of each failed write.
    """

    def __init__(
        self, path: os.PathLike[str], text: Callable[[], bytes | None], on_failure: Callable[[OSError], None]
    ) -> None:
        self.path = Path(path)
        self._text = text
        self._on_failure = on_failure
        self._is_due = False
        self._closing = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def read(self) -> bytes | None:
        """Return the file's content; ``None``: the file does not exist yet.

        Raises:
            OSError: the file or its folder cannot be used.
        """
        try:
            with self.path.open("rb") as file:
                return file.read(FILE_BYTES_MAX)
        except FileNotFoundError:
            os.stat(self.path.parent)  # this raises now, and not only when the first position is lost
            return None

    def changed(self) -> None:
        """Schedule a write, since the text has changed."""
        self._is_due = True
        if self._task is None and not self._closing.is_set():
            self._task = asyncio.create_task(self._save(), name=f"saving {self.path}")

    async def close(self) -> None:
        """Write the latest text to the file.

        Raises:
            OSError: the write failed.
        """
        self._closing.set()
        if self._task is not None:
            await asyncio.wait((self._task,))
        if self._is_due:
            await self._write()

    async def _save(self) -> None:
        while self._is_due and not self._closing.is_set():
            try:
                await self._write()
            except OSError as error:
                self._on_failure(error)
            try:
                await asyncio.wait_for(self._closing.wait(), _INTERVAL_S)
            except TimeoutError:
                pass
        self._task = None

    async def _write(self) -> None:
        self._is_due = False
        text = self._text()
        if text is None:
            return
        try:
            await asyncio.to_thread(_replace, self.path, text)
        except BaseException:
            self._is_due = True
            raise


def _replace(path: Path, text: bytes) -> None:
    real = Path(os.path.realpath(path))  # replace a link's target, and not the link
    beside = real.with_name(f".{real.name}.new")
    with beside.open("wb") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())  # otherwise a crash of the machine can leave the name without the text
    os.replace(beside, real)
