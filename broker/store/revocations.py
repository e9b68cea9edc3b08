"""Revoked tokens as a store records them: all in one value, bounded.

Owns: what becomes of the record when more is put to it, how many it holds, and the words that refuse one too many. Must
never: know a store, or let go of a revocation that has not expired.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from ingeborg.broker.core.clients.revocations import KEPT_S, is_over, later
from ingeborg.broker.core.model import JTI, SUB, Revocation, TooManyRevocations

REVOCATIONS_MAX: Final = 4096
"""So many that have not expired: some 300 KB, 700 KB at the most, which every endpoint reads every ten seconds. Who has
to take back more at once takes back a subject, or the keys."""


def recorded(found: Iterable[Revocation], more: Sequence[Revocation], unix_s: float) -> list[Revocation]:
    """The record once these have been put to it, and what is over has gone. ``TooManyRevocations``: it would hold more
    than it may, and does not grow: so none of these are put to it."""
    held = _by_name(one for one in found if not is_over(one, unix_s))
    before = len(held)
    held = _by_name((*held.values(), *(one for one in more if not is_over(one, unix_s))))
    if len(held) > max(before, REVOCATIONS_MAX):  # where two records were merged there may be more already
        expiry = datetime.fromtimestamp(min(one.expires_at for one in held.values()) + KEPT_S, UTC)
        raise TooManyRevocations(
            f"{REVOCATIONS_MAX:,} revocations have not expired yet, which is as many as a store records: the next one "
            f"goes at {expiry:%Y-%m-%d %H:%M:%S} UTC. Revoke a subject instead of single tokens, or take the key that "
            "signed them out of auth-keys"
        )
    return sorted(held.values())


def union(one: Iterable[Revocation], other: Iterable[Revocation]) -> list[Revocation]:
    """Two records as one: nothing that is in either is lost."""
    return sorted(_by_name((*one, *other)).values())


def _by_name(revocations: Iterable[Revocation]) -> dict[tuple[str, str], Revocation]:
    held: dict[tuple[str, str], Revocation] = {}
    for one in revocations:
        key = (one.claim, one.value)
        held[key] = later(held.get(key, one), one)
    return held


def unpacked(value: Any) -> list[Revocation]:
    """The revocations of a record as it is stored. ``ValueError`` for what is none."""
    if not isinstance(value, list):
        raise ValueError("no list where that of revocations belongs")
    found = []
    for entry in value:
        if not isinstance(entry, list) or list(map(type, entry)) != [str, str, int, int] or entry[0] not in (JTI, SUB):
            raise ValueError("no revocation where one belongs")
        found.append(Revocation(*entry))
    return found
