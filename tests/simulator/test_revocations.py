"""From a second after the operator's success on, no endpoint serves a revoked token, through any fault. Clients that
log in again are let in. Each planted fault that would break this is found."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ingeborg.broker.core.clients.revocations import Revocations
from ingeborg.broker.core.clients.revoking import Revoking
from ingeborg.broker.core.clients.sessions import Sessions
from ingeborg.broker.core.limits import Sizes
from ingeborg.broker.core.model import Shape
from ingeborg.broker.core.outgoing.sending import Sending
from tests import wants
from tests.planted import fault, search
from tests.proof import seeds

from .history import History
from .store import Store
from .world import Node

ONE_BY_ONE = Sizes(looked_at_per_slice=1, revoked_per_slice=1, closed_per_slice=0)

#: Options of histories, and the least number of successful revokes in 12 histories. Half as many connections are
#: closed, and half as many later tokens let in.
WAYS: dict[str, tuple[dict[str, Any], int]] = {
    "peace": ({"faults": False}, 110),
    "faults": ({}, 66),
    "drains": ({"drains": True}, 52),
    "slow": ({"slow": True}, 66),
    "cuts": ({"faults": False, "cuts": True, "drains": True}, 66),
    "crashes": ({"replication": True, "crashes": True}, 66),
    "lookup": ({"faults": False, "routing": "lookup"}, 66),
    "slices": ({"sizes": ONE_BY_ONE, "faults": False}, 66),
    "slices, faults": ({"sizes": ONE_BY_ONE}, 66),
    "memory": ({"shape": Shape(reads_memory=True), "drains": True}, 52),
}


@pytest.mark.parametrize(("options", "least"), WAYS.values(), ids=WAYS)
def test_who_is_revoked_is_served_nowhere_and_who_logs_in_anew_is(options: dict[str, Any], least: int) -> None:
    drawn = seeds(130_000, 12, 2)
    succeeded = closed = anew = 0
    for seed in drawn:
        history = History(seed, revokes=True, **options)
        assert not history.run(), f"seed {seed}: {history.violations[:5]}"
        assert history.tokens is not None
        succeeded += sum(one.succeeded_at < 1e9 for one in history.tokens.revoked)
        closed += history.tokens.closed
        anew += history.tokens.let_in_anew
    assert min(succeeded, closed, anew) >= drawn.enough(least // 2)
    assert succeeded >= drawn.enough(least)


# Planted faults


def a_peer_forgets(patch: pytest.MonkeyPatch) -> None:
    """A peer confirms a revocation, and does not apply it."""
    patch.setattr(Revoking, "told", lambda revoking, peer, number, arguments: revoking._desk.answer(peer, number))


def nobody_is_told(patch: pytest.MonkeyPatch) -> None:
    """An endpoint confirms a revocation once the store has it; the peers learn that only when they look."""
    patch.setattr(Revoking, "_tell", lambda revoking, word: revoking._close(word))


def not_recorded(patch: pytest.MonkeyPatch) -> None:
    """The store has lost the revocation when an endpoint starts."""
    patch.setattr(Store, "revocations", lambda store: [])


def read_before_the_others_tell(patch: pytest.MonkeyPatch) -> None:
    """After a lapse an endpoint trusts its read from before the lapse."""

    def joined(revoking: Revoking) -> None:
        revoking._round += 1
        revoking._is_current = True
        revoking._settle()

    patch.setattr(Revoking, "joined", joined)


def nobody_held_back(patch: pytest.MonkeyPatch) -> None:
    """An endpoint whose lease has lapsed goes on sending."""
    patch.setattr(Sending, "hold_back", lambda sending: None)
    patch.setattr(Sessions, "hold_back", lambda sessions: None)


def closed_and_not_shut(patch: pytest.MonkeyPatch) -> None:
    """Connections go on until they are closed some time later."""
    patch.setattr(Sessions, "revoke", lambda sessions, connection: None)
    patch.setattr(Sending, "close", lambda sending, connection, code: None)


def let_in_unasked(patch: pytest.MonkeyPatch) -> None:
    """An endpoint lets every client in."""
    patch.setattr(Node, "lets_in", lambda node, grant: True)


def too_many_named(patch: pytest.MonkeyPatch) -> None:
    """A revocation of a subject covers all of its tokens, even later ones."""

    def names(known: Revocations, grant: Any) -> bool:
        return grant.jti in known._ids or grant.client in known._subjects

    patch.setattr(Revocations, "names", names)


@pytest.mark.parametrize(
    ("plant", "options", "seed"),
    [
        fault(a_peer_forgets, {"faults": False}, seed=131_000),
        fault(nobody_is_told, {"faults": False}, seed=131_000),
        fault(not_recorded, {}, seed=131_015),
        fault(read_before_the_others_tell, {}, seed=131_100),
        fault(nobody_held_back, {}, seed=131_087),
        fault(closed_and_not_shut, {"faults": False}, seed=131_000),
        fault(let_in_unasked, {"faults": False}, seed=131_001),
        fault(too_many_named, {"faults": False}, seed=131_000),
    ],
)
def test_a_planted_fault_is_found(
    plant: Callable[[pytest.MonkeyPatch], None], options: dict[str, Any], seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    wants.interpreted()
    plant(monkeypatch)

    def found(seed: int) -> bool:
        history = History(seed, revokes=True, **options)
        history.run()
        assert history.tokens is not None
        return bool(history.tokens.check(history.subscribers))

    search(plant, seed, range(131_000, 131_200), found)
