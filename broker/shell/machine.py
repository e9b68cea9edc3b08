"""Memory: how much this machine or this process's control group has, and how much the process uses.

Owns: the queries to the system and its C library. Must never: decide what to do with the results.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
from pathlib import Path

#: `M_MMAP_THRESHOLD` and `M_TRIM_THRESHOLD` (mallopt(3)). malloc maps blocks of at least the first size outside the
#: heap, and keeps at most the second number of free bytes at the end of the heap.
MALLOC_OPTIONS = ((-3, 512 * 1024), (-1, 1024 * 1024))

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def memory_bytes(root: Path = Path("/")) -> int:
    """Return the smallest of the machine's memory and the limits of the process's control groups (version 2 or 1).

    ``root``: the root of the file system.
    """
    limits = [os.sysconf("SC_PHYS_PAGES") * _PAGE_BYTES]
    groups = root / "sys/fs/cgroup"
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            base, name = groups, "memory.max"
        elif "memory" in controllers.split(","):
            base, name = groups / "memory", "memory.limit_in_bytes"
        else:
            continue
        # The limits of all groups above the process's group apply, too. A container often sees its own group as the top
        # one.
        folder = base / path.lstrip("/")
        for group in (folder, *folder.parents):
            if not group.is_relative_to(base):
                break
            text = _text(group / name).strip()
            if text.isdigit():
                limits.append(int(text))
    return min(limits)


def resident_bytes() -> int:
    """Return the memory that the process uses. If the system does not report it, return a number larger than any real
    memory."""
    fields = _text(Path("/proc/self/statm")).split()
    return int(fields[1]) * _PAGE_BYTES if len(fields) > 1 else sys.maxsize


def dies_first() -> None:
    """Have the kernel kill this process before all others when a machine or control group runs out of memory."""
    with contextlib.suppress(OSError):  # not on Linux, or not permitted
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")


def die_with_parent(parent: int) -> None:
    """Have the kernel end this process when its parent ends in any way (prctl(2), ``PR_SET_PDEATHSIG``).

    Args:
        parent: The parent's process id. If the parent has already ended, this process ends immediately.
    """
    with contextlib.suppress(AttributeError, OSError):  # not on Linux
        ctypes.CDLL(None).prctl(1, signal.SIGTERM)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGTERM)


def return_large_memory() -> None:
    """Make malloc map and unmap each large block separately, so that its memory returns to the system. By default glibc
    does so only until the first large block is freed. After that, it puts blocks of up to 32 MiB on the heap, where the
    frames of a large subscribe leave holes of about 35 MB."""
    with contextlib.suppress(AttributeError, OSError):  # a C library other than glibc
        for option, size in MALLOC_OPTIONS:
            ctypes.CDLL(None).mallopt(option, size)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError):
        return ""
