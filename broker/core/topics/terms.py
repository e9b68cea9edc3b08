"""The terms of new subscriptions, and the slots into which this endpoint has written some.

Owns: these two. Must never: end a subscription (``expiry`` does).
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
        #: Slots into which this endpoint has written a term since ``Expiry`` last looked.
        self.written: set[int] = set()

    @property
    def grace_s(self) -> float:
        """How long subscriptions until disconnect outlast their client, as clients see it: 60 instead of 60.0."""
        grace_s = self._members.grace_s
        return int(grace_s) if grace_s == int(grace_s) else grace_s

    def term(self, disconnect: bool, ttl_s: int) -> Term:
        """When a subscription made now ends. ``ttl_s``: in seconds; 0: no time limit."""
        return Term(disconnect, self._desk.unix_s + ttl_s if ttl_s else 0.0)

    def wrote(self, topics: Iterable[str]) -> None:
        """Note that subscriptions with a term to these topics have been written, or may have been."""
        self.written.update(map(slot_of, topics))
