"""Features: what a store is used for beyond its layout's number, by name.

Owns: the features that this version knows, what a name looks like, how many a store records, and the words that refuse
one that this version does not know. Must never: know a store, or carry a feature out.

A store records the features that are switched on. The endpoints on it rely on each other for them, so a process whose
version does not know one of them must not use the store.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final

from ingeborg.broker.core.model import StoreError, StoreMisconfigured

MEANING: Final = {
    # Every endpoint may become the second one, so every endpoint has to be able to.
    "standby": "what belongs to slots is kept at a second endpoint as well",
    # A home that does not know of them would deliver nothing to them.
    "ending": "there may be subscriptions that end by themselves, beside the plain ones",
    # An endpoint that does not know of it would let revoked tokens in.
    "revocation": "tokens that have been revoked are let in nowhere",
    # A home that does not know of them would deliver nothing to them.
    "filters": "there may be subscriptions with filters, beside the plain ones",
    # An endpoint that does not know of it would hand kept messages over that no other could tell clients of later.
    # A message that a home has not written is lost without a word when all endpoints end.
    "journal": "kept messages are written to the store as well",
    "history": "messages may be kept, and clients may be told what they have missed",
}
"""For people: what each feature does while it is switched on."""

FEATURES: Final = frozenset(MEANING)
"""Those that this version knows."""

FEATURES_MAX: Final = 32
"""So many at once: a few releases bring a handful, and whoever reads the layout reads them all."""

_NAME: Final = re.compile(r"[a-z][a-z0-9-]{0,31}", re.ASCII)


def require_name(feature: str) -> None:
    """``ValueError`` for what cannot be a feature's name, of this version or another."""
    if not _NAME.fullmatch(feature):
        raise ValueError(f"{feature[:64]!r} is no feature's name: a letter, then letters, digits and -, 32 at most")


def require_known(found: Collection[str], where: str) -> None:
    """``StoreMisconfigured`` if one of those that are switched on is not known here. ``where``: which store it is."""
    unknown = sorted(set(found) - FEATURES)
    if not unknown:
        return
    off = " ".join(f"`ingeborg features --off {name}`" for name in unknown)
    raise StoreMisconfigured(
        f"{where} is used with {_named(unknown)}, and this version knows {_named(sorted(FEATURES))} only: "
        f"start a version that knows what is in use, or switch it off with such a version first ({off})"
    )


def switched(found: Collection[str], feature: str, on: bool) -> frozenset[str]:
    """Those that are on once the feature has been switched. ``StoreError``: it would be one too many."""
    if not on:
        return frozenset(found) - {feature}
    if feature not in found and len(found) >= FEATURES_MAX:
        raise StoreError(
            f"{FEATURES_MAX} features are switched on, which is as many as a store records: switch one off before "
            f"{feature!r} is switched on"
        )
    return frozenset(found) | {feature}


def _named(names: Collection[str]) -> str:
    return f"the feature{'s' if len(names) > 1 else ''} {', '.join(map(repr, names))}"
