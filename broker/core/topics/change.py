"""A change of a client's subscriptions, until it is complete.

Owns: the record of a change, and the interface for commands that continue after a change. Must never: act.
``subscribing`` and ``quota`` handle the changes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ingeborg.protocol.errors import ProtocolError
from ingeborg.protocol.native import mypyc_attr

from ..connections.hub import Connection, Reply


@mypyc_attr(allow_interpreted_subclasses=True)
class OfChange:
    """The rest of a command that does more than change subscriptions. At its end it must call ``Subscribing.reply`` for
    the change."""

    def succeeded(self, change: Change) -> None:
        """Continue with the rest of the command, after the change has been written. Its reply has not been sent yet.

        Args:
            change: The written change.
        """
        raise NotImplementedError

    def failed(self, change: Change) -> None:
        """Give up the rest of the command, because the change has failed. Its reply has not been sent yet.

        Args:
            change: The failed change. Its ``error`` gives the reason.
        """
        raise NotImplementedError


class Change:
    """A ``subscribe`` or ``unsubscribe`` in progress. It is done when all its parts are done."""

    __slots__ = (
        "added",
        "client",
        "connection",
        "counted",
        "error",
        "filter",
        "id",
        "job",
        "more",
        "open",
        "replace",
        "reply",
        "size",
        "term",
    )

    def __init__(
        self,
        client: str,
        added: bool,
        connection: Connection,
        reply: Reply,
        number: Any,
        term: tuple[bool, int] | None = None,
        filter: str | None = None,
        replace: bool = False,
    ) -> None:
        self.client = client
        self.added = added
        self.term = term  # the same as ``Command.term``
        self.filter = filter
        self.replace = replace
        self.more: OfChange | None = None  # the rest of its command, to be carried out after the change
        self.connection = connection
        self.reply = reply
        self.id = number
        self.open = 1  # the number of requests and writes in progress, plus one while the change is split
        self.job: Iterator[bool] | None = None  # the job that splits a large change
        self.error: ProtocolError | None = None
        self.size = 0  # the bytes that its connection holds for this change
        self.counted = False  # whether ``Quota`` counts it; if so, the client's later changes wait for its end
