"""CPTCast delivers once and causally over a tree; figure 3.4; and the purpose of its repairs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random

import pytest

from ingeborg.bench.overlay.protocols.cptcast import CptCast, CptCastOptions
from ingeborg.bench.overlay.protocols.linking import LinkingOptions
from ingeborg.bench.overlay.protocols.repairs import AS_PRINTED, REPAIRED, Repairs
from ingeborg.bench.overlay.protocols.wires import GOSSIP, GRAFT, IHAVE, PRUNE, Mid
from ingeborg.broker.core.overlay.node import Desk, Peer, Wire
from tests.planted import finds

from .causal import nothing_is_left, wandered
from .small import EndlessError, Make, World, chords, cost_in_grafts, ring, sent, wander


def made(repairs: Repairs = REPAIRED, waiting: bool = True) -> Make:
    def make(desk: Desk, me: Peer, neighbours: Sequence[Peer]) -> CptCast:
        return CptCast(desk, me, neighbours, CptCastOptions(waiting=waiting, linking=LinkingOptions(repairs=repairs)))

    return make


def node_of(world: World, name: Peer) -> CptCast:
    node = world.nodes[name]
    assert isinstance(node, CptCast)
    return node


def make_lazy(world: World, *pairs: tuple[Peer, Peer]) -> None:
    """Make both ends of these links lazy, as if a redundant message had come over it."""
    for one, other in pairs:
        for frm, to in ((one, other), (other, one)):
            world.desks[frm].send(to, (PRUNE,), 1)
    world.flow()


def test_the_first_message_makes_a_tree_and_the_second_goes_by_it() -> None:
    world = World(CptCast, range(6), [*ring(6), *chords(6)], Random(1))
    world.broadcast(0)
    world.settle()
    world.sent.clear()
    world.broadcast(0)
    world.settle()
    assert len(sent(world, GOSSIP)) == 5
    assert sent(world, GRAFT) == sent(world, PRUNE) == []
    # Every link brings every message once in each direction: whole, or as a notice that it is here.
    assert len(sent(world, GOSSIP)) + len(sent(world, IHAVE)) == 2 * 15


def test_one_announcement_is_under_way_on_a_lazy_link_and_the_next_follows_its_answer() -> None:
    """Two nodes that hear each other through a third announce the waiting messages one by one."""
    world = World(CptCast, "abc", [("a", "b"), ("b", "c"), ("a", "c")])
    make_lazy(world, ("a", "b"))
    world.sent.clear()
    for _ in range(3):
        world.broadcast("a")
    assert sent(world, IHAVE) == [("a", "b")]
    assert list(node_of(world, "a").lazy["b"]) == [("a", 1), ("a", 2), ("a", 3)]
    world.flow()
    assert sent(world, GRAFT) == []
    assert sent(world, IHAVE).count(("a", "b")) == 3
    assert node_of(world, "a").lazy["b"] == {}
    world.settle()
    nothing_is_left(world)


def line() -> World:
    """Return ``b`` between two nodes, with lazy links."""
    world = World(CptCast, "abc", [("a", "b"), ("b", "c")])
    make_lazy(world, ("a", "b"), ("b", "c"))
    world.sent.clear()
    return world


def test_a_message_that_does_not_come_is_asked_for_and_the_tree_mended() -> None:
    world = line()
    b = node_of(world, "b")
    mid = world.broadcast("a")
    world.flow()
    assert (b.missing, list(b.timers), sent(world, GRAFT)) == ({mid: ["a"]}, [mid], [])
    world.fire()
    # Both ends of the link belong to the tree again (Algorithm 12, line 15; Algorithm 13, line 5).
    assert (list(b.eager), b.missing, b.grafted) == (["a"], {mid: []}, {mid: ["a"]})
    world.flow()
    assert list(node_of(world, "a").eager) == ["b"]
    # It has come: its timer no longer counts (Algorithm 14, line 13), and no node keeps it.
    assert world.judge.order["b"] == [mid]
    assert not any((b.timers, b.missing, b.grafted))


def test_a_lazy_link_that_brings_what_is_new_is_of_the_tree_again() -> None:
    world = World(CptCast, "ab", [("a", "b")])
    node_of(world, "b").received("a", (PRUNE,), 0)
    assert list(node_of(world, "b").lazy) == ["a"]
    world.broadcast("a")
    world.flow()
    assert list(node_of(world, "b").eager) == ["a"]


def test_who_was_asked_and_is_too_late_gets_no_payload() -> None:
    """Algorithm 14, lines 19-22: it still sends the message, and learns that the message has come."""
    world = World(CptCast, "abc", [("a", "b"), ("b", "c"), ("a", "c")])
    make_lazy(world, ("a", "b"))
    mid = world.broadcast("a")
    world.pass_on("a", "b")
    world.fire()
    assert sent(world, GRAFT) == [("b", "a")]
    world.flow(lambda frm, to, wire: (frm, to) == ("b", "a"))
    assert world.judge.order["b"] == [mid]
    assert node_of(world, "b").expected_from("a") == {mid}
    assert not node_of(world, "b").grafted
    world.settle()
    assert ("b", "a") not in sent(world, GOSSIP)
    assert sent(world, PRUNE)[2:] == [("b", "a")]
    nothing_is_left(world)


def test_the_next_who_has_announced_it_is_asked_when_the_first_does_not_answer() -> None:
    world = line()
    b = node_of(world, "b")
    mid = world.broadcast("a")
    world.flow()
    for _ in range(2):  # two announcements cause one request
        b.received("c", (IHAVE, mid), 0)
    assert b.missing == {mid: ["a", "c"]}
    asked = []
    for _ in range(3):
        world.fire(next(timer for timer in world.timers if b.timers.get(mid) is timer.what))
        asked.append(round(world.desks["b"].now, 6))
    options = CptCastOptions()
    assert sent(world, GRAFT) == [("b", "a"), ("b", "c")]
    assert asked == [options.timeout1, options.timeout1 + options.timeout2, options.timeout1 + 2 * options.timeout2]
    assert not b.timers


def test_who_is_gone_is_not_asked_and_owes_nothing() -> None:
    world = line()
    b = node_of(world, "b")
    mid = world.broadcast("a")
    world.flow()
    b.received("c", (IHAVE, mid), 0)
    world.cut("a", "b")
    world.flow()
    assert b.missing == {mid: ["c"]}
    world.fire()
    assert sent(world, GRAFT) == [("b", "c")]
    world.cut("b", "c")
    world.settle()
    nothing_is_left(world)


def test_a_new_node_is_new_until_it_has_delivered_something() -> None:
    world = World(CptCast, range(3), ring(3))
    world.add("new")
    world.link("new", 1)
    world.flow()
    assert node_of(world, "new").in_view == [1]
    world.broadcast(0)
    world.flow()
    world.cut("new", 1)
    world.flow()
    world.link("new", 1)
    world.settle()
    assert node_of(world, "new").in_view == []


def figure_3_4(waiting: bool) -> tuple[World, list[Mid]]:
    """Return N1 and N2 with only a lazy link."""
    world = World(made(waiting=waiting), ["N1", "N2"], [("N1", "N2")])
    make_lazy(world, ("N1", "N2"))
    world.sent.clear()
    # (a) N1 broadcasts m1 and announces it.
    m1 = world.broadcast("N1")
    world.pass_on("N1", "N2")
    # (b) N1 broadcasts m2. N2's timer for m1 has gone off: GRAFT.
    m2 = world.broadcast("N1")
    world.fire()
    assert sent(world, GRAFT) == [("N2", "N1")]
    # (c) N1 sends m1, and broadcasts m3. N2's timer for m2, if N2 has heard of it, has gone off.
    world.pass_on("N2", "N1")
    m3 = world.broadcast("N1")
    world.flow()
    world.settle()
    return world, [m1, m2, m3]


def test_figure_3_4_without_waiting_causality_is_violated() -> None:
    world, (m1, m2, m3) = figure_3_4(waiting=False)
    assert world.judge.order["N2"] == [m1, m3, m2]
    assert world.judge.disorder() == [("N2", m2, m3)]


def test_figure_3_4_with_waiting_it_is_not() -> None:
    world, sequence = figure_3_4(waiting=True)
    assert world.judge.order["N2"] == sequence
    assert world.judge.disorder() == []
    nothing_is_left(world)


def test_without_waiting_order_is_lost_in_small_worlds_too() -> None:
    assert any(wandered(seed, 5, made(waiting=False)).judge.disorder() for seed in range(60))


def test_a_control_message_waits_behind_what_is_announced() -> None:
    world = World(CptCast, "abc", [("a", "b"), ("b", "c")])
    make_lazy(world, ("a", "b"), ("b", "c"))
    world.broadcast("a")
    world.broadcast("a")
    node = node_of(world, "a")
    node.send_in_order("b", ("control",), 9)
    assert list(node.lazy["b"]) == [("a", 1), ("a", 2), ("control",)]
    # Only an answer to the second announcement releases the control message.
    node.received("b", (IHAVE, ("a", 1)), 0)
    assert list(node.lazy["b"]) == [("a", 2), ("control",)]
    world.sent.clear()
    node.received("b", (IHAVE, ("a", 2)), 0)
    assert list(node.lazy["b"]) == []
    assert [wire for _, _, wire in world.sent] == [("control",)]


# Repairs


def test_as_printed_a_flood_does_not_end() -> None:
    world = World(made(AS_PRINTED), range(4), [*ring(4), *chords(4)], Random(1))
    world.broadcast(0)
    with pytest.raises(EndlessError):
        world.settle()
    assert world.judge.doubles()


@pytest.mark.parametrize("expects", [False, True])
def test_repair_expects_has_a_message_delivered_once(expects: bool) -> None:
    world = World(made(replace(REPAIRED, expects=expects)), range(5), [*ring(5), *chords(5)], Random(1))
    world.broadcast(0)
    if expects:
        world.settle()
        nothing_is_left(world)
        assert not world.judge.doubles()
    else:
        with pytest.raises(EndlessError):
            world.settle()
        assert all(len(order) > 100 for order in world.judge.order.values())


@pytest.mark.parametrize("safe_only", [False, True])
def test_repair_safe_only_sends_nothing_over_a_link_that_is_not_safe(safe_only: bool) -> None:
    repairs = replace(REPAIRED, safe_only=safe_only)
    bad = 0
    for seed in range(60):
        world = World(made(repairs), range(6), ring(6), Random(seed))
        try:
            wander(world, chords(6), range(6), 500)
            world.settle()
        except EndlessError:
            bad += 1
            continue
        bad += bool(world.judge.doubles() or world.judge.disorder() or world.judge.lacking(range(6)))
    assert (bad == 0) == safe_only


@pytest.mark.parametrize("asks_somebody", [False, True])
def test_repair_asks_somebody_ends_the_timer(asks_somebody: bool) -> None:
    world = World(made(replace(REPAIRED, asks_somebody=asks_somebody)), "ab", [("a", "b")])
    make_lazy(world, ("a", "b"))
    world.broadcast("a")
    world.flow()
    world.crash("a")
    if asks_somebody:
        world.settle()
        nothing_is_left(world)
    else:
        with pytest.raises(EndlessError):
            world.settle()


@pytest.mark.parametrize("removes_found", [False, True])
def test_repair_removes_found_keeps_what_was_not_answered(removes_found: bool) -> None:
    world = World(made(replace(REPAIRED, removes_found=removes_found)), "abc", [("a", "b"), ("b", "c"), ("a", "c")])
    make_lazy(world, ("a", "b"))
    a, b = node_of(world, "a"), node_of(world, "b")
    # Each announces its own message to the other, and then gets the other's by c.
    mine, yours = world.broadcast("a"), world.broadcast("b")
    world.flow(lambda frm, to, wire: {frm, to} == {"a", "b"})
    assert list(a.lazy["b"]) == [mine, yours]
    assert list(b.lazy["a"]) == [yours, mine]
    # The announcements cross: each finds the other's message among the waiting ones.
    world.settle()
    assert (a.lazy["b"] == b.lazy["a"] == {}) == removes_found
    # If the removed message is not the found one, the rest waits for an answer that has come already.
    last = world.broadcast("a")
    world.flow(lambda frm, to, wire: (frm, to) == ("c", "b"))
    world.crash("c")
    world.settle()
    assert (last in world.judge.order["b"]) == removes_found


def test_as_printed_what_is_removed_in_place_of_what_was_found_costs_all_three_promises() -> None:
    printed = made(replace(REPAIRED, removes_found=False))
    judges = [wandered(seed, 6, printed).judge for seed in range(20)]
    assert any(judge.doubles() for judge in judges)
    assert any(judge.disorder() for judge in judges)
    assert any(judge.lacking(range(6)) for judge in judges)


# Planted faults


class Overtakes(CptCast):
    """Sends a payload on an eager link without waiting behind an announced message."""

    def forward(self, mid: Mid, hops: int, payload_bytes: int, sender: Peer | None) -> None:
        kept = {peer: dict(waiting) for peer, waiting in self.eager.items() if waiting}
        for peer in kept:
            self.eager[peer].clear()
        super().forward(mid, hops, payload_bytes, sender)
        for peer, waiting in kept.items():
            self.eager[peer].update(waiting)


class NeverAnswers(CptCast):
    """Never tells announcers that it has their message."""

    def _acknowledge(self, announcement: Wire, mid: Mid, sender: Peer) -> list[Peer]:
        return [*self.missing.pop(mid, []), *self.grafted.pop(mid, [])]


class PrunesItsParent(CptCast):
    """Cuts the link that has just brought a new message."""

    def _first(self, mid: Mid, hops: int, payload_bytes: int, sender: Peer | None, expects: bool) -> None:
        super()._first(mid, hops, payload_bytes, sender, expects)
        if sender is not None:
            self._prune(sender)


@finds(Overtakes)
def test_a_payload_that_overtakes_an_announcement_is_found() -> None:
    assert any(wandered(seed, 6, Overtakes).judge.disorder() for seed in range(80))


class PrunesBeforeItCanAnswer(CptCast):
    """Stops a neighbour's payloads before a safe link leads there. (The half of ``Repairs.safe_only``.)"""

    def _prune(self, peer: Peer) -> None:
        self.desk.send(peer, (PRUNE,), 1)
        if self.is_outgoing(peer):
            self._make_lazy(peer)


