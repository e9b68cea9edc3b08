"""The controller in a simulated group: its overall behaviour, and that no failure loses or duplicates a record."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable
from random import Random
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingeborg.autoscaler.controller import Controller
from ingeborg.autoscaler.effects import Note, Tell
from ingeborg.autoscaler.model import (
    EPOCHS_PER_TERM,
    Beat,
    Flow,
    Held,
    Hello,
    Queue,
    Speeds,
    Start,
    Welcome,
    decode,
)

from .world import BEAT_S, STEP_S, World

#: Seconds until everything has settled.
REST_S = 200.0
#: Seconds until each transition in ``TRANSITIONS`` is over, if nothing dies.
TRANSITION_S = 35.0
DAY_S = 86_400.0


def world(queues: int = 8, seed: int = 1, **changes: object) -> World:
    return World(queues, Random(seed), **changes)


def check_sink(found: World) -> None:
    """Check that the sink has everything in order, once, and from one owner of each queue at a time."""
    for queue, taken in found.sink.taken.items():
        epochs = [epoch for epoch, _, _, _ in taken]
        assert epochs == sorted(epochs), f"{queue} was taken from two at a time"
        behind = 0
        for _, member, first, end in taken:
            assert first == behind, f"{queue}: {member} goes on at {first}, and not at {behind}"
            behind = end


def drain(found: World) -> None:
    """Stop producing, and wait until everything is read."""
    found.speeds = dict.fromkeys(found.speeds, 0.0)
    found.run(REST_S, found.is_settled)
    found.run(10.0)
    check_sink(found)
    for queue in found.speeds:
        taken = found.sink.taken.get(queue)
        assert (taken[-1][3] if taken else 0) == int(found.produced[queue]), f"{queue} was not read to its end"


def test_members_are_started_and_each_queue_gets_an_owner() -> None:
    found = world(20)  # 200 bytes a second; a member gets up to 100
    found.run(REST_S, found.is_settled)
    assert found.is_settled()
    assert len(found.members) == 2
    assert found.controller.core.sentinel.wanted == 2
    drain(found)


def test_more_load_brings_more_members_and_orderly_moves_double_nothing() -> None:
    found = world(20)
    found.run(REST_S, found.is_settled)
    found.speeds = dict.fromkeys(found.speeds, 25.0)
    found.run(3.0)
    found.run(REST_S, found.is_settled)
    assert len(found.members) == 5
    assert found.sink.refused == 0
    assert found.controller.core.owners.forced == 0
    drain(found)


def test_notes_say_how_long_each_step_of_a_change_took() -> None:
    found = world(20)
    found.run(REST_S, found.is_settled)
    before = len(found.notes)
    found.speeds = dict.fromkeys(found.speeds, 25.0)
    found.run(3.0)
    found.run(REST_S, found.is_settled)
    took: dict[str, list[float]] = {}
    for _, note in found.notes[before:]:
        if note.seconds is not None:
            took.setdefault(note.event, []).append(note.seconds)
    assert len(took["joined"]) == 3
    # The scaler needs time to start a member, which says hello, gets its number, and reports its queues.
    assert all(found.scaler.start_s < seconds < found.scaler.start_s + 3 * BEAT_S for seconds in took["joined"])
    # An owner releases within a cycle, and the next one begins within another, with an order between them.
    assert all(STEP_S <= seconds <= 6 * STEP_S for seconds in took["given"])
    # The controller waits for members before that; this time does not count.
    assert 0.0 <= took["settled"][-1] <= 6 * STEP_S


def test_a_member_with_another_sink_is_told_about_once() -> None:
    found = world(4)
    found.controller.core = core = Controller(found.settings, 12, "c", sink="here")
    core.begin(found.controller.now_s, len(found.logs[0]))
    found.run(20.0)
    assert found.members
    assert "other_sink" not in found.events()  # the controller accepts members that report no sink
    for name, sink in (("a", "here"), ("b", "there"), ("b", "there")):
        found.say(Hello(name, "nonce", 0.0, sink))
    found.run(2.0)
    told = [note.words for _, note in found.notes if note.event == "other_sink"]
    assert len(told) == 1
    assert told[0].startswith("b does not write to the sink")


def test_a_monitor_of_other_topics_does_not_count() -> None:
    found = world(8)
    found.run(REST_S, found.is_settled)
    owned = found.owners()
    for serial in range(3):
        other = Speeds("other", serial, 0, 1, 30.0, (Flow(Queue("u", 0), 10.0, 0.0),), (), "f00d")
        found.controller.core.heard(found.controller.now_s, (other, 0))
        found.run(5.0)
    assert found.owners() == owned
    assert found.events().count("other_topics") == 1
    same = Speeds("monitor", 10_000, 0, 1, 30.0, (), ("t",), found.settings.fingerprint)
    found.has_monitor = False
    found.controller.core.heard(found.controller.now_s, (same, 0))
    assert "missing" in [note.event for note in found.controller.core.take() if isinstance(note, Note)]
    drain(found)


def test_two_members_of_one_name_never_own_the_same() -> None:
    found = world(4)
    found.scaler.lies = True
    core = found.controller.core
    for nonce in ("first", "second", "first", "first"):  # the first one is alive, and says so
        found.say(Hello("a", nonce, 0.0))
        found.run(1.0)
    assert [(each.name, each.nonce) for each in core._members.values()] == [("a", "second")]
    assert found.events().count("same_name") == 1
    number = core._members["a"].number
    found.say(Beat("a", "second", number, core.term, 0, 1, 0.0, ()))
    found.run(20.0)
    starts = [message for message in map(decode, found.logs[number]) if isinstance(message, Start)]
    assert starts
    assert {start.nonce for start in starts} == {"second"}


def test_when_the_epochs_of_a_term_are_used_up_another_term_begins() -> None:
    found = world(20)
    found.run(REST_S, found.is_settled)
    core = found.controller.core
    term, core._epochs = core.term, EPOCHS_PER_TERM - 2
    found.speeds = dict.fromkeys(found.speeds, 25.0)
    found.run(3.0)
    found.run(REST_S, found.is_settled)
    assert len(found.members) == 5
    assert core.term > term
    assert found.sink.refused == 0
    drain(found)


def test_the_first_figures_of_another_monitor_decide_nothing() -> None:
    found = world(8)
    found.run(REST_S, found.is_settled)
    core, decisions = found.controller.core, found.controller.core.sentinel.decisions
    burst = tuple(Flow(queue, 1_000.0, 0.0) for queue in found.speeds)
    core.heard(found.controller.now_s, (Speeds("another", 1, 0, 1, 30.0, burst, ()), 0))
    assert core.sentinel.decisions == decisions
    found.run(6.0)
    core.heard(found.controller.now_s, (Speeds("another", 2, 0, 1, 30.0, burst, ()), 0))
    assert core.sentinel.decisions > decisions


def test_no_member_gets_a_number_that_has_no_place() -> None:
    found = world(4)
    found.run(2.0)
    core = found.controller.core
    core.sentinel.targets = {Queue("t", 0): 99}
    core.heard(found.controller.now_s, (Hello("a", "nonce", 0.0), 0))
    told = [each.message for each in core.take() if isinstance(each, Tell) and each.number == 0]
    [welcome] = [message for message in told if isinstance(message, Welcome)]
    assert 0 < welcome.number <= 12


def test_epochs_that_somebody_has_are_not_given_again() -> None:
    found = world(4)
    found.run(REST_S, found.is_settled)
    core = found.controller.core
    [name, *_] = found.members
    member, term = core._members[name], core.term
    epoch = term * EPOCHS_PER_TERM + 500  # from a controller that had this term before its topic was recreated
    held = (Held(Queue("t", 0), epoch, 0, 0.0, ""),)
    core.heard(found.controller.now_s, (Beat(name, member.nonce, member.number, term, 0, 1, 0.0, held), 0))
    assert core.term == term + 1


def test_messages_that_come_together_are_answered_together(monkeypatch: pytest.MonkeyPatch) -> None:
    found = world(4)
    found.run(REST_S, found.is_settled)
    core = found.controller.core
    turns: list[float] = []
    monkeypatch.setattr(core, "_turn", turns.append)
    core.heard(found.controller.now_s, *((Hello(f"m-{number}", "nonce", 0.0), 0) for number in range(5)))
    assert len(turns) == 1


def test_less_load_ends_members_after_the_cooldown_and_not_before() -> None:
    found = world(20)
    found.speeds = dict.fromkeys(found.speeds, 25.0)
    found.run(REST_S, found.is_settled)
    assert len(found.members) == 5
    found.speeds = dict.fromkeys(found.speeds, 5.0)
    found.run(55.0)
    assert len(found.members) == 5
    found.run(60.0)
    assert len(found.members) == 1
    assert found.sink.refused == 0
    drain(found)


def test_a_load_that_oscillates_within_the_hysteresis_scales_nothing() -> None:
    """A member gets up to 100; above 120 the controller acts."""
    found = world(10)
    found.speeds = dict.fromkeys(found.speeds, 9.9)
    found.run(REST_S, found.is_settled)
    decisions, orders = found.controller.core.sentinel.decisions, list(found.scaler.orders)
    for turn in range(60):
        found.speeds = dict.fromkeys(found.speeds, 11.9 if turn % 2 else 6.0)
        found.run(7.0)
    assert found.controller.core.sentinel.decisions == decisions
    assert found.scaler.orders == orders
    assert len(found.members) == 1


def test_a_load_that_oscillates_more_than_that_does_not_flap() -> None:
    """Grow once; shrink only if fewer members would have sufficed all the time."""
    found = world(10)
    found.run(REST_S, found.is_settled)
    for turn in range(40):
        found.speeds = dict.fromkeys(found.speeds, 16.0 if turn % 2 else 6.0)
        found.run(9.0)
    assert len(found.members) == 2
    assert sorted(set(found.scaler.orders)) == [1, 2]


@pytest.mark.parametrize(("speed", "wanted"), [(0.0, 2), (1_000.0, 4)])
def test_never_below_min_nor_above_max(speed: float, wanted: int) -> None:
    found = world(16, members_min=2, members_max=4)
    found.speeds = dict.fromkeys(found.speeds, speed)
    for _ in range(300):
        found.step()
        assert len(found.members) <= 4
        assert found.controller.core.sentinel.wanted in (2, 3, 4)
    assert len(found.members) == wanted
    assert ("capped" in found.events()) == (speed > 0)
    assert min(found.scaler.orders) >= 2
    assert max(found.scaler.orders) <= 4


def test_with_a_minimum_all_members_get_something() -> None:
    found = world(16, members_min=4)
    found.run(REST_S, found.is_settled)
    assert sorted(len(member.core.held) for member in found.members.values()) == [4, 4, 4, 4]


def test_a_member_that_ends_by_itself_is_replaced() -> None:
    found = world(20)
    found.run(REST_S, found.is_settled)
    next(iter(found.members.values())).is_ending = True
    found.run(2.0)
    found.run(REST_S, found.is_settled)
    assert len(found.members) == 2
    assert found.sink.refused == 0
    drain(found)


def test_a_member_that_is_killed_loses_its_queues_and_nothing_else() -> None:
    found = world(20)
    found.run(REST_S, found.is_settled)
    del found.members[next(iter(found.members))]
    found.run(2.0)
    found.run(REST_S, found.is_settled)
    assert "lost" in found.events()
    assert len(found.members) == 2
    drain(found)


def test_a_member_that_was_paused_is_refused_by_the_sink_and_comes_back() -> None:
    found = world(10, members_min=2)
    found.run(REST_S, found.is_settled)
    paused = next(iter(found.members.values()))
    assert paused.core.held
    found.scaler.lies = True  # it would end and replace the silent one
    paused.is_paused = True
    found.run(60.0)
    assert found.owners()
    paused.is_paused = False
    found.run(3.0)
    assert found.sink.refused > 0
    found.scaler.lies = False
    found.run(REST_S, found.is_settled)
    assert found.is_settled()
    drain(found)


def test_a_silent_member_is_ended_and_replaced() -> None:
    found = world(20)
    found.run(REST_S, found.is_settled)
    name = next(iter(found.members))
    found.members[name].is_paused = True
    found.run(REST_S, lambda: name not in found.members)
    found.run(REST_S, found.is_settled)
    assert len(found.members) == 2
    drain(found)


def test_where_no_more_may_run_the_silent_one_goes_first() -> None:
    found = world(20, members_min=2, members_max=2)
    found.run(REST_S, found.is_settled)
    name = next(iter(found.members))
    found.members[name].is_paused = True
    found.run(REST_S, lambda: name not in found.members)
    found.run(REST_S, found.is_settled)
    assert len(found.members) == 2
    assert max(found.scaler.orders) == 2
    drain(found)


def test_a_member_that_does_not_let_go_in_time_is_fenced() -> None:
    found = world(20)
    found.run(REST_S, found.is_settled)
    stuck = next(iter(found.members.values()))
    stuck.core.closed = lambda: None  # type: ignore[method-assign]
    found.speeds = {queue: 25.0 if queue in stuck.core.held else 1.0 for queue in found.speeds}
    found.run(REST_S, lambda: "forced" in found.events())
    assert "forced" in found.events()
    del stuck.core.closed
    found.run(REST_S, found.is_settled)
    drain(found)


class TestScaler:
    def test_one_that_fails_is_told_and_asked_again(self) -> None:
        found = world(20)
        found.scaler.fails = True
        found.run(40.0)
        assert found.events().count("scaler_failed") == 1
        assert found.controller.core.staff.failures > 10
        found.scaler.fails = False
        found.run(REST_S, found.is_settled)
        assert "scaler_works" in found.events()
        drain(found)

    def test_one_that_lies_is_noticed(self) -> None:
        """The scaler reports success, but no member comes: the present ones get everything, until the others come."""
        found = world(20)
        found.run(REST_S, found.is_settled)
        found.scaler.lies = True
        found.speeds = dict.fromkeys(found.speeds, 25.0)
        found.run(60.0)
        assert "absent" in found.events()
        assert len(found.members) == 2
        assert all(len(names) == 1 for names in found.owners().values())
        found.scaler.lies = False
        found.run(REST_S, lambda: "complete" in found.events())
        found.run(20.0)
        assert "complete" in found.events()
        assert max(len(member.core.held) for member in found.members.values()) == 4
        drain(found)

    def test_what_it_runs_and_nobody_hears_is_to_end(self) -> None:
        found = world(4)
        found.run(REST_S, found.is_settled)
        found.scaler.starting.append((10_000.0, "ghost"))
        found.run(30.0)
        assert "never_heard" in found.events()

    def test_members_that_somebody_else_has_started_stay_until_the_cooldown(self) -> None:
        found = world(4)
        found.run(REST_S, found.is_settled)
        found.scaler.scale(3, ())
        found.run(30.0)
        assert len(found.members) == 3
        found.run(90.0)
        assert len(found.members) == 1


class TestQueues:
    def test_new_partitions_get_owners(self) -> None:
        found = world(4)
        found.run(REST_S, found.is_settled)
        new = Queue("t", 4)
        found.speeds[new] = 10.0
        found.produced[new] = 0.0
        found.run(REST_S, lambda: bool(found.owners().get(new)))
        assert found.is_settled() or found.owners()[new]
        drain(found)

    def test_a_topic_that_vanishes_is_let_go_and_taken_again_when_it_comes_back(self) -> None:
        found = world(4)
        found.run(REST_S, found.is_settled)
        speeds, found.speeds, found.missing = found.speeds, {}, ("t",)
        found.run(20.0)
        assert "missing" in found.events()
        assert not any(member.core.held for member in found.members.values())
        found.speeds, found.missing = speeds, ()
        found.run(REST_S, found.is_settled)
        assert "found" in found.events()
        drain(found)

    def test_a_queue_that_is_too_much_for_one_member_is_alone_and_told(self) -> None:
        found = world(6)
        hot = Queue("t", 3)
        found.speeds[hot] = 500.0
        found.run(REST_S, found.is_settled)
        (owner,) = found.owners()[hot]
        assert set(found.members[owner].core.held) == {hot}
        assert found.events().count("hot") == 1
        decisions = found.controller.core.sentinel.decisions
        found.run(60.0)
        assert found.controller.core.sentinel.decisions == decisions

    def test_without_a_monitor_members_go_on(self) -> None:
        found = world(4)
        found.run(REST_S, found.is_settled)
        found.has_monitor = False
        found.run(120.0)
        assert found.events().count("stale") == 1
        check_sink(found)
        found.has_monitor = True
        found.run(5.0)
        assert "fresh" in found.events()
        drain(found)


class TestControllers:
    def test_the_next_one_takes_over_what_is(self) -> None:
        found = world(20)
        found.run(REST_S, found.is_settled)
        owners = found.owners()
        found.controllers[0].is_over = True
        found.run(30.0)
        found.replace_controller()
        found.run(REST_S, found.is_settled)
        assert found.owners() == owners
        assert len(found.members) == 2
        assert found.sink.refused == 0
        drain(found)

    def test_the_newest_wins(self) -> None:
        found = world(20)
        found.run(REST_S, found.is_settled)
        found.replace_controller()
        found.run(5.0)
        assert found.controllers[0].is_over
        found.run(REST_S, found.is_settled)
        drain(found)

    def test_one_that_was_paused_gives_no_orders_any_more(self) -> None:
        found = world(20)
        found.run(REST_S, found.is_settled)
        found.controllers[0].is_paused = True
        found.replace_controller()
        found.speeds = dict.fromkeys(found.speeds, 25.0)
        found.run(3.0)
        found.run(REST_S, found.is_settled)
        found.controllers[0].is_paused = False
        found.run(5.0)
        assert found.controllers[0].is_over
        assert found.sink.refused == 0
        drain(found)

    def test_a_pause_of_its_own_loses_no_member(self) -> None:
        found = world(20)
        found.run(REST_S, found.is_settled)
        found.controller.is_paused = True
        found.run(60.0)
        found.controller.is_paused = False
        found.run(60.0)
        assert "lost" not in found.events()

    @pytest.mark.parametrize("lost_s", [8.0, 4.5])
    def test_while_nothing_at_all_is_heard_no_member_is_lost(self, lost_s: float) -> None:
        """Kafka is gone for a minute: no member is ended or replaced, even if ``lost_s`` is short."""
        found = world(20, lost_s=lost_s)
        found.run(REST_S, found.is_settled)
        members, orders = set(found.members), list(found.scaler.orders)
        found.has_monitor = False
        for member in found.members.values():
            member.is_paused = True
        found.run(60.0)
        assert found.events().count("deaf") == 1
        found.has_monitor = True
        for member in found.members.values():
            member.is_paused = False
        found.run(30.0)
        assert found.events().count("hears") == 1
        assert "lost" not in found.events()
        assert (set(found.members), found.scaler.orders) == (members, orders)
        drain(found)

    def test_terms_grow_where_places_began_anew(self) -> None:
        """The topic for members was deleted and recreated: offsets are small, and the sink knows large epochs."""
        found = world(4)
        found.sink.epochs = dict.fromkeys(found.speeds, 70 * EPOCHS_PER_TERM)
        found.run(REST_S, found.is_settled)
        assert found.is_settled()
        assert found.controller.core.term > 70
        drain(found)

    def test_their_clocks_may_be_days_apart(self) -> None:
        """The clocks are ahead and behind: no controller's time means anything to the next one, or to a member."""
        found = world(20)
        found.run(REST_S, found.is_settled)
        owners, orders = found.owners(), list(found.scaler.orders)
        clocks = [found.controller.ahead_s]
        for _ in range(3):
            found.controller.is_over = True
            found.run(4.0)
            found.replace_controller()
            clocks.append(found.controller.ahead_s)
            found.run(2.0)
            found.run(REST_S, found.is_settled)
            assert found.owners() == owners
        apart = [later - earlier for earlier, later in itertools.pairwise(clocks)]
        assert min(apart) <= -DAY_S
        assert max(apart) >= DAY_S
        assert found.scaler.orders == orders
        assert not {"lost", "absent", "stale", "deaf"}.intersection(found.events())
        drain(found)


