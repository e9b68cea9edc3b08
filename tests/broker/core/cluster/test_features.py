"""Features are on in the whole cluster, or not: who switches them on, when, and who is told why not."""

from __future__ import annotations

from typing import Any

from ingeborg.broker.core.cluster.features import LOOK_S, Features
from ingeborg.broker.core.cluster.membership import Membership
from ingeborg.broker.core.effects import Switched
from ingeborg.broker.core.links.capabilities import COPIES, STANDBY
from ingeborg.broker.core.model import Endpoint
from tests.simulator.world import Node, World

from ..fake_desk import FakeDesk
from ..way import ME

ABLE, NOT_ABLE = frozenset({COPIES, STANDBY}), frozenset({COPIES})
NEW = Endpoint("new", "new", "ws://new", 0)


class Alone:
    """The part, with an endpoint that has joined alone, and what the store records."""

    def __init__(self, *wanted: str) -> None:
        self.desk = FakeDesk()
        self.members = Membership(ME, self.desk.now)
        self.members.heartbeat_written(self.desk.now)
        self.members.registry([], self.desk.now, self.desk.now)
        self.told: list[bool] = []
        self.store: frozenset[str] = frozenset()
        self.switched: list[tuple[str, bool]] = []
        self.part = Features(self.desk.real, self.members, {STANDBY: self.told.append}, frozenset(wanted))

    def look(self, error: Exception | None = None, seconds: float = LOOK_S) -> list[Any]:
        """Time passes, and the store answers. What is said meanwhile."""
        self.desk.now += seconds
        self.part.tick()
        while self.desk.stored:
            call = self.desk.stored.pop()
            if error is not None:
                call.end(error=error)
                continue
            if call.operation == "switch":
                feature, on = call.arguments
                self.switched.append(call.arguments)
                self.store = self.store | {feature} if on else self.store - {feature}
                call.end()
                self.part.tick()
            else:
                call.end(self.store)
        said = list(self.desk.acts)
        self.desk.acts.clear()
        return said


def test_what_nobody_wants_stays_off_and_is_looked_for_all_the_same() -> None:
    alone = Alone()
    assert alone.look() == []
    alone.store = frozenset({STANDBY, "of a later version"})
    assert alone.look() == [Switched(STANDBY, True, [])]
    assert (alone.told, alone.switched) == ([True], [])
    alone.store = frozenset()
    assert alone.look() == [Switched(STANDBY, False, [])]
    assert alone.told == [True, False]


def test_one_that_is_wanted_is_switched_on_at_once_where_all_are_able() -> None:
    alone = Alone(STANDBY)
    alone.members.connected(NEW, alone.desk.now, ABLE)
    assert alone.look(seconds=0.0) == [Switched(STANDBY, True, [])]
    assert (alone.switched, alone.told) == ([(STANDBY, True)], [True])
    assert alone.part.awaited == {}


def test_it_waits_for_all_and_says_for_whom() -> None:
    alone = Alone(STANDBY)
    alone.members.connected(NEW, alone.desk.now, NOT_ABLE)
    assert alone.look() == [Switched(STANDBY, False, ["new"])]
    assert alone.look() == []  # said once
    assert alone.part.awaited == {STANDBY: ["new"]}
    alone.members.left(NEW.incarnation)
    assert alone.look() == [Switched(STANDBY, True, [])]


def test_what_people_switch_off_stays_off() -> None:
    alone = Alone(STANDBY)
    alone.look()
    alone.store = frozenset()
    alone.look()
    for _ in range(10):
        alone.look()
    assert alone.switched == [(STANDBY, True)]
    assert alone.told == [True, False]


def test_one_that_is_not_able_and_came_while_it_was_switched_on_has_it_switched_off_again() -> None:
    alone = Alone(STANDBY)
    alone.desk.now += LOOK_S
    alone.part.tick()
    alone.desk.stored.pop().end(frozenset())  # nobody else is there
    alone.members.connected(NEW, alone.desk.now, NOT_ABLE)
    said = alone.look()
    assert alone.switched == [(STANDBY, True), (STANDBY, False)]
    assert said[:2] == [Switched(STANDBY, True, []), Switched(STANDBY, False, ["new"])]
    alone.members.left(NEW.incarnation)
    alone.look()
    alone.look()
    assert alone.switched[-1] == (STANDBY, True)


def test_a_store_that_does_not_answer_changes_nothing() -> None:
    alone = Alone(STANDBY)
    assert alone.look(error=OSError("down")) == []
    assert alone.told == []
    alone.look()
    assert alone.told == [True]
    alone.look(error=OSError("down"))
    assert alone.told == [True]


def test_before_it_has_joined_an_endpoint_learns_and_switches_nothing() -> None:
    alone = Alone(STANDBY)
    alone.members.joined = False
    alone.look()
    assert alone.switched == []
    alone.store = frozenset({STANDBY})
    alone.look()
    assert alone.told == [True]


def test_all_endpoints_do_it_though_one_only_wanted_it() -> None:
    world = World(1)
    a, b = world.start("a"), world.start("b")
    world.options["wanted"] = frozenset({STANDBY})
    world.run(3.0)
    assert [node.router.guard.on for node in (a, b)] == [False, False]
    c = world.start("c")
    world.run(6.0)
    assert [node.router.guard.on for node in (a, b, c)] == [True, True, True]
    assert _without(a, b, c) == 0


def _without(*nodes: Node) -> int:
    return sum(node.router.standbys.without for node in nodes)
