"""Compares the memory of Algorithm 1 with the document's own: a set of messages for each neighbour."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ingeborg.bench.overlay.protocols.expecting import Expecting
from ingeborg.bench.overlay.protocols.wires import Mid
from ingeborg.broker.core.overlay.node import Peer

from .small import SmallDesk, World

PEERS = ("a", "b", "c", "d")


class Remembers(Expecting):
    """Sends nothing."""

    def forward(self, mid: Mid, hops: int, payload_bytes: int, sender: Peer | None) -> None:
        assert self.desk is not None


class Printed:
    """Follows Algorithm 1 line by line, and lines 4 and 7 of Algorithm 15."""

    def __init__(self) -> None:
        self.in_view: set[Peer] = set()
        self.expected: dict[Peer, set[Mid]] = {}

    def receive(self, mid: Mid, sender: Peer | None) -> bool:
        """Is the message delivered?"""
        if not any(mid in self.expected.get(peer, ()) for peer in self.in_view):
            for peer in self.in_view:
                if peer != sender:
                    self.expected.setdefault(peer, set()).add(mid)
            return True
        if sender is not None:
            self.expected.get(sender, set()).discard(mid)
        return False


EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("hear"), st.sampled_from(PEERS)),
        st.tuples(st.just("unhear"), st.sampled_from(PEERS)),
        st.tuples(st.integers(1, 4), st.sampled_from(PEERS)),
    ),
    max_size=60,
)


@given(EVENTS)
def test_it_is_the_documents_memory_turned_round(events: list[tuple[str | int, str]]) -> None:
    world = World(lambda desk, me, _: Remembers(desk, me), ["me"], [])
    node, printed = world.nodes["me"], Printed()
    assert isinstance(node, Remembers)
    for number in range(1, 5):
        world.judge.past["root", number] = frozenset()
    order = world.judge.order["me"]
    for event, peer in events:
        if event == "hear":
            node.hear(peer)
            printed.in_view.add(peer)
        elif event == "unhear":
            node.unhear(peer)
            printed.in_view.discard(peer)
            printed.expected.pop(peer, None)
        else:
            assert isinstance(event, int)
            before = len(order)
            node.receive_message(("root", event), 1, 10, peer)
            assert (len(order) > before) == printed.receive(("root", event), peer)
        assert set(node.in_view) == printed.in_view
        for each in printed.in_view:
            assert node.expected_from(each) == printed.expected.get(each, set())
    assert all(node.expected.values())


def test_a_neighbour_that_comes_gets_a_bit_that_nobody_has() -> None:
    world = World(lambda desk, me, _: Remembers(desk, me), ["me"], [])
    node = Remembers(SmallDesk(world, "me"), "me")
    for peer in PEERS:
        node.hear(peer)
    node.unhear("b")
    node.hear("e")
    assert sorted(node.bits.values()) == [1, 2, 4, 8]
    assert node.bits["e"] == 2
    assert node.in_mask == 15
