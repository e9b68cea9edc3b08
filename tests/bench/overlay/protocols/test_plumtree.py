"""Plumtree: its tree, and the repair of the tree."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingeborg.bench.overlay.protocols import plumtree
from ingeborg.bench.overlay.protocols.plumtree import Plumtree, PlumtreeOptions
from ingeborg.bench.overlay.protocols.wires import GOSSIP, GRAFT, IHAVE, PRUNE
from ingeborg.broker.core.overlay.node import Peer
from tests.planted import finds

from .small import World, chords, cost_in_grafts, ring, sent, wander


def node_of(world: World, name: Peer) -> Plumtree:
    node = world.nodes[name]
    assert isinstance(node, Plumtree)
    return node


def test_everybody_gets_everything_once_while_links_come_and_go() -> None:
    @settings(max_examples=60)
    @given(st.integers(0, 2**32), st.integers(4, 8))
    def check(seed: int, nodes: int) -> None:
        world = World(Plumtree, range(nodes), ring(nodes), Random(seed))
        wander(world, chords(nodes), range(nodes), 400)
        world.settle()
        assert (world.judge.doubles(), world.judge.lacking(range(nodes))) == ([], [])
        for name in world.nodes:
            assert not any((node_of(world, name).missing, node_of(world, name).timers))

    check()


def test_the_first_message_makes_a_tree_and_the_second_goes_by_it() -> None:
    world = World(Plumtree, range(6), [*ring(6), *chords(6)], Random(1))
    world.broadcast(0)
    world.flow()
    assert len(sent(world, PRUNE)) > 0
    world.sent.clear()
    world.broadcast(0)
    world.flow()
    assert len(sent(world, GOSSIP)) == 5
    assert sent(world, PRUNE) == []
    # Over every other link, from the first end to have it, or from both.
    assert len(sent(world, IHAVE)) >= 15 - 5
    world.settle()
    assert sent(world, GRAFT) == []


def triangle() -> World:
    """``c`` hears ``a`` over the tree, and ``b`` through announcements."""
    world = World(Plumtree, "abc", [("a", "b"), ("b", "c"), ("a", "c")])
    world.broadcast("a")
    for way in (("a", "b"), ("a", "c"), ("b", "c"), ("c", "b")):
        world.pass_on(*way)
    world.settle()
    assert list(node_of(world, "c").eager) == list(node_of(world, "b").eager) == ["a"]
    world.sent.clear()
    return world


def test_a_message_that_does_not_come_is_asked_for_and_the_tree_mended() -> None:
    world = triangle()
    world.broadcast("a")
    world.pass_on("a", "b")
    world.cut("a", "c")  # with the payload
    world.flow()
    assert world.judge.lacking("abc") == [("c", ("a", 2))]
    assert sent(world, GRAFT) == []
    world.fire()
    assert sent(world, GRAFT) == [("c", "b")]
    world.settle()
    assert world.judge.lacking("abc") == []
    assert list(node_of(world, "b").eager) == ["a", "c"]
    assert list(node_of(world, "c").eager) == ["b"]


def test_the_next_who_has_announced_it_is_asked_when_the_first_does_not_answer() -> None:
    world = World(Plumtree, "abcd", [("a", "c"), ("a", "d"), ("b", "c"), ("b", "d")])
    for name in "cd":
        world.desks[name].send("b", (PRUNE,), 1)
        world.desks[name].send("a", (PRUNE,), 1)
    world.flow()
    mid = world.broadcast("a")
    world.flow()
    waiting = node_of(world, "c")
    assert waiting.missing == {mid: ["a"]}
    waiting.received("b", (IHAVE, mid), 0)  # as if b had it
    world.fire(next(timer for timer in world.timers if timer.node == "c"))
    assert sent(world, GRAFT) == [("c", "a")]
    world.fire(next(timer for timer in world.timers if timer.node == "c"))
    assert sent(world, GRAFT) == [("c", "a"), ("c", "b")]
    options = PlumtreeOptions()
    assert world.desks["c"].now == pytest.approx(options.timeout1 + options.timeout2)
    world.settle()
    assert world.judge.lacking("abcd") == []


def test_a_payload_that_was_asked_for_has_crossed_one_link_more() -> None:
    world = triangle()
    mid = world.broadcast("a")
    world.cut("a", "c")
    world.settle()
    assert [world.judge.hops[name, mid] for name in "abc"] == [0, 1, 2]


def test_a_lazy_link_that_brings_what_is_new_is_of_the_tree_again() -> None:
    world = World(Plumtree, "ab", [("a", "b")])
    node_of(world, "b").received("a", (PRUNE,), 0)
    assert list(node_of(world, "b").lazy) == ["a"]
    world.broadcast("a")
    world.flow()
    assert list(node_of(world, "b").eager) == ["a"]


def test_who_is_gone_is_not_asked() -> None:
    world = World(Plumtree, "abc", [("a", "b"), ("c", "b")])
    for name in "ac":
        world.desks["b"].send(name, (PRUNE,), 1)
    world.flow()
    mid = world.broadcast("a")
    world.flow()
    node_of(world, "b").received("c", (IHAVE, mid), 0)  # as if c had it
    assert node_of(world, "b").missing == {mid: ["a", "c"]}
    world.cut("a", "b")
    world.flow()
    world.fire()
    assert sent(world, GRAFT) == [("b", "c")]


def test_a_link_that_comes_up_again_stays_what_it_is() -> None:
    """Both the node's creator and the world report it."""
    world = World(Plumtree, "ab", [("a", "b")])
    node = node_of(world, "a")
    node.received("b", (PRUNE,), 0)
    node.up("b", True)
    assert (list(node.eager), list(node.lazy)) == ([], ["b"])


