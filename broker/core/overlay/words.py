"""The protocol messages (*wires*) that nodes of ``views`` exchange, and their sizes.

Owns: the kinds of wires and their sizes. Must never: know about nodes.
"""

from __future__ import annotations

from typing import Final

# Kinds of wires. The higher-level protocol has other kinds, with numbers below 100.
JOIN: Final = 100
"""``()``: a newcomer asks its contact to become its neighbour. The contact accepts."""
FORWARD_JOIN: Final = 101
"""``(newcomer, ttl)``"""
NEIGHBOUR: Final = 102
"""``(priority,)``: a request to become the peer's neighbour. With priority, the peer evicts another neighbour if it has
no room."""
ACCEPT: Final = 103
REFUSE: Final = 104
DISCONNECT: Final = 105
"""``(leaves,)``: the sender is no longer a neighbour. ``leaves``: whether it also leaves the overlay."""
SHUFFLE: Final = 106
"""``(names, ttl, way)``: ``names`` are nodes from the views of the shuffle's first node, beginning with this node
itself. ``way`` has the nodes that have forwarded the shuffle, in order."""
SHUFFLED: Final = 107
"""``(names, way)``: the answer to a shuffle. ``names`` are nodes from the passive view of the answering node. ``way``
has the nodes that must still forward the answer. The next node is the last item."""

#: Sizes in bytes: the kind with one number, and the name of a node.
HEAD_BYTES: Final = 2
NAME_BYTES: Final = 8
