"""Publishers' own keys: a message is what its publisher says it is, and not its payload. SPEC section 7, ADR 31.

Owns: how such a message's key in the table of duplicates is made, and which key each publisher's own one stands for.
Must never: keep a message, or know when a key's time is over.

A key of the table is 128 bits of hash (``dedup``). Of a message with a key of its publisher's own these are 72 bits of
what it is known by (topic, client, own key), a mark of 16 bits, and 40 bits that the payload has a part in. So whoever
keeps such a key, or hands it on, need not know what it is: a retry has the same key of the table, in each bit. The same
own key with another payload has the same 72 bits, and others behind them: that is a conflict. One in 65,536 payloads
has a hash with this mark. It is taken for an own key that nobody else has, which does no harm.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from ingeborg.protocol.hashes import HASH_BYTES, digest

_HASH_BITS: Final = 8 * HASH_BYTES

#: Which message it is: these bits, and all above them (the slot).
_IDENTITY_BITS: Final = 72
_IDENTITY_SHIFT: Final = _HASH_BITS - _IDENTITY_BITS

#: The mark, above the bits by which the table spreads its keys.
_MARK_SHIFT: Final = 6
_MARK_BITS: Final = 0xFFFF << _MARK_SHIFT
_MARK: Final = 0xD64F << _MARK_SHIFT

_LOW_BITS: Final = (1 << _MARK_SHIFT) - 1
_PAYLOAD_BITS: Final = _IDENTITY_SHIFT - 16

#: Looked at for each new one. So all are looked at while a quarter as many come, and there are never more than four
#: thirds of what the table may hold.
_LOOKS: Final = 4


def own_key_of(slot: int, topic: str, client: str, own_key: str, payload: bytes) -> int:
    """The key of a message whose publisher has given it ``own_key``."""
    name, own = client.encode(), own_key.encode()
    # The topic has no NUL, the client may have one.
    message = digest(b"%b\0%d\0%b%b" % (topic.encode(), len(name), name, own))
    rest = int.from_bytes(digest(message + payload)) & ((1 << _PAYLOAD_BITS) - 1)
    identity = slot << _IDENTITY_BITS | int.from_bytes(message) >> _IDENTITY_SHIFT
    return identity << _IDENTITY_SHIFT | (rest & ~_LOW_BITS) << 16 | _MARK | rest & _LOW_BITS


def is_own(key: int) -> bool:
    """Is it one of ``own_key_of``?"""
    return key & _MARK_BITS == _MARK


class OwnKeys:
    """Which key of the table each own key stands for, at about 180 bytes each. ``holds``: does the table know the
    message still?"""

    def __init__(self, holds: Callable[[int, float], bool]) -> None:
        self._holds = holds
        self._keys: dict[int, int] = {}  # by identity
        self._row: deque[int] = deque()  # identities, in the order in which they are looked at

    def __len__(self) -> int:
        return len(self._keys)

    def conflicts(self, key: int, now: float) -> bool:
        """Does its own key stand for another payload?"""
        other = self._keys.get(key >> _IDENTITY_SHIFT)
        return other is not None and other != key and self._holds(other, now)

    def take(self, key: int, now: float) -> None:
        """From here on its own key stands for this payload."""
        self.look(_LOOKS, now)
        identity = key >> _IDENTITY_SHIFT
        if identity not in self._keys:
            self._row.append(identity)
        self._keys[identity] = key

    def look(self, count: int, now: float) -> None:
        """Look at the ``count`` that have not been looked at for longest; forget those whose message is not known."""
        keys, row = self._keys, self._row
        for _ in range(min(count, len(row))):
            identity = row.popleft()
            if self._holds(keys[identity], now):
                row.append(identity)
            else:
                del keys[identity]
