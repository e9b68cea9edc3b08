"""The token revocations that this endpoint knows. SPEC section 2.4.

Owns: how to merge two revocations of the same tokens, and the check of whether a grant's token has been revoked. Must
never: read a clock, or know where a revocation came from. The module does no I/O, so the stores and the core share its
rules.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Final

from ..connections.grants import Grant
from ..model import JTI, Revocation

#: How long a revocation is remembered after its ``expires_at``, in seconds. Endpoints accept a token for ten seconds
#: after it expires, and their clocks differ.
KEPT_S: Final = 60.0


def is_over(revocation: Revocation, unix_s: float) -> bool:
    """Return whether all endpoints can forget the revocation."""
    return revocation.expires_at + KEPT_S <= unix_s


def later(one: Revocation, other: Revocation) -> Revocation:
    """Merge two revocations of the same claim and value: take the later ``issued_until`` and the later ``expires_at``.
    Merging in another order, or more than once, gives the same result."""
    issued_until = max(one.issued_until, other.issued_until)
    return one._replace(issued_until=issued_until, expires_at=max(one.expires_at, other.expires_at))


class Revocations:
    """The remembered revocations, by claim and value."""

    def __init__(self) -> None:
        self._ids: dict[str, Revocation] = {}
        self._subjects: dict[str, Revocation] = {}

    def __len__(self) -> int:
        return len(self._ids) + len(self._subjects)

    def add(self, revocations: Iterable[Revocation], unix_s: float) -> bool:
        """Remember these revocations, except expired revocations. Return true if they can revoke a token that was not
        revoked before."""
        names_more = False
        for revocation in revocations:
            if is_over(revocation, unix_s):
                continue
            known = self._ids if revocation.claim == JTI else self._subjects
            held = known.get(revocation.value)
            if held is None:
                known[revocation.value] = revocation
                names_more = True
            elif held != revocation:
                known[revocation.value] = later(held, revocation)
                names_more = names_more or revocation.issued_until > held.issued_until
        return names_more

    def names(self, grant: Grant) -> bool:
        """Return whether the grant's token has been revoked."""
        if grant.jti is not None and grant.jti in self._ids:
            return True
        revocation = self._subjects.get(grant.client)
        if revocation is None:
            return False
        return grant.issued_at is None or math.floor(grant.issued_at) <= revocation.issued_until

    def forget(self, unix_s: float) -> None:
        """Forget the revocations that have expired."""
        for known in (self._ids, self._subjects):
            for value in [value for value, revocation in known.items() if is_over(revocation, unix_s)]:
                del known[value]