def test_nobody_left_to_ask_ends_the_timer() -> None:
    world = World(Plumtree, "ab", [("a", "b")])
    world.desks["b"].send("a", (PRUNE,), 1)
    world.flow()
    world.broadcast("a")
    world.flow()
    world.crash("a")
    world.settle()
    assert not any((node_of(world, "b").missing, node_of(world, "b").timers))


def test_order_is_not_promised() -> None:
    seeds = (seed for seed in range(200) if _disorder(seed))
    assert next(seeds, None) is not None


def _disorder(seed: int) -> bool:
    world = World(Plumtree, range(5), ring(5), Random(seed))
    wander(world, chords(5), range(5), 300)
    world.settle()
    return bool(world.judge.disorder())


def test_only_the_latest_messages_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plumtree, "RECEIVED_MAX", 3)
    world = World(Plumtree, "ab", [("a", "b")])
    for _ in range(5):
        world.broadcast("a")
    world.flow()
    assert list(node_of(world, "b").received_messages) == [("a", 3), ("a", 4), ("a", 5)]


class PrunesItsParent(Plumtree):
    """Cuts the link that has just brought a new message."""

    def _take(self, mid: tuple[Peer, int], hops: int, payload_bytes: int, sender: Peer | None) -> None:
        super()._take(mid, hops, payload_bytes, sender)
        if sender is not None:
            self._shorten(sender)
            self.desk.send(sender, (PRUNE,), 1)


@finds(PrunesItsParent)
def test_a_prune_of_the_parent_is_found_by_what_every_message_then_costs() -> None:
    assert cost_in_grafts(Plumtree, GRAFT) == 0
    assert cost_in_grafts(PrunesItsParent, GRAFT) >= 5


class KeepsNothing(Plumtree):
    """Sends nothing on request."""

    def _grafted(self, peer: Peer, mid: tuple[Peer, int]) -> None:
        self._elongate(peer)


@finds(KeepsNothing)
def test_a_graft_without_an_answer_is_found_by_what_is_lacking() -> None:
    found = 0
    for seed in range(20):
        world = World(KeepsNothing, range(5), ring(5), Random(seed))
        wander(world, chords(5), range(5), 300)
        world.settle()
        found += bool(world.judge.lacking(range(5)))
    assert found > 0
