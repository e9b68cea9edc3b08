"""The two hashes that several processes have to agree on: a topic's slot, and a 128-bit digest.

Owns: the choice of these functions, and the number of slots. Must never: know what a hash is used for, or change:
stores hold keys made by them, and every endpoint of a network computes the same slots.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Final
from zlib import crc32

SLOTS: Final = 4096
"""Slots that a topic can hash into: enough that 100 endpoints share them evenly, few enough that a table costs nothing.
Clients know the number, too (SPEC section 9): they put topics of one slot into one command."""

HASH_BYTES: Final = 16
"""Bytes of a ``digest``: among 10^9 texts the chance that any two share one is 10^-21."""


def slot_of(topic: str) -> int:
    """Return the topic's slot, 0 to ``SLOTS`` - 1: its CRC-32 modulo ``SLOTS``. ``""`` (no topic) has slot 0.

    Raises:
        UnicodeEncodeError: the text has a lone surrogate, which no topic has.
    """
    return crc32(topic.encode()) & (SLOTS - 1)


def digest(text: bytes) -> bytes:
    """Return ``HASH_BYTES`` of BLAKE2b over the bytes (RFC 7693, without a key)."""
    return blake2b(text, digest_size=HASH_BYTES).digest()
