"""Processes that outlive us: started detached, recognised later, stopped for certain.

Owns: the identity of a process, by which a later command knows it, and how many files a server may open. Must never:
signal a process of which only the number is known, for numbers are used again; block without a limit.
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

#: Those that this process started and has not seen end, to be reaped by it: as many as servers are up.
_children: dict[int, subprocess.Popen[bytes]] = {}


class Identity(NamedTuple):
    """A process that a file can name. ``started_s``: seconds from the machine's boot to its start, which does not
    change when the wall clock is set."""

    pid: int
    started_s: float


def identify(pid: int) -> Identity:
    """``psutil.NoSuchProcess`` if there is none."""
    return Identity(pid, _started_s(psutil.Process(pid)))


def find(identity: Identity) -> psutil.Process | None:
    """The process, if it is still that one and not only waiting to be reaped."""
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
    """Those that live, and all their descendants."""
    found: dict[int, psutil.Process] = {}
    for process in filter(None, map(find, identities)):
        found[process.pid] = process
        try:
            found.update((child.pid, child) for child in process.children(recursive=True))
        except psutil.NoSuchProcess:
            continue  # It ended just now; so did what it stood for.
    return list(found.values())


def listens(identity: Identity, port: int) -> bool:
    """Whether the process, or a descendant, is who listens there. Where the system does not let us look (a server that
    has given up root, seen from a container), that it lives is all that is known, and enough."""
    processes = tree([identity])
    try:
        sockets = [each for process in processes for each in process.net_connections("tcp")]
    except psutil.NoSuchProcess:
        return False  # Changing at this moment; asked again.
    except psutil.AccessDenied:
        return True
    return any(each.status == psutil.CONN_LISTEN and each.laddr.port == port for each in sockets)


def spawn(argv: Sequence[str], environment: Mapping[str, str], directory: Path, log: Path) -> Identity:
    """Start a program in a session of its own, so that neither our end nor a Ctrl-C at our terminal reaches it. Its
    output is appended to `log`. ``OSError`` if it cannot be started."""
    # The shell raises the limit of open files for itself, not for us, and becomes the program: the process stays.
    limited = ["/bin/sh", "-c", f'ulimit -n {open_files()}; exec "$@"', "sh", *argv]
    child = starting.spawn(limited, log, environment=environment, directory=directory, outlives_us=True)
    _children[child.pid] = child
    return identify(child.pid)


def stop(identity: Identity, patience_s: float) -> list[int]:
    """SIGTERM, and SIGKILL for it and its descendants if `patience_s` was not enough. Returns the pids that are left
    (none, as a rule). A process that is no longer that one is left alone."""
    process = find(identity)
    if process is None:
        return []
    left = starting.blocking(starting.ending(process, patience_s))
    find(identity)  # One that this process has started is asked how it ended: then its number is free.
    return left


def _started_s(process: psutil.Process) -> float:
    return process.create_time() - psutil.boot_time()


def open_files() -> int:
    """How many a server may open: what this process could at most, within reason."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return OPEN_FILES_MAX if hard == resource.RLIM_INFINITY else min(hard, OPEN_FILES_MAX)
