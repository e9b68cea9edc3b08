"""Failover replicas: if a home crashes, the next home has the whole state of its slots."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ingeborg.broker.core.cluster.homes import home_table
from ingeborg.broker.core.cluster.incoming import IncomingReplicas
from ingeborg.broker.core.cluster.membership import DEAD_AFTER_S, Membership
from ingeborg.broker.core.cluster.replicas import ROW_MAX, Replica, Replicas
from ingeborg.broker.core.cluster.slots import pack_slots
from ingeborg.broker.core.links.calls import Asker
from ingeborg.broker.core.links.requests import ReplicaBeginsRequest, ReplicaChunkRequest, ReplicaSentRequest
from ingeborg.broker.core.model import Settings
from ingeborg.protocol.hashes import SLOTS
from tests import wants
from tests.planted import finds
from tests.simulator.world import Node

from ..talk import Cluster
from .pages import Key, Pages, pages_of, write
from .test_slot_transfer import at_homes, counted, fill, forget_the_start

#: Seconds until others notice a crash, another endpoint has taken over, and has its own replica.
TAKEN_OVER_S = DEAD_AFTER_S + 2.0


def cluster(*names: str, **options: Any) -> Cluster:
    made = Cluster(*names, states=lambda: [Pages(at_replicas=True)], settings=Settings(replication=True), **options)
    made.world.run(4.0)
    if len(names) > 1:
        forget_the_start(made)
    return made


def without(cluster: Cluster) -> int:
    """Count the slots without a replica at all living endpoints."""
    return sum(node.router.cluster.replication.without for node in cluster.world.live())


def slot_of(node: Node) -> int:
    return node.router.members.table.index(node.me.incarnation)


def keep(node: Node, key: Key, page: bytes) -> bool:
    """Write as the home of the slot, and wait for the replica: once it has the page, ``confirmed`` of the state gets
    it."""
    pages_of(node).pages[key] = page
    waits = node.router.cluster.replication.keep(pages_of(node), key[0], key, len(page), page)
    node.event(lambda now: None)
    return waits


def test_one_alone_has_no_replica() -> None:
    assert without(cluster("a")) == SLOTS


def test_all_slots_have_one_where_another_endpoint_is() -> None:
    assert without(cluster("a", "b")) == 0
    assert without(cluster("a", "b", "c")) == 0


def test_nothing_is_kept_where_it_is_not_wanted() -> None:
    two = Cluster("a", "b", states=lambda: [Pages(at_replicas=True)])
    fill(two)
    two.world.run(1.0)
    assert [len(node.router.cluster.replicas) for node in two.nodes.values()] == [0, 0]
    assert [node.router.cluster.replicas.watching for node in two.nodes.values()] == [False, False]


@pytest.mark.parametrize("crashing", "abc")
def test_what_belongs_to_slots_is_whole_after_the_crash_of_any(crashing: str) -> None:
    three = cluster("a", "b", "c")
    made = fill(three)
    three.world.run(0.5)
    three.world.crash(three.nodes[crashing])
    three.world.run(TAKEN_OVER_S)
    rest = [node for name, node in three.nodes.items() if name != crashing]
    assert at_homes(*rest) == made
    assert [pages_of(node).in_part for node in rest] == [0, 0]
    assert without(three) == 0


def test_a_state_that_replicas_have_nothing_of_is_not_called_whole_after_a_crash() -> None:
    made = Cluster("a", "b", "c", states=lambda: [Pages()], settings=Settings(replication=True))
    made.world.run(4.0)
    forget_the_start(made)
    fill(made)
    made.world.run(0.5)
    assert without(made) == 0
    crashed = made.nodes.pop("a")
    before = sum(counted(node, "slots_arrived_in_part") for node in made.nodes.values())
    lost = sum(home == crashed.me.incarnation for home in crashed.router.members.table)
    made.world.crash(crashed)
    made.world.run(TAKEN_OVER_S)
    assert sum(pages_of(node).in_part for node in made.nodes.values()) == lost
    assert sum(counted(node, "slots_arrived_in_part") for node in made.nodes.values()) == before + lost


def test_one_crash_after_the_other_loses_nothing_while_slots_have_replicas() -> None:
    four = cluster("a", "b", "c", "d")
    made = fill(four)
    four.world.run(0.5)
    for name in "abc":
        assert without(four) == 0
        four.world.crash(four.nodes.pop(name))
        four.world.run(TAKEN_OVER_S)
        assert at_homes(*four.nodes.values()) == made


def test_a_change_that_was_confirmed_survives_and_is_not_confirmed_before() -> None:
    both = cluster("a", "b")
    a, b = both.nodes["a"], both.nodes["b"]
    confirmed = pages_of(a).confirmed
    key = (slot_of(a), 1)
    assert keep(a, key, b"kept")
    both.world.run(0.005)  # on its way
    assert confirmed == []
    assert pages_of(b).pages == {}
    both.world.run(0.02)
    assert confirmed == [b"kept"]
    assert pages_of(b).pages == {key: b"kept"}
    both.world.crash(a)
    both.world.run(TAKEN_OVER_S)
    assert at_homes(b) == {key: b"kept"}


def test_a_change_that_nobody_waits_for_is_there_within_a_tick() -> None:
    both = cluster("a", "b")
    a, b = both.nodes["a"], both.nodes["b"]
    key = (slot_of(a), 1)
    begun = a.router.counters.counts["replicated_bytes"]
    for number in range(100):
        write(a, key, b"%d" % number)
        both.world.run(0.0005)
    both.world.run(0.2)
    assert pages_of(b).pages == {key: b"99"}
    assert a.router.counters.counts["replicated_bytes"] - begun < 60  # one or two of the hundred


def test_many_confirmed_changes_of_many_bytes_stay_within_the_window_and_in_order() -> None:
    both = cluster("a", "b")
    a, b = both.nodes["a"], both.nodes["b"]
    confirmed = pages_of(a).confirmed
    pages = [number.to_bytes(4) * 25_000 for number in range(60)]
    slot = slot_of(a)
    for number, page in enumerate(pages):
        assert keep(a, (slot, number), page)
    most = 0
    for _ in range(200):
        both.world.run(0.002)
        most = max(most, *(replica.unanswered for replica in a.router.cluster.replicas._replicas.values()))
    assert confirmed == pages
    assert most < (1 << 20) + 2 * 100_000 + 1_000
    assert len(pages_of(b).pages) == 60


def test_a_row_that_grows_too_long_is_given_up_and_nobody_waits_in_vain() -> None:
    both = cluster("a", "b")
    a, b = both.nodes["a"], both.nodes["b"]
    confirmed = pages_of(a).confirmed
    for one, other in ("ab", "ba"):
        both.world.cut(one, other, 1.0)
    slot, replicas = slot_of(a), a.router.cluster.replication
    waiting = 0
    for number in range(ROW_MAX + 2):
        waiting += replicas.keep(pages_of(a), slot, (slot, 1), 5, number)
    assert (waiting, len(confirmed)) == (ROW_MAX + 1, ROW_MAX + 1)
    assert a.router.counters.drops["replicas_broken"] == 1
    both.world.run(3.0)
    assert without(both) == 0
    assert b.router.members.joined


def test_whoever_waits_for_a_replica_that_dies_goes_on() -> None:
    both = cluster("a", "b")
    a, b = both.nodes["a"], both.nodes["b"]
    confirmed = pages_of(a).confirmed
    both.world.crash(b)
    assert keep(a, (slot_of(a), 1), b"kept")
    both.world.run(1.0)
    assert confirmed == []
    both.world.run(TAKEN_OVER_S)
    assert confirmed == [b"kept"]
    assert not keep(a, (slot_of(a), 2), b"alone")
    assert without(both) == SLOTS


def test_another_replica_is_filled_when_the_view_changes() -> None:
    three = cluster("a", "b", "c")
    made = fill(three)
    three.nodes["d"] = three.world.start("d")
    three.world.run(6.0)
    assert three.nodes["d"].router.members.joined
    assert without(three) == 0
    for name in "bd":
        three.world.crash(three.nodes.pop(name))
        three.world.run(TAKEN_OVER_S)
        assert at_homes(*three.nodes.values()) == made


def test_a_replica_forgets_what_is_another_s_to_keep() -> None:
    two = cluster("a", "b")
    fill(two)
    two.world.run(0.5)
    a, b = two.nodes["a"], two.nodes["b"]
    assert len(pages_of(a).pages) == len(pages_of(b).pages) == len(at_homes(a, b))
    c = two.nodes["c"] = two.world.start("c")
    two.world.run(6.0)
    for node in (a, b, c):
        table, without_one = node.router.members.table, []
        for other in {a, b, c} - {node}:
            rest = [(one.me.name, one.me.incarnation) for one in (a, b, c) if one is not other]
            without_one.append((other.me.incarnation, dict(enumerate(home_table(rest)))))
        for slot, _ in pages_of(node).pages:
            next_of = dict(without_one)
            home = table[slot]
            assert home == node.me.incarnation or next_of[home][slot] == node.me.incarnation


def test_an_endpoint_that_leaves_hands_over_in_order_and_keeps_nothing() -> None:
    three = cluster("a", "b", "c")
    made = fill(three)
    three.world.run(0.5)
    a = three.nodes.pop("a")
    a.event(lambda now: a.router.leave(now, 0.0))
    three.world.run(4.0)
    assert a.left
    assert at_homes(*three.nodes.values()) == made
    assert pages_of(a).pages == {}
    assert without(three) == 0
    assert sum(node.router.counters.drops["replicas_broken"] for node in (a, *three.nodes.values())) == 0


def test_what_was_taken_out_while_the_replica_could_not_be_told_does_not_come_back() -> None:
    """An endpoint also has only one replica of each slot, however often it gives one up."""
    both = cluster("a", "b")
    a, b = both.nodes["a"], both.nodes["b"]
    key, other = (slot_of(a), 1), (slot_of(a), 2)
    write(a, key, b"old")
    write(a, other, b"stays")
    for _ in range(3):
        both.world.run(0.5)
        both.world.cut("a", "b", 12.0)
        both.world.cut("b", "a", 12.0)
        both.world.run(1.0)
        write(a, key, None)
        both.world.run(20.0)
    assert len(b.router.cluster.incoming._incoming) == 1
    both.world.crash(a)
    both.world.run(TAKEN_OVER_S)
    assert at_homes(b) == {other: b"stays"}
    assert pages_of(b).in_part == 0


def test_a_replica_whose_lease_lapses_at_the_crash_has_it_all_the_same() -> None:
    three = cluster("a", "b", "c")
    made = fill(three)
    three.world.run(0.5)
    mine = {key for key in made if three.nodes["b"].router.members.table[key[0]] == three.nodes["a"].me.incarnation}
    three.world.crash(three.nodes.pop("a"))
    three.world.store.down = True
    three.world.at(2.0, setattr, three.world.store, "down", False)
    three.world.run(15.0)
    assert [counted(node, "leases_lapsed") for node in three.nodes.values()] == [1, 1]
    found = at_homes(*three.nodes.values())
    assert {key: found.get(key) for key in mine} == {key: made[key] for key in mine}
    assert without(three) == 0


def test_one_that_was_taken_for_dead_and_lives_gets_its_slots_back_whole() -> None:
    both = cluster("a", "b")
    made = fill(both)
    both.world.run(0.5)
    a, b = both.nodes["a"], both.nodes["b"]
    key = (slot_of(a), 0)
    a.stalled_until = both.world.now + 6.0
    both.world.run(5.0)
    assert at_homes(b) == made
    made[key] = b"of b's time"
    write(b, key, made[key])
    both.world.run(6.0)
    assert a.router.members.joined
    assert at_homes(a, b) == made
    assert (pages_of(a).in_part, pages_of(b).in_part) == (0, 0)
    assert without(both) == 0


def test_a_replica_that_is_given_up_is_begun_again() -> None:
    both = cluster("a", "b")
    made = fill(both)
    a, b = both.nodes["a"], both.nodes["b"]
    both.world.run(0.5)
    (replica,) = a.router.cluster.replicas._replicas.values()
    a.event(lambda now: a.router.cluster.replicas.give_up(replica))
    both.world.run(0.05)
    assert a.router.cluster.replication.without == a.router.members.table.count(a.me.incarnation)
    assert at_homes(a, b) == made
    both.world.run(2.0)
    assert without(both) == 0
    assert a.router.counters.drops["replicas_broken"] == 1
    both.world.crash(a)
    both.world.run(TAKEN_OVER_S)
    assert at_homes(b) == made


def late_copy() -> tuple[bytes, bytes]:
    """Return what ``b`` wrote after it took over, and its page after a part of ``a``'s replica came late."""
    both = cluster("a", "b")
    a, b = both.nodes["a"], both.nodes["b"]
    key = (slot_of(a), 1)
    write(a, key, b"late")
    both.world.run(0.5)
    (replica,) = a.router.cluster.replicas._replicas.values()
    request = ReplicaChunkRequest(replica.number, "pages", pages_of(a).pack([key]))
    a.stalled_until = both.world.now + 6.0
    both.world.run(5.5)
    assert b.router.members.table[key[0]] == b.me.incarnation
    write(b, key, b"of the next home")
    while not a.router.members.in_view(b.me.incarnation):
        both.world.run(0.01)
    # The link itself would not bring it: a new one replaced it when ``b`` took ``a`` for dead.
    a.event(lambda now: a.router._desk.ask(b.me.incarnation, request, Asker()))
    both.world.run(4.0)
    return b"of the next home", at_homes(a, b)[key]