class Transition(NamedTuple):
    """A transition in a group of twenty queues. ``begin``: triggers it; ``members``: wanted number after it;
    ``orders``: fewest orders that it takes; ``speed``: speed of each queue before it."""

    begin: Callable[[World], None]
    members: int
    orders: int
    speed: float = 10.0


def loads(found: World, speed: float) -> None:
    found.speeds = dict.fromkeys(found.speeds, speed)


def one_is_killed(found: World) -> None:
    del found.members[min(found.members)]


def one_has_too_much(found: World) -> None:
    """The other member has room for the queue."""
    busy, *_ = found.members.values()
    found.speeds = {queue: 13.0 if queue in busy.core.held else 4.0 for queue in found.speeds}


def partitions_are_added(found: World) -> None:
    for partition in range(20, 23):
        queue = Queue("t", partition)
        found.speeds[queue], found.produced[queue] = 10.0, 0.0


def another_controller_begins(found: World) -> None:
    """Kill the controller during synchronization, after each of its orders."""
    found.controller.is_over = True
    orders, found.controller.orders_left = found.controller.orders_left, None
    found.replace_controller()
    found.controller.orders_left = orders


def is_killed(found: World) -> bool:
    found.run(TRANSITION_S, lambda: found.controller.is_over)
    return found.controller.is_over


