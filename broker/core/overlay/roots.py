"""Roots of trees: how far this node has delivered each root's messages, and which links carry their payloads.

Owns: a node's vector, which is its whole memory of duplicates; each root's tree, as masks of links; when a root can be
forgotten. Must never: send or deliver.

**When a root can be forgotten.** A vector that forgets a root would take a copy of an old message for a new one. So:

1. Every payload carries its age: the time that it has spent in histories since its root sent it. A history sends a
   payload only while it is younger than ``HISTORY_S``. Only the time on links does not count. A payload crosses few
   links, and a slow link goes down: together they take far less than ``TRANSIT_S``.
2. So no copy of a message arrives ``HISTORY_S + TRANSIT_S`` or longer after any node delivered it. A node that forgets
   its root after that delivers nothing twice.
3. A live root may merely be silent. A node must not see a gap before its next message. So a root that has been silent
   for ``RENEW_S`` begins another *life*: it takes another name, and counts from 1 again. ``FORGET_S`` is longer, so
   that no node forgets a life that still continues.
4. A node that has forgotten a life must not learn it again from one that got it later and has not forgotten it.
   Otherwise the life would circulate forever, and count as a gap each time. So a node that hears of a life also hears
   how long it has been quiet, and counts from there. A life that has been quiet for ``TOLD_S`` has ended, and none of
   its messages is under way. Nodes no longer mention it. A node that lacks part of such a life, after a cut that long,
   does not count a gap.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final, NamedTuple

from .node import Peer

#: Seconds for which a history sends a payload, from when its root sent it. A crash is noticed within a few seconds, and
#: its neighbours have new links a second later.
HISTORY_S: Final = 10.0

#: The longest total time of a payload on links, in seconds.
TRANSIT_S: Final = 100.0

#: A root that has been silent this long begins another life with its next message, in seconds.
RENEW_S: Final = 150.0

#: A life without new messages for this long is forgotten, in seconds.
FORGET_S: Final = 300.0

#: Nodes no longer mention a life without new messages for this long, in seconds. Nodes differ by the latest message's
#: transit time, and forget it later than this: ``FORGET_S`` is longer by more.
TOLD_S: Final = RENEW_S + TRANSIT_S

#: Maximum number of lives that a node knows at a time. Beyond that, lives silent for ``HISTORY_S + TRANSIT_S`` are
#: forgotten: a vector of this length takes 120 kB on a new link. If such a root then speaks within ``RENEW_S``, it
#: seems to have a gap, which is counted.
ROOTS_MAX: Final = 10_000

#: A mask without links, and one with all.
NOBODY: Final = 0
EVERYBODY: Final = -1

Vector = dict[Hashable, int]
"""The number of delivered messages, by root."""


class Life(NamedTuple):
    """The name of a root's second or later life. The first is named after the node. ``base``: messages of the lives
    before."""

    origin: Peer
    base: int


class Root:
    """One life of a root, as one node sees it. Masks are of the node's links.

    ``seq``: the number of its messages delivered here, or given up. ``at``: when the latest was delivered, here or by
    the node that told us, in seconds. ``eager``: the links that forward its payloads. ``parent``: the link that brings
    them, as far as known. ``refused``: links whose other end should stop sending payloads; some may still be under way.
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
    """The vector of all deliveries."""
    return {name: row.seq for name, row in rows.items() if row.seq}


def forget(rows: dict[Hashable, Root], now: float, roots_max: int = ROOTS_MAX) -> int:
    """Forget the lives that are due, and return their number."""
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
    """Change the bits of links in the masks: pairs of the former and the present bit. Other links are gone."""
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
