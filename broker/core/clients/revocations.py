"""Which tokens have been taken back, as far as this endpoint has been told. SPEC section 2.4.

Owns: what of two revocations of one thing is true, and whether a grant's token is named by any. Must never: read a
clock, or know where a revocation came from. Pure: the stores and the core judge by the same rules.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Final

from ..connections.grants import Grant
from ..model import JTI, Revocation

#: A revocation is remembered for so much longer than it says, in seconds: a token is accepted for ten seconds longer
#: than it says, too, and the endpoints' clocks differ.
KEPT_S: Final = 60.0


def is_over(revocation: Revocation, unix_s: float) -> bool:
    """Need nobody remember it any more?"""
    return revocation.expires_at + KEPT_S <= unix_s


def later(one: Revocation, other: Revocation) -> Revocation:
    """What is true of two of one claim and value: the later of each time. In any order, and any number of times."""
    issued_until = max(one.issued_until, other.issued_until)
    return one._replace(issued_until=issued_until, expires_at=max(one.expires_at, other.expires_at))


class Revocations:
    """Those that are remembered, by claim and value."""

    def __init__(self) -> None:
        self._ids: dict[str, Revocation] = {}
        self._subjects: dict[str, Revocation] = {}

    def __len__(self) -> int:
        return len(self._ids) + len(self._subjects)

    def add(self, revocations: Iterable[Revocation], unix_s: float) -> bool:
        """Remember these, but those that are over. True: a token may be named now that was not before."""
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
        """Has the token been revoked that the grant came of?"""
        if grant.jti is not None and grant.jti in self._ids:
            return True
        revocation = self._subjects.get(grant.client)
        if revocation is None:
            return False
        return grant.issued_at is None or math.floor(grant.issued_at) <= revocation.issued_until

    def forget(self, unix_s: float) -> None:
        """Those that are over."""
        for known in (self._ids, self._subjects):
            for value in [value for value, revocation in known.items() if is_over(revocation, unix_s)]:
                del known[value]
