"""Roots: their lives, and the rule for forgetting one. Without the rule, nodes deliver a late replay twice."""

from __future__ import annotations

from collections.abc import Hashable

import pytest

from ingeborg.broker.core.overlay.grove import Grove
from ingeborg.broker.core.overlay.history import History
from ingeborg.broker.core.overlay.roots import (
    FORGET_S,
    HISTORY_S,
    RENEW_S,
    TOLD_S,
    TRANSIT_S,
    Life,
    Root,
    forget,
    renumber,
    vector,
)
from ingeborg.broker.core.overlay.swaps import SWEEP_S
from ingeborg.broker.core.overlay.wanted import ANSWER_S, GAP_WAIT_S
from ingeborg.broker.core.overlay.wires import FLOORS, PAYLOAD, REPLAY, VECTOR

from .paper import Paper


def rows_at(*times: float) -> dict[Hashable, Root]:
    """Return a root for each time, which is its last activity."""
    found: dict[Hashable, Root] = {}
    for number, at in enumerate(times):
        row = found[number] = Root(number, at, 0)
        row.seq = 1
    return found


def test_what_the_rule_rests_on() -> None:
    assert FORGET_S >= HISTORY_S + TRANSIT_S
    assert FORGET_S >= RENEW_S + TRANSIT_S
    assert RENEW_S + TRANSIT_S <= TOLD_S < FORGET_S
    assert SWEEP_S < FORGET_S


def test_silent_roots_are_forgotten_and_no_others() -> None:
    rows = rows_at(0.0, 1.0, 2.0)
    assert forget(rows, FORGET_S + 1.5) == 2
    assert list(rows) == [2]


def test_with_too_many_those_go_that_have_been_silent_longest_and_long_enough() -> None:
    now = 1_000.0
    safe = now - HISTORY_S - TRANSIT_S
    rows = rows_at(safe + 1.0, safe - 1.0, safe - 2.0, now)
    assert forget(rows, now, roots_max=3) == 1
    assert list(rows) == [0, 1, 3]
    assert forget(rows, now, roots_max=1) == 1
    assert list(rows) == [0, 3]


def test_a_vector_leaves_out_roots_of_which_nothing_was_delivered() -> None:
    rows = rows_at(0.0, 0.0)
    rows[0].seq = 0
    assert vector(rows) == {1: 1}


def test_a_life_knows_whose_it_is() -> None:
    row = Root(Life("r", 7), 0.0, 0)
    assert (row.origin, row.base) == ("r", 7)
    assert (Root("r", 0.0, 0).origin, Root("r", 0.0, 0).base) == ("r", 0)


def test_links_that_are_renumbered_keep_their_places_in_masks() -> None:
    rows = rows_at(0.0)
    rows[0].eager, rows[0].parent, rows[0].refused = 0b1010_0000, 0b1000_0000, 0b0100_0000
    renumber(rows, [(0b0010_0000, 1), (0b1000_0000, 2)])
    assert (rows[0].eager, rows[0].parent, rows[0].refused) == (0b11, 0b10, 0)


# In nodes


class Pair:
    """Linked nodes, two at first, that exchange wires until none is left."""

    def __init__(self) -> None:
        self.papers = {"a": Paper(1), "b": Paper(2)}
        self.nodes = {name: Grove(paper, name) for name, paper in self.papers.items()}

    def come(self, name: str) -> Grove:
        """Add a node."""
        paper = self.papers[name] = Paper(len(self.papers) + 1)
        paper.now = self.papers["a"].now
        self.nodes[name] = Grove(paper, name)
        return self.nodes[name]

    def link(self, one: str = "a", other: str = "b") -> None:
        self.nodes[one].up(other, True)
        self.nodes[other].up(one, False)
        self.settle()

    def unlink(self, one: str = "a", other: str = "b") -> None:
        self.nodes[one].down(other)
        self.nodes[other].down(one)

    def settle(self) -> None:
        while any(paper.sent for paper in self.papers.values()):
            for name, paper in self.papers.items():
                for peer, wire in paper.take():
                    assert isinstance(peer, str)
                    self.nodes[peer].received(name, wire, 10 if wire[0] in (PAYLOAD, REPLAY) else 0)

    def at(self, now: float) -> None:
        """Let time pass."""
        while any(self.papers["a"].timers) and self.papers["a"].now < now:
            nearest = min([when for paper in self.papers.values() for when, _ in paper.timers] + [now])
            for name, paper in self.papers.items():
                paper.now = max(paper.now, min(nearest, now))
                paper.due(self.nodes[name])
            self.settle()
            if nearest >= now:
                break
        for paper in self.papers.values():
            paper.now = now


