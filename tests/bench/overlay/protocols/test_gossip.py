"""Push gossip."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingeborg.bench.overlay.protocols import gossip
from ingeborg.bench.overlay.protocols.gossip import Gossip, GossipOptions

from .small import World, chords, ring, wander


def test_with_a_fan_out_of_all_neighbours_everybody_gets_everything_once() -> None:
    @settings(max_examples=40)
    @given(st.integers(0, 2**32), st.integers(4, 8))
    def check(seed: int, nodes: int) -> None:
        make = lambda desk, me, neighbours: Gossip(desk, me, neighbours, GossipOptions(fanout=nodes))  # noqa: E731
        world = World(make, range(nodes), ring(nodes), Random(seed))
        wander(world, chords(nodes), range(nodes), 300)
        world.flow()
        assert (world.judge.doubles(), world.judge.lacking(range(nodes))) == ([], [])

    check()


def test_a_message_goes_to_as_many_neighbours_as_the_fan_out_and_never_back() -> None:
    links = [("hub", other) for other in "abcdef"]
    make = lambda desk, me, neighbours: Gossip(desk, me, neighbours, GossipOptions(fanout=3))  # noqa: E731
    world = World(make, ["hub", *"abcdef"], links)
    world.broadcast("hub")
    assert len(world.sent) == 3
    world.flow()
    assert len(world.sent) == 3  # a leaf has no other neighbour
    world.sent.clear()
    world.broadcast("a")
    world.flow()
    assert [way[:2] for way in world.sent].count(("hub", "a")) == 0
    assert len(world.sent) == 1 + 3


def test_only_the_latest_messages_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gossip, "SEEN_MAX", 3)
    world = World(Gossip, ["a", "b"], [("a", "b")])
    for _ in range(5):
        world.broadcast("a")
    world.flow()
    node = world.nodes["b"]
    assert isinstance(node, Gossip)
    assert list(node.seen) == [("a", 3), ("a", 4), ("a", 5)]