def comes_to_rest(found: World, members: int) -> None:
    found.run(REST_S, lambda: len(found.members) == members and found.is_settled())


TRANSITIONS = {
    "more members": Transition(lambda found: loads(found, 25.0), 5, 12),
    "fewer members": Transition(lambda found: loads(found, 5.0), 1, 12, speed=25.0),
    "as many members": Transition(one_has_too_much, 2, 2),
    "a lost member": Transition(one_is_killed, 2, 3),
    "added partitions": Transition(partitions_are_added, 3, 3),
    "synchronizing": Transition(another_controller_begins, 2, 12),
}


@pytest.mark.parametrize("name", TRANSITIONS)
def test_killed_before_each_order_of_each_transition_the_next_one_goes_on(name: str) -> None:
    """Kill it before the first order, the second, and so on, until one has given all orders."""
    transition = TRANSITIONS[name]
    settled = world(20, down_cooldown_s=10.0)
    loads(settled, transition.speed)
    settled.run(REST_S, settled.is_settled)
    settled.run(20.0)
    for orders in itertools.count():
        found = copy.deepcopy(settled)
        found.controller.orders_left = orders
        transition.begin(found)
        if not is_killed(found):
            break
        found.run(4.0)
        found.replace_controller()
        comes_to_rest(found, transition.members)
        assert len(found.members) == transition.members, f"after {orders} orders"
        assert found.sink.refused == 0
        assert found.controller.core.owners.forced == 0
        drain(found)
    assert len(found.members) == transition.members
    assert found.is_settled()
    assert orders >= transition.orders


