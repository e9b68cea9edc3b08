"""Trees, at one node: which peers it prunes, and which it asks for missing payloads, and when."""

from __future__ import annotations

from ingeborg.broker.core.overlay.grove import Grove
from ingeborg.broker.core.overlay.wanted import ANSWER_S, LAG_S
from ingeborg.broker.core.overlay.wires import EARLY, ENTRIES, FLOORS, GONE, GRAFT, PAYLOAD, PRUNE, REPLAY, VECTOR

from .paper import Paper


def alone(*neighbours: str) -> tuple[Paper, Grove]:
    """Return a node with links to these neighbours, which have empty vectors."""
    paper = Paper()
    node = Grove(paper, "me")
    for peer in neighbours:
        up(node, peer)
    paper.take()
    return paper, node


def up(node: Grove, peer: str) -> None:
    """Open a link whose two ends lack nothing."""
    node.up(peer, True)
    node.received(peer, (VECTOR, {"r": 1 << 20, "me": 1 << 20}, -1.0), 0)
    node.received(peer, (FLOORS, {}, True, 1.0, {}), 0)


def payload(node: Grove, peer: str, number: int, root: str = "r", kind: int = PAYLOAD) -> None:
    """Receive a payload of the root from the peer."""
    node.received(peer, (kind, (root, number), 1, 0.0, None)[: 5 if kind == PAYLOAD else 4], 10)


def announce(node: Grove, peer: str, *numbers: int) -> None:
    """Receive the peer's announcement that it delivered these messages of r."""
    node.received(peer, (ENTRIES, tuple(("r", number) for number in numbers)), 0)


def sent(paper: Paper, kind: int) -> list[object]:
    """Return the receivers of wires of this kind since the last look."""
    return [to for to, wire in paper.take() if wire[0] == kind]


def test_a_first_message_floods_and_a_second_one_takes_the_tree() -> None:
    paper, node = alone("a", "b", "c")
    payload(node, "a", 1)
    assert sent(paper, PAYLOAD) == ["b", "c"]
    node.received("b", (PRUNE, "r"), 0)
    payload(node, "a", 2)
    assert sent(paper, PAYLOAD) == ["c"]
    assert node.broadcast(10) is None  # type: ignore[func-returns-value]
    assert sent(paper, PAYLOAD) == ["a", "b", "c"], "each root has a tree of its own"


def test_who_sends_a_payload_twice_is_pruned_unless_the_two_crossed() -> None:
    paper, node = alone("a", "b", "c")
    payload(node, "a", 1)
    paper.take()
    payload(node, "b", 1)
    assert sent(paper, PRUNE) == [], "ours is on its way to b, which will stop by itself"
    payload(node, "a", 2)
    assert sent(paper, PAYLOAD) == ["c"], "and so do we"
    payload(node, "b", 2)
    assert sent(paper, PRUNE) == ["b"]


def test_the_parent_is_not_pruned() -> None:
    paper, node = alone("a", "b")
    payload(node, "a", 1)
    payload(node, "a", 1, kind=EARLY)
    assert sent(paper, PRUNE) == []
    assert node.duplicates == 1


def test_who_was_pruned_is_no_parent_by_what_was_under_way() -> None:
    paper, node = alone("a", "b")
    payload(node, "a", 1)
    payload(node, "b", 1)
    payload(node, "b", 1, kind=EARLY)
    paper.take()
    payload(node, "b", 2)
    payload(node, "a", 2)
    assert sent(paper, PRUNE) == []
    assert node.rows["r"].parent == node.rows["r"].parent & node._links["a"].bit


def test_a_replay_says_nothing_of_trees() -> None:
    paper, node = alone("a", "b")
    payload(node, "a", 1)
    payload(node, "b", 2, kind=REPLAY)
    payload(node, "a", 2)
    assert sent(paper, PRUNE) == []
    payload(node, "a", 3)
    payload(node, "b", 3, kind=REPLAY)
    assert sent(paper, PRUNE) == []


def test_an_own_message_that_comes_back_is_pruned() -> None:
    paper, node = alone("a")
    node.broadcast(10)
    node.received("a", (PRUNE, "me"), 0)
    payload(node, "a", 1, root="me", kind=EARLY)
    assert sent(paper, PRUNE) == ["a"]


