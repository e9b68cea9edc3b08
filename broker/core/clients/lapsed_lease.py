"""Finds clients that have lost subscriptions because the other endpoints considered this endpoint dead, although the
clients stayed connected here.

Owns: the latest time at which the others considered this endpoint alive. Must never: end a subscription.

The other endpoints assume that the clients of a dead endpoint listen nowhere. If the endpoint counts as dead for the
grace time, its clients lose their subscriptions that end at disconnect, although they stayed connected. When this
endpoint joins again, it closes the connections of these clients. The reply to a client's next ``listen`` says which of
its subscriptions have ended.
"""

from __future__ import annotations

from typing import Any

from ingeborg.protocol.errors import SUBSCRIPTIONS_ENDED

from ..cluster.homes import Homes
from ..cluster.membership import Membership
from ..connections.hub import Hub
from ..desk import Desk
from ..outgoing.sending import Sending
from ..part import Part
from ..topics.expiry import KEPT_S
from .stale_locations import PER_QUESTION


class LapsedLease(Part):
    """Finds these clients at one endpoint when it joins again. ``members``: the source of the grace time. ``homes``:
    tells whether this endpoint acts as a home."""

    def __init__(self, desk: Desk, homes: Homes, members: Membership, hub: Hub, sending: Sending) -> None:
        self._desk = desk
        self._homes = homes
        self._hub = hub
        self._sending = sending
        self._members = members
        # The grace time that applied while the others considered this endpoint alive. Without this endpoint, the others
        # use the same grace time or a longer grace time.
        self._grace_s = members.grace_s
        self._acted_at = desk.now  # the others considered this endpoint alive at least until this time

    def tick(self) -> None:
        """If this endpoint has joined, note the time, because the others consider it alive."""
        if self._homes.joined:
            self._acted_at = self._desk.now
            self._grace_s = self._members.grace_s

    def joined(self) -> None:
        """Check the clients, because the others consider this endpoint alive again."""
        # The others have measured the clients' absence only since they declared this endpoint dead, which was later
        # than ``_acted_at``.
        alone_s = self._desk.now - self._acted_at
        grace_s = min(self._grace_s, self._members.grace_s)
        if alone_s < grace_s:
            return
        clients = list(self._hub.bindings)
        if alone_s >= grace_s + KEPT_S:
            self._close(clients)  # the store may no longer remember which subscriptions ended
            return
        for start in range(0, len(clients), PER_QUESTION):
            part = clients[start : start + PER_QUESTION]
            self._desk.store("ended", (part,), self._told, part)

    def _told(self, clients: list[str], result: Any, error: Exception | None) -> None:
        if error is not None:
            self._desk.counts["stale_mappings_left"] += len(clients)
            return
        self._close([client for client, ended in zip(clients, result, strict=True) if ended is not None])

    def _close(self, clients: list[str]) -> None:
        for client in clients:
            binding = self._hub.bindings.get(client)
            if binding is not None and binding.connection.ends_at is None:
                self._sending.close(binding.connection, SUBSCRIPTIONS_ENDED)
