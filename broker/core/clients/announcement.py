"""A `listen` under way, and a batch of listens on its way to the peers.

Owns: the facts about each, and the hook for the addition that a command asks for with its `listen`. Must never: act;
``listening`` moves them along.
"""

from __future__ import annotations

from typing import Any

from ingeborg.protocol.errors import ProtocolError
from ingeborg.protocol.native import mypyc_attr

from ..connections.hub import Binding, Connection, Reply
from ..model import Ended


@mypyc_attr(allow_interpreted_subclasses=True)
class OfListen:
    """An addition that a command asks for with its ``listen``."""

    def succeeded(self) -> dict[str, Any]:
        """Handle the success of the ``listen``.

        Returns:
            Fields for its reply, by name.
        """
        raise NotImplementedError

    def failed(self) -> None:
        """Handle the failure of the ``listen``: the store or a peer could not take it."""


class Listen:
    """A ``listen`` under way."""

    __slots__ = ("again", "client", "connection", "ended", "former", "id", "more", "reply")

    def __init__(
        self, client: str, connection: Connection, reply: Reply | None, number: Any, former: Binding | None
    ) -> None:
        self.client = client
        self.connection = connection
        self.reply = reply  # None: the endpoint itself repeats an earlier listen
        self.id = number
        self.former = former  # the client's binding to another connection of this endpoint, until now
        self.again = False  # it was listening on this connection already
        self.ended: Ended | None = None  # its subscriptions that have ended
        self.more: OfListen | None = None  # the addition that the command asked for


class Announcement:
    """A batch of listens on its way to the peers."""

    __slots__ = ("deadline", "error", "listens", "news", "open")

    def __init__(self, listens: list[Listen], deadline: float) -> None:
        self.listens = listens
        self.deadline = deadline
        self.news: list[tuple[str, int, str, bool]] = []  # (client, *location)
        self.open = 1
        self.error: ProtocolError | None = None
