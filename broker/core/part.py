"""What a part of the core is: one capability of an endpoint, with its own state.

Owns: the list of what a part may take part in. Must never: do anything by itself.

The router has a list of parts. It asks each once, when it is made, what it takes part in, and binds the answers in
tables. On a message's way no part is asked, and a part without a ``tick`` or ``flush`` of its own is not called for it.
A new capability is a new part: made in the router, and a line in that list.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ingeborg.protocol.messages import Command
from ingeborg.protocol.native import mypyc_attr

from .connections.hub import Connection
from .links.calls import Asker, Kind

CommandHandler = Callable[[Connection, Command], None]
RequestHandler = Callable[[str, int, list[Any]], None]
"""Told the asking peer's incarnation, the request's number for the answer, and its arguments."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Part(Asker):
    """One capability of an endpoint. Nothing of this has to be there; what is not does nothing."""

    def commands(self) -> dict[str, CommandHandler]:
        """The clients' commands that this part carries out, by name."""
        return {}

    def requests(self) -> dict[Kind, RequestHandler]:
        """The peers' requests that it answers."""
        return {}

    def tick(self) -> None:
        """100 ms or so have passed: time-outs, expiry."""

    def flush(self) -> None:
        """The turn ends: ask for what all its events together need."""

    def closed(self, connection: Connection) -> None:
        """A client's connection is over, or is told to go: nothing is to be sent to it any more."""

    def follows_the_cluster(self) -> bool:
        """It has a word of its own to say to what the next three tell."""
        kind = type(self)
        return (
            kind.view_changed is not Part.view_changed
            or kind.joined is not Part.joined
            or kind.lapsed is not Part.lapsed
        )

    def view_changed(self) -> None:
        """Slots may have new homes."""

    def joined(self) -> None:
        """All other endpoints have let this one in."""

    def lapsed(self) -> None:
        """The lease has lapsed: others may act as homes of this endpoint's slots."""


class Bound(NamedTuple):
    """What all parts together take part in."""

    commands: dict[str, CommandHandler]
    requests: dict[Kind, RequestHandler]
    ticks: list[Callable[[], None]]
    flushes: list[Callable[[], None]]
    closed: list[Callable[[Connection], None]]


def bind(parts: Sequence[Part]) -> Bound:
    """Ask the parts, in their order."""
    commands: dict[str, CommandHandler] = {}
    requests: dict[Kind, RequestHandler] = {}
    for part in parts:
        commands.update(part.commands())
        requests.update(part.requests())
    return Bound(
        commands,
        requests,
        [part.tick for part in parts if type(part).tick is not Part.tick],
        [part.flush for part in parts if type(part).flush is not Part.flush],
        [part.closed for part in parts if type(part).closed is not Part.closed],
    )
