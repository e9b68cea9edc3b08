"""What a part of the core is: one capability of an endpoint, with its own state.

Owns: the list of what a part may take part in. Must never: do anything by itself.

The endpoint's layers have a list of parts (``layers``). The router asks each once, when it is made, what it takes part
in, and binds the answers in tables. On a message's way no part is asked, and a part without a ``tick`` or ``flush`` of
its own is not called for it. A new capability is a new part: a line in the assembly of its folder.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ingeborg.protocol.messages import Command
from ingeborg.protocol.native import mypyc_attr

from .connections.hub import Connection
from .links.calls import Asker
from .links.requests import Request
from .metrics import Metric

CommandHandler = Callable[[Connection, Command], None]


class CommandSpec:
    """A command that a part carries out, and the rules that its connection keeps for it."""

    __slots__ = ("after_close", "handler", "overlaps", "publishes")

    def __init__(
        self, handler: CommandHandler, *, overlaps: bool = True, publishes: bool = False, after_close: bool = False
    ) -> None:
        """``overlaps``: several of the kind may be under way on a connection, since they commute, or keep their order
        on the way. ``publishes``: it puts a message under way, so a connection that sends one while too many are is
        not read until they are fewer. ``after_close``: it is begun for a connection that is over, too, as long as what
        waits there is."""
        self.handler = handler
        self.overlaps = overlaps
        self.publishes = publishes
        self.after_close = after_close

    def taken_by(self, handler: CommandHandler) -> CommandSpec:
        """The same command, which another part takes first."""
        rules = {"overlaps": self.overlaps, "publishes": self.publishes, "after_close": self.after_close}
        return CommandSpec(handler, **rules)


RequestHandler = Callable[[str, int, Any], None]
"""Told the asking peer's incarnation, the request's number for the answer, and its record."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Part(Asker):
    """One capability of an endpoint. Nothing of this has to be there; what is not does nothing."""

    def commands(self) -> dict[str, CommandSpec]:
        """The clients' commands that this part carries out, by name."""
        return {}

    def requests(self) -> dict[type[Request], RequestHandler]:
        """The peers' requests that it answers, by their records."""
        return {}

    def metrics(self) -> list[Metric]:
        """What it counts and measures, for whoever asks."""
        return []

    def tick(self) -> None:
        """100 ms or so have passed: time-outs, expiry."""

    def flush(self) -> None:
        """The turn ends: ask for what all its events together need."""

    def closed(self, connection: Connection) -> None:
        """A client's connection is over, or is told to go: nothing is to be sent to it any more."""

    def view_changed(self) -> None:
        """Slots may have new homes."""

    def joined(self) -> None:
        """All other endpoints have let this one in."""

    def lapsed(self) -> None:
        """The lease has lapsed: others may act as homes of this endpoint's slots."""

    def informed(self) -> None:
        """It is known now what this endpoint has waited for before it may act: how far the journal goes."""

    def linked(self) -> None:
        """There is a new link to a peer."""

    def greet(self, peer: str) -> None:
        """The peer is let in next: tell it what it has to know before."""

    def peer_missed(self, peer: str, void_before: int | None) -> None:
        """The peer has acted while this endpoint was not in its view. ``void_before``: the number of the peer's first
        replica that is no older than that; ``None``: its answer has not come."""

    def peer_reset(self, peer: str) -> None:
        """The peer has been told that it has missed something: it drops what it has of this endpoint's slots."""

    def peer_leaving(self, peer: str) -> None:
        """The peer takes nothing in any more: it leaves, though its own word may not have come yet."""


class Bound(NamedTuple):
    """What all parts together take part in."""

    commands: dict[str, CommandSpec]
    requests: dict[type[Request], RequestHandler]
    ticks: list[Callable[[], None]]
    flushes: list[Callable[[], None]]
    closed: list[Callable[[Connection], None]]


def bind(parts: Sequence[Part]) -> Bound:
    """Ask the parts, in their order."""
    commands: dict[str, CommandSpec] = {}
    requests: dict[type[Request], RequestHandler] = {}
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
