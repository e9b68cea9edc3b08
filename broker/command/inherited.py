"""The descriptors that an endpoint's process inherits from its supervisor, and the variables that name them.

Owns: these variables, and their checks, which refuse a value that no supervisor has set. Must never: start a process.
"""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import MutableMapping
from typing import NamedTuple

from ..shell.status_table import StatusEntry, StatusTable
from .config import ConfigError

#: The variable for the descriptor of a pipe, which closes when the supervisor is gone.
SUPERVISOR_FD = "INGEBORG_SUPERVISOR_FD"
#: The variable for the status table that all processes of a supervisor share, and for this process's entry:
#: ``FD:ENTRY``.
STATUS_TABLE_FD = "INGEBORG_STATUS_TABLE_FD"
#: The variable for the descriptor of the listening socket that all processes of a supervisor share.
PORT_FD = "INGEBORG_PORT_FD"


class Inherited(NamedTuple):
    """The objects that a supervisor passes to its processes. ``pipe`` is a descriptor that closes when the supervisor
    is gone. ``entry`` is this process's entry in the status table. ``port`` is the shared listening socket, if there is
    one."""

    pipe: int
    entry: StatusEntry
    port: socket.socket | None = None


def inherited(environment: MutableMapping[str, str]) -> Inherited | None:
    """Remove the variables from the environment, and return the descriptors that they name, or ``None`` if no
    supervisor has started this process. Raises ``ConfigError`` if something other than a supervisor has set them."""
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
        os.set_inheritable(int(fd), False)  # this process's children must not inherit the descriptor
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
        sock.detach()  # something else owns the descriptor, so do not close it
        raise _wrong(PORT_FD, text, "a listening socket")
    sock.set_inheritable(False)
    return sock


def _wrong(name: str, text: str, should: str) -> ConfigError:
    return ConfigError(f"{name} {text[:64]!r}: has to be {should}; only a supervisor sets this variable, so unset it")
