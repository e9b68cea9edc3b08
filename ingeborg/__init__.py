"""The client library by one name: ``from ingeborg import Client``.

Owns: which names of ``protocol`` an application uses. Must never: import anything of ours before it is asked for, but
the choice between its two forms (``form``). This module runs before every other one of the installed package; an
endpoint's core must not load a client by that, nor a client what only an endpoint has.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ingeborg.protocol.client import (
        Client,
        ClientError,
        ClosedForGood,
        CommandTimeout,
        ConnectFailed,
        ConnectionLost,
        Gap,
        History,
        Notification,
        PositionError,
    )
    from ingeborg.protocol.credentials import read_token
    from ingeborg.protocol.errors import ProtocolError
    from ingeborg.protocol.listings import Subscriber, Subscription

__all__ = [
    "Client",
    "ClientError",
    "ClosedForGood",
    "CommandTimeout",
    "ConnectFailed",
    "ConnectionLost",
    "Gap",
    "History",
    "Notification",
    "PositionError",
    "ProtocolError",
    "Subscriber",
    "Subscription",
    "read_token",
]

# Git and archives write a link as a file, with its target as text, where they cannot or may not make links.
if os.path.isfile(os.path.join(os.path.dirname(__file__), "protocol")):
    raise ImportError(
        "ingeborg/protocol is a file and has to be a symbolic link: check the repository out again with links "
        "(git config core.symlinks true; git checkout -- ingeborg), or install a built package"
    )

# Before anything else of ours is imported. What is neither compiled nor asked to be interpreted has no choice to make.
if os.environ.get("INGEBORG_PURE") or os.path.isfile(os.path.join(os.path.dirname(__file__), "compiled.txt")):
    from ingeborg import form

    form.choose()

_HOMES = {
    **dict.fromkeys(__all__, "ingeborg.protocol.client"),
    "ProtocolError": "ingeborg.protocol.errors",
    "Subscriber": "ingeborg.protocol.listings",
    "Subscription": "ingeborg.protocol.listings",
    "read_token": "ingeborg.protocol.credentials",
}
"""The module of each name."""

if not TYPE_CHECKING:  # a type checker would take this for a promise of any name

    def __getattr__(name: str) -> object:
        """The first use of a name loads its module; from then on it is an attribute like any other."""
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals()[name] = found = getattr(import_module(_HOMES[name]), name)
        return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
