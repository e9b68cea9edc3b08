"""Features are on in the whole cluster, or not: who switches them on, when, and who is told why not."""

from __future__ import annotations

from typing import Any

from ingeborg.broker.core.cluster.features import LOOK_S, SURE_S, Features, Switch
from ingeborg.broker.core.cluster.membership import Membership
from ingeborg.broker.core.effects import Switched
from ingeborg.broker.core.links.calls import Kind
from ingeborg.broker.core.links.capabilities import CAPABILITIES, COPIES, ENDING, STANDBY
from ingeborg.broker.core.model import Endpoint
from tests.simulator.world import Node, World

from ..fake_desk import FakeDesk
from ..surroundings import Surroundings
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


def test_what_is_wanted_is_meant_at_every_moment_until_it_is_on() -> None:
    """Whoever asks for it meanwhile is not told that nobody has it."""
    alone = Alone(STANDBY)
    assert alone.part.is_meant(STANDBY)
    alone.desk.now += LOOK_S
    alone.part.tick()
    for operation in ("features", "switch"):
        assert alone.part.is_meant(STANDBY)
        (call,) = alone.desk.stored
        alone.desk.stored.clear()
        assert call.operation == operation
        call.end(frozenset())
    assert STANDBY not in alone.part.on
    assert alone.part.is_meant(STANDBY)
    assert not Alone().part.is_meant(STANDBY)


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


def test_one_that_has_yet_to_say_what_it_can_do_does_not_have_it_switched_off() -> None:
    alone = Alone(STANDBY)
    alone.look(seconds=0.0)
    alone.members.heartbeat_written(alone.desk.now)
    alone.members.registry([NEW], alone.desk.now, alone.desk.now)
    assert alone.members.lacking(STANDBY) == ["new"]
    for _ in range(int(SURE_S / LOOK_S) + 1):
        assert alone.look() == []
    assert alone.told == [True]
    alone.members.connected(NEW, alone.desk.now, NOT_ABLE)
    assert alone.look()[:1] == [Switched(STANDBY, False, ["new"])]
    assert alone.switched == [(STANDBY, True), (STANDBY, False)]


def test_after_a_while_in_which_all_were_able_no_more_is_switched_off() -> None:
    alone = Alone(STANDBY)
    alone.members.connected(NEW, alone.desk.now, ABLE)
    alone.look(seconds=0.0)
    alone.look(seconds=SURE_S)
    alone.members.left(NEW.incarnation)
    alone.members.connected(NEW, alone.desk.now, NOT_ABLE)
    assert alone.look() == []
    assert alone.switched == [(STANDBY, True)]


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


# Features that may be used only when all know that they are on


class Together(Surroundings):
    """An endpoint with the peers ``p`` and ``q``, which are able; what a feature's part is told."""

    def __init__(self, *, joined: bool = True) -> None:
        super().__init__("p", "q", joined=joined)
        for state in self.members.peers.values():
            state.capabilities = CAPABILITIES
        self.switch = Switch()
        self.part = Features(self.desk.real, self.members, {ENDING: self.switch.turn}, ())

    def asked(self) -> list[tuple[str, list[str]]]:
        """Which peers are being told, of what, since the last look."""
        calls = self.desk.asked[:]
        self.desk.asked.clear()
        assert {call.kind for call in calls} <= {Kind.SWITCHED}
        self.calls = calls
        return [(call.target, call.arguments[0]) for call in calls]

    def on_everywhere(self) -> None:
        """It is on, and all know it."""
        assert self.part.want(ENDING) == ""
        self.part.tick()
        self.stored("features")[0].end(frozenset())
        self.stored("switch")[0].end()
        self.part.tick()
        self.stored("features")[0].end(frozenset({ENDING}))
        assert sorted(self.asked()) == [("p", [ENDING]), ("q", [ENDING])]
        for call in self.calls:
            assert self.part.want(ENDING) == ""
            self.part.answered(call, None)
        assert self.part.want(ENDING) is None


