"""A change of subscriptions at the home of its topics.

Owns: the record of one write, and the record of all writes of one client at this home. Must never: act. ``writing``
does this.
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
    """A part that requests writes at this endpoint and gets the results."""

    def written(self, write: Write, error: ProtocolError | None) -> None:
        """Handle the result of the write.

        Args:
            write: The finished write.
            error: The reason why it failed, or ``None`` if it succeeded.
        """

    def not_home(self, write: Write) -> None:
        """Send the write to the present home of its topics, because this endpoint is not or is no longer their home.

        A second execution of the same write is harmless.

        Args:
            write: The refused write.
        """


class Write:
    """The part of a change that one home carries out."""

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
        self.filter = filter  # None if it adds a subscription without a filter, or removes all subscriptions
        self.replace = replace
        #: Writes of a client with the same order may overlap. A write with the order "" runs alone.
        self.order = "" if replace else "added" if added else "removed"
        #: The write's topics with presence. As soon as the home has read the client's subscriptions, this list has only
        #: those topics that the client joins or leaves.
        self.watched: list[str] | None = None
        self.made_at = now
        self.took_s = math.inf  # the time from ``made_at`` to the store's answer
        self.deadline = deadline  # the latest time to begin the write; after it, the home gives the write up
        # The result goes to a part here, or to the peer that sent the write.
        self.writer: Writer | None = None
        self.context: Any = None  # an object that the writer gets back
        self.peer = ""
        self.number = 0  # the number of the peer's request
        self.tell_at = math.inf  # when to notify the peer that the write takes longer
        self.link: Link | None = None  # the link over which the peer sent it
        self.round = 0  # the membership round when the write began


class Writes:
    """The writes of one client at this home.

    Writes that only add may overlap each other, and so may removals. All other writes wait, because the store does not
    keep the order of calls. A write to a topic with presence runs alone, because the home first reads the subscriptions
    that the write will change."""

    __slots__ = ("begun_in_turns", "order", "under_way", "waiting")

    def __init__(self) -> None:
        self.order = ""  # the ``Write.order`` of the writes in progress
        self.under_way = 0
        self.waiting: deque[Write] = deque()
        self.begun_in_turns = False  # whether a job is beginning the waiting writes
