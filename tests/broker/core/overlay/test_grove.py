"""Causal broadcast by trees: in worlds of a few nodes, against a naive oracle; and one node alone, step by step."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingeborg.broker.core.overlay.branch import Branch
from ingeborg.broker.core.overlay.grove import BATCH_S, Grove
from ingeborg.broker.core.overlay.history import Key
from ingeborg.broker.core.overlay.node import Desk
from ingeborg.broker.core.overlay.roots import HISTORY_S, NOBODY, Root
from ingeborg.broker.core.overlay.swaps import NEWCOMER_S
from ingeborg.broker.core.overlay.trees import PAUSE_S_MIN, Bounds
from ingeborg.broker.core.overlay.wanted import ANSWER_S, GAP_WAIT_S
from ingeborg.broker.core.overlay.wires import (
    EARLY,
    ENTRIES,
    ENTRIES_BYTES,
    ENTRY_BYTES,
    FLOORS,
    GONE,
    GRAFT,
    PAYLOAD,
    PRUNE,
    PRUNE_BYTES,
    REPLAY,
    VECTOR,
)
from tests.planted import finds

from .histories import MakeGrove, grove, nothing_waits, still
from .paper import Paper
from .small import Small

SEEDS = st.integers(0, 1 << 20)

#: Latencies of a calm network, in seconds: they vary by about a factor of two.
CALM = (0.005, 0.01)

#: Seconds within which all messages arrive.
SETTLED_S = 5.0


def talk(small: Small, messages: int, pauses: tuple[float, ...] = (0.0, 0.001, 0.01, 0.05)) -> None:
    """Send messages from random nodes, then let the world settle."""
    for _ in range(messages):
        small.run(small.random.choice(pauses))
        small.broadcast(small.random.choice(small.living()))
    small.run(SETTLED_S)


def answering(small: Small, share: float) -> None:
    """Answer some deliveries at once, with a broadcast while the node is still delivering."""

    def answer(node: int, root: int, number: int) -> None:
        if node != root and small.random.random() < share and len(small.naive.past) < 150:
            small.broadcast(node)

    small.delivering = answer


@settings(max_examples=60)
@given(seed=SEEDS, nodes=st.integers(2, 12), share=st.sampled_from([0.0, 0.1]))
def test_all_get_everything_once_and_in_causal_order(seed: int, nodes: int, share: float) -> None:
    small = still(grove, seed, nodes)
    answering(small, share)
    talk(small, 30)
    small.naive.complete(small.living())
    for place in small.places:
        assert isinstance(place.node, Grove)
        assert nothing_waits(place.node)
        assert not place.node.kept()["held"]
        assert place.node.gaps == place.node.restarts == place.node.stray == 0


@settings(max_examples=40)
@given(seed=SEEDS, nodes=st.integers(3, 12))
def test_links_that_break_and_come_back_cost_nothing(seed: int, nodes: int) -> None:
    small = still(grove, seed, nodes)
    links = [(place.me, peer) for place in small.places for peer in small.peers(place.me) if place.me < peer]
    for _ in range(6):
        talk_on = small.random.sample(links, min(3, len(links)))
        for one, other in talk_on:
            small.sever(one, other)
        for _ in range(6):
            small.run(small.random.choice((0.001, 0.01, 0.1)))
            small.broadcast(small.random.choice(small.living()))
        small.run(0.5)
        small.connect((one, other) for one, other in talk_on if other not in small.places[one].links)
    small.run(SETTLED_S)
    small.naive.complete(small.living())
    assert all(place.node.gaps == 0 for place in small.places)  # type: ignore[attr-defined]


def figures(make: MakeGrove, seed: int = 5, latencies: tuple[float, ...] = CALM) -> dict[str, float]:
    """Return the cost of forty messages of two roots in a calm overlay of ten nodes, after each root has sent some."""
    small = still(make, seed, 10, latencies)
    for _ in range(12):
        small.broadcast(0)
        small.broadcast(7)
        small.run(1.0)
    payloads, grafts = small.payloads, small.sent[GRAFT]
    before = set(small.naive.past)
    for _ in range(20):
        small.broadcast(0)
        small.run(0.03)
        small.broadcast(7)
        small.run(0.03)
    small.run(SETTLED_S)
    small.naive.complete(small.living())
    delays = [delay for message, each in small.naive.delays.items() if message not in before for delay in each]
    return {
        "redundancy": (small.payloads - payloads) / (40 * 9) - 1.0,
        "grafts": small.sent[GRAFT] - grafts,
        "latest_s": max(delays),
    }


def settles(make: MakeGrove) -> None:
    """Check that trees come to rest: each payload comes once, no node asks for one, and no timer waits."""
    found = figures(make)
    assert found["redundancy"] == 0.0, found
    assert found["grafts"] == 0, found
    assert found["latest_s"] < 0.1, found


def test_trees_come_to_rest() -> None:
    settles(grove)


@pytest.mark.parametrize("seed", range(20))
def test_trees_come_to_rest_whatever_the_latencies(seed: int) -> None:
    """A tree can change if a payload happens to be faster elsewhere, but it does not keep changing."""
    found = figures(grove, seed, (0.001, 0.01, 0.02))
    assert found["redundancy"] <= 0.05, found
    assert found["grafts"] <= 4, found


# Planted faults are found


class Hasty(Grove):
    """Delivers a payload as soon as it arrives."""

    def _released(self, key: Key) -> bool:
        return True


class Sawing(Grove):
    """Takes the sender of the first entry for the parent, and prunes the sender of the payload."""

    def _came(self, branch: Branch, wire: Any, payload_bytes: int) -> None:
        super()._came(branch, wire, payload_bytes)
        row = self.rows[wire[1][0]]
        if wire[0] != REPLAY and row.parent == branch.bit and row.parent != NOBODY:
            row.parent = NOBODY
            self._send(branch.peer, (PRUNE, row.name), PRUNE_BYTES)


class Impatient(Grove):
    """Has a timer below the tree's latency."""

    def __init__(self, desk: Desk, me: int) -> None:
        super().__init__(desk, me, Bounds(timer_s_min=0.001, timer_s_max=0.002))


