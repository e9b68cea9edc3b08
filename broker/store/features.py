"""Named features of a store. A feature marks contents that a version may not understand although it knows the layout's
number.

Owns: the features that this version knows, and the error for a store with an unknown feature. Must never: know a store,
or implement a feature.

A store records the names of its features. The endpoints of a store rely on each other to support these features, so a
process must not use the store if its version does not know one of the names.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from ingeborg.broker.core.model import StoreMisconfigured

FEATURES: Final[frozenset[str]] = frozenset()
"""The features that this version knows."""


def require_known(found: Collection[str], where: str) -> None:
    """Raise ``StoreMisconfigured`` if this version does not know one of the features. ``where`` describes the store for
    the message."""
    if unknown := ", ".join(map(repr, sorted(set(found) - FEATURES))):
        raise StoreMisconfigured(
            f"{where} has features that this version does not know: {unknown}. Start a version that knows them"
        )
