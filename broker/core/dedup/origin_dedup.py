"""Payloads that their home, another endpoint, has said to know: the next ones are dropped at their origin. ADR 10.

Owns: which those are, and which of them the homes have to hear of. Must never: hold for known what no home confirmed.

Of the same news, reported by many at once, each origin sends its topic's home the first report, and not all of them. A
drop extends the payload's time-to-live (SPEC section 7), which is the home's to keep: it is told which payloads were
seen again, all of them together, long before the first of them could be over there.
"""

from __future__ import annotations

from itertools import islice
from typing import Final

from ..limits import SIZES, Sizes
from .dedup import Dedup
from .own_keys import is_own

#: A payload is taken for known for so long after it was last seen here; half the time-to-live, if that is less.
KNOWN_S: Final = 10.0

#: Homes are told so many times in that.
TELLS: Final = 10

#: Payloads known at most; 11 MB.
KEYS_MAX: Final = 100_000

#: With a shorter time-to-live than this, in seconds, a home might not be told in time, and is asked every time.
TTL_S_MIN: Final = 4.0


class OriginDedup:
    """One origin's. ``ttl_s``: of the payloads at their homes."""

    def __init__(self, ttl_s: float, sizes: Sizes = SIZES) -> None:
        self._ttl_s = ttl_s
        self._again_max = sizes.again_max
        self._known: Dedup[None] = Dedup(min(KNOWN_S, ttl_s / 2) if ttl_s >= TTL_S_MIN else 0.0, KEYS_MAX)
        self._again: dict[int, float] = {}  # seen again since the homes were told: when last
        self._tell_at = 0.0

    def __len__(self) -> int:
        return len(self._known)

    def known(self, key: int, now: float) -> bool:
        """Does its home know the payload for sure? Being asked is a sighting, and a yes a drop."""
        if len(self._again) >= self._again_max and key not in self._again:
            return False
        if not self._known.duplicate(key, now):
            return False
        self._again[key] = now
        return True

    def learn(self, key: int, now: float) -> None:
        """The home has answered: it knows the payload. A message with a key of its own is repeated by a retry only, and
        would take the place of news."""
        if not is_own(key):
            self._known.add(key, now)

    def to_tell(self, now: float, keys_max: int) -> list[tuple[int, float]]:
        """What the homes have to hear of now: keys, and what is left of their time in seconds. Call every 100 ms."""
        self._known.expire(now, keys_max)
        if now < self._tell_at or not self._again:
            return []
        told = list(islice(self._again, keys_max))
        if len(told) == len(self._again):
            self._tell_at = now + self._known.ttl_s / TELLS
        return [(key, self._again.pop(key) + self._ttl_s - now) for key in told]
