"""HyParView: views of a few nodes under any faults; and one node alone."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingeborg.broker.core.overlay.node import Node, Peer, Wire
from ingeborg.broker.core.overlay.views import (
    ACTIVE,
    ACTIVE_MAX,
    IDLE_S,
    LOST_S,
    PASSIVE_MAX,
    REFUSALS_MAX,
    RETRY_S,
    SHUFFLE_S,
    Hyparview,
    Options,
)
from ingeborg.broker.core.overlay.words import ACCEPT, DISCONNECT, FORWARD_JOIN, JOIN, NEIGHBOUR, REFUSE

from .histories import CRASHES, CUTS, LATE, PUT_OUT, SEVERED, History
from .paper import Paper
from .small import Small

#: Seconds after which a few nodes are one overlay again.
WHOLE_S = 25.0


class Told(Node):
    """A protocol above that records its calls."""

    def __init__(self) -> None:
        self.peers: dict[Peer, None] = {}
        self.ups = 0
        self.wires: list[Wire] = []
        self.dues: list[Any] = []

    def up(self, peer: Peer, dialled: bool) -> None:
        assert peer not in self.peers
        self.peers[peer] = None
        self.ups += 1

    def down(self, peer: Peer) -> None:
        del self.peers[peer]

    def received(self, peer: Peer, wire: Wire, payload_bytes: int) -> None:
        assert peer in self.peers
        self.wires.append(wire)

    def due(self, what: Any) -> None:
        self.dues.append(what)


def alone(active: int = ACTIVE, active_max: int = ACTIVE_MAX) -> tuple[Paper, Hyparview, Told]:
    """Return one node at a desk that only records."""
    paper, told = Paper(), Told()
    return paper, Hyparview(paper, "me", told, Options(active, active_max)), told


def neighbours(node: Hyparview, *peers: str) -> None:
    """Make these peers neighbours, at their request."""
    for peer in peers:
        node.up(peer, False)
        node.received(peer, (NEIGHBOUR, False), 0)


def check(small: Small) -> None:
    """Check that neighbours know each other, and that views keep their bounds."""
    nodes = {number: small.places[number].node for number in small.living()}
    for number, node in nodes.items():
        assert isinstance(node, Hyparview)
        assert len(node.active) <= ACTIVE_MAX
        assert len(node.passive.names) <= PASSIVE_MAX
        assert number not in node.active
        assert number not in node.passive.names
        assert not set(node.active) & set(node.passive.names)
        for peer in node.active:
            assert isinstance(peer, int)
            other = nodes[peer]
            assert isinstance(other, Hyparview)
            assert number in other.active
            assert peer in small.places[number].links


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 1 << 20), nodes=st.integers(2, 12))
def test_views_are_whole_again_whatever_befalls_nodes(seed: int, nodes: int) -> None:
    history = History(seed, nodes)
    history.steps(60, (SEVERED, CRASHES, CUTS, LATE, PUT_OUT))
    history.small.run(WHOLE_S)
    assert history.reached() == len(history.small.living())
    check(history.small)


@pytest.mark.parametrize("share", [0.0, 0.3, 0.6, 0.8])
def test_most_of_many_nodes_may_crash(share: float) -> None:
    """No node stays alone, nodes hardly need the registry, and the overlay is one."""
    small = Small(lambda desk, me: Hyparview(desk, me, Told()), 7)
    small.add()
    small.node(0).start(None)
    for new in range(1, 150):
        small.add()
        small.node(new).start(small.random.randrange(new))
        small.run(0.05)
    small.run(2 * SHUFFLE_S)
    check(small)
    assert small.registry_reads == 0
    for node in small.random.sample(range(150), int(150 * share)):
        small.crash(node)
    small.run(6.0)
    views = {node: list(small.places[node].node.active) for node in small.living()}  # type: ignore[attr-defined]
    assert all(views.values())
    small.run(WHOLE_S)
    check(small)
    degrees = sorted(len(small.places[node].node.active) for node in small.living())  # type: ignore[attr-defined]
    assert degrees[0] >= ACTIVE - 1
    assert sum(degrees) / len(degrees) >= ACTIVE
    seen = {small.living()[0]: None}
    ahead = list(seen)
    for node in ahead:
        for peer in small.places[node].node.active:  # type: ignore[attr-defined]
            if peer not in seen:
                seen[peer] = None
                ahead.append(peer)
    assert len(seen) == len(small.living())
    assert small.registry_reads <= 0.4 * len(views), small.registry_reads


def test_an_overlay_at_rest_stays_as_it_is() -> None:
    """The overlay has no churn: neither joins nor new neighbours, though every view has room for one more."""
    history = History(5, 12)
    small = history.small
    small.run(30.0)
    nodes = [small.places[node].node for node in small.living()]
    before = [(list(node.active), node.joins, node.put_out) for node in nodes]  # type: ignore[attr-defined]
    small.run(120.0)
    assert [(list(node.active), node.joins, node.put_out) for node in nodes] == before  # type: ignore[attr-defined]


def test_a_lost_neighbour_is_replaced_without_joining_anew() -> None:
    history = History(5, 12)
    small = history.small
    joins = [small.places[node].node.joins for node in range(12)]  # type: ignore[attr-defined]
    reads = small.registry_reads
    small.crash(3)
    small.run(3.0)
    assert small.registry_reads == reads
    assert [small.places[node].node.joins for node in range(12)] == joins  # type: ignore[attr-defined]
    assert min(len(view) for view in history.views().values()) >= ACTIVE - 1


# One node alone


def test_a_newcomer_is_accepted_before_anything_else_is_said_to_it_and_walks_begin() -> None:
    paper, node, told = alone()
    neighbours(node, "a", "b")
    paper.take()
    node.up("n", False)
    node.received("n", (JOIN,), 0)
    walks = [(FORWARD_JOIN, "n", 6)] * 2
    assert [wire for _, wire in paper.sent] == [(ACCEPT,), *walks]
    assert [to for to, _ in paper.sent] == ["n", "a", "b"]
    assert "n" in told.peers


def test_a_contact_that_is_full_puts_another_out_for_a_newcomer() -> None:
    paper, node, told = alone(2, 3)
    neighbours(node, "a", "b", "c")
    node.up("n", False)
    node.received("n", (JOIN,), 0)
    assert len(node.active) == 3
    (out,) = {"a", "b", "c"} - set(node.active)
    assert paper.kinds(out)[-1] == DISCONNECT
    assert paper.hung_up == [out]
    assert out in node.passive.names
    assert list(told.peers) == list(node.active)


def test_a_request_without_priority_is_refused_by_a_full_node_and_one_with_it_is_not() -> None:
    paper, node, _ = alone(2, 3)
    neighbours(node, "a", "b", "c", "d")
    assert paper.sent[-1] == ("d", (REFUSE,))
    node.received("d", (NEIGHBOUR, True), 0)
    assert "d" in node.active
    assert len(node.active) == 3


def test_a_walk_ends_with_a_request_to_the_newcomer() -> None:
    paper, node, told = alone()
    neighbours(node, "a", "b")
    node.received("a", (FORWARD_JOIN, "n", 3), 0)
    assert paper.take()[-1] == ("b", (FORWARD_JOIN, "n", 2))
    assert "n" in node.passive.names
    node.received("a", (FORWARD_JOIN, "n", 0), 0)
    assert paper.dialled == ["n"]
    node.up("n", True)
    assert paper.sent[-1] == ("n", (NEIGHBOUR, False))
    assert "n" not in told.peers
    node.received("n", (ACCEPT,), 0)
    assert "n" in told.peers


def test_two_that_ask_each_other_are_neighbours_though_one_is_full() -> None:
    _, node, told = alone(3, 3)
    node.start(None)
    neighbours(node, "a", "b")
    node.passive.note("c")
    node.down("b")
    node.up("c", True)
    neighbours(node, "d")
    node.received("c", (NEIGHBOUR, False), 0)
    assert "c" in told.peers


def test_a_lost_neighbour_is_dialled_again_and_again_and_forgotten_at_last() -> None:
    paper, node, _ = alone(1, 2)
    neighbours(node, "a", "b")
    node.down("a")
    while paper.now < LOST_S + 2 * RETRY_S:
        paper.now += 0.1
        paper.due(node)
        for peer in paper.dialled:
            node.unreachable(peer)
        if paper.now < LOST_S - RETRY_S:
            assert paper.now < 2 * RETRY_S or paper.dialled.count("a") >= paper.now / RETRY_S - 1
    count = len(paper.dialled)
    paper.now += 60.0
    paper.due(node)
    assert len(paper.dialled) == count


def test_a_lost_neighbour_that_lives_and_refuses_is_asked_no_more_than_that() -> None:
    paper, node, _ = alone(1, 2)
    neighbours(node, "a", "b")
    node.down("a")
    for _ in range(20):
        paper.now += RETRY_S
        paper.due(node)
        if paper.dialled.count("a") > len([peer for peer in paper.hung_up if peer == "a"]):
            node.up("a", True)
            node.received("a", (REFUSE,), 0)
    assert paper.dialled.count("a") == REFUSALS_MAX
    assert "a" in node.passive.names


def test_who_knows_nobody_asks_the_registry_and_joins() -> None:
    paper, node, _ = alone()
    paper.registry = ["x", "y"]
    node.start("a")
    node.unreachable("a")
    assert node.registry_reads == 1
    assert paper.dialled == ["a", "x"]
    assert "y" in node.passive.names
    node.up("x", True)
    assert paper.sent == [("x", (JOIN,))]


def test_the_first_node_of_all_asks_nobody() -> None:
    paper, node, _ = alone()
    node.start(None)
    for _ in range(100):
        paper.now += 1.0
        paper.due(node)
    assert node.registry_reads == 0
    assert paper.dialled == []


def test_a_link_over_which_nothing_is_said_is_ended() -> None:
    paper, node, _ = alone()
    node.start(None)
    node.up("a", False)
    paper.now = 2 * SHUFFLE_S
    assert paper.now > IDLE_S
    paper.due(node)
    assert paper.hung_up == ["a"]


def test_who_leaves_tells_its_neighbours_and_is_not_sought() -> None:
    paper, node, told = alone()
    neighbours(node, "a", "b")
    node.leave()
    assert not told.peers
    assert paper.take()[-2:] == [("a", (DISCONNECT, True)), ("b", (DISCONNECT, True))]
    _, other, _ = alone()
    neighbours(other, "a", "b")
    other.received("a", (DISCONNECT, True), 0)
    assert "a" not in other.active
    assert "a" not in other.passive.names


def test_links_of_an_overlay_that_is_there_are_neighbours_without_a_word() -> None:
    paper, node, told = alone()
    peers = ["a", "b", "c", "d", "e"]
    node.expect(peers, [f"p{number}" for number in range(40)])
    for peer in peers:
        node.up(peer, peer < "c")
    assert list(told.peers) == peers
    assert paper.sent == []
    assert paper.dialled == [], "none is lacking while others are to come"
    assert len(node.passive.names) == PASSIVE_MAX


def test_wires_and_timers_of_the_protocol_above_are_passed_on() -> None:
    _, node, told = alone()
    neighbours(node, "a")
    node.received("a", (7, "x"), 3)
    node.due(("its", "own"))
    node.due(1)
    assert told.wires == [(7, "x")]
    assert told.dues == [("its", "own"), 1]
