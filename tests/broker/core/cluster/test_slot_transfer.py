"""The state of slots moves with them: to an endpoint that joins, and from one that leaves. Losses are reported."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from ingeborg.broker.core.cluster.incoming import LATER_S
from ingeborg.broker.core.cluster.replicas import UNANSWERED_BYTES
from ingeborg.broker.core.cluster.slot_transfer import UNASKED_S
from ingeborg.broker.core.cluster.slots import pack_slots, unpack_slots
from ingeborg.broker.core.links.calls import Asker
from ingeborg.broker.core.links.requests import ReplicaBeginsRequest, ReplicaChunkRequest, ReplicaSentRequest, Request
from ingeborg.protocol.hashes import SLOTS
from tests.simulator.world import Node

from ..talk import Cluster
from .pages import Key, Pages, pages_of, write

#: One slot in this many has pages.
EVERY = 64


def cluster(*names: str, **options: Any) -> Cluster:
    made = Cluster(*names, states=lambda: [Pages()], **options)
    if len(names) > 1:
        forget_the_start(made)
    return made


def forget_the_start(made: Cluster) -> None:
    """Reset what endpoints that start together report: they cannot know that none existed before them."""
    for node in made.nodes.values():
        assert pages_of(node).in_part == node.router.members.table.count(node.me.incarnation)
        pages_of(node).told.clear()


def fill(cluster: Cluster, each: int = 3, size: int = 100) -> dict[Key, bytes]:
    """Write pages in one of ``EVERY`` slots, at their homes."""
    made: dict[Key, bytes] = {}
    by_incarnation = {node.me.incarnation: node for node in cluster.nodes.values()}
    for slot in range(0, SLOTS, EVERY):
        node = by_incarnation[next(iter(cluster.nodes.values())).router.members.table[slot]]
        for number in range(each):
            made[slot, number] = bytes([number]) * size
            write(node, (slot, number), made[slot, number])
    return made


def at_homes(*nodes: Node) -> dict[Key, bytes]:
    """Return the pages of these nodes in slots that they are home of."""
    found: dict[Key, bytes] = {}
    for node in nodes:
        table = node.router.members.table
        found |= {key: page for key, page in pages_of(node).pages.items() if table[key[0]] == node.me.incarnation}
    return found


def counted(node: Node, name: str) -> int:
    return node.router.counters.counts[name]


def _ask(desk: Any, peer: str, request: Request, asker: Any, now: float) -> None:
    desk.ask(peer, request, asker)


def test_slots_are_bits() -> None:
    slots = frozenset({0, 1, 8, 4095})
    assert len(pack_slots(slots)) == SLOTS // 8
    assert unpack_slots(pack_slots(slots)) == slots
    assert unpack_slots(b"") == frozenset()


def test_the_first_endpoint_begins_with_all_slots() -> None:
    a = cluster("a").nodes["a"]
    assert pages_of(a).told == [("arrived", list(range(SLOTS)), True)]


def test_a_newcomer_has_what_belongs_to_its_slots_when_it_joins() -> None:
    both = cluster("a")
    made = fill(both)
    a = both.nodes["a"]
    b = both.nodes["b"] = both.world.start("b")
    seen: list[dict[Key, bytes]] = []
    b.on_joined = lambda: seen.append(at_homes(b))
    both.world.run(3.0)
    assert b.router.members.joined
    (at_join,) = seen
    assert at_join == {key: page for key, page in made.items() if b.router.members.table[key[0]] == b.me.incarnation}
    assert len(at_join) > 50
    assert at_homes(a, b) == made
    assert pages_of(b).in_part == 0
    assert pages_of(a).told[-1][0] == "gone"
    assert len(a.router.cluster.replicas) == 0
    assert not a.router.cluster.replicas.watching


def test_what_changes_while_it_is_replicated_is_replicated_too() -> None:
    both = cluster("a")
    made = fill(both)
    a = both.nodes["a"]
    b = both.nodes["b"] = both.world.start("b")
    number = 0
    watched = 0
    while not b.router.members.joined:
        for slot in range(number % 16 * EVERY, SLOTS, 16 * EVERY):
            if a.router.members.table[slot] != a.me.incarnation:
                continue
            watched += a.router.cluster.replicas.watching
            key, page = (slot, number % 5), b"%d" % number
            if number % 7 == 6:
                made.pop(key, None)
                write(a, key, None, turn=False)
            else:
                made[key] = page
                write(a, key, page, turn=False)
            number += 1
        both.world.run(0.01)
        assert both.world.now < 1_010.0
    assert watched > 100
    assert at_homes(a, b) == made


def test_a_home_acts_until_all_is_replicated_and_no_more_than_a_window_is_under_way() -> None:
    both = cluster("a")
    made = fill(both, each=6, size=UNANSWERED_BYTES // 8)  # 48 MiB
    a = both.nodes["a"]
    b = both.nodes["b"] = both.world.start("b")
    most = number = 0
    without_home_s = 0.0
    while not b.router.members.joined:
        number += 1
        # Sometimes write several at once, which take several turns to send.
        for slot in range(0, SLOTS, EVERY) if number % 100 == 0 else ():
            if a.router.members.table[slot] == a.me.incarnation:
                made[slot, 1] = number.to_bytes(4) * (UNANSWERED_BYTES // 32)
                write(a, (slot, 1), made[slot, 1], turn=False)
        both.world.run(0.002)
        most = max(most, *(replica.unanswered for replica in a.router.cluster.replicas._replicas.values()), 0)
        if a.router.members.table.count(b.me.incarnation):
            without_home_s += 0.002
        assert both.world.now < 1_030.0
    assert UNANSWERED_BYTES <= most <= UNANSWERED_BYTES + 2 * (UNANSWERED_BYTES // 8) + 100
    assert without_home_s < 0.5
    assert at_homes(a, b) == made


def test_slots_that_come_back_before_anybody_had_them_are_whole() -> None:
    both = cluster("a")
    made = fill(both, each=6, size=UNANSWERED_BYTES // 8)
    a = both.nodes["a"]
    b = both.world.start("b")
    while not a.router.members.table.count(b.me.incarnation):
        both.world.run(0.001)
        write(a, (0, 6), b"%f" % both.world.now)
    assert not b.router.members.joined
    both.world.crash(b)
    both.world.run(8.0)
    assert a.router.members.table.count(a.me.incarnation) == SLOTS
    assert pages_of(a).in_part == 0
    assert {key: page for key, page in at_homes(a).items() if key != (0, 6)} == made


def test_a_replica_that_nobody_asks_after_is_dropped() -> None:
    both = cluster("a", "b")
    fill(both)
    a, b = both.nodes["a"], both.nodes["b"]
    slots = [slot for slot in range(SLOTS) if a.router.members.table[slot] == a.me.incarnation]
    moves = {b.me.incarnation: slots}
    assert not a.router.cluster.slot_transfer.prepared(moves)
    for _ in range(20):
        both.world.run(UNASKED_S / 10)
        assert a.router.cluster.slot_transfer.prepared(moves)
    both.world.run(UNASKED_S + 0.2)
    assert len(a.router.cluster.replicas) == 0
    assert not a.router.cluster.replicas.watching


def test_of_one_that_leaves_the_others_have_all() -> None:
    three = cluster("a", "b", "c")
    made = fill(three)
    a, b, c = (three.nodes[name] for name in "abc")
    a.event(lambda now: a.router.leave(now, 0.0))
    three.world.run(3.0)
    assert a.left
    assert at_homes(b, c) == made
    assert pages_of(a).pages == {}
    assert pages_of(b).in_part + pages_of(c).in_part == 0


@pytest.mark.parametrize("after_s", [0.0, 0.01, 0.03, 0.05, 0.1, 0.2])
def test_of_two_that_leave_at_about_the_same_time_the_third_has_all(after_s: float) -> None:
    three = cluster("a", "b", "c")
    made = fill(three)
    a, b, c = (three.nodes[name] for name in "abc")
    a.event(lambda now: a.router.leave(now, 0.0))
    three.world.run(after_s)
    b.event(lambda now: b.router.leave(now, 0.0))
    three.world.run(6.0)
    assert (a.left, b.left) == (True, True)
    assert at_homes(c) == made
    assert pages_of(c).in_part == 0


def test_slots_of_one_that_crashed_arrive_in_part() -> None:
    both = cluster("a", "b")
    fill(both)
    a, b = both.nodes["a"], both.nodes["b"]
    went = a.router.members.table.count(b.me.incarnation)
    before = counted(a, "slots_arrived_in_part")
    both.world.crash(b)
    both.world.run(8.0)
    assert pages_of(a).in_part == went
    assert counted(a, "slots_arrived_in_part") == before + went


def test_one_that_crashes_while_it_replicates_leaves_them_in_part() -> None:
    both = cluster("a")
    fill(both, each=6, size=UNANSWERED_BYTES // 8)
    a = both.nodes["a"]
    b = both.nodes["b"] = both.world.start("b")
    while not a.router.cluster.replicas.watching:
        both.world.run(0.001)
    both.world.run(0.05)
    both.world.crash(a)
    both.world.run(10.0)
    assert b.router.members.joined
    assert pages_of(b).in_part + sum(len(told[1]) for told in pages_of(b).told) >= SLOTS


def test_a_replica_for_one_that_does_not_come_is_dropped() -> None:
    both = cluster("a")
    fill(both, each=6, size=UNANSWERED_BYTES // 8)
    a = both.nodes["a"]
    b = both.world.start("b")
    while not a.router.cluster.replicas.watching:
        both.world.run(0.001)
    both.world.crash(b)
    both.world.run(UNASKED_S + 5.0)
    assert not a.router.cluster.replicas.watching
    assert len(a.router.cluster.replicas) == 0
    assert at_homes(a) != {}


class Noting(Asker):
    """Notes how its requests end."""

    def __init__(self) -> None:
        self.answers: list[Any] = []

    def answered(self, call: Any, value: Any) -> None:
        self.answers.append((type(call.request), value))

    def failed(self, call: Any, code: str, info: Any) -> None:
        self.answers.append((type(call.request), code))


@pytest.mark.parametrize("later_s", [0.0, LATER_S, LATER_S + 0.01])
def test_a_delayed_replica_does_not_replace_that_of_a_home_that_has_acted_later(later_s: float) -> None:
    """Two homes replicate a slot to c, one after the other. The first one's replica arrives last."""
    three = cluster("a", "b", "c")
    a, b, c = three.nodes.values()
    slot = next(slot for slot in range(SLOTS) if a.router.members.table[slot] == a.me.incarnation)
    first, second = Noting(), Noting()
    for node, at, asker in ((b, 1_000.0 + later_s, second), (a, 1_000.0, first)):
        begin = ReplicaBeginsRequest(77, pack_slots([slot]), at)
        node.event(partial(_ask, node.router._desk, c.me.incarnation, begin, asker))
        three.world.run(0.2)
    b.event(partial(_ask, b.router._desk, c.me.incarnation, ReplicaSentRequest(77, 0, True), second))
    three.world.run(0.2)
    is_sure = later_s > LATER_S  # by their clocks, which differ a little
    assert first.answers == [(ReplicaBeginsRequest, "internal" if is_sure else None)]
    assert second.answers == [(ReplicaBeginsRequest, None), (ReplicaSentRequest, is_sure)]


