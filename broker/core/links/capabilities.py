"""An endpoint's capabilities beyond the version of the peer protocol, so that old and new releases work together; and
its grace time.

Owns: the names. Must never: know what a capability is for; the part that has it uses it towards the peers that have it,
too (``Membership``).

A release adds a name where it adds a request, a field or an effect that an endpoint of before would refuse. It uses
it over a link whose other end has named it as well, and does without towards the others.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Final

#: State that belongs to a slot is copied to its next home before it goes (``cluster.copying``).
COPIES: Final = "copies"

#: It keeps what others copy to it in case that they crash, and takes a message under the identity that it had
#: (``cluster.standby``).
STANDBY: Final = "standby"

#: It says to whoever joins whether it has acted without it (``cluster.membership``).
MISSED: Final = "missed"

#: It takes subscriptions that end by themselves, and word of features that are on (``cluster.features``).
ENDING: Final = "ending"

#: It is told which tokens have been revoked, and lets none of them in (``clients.revoking``).
REVOCATION: Final = "revocation"

#: It takes subscriptions with filters (``messages.filtering``).
FILTERS: Final = "filters"

#: It keeps messages, and says which a client has missed (``core.history``).
HISTORY: Final = "history"

#: The same, and they are written to the embedded store before they are handed over (``core.history.journal``).
JOURNAL: Final = "journal"

#: All of this release's.
CAPABILITIES: Final = frozenset((COPIES, STANDBY, MISSED, ENDING, REVOCATION, FILTERS, HISTORY, JOURNAL))

#: The prefix of the name that carries an endpoint's grace time, in seconds (``Membership.grace_s``). A peer of an older
#: release uses its own.
GRACE: Final = "grace="

#: A peer's of before there were any.
NONE: Final[frozenset[str]] = frozenset()

#: A peer names no more: a handshake is bounded.
CAPABILITIES_MAX: Final = 64


def with_grace(grace_s: float) -> frozenset[str]:
    """The capabilities that an endpoint with this grace time, in seconds, sends to its peers."""
    return CAPABILITIES | {f"{GRACE}{grace_s!r}"}


def grace_of(capabilities: Iterable[str]) -> float:
    """The grace time among a peer's capabilities, in seconds; infinity if there is none, or a malformed one."""
    for name in capabilities:
        if name.startswith(GRACE):
            try:
                grace_s = float(name[len(GRACE) :])
            except ValueError:
                break
            return grace_s if grace_s > 0 else math.inf
    return math.inf
