"""What nodes of ``grove`` send each other, and how many bytes that takes.

Owns: the kinds of wires and their sizes. Must never: know a node.

**On the wire.** Each link numbers the lives of roots: those of both vectors first, then each at its first mention, one
end with even numbers and the other with odd ones. A name is 8 bytes. An **entry** is 6 bytes: 2 for the life's number
(there are at most ``ROOTS_MAX``) and 4 for the message's (a life with more messages is begun anew). The entry of a
life's first message names it too, in 8 bytes more; any other life was named by a vector or by floors. Every wire has a
byte for its kind; one with entries has a byte for their number (from 128 on two, which is not counted here); a payload
has a byte for the links crossed, a byte for its age in twentieths of a second, and 4 for its length.
"""

from __future__ import annotations

from typing import Final

from .history import Key

# The first four are the most frequent ones; those with a payload are told from the others by their number.
PAYLOAD: Final = 0
"""``(key, hops, age, entries)``: the entries, or None, then this message: so the sender has delivered in that order.
``hops``: links crossed with this one. ``age``: seconds in histories so far."""
ENTRIES: Final = 1
"""``(keys,)``: so the sender has delivered."""
EARLY: Final = 2
"""``(key, hops, age)``: a payload that the sender has not delivered yet, or one that was asked for. Says nothing of
order."""
REPLAY: Final = 3
"""``(key, hops, age)``: on a new link, a payload in the order of delivery. Says nothing of trees."""
PRUNE: Final = 4
"""``(name,)``: send no payloads of this life."""
GRAFT: Final = 5
"""``(keys, once)``: send these; unless ``once``, further payloads of their lives as well."""
GONE: Final = 6
"""``(keys,)``: cannot be sent any more."""
VECTOR: Final = 7
"""``(vector, age)``: what the sender has delivered. ``age``: of a new node: seconds since when it wants everything;
otherwise negative. The answer is ``FLOORS``, and what the sender lacks."""
FLOORS: Final = 8
"""``(floors, first, whole, quiet)``: of each life, up to this number the sender has passed messages that it cannot
send. ``first``: it answers a vector; from here on the sender's entries are an order. ``whole``: for so many seconds the
sender has left out nothing because it was new itself. ``quiet``: of each life, for so many seconds nothing new of it
has come."""

NAME_BYTES: Final = 8
ENTRY_BYTES: Final = 6
ENTRIES_BYTES: Final = 2
"""Of the wire, without entries."""
PAYLOAD_BYTES: Final = ENTRIES_BYTES + ENTRY_BYTES + 6
EARLY_BYTES: Final = 1 + ENTRY_BYTES + 6
PRUNE_BYTES: Final = 3
VECTOR_BYTES: Final = 6
"""Kind, number of rows, age (of floors: whether they are the first, and for how long all is there)."""
VECTOR_ROW_BYTES: Final = NAME_BYTES + 4
FLOOR_ROW_BYTES: Final = VECTOR_ROW_BYTES + 1
"""How long it has been quiet goes in units of two seconds: beyond ``TOLD_S`` nothing is said of it."""


def named(keys: tuple[Key, ...]) -> int:
    """Bytes of the names that go with these entries."""
    found = 0
    for key in keys:
        if key[1] == 1:
            found += NAME_BYTES
    return found
