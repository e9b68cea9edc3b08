"""The filters of one topic at its home: their index, changes during the read, and the first message's recipients.

Owns: the order of filters read and changes confirmed meanwhile. Must never: read a store.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final

from ..dispatch import Dispatch
from ..filters.index import Index
from .locations import Places

#: Filters indexed, or changes applied again, in one slice: 1 to 2 ms.
PAIRS_PER_SLICE: Final = 200

#: Rows indexed in one slice. A filter with many alternatives takes one row for each.
ROWS_PER_SLICE: Final = 250

Change = tuple[str, str | None, bool, bool]
"""The client; its filter; is it added?; does it replace the client's others? A filter of ``None`` removes all filters
of the client, both when it adds a subscription without one and when it removes everything."""


class Matched:
    """The recipients of a message by its filters, in addition to plain subscribers, and where these are once known."""

    __slots__ = ("clients", "dispatch", "key", "plain", "plain_count")

    def __init__(self, dispatch: Dispatch, clients: list[str], key: bytes) -> None:
        self.dispatch = dispatch
        self.clients = clients
        self.key = key  # the same key for the same clients, until a filter changes
        self.plain: Places | None = None
        self.plain_count = 0


class TopicFilters:
    """The filters of one topic. ``loading``: the endpoint has not read all of them yet."""

    __slots__ = ("_changes", "counted", "index", "loading", "matched")

    def __init__(self, loading: bool = True) -> None:
        self.index = Index()
        self.loading = loading
        self._changes: deque[Change] = deque()  # confirmed during the read
        self.matched: Matched | None = None  # for the topic's first message
        self.counted = 0  # bytes, as counted by the route's owner

    def read(self, pairs: Sequence[tuple[str, str]], start: int) -> int:
        """Index a slice of these pairs of client and filter, from ``start`` on. Return where the slice ends."""
        index = self.index
        most = index.rows + ROWS_PER_SLICE
        end = min(len(pairs), start + PAIRS_PER_SLICE)
        while start < end and index.rows < most:
            index.add(*pairs[start])
            start += 1
        return start

    def complete(self) -> bool:
        """Apply some of the changes confirmed during the read again, since it may or may not include them.

        Return True if none is left; otherwise call again."""
        before = self.index.rows
        for _ in range(PAIRS_PER_SLICE):
            if not self._changes:
                self.loading = False
                return True
            if abs(self.index.rows - before) >= ROWS_PER_SLICE:
                break
            self._make(self._changes.popleft())
        return False

    def change(self, change: Change) -> int:
        """Apply a confirmed change. Return how many filters were added or removed."""
        if self.loading:
            self._changes.append(change)
            return 0
        return self._make(change)

    def _make(self, change: Change) -> int:
        client, text, added, replace = change
        changed = 0
        if text is None or replace:
            changed += self.index.remove_all(client)
        if text is not None and added:
            changed += self.index.add(client, text)
        elif text is not None:
            changed += self.index.remove(client, text)
        return changed