def test_a_replica_that_arrives_after_the_take_over_changes_nothing() -> None:
    written, found = late_copy()
    assert found == written


# Planted faults: the same crash with an error


def crashed(plant: Callable[[pytest.MonkeyPatch], None]) -> tuple[dict[Key, bytes], dict[Key, bytes], int]:
    """Return the pages before and after a crash, and the number of slots that arrived incomplete."""
    wants.interpreted()
    with pytest.MonkeyPatch.context() as patch:
        plant(patch)
        three = cluster("a", "b", "c")
        made = fill(three)
        three.world.run(0.5)
        three.world.crash(three.nodes.pop("a"))
        three.world.run(TAKEN_OVER_S)
        rest = list(three.nodes.values())
        return made, at_homes(*rest), sum(pages_of(node).in_part for node in rest)


@finds("Replicas are made at an endpoint that does not take over.")
def test_a_replica_that_is_not_the_next_home_is_found() -> None:
    def plant(patch: pytest.MonkeyPatch) -> None:
        true = Membership.table_without_me

        def shifted(members: Membership) -> list[str]:
            homes = true(members)
            others = sorted(set(homes))
            return [others[(others.index(home) + 1) % len(others)] for home in homes]

        patch.setattr(Membership, "table_without_me", shifted)

    made, found, in_part = crashed(plant)
    assert found != made
    assert in_part > 0