def disordered(make: MakeGrove) -> None:
    """Run histories in which answers overtake the messages that they answer."""
    for seed in range(40):
        small = still(make, seed, 8)
        answering(small, 0.2)
        talk(small, 10)


def lagging(make: MakeGrove) -> None:
    """Let entries overtake payloads, whose links are fast most of the time and sometimes wait. A good tree does not
    change."""
    found = figures(make, 3, (0.001, 0.001, 0.001, 0.03))
    assert found["redundancy"] <= 0.05, found


@finds(Hasty)
def test_a_payload_that_is_delivered_before_its_entrys_predecessors_is_found() -> None:
    disordered(grove)
    with pytest.raises(AssertionError, match="depends on it"):
        disordered(Hasty)


@finds(Sawing)
def test_a_prune_of_the_trees_parent_is_found() -> None:
    with pytest.raises(AssertionError):
        settles(Sawing)


@finds(Impatient)
def test_a_timer_below_the_trees_latency_is_found() -> None:
    lagging(grove)
    with pytest.raises(AssertionError, match="redundancy"):
        lagging(Impatient)


# One node alone


def alone(*neighbours: str, bounds: Bounds | None = None) -> tuple[Paper, Grove]:
    """Return a node with links to these neighbours, which have empty vectors."""
    paper = Paper()
    node = Grove(paper, "me", bounds)
    for peer in neighbours:
        node.up(peer, True)
        node.received(peer, (VECTOR, {}, 1.0), 0)
        node.received(peer, (FLOORS, {}, True, 1.0, {}), 0)
    paper.take()
    return paper, node


