"""Capabilities: what two endpoints need from each other on a link beyond the version of the peer protocol. ADR 22.

Owns: this version's capabilities. Must never: know the purpose of a capability.

Each endpoint names in its handshake the capabilities that its peers must know. A peer that does not know one refuses
the link and says why. If a version adds a request, a field or an effect that an earlier version would refuse, it adds a
name here.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

#: The capabilities that this version knows and needs from its peers: none yet.
CAPABILITIES: Final[frozenset[str]] = frozenset()

#: Maximum number of capabilities that a peer can name, since a handshake is bounded.
CAPABILITIES_MAX: Final = 64


def unknown(named: Iterable[str]) -> list[str]:
    """Return the names that this version does not know, sorted."""
    return sorted(set(named) - CAPABILITIES)
