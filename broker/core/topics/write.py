"""A change of subscriptions as its home has it.

Owns: what is known of one, and of all that one client has under way at this home. Must never: act; ``writing`` does.
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
    """Who has a write made at this endpoint, and is told what comes of it."""

    def written(self, write: Write, error: ProtocolError | None) -> None:
        """It has been made, or could not be."""

    def not_home(self, write: Write) -> None:
        """This endpoint is not the home of its topics, or not any more. To make it twice is harmless."""


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
        self.filter = filter  # None: an addition is for all messages, a removal takes out everything
        self.replace = replace
        #: Writes of the same order may overlap; "": it runs alone.
        self.order = "" if replace else "added" if added else "removed"
        #: Its topics that have presence; once the home has looked, those that its client joins or leaves.
        self.watched: list[str] | None = None
        self.made_at = now
        self.took_s = math.inf  # from then to the answer of the store
        self.deadline = deadline  # when it is given up, if it cannot be begun
        # Who is told of it: somebody here, or the peer that it came from.
        self.writer: Writer | None = None
        self.context: Any = None  # the writer's
        self.peer = ""
        self.number = 0  # of the peer's request
        self.tell_at = math.inf  # when the peer is told that it takes longer
        self.link: Link | None = None  # the life of the peer's link that it came over
        self.round = 0  # of membership, when the store was called


class Writes:
    """One client's writes at this home. Writes that only add may overlap each other, and so may removals. All others
    wait, because the store keeps no order. A write to a topic with presence runs alone: the home first reads what the
    write will change."""

    __slots__ = ("begun_in_turns", "order", "under_way", "waiting")

    def __init__(self) -> None:
        self.order = ""  # of those under way
        self.under_way = 0
        self.waiting: deque[Write] = deque()
        self.begun_in_turns = False  # a job begins what waits
