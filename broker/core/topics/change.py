"""A client's change of its subscriptions, under way.

Owns: the record of a change, and what depends on it. Must never: act; ``subscribing`` and ``quota`` move it along.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ingeborg.protocol.errors import ProtocolError
from ingeborg.protocol.native import mypyc_attr

from ..connections.hub import Connection, Reply


@mypyc_attr(allow_interpreted_subclasses=True)
class OfChange:
    """The rest of a command that also changes subscriptions. It has the change replied to (``Subscribing.reply``)."""

    def succeeded(self, change: Change) -> None:
        """Continue with the rest of the command: the change has been written, and its reply waits.

        Args:
            change: The written change.
        """
        raise NotImplementedError

    def failed(self, change: Change) -> None:
        """Give up the rest of the command: the change failed, and its reply waits.

        Args:
            change: The failed change; its ``error`` says why.
        """
        raise NotImplementedError


class Change:
    """A ``subscribe`` or ``unsubscribe``: done when all its parts are."""

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
        self.term = term  # as ``Command.term``
        self.filter = filter
        self.replace = replace
        self.more: OfChange | None = None  # the rest of its command
        self.connection = connection
        self.reply = reply
        self.id = number
        self.open = 1  # requests and writes under way, plus one while the change is being split
        self.job: Iterator[bool] | None = None  # the job that splits a large change
        self.error: ProtocolError | None = None
        self.size = 0  # bytes that its connection holds for it
        self.counted = False  # later changes of its client wait until it has ended, and are counted then
