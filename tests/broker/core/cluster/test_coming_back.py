"""Slots that reach an endpoint after some of their state was lost on the way, or became stale."""

from __future__ import annotations

import pytest

from ingeborg.broker.core.cluster.membership import DEAD_AFTER_S, LEASE_S
from ingeborg.protocol.hashes import SLOTS
from tests.simulator.world import Node

from ..talk import Cluster
from .pages import pages_of, write
from .test_slot_transfer import EVERY, cluster, counted, fill


def slots_of(node: Node) -> set[int]:
    return {slot for slot, home in enumerate(node.router.members.table) if home == node.me.incarnation}


def arrived(node: Node, whole: bool) -> set[int]:
    """Return the slots that arrived at the node, ``whole`` or not."""
    return {slot for what, slots, *so in pages_of(node).told if what == "arrived" and so == [whole] for slot in slots}


def test_what_was_taken_out_elsewhere_meanwhile_is_not_there_when_a_slot_comes_back() -> None:
    both = cluster("a", "b")
    fill(both)
    a, b = both.nodes["a"], both.nodes["b"]
    slot = next(slot for slot in sorted(slots_of(a)) if slot % EVERY == 0)
    a.stalled_until = both.world.now + DEAD_AFTER_S + 2.0
    both.world.run(DEAD_AFTER_S + 1.5)
    assert b.router.members.table[slot] == b.me.incarnation
    for number in range(3):
        write(b, (slot, number), b"new" if number == 1 else None)
    both.world.run(5.0)
    assert a.router.members.table[slot] == a.me.incarnation
    assert a.router.members.joined
    assert slot in arrived(a, True)
    assert {key: page for key, page in pages_of(a).pages.items() if key[0] == slot} == {(slot, 1): b"new"}


def left_to_b(three: Cluster, a_stalls_s: float) -> set[int]:
    """Stall the first of three until the others take it for dead. Return its slots that are b's then, each with a page
    that b wrote."""
    a, b = three.nodes["a"], three.nodes["b"]
    mine = {slot for slot in slots_of(a) if slot % EVERY == 0}
    a.stalled_until = three.world.now + a_stalls_s
    three.world.run(DEAD_AFTER_S + 1.0)
    slots = mine & slots_of(b)
    assert slots
    for node in three.nodes.values():
        pages_of(node).told.clear()
    for slot in slots:
        write(b, (slot, 1), b"new")
    return slots


def lost(three: Cluster, slots: set[int]) -> set[int]:
    """Return the slots whose home lacks the last write although no part reported a loss."""
    nodes = three.nodes.values()
    in_part = set().union(*(arrived(node, False) for node in nodes))
    homes = {slot: node for node in nodes for slot in slots_of(node)}
    return {slot for slot in slots - in_part if pages_of(homes[slot]).pages.get((slot, 1)) != b"new"}


@pytest.mark.parametrize("a_stalls_s", [4.3, 5.0, 6.0, 7.0])
@pytest.mark.parametrize("b_stalls_s", [LEASE_S - 0.2, LEASE_S + 0.1, DEAD_AFTER_S - 0.1, DEAD_AFTER_S + 0.2])
def test_who_comes_back_does_not_go_on_with_what_it_had_where_the_one_that_acted_lets_go_of_it(
    a_stalls_s: float, b_stalls_s: float
) -> None:
    three = cluster("a", "b", "c")
    fill(three)
    slots = left_to_b(three, a_stalls_s)
    b = three.nodes["b"]
    b.stalled_until = three.world.now + b_stalls_s
    three.world.run(12.0)
    assert all(node.router.members.joined for node in three.nodes.values())
    assert not lost(three, slots)


def test_nobody_is_asked_to_forget_where_nobody_has_acted_meanwhile() -> None:
    three = cluster("a", "b", "c")
    made = fill(three)
    a = three.nodes["a"]
    mine = slots_of(a)
    a.stalled_until = three.world.now + LEASE_S + 0.1
    three.world.run(6.0)
    assert counted(a, "leases_lapsed") == 1
    assert slots_of(a) == mine
    assert {key for key in pages_of(a).pages if key[0] in mine} == {key for key in made if key[0] in mine}
    assert pages_of(a).told == []


def test_of_two_that_have_both_acted_and_do_not_know_who_did_last_neither_calls_it_whole() -> None:
    """The only endpoint stalls. Another one starts, takes it for dead, acts, and then stalls itself."""
    both = cluster("a")
    fill(both)
    world, a = both.world, both.nodes["a"]
    a.stalled_until = world.now + 12.0
    world.run(0.1)
    b = both.nodes["b"] = world.start("b")
    world.run(9.0)
    assert b.router.members.joined
    slots = set(range(0, SLOTS, EVERY))
    for slot in slots:
        write(b, (slot, 1), b"new")
    for node in (a, b):
        pages_of(node).told.clear()
    b.stalled_until = a.stalled_until + 0.3
    world.run(8.0)
    assert all(node.router.members.joined for node in (a, b))
    assert not lost(both, slots)


def test_slots_of_two_that_crashed_are_whole_nowhere() -> None:
    three = cluster("a", "b", "c")
    fill(three)
    world, c = three.world, three.nodes["c"]
    lost = slots_of(three.nodes["a"]) | slots_of(three.nodes["b"])
    for name in "ab":
        world.crash(three.nodes[name])
    world.run(0.2)
    a = world.start("a")
    world.run(0.15)
    # The new a has registered, and reads the registry late: it joins c before it knows b. In c's view the slots of the
    # former a go to b, which is dead and never acts for them, and from there to the new a.
    before, until = world.store.answers, world.now + 5.0

    def answers(incarnation: str, operation: str) -> bool:
        waits = (incarnation, operation) == (a.me.incarnation, "endpoints") and world.now < until
        return before(incarnation, operation) and not waits

    world.store.answers = answers  # type: ignore[method-assign]
    world.run(15.0)
    assert all(node.router.members.joined for node in (a, c))
    in_part = arrived(a, False) | arrived(c, False)
    assert lost <= in_part, f"of {len(lost):,} slots {len(lost - in_part):,} were said to be whole"