def test_what_the_tree_should_bring_is_asked_for_when_the_timer_is_over() -> None:
    paper, node = alone("a", "b", "c")
    payload(node, "a", 1)
    paper.take()
    announce(node, "b", 2)
    announce(node, "c", 2)
    paper.now = 2 * LAG_S - 0.05
    paper.due(node)
    assert sent(paper, GRAFT) == []
    paper.now = 2 * LAG_S
    paper.due(node)
    assert sent(paper, GRAFT) == ["b"]
    paper.now += 2 * ANSWER_S
    paper.due(node)
    assert sent(paper, GRAFT) == ["c"]
    payload(node, "c", 2, kind=EARLY)
    paper.now += 10.0
    paper.due(node)
    assert sent(paper, GRAFT) == []
    assert node.grafts == 2


def test_what_no_tree_can_bring_is_asked_for_at_once_and_of_one_only() -> None:
    paper, node = alone("b", "c")
    announce(node, "b", 1, 2)
    assert paper.take() == [("b", (GRAFT, (("r", 1), ("r", 2)), False))]
    announce(node, "c", 1, 2)
    assert sent(paper, GRAFT) == []


def test_a_parent_that_only_announces_is_asked_at_once() -> None:
    paper, node = alone("a", "b")
    payload(node, "a", 1)
    paper.take()
    announce(node, "a", 2)
    assert sent(paper, GRAFT) == ["a"]


def test_when_the_parent_goes_down_what_is_missing_is_asked_for_at_once() -> None:
    paper, node = alone("a", "b")
    payload(node, "a", 1)
    announce(node, "b", 2)
    paper.take()
    node.down("a")
    assert sent(paper, GRAFT) == ["b"]


def test_who_is_asked_sends_that_message_and_the_next_ones() -> None:
    paper, node = alone("a", "b")
    payload(node, "a", 1)
    node.received("b", (PRUNE, "r"), 0)
    payload(node, "a", 2)
    paper.take()
    paper.now = 1.5
    node.received("b", (GRAFT, (("r", 2),), False), 0)
    assert paper.take() == [("b", (EARLY, ("r", 2), 2, 1.5))]
    payload(node, "a", 3)
    assert sent(paper, PAYLOAD) == ["b"]


def test_who_asks_once_gets_that_message_only() -> None:
    paper, node = alone("a", "b")
    payload(node, "a", 1)
    node.received("b", (PRUNE, "r"), 0)
    paper.take()
    node.received("b", (GRAFT, (("r", 1),), True), 0)
    assert paper.take() == [("b", (EARLY, ("r", 1), 2, 0.0))]
    payload(node, "a", 2)
    assert sent(paper, PAYLOAD) == []


def test_a_parent_that_asks_is_the_parent_no_more() -> None:
    paper, node = alone("a", "b")
    payload(node, "a", 1)
    node.received("a", (GRAFT, (("r", 1),), False), 0)
    paper.take()
    announce(node, "b", 2)
    assert sent(paper, GRAFT) == ["b"]


def test_who_cannot_send_it_any_more_says_so_and_the_next_is_asked() -> None:
    paper, node = alone("a")
    payload(node, "a", 1)
    paper.now = 11.0
    node.received("a", (GRAFT, (("r", 1),), False), 0)
    assert sent(paper, GONE) == ["a"]

    paper, node = alone("a", "b")
    announce(node, "a", 1)
    announce(node, "b", 1)
    paper.take()
    node.received("a", (GONE, (("r", 1),)), 0)
    assert sent(paper, GRAFT) == ["b"]


def test_a_new_link_carries_no_payloads_of_known_roots() -> None:
    paper, node = alone("a")
    payload(node, "a", 1)
    up(node, "b")
    paper.take()
    payload(node, "a", 2)
    assert sent(paper, PAYLOAD) == []


def test_a_root_whose_links_are_all_gone_floods_again() -> None:
    paper, node = alone("a")
    node.broadcast(10)
    node.down("a")
    up(node, "b")
    paper.take()
    node.broadcast(10)
    assert sent(paper, PAYLOAD) == ["b"]
