"""Making a link safe: figure 3.3, joins, broken paths, and the purpose of the repairs.

All tests use PRC, which only adds sending over all links.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from random import Random

import pytest

from ingeborg.bench.overlay.protocols import linking
from ingeborg.bench.overlay.protocols.linking import LinkingOptions
from ingeborg.bench.overlay.protocols.prc import Prc
from ingeborg.bench.overlay.protocols.repairs import REPAIRED, Repairs
from ingeborg.bench.overlay.protocols.wires import (
    ALPHA,
    B_BETA,
    BETA,
    DISCOVERY,
    GOSSIP,
    HELLO,
    PI,
    REDISCOVERY,
    RHO,
)
from ingeborg.broker.core.overlay.node import Desk, Peer, Wire

from .small import Make, World, chords, ring, wander

CONTROL = (DISCOVERY, REDISCOVERY, ALPHA, BETA, PI, RHO)


def with_repairs(repairs: Repairs = REPAIRED) -> Make:
    def make(desk: Desk, me: Peer, neighbours: Sequence[Peer]) -> Prc:
        return Prc(desk, me, neighbours, LinkingOptions(repairs=repairs))

    return make


def node_of(world: World, name: Peer) -> Prc:
    node = world.nodes[name]
    assert isinstance(node, Prc)
    return node


def is_safe(world: World, one: Peer, other: Peer) -> bool:
    """Is the link to the other safe at both of its ends?"""
    return node_of(world, one).is_outgoing(other) and one in node_of(world, other).in_view


def about(kind: int, origin: Peer, target: Peer) -> Callable[[Peer, Peer, Wire], bool]:
    """Match messages of this kind about the link between the two, in this direction."""
    return lambda frm, to, wire: wire[0] == kind and wire[2:4] == (origin, target)


# The exchange


def carry(world: World, way: Sequence[Peer], want: Callable[[Wire], bool]) -> Wire:
    """Deliver messages along this way up to and including the wanted one."""
    wire: Wire | None = None
    for frm, to in pairwise(way):
        while (wire := world.pass_on(frm, to)) is None or not want(wire):
            pass
    assert wire is not None
    return wire


def test_figure_3_3_step_by_step() -> None:
    world = World(Prc, ["N1", "N2", "N3"], [("N1", "N3"), ("N3", "N2")])
    n1, n2 = node_of(world, "N1"), node_of(world, "N2")
    order1, order2 = world.judge.order["N1"], world.judge.order["N2"]
    there, back = ("N1", "N3", "N2"), ("N2", "N3", "N1")

    def control(kind: int) -> Callable[[Wire], bool]:
        return lambda wire: wire[0] == kind

    def message(mid: tuple[Peer, int]) -> Callable[[Wire], bool]:
        return lambda wire: wire[:2] == (GOSSIP, mid)

    # The link comes up. N1 hears N2's HELLO and looks for a path; N1's HELLO stays under way until B_beta is behind it,
    # so that N2 does nothing yet about its own link to N1.
    world.link("N1", "N2")
    world.pass_on("N2", "N1")
    world.pass_on("N1", "N2")
    assert world.pass_on("N2", "N1") == (HELLO, False)
    assert n1.unsafe_out == {"N2": ("N1", 1)}
    carry(world, there, control(DISCOVERY))
    assert n2.unsafe_in == {"N1": ("N2", 1)}

    # m1a: delivered by N1 before alpha; N2 has it when alpha comes. m2a: delivered by N2 before beta; N1 has it when
    # beta comes.
    m1a = world.broadcast("N1")
    carry(world, back, control(DISCOVERY))
    assert n1.paths_out == {"N2": ("N3", "N2")}
    m2a = world.broadcast("N2")
    carry(world, there, control(ALPHA))
    assert order2 == [m2a, m1a]
    assert n2.paths_in == {"N1": ("N3", "N1")}
    assert (n2.r_buffers["N1"].alpha, n2.r_buffers["N1"].pi) == (set(), None)

    # Into B_alpha: N2's deliveries from alpha to pi. N1 has one of the two before its own buffer begins.
    both_alpha_and_beta = world.broadcast("N2")
    alpha_alone = world.broadcast("N1")
    carry(world, back, control(BETA))
    assert order1 == [m1a, alpha_alone, m2a]
    assert n1.s_buffers == {"N2": []}

    # Into B_beta: N1's deliveries from beta to rho.
    both_pi_and_beta = world.broadcast("N1")
    carry(world, there, control(PI))
    buffers = n2.r_buffers["N1"]
    assert (buffers.alpha, buffers.pi) == ({both_alpha_and_beta, alpha_alone}, set())

    # Into B_pi: N2's deliveries from pi to B_beta.
    carry(world, there, message(both_pi_and_beta))
    pi_alone = world.broadcast("N2")
    beta_alone = world.broadcast("N1")
    carry(world, back, control(RHO))
    assert buffers.pi == {both_pi_and_beta, pi_alone}
    assert not n1.s_buffers
    assert not n1.unsafe_out
    assert n1.is_outgoing("N2")
    assert pi_alone not in order1

    # Over the new link: N2 delivers the messages that only B_beta has, expects those that only B_pi has, and ignores
    # the rest.
    assert world.pass_on("N1", "N2") == (HELLO, False)
    before = list(order2)
    assert sum(each.size for each in world.ways["N1", "N2"]) == 3 * 100  # payloads go along
    wire = carry(world, ("N1", "N2"), control(B_BETA))
    assert [mid for mid, _, _ in wire[2]] == [both_pi_and_beta, beta_alone, both_alpha_and_beta]
    assert order2 == [*before, beta_alone]
    assert world.judge.hops["N2", beta_alone] == 1
    assert world.judge.hops["N2", both_pi_and_beta] == 2
    assert n2.expected_from("N1") == {pi_alone}
    assert "N1" in n2.in_view
    assert not n2.r_buffers
    assert not n2.unsafe_in

    world.flow()
    assert (world.judge.doubles(), world.judge.disorder(), world.judge.lacking(world.nodes)) == ([], [], [])
    assert all(not node_of(world, name).expected for name in world.nodes)
    assert is_safe(world, "N2", "N1")


def test_both_directions_are_made_safe_and_nothing_is_left_of_it() -> None:
    world = World(Prc, range(4), ring(4), Random(3))
    world.link(0, 2)
    world.flow()
    assert is_safe(world, 0, 2)
    assert is_safe(world, 2, 0)
    for name in world.nodes:
        node = node_of(world, name)
        assert not any((node.unsafe_in, node.unsafe_out, node.r_buffers, node.s_buffers))
        assert not any((node.paths_in, node.paths_out, node.discovery_timers))


def test_no_message_goes_over_a_link_that_is_not_safe() -> None:
    world = World(Prc, range(4), ring(4))
    world.link(0, 2)
    world.flow(lambda frm, to, wire: wire[0] in CONTROL)
    world.broadcast(0)
    assert [way[1] for way in world.sent if way[2][0] == GOSSIP] == [1, 3]


def test_the_links_of_a_built_overlay_are_safe_and_nothing_is_said_on_them() -> None:
    world = World(Prc, range(4), ring(4))
    for one, other in ring(4):
        # As the simulator does: it reports links that the node was made with.
        world.nodes[one].up(other, True)
        world.nodes[other].up(one, False)
        assert is_safe(world, one, other)
        assert is_safe(world, other, one)
    assert world.sent == []


# Joins


def test_the_first_link_of_a_new_node_is_safe_at_once() -> None:
    world = World(Prc, range(3), ring(3))
    world.add("new")
    world.link("new", 1)
    world.flow()
    assert is_safe(world, "new", 1)
    assert is_safe(world, 1, "new")
    assert [wire[0] for _, _, wire in world.sent] == [HELLO, HELLO]


def test_its_second_link_is_not() -> None:
    world = World(Prc, range(3), ring(3))
    world.add("new")
    world.link("new", 1)
    world.flow()
    world.link("new", 2)
    world.flow(lambda frm, to, wire: wire[0] in CONTROL)
    assert not is_safe(world, "new", 2)
    assert not is_safe(world, 2, "new")
    world.flow()
    assert is_safe(world, "new", 2)
    assert is_safe(world, 2, "new")


def test_a_new_node_is_new_until_it_has_delivered_something() -> None:
    world = World(Prc, range(3), ring(3))
    world.add("new")
    for contact in (1, 2):  # the first is gone before it has said anything
        world.link("new", contact)
        world.flow()
        assert is_safe(world, "new", contact)
        if contact == 1:
            world.cut("new", contact)
            world.flow()
    world.broadcast(0)
    world.flow()
    world.cut("new", 2)
    world.flow()
    world.link("new", 1)
    world.settle()
    assert not node_of(world, "new").in_view


def test_a_new_nodes_hello_may_come_before_its_link_too() -> None:
    world = World(Prc, range(3), ring(3))
    world.add("new")
    world.link("new", 1)
    world.pass_on(1, "new")
    hello = world.ways["new", 1].pop()
    assert hello.wire == (HELLO, True)
    world.nodes[1].received("new", hello.wire, 0)
    world.flow()
    assert is_safe(world, "new", 1)
    assert is_safe(world, 1, "new")


def test_a_hello_may_come_before_its_link() -> None:
    world = World(Prc, range(3), [(0, 1), (1, 2)])
    world.link(0, 2)
    world.pass_on(0, 2)  # 2 has the link, 0 has not
    hello = world.ways[2, 0].pop()
    assert hello.wire is not None
    world.nodes[0].received(2, hello.wire, 0)
    world.settle()
    assert is_safe(world, 0, 2)
    assert is_safe(world, 2, 0)


# Broken paths, lost messages


def square() -> World:
    """Return N1 and N2 with a new link, and two ways between them."""
    return World(Prc, ["N1", "N2", "N3", "N4"], [("N1", "N3"), ("N3", "N2"), ("N1", "N4"), ("N4", "N2")])


def test_a_broken_path_has_its_origin_look_for_another() -> None:
    world = square()
    alpha = about(ALPHA, "N1", "N2")
    world.link("N1", "N2")
    world.flow(lambda *way: alpha(*way) and way[1] != "N2")
    broken = node_of(world, "N1").paths_out["N2"][0]
    world.cut(broken, "N2")
    while world.busy() != [("N1", broken)] and ("N2", broken) in world.busy():
        world.pass_on("N2", broken)
    before = len(world.sent)
    world.flow()
    kinds = [wire[0] for _, _, wire in world.sent[before:]]
    assert REDISCOVERY in kinds
    assert is_safe(world, "N1", "N2")
    assert is_safe(world, "N2", "N1")
    assert world.timers  # no timer had to go off


def test_a_lost_control_message_has_the_exchange_begun_again() -> None:
    world = square()
    world.link("N1", "N2")
    world.flow(about(BETA, "N1", "N2"))
    way = next(way for way in world.busy() if world.ways[way][0].wire is not None)
    world.ways[way].popleft()
    world.flow()
    assert not is_safe(world, "N1", "N2")
    world.settle()
    assert is_safe(world, "N1", "N2")
    assert is_safe(world, "N2", "N1")


def test_a_neighbour_to_which_no_path_leads_is_given_up() -> None:
    world = World(Prc, "abcd", [("a", "b"), ("c", "d")])
    world.link("a", "c")
    world.settle()
    discoveries = [wire for frm, _, wire in world.sent if frm == "a" and wire[0] == DISCOVERY]
    assert len(discoveries) == 1 + LinkingOptions().max_discoveries
    assert not world.sessions.get(frozenset("ac"))
    for name in "ac":
        node = node_of(world, name)
        assert list(node.links) == list(node.out_view)
        assert not node.unsafe_out


def test_a_link_that_is_gone_may_be_said_to_be_gone_again() -> None:
    """A membership that must provide another neighbour reports this itself."""
    world = World(Prc, range(4), ring(4))
    node = node_of(world, 0)
    for _ in range(2):
        node.down(1)
        assert node.in_view == list(node.out_view) == [3]


def test_what_is_kept_of_a_link_goes_with_it() -> None:
    for kind in CONTROL:
        world = World(Prc, range(4), ring(4))
        world.link(0, 2)
        world.flow(lambda frm, to, wire, kind=kind: wire[0] == kind)  # type: ignore[misc]
        world.cut(0, 2)
        world.settle()
        for name in world.nodes:
            node = node_of(world, name)
            assert not any((node.unsafe_in, node.unsafe_out, node.r_buffers, node.s_buffers, node.answered))
            assert not any((node.paths_in, node.paths_out, node.discovery_timers, node.early))
            assert list(node.links) == node.in_view == list(node.out_view)


# Repairs


def half_safe(repairs: Repairs, seed: int) -> bool:
    """Does a link stay safe in only one direction, or in none, forever?"""
    world = World(with_repairs(repairs), range(5), ring(5), Random(seed))
    wander(world, chords(5), range(5), 400)
    world.settle()
    return any(set(node_of(world, name).links) != set(node_of(world, name).out_view) for name in world.nodes)


def test_repair_two_ways_keeps_the_exchanges_of_a_pair_apart() -> None:
    printed = replace(REPAIRED, two_ways=False)
    assert any(half_safe(printed, seed) for seed in range(20))
    assert not any(half_safe(REPAIRED, seed) for seed in range(60))


@pytest.mark.parametrize("two_ways", [False, True])
def test_as_printed_one_directions_end_takes_away_the_others_path_and_timer(two_ways: bool) -> None:
    world = World(with_repairs(replace(REPAIRED, two_ways=two_ways)), ["N1", "N2", "N3"], [("N1", "N3"), ("N3", "N2")])
    n2 = node_of(world, "N2")

    def direct(frm: Peer, to: Peer, wire: Wire) -> bool:
        return (frm, to) == ("N1", "N2")

    # The exchange for the link from N1 comes to its end, except for the messages over the link itself.
    world.link("N1", "N2")
    world.pass_on("N2", "N1")
    world.pass_on("N1", "N2")
    world.flow(direct)
    assert world.pass_on("N1", "N2") == (HELLO, False)
    # N2 learns of the link, and its own exchange reaches beta. Then B_beta comes, and then beta.
    world.flow(lambda *way: direct(*way) or way[2][0] == BETA)
    carry(world, ("N1", "N2"), lambda wire: wire[0] == B_BETA)
    assert ("N1" in n2.paths_out, "N1" in n2.discovery_timers) == (two_ways, two_ways)
    world.settle()
    assert is_safe(world, "N1", "N2")
    assert is_safe(world, "N2", "N1") == two_ways


@pytest.mark.parametrize("two_ways", [False, True])
def test_as_printed_a_repeated_discovery_ends_the_receivers_own_exchange(two_ways: bool) -> None:
    world = World(with_repairs(replace(REPAIRED, two_ways=two_ways)), ["N1", "N2", "N3"], [("N1", "N3"), ("N3", "N2")])
    n2 = node_of(world, "N2")
    world.link("N1", "N2")
    while not (n2.r_buffers and n2.unsafe_out):  # N2 is in the middle of both exchanges
        world.pass_on(*world.busy()[0])
    # N1 begins again: any node's REDISCOVERY has caused it.
    n2.received("N3", (DISCOVERY, ("N1", 90), "N1", "N2", ("N3", 90), ("N3",), ()), 0)
    assert ("N1" in n2.unsafe_out) == two_ways
    assert ("N1" in n2.r_buffers) == (not two_ways)


@pytest.mark.parametrize("in_turn", [False, True])
def test_repair_in_turn_leaves_a_late_discovery_unanswered(in_turn: bool) -> None:
    links = [("N1", "N3"), ("N3", "N2"), ("N1", "N4")]
    world = World(with_repairs(replace(REPAIRED, in_turn=in_turn)), ["N1", "N2", "N3", "N4"], links)
    n1, n2 = node_of(world, "N1"), node_of(world, "N2")
    rho_4, rho_1 = about(RHO, "N4", "N2"), about(RHO, "N1", "N2")

    def late(frm: Peer, to: Peer, wire: Wire) -> bool:
        """Match N1's first DISCOVERY, on its last hop."""
        return (frm, to) == ("N3", "N2") and wire[:2] == (DISCOVERY, first)

    def asks(frm: Peer, to: Peer, wire: Wire) -> bool:
        return (frm, to) == ("N3", "N2") and wire[0] == DISCOVERY and wire[2] == "N1" and not wire[6]

    # The link from N4 to N2 is nearly safe: rho is on its way back.
    world.link("N4", "N2")
    world.flow(rho_4)
    # N1 begins a link to N2. Its DISCOVERY is delayed between N3 and N2. N4 has it too, but no link to forward it.
    world.link("N1", "N2")
    world.flow(lambda *way: rho_4(*way) or asks(*way))
    first = n1.unsafe_out["N2"]
    # The link from N4 is safe. So N1's second DISCOVERY reaches N2 through N4, and that exchange goes on as far as rho.
    world.flow(late)
    world.fire(next(timer for timer in world.timers if n1.discovery_timers["N2"] is timer.what))
    world.flow(lambda *way: late(*way) or rho_1(*way))
    assert "N1" in n2.r_buffers
    assert n1.s_buffers.keys() == {"N2"}
    # Now the first arrives, and then rho.
    carry(world, ("N3", "N2"), lambda wire: wire[:2] == (DISCOVERY, first))
    world.settle()

    assert n1.is_outgoing("N2")
    assert is_safe(world, "N1", "N2") == in_turn
    mid = world.broadcast("N4")
    world.flow(lambda frm, to, wire: (frm, to) == ("N1", "N2"))
    world.flow()
    assert (("N2", mid) in world.judge.doubles()) == (not in_turn)
    assert bool(world.judge.doubles()) == (not in_turn)