def test_before_the_neighbours_vector_a_node_says_nothing_but_its_own() -> None:
    paper = Paper()
    node = Grove(paper, "me")
    node.up("a", True)
    node.broadcast(10)
    paper.now = BATCH_S
    paper.due(node)
    assert paper.kinds("a") == [VECTOR]
    node.received("a", (VECTOR, {}, 1.0), 0)
    assert paper.kinds("a") == [VECTOR, FLOORS, REPLAY]


def test_before_the_vectors_a_link_orders_nothing() -> None:
    paper, node = alone("a")
    node.up("b", True)
    node.received("b", (ENTRIES, (("r", 1),)), 0)
    node.received("b", (EARLY, ("r", 1), 1, 0.0), 10)
    assert paper.delivered == []
    node.received("a", (ENTRIES, (("r", 1),)), 0)
    assert paper.delivered == [("r", 1)]


def test_a_payload_goes_on_before_it_may_be_delivered() -> None:
    paper, node = alone("a", "b")
    node.received("a", (ENTRIES, (("q", 1),)), 0)
    node.received("a", (PAYLOAD, ("r", 1), 3, 0.0, None), 10)
    assert paper.delivered == []
    assert ("b", (EARLY, ("r", 1), 4, 0.0)) in paper.sent
    paper.take()
    node.received("a", (EARLY, ("q", 1), 2, 0.0), 10)
    assert paper.delivered == [("q", 1), ("r", 1)]
    paper.now = BATCH_S
    paper.due(node)
    # The deliverable payload took its entry along when the node sent it on; the other one's entry follows.
    assert [wire[:2] for _, wire in paper.take()] == [(PAYLOAD, ("q", 1)), (ENTRIES, (("r", 1),))]


def test_one_link_with_all_that_is_before_is_enough() -> None:
    paper, node = alone("a", "b")
    node.received("a", (ENTRIES, (("q", 1), ("r", 1))), 0)
    node.received("a", (EARLY, ("r", 1), 1, 0.0), 10)
    assert paper.delivered == []
    node.received("b", (ENTRIES, (("r", 1),)), 0)
    assert paper.delivered == [("r", 1)]


def test_entries_wait_for_each_other_and_go_before_a_payload() -> None:
    paper, node = alone("a", "b", "c")
    node.received("b", (PRUNE, "r"), 0)
    node.received("a", (PAYLOAD, ("r", 1), 1, 0.0, None), 10)
    node.received("b", (PRUNE, "r"), 0)
    paper.take()
    node.received("a", (PAYLOAD, ("r", 2), 1, 0.0, None), 10)
    node.received("a", (PAYLOAD, ("r", 3), 1, 0.0, None), 10)
    assert [wire for to, wire in paper.take() if to == "b"] == []
    node.broadcast(10)
    assert [wire for to, wire in paper.sent if to == "b"] == [(PAYLOAD, ("me", 1), 1, 0.0, (("r", 2), ("r", 3)))]


def test_what_a_neighbour_announces_itself_is_not_announced_to_it() -> None:
    paper, node = alone("a", "b")
    node.received("a", (PAYLOAD, ("r", 1), 1, 0.0, None), 10)
    node.received("b", (PRUNE, "r"), 0)
    node.received("a", (PAYLOAD, ("r", 2), 1, 0.0, None), 10)
    node.received("b", (ENTRIES, (("r", 1), ("r", 2))), 0)
    paper.take()
    paper.now = BATCH_S
    paper.due(node)
    assert paper.take() == []


def test_a_payload_that_comes_early_is_no_announcement() -> None:
    """Its sender may not have delivered it, so our entry for it still has to go there."""
    paper, node = alone("a", "b")
    node.received("a", (PAYLOAD, ("r", 1), 1, 0.0, None), 10)
    node.received("b", (PRUNE, "r"), 0)
    node.received("a", (PAYLOAD, ("r", 2), 1, 0.0, None), 10)
    node.received("b", (EARLY, ("r", 2), 5, 0.0), 10)
    paper.take()
    paper.now = BATCH_S
    paper.due(node)
    assert paper.take() == [("b", (ENTRIES, (("r", 2),)))]


