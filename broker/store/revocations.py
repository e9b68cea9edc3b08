"""Revoked tokens as a store records them: all revocations in one value of limited size.

Owns: how the record grows, its maximum number of revocations, and the error for a record that would exceed this
maximum. Must never: know a store, or drop a revocation that has not expired.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from ingeborg.broker.core.clients.revocations import KEPT_S, is_over, later
from ingeborg.broker.core.model import JTI, SUB, Revocation, TooManyRevocations

REVOCATIONS_MAX: Final = 4096
"""The largest number of revocations that have not expired. Such a record has about 300 KB, at most 700 KB, and every
endpoint reads it every ten seconds. To revoke more tokens together, revoke a subject, or remove the keys that signed
the tokens."""


def recorded(found: Iterable[Revocation], more: Sequence[Revocation], unix_s: float) -> list[Revocation]:
    """Return the record with ``more`` added and expired revocations removed. If the record would grow beyond its limit,
    add none and raise ``TooManyRevocations``."""
    held = _by_name(one for one in found if not is_over(one, unix_s))
    before = len(held)
    held = _by_name((*held.values(), *(one for one in more if not is_over(one, unix_s))))
    if len(held) > max(before, REVOCATIONS_MAX):  # a merge of two records may have exceeded the limit already
        expiry = datetime.fromtimestamp(min(one.expires_at for one in held.values()) + KEPT_S, UTC)
        raise TooManyRevocations(
            f"the store has {REVOCATIONS_MAX:,} revocations that have not expired, which is its limit. The next one "
            f"expires at {expiry:%Y-%m-%d %H:%M:%S} UTC. Revoke a subject instead of single tokens, or remove the key "
            "that signed the tokens from auth-keys"
        )
    return sorted(held.values())


def union(one: Iterable[Revocation], other: Iterable[Revocation]) -> list[Revocation]:
    """Return one record with all revocations of both records."""
    return sorted(_by_name((*one, *other)).values())


def _by_name(revocations: Iterable[Revocation]) -> dict[tuple[str, str], Revocation]:
    held: dict[tuple[str, str], Revocation] = {}
    for one in revocations:
        key = (one.claim, one.value)
        held[key] = later(held.get(key, one), one)
    return held


def unpacked(value: Any) -> list[Revocation]:
    """Return the revocations in a stored record. Raise ``ValueError`` if the record is invalid."""
    if not isinstance(value, list):
        raise ValueError("the record of revocations is not a list")
    found = []
    for entry in value:
        if not isinstance(entry, list) or list(map(type, entry)) != [str, str, int, int] or entry[0] not in (JTI, SUB):
            raise ValueError("the record of revocations has an invalid entry")
        found.append(Revocation(*entry))
    return found