@finds("A replica is called whole before it has been sent.")
def test_an_end_that_is_told_early_is_found() -> None:
    def plant(patch: pytest.MonkeyPatch) -> None:
        def nothing(replicas: Replicas, replica: Replica) -> Any:
            replica.job = None
            replica.sent_all = True
            replicas.send(replica)
            yield from ()

        patch.setattr(Replicas, "_send_all", nothing)

    def late(patch: pytest.MonkeyPatch) -> None:
        plant(patch)
        patch.setattr(Replicas, "tick", lambda replicas: None)

    made, found, in_part = crashed(late)
    assert in_part == 0  # the replica passed as whole
    assert found != made


@finds("A replica that comes after the take-over replaces what the new home has written.")
def test_a_replica_that_is_taken_after_the_take_over_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    wants.interpreted()
    monkeypatch.setattr(IncomingReplicas, "_drop", lambda incoming_replicas, key: None)
    written, found = late_copy()
    assert (written, found) == (b"of the next home", b"late")


def whole_at_the_first_word(patch: pytest.MonkeyPatch) -> None:
    """Plant a replica that takes itself for whole before its home waits for it."""
    true = IncomingReplicas.end_requested

    def end_requested(incoming_replicas: IncomingReplicas, peer: str, number: int, request: ReplicaSentRequest) -> None:
        if (incoming := incoming_replicas._incoming.get((peer, request.replica))) is not None:
            incoming.asked += 1
        true(incoming_replicas, peer, number, request)

    patch.setattr(IncomingReplicas, "end_requested", end_requested)


def whole_after_each_question() -> list[bool]:
    two = cluster("a", "b")
    home, incoming_replicas = two.nodes["a"], two.nodes["b"].router.cluster.incoming
    peer, replica = home.me.incarnation, 1 << 40
    request = ReplicaBeginsRequest(replica, pack_slots([slot_of(home)]), for_failover=True)
    incoming_replicas.begin_requested(peer, 1 << 40, request)
    whole = []
    for number in (1, 2):
        incoming_replicas.end_requested(peer, (1 << 40) + number, ReplicaSentRequest(replica, 0, False))
        whole.append(incoming_replicas._incoming[peer, replica].whole)
    return whole


def test_a_replica_is_whole_when_its_home_asks_for_the_second_time() -> None:
    """Before the first answer the home waits for no replica: the link can still bring what the home sent until then."""
    assert whole_after_each_question() == [False, True]


@finds(whole_at_the_first_word)
def test_a_replica_that_is_whole_too_early_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    wants.interpreted()
    whole_at_the_first_word(monkeypatch)
    assert whole_after_each_question() != [False, True]