def test_an_entry_takes_no_more_than_eight_bytes_on_the_wire() -> None:
    assert ENTRIES_BYTES + ENTRY_BYTES <= 8
    paper, node = alone("a", "b")
    node.received("a", (PAYLOAD, ("r", 1), 1, 0.0, None), 10)
    node.received("b", (PRUNE, "r"), 0)
    for number in range(2, 12):
        node.received("a", (PAYLOAD, ("r", number), 1, 0.0, None), 10)
    paper.take()
    paper.bytes.clear()
    paper.now = BATCH_S
    paper.due(node)
    ((_, wire),) = paper.take()
    assert len(wire[1]) == 10
    assert paper.bytes == [(ENTRIES_BYTES + 10 * ENTRY_BYTES, 0)]


# Gaps, and links that restart


def test_a_new_node_takes_up_where_its_neighbour_is() -> None:
    paper = Paper()
    node = Grove(paper, "me")
    node.up("a", True)
    node.received("a", (VECTOR, {"r": 7}, -1.0), 0)
    node.received("a", (FLOORS, {"r": 7}, True, float("inf"), {"r": 0.0}), 0)
    node.received("a", (PAYLOAD, ("r", 8), 1, 0.0, None), 10)
    assert paper.delivered == [("r", 8)]
    assert node.gaps == 0


def test_a_new_node_does_not_take_up_where_a_newer_one_is() -> None:
    """The newer node lacks the messages sent between the two arrivals."""
    paper = Paper()
    node = Grove(paper, "me")
    node.up("a", True)
    node.up("b", True)
    node.received("a", (VECTOR, {"r": 7}, -1.0), 0)
    node.received("b", (VECTOR, {"r": 7}, -1.0), 0)
    paper.now = 3.0
    node.received("a", (FLOORS, {"r": 7}, True, 2.0, {"r": 0.0}), 0)
    node.received("b", (FLOORS, {"r": 5}, True, float("inf"), {"r": 0.0}), 0)
    node.received("b", (REPLAY, ("r", 6), 1, 0.5), 10)
    node.received("b", (REPLAY, ("r", 7), 1, 0.5), 10)
    assert paper.delivered == [("r", 6), ("r", 7)]
    node.received("a", (PAYLOAD, ("r", 8), 1, 0.0, None), 10)
    assert paper.delivered == [("r", 6), ("r", 7), ("r", 8)]
    assert node.gaps == 0


@pytest.mark.parametrize(("newer_s", "gaps"), [(0.4, 0), (0.6, 1)])
def test_a_new_node_takes_up_where_one_is_that_came_at_about_the_same_time(newer_s: float, gaps: int) -> None:
    """An earlier delivery changes nothing."""
    paper, node = alone("a", "b")
    node.received("b", (PAYLOAD, ("s", 1), 1, 0.0, None), 10)
    paper.now = 2.0
    whole_s = paper.now - newer_s + NEWCOMER_S
    node.received("a", (FLOORS, {"r": 7}, True, whole_s, {"r": 0.0}), 0)
    node.received("a", (REPLAY, ("r", 8), 1, 0.0), 10)
    while paper.now < 2.0 + GAP_WAIT_S + ANSWER_S:
        paper.now += ANSWER_S
        paper.due(node)
    assert paper.delivered == [("s", 1), ("r", 8)]
    assert node.gaps == gaps


def test_a_node_that_is_not_new_any_more_counts_what_it_lacks() -> None:
    """It had a link, and was cut off before anything arrived."""
    paper, node = alone("a")
    node.down("a")
    paper.now = HISTORY_S
    node.up("a", True)
    assert paper.take()[-1] == ("a", (VECTOR, {}, -1.0))
    node.received("a", (VECTOR, {"r": 7}, -1.0), 0)
    node.received("a", (FLOORS, {"r": 7}, True, float("inf"), {"r": 0.0}), 0)
    paper.now += GAP_WAIT_S
    paper.due(node)
    assert node.gaps == 1


