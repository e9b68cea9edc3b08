"""How many topics a client may have, where that is limited: counted in the store before a `subscribe` begins.

Owns: the changes that wait to be counted. Must never: count what a home has not written yet.

Changes of one client at this endpoint are counted one after the other, each once the one before has been written. Two
endpoints may count at once, so a client that subscribes at both can pass the limit by what is under way.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from ingeborg.protocol.errors import ProtocolError

from ..connections.large import Topics
from ..desk import Desk
from ..limits import SIZES, Sizes
from ..stores import unavailable
from .change import Change


class Quota:
    """``limit``: topics of one client. ``begin`` is told of a change that is permitted, and of its topics; ``refuse``
    of one that is not, and why."""

    def __init__(
        self,
        desk: Desk,
        limit: int,
        begin: Callable[[Change, Any], None],
        refuse: Callable[[Change, ProtocolError], None],
        sizes: Sizes = SIZES,
    ) -> None:
        self._sizes = sizes
        self._desk = desk
        self._limit = limit
        self._begin = begin
        self._refuse = refuse
        # By client: the one being counted or written, and those behind it.
        self._rows: dict[str, deque[tuple[Change, Any]]] = {}

    def ask(self, change: Change, topics: Any) -> None:
        """Begin the change when it is its turn, if its client may have these topics as well. Whoever is told of its
        beginning or of its refusal says when it has ``ended``, if it is ``counted``."""
        row = self._rows.setdefault(change.client, deque())
        if len(row) >= self._sizes.counting_max:
            text = "Too many changes of this client wait for others"
            self._refuse(change, ProtocolError("store_unavailable", text))
            return
        change.counted = True
        row.append((change, topics))
        if len(row) == 1:
            self._count(change, topics)

    def ended(self, change: Change) -> None:
        """It is written, or was refused: the next one."""
        row = self._rows[change.client]
        row.popleft()
        if row:
            self._count(*row[0])
        else:
            del self._rows[change.client]

    def _count(self, change: Change, topics: Any) -> None:
        if isinstance(topics, Topics):
            self._desk.job(self._collect(change, topics))
        else:
            self._read((change, topics, set(topics), 0), None)

    def _collect(self, change: Change, topics: Topics) -> Iterator[bool]:
        """The different ones of a long list, slice by slice; more than a client may have are refused as they are."""
        new: set[str] = set()
        for part in topics.slices():
            new.update(part)
            if len(new) > self._limit:
                self._refuse_more(change)
                return
            yield False
        self._read((change, topics, new, 0), None)

    def _refuse_more(self, change: Change) -> None:
        text = f"A client may have {self._limit} topics; unsubscribe from some first"
        self._refuse(change, ProtocolError("too_many_topics", text))

    def _read(self, context: Any, cursor: str | None) -> None:
        self._desk.store("topics", (context[0].client, cursor, self._sizes.page_max), self._page, context)

    def _page(self, context: Any, result: Any, error: Exception | None) -> None:
        change, topics, new, count = context
        if error is not None:
            self._refuse(change, unavailable(error))
            return
        page, cursor = result
        new.difference_update(page)
        count += len(page)
        if cursor is not None and new and count <= self._limit:
            self._read((change, topics, new, count), cursor)
        elif new and count + len(new) > self._limit:
            self._refuse_more(change)
        else:
            self._begin(change, topics)
