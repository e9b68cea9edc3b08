"""Checks the limits of the machine and the user: open files, waiting connections.

Owns: reading these limits, and the values that an endpoint needs. Must never: change a limit.
"""

from __future__ import annotations

import resource
from pathlib import Path

from ...shell.server import BACKLOG
from .findings import Finding, error, ok, warning

#: open files that an endpoint needs in addition to its client connections, for its store, links, log and refusals
FILES_BESIDE = 200

#: The number of open files that is enough if no number of connections is given.
FILES_PLENTY = 10_000

SOMAXCONN = Path("/proc/sys/net/core/somaxconn")


def open_files(connections: int | None) -> list[Finding]:
    """Check whether an endpoint can hold this many connections. ``None`` means that no number is given."""
    check = "open files"
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return [ok(check, "no limit")]
    room = soft - FILES_BESIDE
    seen = f"a process started here can open {soft:,} files, so an endpoint can hold {max(room, 0):,} connections"
    wanted = FILES_PLENTY if connections is None else connections + FILES_BESIDE
    if soft >= wanted:
        return [ok(check, seen)]
    can = hard == resource.RLIM_INFINITY or hard >= wanted
    todo = f"ulimit -n {wanted}" if can else f"raise the hard limit ({hard:,}), in limits.conf: nofile {wanted}"
    todo += f"; for a systemd service LimitNOFILE={wanted}"
    if connections is not None:
        return [error(check, f"{seen}; you want {connections:,}", todo)]
    return [warning(check, seen, f"if you need more: {todo}")]


def backlog(path: Path = SOMAXCONN) -> list[Finding]:
    """Check how many connections can wait for the endpoint to accept them."""
    check = "waiting connections"
    try:
        most = int(path.read_text())
    except (OSError, ValueError):
        return [ok(check, f"unknown: this system has no {path}")]
    if most >= BACKLOG:
        return [ok(check, f"net.core.somaxconn {most:,}; an endpoint asks for {BACKLOG:,}")]
    seen = (
        f"net.core.somaxconn is {most:,}, an endpoint asks for {BACKLOG:,}: if many clients connect together, some wait"
    )
    return [
        warning(check, seen, f"sysctl -w net.core.somaxconn={BACKLOG}; to keep this value, add it to /etc/sysctl.d")
    ]
