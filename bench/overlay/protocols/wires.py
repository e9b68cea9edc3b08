"""The messages of the document's protocols: their kinds, and the bytes of each apart from the payload.

Owns: the numbers at the start of a message, and the cost of a message. Must never: send one.

A message is a tuple, made once and sent to many; no part of the code changes it. Its fields, kind by kind:

| kind | fields |
|---|---|
| ``GOSSIP`` | message, hops; the payload goes along |
| ``IHAVE``, ``GRAFT`` | message |
| ``PRUNE`` | |
| ``HELLO`` | is new: whether this link is the sender's first |
| ``DISCOVERY``, ``ALPHA`` | control id, from, to, preceding control id, path, way back |
| ``BETA``, ``PI``, ``RHO`` | control id, from, to, preceding control id, path |
| ``REDISCOVERY`` | control id, from, to |
| ``B_BETA`` | preceding control id, (message, hops, payload bytes) …; their payloads go along |

The id of a *message* is its root and the root's count (``Desk.deliver``); that of a control message is its creator and
that node's count. The document joins an address and a time (Algorithm 1, line 9); a count has the properties that it
requires of a clock: it never gives one number twice (section 3.1), and a later one is greater.

``hops`` counts the links that a payload has crossed, including its present one. It exists for the record of a run; no
protocol reads it, so its bytes do not count.
"""

from __future__ import annotations

from typing import Final

from ingeborg.broker.core.overlay.node import Peer, Wire

Mid = tuple[Peer, int]
"""Id of a message: its root, and the count of that node."""

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
"""A leaf's message on its way to the hub of a star; the hub sends ``GOSSIP``."""

KIND_BYTES: Final = 1

PEER_BYTES: Final = 6
"""An IPv4 address and a port."""

COUNT_BYTES: Final = 8
"""The document's time stamp: a 64-bit number, as in Java's clock."""

MID_BYTES: Final = PEER_BYTES + COUNT_BYTES

LENGTH_BYTES: Final = 2
"""Length of a path, in nodes."""

SIZE_BYTES: Final = 4
"""Length of a payload among others, in bytes (a single payload ends with its frame; frames cost all protocols the same,
and are left out)."""

GOSSIP_BYTES: Final = KIND_BYTES + MID_BYTES
IHAVE_BYTES: Final = KIND_BYTES + MID_BYTES
GRAFT_BYTES: Final = KIND_BYTES + MID_BYTES
PRUNE_BYTES: Final = KIND_BYTES
HELLO_BYTES: Final = KIND_BYTES + 1
REDISCOVERY_BYTES: Final = KIND_BYTES + MID_BYTES + 2 * PEER_BYTES
CONTROL_BYTES: Final = KIND_BYTES + 2 * MID_BYTES + 2 * PEER_BYTES
"""DISCOVERY and alpha to rho, without their paths."""


def control_bytes(wire: Wire) -> int:
    """Return the bytes of a DISCOVERY, or of one of alpha to rho: only its paths grow."""
    return CONTROL_BYTES + sum(LENGTH_BYTES + PEER_BYTES * len(path) for path in wire[5:])


def buffer_bytes(messages: int) -> int:
    """Return the bytes of a B_beta with this number of messages."""
    return KIND_BYTES + MID_BYTES + messages * (MID_BYTES + SIZE_BYTES)
