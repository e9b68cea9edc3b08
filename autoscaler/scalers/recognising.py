"""Recognises a process that somebody started earlier, by its number and start time.

Owns: reading a process's data from the system. Must never: signal a process, or identify a process by its number alone,
because numbers are reused.

This module reads ``/proc`` on Linux, and runs ``ps`` on other systems. The package psutil could replace this module,
but the autoscaler would use it for nothing else.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

PROC = Path("/proc")

#: Time limit of ``ps`` in seconds. ``ps`` only reads kernel tables, so a machine that needs longer has a problem.
_PS_S = 5.0
#: Environment of ``ps``. It makes the output the same in every locale, and the hours the same in summer and winter.
_PS_ENVIRONMENT = {"LC_ALL": "C", "TZ": "UTC0", "PATH": os.defpath}


class Seen(NamedTuple):
    """A process. ``started``: a text that no earlier or later process with the same number has. ``has_ended``: the
    process is a zombie, which its parent has not reaped yet."""

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
    Without the boot id, the ticks and the number could be the same after a reboot, because programs that start with the
    machine always start at nearly the same time after boot."""
    try:
        stat = (PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The second field is a name in parentheses, which can itself contain parentheses. The third field is the state, and
    # the 22nd is the start time (proc_pid_stat(5)).
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
    """Implement ``look`` with POSIX ``ps`` and its column ``lstart``, which only the smallest Linux systems lack.
    ``started`` is the date and time of the start, to the second."""
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
    """Return the output of ``ps``. The exit status of ``ps`` is 1 if no such process exists."""
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
