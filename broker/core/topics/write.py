"""A change of subscriptions, as its home handles it.

Owns: the record of one write, and all writes of one client at this home. Must never: act; ``writing`` does.
"""

from __future__ import annotations

import math
from collections import deque
from typing import Any

from ingeborg.protocol.errors import ProtocolError
from ingeborg.protocol.native import mypyc_attr

from ..links.link import Link
from ..model import Term


@mypyc_attr(allow_interpreted_subclasses=True)
class Writer:
    """A part that orders writes at this endpoint, and hears the result."""

    def written(self, write: Write, error: ProtocolError | None) -> None:
        """Note the result of the write.

        Args:
            write: The finished write.
            error: Why it failed; ``None`` if it was made.
        """

    def not_home(self, write: Write) -> None:
        """Send the write to its present home: this endpoint is not, or no longer, the home of its topics.

        Making it twice is harmless.

        Args:
            write: The refused write.
        """


class Write:
    """A home's part of a change."""

    __slots__ = (
        "added",
        "client",
        "context",
        "deadline",
        "filter",
        "link",
        "made_at",
        "number",
        "order",
        "peer",
        "replace",
        "round",
        "tell_at",
        "term",
        "took_s",
        "topics",
        "watched",
        "writer",
    )

    def __init__(
        self,
        client: str,
        topics: list[str],
        added: bool,
        now: float,
        deadline: float,
        term: Term | None = None,
        filter: str | None = None,
        replace: bool = False,
    ) -> None:
        self.client = client
        self.topics = topics
        self.added = added
        self.term = term
        self.filter = filter  # None: an addition is for all messages, a removal removes everything
        self.replace = replace
        #: Writes of the same order may overlap; "": it runs alone.
        self.order = "" if replace else "added" if added else "removed"
        #: Its topics with presence; once the home has looked, those that its client joins or leaves.
        self.watched: list[str] | None = None
        self.made_at = now
        self.took_s = math.inf  # from then to the store's answer
        self.deadline = deadline  # when the write is given up, if it could not begin
        # Gets the result: a part here, or the peer that sent it.
        self.writer: Writer | None = None
        self.context: Any = None  # for the writer
        self.peer = ""
        self.number = 0  # the peer's request
        self.tell_at = math.inf  # when the peer gets a notice that the write takes longer
        self.link: Link | None = None  # the peer's link that brought it, as it was then
        self.round = 0  # the membership round, when the store was called


class Writes:
    """One client's writes at this home.

    Writes that only add may overlap each other, and so may removals. All others wait, because the store keeps no order.
    A write to a topic with presence runs alone: the home first reads what the write will change."""

    __slots__ = ("begun_in_turns", "order", "under_way", "waiting")

    def __init__(self) -> None:
        self.order = ""  # the order that the writes under way share
        self.under_way = 0
        self.waiting: deque[Write] = deque()
        self.begun_in_turns = False  # a job begins the waiting writes
