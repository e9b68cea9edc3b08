"""The messages of the document's protocols: their kinds, and the bytes of each kind without the payload.

Owns: the numbers at the start of a message, and the size of a message. Must never: send a message.

A message is a tuple, which is made once, sent to many nodes, and never changed. These are the fields of each kind:

| kind | fields |
|---|---|
| ``GOSSIP`` | message, hops; sent with the payload |
| ``IHAVE``, ``GRAFT`` | message |
| ``PRUNE`` | |
| ``HELLO`` | is new (whether this link is the sender's first) |
| ``DISCOVERY``, ``ALPHA`` | control id, from, to, preceding control id, path, way back |
| ``BETA``, ``PI``, ``RHO`` | control id, from, to, preceding control id, path |
| ``REDISCOVERY`` | control id, from, to |
| ``B_BETA`` | preceding control id, (message, hops, payload bytes) …; sent with their payloads |

The id of a *message* consists of its root and the root's count (``Desk.deliver``). The id of a control message consists
of its creator and that node's count. The document uses an address and a time instead (Algorithm 1, line 9). A count has
the properties that the document requires of a clock: it never gives a number twice (section 3.1), and later numbers are
greater.

``hops`` is the number of links that a payload has crossed, including its present link. It exists only for the record of
a run. No protocol reads it, so its bytes are not counted.
"""

from __future__ import annotations

from typing import Final

from ingeborg.broker.core.overlay.node import Peer, Wire

Mid = tuple[Peer, int]
"""The id of a message: its root, and the root's count."""

GOSSIP: Final = 1
IHAVE: Final = 2
GRAFT: Final = 3
PRUNE: Final = 4
HELLO: Final = 5
DISCOVERY: Final = 6
REDISCOVERY: Final = 7
ALPHA: Final = 8
BETA: Final = 9
PI: Final = 10
RHO: Final = 11
B_BETA: Final = 12
UP: Final = 13
"""A leaf's message to the hub of a star. The hub sends ``GOSSIP``."""

KIND_BYTES: Final = 1

PEER_BYTES: Final = 6
"""Bytes of an IPv4 address and a port."""

COUNT_BYTES: Final = 8
"""Bytes of the document's time stamp, a 64-bit number as in Java's clock."""

MID_BYTES: Final = PEER_BYTES + COUNT_BYTES

LENGTH_BYTES: Final = 2
"""Bytes for the length of a path, which is a number of nodes."""

SIZE_BYTES: Final = 4
"""Bytes for the length of each payload if a message has several payloads. (A single payload extends to the end of its
frame, so it needs no length. Frames are left out, because they cost all protocols the same.)"""

GOSSIP_BYTES: Final = KIND_BYTES + MID_BYTES
IHAVE_BYTES: Final = KIND_BYTES + MID_BYTES
GRAFT_BYTES: Final = KIND_BYTES + MID_BYTES
PRUNE_BYTES: Final = KIND_BYTES
HELLO_BYTES: Final = KIND_BYTES + 1
REDISCOVERY_BYTES: Final = KIND_BYTES + MID_BYTES + 2 * PEER_BYTES
CONTROL_BYTES: Final = KIND_BYTES + 2 * MID_BYTES + 2 * PEER_BYTES
"""Bytes of DISCOVERY, ALPHA, BETA, PI and RHO, without their paths."""


def control_bytes(wire: Wire) -> int:
    """Return the bytes of a DISCOVERY, ALPHA, BETA, PI or RHO. These kinds differ only in their paths."""
    return CONTROL_BYTES + sum(LENGTH_BYTES + PEER_BYTES * len(path) for path in wire[5:])


def buffer_bytes(messages: int) -> int:
    """Return the bytes of a B_beta with this number of messages."""
    return KIND_BYTES + MID_BYTES + messages * (MID_BYTES + SIZE_BYTES)
