"""Features: what a store holds that needs more than its layout's number to be understood, by name.

Owns: the features that this version knows, and the words that refuse one that it does not know. Must never: know a
store, or carry a feature out.

A store records a set of names. The endpoints of a store rely on each other for what these say, so a process whose
version does not know one of them must not use the store.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from ingeborg.broker.core.model import StoreMisconfigured

FEATURES: Final[frozenset[str]] = frozenset()
"""Those that this version knows."""


def require_known(found: Collection[str], where: str) -> None:
    """``StoreMisconfigured`` if this version does not know one of these. ``where``: which store has them."""
    if unknown := ", ".join(map(repr, sorted(set(found) - FEATURES))):
        raise StoreMisconfigured(
            f"{where} has features that this version does not know: {unknown}. Start a version that knows them"
        )
