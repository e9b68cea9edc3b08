"""What nodes of ``views`` say to each other, and how many bytes that takes.

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
"""``(priority,)``: may I be your neighbour? With priority another is put out for it."""
ACCEPT: Final = 103
REFUSE: Final = 104
DISCONNECT: Final = 105
"""``(leaves,)``: no neighbour any more. ``leaves``: nor a node any more."""
SHUFFLE: Final = 106
"""``(names, ttl, way)``: names of the first node's views, itself first; the nodes that have passed it on, the first one
first."""
SHUFFLED: Final = 107
"""``(names, way)``: names in return; the nodes that it has yet to pass, the last one first to come."""

#: Sizes on the wire: a kind with a number, and a name.
HEAD_BYTES: Final = 2
NAME_BYTES: Final = 8
