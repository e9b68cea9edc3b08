"""The client library under one name: ``from ingeborg import Client``.

Owns: the names of ``protocol`` that an application uses. Must never: import one of our modules before an application
uses a name from it. The only exception is ``form``, which chooses between the compiled and the interpreted code. This
module runs before every other module of the installed package, so it must not make an endpoint's core load a client, or
a client load an endpoint's modules.
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

# If Git or an archive tool cannot create a symbolic link, it writes a text file with the link's target.
if os.path.isfile(os.path.join(os.path.dirname(__file__), "protocol")):
    raise ImportError(
        "ingeborg/protocol is a file and has to be a symbolic link: check the repository out again with links "
        "(git config core.symlinks true; git checkout -- ingeborg), or install a built package"
    )

# This has to come before any import of our modules. Without a compiled build and without the variable, there is nothing
# to choose.
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
"""The module that defines each name."""

if not TYPE_CHECKING:  # otherwise a type checker would accept every name

    def __getattr__(name: str) -> object:
        """Load a name's module at its first use. Later the name is an ordinary attribute."""
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals()[name] = found = getattr(import_module(_HOMES[name]), name)
        return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