def test_behind_a_gap_nothing_is_delivered_until_another_brings_it_or_it_is_given_up() -> None:
    for brought in (True, False):
        paper, node = alone("a", "b")
        node.received("a", (PAYLOAD, ("r", 1), 1, 0.0, None), 10)
        node.up("c", True)
        node.received("c", (VECTOR, {"r": 3, "q": 1}, -1.0), 0)
        node.received("c", (FLOORS, {"r": 3}, True, float("inf"), {"r": 0.0}), 0)
        node.received("c", (REPLAY, ("q", 1), 1, 0.0), 10)
        assert paper.delivered == [("r", 1)]
        if brought:
            node.received("a", (PAYLOAD, ("r", 2), 1, 0.0, None), 10)
            assert paper.delivered == [("r", 1), ("r", 2)]
            node.received("a", (PAYLOAD, ("r", 3), 1, 0.0, None), 10)
            assert paper.delivered == [("r", 1), ("r", 2), ("r", 3), ("q", 1)]
            assert node.gaps == 0
        else:
            node.received("b", (PRUNE, "s"), 0)
            node.received("c", (PRUNE, "s"), 0)
            paper.now = GAP_WAIT_S - BATCH_S
            paper.due(node)
            node.received("a", (PAYLOAD, ("s", 1), 1, 0.0, None), 10)
            node.received("b", (PRUNE, "s"), 0)
            node.received("a", (PAYLOAD, ("s", 2), 1, 0.0, None), 10)
            paper.take()
            paper.now = GAP_WAIT_S
            node._wanted_due()
            assert paper.delivered == [("r", 1), ("s", 1), ("s", 2), ("q", 1)]
            assert node.gaps == 1
            told = [(to, wire) for to, wire in paper.sent if wire[0] in (ENTRIES, FLOORS)]
            assert [to for to, wire in told if wire[:2] == (FLOORS, {"r": 3})] == ["a", "b", "c"]
            # In the order that neighbours receive, its place is after all earlier deliveries.
            to_b = [wire[:2] for to, wire in told if to == "b"]
            assert to_b == [(ENTRIES, (("s", 2),)), (FLOORS, {"r": 3}), (ENTRIES, (("q", 1),))]


def test_before_the_first_message_of_a_root_there_is_no_gap() -> None:
    paper, node = alone("a", "b")
    node.received("a", (ENTRIES, (("q", 1), ("r", 1))), 0)
    node.received("b", (EARLY, ("q", 1), 1, 0.0), 10)
    node.received("a", (EARLY, ("r", 1), 1, 0.0), 10)
    assert paper.delivered == [("q", 1), ("r", 1)]


def test_a_floor_has_no_place_in_the_order() -> None:
    """A floor can stand for a message that depends on another floor."""
    paper, node = alone("a", "b")
    node.received("a", (FLOORS, {"r": 1, "q": 1}, True, -1.0, {"r": 0.0, "q": 0.0}), 0)
    node.received("b", (EARLY, ("r", 1), 1, 0.0), 10)
    assert paper.delivered == []


@pytest.mark.parametrize("held_before", [True, False])
def test_a_gap_is_given_up_though_its_last_payload_is_held(held_before: bool) -> None:
    paper, node = alone("a", "b")
    early = (EARLY, ("r", 3), 1, 0.0)
    if held_before:
        node.received("b", early, 10)
    node.received("a", (FLOORS, {"r": 3}, True, -1.0, {"r": 0.0}), 0)
    if not held_before:
        node.received("b", early, 10)
    node.received("a", (REPLAY, ("q", 1), 1, 0.0), 10)
    while paper.now < HISTORY_S + ANSWER_S:
        paper.now += ANSWER_S
        paper.due(node)
    assert node.gaps == 1
    assert paper.delivered == [("q", 1)]
    assert node.kept()["held"] == node.kept()["wanted"] == 0
    assert not [wire for _, wire in paper.take() if wire[0] == GRAFT]


