"""The two hashes that several processes have to agree on: a topic's slot, and a 128-bit digest.

Owns: the choice of these functions, and the number of slots. Must never: know the purpose of a hash, or change. Stores
hold keys made by these functions, and all endpoints of a network have to compute the same slots.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Final
from zlib import crc32

SLOTS: Final = 4096
"""The number of slots. There are enough slots for 100 endpoints to share them evenly, and few enough for a small table
of all slots. Clients also know the number (SPEC section 9), and put topics of one slot into one command."""

HASH_BYTES: Final = 16
"""The number of bytes of a ``digest``. Among 10^9 texts, the chance that any two have the same digest is 10^-21."""


def slot_of(topic: str) -> int:
    """Return the topic's slot, 0 to ``SLOTS`` - 1: its CRC-32 modulo ``SLOTS``. ``""`` (no topic) has slot 0.

    Raises:
        UnicodeEncodeError: the text has a lone surrogate, which no topic has.
    """
    return crc32(topic.encode()) & (SLOTS - 1)


def digest(text: bytes) -> bytes:
    """Return the BLAKE2b hash of the bytes, ``HASH_BYTES`` long (RFC 7693, without a key)."""
    return blake2b(text, digest_size=HASH_BYTES).digest()
