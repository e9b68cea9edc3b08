"""The state of slots follows them through every fault. In these histories the state is pages of numbers, written at the
slots' homes.

An endpoint learns that slots are its own from now on, and that it has all of their state. The test then checks the
pages. They must be as new as those that a replica had confirmed, and as those written at a home that is alive and was
never taken for dead. If the endpoint learns that some state may be missing, the test requires nothing. Whenever a page
is written, its home must have the previous one, unless the slot has since come somewhere in part.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from ingeborg.broker.core.cluster.incoming import IncomingReplicas
from ingeborg.broker.core.cluster.replicas import Replica, Replicas
from ingeborg.broker.core.cluster.replication import SlotReplication
from ingeborg.protocol.hashes import SLOTS
from tests import wants
from tests.broker.core.cluster.pages import Key, Pages, pages_of
from tests.planted import fault, search
from tests.proof import seeds

from .history import History
from .world import Node

#: One in this many slots has a page.
EVERY = 64

#: Pages written per second.
WRITES_PER_S = 100.0

#: The end of all writes: faults are over, and everything under way comes to its end.
UNTIL = 1_025.0


class Watched(Pages):
    """Reports to the history which slots arrive."""

    def __init__(self) -> None:
        super().__init__(at_replicas=True)
        self.on_arrived: Callable[[Sequence[int], bool], None] = lambda slots, whole: None

    def arrived(self, slots: Sequence[int], whole: bool) -> None:
        """See ``SlotState``."""
        super().arrived(slots, whole)
        self.on_arrived(slots, whole)


class Paged(History):
    """A history in which pages are written. ``last``: by key, the last number, and the life of the endpoint that wrote
    it; ``safe``: the last number that a replica had."""

    def __init__(self, seed: int, **options: Any) -> None:
        super().__init__(seed, **options)
        self.world.make_states = lambda: [Watched()]
        self.last: dict[Key, tuple[int, Node]] = {}
        self.safe: dict[Key, int] = {}
        self.written = 0
        self.arrived_whole = self.arrived_in_part = self.looked_at = self.compared = 0
        self.world.at(3.0, self.write)

    def start(self, name: str) -> Node:
        """See ``History``."""
        node = super().start(name)
        watched = pages_of(node)
        assert isinstance(watched, Watched)
        watched.on_arrived = lambda slots, whole: self.arrived(node, slots, whole)
        return node

    def take_confirmed(self) -> None:
        """Note the pages that have reached their replicas."""
        for node in self.world.live():
            watched = pages_of(node)
            confirmed, watched.confirmed = watched.confirmed, []
            for key, number, replica in confirmed:
                if not replica.over:
                    self.safe[key] = max(self.safe.get(key, 0), number)

    def write(self) -> None:
        """Write a page at its home, if one acts."""
        world = self.world
        self.take_confirmed()
        if world.now < UNTIL:
            world.at(self.random.expovariate(WRITES_PER_S), self.write)
        key = (self.random.randrange(0, SLOTS, EVERY), 0)
        for node in world.live():
            members = node.router.members
            acts = node.stalled_until <= world.now and members.joined and members._lease(world.now)
            if acts and members.table[key[0]] == node.me.incarnation and not members.leaving:
                node.event(lambda now, node=node: self.write_at(node, key))  # type: ignore[misc]
                return

    def write_at(self, node: Node, key: Key) -> None:
        """Write the next number."""
        router, pages = node.router, pages_of(node)
        before, writer = self.last.get(key, (0, node))
        has = int.from_bytes(pages.pages.get(key, b""))
        self.compared += before > 0
        if has < before:
            self.violations.append(
                f"at {self.world.now - 1000:.3f} {node.me.name} is home with page {has} of slot {key[0]}; {before} had "
                f"been written at {writer.me.name}, and nobody has said that anything was lost"
            )
        self.written += 1
        self.last[key] = (self.written, node)
        pages.pages[key] = self.written.to_bytes(8)
        if router.cluster.replicas.watching:
            router.cluster.replicas.changed(pages, key[0], key)
        replica = router.cluster.replication._of_slot.get(key[0])
        if replica is not None and router.cluster.replication.on:
            router.cluster.replication.keep(pages, key[0], key, 8, (key, self.written, replica))

    def arrived(self, node: Node, slots: Sequence[int], whole: bool) -> None:
        """Check that everything is there."""
        if not whole:
            self.arrived_in_part += bool(self.last)
            for slot in slots:
                self.last.pop((slot, 0), None)
                self.safe.pop((slot, 0), None)
            return
        self.arrived_whole += 1
        pages = pages_of(node).pages
        disturbed = {incarnation for _, incarnation in self.false_deaths}
        for slot in slots:
            key = (slot, 0)
            number, writer = self.last.get(key, (0, node))
            has = int.from_bytes(pages.get(key, b""))
            owed = self.safe.get(key, 0)
            # If the writer has gone silently in this endpoint's view, this endpoint need not have reached it before.
            lost = not writer.left and not node.router.members.in_view(writer.me.incarnation)
            if not lost and writer.me.incarnation not in disturbed and writer.stalled_until == 0.0:
                owed = max(owed, number)
            self.looked_at += owed > 0
            if has < owed:
                self.violations.append(
                    f"at {self.world.now - 1000:.3f} {node.me.name} has page {has} of slot {slot} and calls that "
                    f"whole; {owed} had been written at {writer.me.name}"
                )
            self.last[key] = (has, node)


class Stalled(Paged):
    """Endpoints stand still, one after the other and several at once, for about as long as it takes others to take them
    for dead."""

    def __init__(self, seed: int, **options: Any) -> None:
        super().__init__(seed, faults=False, **options)
        self.disturbed = True
        self.world.at(3.0, self.stall)

    def stall(self) -> None:
        """Stall one more."""
        world = self.world
        if world.now > UNTIL - 8.0:
            return
        awake = [node for node in world.live() if node.stalled_until <= world.now]
        if awake:
            node, seconds = self.random.choice(awake), self.random.uniform(2.0, 6.0)
            self.say(f"{node.me.name} stalls for {seconds:.1f} s")
            node.stalled_until = world.now + seconds
        world.at(self.random.uniform(0.5, 4.0), self.stall)


OPTIONS: dict[str, dict[str, Any]] = {
    "faults": {},
    "drains": {"faults": False, "drains": True},
    "cuts": {"faults": False, "drains": True, "cuts": True},
    "drains among faults": {"drains": True},
    "crashes": {"crashes": True},
}


@pytest.mark.parametrize("replication", [False, True], ids=["alone", "replication"])
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_what_is_called_whole_is_whole(options: dict[str, Any], replication: bool) -> None:
    drawn = seeds(130_000, 12, 3)
    looked_at = 0
    for seed in drawn:
        history = Paged(seed, replication=replication, **options)
        assert not history.run(), f"seed {seed}: {history.violations[:3]}"
        looked_at += history.looked_at
    assert looked_at >= drawn.enough(50)


@pytest.mark.parametrize("replication", [False, True], ids=["alone", "replication"])
@pytest.mark.parametrize("endpoints", [2, 3, 4])
def test_endpoints_that_stand_still_do_not_go_on_with_what_is_old(endpoints: int, replication: bool) -> None:
    drawn = seeds(133_000, 10, 2)
    compared = 0
    for seed in drawn:
        history = Stalled(seed, endpoints=endpoints, replication=replication)
        assert not history.run(), f"seed {seed}: {history.violations[:3]}"
        compared += history.compared
    assert compared >= drawn.enough(5_000)


def test_with_replicas_all_that_a_crashed_home_had_is_there() -> None:
    """One crash at a time, once every slot has its replica: slots never come in part."""
    drawn = seeds(131_000, 25, 2)
    crashed = 0
    for seed in drawn:
        history = Paged(seed, replication=True, crashes=True)
        assert not history.run(), f"seed {seed}: {history.violations[:3]}"
        assert history.arrived_in_part == 0, f"seed {seed}"
        crashed += history.crashed
    assert crashed >= drawn.enough(40)


def early_end(patch: pytest.MonkeyPatch) -> None:
    """A replica counts as whole before everything has been sent."""

    def nothing(replicas: Replicas, replica: Replica) -> Any:
        replica.job = None
        replica.sent_all = True
        replicas.send(replica)
        yield from ()

    patch.setattr(Replicas, "_send_all", nothing)


def changes_left_out(patch: pytest.MonkeyPatch) -> None:
    """Changes during the making of a replica are not sent."""
    patch.setattr(Replicas, "changed", lambda replicas, state, slot, key: None)


def whole_without_a_word(patch: pytest.MonkeyPatch) -> None:
    """Every transferred state counts as whole."""
    true = IncomingReplicas._tell
    patch.setattr(
        IncomingReplicas, "_tell", lambda incoming, slots, whole, **known: true(incoming, slots, True, **known)
    )


@pytest.mark.parametrize(
    ("plant", "replication", "seed"),
    [
        fault(early_end, False, seed=132_000, id="early_end-alone"),
        fault(early_end, True, seed=132_000, id="early_end-replication"),
        fault(changes_left_out, False, seed=132_000, id="changes_left_out-alone"),
        fault(changes_left_out, True, seed=132_000, id="changes_left_out-replication"),
        fault(whole_without_a_word, False, seed=132_009, id="whole_without_a_word-alone"),
        fault(whole_without_a_word, True, seed=132_003, id="whole_without_a_word-replication"),
    ],
)
def test_a_planted_fault_is_found(
    plant: Callable[[pytest.MonkeyPatch], None], replication: bool, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    wants.interpreted()
    plant(monkeypatch)
    search(plant, seed, range(132_000, 132_040), lambda seed: Paged(seed, replication=replication, drains=True).run())


def nobody_is_told_that_it_has_missed_anything(patch: pytest.MonkeyPatch) -> None:
    """An endpoint that comes back goes on with its old state."""
    patch.setattr(IncomingReplicas, "peer_missed", lambda incoming, peer, void_before: None)


def old_replicas_are_believed(patch: pytest.MonkeyPatch) -> None:
    """A home trusts a replica that it has gone on without."""
    patch.setattr(SlotReplication, "peer_reset", lambda replication, peer: None)
    patch.setattr(
        IncomingReplicas, "peer_missed", lambda incoming, peer, _: incoming._let_go(set(incoming._held.slots))
    )


@pytest.mark.parametrize(
    ("plant", "replication", "seed"),
    [
        fault(nobody_is_told_that_it_has_missed_anything, False, seed=133_044),
        fault(old_replicas_are_believed, True, seed=133_066),
    ],
)
def test_a_fault_planted_where_endpoints_stand_still_is_found(
    plant: Callable[[pytest.MonkeyPatch], None], replication: bool, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    wants.interpreted()
    plant(monkeypatch)
    search(plant, seed, range(133_040, 133_080), lambda seed: Stalled(seed, endpoints=4, replication=replication).run())
