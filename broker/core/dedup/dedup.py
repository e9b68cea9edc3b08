"""Remembers which payloads were published recently. SPEC section 7, ADR 9.

Owns: the table of hashes with their expiry, and the hashes whose message is still in dispatch. Must never: hash, read a
clock, or know the outcome of a message.

A key has two bytes for the topic's slot, and then 16 bytes of hash. The slot lets the table find a slot's keys when its
home changes.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any, Final, Generic, TypeVar

from ingeborg.protocol.hashes import HASH_BYTES, SLOTS, digest

from .own_keys import SLOT_BYTES, OwnKeys, is_own, without_mark

Waiter = TypeVar("Waiter")

#: The size of a key.
KEY_BYTES: Final = SLOT_BYTES + HASH_BYTES

#: The first bytes of a key, for each slot.
_SLOTS: Final = [slot.to_bytes(SLOT_BYTES) for slot in range(SLOTS)]

#: Number of dictionaries among which a generation divides its keys. A dictionary of a million keys takes 80 ms to grow,
#: but a dictionary of 16,000 keys takes only 1 ms.
_PARTS: Final = 64
_PART_MASK: Final = _PARTS - 1

#: Number of generations that begin in one time-to-live, and number of generations in a full table. With more
#: generations, each new payload costs more lookups. With fewer generations, expired keys take up room for longer.
_GENERATIONS: Final = 3
_GENERATIONS_FULL: Final = 4

#: Maximum number of old generations. Beyond it, the two oldest generations are merged, one part per turn. Keys that are
#: seen again and again leave nearly empty generations behind. With a long time-to-live such generations would pile up.
_OLD: Final = 6
#: Beyond this number of old generations, the two oldest generations are merged completely in one turn.
_OLD_MAX: Final = 8

#: Number of keys to examine in one slice, which takes 1 ms. A part of a generation is never split, even if it has more
#: keys.
_KEYS_PER_SLICE: Final = 5_000

#: Looking up the message of a publisher's own key takes eight times as long as forgetting a key.
_OWN_KEYS_SHARE: Final = 8

_Generation = list[dict[bytes, float]]


def payload_hash(topic: str, payload: bytes) -> bytes:
    """Return a hash of 16 bytes. ``topic`` has no NUL (SPEC section 4), so it is clear where the payload begins."""
    return digest(b"%b\0%b" % (topic.encode(), payload))


def key_of(slot: int, topic: str, payload: bytes) -> bytes:
    """Return a message's key."""
    return _SLOTS[slot] + payload_hash(topic, payload)


def key_of_name(slot: int, origin: str, number: int) -> bytes:
    """Return the unique key of a message that skips the duplicate check, and yet must not be dispatched twice when its
    home crashes."""
    key = _SLOTS[slot] + digest(b"\0%b\0%d" % (origin.encode(), number))
    return without_mark(key) if is_own(key) else key


def key_of_hash(slot: int, hashed: bytes) -> bytes:
    """Return the key with this hash in this slot."""
    return _SLOTS[slot] + hashed


def hash_of_key(key: bytes) -> bytes:
    """Return the key without its slot. This is the ``payload_hash``, unless the publisher has chosen the key."""
    return key[SLOT_BYTES:]


def slot_of_key(key: bytes) -> int:
    """Return the slot of the key's topic."""
    return key[0] << 8 | key[1]


