"""Publishers' own keys: such a key, and not the payload, identifies a message. SPEC section 7, ADR 31.

Owns: how to compute such a message's key in the table of duplicates, and the table's key for each own key. Must never:
keep a message, or know when a key expires.

A key of the table has 128 bits of hash (``dedup``). If the publisher has chosen the message's key, these bits have
three parts. 72 bits are for the message's identity (topic, client, own key), 16 bits are a mark, and 40 bits also
depend on the payload. A retry has exactly the same key of the table, so code that stores or passes on a key need not
know its kind. If the same own key comes with another payload, the 72 bits are equal and the payload bits differ, which
is a conflict. By chance, the hash of one in 65,536 payloads has the mark. The table treats such a hash as an own key
without conflicts, which does no harm.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from ingeborg.protocol.hashes import HASH_BYTES, digest

_HASH_BITS: Final = 8 * HASH_BYTES

#: The message's identity: these bits, and all higher bits (the slot).
_IDENTITY_BITS: Final = 72
_IDENTITY_SHIFT: Final = _HASH_BITS - _IDENTITY_BITS

#: The mark, above the bits by which the table spreads its keys.
_MARK_SHIFT: Final = 6
_MARK_BITS: Final = 0xFFFF << _MARK_SHIFT
_MARK: Final = 0xD64F << _MARK_SHIFT

_LOW_BITS: Final = (1 << _MARK_SHIFT) - 1
_PAYLOAD_BITS: Final = _IDENTITY_SHIFT - 16

#: Number of own keys to examine for each new own key. So while n own keys are examined, only n / 4 new own keys arrive.
#: This keeps the number of own keys below four thirds of the table's limit.
_LOOKS: Final = 4


def own_key_of(slot: int, topic: str, client: str, own_key: str, payload: bytes) -> int:
    """Return the key of a message to which its publisher gave ``own_key``."""
    name, own = client.encode(), own_key.encode()
    # A topic has no NUL, but a client's id can contain NUL.
    message = digest(b"%b\0%d\0%b%b" % (topic.encode(), len(name), name, own))
    rest = int.from_bytes(digest(message + payload)) & ((1 << _PAYLOAD_BITS) - 1)
    identity = slot << _IDENTITY_BITS | int.from_bytes(message) >> _IDENTITY_SHIFT
    return identity << _IDENTITY_SHIFT | (rest & ~_LOW_BITS) << 16 | _MARK | rest & _LOW_BITS


def is_own(key: int) -> bool:
    """Return whether the key comes from ``own_key_of``."""
    return key & _MARK_BITS == _MARK


class OwnKeys:
    """Maps each own key to a key of the table, at about 180 bytes each. ``holds``: a function that tells whether the
    table still knows the message of a key."""

    def __init__(self, holds: Callable[[int, float], bool]) -> None:
        self._holds = holds
        self._keys: dict[int, int] = {}  # keys of the table, by identity.
        self._row: deque[int] = deque()  # identities, in the order in which to examine them

    def __len__(self) -> int:
        return len(self._keys)

    def conflicts(self, key: int, now: float) -> bool:
        """Return whether this key comes from an own key that the publisher has also used for another payload."""
        other = self._keys.get(key >> _IDENTITY_SHIFT)
        return other is not None and other != key and self._holds(other, now)

    def take(self, key: int, now: float) -> None:
        """Record this key as the latest key of the table that was computed from its own key."""
        self.look(_LOOKS, now)
        identity = key >> _IDENTITY_SHIFT
        if identity not in self._keys:
            self._row.append(identity)
        self._keys[identity] = key

    def look(self, count: int, now: float) -> None:
        """Examine the ``count`` own keys whose last examination is the oldest. Forget those whose message the table has
        dropped."""
        keys, row = self._keys, self._row
        for _ in range(min(count, len(row))):
            identity = row.popleft()
            if self._holds(keys[identity], now):
                row.append(identity)
            else:
                del keys[identity]