def test_whoever_wants_one_may_use_it_when_it_is_on_and_all_have_said_that_they_know() -> None:
    together = Together()
    together.on_everywhere()
    assert together.switch.on


def test_who_is_told_by_a_peer_knows_at_once_and_tells_the_others() -> None:
    together = Together()
    together.part.switched_on("p", 5, [[ENDING, "of a later release"]])
    assert together.switch.on
    assert together.asked() == [("q", [ENDING])]
    assert together.desk.answers == [("p", 5, None)]


def test_what_the_store_said_before_a_peer_did_is_not_believed() -> None:
    together = Together()
    together.part.tick()
    together.part.switched_on("p", 5, [[ENDING]])
    together.stored("features")[0].end(frozenset())
    assert together.switch.on
    together.part.tick()
    together.stored("features")[0].end(frozenset({ENDING}))
    assert together.switch.on


def test_who_is_not_able_is_named_and_so_is_what_the_store_wants_first() -> None:
    together = Together()
    together.members.peers["q"].capabilities = NOT_ABLE
    together.part.want(ENDING)
    together.part.tick()
    together.stored("features")[0].end(frozenset())
    assert "q cannot do it" in (together.part.want(ENDING) or "")
    together.members.left("q")
    together.desk.now += LOOK_S
    together.part.tick()
    together.stored("features")[0].end(frozenset())
    together.stored("switch")[0].end(error=OSError("no bucket type"))
    assert together.part.want(ENDING) == "the store has not recorded it, and an endpoint's log says why"


def test_what_people_have_switched_off_is_not_switched_on_by_whoever_wants_it() -> None:
    together = Together()
    together.on_everywhere()
    together.desk.now += LOOK_S
    together.part.tick()
    together.stored("features")[0].end(frozenset())
    assert not together.switch.on
    assert "--off ending" in (together.part.want(ENDING) or "")
    together.desk.now += LOOK_S
    together.part.tick()
    together.stored("features")[0].end(frozenset())


def test_a_peer_is_told_before_it_is_let_in_unless_it_knows() -> None:
    together = Together()
    together.on_everywhere()
    together.part.tell("p")
    assert together.asked() == []
    together.members.connected(NEW, together.desk.now, CAPABILITIES)
    assert together.part.want(ENDING) is None  # it does not act yet
    together.part.tell("new")
    assert together.asked() == [("new", [ENDING])]
    (call,) = together.calls
    together.members.joined_by("new", 1, 1)
    assert together.part.want(ENDING) == ""
    together.part.failed(call, "peer_unavailable", "no answer in time")
    assert together.asked() == [("new", [ENDING])]
    together.part.answered(together.calls[0], None)
    assert together.part.want(ENDING) is None


def test_who_was_gone_is_told_anew() -> None:
    together = Together()
    together.on_everywhere()
    gone = together.members.peers.pop("p")
    together.part.view_changed()
    together.members.peers["p"] = gone
    assert together.part.want(ENDING) == ""
    together.part.view_changed()
    assert together.asked() == [("p", [ENDING])]


def test_an_endpoint_does_not_join_before_it_has_asked_what_is_on() -> None:
    together = Together(joined=False)
    together.part.tick()
    members = together.members
    members.registry([state.endpoint for state in members.peers.values()], together.desk.now, together.desk.now)
    for peer in members.view():
        members.welcomed_by(peer, members.round)
    assert not members.joined
    together.stored("features")[0].end(frozenset({ENDING}))
    assert members.joined
    assert together.switch.on


def test_after_a_lapse_it_asks_again_and_what_was_asked_before_does_not_count() -> None:
    together = Together()
    together.part.tick()
    (before,) = together.stored("features")
    together.desk.now += 10.0
    together.lose_lease()
    together.part.lapsed()
    before.end(frozenset())
    members = together.members
    members.registry([state.endpoint for state in members.peers.values()], together.desk.now, together.desk.now)
    for peer in members.view():
        members.welcomed_by(peer, members.round)
    assert not members.joined
    together.part.tick()
    together.stored("features")[0].end(frozenset())
    assert members.joined
