"""What this machine, or the control group that this process is in, has of memory, and what of it the process takes.

Owns: how the system, and its C library, are asked. Must never: decide what to do about the answer.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
from pathlib import Path

#: `M_MMAP_THRESHOLD`, `M_TRIM_THRESHOLD` (mallopt(3)): from what size on memory comes from the system, and how much of
#: the heap's end is kept, in bytes.
MALLOC_OPTIONS = ((-3, 512 * 1024), (-1, 1024 * 1024))

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def memory_bytes(root: Path = Path("/")) -> int:
    """The least of what the machine has and what the process's control groups permit (version 2, or 1).

    ``root``: of the file system that is asked.
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
        # A group has what all groups above it permit. In a container its own is often shown as the uppermost.
        folder = base / path.lstrip("/")
        for group in (folder, *folder.parents):
            if not group.is_relative_to(base):
                break
            text = _text(group / name).strip()
            if text.isdigit():
                limits.append(int(text))
    return min(limits)


def resident_bytes() -> int:
    """What the process takes of the machine's memory. Where the system does not say so: more than there can be."""
    fields = _text(Path("/proc/self/statm")).split()
    return int(fields[1]) * _PAGE_BYTES if len(fields) > 1 else sys.maxsize


def dies_first() -> None:
    """Where a machine or a control group has no memory left, the kernel is to kill this process before all others."""
    with contextlib.suppress(OSError):  # not on Linux, or not permitted
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")


def die_with_parent(parent: int) -> None:
    """Have the kernel end this process when its parent ends, however that ends (prctl(2), ``PR_SET_PDEATHSIG``).

    Args:
        parent: Its process id. Where it has ended already, so does this process.
    """
    with contextlib.suppress(AttributeError, OSError):  # not on Linux
        ctypes.CDLL(None).prctl(1, signal.SIGTERM)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGTERM)


def return_large_memory() -> None:
    """Have large blocks mapped and unmapped one by one. By default glibc does so until the first large block is freed;
    then those of up to 32 MiB go to the heap, where the frames of a large subscribe leave holes of some 35 MB."""
    with contextlib.suppress(AttributeError, OSError):  # another C library: it has ways of its own
        for option, size in MALLOC_OPTIONS:
            ctypes.CDLL(None).mallopt(option, size)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError):
        return ""