@finds(PrunesBeforeItCanAnswer)
def test_a_prune_by_who_cannot_answer_is_found_by_what_waits_for_ever() -> None:
    worlds = (wandered(seed, 6, PrunesBeforeItCanAnswer) for seed in range(80))
    assert any(
        any(node_of(world, name).lazy[peer] for name in range(6) for peer in node_of(world, name).lazy)
        for world in worlds
    )


@finds(NeverAnswers)
def test_an_announcement_without_an_answer_is_found() -> None:
    world = wandered(1, 6, NeverAnswers)
    assert any(node_of(world, name).expected for name in world.nodes)


@finds(PrunesItsParent)
def test_a_prune_of_the_parent_is_found_by_what_every_message_then_costs() -> None:
    assert cost_in_grafts(CptCast, GRAFT) == 0
    assert cost_in_grafts(PrunesItsParent, GRAFT) >= 5


@finds("A timer is shorter than the latency of the tree.")
@pytest.mark.parametrize(("timeout1", "grafts"), [(1.0, False), (0.05, True)])
def test_a_timer_below_the_trees_latency_is_found_by_grafts_for_what_was_coming(timeout1: float, grafts: bool) -> None:
    """A line of eager links of 0.1 s each, and a lazy link from its first node to its last."""

    def make(desk: Desk, me: Peer, neighbours: Sequence[Peer]) -> CptCast:
        return CptCast(desk, me, neighbours, CptCastOptions(timeout1=timeout1))

    world = World(make, "abcd", [("a", "b"), ("b", "c"), ("c", "d"), ("a", "d")])
    make_lazy(world, ("a", "d"))
    world.broadcast("a")
    world.pass_on("a", "d")
    for hop, way in enumerate((("a", "b"), ("b", "c"), ("c", "d")), 1):
        while world.timers and min(world.timers).due < 0.1 * hop:
            world.fire(min(world.timers))
        world.pass_on(*way)
    assert bool(sent(world, GRAFT)) == grafts
