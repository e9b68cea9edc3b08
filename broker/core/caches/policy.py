"""The interface of a policy: a cache asks its policy whether to admit an entry, and which entry to evict.

Owns: the entry, and the interface. Must never: know the size of the cache (`cache.py` does).
"""

from __future__ import annotations

from typing import Any

from ingeborg.protocol.native import mypyc_attr


class Entry:
    """An entry in a cache, or a candidate. ``size``: in bytes. ``utility``: the number of subscribers that have yet to
    read it.

    The other attributes belong to the policy that admitted the entry, so that a policy needs no separate table. They
    are the entry's neighbours in a row, a number whose meaning the policy chooses, the entry's worth, and a count. If
    two entries have the same worth, the count says which entry got it first.
    """

    __slots__ = ("key", "mark", "newer", "older", "since", "size", "utility", "worth")

    def __init__(self, key: Any, size: int, utility: int) -> None:
        self.key = key
        self.size = size
        self.utility = utility
        self.newer: Entry | None = None
        self.older: Entry | None = None
        self.mark = 0
        self.worth = 0.0
        self.since = 0


@mypyc_attr(allow_interpreted_subclasses=True)
class Policy:
    """Chooses the entries that stay. An entry is in the cache from the time ``admit`` returns True for it until it
    becomes a ``victim`` or the cache forgets it. Only in that time can the cache call ``used`` or ``forget`` for it."""

    def admit(self, entry: Entry) -> bool:
        """Return whether the cache accepts the entry. If it does, the entry is in the cache from now on."""
        raise NotImplementedError

    def used(self, entry: Entry) -> None:
        """Record a use of the entry."""
        raise NotImplementedError

    def victim(self) -> Entry:
        """Evict an entry and return it. The cache has at least one entry. The victim can be the newest entry, which was
        just admitted."""
        raise NotImplementedError

    def forget(self, entry: Entry) -> None:
        """Forget an entry that was removed for a reason other than a lack of room."""
        raise NotImplementedError
