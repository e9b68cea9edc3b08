"""Shuffles between a few nodes: the exchanged peers, and the way of the answer."""

from __future__ import annotations

from ingeborg.broker.core.overlay.node import Node
from ingeborg.broker.core.overlay.views import SHUFFLE_S, Hyparview
from ingeborg.broker.core.overlay.words import NEIGHBOUR, SHUFFLE, SHUFFLED

from .paper import Paper


def node(*neighbours: str, known: tuple[str, ...] = ()) -> tuple[Paper, Hyparview]:
    """Return a node with these views."""
    paper = Paper()
    made = Hyparview(paper, "me", Node())
    made.start(None)
    for peer in neighbours:
        made.up(peer, False)
        made.received(peer, (NEIGHBOUR, False), 0)
    for peer in known:
        made.passive.note(peer)
    paper.take()
    return paper, made


def test_a_shuffle_names_some_of_both_views_and_who_began_it() -> None:
    paper, made = node("a", "b", "c", "d", "e", known=("p", "q", "r", "s", "t"))
    paper.now = 2 * SHUFFLE_S
    paper.due(made)
    ((to, wire),) = [each for each in paper.take() if each[1][0] == SHUFFLE]
    _, names, ttl, way = wire
    assert to in made.active
    assert (names[0], ttl, way) == ("me", 6, ("me",))
    assert len(set(names) & set(made.active)) == 3
    assert len(set(names) & set(made.passive.names)) == 4


def test_it_is_passed_on_but_not_to_where_it_has_been() -> None:
    paper, made = node("a", "b")
    made.received("a", (SHUFFLE, ("x", "y"), 3, ("x", "a")), 0)
    assert paper.take() == [("b", (SHUFFLE, ("x", "y"), 2, ("x", "a", "me")))]


def test_at_its_end_it_is_answered_the_way_it_came() -> None:
    paper, made = node("a", "b", known=("p",))
    made.received("a", (SHUFFLE, ("x", "y"), 1, ("x", "a")), 0)
    assert [each for each in paper.take() if each[1][0] == SHUFFLED] == [("a", (SHUFFLED, ("p",), ("x",)))]
    assert set(made.passive.names) == {"p", "x", "y"}


def test_an_answer_is_passed_back_and_taken_by_whom_it_is_for() -> None:
    paper, made = node("a", "b", "c", "d", "e")
    made.received("a", (SHUFFLED, ("p",), ("x", "b")), 0)
    assert paper.take() == [("b", (SHUFFLED, ("p",), ("x",)))]
    assert not made.passive.names
    made.received("a", (SHUFFLED, ("p", "b", "me"), ()), 0)
    assert list(made.passive.names) == ["p"]


def test_who_lacks_neighbours_asks_those_that_a_shuffle_brings() -> None:
    paper, made = node("a", "b")
    made.received("a", (SHUFFLED, ("p", "q"), ()), 0)
    assert sorted(map(str, paper.dialled)) == ["p", "q"]
