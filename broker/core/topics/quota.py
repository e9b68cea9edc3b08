"""Limits the number of a client's topics. It counts them in the store before a `subscribe` begins.

Owns: the changes that wait to be counted. Must never: count a change that a home has not written yet.

The changes of one client at this endpoint are counted one after the other. The count for a change begins only after the
previous change has been written. Two endpoints can count at the same time. A client that subscribes at both endpoints
can therefore exceed the limit, by the number of topics that are being added.
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
    """A quota on clients' topics.

    Args:
        desk: Calls the store.
        limit: The largest number of topics of one client.
        begin: Called with a permitted change and its topics.
        refuse: Called with a refused change and the error.
        sizes: The sizes of pages and queues.
    """

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
        # For each client, the change that is being counted or written, and then the changes that wait for it to end.
        self._rows: dict[str, deque[tuple[Change, Any]]] = {}

    def ask(self, change: Change, topics: Any) -> None:
        """Count the client's topics when the change's turn comes. Then begin the change if the client may have these
        additional topics, otherwise refuse it. The owner of the change must call ``ended`` for each ``counted``
        change."""
        row = self._rows.setdefault(change.client, deque())
        if len(row) >= self._sizes.counting_max:
            text = "Too many changes of this client are waiting; retry later"
            self._refuse(change, ProtocolError("store_unavailable", text))
            return
        change.counted = True
        row.append((change, topics))
        if len(row) == 1:
            self._count(change, topics)

    def ended(self, change: Change) -> None:
        """Count the client's next change, because this change was written or refused."""
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
        """Collect the distinct topics of a long list, slice by slice. Refuse the change if they exceed the limit."""
        new: set[str] = set()
        for part in topics.slices():
            new.update(part)
            if len(new) > self._limit:
                self._refuse_more(change)
                return
            yield False
        self._read((change, topics, new, 0), None)

    def _refuse_more(self, change: Change) -> None:
        text = f"A client may have at most {self._limit} topics; unsubscribe from some first"
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
