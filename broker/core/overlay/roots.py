"""The roots of trees. For each root a node stores the number of messages that it has delivered, and the links that
carry the root's payloads.

Owns: a node's vector, each root's tree (as masks of links), and the rule that says when a node may forget a root. A
node recognises duplicates only by its vector. Must never: send or deliver.

**When a root can be forgotten.** If a node forgot a root too early, it would take a copy of an old message for a new
message. These rules prevent this:

1. Every payload carries its age, which is the time that it has spent in histories since its root sent it. A history
   sends a payload only while its age is below ``HISTORY_S``. The age does not include the time on links. This time is
   far less than ``TRANSIT_S``, because a payload crosses few links, and a slow link goes down.
2. Because of rule 1, every copy of a message arrives within ``HISTORY_S + TRANSIT_S`` after the root sent the message.
   A node forgets a root only when it has delivered no message of the root for at least this long, so it delivers no
   message twice.
3. A silent root may still be alive, and nodes that have forgotten it must not see a gap before its next message. A root
   that has been silent for ``RENEW_S`` therefore begins another *life*. It takes another name and counts from 1 again.
   ``FORGET_S`` is longer, so that no node forgets a life that still continues.
4. A node that has forgotten a life must not learn it again from a node that learned the life later and still knows it.
   Otherwise the life would circulate forever, and count as a gap each time. A node that mentions a life therefore also
   says how long the life has been quiet, and the receiver continues this count. A life that has been quiet for
   ``TOLD_S`` has ended, and no message of the life is under way. Nodes no longer mention it. If a node was cut off for
   a long time and lacks a part of such a life, it does not count a gap.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final, NamedTuple

from .node import Peer

#: A history sends a payload for this time after the root sent it, in seconds. Neighbours notice a crash within a few
#: seconds, and have new links a second later.
HISTORY_S: Final = 10.0

#: The longest total time that a payload spends on links, in seconds.
TRANSIT_S: Final = 100.0

#: A root that has been silent for this time begins another life with its next message, in seconds.
RENEW_S: Final = 150.0

#: A node forgets a life that has had no new messages for this time, in seconds.
FORGET_S: Final = 300.0

#: A node no longer mentions a life that has had no new messages for this time, in seconds. Two nodes can date the
#: latest message differently, by at most its transit time. ``FORGET_S`` is longer than this time by more than that
#: difference, so no node mentions a life that another node has already forgotten.
TOLD_S: Final = RENEW_S + TRANSIT_S

#: The largest number of lives that a node knows at a time. If it knows more, it forgets lives that have been silent for
#: ``HISTORY_S + TRANSIT_S``. A vector of this length takes 120 kB on a new link. If a forgotten root sends its next
#: message within ``RENEW_S`` of its last message, it does not begin another life. A node that has forgotten the root
#: then counts a gap, although no message is missing.
ROOTS_MAX: Final = 10_000

#: A mask without links, and a mask with all links.
NOBODY: Final = 0
EVERYBODY: Final = -1

Vector = dict[Hashable, int]
"""The number of delivered messages, by the name of the root's life."""


class Life(NamedTuple):
    """The name of a root's second or later life. The first life has the name of the node. ``base`` is the number of
    messages in all earlier lives."""

    origin: Peer
    base: int


class Root:
    """One life of a root, as one node sees it. The masks refer to the node's links.

    ``seq`` is the number of messages delivered here or given up. ``at`` is when the latest message was delivered, here
    or at the node that mentioned the life, in seconds. ``eager`` has the links over which this node forwards the life's
    payloads. ``parent`` has the link that brings the payloads, if the node knows that link. ``refused`` has the links
    whose other end should stop sending payloads. Some of these payloads may still be under way.
    """

    __slots__ = ("at", "base", "eager", "name", "origin", "parent", "refused", "seq")

    def __init__(self, name: Hashable, at: float, eager: int) -> None:
        self.name = name
        self.origin: Peer = name
        self.base = 0
        if isinstance(name, Life):
            self.origin = name.origin
            self.base = name.base
        self.seq = 0
        self.at = at
        self.eager = eager
        self.parent = NOBODY
        self.refused = NOBODY


def vector(rows: dict[Hashable, Root]) -> Vector:
    """Return the vector of all deliveries."""
    return {name: row.seq for name, row in rows.items() if row.seq}


def forget(rows: dict[Hashable, Root], now: float, roots_max: int = ROOTS_MAX) -> int:
    """Forget the lives that may be forgotten now, and return their number."""
    over = len(rows) - roots_max
    silent = [name for name, row in rows.items() if row.at < now - FORGET_S]
    if len(silent) < over:
        safe = [name for name, row in rows.items() if now - FORGET_S <= row.at < now - HISTORY_S - TRANSIT_S]
        safe.sort(key=lambda name: rows[name].at)
        silent += safe[: over - len(silent)]
    for name in silent:
        del rows[name]
    return len(silent)


def renumber(rows: dict[Hashable, Root], bits: list[tuple[int, int]]) -> None:
    """Change the bits of links in all masks. ``bits`` has pairs of the former and the new bit of each link. Bits of
    other links are cleared, because those links are gone."""
    for row in rows.values():
        row.eager = _renumbered(row.eager, bits)
        row.parent = _renumbered(row.parent, bits)
        row.refused = _renumbered(row.refused, bits)


def _renumbered(mask: int, bits: list[tuple[int, int]]) -> int:
    found = NOBODY
    for former, present in bits:
        if mask & former:
            found |= present
    return found
