"""Which payloads were published lately. SPEC section 7, ADR 9.

Owns: the table of hashes with their expiry, and those whose message is still being dispatched. Must never: hash, read
a clock, or know what becomes of a message.

A key is one number: the topic's slot, so that a slot's keys can be found when its home changes, and 128 bits of hash
below it. As bytes it would take a third more memory.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any, Final, Generic, TypeVar

from ingeborg.protocol.hashes import HASH_BYTES, digest

from .own_keys import OwnKeys, is_own

Waiter = TypeVar("Waiter")

_HASH_BITS: Final = 8 * HASH_BYTES

#: With this bit the other way round a key is none of a publisher's own.
_MARK_BIT: Final = 1 << 6

#: Of a key in a replica.
KEY_BYTES: Final = 18

#: Dictionaries that a generation's keys are spread over. One of a million keys takes 80 ms to grow, one of 16,000
#: takes 1.
_PARTS: Final = 64
_PART_MASK: Final = _PARTS - 1

#: Generations begun in one time-to-live, and by a table that is full. More of them: more lookups for each new payload;
#: fewer: keys whose time is over take up room for longer.
_GENERATIONS: Final = 3
_GENERATIONS_FULL: Final = 4

#: Old generations; beyond, the two oldest become one, part by part. Keys that are seen again and again leave nearly
#: empty ones behind, and where the time-to-live is long there would be ever more of them.
_OLD: Final = 6
#: And beyond this, in one go.
_OLD_MAX: Final = 8

#: Keys that are looked at in one slice, or a part of a generation if that has more: 1 ms.
_KEYS_PER_SLICE: Final = 5_000

#: To see whether an own key's message is known takes eight times as long as to forget a key.
_OWN_KEYS_SHARE: Final = 8

_Generation = list[dict[int, float]]


def payload_hash(topic: str, payload: bytes) -> bytes:
    """16 bytes. ``topic`` has no NUL (SPEC section 4), so the two parts cannot run together."""
    return digest(b"%b\0%b" % (topic.encode(), payload))


def key_of(slot: int, topic: str, payload: bytes) -> int:
    """The key of a message."""
    return slot << _HASH_BITS | int.from_bytes(payload_hash(topic, payload))


def key_of_name(slot: int, origin: str, number: int) -> int:
    """The key of a message that is not checked for duplicates, and yet must not be dispatched twice when its home
    crashes: nothing but itself has it."""
    key = slot << _HASH_BITS | int.from_bytes(digest(b"\0%b\0%d" % (origin.encode(), number)))
    return key ^ _MARK_BIT if is_own(key) else key


def key_of_hash(slot: int, hashed: bytes) -> int:
    """The key in this slot with the hash."""
    return slot << _HASH_BITS | int.from_bytes(hashed)


def hash_of_key(key: int) -> bytes:
    """The key without its slot: the ``payload_hash``, unless it is a publisher's own."""
    return (key & ((1 << _HASH_BITS) - 1)).to_bytes(HASH_BYTES)


def slot_of_key(key: int) -> int:
    """Its topic's slot."""
    return key >> _HASH_BITS


