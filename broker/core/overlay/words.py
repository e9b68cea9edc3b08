"""The wires that nodes of ``views`` exchange, and their sizes.

Owns: the kinds of wires and their sizes. Must never: know a node.
"""

from __future__ import annotations

from typing import Final

# Kinds of wires; a protocol above has others, below 100.
JOIN: Final = 100
"""``()``: a newcomer to its contact, which accepts."""
FORWARD_JOIN: Final = 101
"""``(newcomer, ttl)``"""
NEIGHBOUR: Final = 102
"""``(priority,)``: asks to become a neighbour. With priority, the peer evicts another for it."""
ACCEPT: Final = 103
REFUSE: Final = 104
DISCONNECT: Final = 105
"""``(leaves,)``: ends the neighbourhood. ``leaves``: the sender also leaves the overlay."""
SHUFFLE: Final = 106
"""``(names, ttl, way)``: names from the first node's views, itself first; the nodes that have passed it on, in
order."""
SHUFFLED: Final = 107
"""``(names, way)``: names in return; the nodes still to pass, the next one last."""

#: Sizes on the wire: a kind with a number, and a name.
HEAD_BYTES: Final = 2
NAME_BYTES: Final = 8
