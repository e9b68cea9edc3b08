"""Which peers the mesh dials, and when."""

from __future__ import annotations

import pytest

from ingeborg.broker.core.cluster.membership import Membership
from ingeborg.broker.core.cluster.mesh import PEERS_TURN_S, REDIAL_FIRST_S, REDIAL_MAX_S, Mesh
from ingeborg.broker.core.dedup.inflight import InFlight
from ingeborg.broker.core.effects import Dial
from ingeborg.broker.core.links.calls import Calls
from ingeborg.broker.core.model import Endpoint

from ..fake_desk import FakeDesk

ME = Endpoint("me", "m", "ws://me", 0)
PEER = Endpoint("peer", "p", "ws://peer", 1)
SMALLER = Endpoint("smaller", "a", "ws://smaller", 1)


@pytest.fixture
def desk() -> FakeDesk:
    return FakeDesk()


def make(desk: FakeDesk, *peers: Endpoint) -> Mesh:
    members = Membership(ME, desk.now)
    members.registry(peers, desk.now, desk.now)
    return Mesh(desk.real, members, Calls(), InFlight(10, 1000), desk.counters.errors)


@pytest.fixture
def mesh(desk: FakeDesk) -> Mesh:
    return make(desk, PEER)


def dialled(mesh: Mesh, desk: FakeDesk, later_s: float = 0.0) -> list[str]:
    desk.now += later_s
    mesh.tick()
    names = [act.endpoint.name for act in desk.acts if isinstance(act, Dial)]
    desk.acts.clear()
    return names


def test_of_two_endpoints_the_one_with_the_smaller_incarnation_dials_and_the_other_if_it_does_not(
    desk: FakeDesk,
) -> None:
    mesh = make(desk, PEER, SMALLER)
    assert dialled(mesh, desk) == ["peer"]
    assert dialled(mesh, desk, PEERS_TURN_S - 0.01) == []
    assert dialled(mesh, desk, 0.01) == ["smaller"]


def test_a_peer_that_has_dialled_is_not_dialled(desk: FakeDesk) -> None:
    mesh = make(desk, SMALLER)
    assert dialled(mesh, desk) == []
    mesh.link_up(SMALLER)
    assert dialled(mesh, desk, PEERS_TURN_S) == []


def test_a_peer_that_cannot_be_reached_is_dialled_with_growing_pauses(mesh: Mesh, desk: FakeDesk) -> None:
    assert dialled(mesh, desk) == ["peer"]
    pauses = []
    for _ in range(8):
        mesh.dial_failed("p")
        since = desk.now
        while not dialled(mesh, desk, 0.01):
            pass
        pauses.append(round(desk.now - since, 2))
    assert pauses == [REDIAL_FIRST_S, 0.2, 0.4, 0.8, *[REDIAL_MAX_S] * 4]


def test_a_peer_is_not_dialled_a_second_time_while_it_is_being_dialled(mesh: Mesh, desk: FakeDesk) -> None:
    assert dialled(mesh, desk) == ["peer"]
    assert dialled(mesh, desk, 60.0) == []
    mesh.dial_failed("p")
    assert dialled(mesh, desk) == ["peer"]


def test_a_peer_that_is_linked_is_not_dialled_until_the_link_is_down(mesh: Mesh, desk: FakeDesk) -> None:
    assert dialled(mesh, desk) == ["peer"]
    mesh.link_up(PEER)
    assert dialled(mesh, desk, 10.0) == []
    mesh.link_down("p")
    assert dialled(mesh, desk) == ["peer"]
