"""A part of the core: one capability of an endpoint, with its own state.

Owns: the list of events that a part can handle. Must never: handle an event itself.

The module ``layers`` lists all parts. When a router is created, it asks each part once for its commands, requests and
hooks, and stores them in tables. So it need not search for a handler when a message arrives, and it calls ``tick`` and
``flush`` only on parts that override them. To add a capability, write a new part and create it in the assembly of its
folder.
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
    """A command that a part carries out, and the rules for when a connection may begin it."""

    __slots__ = ("after_close", "handler", "overlaps", "overtakes", "publishes")

    def __init__(
        self,
        handler: CommandHandler,
        *,
        overlaps: bool = True,
        publishes: bool = False,
        after_close: bool = False,
        overtakes: bool = False,
    ) -> None:
        """Make the entry.

        Args:
            handler: the function that carries out the command.
            overlaps: whether a connection can have several commands of this kind in progress, because they commute or
                keep their order.
            publishes: whether the command publishes a message. While too many messages are in flight, the endpoint
                stops reading connections that send such commands.
            after_close: whether the command may still begin shortly after its connection has closed.
            overtakes: whether the command begins before commands that are waiting. Such a command is short and gets no
                reply.
        """
        self.handler = handler
        self.overlaps = overlaps
        self.publishes = publishes
        self.after_close = after_close
        self.overtakes = overtakes

    def taken_by(self, handler: CommandHandler) -> CommandSpec:
        """Return the same command with the handler of another part, which then gets the command first."""
        rules = {"overlaps": self.overlaps, "publishes": self.publishes, "after_close": self.after_close}
        return CommandSpec(handler, **rules)


RequestHandler = Callable[[str, int, Any], None]
"""Handles a peer's request. Its arguments are the peer's incarnation, the request's number (needed for the answer), and
the request's record."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Part(Asker):
    """One capability of an endpoint.

    Override only the methods that the capability needs; the others do nothing. No method may block: long work goes into
    jobs, and the results of calls to peers and to the store arrive in later turns (see ``Desk``).
    """

    def commands(self) -> dict[str, CommandSpec]:
        """Return the clients' commands that this part carries out.

        Returns:
            The handler and the rules of each command, by the command's name on the wire. The router calls this method
            once.
        """
        return {}

    def requests(self) -> dict[type[Request], RequestHandler]:
        """Return the peers' requests that this part answers.

        Returns:
            The handler of each request, by the type of the request's record. A handler answers with ``Desk.answer`` or
            ``Desk.decline``, immediately or in a later turn.
        """
        return {}

    def metrics(self) -> list[Metric]:
        """Return the part's metrics, read from its state."""
        return []

    def tick(self) -> None:
        """Handle a tick, which comes about every 100 ms: check time-outs and expiry."""

    def flush(self) -> None:
        """Handle the end of a turn: send, in batches, the requests to peers and the store that the turn's events
        need."""

    def closed(self, connection: Connection) -> None:
        """Handle the end of a client's connection.

        Args:
            connection: the connection, closed or about to be closed. Send nothing more to it.
        """

    def view_changed(self) -> None:
        """Handle a change of the view (the set of endpoints that take part). Slots can have new homes now."""

    def joined(self) -> None:
        """Handle the end of joining: all other endpoints have accepted this endpoint."""

    def lapsed(self) -> None:
        """Handle the end of this endpoint's lease: other endpoints can now act as homes of its slots."""

    def informed(self) -> None:
        """Handle the store's report of the journal's greatest stamp, which this endpoint needs before it can act as a
        home."""

    def linked(self) -> None:
        """Handle a new link to a peer."""

    def greet(self, peer: str) -> None:
        """Send a joining peer everything that the peer must know before this endpoint accepts it.

        Args:
            peer: the peer's incarnation.
        """

    def peer_missed(self, peer: str, void_before: int | None) -> None:
        """Handle a peer that has acted while this endpoint was not in its view.

        Args:
            peer: the peer's incarnation.
            void_before: the number of the peer's first replica that is recent enough. ``None`` if the peer's answer did
                not arrive.
        """

    def peer_reset(self, peer: str) -> None:
        """Handle a peer that has learned that it missed something, and now drops its state of this endpoint's slots.

        Args:
            peer: the peer's incarnation.
        """

    def peer_leaving(self, peer: str) -> None:
        """Handle a peer that is leaving, and accepts no more requests. Its own announcement may arrive later.

        Args:
            peer: the peer's incarnation.
        """


class Bound(NamedTuple):
    """The commands, requests and hooks of all parts together."""

    commands: dict[str, CommandSpec]
    requests: dict[type[Request], RequestHandler]
    ticks: list[Callable[[], None]]
    flushes: list[Callable[[], None]]
    closed: list[Callable[[Connection], None]]


def bind(parts: Sequence[Part]) -> Bound:
    """Collect the commands, requests and hooks of the parts, in the parts' order."""
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
