"""Records of a `listen` in progress, and of a batch of listens that the endpoint is announcing to the peers.

Owns: these records, and the hook for anything that a command requests together with its `listen`. Must never: act
(``listening`` does).
"""

from __future__ import annotations

from typing import Any

from ingeborg.protocol.errors import ProtocolError
from ingeborg.protocol.native import mypyc_attr

from ..connections.hub import Binding, Connection, Reply
from ..model import Ended


@mypyc_attr(allow_interpreted_subclasses=True)
class OfListen:
    """Something that a command requests together with its ``listen``, such as bounds."""

    def succeeded(self) -> dict[str, Any]:
        """Handle the success of the ``listen``.

        Returns:
            Additional fields for the reply, indexed by name.
        """
        raise NotImplementedError

    def failed(self) -> None:
        """Handle the failure of the ``listen``: the store or a peer could not record it."""


class Listen:
    """A ``listen`` in progress."""

    __slots__ = ("again", "client", "connection", "ended", "former", "id", "more", "reply")

    def __init__(
        self, client: str, connection: Connection, reply: Reply | None, number: Any, former: Binding | None
    ) -> None:
        self.client = client
        self.connection = connection
        self.reply = reply  # None if the endpoint itself repeats an earlier listen
        self.id = number
        self.former = former  # the client's previous binding, if it was to another connection here
        self.again = False  # the client was listening on this connection already
        self.ended: Ended | None = None  # the client's subscriptions that have ended
        self.more: OfListen | None = None  # what the command requests in addition to the listen


class Announcement:
    """A batch of listens on its way to the peers."""

    __slots__ = ("deadline", "error", "listens", "news", "open")

    def __init__(self, listens: list[Listen], deadline: float) -> None:
        self.listens = listens
        self.deadline = deadline
        self.news: list[tuple[str, int, str, bool]] = []  # (client, *location)
        self.open = 1
        self.error: ProtocolError | None = None
