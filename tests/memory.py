"""The place of a test run's temporary files: in memory if it has room, so that no test waits for a disk.

Owns: the choice, the folder, and its end. Must never: require either place of a test. The tests kill processes, and
files in memory outlive these. No test has to show that a power cut loses nothing.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from ingeborg.broker.shell.machine import memory_bytes

SHARED_MEMORY = Path("/dev/shm")
"""A file system in memory, on Linux. Each run has a separate folder in it."""

PREFIX = "ingeborg-tests-"

ROOM_BYTES = 4 << 30
"""Bytes that have to be free, in the file system and in memory. The files of a run of many tests took 0.65 GB, mostly
stores (their maps are sparse). With less free space, as in a container with its 64 MB, the files are on the disk."""

NEW_S = 60.0
"""Seconds. The run of a younger folder may not have locked it yet."""


class Folder:
    """The folder of one run. Its lock tells other runs that it is in use, until this process ends in any way."""

    def __init__(self, parent: Path) -> None:
        self.path = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))
        self._fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        fcntl.flock(self._fd, fcntl.LOCK_SH)

    def remove(self) -> None:
        """Free the memory."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._fd)


def has_room(parent: Path) -> bool:
    """Return whether a run's files may be there: it is writable and executable, and has room."""
    try:
        found = os.statvfs(parent)
    except OSError:
        return False
    free_bytes = min(found.f_bavail * found.f_frsize, _available_bytes())
    return os.access(parent, os.W_OK | os.X_OK) and not found.f_flag & os.ST_NOEXEC and free_bytes >= ROOM_BYTES


def take(parent: Path = SHARED_MEMORY) -> Folder | None:
    """Make this process, and those that it starts, put temporary files there from now on.

    Args:
        parent: A directory in memory.

    Returns:
        The folder, to be removed at the end. ``None``: the place stays the same, since the parent has no room, or since
        the environment names another (``TMPDIR``).
    """
    if "TMPDIR" in os.environ:
        return None
    remove_left(parent)
    if not has_room(parent):
        return None
    folder = Folder(parent)
    os.environ["TMPDIR"] = tempfile.tempdir = str(folder.path)
    return folder


def remove_left(parent: Path) -> None:
    """Remove the folders of killed or failed runs."""
    for path in parent.glob(f"{PREFIX}*"):
        try:
            fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            continue
        try:
            found = os.fstat(fd)
            if found.st_uid == os.geteuid() and time.time() - found.st_mtime > NEW_S:
                with suppress(BlockingIOError):  # its run goes on
                    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(path, ignore_errors=True)
        finally:
            os.close(fd)


def _available_bytes() -> int:
    """Return half of the machine's available memory, or half of this control group's limit if that is less."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return 0
    available = next((int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:")), 0)
    return min(available // 2, memory_bytes() // 2)
