"""Slots that come to an endpoint by ways on which some of what belongs to them was lost, or is old there."""

from __future__ import annotations

from ingeborg.broker.core.cluster.membership import DEAD_AFTER_S
from tests.simulator.world import Node

from .pages import pages_of, write
from .test_copying import EVERY, cluster, fill


def slots_of(node: Node) -> set[int]:
    return {slot for slot, home in enumerate(node.router.members.table) if home == node.me.incarnation}


def arrived(node: Node, whole: bool) -> set[int]:
    """The slots of which it was told so."""
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
    # It has registered, and reads the registry late: it joins c before it knows of b. In the view of c the slots of the
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
