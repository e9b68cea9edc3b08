"""Which payloads were published lately. SPEC section 7, design section 3 (Duplicates).

Owns: the table of hashes with their expiry, and those whose message is still being handed over. Must never: hash, read
a clock, or know what becomes of a message.

A key is the topic's slot (2 bytes) and the 16-byte hash, so that a slot's keys can be found when its home changes.
"""

from __future__ import annotations

from collections import OrderedDict
from hashlib import blake2b
from typing import Generic, TypeVar

Waiter = TypeVar("Waiter")

#: Duplicates of one pending message that may wait for its outcome; more than that is a flood, and refused.
WAITERS_MAX = 10_000


def identity(slot: int, topic: str, payload: bytes) -> bytes:
    """The key of a message: 18 bytes. ``topic`` has no NUL (SPEC section 4), so the two parts cannot run together."""
    return slot.to_bytes(2, "big") + blake2b(b"%b\0%b" % (topic.encode(), payload), digest_size=16).digest()


class Dedup(Generic[Waiter]):
    """Keys seen within ``ttl_s`` seconds, ``keys_max`` at most (about 300 bytes each, as they come and go).

    ``ttl_s`` 0: nothing is kept.
    """

    def __init__(self, ttl_s: float, keys_max: int) -> None:
        self.ttl_s = ttl_s
        self.keys_max = keys_max
        self.evicted = 0  # keys that went before their time because the table was full
        # All keys live equally long from their last sighting, so the order of insertion is the order of expiry; but
        # for those that another home handed on, which have less time and go when their turn comes.
        self._seen: OrderedDict[bytes, float] = OrderedDict()
        self._pending: dict[bytes, list[Waiter]] = {}
        self._expiry = (-1.0, -1.0)  # of what is seen now: one object for all keys of a turn

    def __len__(self) -> int:
        return len(self._seen) + len(self._pending)

    def duplicate(self, key: bytes, now: float) -> bool:
        """Was it seen, and is its time not over? Being asked is a sighting: a duplicate extends its time."""
        expiry = self._seen.get(key)
        if expiry is None:
            return False
        if expiry <= now:
            del self._seen[key]
            return False
        self._seen[key] = self._fresh(now)
        self._seen.move_to_end(key)
        return True

    def pending(self, key: bytes) -> list[Waiter] | None:
        """Who waits for the outcome of the message with this key; ``None`` if none is being handed over."""
        return self._pending.get(key)

    def begin(self, key: bytes) -> None:
        """The message is being handed over from now on."""
        self._pending[key] = []

    def settle(self, key: bytes, handed_over: bool, now: float) -> list[Waiter]:
        """It has been, or could not be (then the key is forgotten, so that a retry is none). Returns the waiters."""
        waiters = self._pending.pop(key, [])
        if handed_over:
            self.add(key, now)
        return waiters

    def add(self, key: bytes, now: float, ttl_s: float | None = None) -> None:
        """The key was seen now. ``ttl_s``: what is left of its time, where another home saw it."""
        if self.ttl_s <= 0:
            return
        expiry = self._fresh(now) if ttl_s is None else now + min(ttl_s, self.ttl_s)
        self._seen[key] = max(expiry, self._seen.get(key, 0.0))
        if ttl_s is None:
            self._seen.move_to_end(key)
        # Two for one, so that those whose time is over never pile up, however fast new ones come.
        self.expire(now, 2)
        if len(self._seen) > self.keys_max:
            self._seen.popitem(last=False)
            self.evicted += 1

    def _fresh(self, now: float) -> float:
        if self._expiry[0] != now:
            self._expiry = (now, now + self.ttl_s)
        return self._expiry[1]

    def expire(self, now: float, keys_max: int) -> None:
        """Forget keys whose time is over, at most ``keys_max`` of them in one go."""
        seen = self._seen
        for _ in range(min(keys_max, len(seen))):
            if next(iter(seen.values())) > now:
                return
            seen.popitem(last=False)

    def snapshot(self) -> list[bytes]:
        """All seen keys; the first two bytes are the slot."""
        return list(self._seen)

    def take(self, key: bytes, now: float) -> float:
        """Take the key out. Returns what is left of its time, in seconds; 0 or less: nothing."""
        return self._seen.pop(key, now) - now
