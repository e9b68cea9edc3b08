"""Drops a payload at its origin if the topic's home, which is another endpoint, already knows the payload. ADR 10.

Owns: the known payloads, and the sightings to report to their homes. Must never: treat a payload as known unless a home
has confirmed it.

When many clients publish the same payload at the same time, each origin sends only the first message to the topic's
home. Every duplicate must extend the payload's time-to-live (SPEC section 7), which is kept at the home. So the origin
reports in batches which payloads it has dropped, long before the first of these could expire at the home.
"""

from __future__ import annotations

from itertools import islice
from typing import Final

from ..limits import SIZES, Sizes
from .dedup import Dedup
from .own_keys import is_own

#: A payload counts as known at an origin for this many seconds after its last sighting there, or for half the
#: time-to-live if that is shorter.
KNOWN_S: Final = 10.0

#: Number of reports to the homes in the time for which a payload counts as known.
TELLS: Final = 10

#: Maximum number of known payloads, which take 11 MB.
KEYS_MAX: Final = 100_000

#: With a shorter time-to-live than this, in seconds, a report might reach the home too late. So the origin then sends
#: every message to the home.
TTL_S_MIN: Final = 4.0


class OriginDedup:
    """One origin's known payloads. ``ttl_s``: the time-to-live of payloads at their homes."""

    def __init__(self, ttl_s: float, sizes: Sizes = SIZES) -> None:
        self._ttl_s = ttl_s
        self._again_max = sizes.again_max
        self._known: Dedup[None] = Dedup(min(KNOWN_S, ttl_s / 2) if ttl_s >= TTL_S_MIN else 0.0, KEYS_MAX)
        self._again: dict[bytes, float] = {}  # payload seen again since the last report -> time of its last sighting
        self._tell_at = 0.0

    def __len__(self) -> int:
        return len(self._known)

    def known(self, key: bytes, now: float) -> bool:
        """Return whether the home certainly knows the payload. Each call counts as a sighting; if the result is true,
        the caller drops the message."""
        if len(self._again) >= self._again_max and key not in self._again:
            return False
        if not self._known.duplicate(key, now):
            return False
        self._again[key] = now
        return True

    def learn(self, key: bytes, now: float) -> None:
        """Record the home's answer that it knows the payload. Skip messages with a publisher's own key: only retries
        repeat such messages, and their keys would displace other payloads."""
        if not is_own(key):
            self._known.add(key, now)

    def to_tell(self, now: float, keys_max: int) -> list[tuple[bytes, float]]:
        """Return the keys to report to the homes now, with their remaining times in seconds. Call this every 100 ms."""
        self._known.expire(now, keys_max)
        if now < self._tell_at or not self._again:
            return []
        told = list(islice(self._again, keys_max))
        if len(told) == len(self._again):
            self._tell_at = now + self._known.ttl_s / TELLS
        return [(key, self._again.pop(key) + self._ttl_s - now) for key in told]