def test_a_replica_says_when_it_began() -> None:
    both = cluster("a")
    world, a = both.world, both.nodes["a"]
    world.run(5.0)
    started = world.now
    b = world.start("b")
    while not (incoming := list(b.router.cluster.incoming._incoming.values())):
        world.run(0.001)
    assert a.router.cluster.replicas.watching
    assert [started < replica.began_at < world.now for replica in incoming] == [True]


def test_a_replica_that_misses_keys_is_not_taken_for_whole() -> None:
    both = cluster("a", "b")
    a, b = both.nodes["a"], both.nodes["b"]
    desk = b.router._desk
    slot = next(slot for slot in range(SLOTS) if b.router.members.table[slot] == b.me.incarnation)
    asker = Noting()
    page = Pages()
    page.pages[slot, 1] = b"x"
    for request in (
        ReplicaBeginsRequest(77, pack_slots([slot])),
        ReplicaChunkRequest(77, "pages", page.pack([(slot, 1)])),
        ReplicaChunkRequest(77, "pages", b"\xc1"),
        ReplicaChunkRequest(77, "unknown", b""),
        ReplicaChunkRequest(78, "pages", b""),
        ReplicaSentRequest(77, 2, False),
        ReplicaSentRequest(77, 1, False),
        ReplicaSentRequest(78, 0, True),
    ):
        b.event(partial(_ask, desk, a.me.incarnation, request, asker))
        both.world.run(0.2)
    assert asker.answers == [
        (ReplicaBeginsRequest, None),
        (ReplicaChunkRequest, None),
        (ReplicaChunkRequest, "internal"),
        (ReplicaChunkRequest, "internal"),
        (ReplicaChunkRequest, "internal"),
        (ReplicaSentRequest, False),
        (ReplicaSentRequest, True),
        (ReplicaSentRequest, False),
    ]
