"""What an endpoint's process gets from the supervisor that started it: descriptors, and variables that name them.

Owns: these variables, and their checks: whoever else sets one is told so. Must never: start a process.
"""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import MutableMapping
from typing import NamedTuple

from ..shell.status_table import StatusEntry, StatusTable
from .config import ConfigError

#: The descriptor that closes when the supervisor is gone.
SUPERVISOR_FD = "INGEBORG_SUPERVISOR_FD"
#: The table that all its processes share, and which entry there is this one's: ``FD:ENTRY``.
STATUS_TABLE_FD = "INGEBORG_STATUS_TABLE_FD"
#: The listening socket that all its processes share.
PORT_FD = "INGEBORG_PORT_FD"


class Inherited(NamedTuple):
    """``pipe``: closes when the supervisor is gone; ``entry``: in its status table; ``port``: the socket that is
    shared, if one is."""

    pipe: int
    entry: StatusEntry
    port: socket.socket | None = None


def inherited(environment: MutableMapping[str, str]) -> Inherited | None:
    """What the variables say; they are taken out. ``None``: no supervisor has started this process. Raises
    ``ConfigError``: they are set by others than us."""
    pipe, status_table, port = (environment.pop(name, None) for name in (SUPERVISOR_FD, STATUS_TABLE_FD, PORT_FD))
    if not pipe and not status_table and not port:
        return None
    return Inherited(_pipe(pipe or ""), _entry(status_table or ""), _port(port) if port else None)


def _pipe(text: str) -> int:
    try:
        fd = int(text)
        told = stat.S_ISFIFO(os.fstat(fd).st_mode)
    except (ValueError, OverflowError, OSError):
        told = False
    if not told:
        raise _wrong(SUPERVISOR_FD, text, "a pipe")
    return fd


def _entry(text: str) -> StatusEntry:
    try:
        fd, _, number = text.partition(":")
        entry = StatusTable(int(fd)).entry(int(number))
        os.set_inheritable(int(fd), False)  # what this process starts has no business with it
        return entry
    except (ValueError, OverflowError, OSError) as error:
        raise _wrong(STATUS_TABLE_FD, text, f"a supervisor's table and an entry there ({error})") from None


def _port(text: str) -> socket.socket:
    try:
        sock = socket.socket(fileno=int(text))
    except (ValueError, OverflowError, OSError):
        raise _wrong(PORT_FD, text, "a listening socket") from None
    try:
        listens = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
    except OSError:
        listens = 0
    if not listens:
        sock.detach()  # not ours to close
        raise _wrong(PORT_FD, text, "a listening socket")
    sock.set_inheritable(False)
    return sock


def _wrong(name: str, text: str, should: str) -> ConfigError:
    return ConfigError(f"{name} {text[:64]!r}: has to be {should}; only a supervisor sets it, so unset it")
