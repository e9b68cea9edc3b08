"""The protocol messages (*wires*) that nodes of ``grove`` exchange, and their sizes.

Owns: the kinds of wires and their sizes. Must never: know about nodes.

**Encoding.** Each link numbers the lives of roots. First it numbers the lives in both vectors, then each life when it
is first mentioned. One end uses even numbers and the other end uses odd numbers. A name has 8 bytes. An **entry** has 6
bytes: 2 for the number of the life (at most ``ROOTS_MAX`` exist) and 4 for the number of the message (a root with more
messages begins a new life). The entry of a life's first message also includes the life's name, in 8 more bytes. Any
other life was already named in a vector or in floors. Every wire has a byte for its kind. A wire with entries has a
byte for their number. With 128 entries or more the number takes two bytes, but the sizes below count only one byte. A
payload has a byte for the number of links crossed, a byte for its age in twentieths of a second, and 4 bytes for its
length.
"""

from __future__ import annotations

from typing import Final

from .history import Key

# The first four kinds occur most often. The kinds up to REPLAY carry a payload, except ENTRIES.
PAYLOAD: Final = 0
"""``(key, hops, age, entries)``: the sender has delivered the entries, if they are not None, and then this message.
``hops``: the number of links crossed, including this link. ``age``: the seconds spent in histories so far."""
ENTRIES: Final = 1
"""``(keys,)``: the messages that the sender has delivered, in this order."""
EARLY: Final = 2
"""``(key, hops, age)``: a payload of a message that the sender has not delivered yet, or a requested payload. It
implies no order."""
REPLAY: Final = 3
"""``(key, hops, age)``: a payload sent again on a new link, in the order of delivery. It does not affect the trees."""
PRUNE: Final = 4
"""``(name,)``: a request to send no more payloads of this life."""
GRAFT: Final = 5
"""``(keys, once)``: a request to send these payloads. Unless ``once`` is true, the receiver should also forward later
payloads of their lives."""
GONE: Final = 6
"""``(keys,)``: messages that the sender can no longer send."""
VECTOR: Final = 7
"""``(vector, age)``: the sender's deliveries. ``age``: negative, unless the sender is new. A new sender requests all
messages that the receiver has delivered in the last ``age`` seconds. The answer is ``FLOORS``, then the messages that
the sender lacks."""
FLOORS: Final = 8
"""``(floors, first, whole, quiet)``: for each life, a message number. The sender has delivered or skipped the life's
messages up to this number, and cannot send them. ``first``: this is the answer to a vector, and from now on the
sender's entries form an order. ``whole``: the seconds since the sender last left out messages because it was new
itself. ``quiet``: for each life, the seconds since its latest message."""

NAME_BYTES: Final = 8
ENTRY_BYTES: Final = 6
ENTRIES_BYTES: Final = 2
"""The bytes of an ENTRIES wire without its entries."""
PAYLOAD_BYTES: Final = ENTRIES_BYTES + ENTRY_BYTES + 6
EARLY_BYTES: Final = 1 + ENTRY_BYTES + 6
PRUNE_BYTES: Final = 3
VECTOR_BYTES: Final = 6
"""The bytes for the kind, the number of rows and the age. Floors have the ``first`` flag and ``whole`` instead of the
age."""
VECTOR_ROW_BYTES: Final = NAME_BYTES + 4
FLOOR_ROW_BYTES: Final = VECTOR_ROW_BYTES + 1
"""The quiet time of a life takes one byte, in units of two seconds, because nodes mention no life that has been quiet
for longer than ``TOLD_S``."""


def named(keys: tuple[Key, ...]) -> int:
    """Return the number of bytes of the names that go with these entries."""
    found = 0
    for key in keys:
        if key[1] == 1:
            found += NAME_BYTES
    return found