FAULTS = st.lists(
    st.tuples(
        st.sampled_from(
            [
                *("load", "kill member", "pause member", "resume", "end member", "partition", "monitor"),
                *("kill controller", "new controller", "pause controller"),
                *("scaler fails", "scaler lies", "scaler works"),
            ]
        ),
        st.integers(0, 1_000),
        st.floats(0.5, 30.0),
    ),
    max_size=25,
)


def fault(found: World, kind: str, which: int) -> None:
    """Trigger one event. ``which``: the affected program."""
    names = sorted(found.members)
    member = found.members[names[which % len(names)]] if names else None
    match kind:
        case "load":
            chance = Random(which)
            found.speeds = {queue: chance.choice([0.0, 5.0, 10.0, 30.0, 60.0]) for queue in found.speeds}
        case "kill member" if member:
            del found.members[member.name]
        case "end member" if member:
            member.is_ending = True
        case "pause member" if member:
            member.is_paused = True
        case "resume":
            for each in found.members.values():
                each.is_paused = False
            for controller in found.controllers:
                controller.is_paused = False
        case "kill controller":
            found.controller.step(which % 5)
            found.controller.is_over = True
            found.replace_controller()
        case "new controller":
            found.replace_controller()
        case "pause controller":
            found.controller.is_paused = True
        case "scaler fails":
            found.scaler.fails = True
        case "scaler lies":
            found.scaler.lies = True
        case "scaler works":
            found.scaler.fails = found.scaler.lies = False
        case "partition":
            queue = Queue("t", len(found.speeds))
            if queue.partition < 30:
                found.speeds[queue] = found.produced[queue] = 0.0
        case "monitor":
            found.has_monitor = not found.has_monitor


@settings(max_examples=60)
@given(st.integers(0, 2**32), st.integers(1, 20), FAULTS)
def test_whatever_fails_nothing_is_lost_nor_doubled(
    seed: int, queues: int, faults: list[tuple[str, int, float]]
) -> None:
    found = world(queues, seed)
    found.run(30.0)
    for kind, which, seconds in faults:
        fault(found, kind, which)
        found.run(seconds)
        assert len(found.members) + len(found.scaler.starting) <= found.settings.members_max
    fault(found, "resume", 0)
    fault(found, "scaler works", 0)
    found.has_monitor = True
    # A member that was paused learns at the next batch that a queue has another owner.
    found.speeds = {queue: max(speed, 5.0) for queue, speed in found.speeds.items()}
    found.run(30.0)
    found.run(REST_S, found.is_settled)
    assert found.is_settled()
    drain(found)
