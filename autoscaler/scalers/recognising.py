"""Knowing a process again that somebody started earlier: by its number and by when it started.

Owns: what is read of the system about a process. Must never: signal one; take a number alone for a process, since
numbers are used again.

Linux is asked through ``/proc``, other systems through ``ps``. The package psutil would do both, and is none that an
autoscaler needs otherwise.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

PROC = Path("/proc")

#: ``ps`` reads tables of the kernel; a machine that takes longer for it is in trouble.
_PS_S = 5.0
#: The same words in every country, and the same hour in summer and winter.
_PS_ENVIRONMENT = {"LC_ALL": "C", "TZ": "UTC0", "PATH": os.defpath}


class Seen(NamedTuple):
    """A process. ``started``: text that no other process with its number has, before or after. ``has_ended``: it only
    waits for its parent to ask how."""

    started: str
    has_ended: bool


def look(pid: int) -> Seen | None:
    """The process with this number; ``None``: there is none. ``OSError``: the system does not say."""
    return by_proc(pid) if (PROC / "self/stat").exists() else by_ps(pid)


def find(arguments: Sequence[str]) -> int | None:
    """The number of a process whose command line ends so; ``None``: there is none. ``OSError``: the system does not
    say."""
    return find_by_proc(arguments) if (PROC / "self/stat").exists() else find_by_ps(arguments)


def by_proc(pid: int) -> Seen | None:
    """``look``, on Linux: by the boot, and by the clock ticks from then to the process's start. Ticks and number alone
    could come again after another boot, since what starts with the machine starts at much the same time."""
    try:
        stat = (PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    # proc_pid_stat(5): the second field is a name in parentheses, which may have any in it; the third is the state,
    # the 22nd the start.
    fields = stat.rpartition(")")[2].split()
    return Seen(f"{_boot()}:{fields[19]}", fields[0] in ("Z", "X", "x"))


def find_by_proc(arguments: Sequence[str]) -> int | None:
    """``find``, on Linux."""
    wanted = [os.fsencode(each) for each in arguments]
    for folder in PROC.iterdir():
        if folder.name.isdigit():
            try:
                line = (folder / "cmdline").read_bytes()
            except OSError:  # it has ended, or is another user's
                continue
            if line.removesuffix(b"\0").split(b"\0")[-len(wanted) :] == wanted:
                return int(folder.name)
    return None


def by_ps(pid: int) -> Seen | None:
    """``look``, by POSIX' ``ps`` with the column ``lstart``, which all systems but Linux's smallest have: the second of
    the start, by the calendar."""
    state, _, started = _ps("-o", "stat=,lstart=", "-p", str(pid)).strip().partition(" ")
    return Seen(" ".join(started.split()), state.startswith("Z")) if started else None


def find_by_ps(arguments: Sequence[str]) -> int | None:
    """``find``, by ``ps``, which joins arguments by blanks."""
    wanted = " " + " ".join(arguments)
    for line in _ps("-axww", "-o", "pid=,args=").splitlines():
        pid, _, command = line.strip().partition(" ")
        if command.rstrip().endswith(wanted):
            return int(pid)
    return None


def _ps(*arguments: str) -> str:
    """What it prints. Its status is 1 where there is no such process."""
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
    except OSError:  # a container that hides it
        return ""
