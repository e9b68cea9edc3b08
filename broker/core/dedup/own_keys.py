"""Publishers' own keys: such a key, and not the payload, identifies a message. SPEC section 7, ADR 31.

Owns: how to compute such a message's key in the table of duplicates, and the table's key for each own key. Must never:
keep a message, or know when a key expires.

A key of the table has two bytes of slot and 16 bytes of hash (``dedup``). If the publisher has chosen the message's
key, the hash has three parts. Nine bytes are for the message's identity (topic, client, own key), two bytes are a mark,
and five bytes also depend on the payload. A retry has exactly the same key of the table, so code that stores or passes
on a key need not know its kind. If the same own key comes with another payload, the identity is equal and the payload's
bytes differ, which is a conflict. By chance, the hash of one in 65,536 payloads has the mark. The table treats such a
hash as an own key without conflicts, which does no harm.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from ingeborg.protocol.hashes import digest

#: Bytes for the slot at the start of a key.
SLOT_BYTES: Final = 2

#: Bytes for the message's identity, which follow the slot.
_IDENTITY_BYTES: Final = 9

#: The mark, which follows the identity. Five bytes that depend on the payload follow the mark. The last byte decides in
#: which part of the table the key is.
_MARK: Final = b"\xd6\x4f"
_MARK_AT: Final = SLOT_BYTES + _IDENTITY_BYTES
_PAYLOAD_BYTES: Final = 5

#: Number of own keys to examine for each new own key. So while n own keys are examined, only n / 4 new own keys arrive.
#: This keeps the number of own keys below four thirds of the table's limit.
_LOOKS: Final = 4


def own_key_of(slot: int, topic: str, client: str, own_key: str, payload: bytes) -> bytes:
    """Return the key of a message to which its publisher gave ``own_key``."""
    name, own = client.encode(), own_key.encode()
    # A topic has no NUL, but a client's id can contain NUL.
    message = digest(b"%b\0%d\0%b%b" % (topic.encode(), len(name), name, own))
    rest = digest(message + payload)[:_PAYLOAD_BYTES]
    return slot.to_bytes(SLOT_BYTES) + message[:_IDENTITY_BYTES] + _MARK + rest


def is_own(key: bytes) -> bool:
    """Return whether the key comes from ``own_key_of``."""
    return key[_MARK_AT] == _MARK[0] and key[_MARK_AT + 1] == _MARK[1]


def without_mark(key: bytes) -> bytes:
    """Return a key that is not one of ``own_key_of``, for a key that has the mark by chance."""
    return key[:_MARK_AT] + bytes(len(_MARK)) + key[_MARK_AT + len(_MARK) :]


class OwnKeys:
    """Maps each own key to a key of the table, at about 180 bytes each. ``holds``: a function that tells whether the
    table still knows the message of a key."""

    def __init__(self, holds: Callable[[bytes, float], bool]) -> None:
        self._holds = holds
        self._keys: dict[bytes, bytes] = {}  # keys of the table, by slot and identity.
        self._row: deque[bytes] = deque()  # identities, in the order in which to examine them

    def __len__(self) -> int:
        return len(self._keys)

    def conflicts(self, key: bytes, now: float) -> bool:
        """Return whether this key comes from an own key that the publisher has also used for another payload."""
        other = self._keys.get(key[:_MARK_AT])
        return other is not None and other != key and self._holds(other, now)

    def take(self, key: bytes, now: float) -> None:
        """Record this key as the latest key of the table that was computed from its own key."""
        self.look(_LOOKS, now)
        identity = key[:_MARK_AT]
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
