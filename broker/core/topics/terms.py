"""When subscriptions end that are made now, and which slots have been given such by this endpoint.

Owns: these two. Must never: end a subscription (``expiry`` does).
"""

from __future__ import annotations

from collections.abc import Iterable

from ingeborg.protocol.hashes import slot_of

from ..cluster.membership import Membership
from ..desk import Desk
from ..model import Term


class Terms:
    """One endpoint's."""

    def __init__(self, desk: Desk, members: Membership) -> None:
        self._desk = desk
        self._members = members
        #: Slots that this endpoint has written a term into since ``Expiry`` looked last.
        self.written: set[int] = set()

    @property
    def grace_s(self) -> float:
        """How long those until disconnect stay when their client has gone, as it is told: 60, and not 60.0."""
        grace_s = self._members.grace_s
        return int(grace_s) if grace_s == int(grace_s) else grace_s

    def term(self, disconnect: bool, ttl_s: int) -> Term:
        """When a subscription ends that is made now. ``ttl_s``: 0: not by time."""
        return Term(disconnect, self._desk.unix_s + ttl_s if ttl_s else 0.0)

    def wrote(self, topics: Iterable[str]) -> None:
        """Subscriptions with a term to these topics have been written, or may have been."""
        self.written.update(map(slot_of, topics))
