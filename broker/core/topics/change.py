"""A client's change of its subscriptions, under way.

Owns: what is known of it, and what else may hang on it. Must never: act; ``subscribing`` and ``quota`` move it along.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ingeborg.protocol.errors import ProtocolError
from ingeborg.protocol.native import mypyc_attr

from ..connections.hub import Connection, Reply


@mypyc_attr(allow_interpreted_subclasses=True)
class OfChange:
    """What else a command asks for with its change. It has the change replied to (``Subscribing.reply``)."""

    def succeeded(self, change: Change) -> None:
        """The change has been written, and its reply waits."""
        raise NotImplementedError

    def failed(self, change: Change) -> None:
        """It has not: ``change.error`` says why. Its reply waits."""
        raise NotImplementedError


class Change:
    """A ``subscribe`` or ``unsubscribe``: done when every part of it is."""

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
        self.more: OfChange | None = None  # that hangs on it
        self.connection = connection
        self.reply = reply
        self.id = number
        self.open = 1  # requests and writes under way, and one for the cutting itself
        self.job: Iterator[bool] | None = None  # the cutting of a large one
        self.error: ProtocolError | None = None
        self.size = 0  # bytes that its connection holds for it
        self.counted = False  # others of its client wait until it has ended, to be counted, too
