"""Recognises a process that somebody started earlier, by its number and start time.

Owns: reading a process's data from the system. Must never: signal a process; identify a process by its number alone,
since numbers are reused.

It reads ``/proc`` on Linux, and runs ``ps`` on other systems. The package psutil does both, but the autoscaler needs it
for nothing else.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

PROC = Path("/proc")

#: ``ps`` reads kernel tables; a machine that needs longer is in trouble.
_PS_S = 5.0
#: The same words in every locale, and the same hour in summer and winter.
_PS_ENVIRONMENT = {"LC_ALL": "C", "TZ": "UTC0", "PATH": os.defpath}


class Seen(NamedTuple):
    """A process. ``started``: a text that no earlier or later process with the same number has. ``has_ended``: it is a
    zombie that waits for its parent to reap it."""

    started: str
    has_ended: bool


def look(pid: int) -> Seen | None:
    """Return the process with this number, or ``None``. Raises ``OSError`` if the system does not answer."""
    return by_proc(pid) if (PROC / "self/stat").exists() else by_ps(pid)


def find(arguments: Sequence[str]) -> int | None:
    """Return the number of a process whose command line ends with these arguments, or ``None``. Raises ``OSError`` if
    the system does not answer."""
    return find_by_proc(arguments) if (PROC / "self/stat").exists() else find_by_ps(arguments)


def by_proc(pid: int) -> Seen | None:
    """Implement ``look`` on Linux. ``started`` has the boot id, and the clock ticks from boot to the process's start.
    Ticks and number alone could repeat after a reboot: programs that start with the machine do so at nearly the same
    time."""
    try:
        stat = (PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    # proc_pid_stat(5): the second field is a name in parentheses, which can contain parentheses; the third is the
    # state, the 22nd the start.
    fields = stat.rpartition(")")[2].split()
    return Seen(f"{_boot()}:{fields[19]}", fields[0] in ("Z", "X", "x"))


def find_by_proc(arguments: Sequence[str]) -> int | None:
    """Implement ``find`` on Linux."""
    wanted = [os.fsencode(each) for each in arguments]
    for folder in PROC.iterdir():
        if folder.name.isdigit():
            try:
                line = (folder / "cmdline").read_bytes()
            except OSError:  # the process has ended, or belongs to another user
                continue
            if line.removesuffix(b"\0").split(b"\0")[-len(wanted) :] == wanted:
                return int(folder.name)
    return None


def by_ps(pid: int) -> Seen | None:
    """Implement ``look`` with POSIX ``ps`` and its column ``lstart``, which all systems have except the smallest Linux
    ones. ``started`` is the date and time of the start, to the second."""
    state, _, started = _ps("-o", "stat=,lstart=", "-p", str(pid)).strip().partition(" ")
    return Seen(" ".join(started.split()), state.startswith("Z")) if started else None


def find_by_ps(arguments: Sequence[str]) -> int | None:
    """Implement ``find`` with ``ps``, which joins arguments with blanks."""
    wanted = " " + " ".join(arguments)
    for line in _ps("-axww", "-o", "pid=,args=").splitlines():
        pid, _, command = line.strip().partition(" ")
        if command.rstrip().endswith(wanted):
            return int(pid)
    return None


def _ps(*arguments: str) -> str:
    """Return the output of ``ps``. Its status is 1 if no such process exists."""
    try:
        done = subprocess.run(["ps", *arguments], capture_output=True, env=_PS_ENVIRONMENT, timeout=_PS_S, check=False)
    except subprocess.TimeoutExpired:
        raise OSError(f"ps does not answer within {_PS_S:g} s") from None
    if done.returncode > 1 or (done.stderr and not done.stdout):
        raise OSError(f"ps: {done.stderr.decode(errors='replace').strip()[:200]}")
    return done.stdout.decode(errors="replace")


def _boot() -> str:
    try:
        return (PROC / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:  # a container may hide it
        return ""
