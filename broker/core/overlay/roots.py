"""Roots of trees: how far each one's messages have been delivered here, and who sends and gets their payloads.

Owns: a node's vector, which is its whole memory of duplicates; each root's tree, as masks of links; when a root may be
forgotten. Must never: send or deliver.

**When a root may be forgotten.** A vector that forgets a root would take a copy of an old message for a new one. So:

1. Every payload carries its age, which is the time that it has spent in histories since its root sent it. A history
   gives a payload away only while it is younger than ``HISTORY_S``. Only the time on links is not counted. A payload
   crosses few links, and a link that takes long goes down: taken together, that is far below ``TRANSIT_S``.
2. So no copy of a message comes ``HISTORY_S + TRANSIT_S`` or longer after the message was delivered anywhere. Whoever
   forgets its root after that delivers nothing twice.
3. A root that lives may have been silent only. Its next message must not be taken for one with a gap before it. So a
   root that has been silent for ``RENEW_S`` begins another *life*: it takes another name, and counts from 1 again.
   ``FORGET_S`` is longer, so that nobody forgets a life that still goes on.

4. Whoever has forgotten a life must not learn of it anew from one who has not, who got it later: so it would go round
   for ever, and be a gap each time. A node that is told of a life is told how long it has been quiet, and counts from
   there. One that has been quiet for ``TOLD_S`` has ended, and nothing of it is under way: nobody is told of it, and
   whoever lacks some of it, after a cut as long as that, does not count it.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final, NamedTuple

from .node import Peer

#: Seconds for which a history gives a payload away, counted from when its root sent it. A crash is noticed within a few
#: seconds, and its neighbours have new links a second later.
HISTORY_S: Final = 10.0

#: What a payload may spend on links, in all, in seconds.
TRANSIT_S: Final = 100.0

#: A root that has been silent for so long begins another life with its next message, in seconds.
RENEW_S: Final = 150.0

#: A life of which nothing new has come for so long is forgotten, in seconds.
FORGET_S: Final = 300.0

#: A life of which nothing new has come for so long is not told of any more, in seconds. Nodes differ by what its latest
#: message took to them, and forget it later than this: ``FORGET_S`` is longer by more.
TOLD_S: Final = RENEW_S + TRANSIT_S

#: Lives known at a time. With more, those silent for ``HISTORY_S + TRANSIT_S`` are forgotten: a vector of so many takes
#: 120 kB on a new link. A root that then speaks again within ``RENEW_S`` seems to have a gap, which is counted.
ROOTS_MAX: Final = 10_000

#: A mask without a link, and one with all.
NOBODY: Final = 0
EVERYBODY: Final = -1

Vector = dict[Hashable, int]
"""Of each root how many of its messages have been delivered."""


class Life(NamedTuple):
    """The name of a root's second and later lives. Its first one is called as the node itself. ``base``: messages of
    the lives before."""

    origin: Peer
    base: int


class Root:
    """One life of a root, as one node sees it. Masks are of the node's links.

    ``seq``: of its messages so many are delivered here, or given up. ``at``: when the latest was delivered here, or by
    whoever has told of it, in seconds.
    ``eager``: the links over which its payloads go on. ``parent``: the one over which they come, as far as known.
    ``refused``: the ends of these links have been asked to send no payloads; what is under way may still come.
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
    """What has been delivered."""
    return {name: row.seq for name, row in rows.items() if row.seq}


def forget(rows: dict[Hashable, Root], now: float, roots_max: int = ROOTS_MAX) -> int:
    """Forget the lives that may be forgotten; how many that were."""
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
    """Links have other bits in the masks: pairs of the former bit and the present one. Other links are gone."""
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
