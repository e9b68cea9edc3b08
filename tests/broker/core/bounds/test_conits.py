"""A topic's held messages: which survive, their order, their weight and their age."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from ingeborg.broker.core.bounds.conits import STALE_MAX, Conit, Urgent
from ingeborg.broker.core.bounds.rules import Bound
from ingeborg.broker.core.connections.hub import Connection
from ingeborg.broker.core.connections.outbox import Outbox
from ingeborg.broker.core.message import Message
from ingeborg.protocol.bounds import Rule
from ingeborg.protocol.messages import About

#: Messages: (item, weight, kept), and whether one is taken out after each.
messages = st.lists(st.tuples(st.sampled_from([None, "a", "b"]), st.floats(0, 10), st.booleans(), st.booleans()))


def conit(latest: bool) -> Conit:
    bound = Bound(Rule(None, "", None, None, 0, latest, 0.0))
    return Conit(Connection(1, Outbox(1_000)), "ann", "t", bound)


def message(number: int, item: str | None, weight: float, kept: bool) -> Message:
    one = Message("t", b"%d" % number, "o", number, 0.0)
    one.about, one.is_kept = About(item, weight), kept
    return one


@given(messages, st.booleans(), st.booleans())
def test_nothing_that_is_due_gets_lost_and_survivors_keep_their_order(
    messages: list[tuple[str | None, float, bool, bool]], latest: bool, named: bool
) -> None:
    held = conit(latest)
    put, left, size = [], [], 0
    for number, (item, weight, kept, takes) in enumerate(messages):
        one = message(number, item, weight, kept)
        put.append(one)
        size += held.put(one, named, float(number))
        if takes and len(held):
            left.append(held.take())
            size -= left[-1].size
        all_held = [*held.leaving, *held.held.values()]
        assert len(held) == len(all_held)
        assert size == sum(one.size for one in all_held)
        assert abs(held.weight - sum(one.weight for one in all_held)) < 1e-6
    while len(held):
        left.append(held.take())
    numbers = [one.message.number for one in left]
    assert numbers == sorted(numbers)
    assert sum(1 + one.skipped for one in left) == len(put)
    if not latest:
        assert numbers == list(range(len(put)))
    else:
        for item in (None, "a", "b"):
            of_item = [one.number for one in put if one.about is not None and one.about.item == item]
            assert not of_item or of_item[-1] in numbers, "an item's last message is there"
    if named:
        assert {one.number for one in put if one.is_kept} <= set(numbers), "no kept message is left out"
    assert abs(sum(one.weight for one in left) - sum(one.about.weight for one in put if one.about)) < 1e-6


@given(st.lists(st.tuples(st.sampled_from(["push", "pop", "discard"]), st.integers(0, 9)), max_size=300))
def test_urgent_conits_leave_in_their_order_and_discarded_ones_take_no_room(steps: list[tuple[str, int]]) -> None:
    conits = [conit(False) for _ in range(10)]
    for number, one in enumerate(conits):
        one.since = float(number % 5)
    urgent = Urgent()
    there: list[Conit] = []  # in the order in which they came
    for step, number in steps:
        one = conits[number]
        if step == "push":
            if one not in there:
                there.append(one)
            urgent.push(one)
        elif step == "discard":
            if one in there:
                there.remove(one)
            urgent.discard(one)
        else:
            first = min(there, key=lambda one: one.urgent_at, default=None)
            assert urgent.pop() is first
            if first is not None:
                there.remove(first)
        assert len(there) <= len(urgent) <= len(there) + STALE_MAX


def test_the_age_is_that_of_the_first_message_that_a_held_one_stands_for() -> None:
    held = conit(True)
    for now in (5.0, 6.0, 7.0):
        held.put(message(1, None, 1.0, False), False, now)
    assert held.since == 5.0


def test_each_item_has_its_turn_however_often_another_is_updated() -> None:
    held, left = conit(True), []
    for number in range(200):
        held.put(message(number, "a" if number % 2 else f"{number // 2 % 5}", 1.0, False), False, float(number))
        if number % 10 == 9:
            left.append(held.take().message.about)
    items = Counter(about.item for about in left if about is not None)
    assert len(items) == 6
    assert max(items.values()) <= min(items.values()) + 1


def test_the_age_and_the_floor_follow_what_is_still_held() -> None:
    held = conit(True)
    for now, item in ((1.0, "a"), (2.0, "b")):
        held.put(message(1, item, 1.0, False), False, now, floor=int(now))
    held.take()
    held.put(message(1, "a", 1.0, False), False, 3.0, floor=3)
    assert (held.since, held.floor) == (1.0, 1)
    held.take()
    assert (held.since, held.floor) == (3.0, 3)
