"""How many topics a client may have, where that is limited: counted in the store before a `subscribe` begins.

Owns: the changes that wait to be counted. Must never: count what a home has not written yet.

Changes of one client at this endpoint are counted one after the other, each once the one before has been written. Two
endpoints may count at once, so a client that subscribes at both can pass the limit by what is under way.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from protocol.errors import ProtocolError
from protocol.messages import PAGE_LIMIT_MAX

from .large import Topics

if TYPE_CHECKING:
    from .router import Router
    from .subscribing import Change, Subscribing


#: Changes of one client that may wait, on all its connections together; more are refused.
WAITING_MAX = 1_000


class Quota:
    """The limit is ``router.limits.subscriptions``."""

    def __init__(self, router: Router, subscribing: Subscribing) -> None:
        self._router = router
        self._subscribing = subscribing
        # By client: the one being counted or written, and those behind it.
        self._rows: dict[str, deque[tuple[Change, Any]]] = {}

    def ask(self, change: Change, topics: Any) -> None:
        """Begin the change when it is its turn, if its client may have these topics, too."""
        row = self._rows.setdefault(change.client, deque())
        if len(row) >= WAITING_MAX:
            text = "Too many changes of this client wait for others"
            self._subscribing.refuse(change, ProtocolError("store_unavailable", text))
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
            self._router.jobs.append(self._collect(change, topics))
        else:
            self._read((change, topics, set(topics), 0), None)

    def _collect(self, change: Change, topics: Topics) -> Iterator[bool]:
        """The different ones of a long list, slice by slice; more than a client may have are refused as they are."""
        new: set[str] = set()
        for part in topics.slices():
            new.update(part)
            if len(new) > self._router.limits.subscriptions:
                self._refuse(change)
                return
            yield False
        self._read((change, topics, new, 0), None)

    def _refuse(self, change: Change) -> None:
        text = f"A client may have {self._router.limits.subscriptions} topics; unsubscribe from some first"
        self._subscribing.refuse(change, ProtocolError("too_many_topics", text))

    def _read(self, context: Any, cursor: str | None) -> None:
        self._router.store("topics", (context[0].client, cursor, PAGE_LIMIT_MAX), self._page, context)

    def _page(self, context: Any, result: Any, error: Exception | None) -> None:
        change, topics, new, count = context
        limit = self._router.limits.subscriptions
        if error is not None:
            self._subscribing.refuse(change, ProtocolError("store_unavailable", str(error) or repr(error)))
            return
        page, cursor = result
        new.difference_update(page)
        count += len(page)
        if cursor is not None and new and count <= limit:
            self._read((change, topics, new, count), cursor)
        elif new and count + len(new) > limit:
            self._refuse(change)
        else:
            self._subscribing.begin(change, topics)