def test_without_room_a_payload_is_dropped_and_asked_for_when_its_turn_has_come() -> None:
    paper, node = alone("a", "b", bounds=Bounds(held_bytes_max=25))
    node.received("a", (ENTRIES, (("q", 1),)), 0)
    for number in (1, 2, 3, 4):
        node.received("a", (PAYLOAD, ("r", number), 1, 0.0, None), 10)
    assert node.dropped == 2
    assert node.kept()["held_bytes"] == 20
    assert [wire[1] for to, wire in paper.take() if to == "b"] == [("r", number) for number in (1, 2, 3, 4)]
    node.received("b", (EARLY, ("q", 1), 1, 0.0), 10)
    assert paper.delivered == [("q", 1), ("r", 1), ("r", 2)]
    assert [each for each in paper.take() if each[1][0] == GRAFT] == [("a", (GRAFT, (("r", 3),), True))]
    node.received("a", (EARLY, ("r", 3), 1, 0.0), 10)
    assert [each for each in paper.take() if each[1][0] == GRAFT] == [("a", (GRAFT, (("r", 4),), True))]
    node.received("a", (EARLY, ("r", 4), 1, 0.0), 10)
    assert paper.delivered[-1] == ("r", 4)
    paper.now = BATCH_S
    paper.due(node)
    assert not [wire for to, wire in paper.take() if wire[0] in (PAYLOAD, EARLY)], "they have gone on before"


def test_a_tree_stays_as_it_is_when_what_was_dropped_is_asked_for() -> None:
    paper, node = alone("a", "b", bounds=Bounds(held_bytes_max=5))
    node.received("a", (PAYLOAD, ("r", 1), 1, 0.0, None), 10)
    node.received("b", (PRUNE, "r"), 0)
    node.received("b", (ENTRIES, (("q", 1), ("r", 2))), 0)
    node.received("a", (EARLY, ("r", 2), 1, 0.0), 10)
    assert node.dropped == 1
    paper.take()
    node.received("b", (EARLY, ("q", 1), 1, 0.0), 10)
    assert [each for each in paper.take() if each[1][0] == GRAFT] == [("b", (GRAFT, (("r", 2),), True))]
    node.received("b", (EARLY, ("r", 2), 1, 0.0), 10)
    assert paper.delivered == [("r", 1), ("q", 1), ("r", 2)]
    node.received("a", (PAYLOAD, ("r", 3), 1, 0.0, None), 10)
    assert not [wire for _, wire in paper.take() if wire[0] == PRUNE]


def test_more_entries_than_a_queue_takes_restart_the_link() -> None:
    paper, node = alone("a", "b", bounds=Bounds(queue_max=3))
    node.received("b", (PAYLOAD, ("q", 1), 1, 0.0, None), 10)
    paper.take()
    node.received("a", (ENTRIES, tuple(("r", number) for number in range(1, 6))), 0)
    assert node.restarts == 1
    assert node.kept()["queued"] == 0
    assert [to for to, wire in paper.take() if wire[0] == VECTOR] == ["a"]
    # Messages under way belong to the former order.
    node.received("a", (ENTRIES, (("r", 6),)), 0)
    node.received("a", (FLOORS, {"x": 9}, False, float("inf"), {"x": 0.0}), 0)
    assert node.kept()["queued"] == 0
    node.received("a", (FLOORS, {}, True, float("inf"), {}), 0)
    for number in range(1, 6):
        node.received("a", (REPLAY, ("r", number), 1, 0.1), 10)
    assert paper.delivered[1:] == [("r", number) for number in range(1, 6)]


def test_more_payloads_in_order_than_a_queue_takes_restart_the_link() -> None:
    paper, node = alone("a", "b", bounds=Bounds(queue_max=3))
    node.received("a", (ENTRIES, (("q", 1),)), 0)
    for number in range(1, 4):
        node.received("a", (PAYLOAD, ("r", number), 1, 0.0, None), 10)
    assert node.restarts == 1
    assert node.kept()["queued"] == 0
    node.received("a", (PAYLOAD, ("r", 4), 1, 0.0, None), 10)
    assert node.kept()["queued"] == 0
    node.received("a", (FLOORS, {}, True, float("inf"), {}), 0)
    for key in (("q", 1), *(("r", number) for number in range(1, 5))):
        node.received("a", (REPLAY, key, 1, 0.1), 10)
    assert paper.delivered == [("q", 1), *(("r", number) for number in range(1, 5))]


