"""The filters of one topic at its home: their index, what changes while they are being read, and whom the topic's first
message is for.

Owns: the order of what was read and what was confirmed meanwhile. Must never: read a store.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final

from ..dispatch import Dispatch
from ..filters.index import Index
from .locations import Places

#: Filters that are put into an index, or changes that are made again, in one slice: 1 to 2 ms.
PAIRS_PER_SLICE: Final = 200

#: A filter with many alternatives stands in the index as often; so often all of a slice together.
ROWS_PER_SLICE: Final = 250

Change = tuple[str, str | None, bool, bool]
"""The client; its filter; is it added?; does it replace the client's others? A filter of ``None`` removes all of the
client's filters, whether it adds a subscription without one or removes everything."""


class Matched:
    """Whom a message is for by its filters, beside the plain subscribers, and where these are once that is known."""

    __slots__ = ("clients", "dispatch", "key", "plain", "plain_count")

    def __init__(self, dispatch: Dispatch, clients: list[str], key: bytes) -> None:
        self.dispatch = dispatch
        self.clients = clients
        self.key = key  # the same for the same clients, as long as nothing has changed
        self.plain: Places | None = None
        self.plain_count = 0


class TopicFilters:
    """``loading``: they have not all been read yet."""

    __slots__ = ("_changes", "counted", "index", "loading", "matched")

    def __init__(self, loading: bool = True) -> None:
        self.index = Index()
        self.loading = loading
        self._changes: deque[Change] = deque()  # confirmed while they were being read
        self.matched: Matched | None = None  # of the topic's first message
        self.counted = 0  # bytes, as the owner of the route has counted them

    def read(self, pairs: Sequence[tuple[str, str]], start: int) -> int:
        """These clients have these filters, as the store says. From ``start`` on a slice of them; returns how far."""
        index = self.index
        most = index.rows + ROWS_PER_SLICE
        end = min(len(pairs), start + PAIRS_PER_SLICE)
        while start < end and index.rows < most:
            index.add(*pairs[start])
            start += 1
        return start

    def complete(self) -> bool:
        """All have been read. What was confirmed meanwhile may or may not have been in it, so some of it is done again.
        True: it is all done; else this is to be called again."""
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
        """It has been confirmed. How many filters were put in or taken out."""
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