@pytest.mark.parametrize("strangers", [False, True])
def test_repair_strangers_keeps_no_buffer_for_a_node_that_is_gone(strangers: bool) -> None:
    world = World(
        with_repairs(replace(REPAIRED, strangers=strangers)), ["N1", "N2", "N3"], [("N1", "N3"), ("N3", "N2")]
    )
    world.link("N1", "N2")
    world.flow(about(DISCOVERY, "N1", "N2"))
    # The link goes. N2 learns of it, N1 not yet.
    world.cut("N1", "N2")
    world.pass_on("N1", "N2")
    while busy := [way for way in world.busy() if way != ("N2", "N1")]:
        world.pass_on(*busy[0])
    world.settle()
    for _ in range(5):
        world.broadcast("N3")
    world.flow()
    n2 = node_of(world, "N2")
    assert list(n2.links) == ["N3"]
    assert ("N1" in n2.r_buffers) == (not strangers)
    if not strangers:
        pi = n2.r_buffers["N1"].pi
        assert pi is not None
        assert len(pi) == 5


@pytest.mark.parametrize("forgets", [False, True])
def test_repair_forgets_bounds_the_floods_that_a_node_knows(forgets: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linking, "TRAVERSALS_MAX", 8)
    world = World(with_repairs(replace(REPAIRED, forgets=forgets)), range(4), ring(4))
    for _ in range(6):
        world.link(0, 2)
        world.settle()
        assert is_safe(world, 0, 2)
        world.cut(0, 2)
        world.settle()
    for name in world.nodes:
        known = len(node_of(world, name).traversals)
        assert (known == 8) if forgets else (known > 12)