def test_a_payload_whose_entries_restart_the_link_does_not_come_before_them() -> None:
    paper, node = alone("a", bounds=Bounds(queue_max=3))
    before = tuple(("r", number) for number in range(1, 6))
    node.received("a", (PAYLOAD, ("s", 1), 1, 0.0, before), 10)
    assert node.restarts == 1
    assert paper.delivered == []
    assert node.kept()["queued"] == 0
    node.received("a", (FLOORS, {}, True, float("inf"), {}), 0)
    for key in (*before, ("s", 1)):
        node.received("a", (REPLAY, key, 1, 0.1), 10)
    assert paper.delivered == [*before, ("s", 1)]


def test_of_many_that_are_dropped_one_that_is_announced_is_asked_for() -> None:
    paper, node = alone("a", "b", bounds=Bounds(held_bytes_max=5, queue_max=2))
    node.received("a", (ENTRIES, (("q", 1),)), 0)
    for number in (2, 3):
        node.received("b", (EARLY, ("s", number), 1, 0.0), 10)
    node.received("a", (PAYLOAD, ("r", 1), 1, 0.0, None), 10)
    assert node.dropped == 3
    assert node.restarts == 0
    node.received("b", (EARLY, ("q", 1), 1, 0.0), 10)
    assert [wire[1] for to, wire in paper.take() if to == "a" and wire[0] == GRAFT][-1:] == [(("r", 1),)]
    node.received("a", (EARLY, ("r", 1), 1, 0.0), 10)
    assert paper.delivered == [("q", 1), ("r", 1)]


def test_what_was_dropped_and_nobody_can_send_any_more_is_given_up_at_once() -> None:
    paper, node = alone("a", "b", bounds=Bounds(held_bytes_max=5))
    node.received("a", (ENTRIES, (("q", 1),)), 0)
    for number in (1, 2, 3):
        node.received("a", (PAYLOAD, ("r", number), 1, 0.0, None), 10)
    node.received("b", (EARLY, ("q", 1), 1, 0.0), 10)
    for number in (1, 2):
        node.received("a", (GONE, (("r", number),)), 0)
        paper.now += PAUSE_S_MIN
        paper.due(node)
    assert node.gaps == 2
    node.received("a", (EARLY, ("r", 3), 1, 0.0), 10)
    assert paper.delivered == [("q", 1), ("r", 3)]


def test_a_payload_that_nobody_announces_is_dropped_in_the_end() -> None:
    paper, node = alone("a", "b")
    node.received("a", (EARLY, ("r", 2), 1, 0.0), 10)
    assert node.kept()["held"] == 1
    for now in (60.0, 120.0):
        paper.now = now
        paper.due(node)
    assert node.kept()["held"] == 0
    assert node.kept()["held_bytes"] == 0


def test_masks_survive_more_links_than_they_have_bits() -> None:
    paper, node = alone("a", "b")
    node.received("a", (PAYLOAD, ("r", 1), 1, 0.0, None), 10)
    for number in range(200):
        peer = f"c{number}"
        node.up(peer, False)
        node.received(peer, (VECTOR, {"r": 1}, -1.0), 0)
        node.down(peer)
    paper.take()
    row: Root = node.rows["r"]
    assert row.parent.bit_length() < 60
    node.received("a", (PAYLOAD, ("r", 2), 1, 0.0, None), 10)
    assert [to for to, wire in paper.take() if wire[0] == PAYLOAD] == ["b"]


def test_wires_of_no_neighbour_are_counted() -> None:
    _, node = alone("a")
    node.received("x", (ENTRIES, (("r", 1),)), 0)
    assert node.stray == 1
