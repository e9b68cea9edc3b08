"""What the files sink asks of a file system: small steps, each of which is done or is not.

Owns: the calls of the system, and what makes a step survive a crash of the machine. Must never: know what is in a file,
or decide anything.

All steps are in one class, so that a test can stop, fail or cut off a writer between any two of them.
"""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

#: Bytes read at a time, from the end of a file towards its beginning: the last line of most files is in the first.
_BLOCK_BYTES = 65_536


class Disk:
    """Blocking calls. Each raises ``OSError``."""

    def folder(self, path: Path) -> None:
        """Have the folder, whose parent is there, durably. It may be there already."""
        with suppress(FileExistsError):
            path.mkdir()
        self.sync(path.parent)  # whoever else made it may not have come to this

    def names(self, folder: Path) -> Iterator[str]:
        """Of all that is in the folder, in no order."""
        with os.scandir(folder) as entries:
            for entry in entries:
                yield entry.name

    def draft(self, folder: Path, data: bytes) -> Path:
        """A new file with this content, durable, under a name that begins with a dot. Where it cannot be written whole,
        nothing of it is left."""
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
        """Give the draft this name, too. ``False``: the name is taken. ``sync`` makes it durable."""
        try:
            os.link(draft, path)
        except FileExistsError:
            # A network file system sends a request again when the answer was lost, and hears that the name is taken.
            return os.path.samestat(os.stat(draft), os.stat(path))
        return True

    def remove(self, path: Path) -> None:
        """Remove a file, if it can be. One that stays is found by ``old``."""
        with suppress(OSError):
            os.unlink(path)

    def sync(self, folder: Path) -> None:
        """What was given a name in the folder has it after a crash, too."""
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def old(self, folder: Path, before_s: float) -> list[Path]:
        """Drafts last written before this time, in seconds since 1970."""
        found = []
        with os.scandir(folder) as entries:
            for entry in entries:
                with suppress(FileNotFoundError):  # its writer has just removed it
                    if entry.name.startswith(".") and entry.stat(follow_symlinks=False).st_mtime < before_s:
                        found.append(Path(entry.path))
        return found

    def text(self, path: Path) -> str:
        """All of a small file."""
        return path.read_text(encoding="utf-8", errors="replace")

    def last_line(self, path: Path) -> bytes | None:
        """The last line, without its line feed; empty if the file is. ``None``: there is no such file."""
        try:
            file = path.open("rb")
        except FileNotFoundError:
            return None
        with file:
            end = file.seek(0, os.SEEK_END)
            tail = b""
            while end > 0 and b"\n" not in tail[:-1]:
                size = min(end, max(_BLOCK_BYTES, len(tail)))  # twice as much each time: a line may be long
                end -= size
                file.seek(end)
                tail = file.read(size) + tail
            return tail[:-1].rpartition(b"\n")[2]

    def add_line(self, path: Path, line: bytes) -> None:
        """Add a line to a file that several processes add to. One call of the system: lines do not mix."""
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        try:
            if os.write(descriptor, line) < len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        finally:
            os.close(descriptor)