def test_a_root_that_was_silent_begins_another_life_and_counts_on_for_the_application() -> None:
    pair = Pair()
    pair.link()
    for now in (0.0, RENEW_S - 1.0, 2 * RENEW_S + 1.0, 2 * RENEW_S + 2.0):
        pair.at(now)
        pair.nodes["a"].broadcast(10)
        pair.settle()
    assert pair.papers["b"].delivered == [("a", 1), ("a", 2), ("a", 3), ("a", 4)]
    assert vector(pair.nodes["b"].rows) == {"a": 2, Life("a", 2): 2}


def test_a_root_that_speaks_after_it_was_forgotten_has_no_gap() -> None:
    pair = Pair()
    pair.link()
    pair.nodes["a"].broadcast(10)
    pair.settle()
    pair.at(FORGET_S + 2 * SWEEP_S)
    assert pair.nodes["b"].forgotten == pair.nodes["a"].forgotten == 1
    pair.nodes["a"].broadcast(10)
    pair.settle()
    assert pair.papers["b"].delivered == [("a", 1), ("a", 2)]
    assert pair.nodes["b"].gaps == 0


def test_a_root_that_was_one_too_many_and_speaks_again_has_a_gap_which_is_counted() -> None:
    pair = Pair()
    pair.link()
    pair.nodes["a"].broadcast(10)
    pair.settle()
    pair.at(HISTORY_S + TRANSIT_S + 1.0)
    b = pair.nodes["b"]
    assert forget(b.rows, pair.papers["b"].now, roots_max=0) == 1
    pair.nodes["a"].broadcast(10)
    pair.settle()
    assert pair.papers["b"].delivered == [("a", 1)]
    pair.at(pair.papers["b"].now + GAP_WAIT_S + ANSWER_S)
    assert pair.papers["b"].delivered == [("a", 1), ("a", 2)]
    assert b.gaps == 1


def test_a_life_that_a_newcomer_was_told_of_ends_there_as_elsewhere() -> None:
    """Otherwise each would relearn it from the other, forever."""
    pair = Pair()
    pair.link()
    pair.nodes["a"].broadcast(10)
    pair.settle()
    pair.at(TOLD_S - 10.0)
    b, c = pair.nodes["b"], pair.come("c")
    pair.link("b", "c")
    assert vector(c.rows) == {"a": 1}
    pair.unlink("b", "c")
    pair.at(FORGET_S + 1.5 * SWEEP_S)
    assert not b.rows
    pair.link("b", "c")
    pair.at(FORGET_S + 3.0 * SWEEP_S)
    assert not b.rows
    assert not c.rows
    assert b.gaps == c.gaps == 0


def late_replay(history_s: float) -> list[tuple[object, int]]:
    """Let a node forget a root. Then a neighbour that was cut off comes back, with that root's message in its history,
    which replays messages for ``history_s``. Return all deliveries of the node."""
    pair = Pair()
    pair.link()
    pair.nodes["a"].broadcast(10)
    pair.settle()
    pair.unlink()
    pair.at(FORGET_S + 2 * SWEEP_S)
    b = pair.nodes["b"]
    assert "a" not in b.rows
    # The neighbour was suspended together with its timers: it still knows its deliveries.
    cut_off = Grove(Paper(3), "c")
    cut_off.rows["a"] = Root("a", 0.0, 0)
    cut_off.rows["a"].seq = 1
    cut_off.history = History(age_max_s=history_s)
    cut_off.history.append(("a", 1), 10, 1, 0.0, 0.0)
    pair.papers["c"], pair.nodes["c"] = Paper(3), cut_off
    cut_off._desk = pair.papers["c"]
    cut_off._send = pair.papers["c"].send
    pair.papers["c"].now = pair.papers["b"].now
    b.up("c", True)
    cut_off.up("b", False)
    pair.settle()
    for _ in range(3):
        pair.at(pair.papers["b"].now + 5.0)
    return list(pair.papers["b"].delivered)


def test_a_late_replay_delivers_nothing_twice() -> None:
    assert late_replay(HISTORY_S) == [("a", 1)]


def test_a_history_that_outlasts_memory_is_found() -> None:
    assert late_replay(10 * FORGET_S) == [("a", 1), ("a", 1)]


@pytest.mark.parametrize("age", [0.0, 9.0])
def test_an_age_goes_along_and_is_added_up(age: float) -> None:
    """So a message expires everywhere at the same time, however many histories have held it."""
    paper = Paper()
    node = Grove(paper, "me")
    node.up("x", True)
    node.received("x", (VECTOR, {}, 1.0), 0)
    node.received("x", (FLOORS, {}, True, 1.0, {}), 0)
    node.received("x", (REPLAY, ("r", 1), 1, age), 10)
    paper.take()
    paper.now = 2.0
    node.up("y", False)
    node.received("y", (VECTOR, {}, -1.0), 0)
    replayed = [wire for to, wire in paper.take() if to == "y" and wire[0] == REPLAY]
    assert replayed == ([(REPLAY, ("r", 1), 2, 2.0)] if age == 0.0 else [])
