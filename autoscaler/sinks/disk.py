"""The file system operations of the files sink: small steps, each atomic.

Owns: the system calls, and the durability of a step across a crash of the machine. Must never: know a file's content,
or decide anything.

All steps are in one class, so that a test can stop, fail or cut off a writer between any two steps.
"""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

#: Bytes per read, when a file is read from its end towards its beginning. In most files, the first read gets the whole
#: last line.
_BLOCK_BYTES = 65_536


class Disk:
    """Offers blocking calls. Each call can raise ``OSError``."""

    def folder(self, path: Path) -> None:
        """Create the folder durably, unless it exists. Its parent must exist."""
        with suppress(FileExistsError):
            path.mkdir()
        self.sync(path.parent)  # another process may have created it but not synced it yet

    def names(self, folder: Path) -> Iterator[str]:
        """Return the names of all entries in the folder, in no order."""
        with os.scandir(folder) as entries:
            for entry in entries:
                yield entry.name

    def draft(self, folder: Path, data: bytes) -> Path:
        """Create a durable file with this content, under a name that begins with a dot. If the write fails, remove the
        file."""
        path = folder / f".{secrets.token_hex(8)}"
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        try:
            with os.fdopen(descriptor, "wb", buffering=0) as file:
                view = memoryview(data)
                while view:
                    view = view[file.write(view) :]
                os.fsync(file.fileno())
        except BaseException:
            self.remove(path)
            raise
        return path

    def publish(self, draft: Path, path: Path) -> bool:
        """Give the draft this name in addition to its own. Return ``False`` if the name is taken. ``sync`` makes the
        name durable."""
        try:
            os.link(draft, path)
        except FileExistsError:
            # If an answer is lost, a network file system repeats the request, and then reports that the name is taken.
            return os.path.samestat(os.stat(draft), os.stat(path))
        return True

    def remove(self, path: Path) -> None:
        """Remove a file if possible. If it cannot be removed, ``old`` finds it later."""
        with suppress(OSError):
            os.unlink(path)

    def sync(self, folder: Path) -> None:
        """Make new names in the folder survive a crash."""
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def old(self, folder: Path, before_s: float) -> list[Path]:
        """Return the drafts that were last written before ``before_s``, in seconds since 1970."""
        found = []
        with os.scandir(folder) as entries:
            for entry in entries:
                with suppress(FileNotFoundError):  # its writer has just removed it
                    if entry.name.startswith(".") and entry.stat(follow_symlinks=False).st_mtime < before_s:
                        found.append(Path(entry.path))
        return found

    def text(self, path: Path) -> str:
        """Return the text of a small file."""
        return path.read_text(encoding="utf-8", errors="replace")

    def last_line(self, path: Path) -> bytes | None:
        """Return the last line without its line feed, or an empty line if the file is empty. Return ``None`` if the
        file does not exist."""
        try:
            file = path.open("rb")
        except FileNotFoundError:
            return None
        with file:
            end = file.seek(0, os.SEEK_END)
            tail = b""
            while end > 0 and b"\n" not in tail[:-1]:
                size = min(end, max(_BLOCK_BYTES, len(tail)))  # doubled each time, because a line may be long
                end -= size
                file.seek(end)
                tail = file.read(size) + tail
            return tail[:-1].rpartition(b"\n")[2]

    def add_line(self, path: Path, line: bytes) -> None:
        """Add a line to a file that several processes write to. The line is written in one system call, so that lines
        do not mix."""
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        try:
            if os.write(descriptor, line) < len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        finally:
            os.close(descriptor)
