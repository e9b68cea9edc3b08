"""Capabilities: what two endpoints need of each other on a link beyond the version of the peer protocol. ADR 22.

Owns: those that this version knows. Must never: know what a capability is for.

Each endpoint names in its handshake what its peers have to know. A peer that does not know one of them refuses the link
and says why. A version that adds a request, a field or an effect which an earlier one would refuse adds a name here.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

#: What this version needs of its peers, and knows: nothing yet.
CAPABILITIES: Final[frozenset[str]] = frozenset()

#: A peer names no more: a handshake is bounded.
CAPABILITIES_MAX: Final = 64


def unknown(named: Iterable[str]) -> list[str]:
    """Those that this version does not know, sorted."""
    return sorted(set(named) - CAPABILITIES)
