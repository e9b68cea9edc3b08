"""Limits of the machine and the user that an endpoint runs into: open files, waiting connections.

Owns: what they are, and what an endpoint wants. Must never: change one.
"""

from __future__ import annotations

import resource
from pathlib import Path

from ...shell.server import BACKLOG
from .findings import Finding, error, ok, warning

#: Files of an endpoint beside its clients' connections: store, links, log, and room for those being refused.
FILES_BESIDE = 200

#: From so many on nothing is said where no number of connections was given.
FILES_PLENTY = 10_000

SOMAXCONN = Path("/proc/sys/net/core/somaxconn")


def open_files(connections: int | None) -> list[Finding]:
    """Whether an endpoint may hold as many connections. ``None``: it was not said how many."""
    check = "open files"
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return [ok(check, "no limit")]
    room = soft - FILES_BESIDE
    seen = f"{soft:,} for a process started here: an endpoint holds {max(room, 0):,} connections"
    wanted = FILES_PLENTY if connections is None else connections + FILES_BESIDE
    if soft >= wanted:
        return [ok(check, seen)]
    can = hard == resource.RLIM_INFINITY or hard >= wanted
    todo = f"ulimit -n {wanted}" if can else f"raise the hard limit ({hard:,}), in limits.conf: nofile {wanted}"
    todo += f"; for a systemd service LimitNOFILE={wanted}"
    if connections is not None:
        return [error(check, f"{seen}; {connections:,} are wanted", todo)]
    return [warning(check, seen, f"if that is too few: {todo}")]


def backlog(path: Path = SOMAXCONN) -> list[Finding]:
    """How many connections may wait to be accepted."""
    check = "waiting connections"
    try:
        most = int(path.read_text())
    except (OSError, ValueError):
        return [ok(check, f"this system does not say ({path})")]
    if most >= BACKLOG:
        return [ok(check, f"net.core.somaxconn {most:,}; an endpoint asks for {BACKLOG:,}")]
    seen = f"net.core.somaxconn is {most:,}, an endpoint asks for {BACKLOG:,}: of many that come at once some wait"
    return [warning(check, seen, f"sysctl -w net.core.somaxconn={BACKLOG}, and a line in /etc/sysctl.d to keep it")]
