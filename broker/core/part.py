"""A part of the core: one capability of an endpoint, with its own state.

Owns: the list of events that a part can take part in. Must never: act on one.

The endpoint's layers have a list of parts (``layers``). When the router is made, it asks each part once for its
commands, requests and hooks, and binds the answers in tables. It asks no part while a message passes, and it never
calls a part that has no ``tick`` or ``flush`` of its own. A new capability is a new part: a line in the assembly of its
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
    """A command that a part carries out, and the rules by which its connection begins it."""

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
            handler: carries out the command.
            overlaps: several commands of the kind can be under way on a connection, because they commute or keep their
                order.
            publishes: it puts a message under way. While too many messages are under way, the endpoint does not read a
                connection that sends another.
            after_close: it also begins after its connection has closed, as long as the connection's waiting commands
                exist.
            overtakes: it is short, gets no reply, and begins before commands that wait.
        """
        self.handler = handler
        self.overlaps = overlaps
        self.publishes = publishes
        self.after_close = after_close
        self.overtakes = overtakes

    def taken_by(self, handler: CommandHandler) -> CommandSpec:
        """Return the same command for another part's handler, which takes it first."""
        rules = {"overlaps": self.overlaps, "publishes": self.publishes, "after_close": self.after_close}
        return CommandSpec(handler, **rules)


RequestHandler = Callable[[str, int, Any], None]
"""Gets the asking peer's incarnation, the request's number for the answer, and the request's record."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Part(Asker):
    """One capability of an endpoint.

    Override only the methods that the capability needs; the others do nothing. No method can wait: long work goes into
    jobs, and calls to peers and the store return in later turns (see ``Desk``).
    """

    def commands(self) -> dict[str, CommandSpec]:
        """Return the clients' commands that this part carries out.

        Returns:
            By the command's name on the wire: its handler and rules. The router asks once.
        """
        return {}

    def requests(self) -> dict[type[Request], RequestHandler]:
        """Return the peers' requests that this part answers.

        Returns:
            By the request's record type: its handler. Each handler answers with ``Desk.answer`` or ``Desk.decline``, at
                once or in a later turn.
        """
        return {}

    def metrics(self) -> list[Metric]:
        """Return the part's metrics, read from its state."""
        return []

    def tick(self) -> None:
        """Handle a tick, about every 100 ms: time-outs, expiry."""

    def flush(self) -> None:
        """Handle the end of a turn: ask together for everything that the turn's events need."""

    def closed(self, connection: Connection) -> None:
        """Handle the end of a client's connection.

        Args:
            connection: closed or about to be closed; send nothing more to it.
        """

    def view_changed(self) -> None:
        """Handle a changed view: slots can have new homes."""

    def joined(self) -> None:
        """Handle joining: all other endpoints have let this one in."""

    def lapsed(self) -> None:
        """Handle a lapsed lease: others can now act as homes of this endpoint's slots."""

    def informed(self) -> None:
        """Handle the last fact that this endpoint needs before it can act: how far the journal goes."""

    def linked(self) -> None:
        """Handle a new link to a peer."""

    def greet(self, peer: str) -> None:
        """Tell a peer everything that it must know before this endpoint lets it in.

        Args:
            peer: the peer's incarnation.
        """

    def peer_missed(self, peer: str, void_before: int | None) -> None:
        """Handle a peer that has acted while this endpoint was not in its view.

        Args:
            peer: the peer's incarnation.
            void_before: the number of the peer's first replica that is recent enough; ``None``: its answer has not
                come.
        """

    def peer_reset(self, peer: str) -> None:
        """Handle a peer that has learned that it missed something: it drops its state of this endpoint's slots.

        Args:
            peer: the peer's incarnation.
        """

    def peer_leaving(self, peer: str) -> None:
        """Handle a peer that leaves, and accepts no more requests. Its own announcement can arrive later.

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
