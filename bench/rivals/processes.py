"""Processes that outlive the command that starts them. They start detached, and later commands recognise and stop them.

Owns: the identity of a process, by which a later command recognises it, and a server's limit of open files. Must never:
signal a process by its number alone, because numbers are reused, or block without a limit.
"""

from __future__ import annotations

import resource
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import psutil

from ingeborg.bench import starting

#: Limit of open files for a server, if the system allows this number. It exceeds the connections and topics of any
#: workload together. It is finite, because a server that sizes tables by the limit, as Erlang does, would need
#: gigabytes for a limit of 2^30.
OPEN_FILES_MAX = 1 << 20

#: Largest difference between two readings of the start of the same process. It covers a tick of the clock, and the
#: rounding of the boot time to a second.
START_TOLERANCE_S = 1.5

#: Children that this process started and still has to reap, by process id. There is one child for each server that is
#: up.
_children: dict[int, subprocess.Popen[bytes]] = {}


class Identity(NamedTuple):
    """The identity of a process, in a form that a file can hold. ``started_s`` is the time from the machine's boot to
    the start of the process, in seconds, which does not change when the wall clock is set."""

    pid: int
    started_s: float


def identify(pid: int) -> Identity:
    """Return the identity of a process. Raises ``psutil.NoSuchProcess`` if there is no such process."""
    return Identity(pid, _started_s(psutil.Process(pid)))


def find(identity: Identity) -> psutil.Process | None:
    """Return the process, or None if it has ended. A process that only waits to be reaped, or whose number now belongs
    to another process, has ended."""
    child = _children.get(identity.pid)
    if child is not None and child.poll() is not None:
        del _children[identity.pid]
        return None
    try:
        process = psutil.Process(identity.pid)
        same = abs(_started_s(process) - identity.started_s) <= START_TOLERANCE_S
        return process if same and process.status() != psutil.STATUS_ZOMBIE else None
    except psutil.NoSuchProcess:
        return None


def tree(identities: Iterable[Identity]) -> list[psutil.Process]:
    """Return the living processes, and all their descendants."""
    found: dict[int, psutil.Process] = {}
    for process in filter(None, map(find, identities)):
        found[process.pid] = process
        try:
            found.update((child.pid, child) for child in process.children(recursive=True))
        except psutil.NoSuchProcess:
            continue  # It has just ended.
    return list(found.values())


def listens(identity: Identity, port: int) -> bool:
    """Return whether the process, or a descendant, listens on the port. If the system does not let us see its sockets
    (for example in a container, after a server has given up root), return True."""
    processes = tree([identity])
    try:
        sockets = [each for process in processes for each in process.net_connections("tcp")]
    except psutil.NoSuchProcess:
        return False  # A process has just ended. The caller tries again.
    except psutil.AccessDenied:
        return True
    return any(each.status == psutil.CONN_LISTEN and each.laddr.port == port for each in sockets)


def spawn(argv: Sequence[str], environment: Mapping[str, str], directory: Path, log: Path) -> Identity:
    """Start a program in its own session, so that it survives the end of this process and a Ctrl-C at its terminal. The
    program's output is appended to `log`. Raises ``OSError`` if the program cannot start."""
    # The shell raises the limit of open files for itself, not for us. Then it becomes the program, with the same pid.
    limited = ["/bin/sh", "-c", f'ulimit -n {open_files()}; exec "$@"', "sh", *argv]
    child = starting.spawn(limited, log, environment=environment, directory=directory, outlives_us=True)
    _children[child.pid] = child
    return identify(child.pid)


def stop(identity: Identity, patience_s: float) -> list[int]:
    """Send SIGTERM to the process. If it still runs after `patience_s`, send SIGKILL to it and its descendants. Return
    the pids that are left, normally none. If the process has ended and its number belongs to another process, do
    nothing."""
    process = find(identity)
    if process is None:
        return []
    left = starting.blocking(starting.ending(process, patience_s))
    find(identity)  # If the process is our child, this call reaps it, and its number is free again.
    return left


def _started_s(process: psutil.Process) -> float:
    return process.create_time() - psutil.boot_time()


def open_files() -> int:
    """Return how many files a server may open. This is our hard limit, but at most ``OPEN_FILES_MAX``."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return OPEN_FILES_MAX if hard == resource.RLIM_INFINITY else min(hard, OPEN_FILES_MAX)
