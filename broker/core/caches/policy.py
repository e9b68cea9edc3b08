"""What a cache asks a policy: may this come in, and what goes.

Owns: the entry, and the questions. Must never: know how much room there is; the cache does (`cache.py`).
"""

from __future__ import annotations

from typing import Any

from ingeborg.protocol.native import mypyc_attr


class Entry:
    """Something that is or may come to be in memory. ``size``: in bytes. ``utility``: how many subscribers have not had
    it.

    The rest belongs to the policy that has admitted it, so that a policy needs no table of its own: the entry's
    neighbours in a row, a number whose meaning is the policy's, what it is worth, and since when, by a count.
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
    """Which entries stay. An entry is in from an ``admit`` that says so until it is a ``victim`` or is to be forgotten,
    and only meanwhile may it be ``used`` or forgotten."""

    def admit(self, entry: Entry) -> bool:
        """It wants to come in. True: it is in."""
        raise NotImplementedError

    def used(self, entry: Entry) -> None:
        """It was asked for."""
        raise NotImplementedError

    def victim(self) -> Entry:
        """The entry that goes now; there is one. It may be the newest one, which has just come in."""
        raise NotImplementedError

    def forget(self, entry: Entry) -> None:
        """It went for another reason than want of room."""
        raise NotImplementedError
