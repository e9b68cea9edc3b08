"""Processes that outlive us: started detached, recognised later, reliably stopped.

Owns: the identity of a process, by which a later command recognises it, and a server's limit of open files. Must never:
signal a process by number alone, for numbers are used again; block without a limit.
"""

from __future__ import annotations

import resource
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import psutil

from ingeborg.bench import starting

#: Open files of a server, if the system allows as many. More than any workload's connections and topics together;
#: finite, for a server that sizes tables by the limit (Erlang does) would take gigabytes for a limit of 2^30.
OPEN_FILES_MAX = 1 << 20

#: Two readings of one process's start agree within the clock's tick and the second the boot time is rounded to.
START_TOLERANCE_S = 1.5

#: Children that this process started and still has to reap: as many as servers are up.
_children: dict[int, subprocess.Popen[bytes]] = {}


class Identity(NamedTuple):
    """The identity of a process, in a form that a file can hold. ``started_s``: seconds from the machine's boot to its
    start, which does not change when the wall clock is set."""

    pid: int
    started_s: float


def identify(pid: int) -> Identity:
    """Return the identity of a process. ``psutil.NoSuchProcess`` if there is none."""
    return Identity(pid, _started_s(psutil.Process(pid)))


def find(identity: Identity) -> psutil.Process | None:
    """Return the process, if the number still belongs to it and it is not just waiting to be reaped."""
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
    """Say whether the process, or a descendant, listens there. If the system does not let us look (a server that has
    given up root, seen from a container), being alive is enough."""
    processes = tree([identity])
    try:
        sockets = [each for process in processes for each in process.net_connections("tcp")]
    except psutil.NoSuchProcess:
        return False  # It is changing at this moment; the caller tries again.
    except psutil.AccessDenied:
        return True
    return any(each.status == psutil.CONN_LISTEN and each.laddr.port == port for each in sockets)


def spawn(argv: Sequence[str], environment: Mapping[str, str], directory: Path, log: Path) -> Identity:
    """Start a program in its own session, so that neither our end nor a Ctrl-C at our terminal reaches it. Its output
    is appended to `log`. ``OSError`` if it cannot start."""
    # The shell raises the limit of open files for itself, not for us, and becomes the program: the process stays.
    limited = ["/bin/sh", "-c", f'ulimit -n {open_files()}; exec "$@"', "sh", *argv]
    child = starting.spawn(limited, log, environment=environment, directory=directory, outlives_us=True)
    _children[child.pid] = child
    return identify(child.pid)


def stop(identity: Identity, patience_s: float) -> list[int]:
    """Send SIGTERM, and SIGKILL to it and its descendants if `patience_s` was not enough. Return the pids left
    (normally none). Another process that now has its number is left alone."""
    process = find(identity)
    if process is None:
        return []
    left = starting.blocking(starting.ending(process, patience_s))
    find(identity)  # This reaps a child of this process: then its number is free.
    return left


def _started_s(process: psutil.Process) -> float:
    return process.create_time() - psutil.boot_time()


def open_files() -> int:
    """Return how many files a server may open: this process's hard limit, within reason."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return OPEN_FILES_MAX if hard == resource.RLIM_INFINITY else min(hard, OPEN_FILES_MAX)