class Dedup(Generic[Waiter]):
    """Keys seen within ``ttl_s`` seconds, ``keys_max`` at most (about 115 bytes each).

    ``ttl_s`` 0: nothing is kept. Keys are kept by generation: new ones, and old ones that are seen again, go to the
    youngest, so a generation is forgotten as a whole once its youngest key's time is over. ADR 9.
    """

    def __init__(self, ttl_s: float, keys_max: int) -> None:
        self.ttl_s = ttl_s
        self.keys_max = keys_max
        self.evicted = 0  # keys that went before their time because the table was full
        self._count = 0  # of keys in all generations
        self._young: _Generation = _generation()  # key -> expiry
        self._young_count = 0
        self._young_max = max(keys_max // _GENERATIONS_FULL, 1)
        self._young_until = 0.0
        self._old: deque[tuple[_Generation, float]] = deque()  # and when all of it is over; the youngest is first
        self._over: deque[dict[int, float]] = deque()  # parts of those that are
        self._pending: dict[int, list[Waiter]] = {}
        #: Of the keys that publishers have given their messages: which keys here they stand for.
        self.own_keys = OwnKeys(self._holds)
        #: Of those that are pending: which are not so here, but at a former home of their slot; its incarnation, and
        #: until when that is believed. Those that end first are first.
        self.elsewhere: dict[int, tuple[str, float]] = {}
        self._now = -1.0
        # Of what is seen now: one object for all keys of a turn. Declared as a float, the compiled form would keep the
        # bare number and make an object of it for each key.
        self._expiry: Any = -1.0

    def __len__(self) -> int:
        """Keys that take up room."""
        return self._count + len(self._pending)

    @property
    def generations(self) -> int:
        """That a new payload is looked for in."""
        return 1 + len(self._old)

    def duplicate(self, key: int, now: float) -> bool:
        """Was it seen, and is its time not over? Being asked is a sighting: a duplicate extends its time."""
        if self._now != now:
            self._turn(now)
        index = key & _PART_MASK
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

    def conflicts(self, key: int, now: float) -> bool:
        """Is it a key of a publisher's own that it has given to another payload as well? Being asked is no sighting."""
        return is_own(key) and self.own_keys.conflicts(key, now)

    def pending(self, key: int) -> list[Waiter] | None:
        """Who waits for the outcome of the message with this key; ``None`` if none is being dispatched."""
        return self._pending.get(key)

    def begin(self, key: int) -> None:
        """The message is being dispatched from now on."""
        self._pending[key] = []
        if is_own(key):
            self.own_keys.take(key, self._now)

    def settle(self, key: int, dispatched: bool, now: float) -> list[Waiter]:
        """It has been, or could not be (then the key is forgotten, so that a retry is none). Returns the waiters."""
        waiters = self._pending.pop(key, [])
        if dispatched:
            self.add(key, now)
        return waiters

    def pending_here(self, key: int | None) -> list[Waiter] | None:
        """As ``pending``, of a message that this endpoint itself is dispatching."""
        return None if key is None or key in self.elsewhere else self._pending.get(key)

    def pending_keys(self) -> list[int]:
        """Of all messages that are being dispatched."""
        return list(self._pending)

    def begin_elsewhere(self, key: int, home: str, until: float) -> None:
        """A former home is dispatching the message, until ``until`` at the latest. Who repeats it here waits."""
        if key not in self._pending:
            self.begin(key)
            self.elsewhere[key] = (home, until)

    def end_elsewhere(self, key: int, dispatched: bool, now: float) -> list[Waiter]:
        """As ``settle``."""
        self.elsewhere.pop(key, None)
        return self.settle(key, dispatched, now)

    def expire_elsewhere(self, now: float) -> None:
        """Of whom no former home said what had become of them, and nobody asked."""
        for key, _ in list(itertools.takewhile(lambda item: item[1][1] <= now, self.elsewhere.items())):
            self.forget_elsewhere(key)

    def forget_elsewhere(self, key: int) -> None:
        """It is not pending any more, as far as nobody waits for it."""
        if key in self.elsewhere and not self._pending[key]:
            del self.elsewhere[key], self._pending[key]

    def add(self, key: int, now: float, ttl_s: float | None = None) -> None:
        """The key was seen now. ``ttl_s``: what is left of its time, where another home saw it."""
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

    def add_all(self, keys: Sequence[int], seconds: Sequence[float], now: float) -> None:
        """As ``add`` of each with what is left of its time, a thousand in a millisecond. Those of which nothing is left
        are passed over."""
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
            if not left > 0:  # NaN is not
                continue
            index = key & _PART_MASK
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
            # It is known, or the youngest generation is full, or all are.
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

    def _insert(self, key: int, expiry: Any) -> None:
        """Into the youngest generation, where it may be already; an older one may keep an entry that is over sooner."""
        if self._young_count >= self._young_max:
            self._begin_generation(self._now)
        # Two for one, so that those whose time is over never pile up, however fast new ones come.
        self._forget(2)
        if self._count >= self.keys_max:
            self._evict(key & _PART_MASK)
        part = self._young[key & _PART_MASK]
        if key not in part:
            self._count += 1
            self._young_count += 1
        part[key] = expiry

    def expire(self, now: float, keys_max: int) -> None:
        """Forget keys whose time is over, at most ``keys_max`` of them in one go."""
        if self._now != now:
            self._turn(now)
        self._forget(keys_max)
        if self.own_keys:
            self.own_keys.look(max(keys_max // _OWN_KEYS_SHARE, 1), now)

    def _holds(self, key: int, now: float) -> bool:
        """Is its message being dispatched, or was it lately?"""
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
        """One part of the oldest generation into the next, less what is over: a turn for each part."""
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
        """Make room for one, from the oldest generation; its parts are about equally full."""
        while self._old:
            oldest = self._old[-1][0]
            part = oldest[index] or next(filter(None, oldest), {})
            if part:
                _, expiry = part.popitem()
                self._count -= 1
                self.evicted += expiry > self._now
                return
            self._old.pop()

    def keys_of(self, slots: frozenset[int]) -> Iterator[list[int]]:
        """All keys of these slots that were there when it began, but for those taken out since; some thousands are
        looked at in one slice. From the oldest on: what moves meanwhile moves into a younger generation."""
        generations = [*(generation for generation, _ in reversed(self._old)), self._young]
        found: list[int] = []
        looked_at = 0
        for generation in generations:
            for index in range(_PARTS):
                part = generation[index]
                found += [key for key in part if key >> _HASH_BITS in slots]
                looked_at += len(part)
                if looked_at >= _KEYS_PER_SLICE:
                    yield found
                    found, looked_at = [], 0
        yield found

    def left(self, keys: Sequence[int], now: float) -> list[float]:
        """What is left of the time of each, in seconds; 0 or less: nothing."""
        young, old = self._young, [generation for generation, _ in self._old]
        found: list[float] = []
        for key in keys:
            index = key & _PART_MASK
            expiry = young[index].get(key)
            if expiry is None:
                for generation in old:  # the youngest that has it has it for longest
                    expiry = generation[index].get(key)
                    if expiry is not None:
                        break
            found.append(0.0 if expiry is None else expiry - now)
        return found

    def take(self, key: int, now: float) -> float:
        """Take the key out. Returns what is left of its time, in seconds; 0 or less: nothing."""
        index = key & _PART_MASK
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
