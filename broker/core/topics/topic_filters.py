"""The filters of one topic at its home: their index, the changes that arrive while they are read, and the recipients of
the topic's first message.

Owns: the rule that changes confirmed during the read are applied after the filters that were read. Must never: read a
store.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final

from ..dispatch import Dispatch
from ..filters.index import Index
from .locations import Places

#: The largest number of filters to index, or changes to apply again, in one slice. This takes 1 to 2 ms.
PAIRS_PER_SLICE: Final = 200

#: The largest number of rows of the index to add in one slice. A filter has one row for each of its alternatives.
ROWS_PER_SLICE: Final = 250

Change = tuple[str, str | None, bool, bool]
"""A change: the client, the filter, whether it is added, and whether it replaces the client's other filters. With the
filter ``None``, the change removes all filters of the client. Such a change either adds a subscription without a filter
or removes all subscriptions."""


class Matched:
    """The clients whose filters match a message, without the plain subscribers. ``plain`` has the places of the plain
    subscribers when these places are known."""

    __slots__ = ("clients", "dispatch", "key", "plain", "plain_count")

    def __init__(self, dispatch: Dispatch, clients: list[str], key: bytes) -> None:
        self.dispatch = dispatch
        self.clients = clients
        self.key = key  # identifies this set of clients, until a filter changes
        self.plain: Places | None = None
        self.plain_count = 0


class TopicFilters:
    """The filters of one topic. ``loading`` is true until the endpoint has read all filters."""

    __slots__ = ("_changes", "counted", "index", "loading", "matched")

    def __init__(self, loading: bool = True) -> None:
        self.index = Index()
        self.loading = loading
        self._changes: deque[Change] = deque()  # changes confirmed during the read
        self.matched: Matched | None = None  # the recipients of the topic's first message
        self.counted = 0  # the bytes, as ``Routes`` has counted them

    def read(self, pairs: Sequence[tuple[str, str]], start: int) -> int:
        """Index a slice of these pairs of client and filter, beginning at ``start``. Return the end of the slice."""
        index = self.index
        most = index.rows + ROWS_PER_SLICE
        end = min(len(pairs), start + PAIRS_PER_SLICE)
        while start < end and index.rows < most:
            index.add(*pairs[start])
            start += 1
        return start

    def complete(self) -> bool:
        """Apply some of the changes confirmed during the read again, because the filters that were read may or may not
        include these changes.

        Return true if no change is left. Otherwise the caller must call this method again."""
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
        """Apply a confirmed change, and return the number of filters that were added or removed."""
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
