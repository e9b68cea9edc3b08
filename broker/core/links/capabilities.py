"""Capabilities: the features that two linked endpoints require from each other, beyond the version of the peer
protocol. ADR 22.

Owns: this version's capabilities. Must never: know the purpose of a capability.

Each endpoint lists in its handshake the capabilities that its peers must know. If a peer does not know one of these, it
refuses the link and gives the reason. If a new version adds a request, a field or an effect that an earlier version
would refuse, the new version must add a name to ``CAPABILITIES``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

#: The capabilities that this version knows and requires from its peers. ``usual-answers``: ``frames.UsualAnswers`` and
#: ``frames.Hurry``.
CAPABILITIES: Final[frozenset[str]] = frozenset(("usual-answers",))

#: The largest number of capabilities that a peer may list. It bounds the size of a handshake.
CAPABILITIES_MAX: Final = 64


def unknown(named: Iterable[str]) -> list[str]:
    """Return the names that this version does not know, sorted."""
    return sorted(set(named) - CAPABILITIES)
