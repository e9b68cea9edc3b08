"""The wires that nodes of ``grove`` exchange, and their sizes.

Owns: the kinds of wires and their sizes. Must never: know a node.

**On the wire.** Each link numbers the lives of roots: those of both vectors first, then each at its first mention, one
end with even numbers and the other with odd ones. A name is 8 bytes. An **entry** is 6 bytes: 2 for the life's number
(at most ``ROOTS_MAX`` exist) and 4 for the message's (a root with more messages begins a new life). The entry of a
life's first message also names it, in 8 bytes more; a vector or floors named any other life. Every wire has a byte for
its kind; one with entries has a byte for their number (from 128 on two, which is not counted here); a payload has a
byte for the links crossed, a byte for its age in twentieths of a second, and 4 for its length.
"""

from __future__ import annotations

from typing import Final

from .history import Key

# The first four occur most often. Apart from ENTRIES, those up to REPLAY carry a payload.
PAYLOAD: Final = 0
"""``(key, hops, age, entries)``: the sender has delivered the entries, if not None, and then this message, in that
order. ``hops``: links crossed, including this one. ``age``: seconds in histories so far."""
ENTRIES: Final = 1
"""``(keys,)``: messages that the sender has delivered, in that order."""
EARLY: Final = 2
"""``(key, hops, age)``: a payload that the sender has not delivered yet, or a requested one. It implies no order."""
REPLAY: Final = 3
"""``(key, hops, age)``: a payload sent again on a new link, in the order of delivery. It implies nothing about
trees."""
PRUNE: Final = 4
"""``(name,)``: send no payloads of this life."""
GRAFT: Final = 5
"""``(keys, once)``: send these; unless ``once``, also send further payloads of their lives."""
GONE: Final = 6
"""``(keys,)``: messages that the sender can no longer send."""
VECTOR: Final = 7
"""``(vector, age)``: the sender's deliveries. ``age``: from a new node, the seconds for which it asks for everything;
otherwise negative. The answer is ``FLOORS``, then the messages that the sender lacks."""
FLOORS: Final = 8
"""``(floors, first, whole, quiet)``: for each life, the sender has passed messages up to this number that it cannot
send. ``first``: answers a vector; from here on the sender's entries are an order. ``whole``: seconds since the sender
last left out messages because it was new itself. ``quiet``: for each life, the seconds since its latest message."""

NAME_BYTES: Final = 8
ENTRY_BYTES: Final = 6
ENTRIES_BYTES: Final = 2
"""Bytes of the wire without entries."""
PAYLOAD_BYTES: Final = ENTRIES_BYTES + ENTRY_BYTES + 6
EARLY_BYTES: Final = 1 + ENTRY_BYTES + 6
PRUNE_BYTES: Final = 3
VECTOR_BYTES: Final = 6
"""Kind, number of rows, age (of floors: the ``first`` flag and ``whole``)."""
VECTOR_ROW_BYTES: Final = NAME_BYTES + 4
FLOOR_ROW_BYTES: Final = VECTOR_ROW_BYTES + 1
"""A life's quiet time has units of two seconds: beyond ``TOLD_S`` a node does not mention it."""


def named(keys: tuple[Key, ...]) -> int:
    """Bytes of the names that go with these entries."""
    found = 0
    for key in keys:
        if key[1] == 1:
            found += NAME_BYTES
    return found
