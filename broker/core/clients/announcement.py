"""A `listen` under way, and a batch of them that the peers are being told of.

Owns: what is known of each, and what else may hang on a `listen`. Must never: act; ``listening`` moves them along.
"""

from __future__ import annotations

from typing import Any

from ingeborg.protocol.errors import ProtocolError
from ingeborg.protocol.native import mypyc_attr

from ..connections.hub import Binding, Connection, Reply
from ..model import Ended


@mypyc_attr(allow_interpreted_subclasses=True)
class OfListen:
    """What else a command asks for with its ``listen``."""

    def succeeded(self) -> dict[str, Any]:
        """The ``listen`` has succeeded. Returns fields of its reply."""
        raise NotImplementedError

    def failed(self) -> None:
        """It could not be stored, or not be announced."""


class Listen:
    """A ``listen`` under way."""

    __slots__ = ("again", "client", "connection", "ended", "former", "id", "more", "reply")

    def __init__(
        self, client: str, connection: Connection, reply: Reply | None, number: Any, former: Binding | None
    ) -> None:
        self.client = client
        self.connection = connection
        self.reply = reply  # None: nobody asked, the endpoint repeats what it was told
        self.id = number
        self.former = former  # the client's binding to another connection of this endpoint, until now
        self.again = False  # it listened on this connection already
        self.ended: Ended | None = None  # of its subscriptions
        self.more: OfListen | None = None  # that hangs on it


class Announcement:
    """A batch of listens that the peers are being told of."""

    __slots__ = ("deadline", "error", "listens", "news", "open")

    def __init__(self, listens: list[Listen], deadline: float) -> None:
        self.listens = listens
        self.deadline = deadline
        self.news: list[tuple[str, int, str, bool]] = []  # (client, *location)
        self.open = 1
        self.error: ProtocolError | None = None