class Dedup(Generic[Waiter]):
    """Holds the keys seen within ``ttl_s`` seconds, at most ``keys_max`` (about 126 bytes each).

    With ``ttl_s`` 0 it keeps nothing. The keys are divided into generations. New keys, and old keys that are seen
    again, go into the youngest generation. So a whole generation expires together with its youngest key. ADR 9.
    """

    def __init__(self, ttl_s: float, keys_max: int) -> None:
        self.ttl_s = ttl_s
        self.keys_max = keys_max
        self.evicted = 0  # keys that a full table dropped before their expiry
        self._count = 0  # keys in all generations
        self._young: _Generation = _generation()  # key -> expiry
        self._young_count = 0
        self._young_max = max(keys_max // _GENERATIONS_FULL, 1)
        self._young_until = 0.0
        self._old: deque[tuple[_Generation, float]] = deque()  # each with its expiry; the youngest is first
        self._over: deque[dict[bytes, float]] = deque()  # parts of expired generations
        self._pending: dict[bytes, list[Waiter]] = {}
        #: The publishers' own keys, and this table's key for each own key.
        self.own_keys = OwnKeys(self._holds)
        #: Keys whose messages a former home of their slot is still dispatching -> that home's incarnation, and the time
        #: until which we assume that it is dispatching. The earliest time comes first.
        self.elsewhere: dict[bytes, tuple[str, float]] = {}
        self._now = -1.0
        # The expiry of keys seen now, as one object that all keys of a turn share. If it were declared as a float, the
        # compiled form would keep the bare number and create an object for each key.
        self._expiry: Any = -1.0

    def __len__(self) -> int:
        """Count the keys that take up room."""
        return self._count + len(self._pending)

    @property
    def generations(self) -> int:
        """The number of generations that a lookup of a new payload searches."""
        return 1 + len(self._old)

    def duplicate(self, key: bytes, now: float) -> bool:
        """Return whether the key has been seen and has not expired. Each call counts as a sighting, so a duplicate
        extends the key's time."""
        if self._now != now:
            self._turn(now)
        index = key[-1] & _PART_MASK
        expiry = self._young[index].get(key)
        if expiry is None:
            for generation, _ in self._old:
                expiry = generation[index].pop(key, None)
                if expiry is not None:
                    break
            else:
                return False
            self._count -= 1
            if expiry > now:
                self._insert(key, self._expiry)
        elif expiry > now:
            self._young[index][key] = self._expiry
        return expiry > now

    def conflicts(self, key: bytes, now: float) -> bool:
        """Return whether the publisher has given the same own key to another payload. A call does not count as a
        sighting."""
        return is_own(key) and self.own_keys.conflicts(key, now)

    def pending(self, key: bytes) -> list[Waiter] | None:
        """Return the waiters for the outcome of this key's message, or ``None`` if no such message is in dispatch."""
        return self._pending.get(key)

    def begin(self, key: bytes) -> None:
        """Record that the dispatch of the message begins."""
        self._pending[key] = []
        if is_own(key):
            self.own_keys.take(key, self._now)

    def settle(self, key: bytes, dispatched: bool, now: float) -> list[Waiter]:
        """Record that the dispatch ended, and return the waiters. If the dispatch failed, forget the key, so that a
        retry does not count as a duplicate."""
        waiters = self._pending.pop(key, [])
        if dispatched:
            self.add(key, now)
        return waiters

    def pending_here(self, key: bytes | None) -> list[Waiter] | None:
        """Return the same as ``pending``, but only for messages that this endpoint itself is dispatching."""
        return None if key is None or key in self.elsewhere else self._pending.get(key)

    def pending_keys(self) -> list[bytes]:
        """Return the keys of all messages in dispatch."""
        return list(self._pending)

    def begin_elsewhere(self, key: bytes, home: str, until: float) -> None:
        """Record that a former home is dispatching the message, until ``until`` at the latest. Duplicates of the
        message that arrive here wait."""
        if key not in self._pending:
            self.begin(key)
            self.elsewhere[key] = (home, until)

    def end_elsewhere(self, key: bytes, dispatched: bool, now: float) -> list[Waiter]:
        """End a message that a former home was dispatching, as ``settle`` does."""
        self.elsewhere.pop(key, None)
        return self.settle(key, dispatched, now)

    def expire_elsewhere(self, now: float) -> None:
        """Forget overdue messages whose former home reported no outcome, unless a duplicate waits for the outcome."""
        for key, _ in list(itertools.takewhile(lambda item: item[1][1] <= now, self.elsewhere.items())):
            self.forget_elsewhere(key)

    def forget_elsewhere(self, key: bytes) -> None:
        """Stop treating the message as pending, unless a duplicate waits for its outcome."""
        if key in self.elsewhere and not self._pending[key]:
            del self.elsewhere[key], self._pending[key]

    def add(self, key: bytes, now: float, ttl_s: float | None = None) -> None:
        """Record that the key was seen now. ``ttl_s``: the key's remaining time, if another home saw the key."""
        if self.ttl_s <= 0:
            return
        if self._now != now:
            self._turn(now)
        expiry: Any = self._expiry
        if ttl_s is not None:
            expiry = now + max(min(ttl_s, self.ttl_s), self.take(key, now))
            if is_own(key):
                self.own_keys.take(key, now)
        self._insert(key, expiry)

    def add_all(self, keys: Sequence[bytes], seconds: Sequence[float], now: float) -> None:
        """Add each key with its remaining time, as ``add`` does. A thousand keys take a millisecond. Skip expired
        keys."""
        if self.ttl_s <= 0:
            return
        if self._now != now:
            self._turn(now)
        self._forget(2 * len(keys))
        ttl_s = self.ttl_s
        young, old = self._young, [generation for generation, _ in self._old]
        room = min(self._young_max - self._young_count, self.keys_max - self._count)
        added = 0
        for key, left in zip(keys, seconds, strict=True):
            if not left > 0:  # also skips NaN
                continue
            index = key[-1] & _PART_MASK
            part = young[index]
            is_new = added < room and key not in part
            if is_new:
                for generation in old:
                    if key in generation[index]:
                        is_new = False
                        break
            if is_new:
                expiry: Any = now + (left if left < ttl_s else ttl_s)
                part[key] = expiry
                added += 1
                if is_own(key):
                    self.own_keys.take(key, now)
                continue
            # The key is known, or the youngest generation or the whole table is full.
            self._count += added
            self._young_count += added
            self.add(key, now, left)
            added = 0
            young, old = self._young, [generation for generation, _ in self._old]
            room = min(self._young_max - self._young_count, self.keys_max - self._count)
        self._count += added
        self._young_count += added

    def _turn(self, now: float) -> None:
        if now >= self._young_until:
            self._begin_generation(now)
        while self._old and self._old[-1][1] <= now:
            self._over.extend(self._old.pop()[0])
        if len(self._old) > _OLD:
            self._merge(now)
        self._now, self._expiry = now, now + self.ttl_s

    def _insert(self, key: bytes, expiry: Any) -> None:
        """Insert the key into the youngest generation, if it is not there yet. An older generation can still have the
        key, with an earlier expiry."""
        if self._young_count >= self._young_max:
            self._begin_generation(self._now)
        # Forget two keys for each new key. So expired keys never pile up, however fast new keys arrive.
        self._forget(2)
        if self._count >= self.keys_max:
            self._evict(key[-1] & _PART_MASK)
        part = self._young[key[-1] & _PART_MASK]
        if key not in part:
            self._count += 1
            self._young_count += 1
        part[key] = expiry

    def expire(self, now: float, keys_max: int) -> None:
        """Forget at most ``keys_max`` expired keys."""
        if self._now != now:
            self._turn(now)
        self._forget(keys_max)
        if self.own_keys:
            self.own_keys.look(max(keys_max // _OWN_KEYS_SHARE, 1), now)

    def _holds(self, key: bytes, now: float) -> bool:
        """Return whether the key's message is in dispatch, or the key was seen and has not expired."""
        return key in self._pending or self.left((key,), now)[0] > 0

    def _forget(self, keys_max: int) -> None:
        for _ in range(keys_max):
            while self._over and not self._over[0]:
                self._over.popleft()
            if not self._over:
                return
            self._over[0].popitem()
            self._count -= 1

    def _begin_generation(self, now: float) -> None:
        if self._young_count:
            self._old.appendleft((self._young, self._expiry))
            self._young = _generation()
            self._young_count = 0
            while len(self._old) > _OLD_MAX:
                self._merge(now)
        self._young_until = now + self.ttl_s / _GENERATIONS

    def _merge(self, now: float) -> None:
        """Merge one part of the oldest generation into the next, without its expired keys. Each turn merges one
        part."""
        oldest, newer = self._old[-1][0], self._old[-2][0]
        index = next((index for index, part in enumerate(oldest) if part), None)
        if index is None:
            self._old.pop()
            return
        part, into = oldest[index], newer[index]
        self._count -= len(part) + len(into)
        for key, expiry in part.items():
            if expiry > now:
                into.setdefault(key, expiry)
        self._count += len(into)
        oldest[index] = {}

    def _evict(self, index: int) -> None:
        """Make room for one key by dropping a key from the oldest generation, whose parts are about equally full."""
        while self._old:
            oldest = self._old[-1][0]
            part = oldest[index] or next(filter(None, oldest), {})
            if part:
                _, expiry = part.popitem()
                self._count -= 1
                self.evicted += expiry > self._now
                return
            self._old.pop()

    def keys_of(self, slots: frozenset[int]) -> Iterator[list[bytes]]:
        """Yield all keys of these slots that existed when the search began, except the keys that were removed
        meanwhile.

        A slice examines a few thousand keys. The search starts with the oldest generation, since keys only move to
        younger generations.
        """
        generations = [*(generation for generation, _ in reversed(self._old)), self._young]
        found: list[bytes] = []
        looked_at = 0
        for generation in generations:
            for index in range(_PARTS):
                part = generation[index]
                found += [key for key in part if slot_of_key(key) in slots]
                looked_at += len(part)
                if looked_at >= _KEYS_PER_SLICE:
                    yield found
                    found, looked_at = [], 0
        yield found

    def left(self, keys: Sequence[bytes], now: float) -> list[float]:
        """Return each key's remaining time in seconds; 0 or less if it has expired."""
        young, old = self._young, [generation for generation, _ in self._old]
        found: list[float] = []
        for key in keys:
            index = key[-1] & _PART_MASK
            expiry = young[index].get(key)
            if expiry is None:
                for generation in old:  # the youngest generation with the key has its latest expiry
                    expiry = generation[index].get(key)
                    if expiry is not None:
                        break
            found.append(0.0 if expiry is None else expiry - now)
        return found

    def take(self, key: bytes, now: float) -> float:
        """Remove the key. Return its remaining time in seconds; 0 if the key had expired or was unknown."""
        index = key[-1] & _PART_MASK
        latest = now
        for generation in (self._young, *(generation for generation, _ in self._old)):
            expiry = generation[index].pop(key, None)
            if expiry is not None:
                self._count -= 1
                self._young_count -= generation is self._young
                latest = max(latest, expiry)
        return latest - now


def _generation() -> _Generation:
    return [{} for _ in range(_PARTS)]
