"""The terms of new subscriptions, and the slots into which this endpoint has written terms.

Owns: these terms and slots. Must never: end a subscription (``expiry`` does this).
"""

from __future__ import annotations

from collections.abc import Iterable

from ingeborg.protocol.hashes import slot_of

from ..cluster.membership import Membership
from ..desk import Desk
from ..model import Term


class Terms:
    """One endpoint's terms."""

    def __init__(self, desk: Desk, members: Membership) -> None:
        self._desk = desk
        self._members = members
        #: Slots into which this endpoint has written terms since ``Expiry`` last emptied this set.
        self.written: set[int] = set()

    @property
    def grace_s(self) -> float:
        """The grace time for replies to clients, in seconds. If it is a whole number, it is an ``int``: 60, not
        60.0."""
        grace_s = self._members.grace_s
        return int(grace_s) if grace_s == int(grace_s) else grace_s

    def term(self, disconnect: bool, ttl_s: int) -> Term:
        """Return the term of a subscription made now. ``ttl_s`` is its duration in seconds, or 0 for no time limit."""
        return Term(disconnect, self._desk.unix_s + ttl_s if ttl_s else 0.0)

    def wrote(self, topics: Iterable[str]) -> None:
        """Record that subscriptions with a term to these topics have been written, or may have been written."""
        self.written.update(map(slot_of, topics))
