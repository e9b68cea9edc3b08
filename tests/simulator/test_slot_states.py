"""What belongs to slots goes with them through every fault: in histories, pages of numbers, written at slots' homes.

Whenever an endpoint is told that slots are its own from here on, and that it has all of what belongs to them, the pages
are looked at. They have to be as new as what a standby had confirmed, and as what was written at a home that is alive
and was never taken for dead. Where it is told that some may be missing, nothing is owed.
And whenever a page is written its home has the one before, unless its slot has come somewhere in part since.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from ingeborg.broker.core.cluster.arriving import Arriving
from ingeborg.broker.core.cluster.copies import Copies, Copy
from ingeborg.broker.core.cluster.standby import Standbys
from ingeborg.protocol.hashes import SLOTS
from tests import wants
from tests.broker.core.cluster.pages import Key, Pages, pages_of
from tests.planted import fault, search
from tests.proof import seeds

from .history import History
from .world import Node

#: One in so many slots has a page.
EVERY = 64

#: Pages written in a second.
WRITES_PER_S = 100.0

#: Nothing is written from then on: faults are over, and all that is under way comes to its end.
UNTIL = 1_025.0


class Watched(Pages):
    """Tells the history what it is told."""

    def __init__(self) -> None:
        super().__init__(at_standbys=True)
        self.on_arrived: Callable[[Sequence[int], bool], None] = lambda slots, whole: None

    def arrived(self, slots: Sequence[int], whole: bool) -> None:
        """See ``SlotState``."""
        super().arrived(slots, whole)
        self.on_arrived(slots, whole)


class Paged(History):
    """A history in which pages are written. ``last``: by key, the last number and the endpoint's life that has written
    it; ``safe``: the last that a standby had."""

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
        """Pages that are at their standbys."""
        for node in self.world.live():
            watched = pages_of(node)
            confirmed, watched.confirmed = watched.confirmed, []
            for key, number, copy in confirmed:
                if not copy.over:
                    self.safe[key] = max(self.safe.get(key, 0), number)

    def write(self) -> None:
        """At its home, if there is one that acts."""
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
        """The next number."""
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
        if router.cluster.copies.watching:
            router.cluster.copies.changed(pages, key[0], key)
        copy = router.cluster.standbys._of_slot.get(key[0])
        if copy is not None and router.cluster.standbys.on:
            router.cluster.standbys.keep(pages, key[0], key, 8, (key, self.written, copy))

    def arrived(self, node: Node, slots: Sequence[int], whole: bool) -> None:
        """Is it all there?"""
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
            # Gone without a word in this endpoint's view: then it need not have been reached before.
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
    """Endpoints stand still, one after the other and several at once, for about as long as it takes to be taken for
    dead."""

    def __init__(self, seed: int, **options: Any) -> None:
        super().__init__(seed, faults=False, **options)
        self.disturbed = True
        self.world.at(3.0, self.stall)

    def stall(self) -> None:
        """One more."""
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


@pytest.mark.parametrize("standby", [False, True], ids=["alone", "standby"])
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_what_is_called_whole_is_whole(options: dict[str, Any], standby: bool) -> None:
    drawn = seeds(130_000, 12, 3)
    looked_at = 0
    for seed in drawn:
        history = Paged(seed, standby=standby, **options)
        assert not history.run(), f"seed {seed}: {history.violations[:3]}"
        looked_at += history.looked_at
    assert looked_at >= drawn.enough(50)


@pytest.mark.parametrize("standby", [False, True], ids=["alone", "standby"])
@pytest.mark.parametrize("endpoints", [2, 3, 4])
def test_endpoints_that_stand_still_do_not_go_on_with_what_is_old(endpoints: int, standby: bool) -> None:
    drawn = seeds(133_000, 10, 2)
    compared = 0
    for seed in drawn:
        history = Stalled(seed, endpoints=endpoints, standby=standby)
        assert not history.run(), f"seed {seed}: {history.violations[:3]}"
        compared += history.compared
    assert compared >= drawn.enough(5_000)


def test_with_standbys_all_that_a_crashed_home_had_is_there() -> None:
    """One crash at a time, once every slot has its standby: slots never come in part."""
    drawn = seeds(131_000, 25, 2)
    crashed = 0
    for seed in drawn:
        history = Paged(seed, standby=True, crashes=True)
        assert not history.run(), f"seed {seed}: {history.violations[:3]}"
        assert history.arrived_in_part == 0, f"seed {seed}"
        crashed += history.crashed
    assert crashed >= drawn.enough(40)


def early_end(patch: pytest.MonkeyPatch) -> None:
    """A copy is called whole before all of it has been sent."""

    def nothing(copies: Copies, copy: Copy) -> Any:
        copy.job = None
        copy.sent_all = True
        copies.send(copy)
        yield from ()

    patch.setattr(Copies, "_send_all", nothing)


def changes_left_out(patch: pytest.MonkeyPatch) -> None:
    """What changes while a copy is made is not sent."""
    patch.setattr(Copies, "changed", lambda copies, state, slot, key: None)


def whole_without_a_word(patch: pytest.MonkeyPatch) -> None:
    """What comes is called whole, whatever came of it."""
    true = Arriving._tell
    patch.setattr(Arriving, "_tell", lambda arriving, slots, whole, **known: true(arriving, slots, True, **known))


@pytest.mark.parametrize(
    ("plant", "standby", "seed"),
    [
        fault(early_end, False, seed=132_000, id="early_end-alone"),
        fault(early_end, True, seed=132_000, id="early_end-standby"),
        fault(changes_left_out, False, seed=132_000, id="changes_left_out-alone"),
        fault(changes_left_out, True, seed=132_000, id="changes_left_out-standby"),
        fault(whole_without_a_word, False, seed=132_001, id="whole_without_a_word-alone"),
        fault(whole_without_a_word, True, seed=132_003, id="whole_without_a_word-standby"),
    ],
)
def test_a_planted_fault_is_found(
    plant: Callable[[pytest.MonkeyPatch], None], standby: bool, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    wants.interpreted()
    plant(monkeypatch)
    search(plant, seed, range(132_000, 132_040), lambda seed: Paged(seed, standby=standby, drains=True).run())


def nobody_is_told_that_it_has_missed_anything(patch: pytest.MonkeyPatch) -> None:
    """Who comes back goes on with what it had."""
    patch.setattr(Arriving, "peer_missed", lambda arriving, peer, void_before: None)


def old_copies_are_believed(patch: pytest.MonkeyPatch) -> None:
    """A home has gone on without its standby; what that has is used all the same."""
    patch.setattr(Standbys, "peer_reset", lambda standbys, peer: None)
    patch.setattr(Arriving, "peer_missed", lambda arriving, peer, _: arriving._let_go(set(arriving._held.slots)))


@pytest.mark.parametrize(
    ("plant", "standby", "seed"),
    [
        fault(nobody_is_told_that_it_has_missed_anything, False, seed=133_000),
        fault(old_copies_are_believed, True, seed=133_035),
    ],
)
def test_a_fault_planted_where_endpoints_stand_still_is_found(
    plant: Callable[[pytest.MonkeyPatch], None], standby: bool, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    wants.interpreted()
    plant(monkeypatch)
    search(plant, seed, range(133_000, 133_040), lambda seed: Stalled(seed, endpoints=4, standby=standby).run())
