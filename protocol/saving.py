"""Saves a small text, a client's position, in a file that is complete at every moment. SPEC section 9.

Owns: reading the file, and replacing it with a new one, at most once a second. Must never: interpret the text, or make
the event loop wait for a disk.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

#: Seconds between two writes. After a crash, the client gets the messages of that time again. The interval is long
#: enough to spare the disk.
_INTERVAL_S = 1.0

#: Maximum size of a file. A file of a client has a position and about 10,000 names of messages, so no client has
#: written a larger file.
FILE_BYTES_MAX = 8 << 20


class SavedFile:
    """One saved file. It retries a failed write; the last attempt is the one in ``close``.

    Args:
        path: the file's path.
        text: returns the content to save, or ``None`` if there is none yet.
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
        """Return the file's content, or ``None`` if the file does not exist yet.

        Raises:
            OSError: the file or its folder cannot be used.
        """
        try:
            with self.path.open("rb") as file:
                return file.read(FILE_BYTES_MAX)
        except FileNotFoundError:
            os.stat(self.path.parent)  # a bad folder raises now, and not only at the first write
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
        os.fsync(file.fileno())  # otherwise a crash of the machine can leave an empty file
    os.replace(beside, real)
