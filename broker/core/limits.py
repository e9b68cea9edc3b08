"""What one endpoint may hold: every bound that its operator may set.

Owns: the names and defaults of these bounds. Must never: hold a bound that is a part's own (it stands in that part).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """What an endpoint may hold. Every one is a bound on memory; docs/limits.md has the reasons and the bytes."""

    payload_bytes: int = 1 << 20
    outbox_bytes: int = 16 << 20
    drop_oldest: bool = False  # of a full outbox, instead of closing its connection
    routes_topics: int = 50_000
    routes_ids: int = 2_000_000
    locations_clients: int = 500_000
    dedup_keys: int = 1_000_000
    inflight_messages: int = 20_000
    inflight_bytes: int = 64 << 20
    commands_per_s: int = 0  # of one connection; 0: any number
    subscriptions: int = 0  # of one client; 0: any number
    large_bytes: int = 64 << 10  # a longer frame is read away from the loop, which it would keep for 6 ms or more
    held_bytes: int = 1 << 62  # of all connections together
