"""Owners of queues, one step at a time."""

from __future__ import annotations

from itertools import count

import pytest

from ingeborg.autoscaler.effects import Note, Notes
from ingeborg.autoscaler.model import QUEUES_SENT, Held, Queue, Start, Stop
from ingeborg.autoscaler.owners import OWNED, STARTING, STOPPING, Owners

A, B = Queue("t", 0), Queue("t", 1)
ANSWER_S, STOP_S = 5.0, 30.0


class Bed:
    """Owners, and epochs from 1 on."""

    def __init__(self) -> None:
        self.notes = Notes()
        self.owners = Owners(ANSWER_S, STOP_S, self.notes)
        self._epochs = count(1)

    def orders(self, now_s: float, targets: dict[Queue, str | None]) -> dict[str, list[Start | Stop]]:
        return self.owners.orders(now_s, targets, 1, lambda: next(self._epochs))

    def state(self, queue: Queue) -> tuple[str, int, str]:
        owner = self.owners.of[queue]
        return owner.name, owner.epoch, owner.state


@pytest.fixture
def bed() -> Bed:
    return Bed()


def held(queue: Queue, epoch: int) -> Held:
    return Held(queue, epoch, 0, 0.0, "")


def test_a_queue_is_started_stopped_and_started_elsewhere_and_never_at_two(bed: Bed) -> None:
    assert bed.orders(0, {A: "x", B: "x"}) == {"x": [Start("x", 1, 1, (A, B))]}
    assert bed.state(A) == ("x", 1, STARTING)
    assert bed.owners.started(1, "x", 1, A)
    assert bed.state(A) == ("x", 1, OWNED)
    assert bed.orders(2, {A: "y", B: "x"}) == {"x": [Stop("x", 1, (A,))]}
    assert bed.state(A) == ("x", 1, STOPPING)
    assert bed.orders(3, {A: "y", B: "x"}) == {}
    assert bed.owners.stopped("x", A)
    assert bed.orders(4, {A: "y", B: "x"}) == {"y": [Start("y", 1, 2, (A,))]}


def test_what_is_not_answered_is_said_again(bed: Bed) -> None:
    bed.orders(0, {A: "x"})
    assert bed.orders(ANSWER_S - 0.1, {A: "x"}) == {}
    assert bed.orders(ANSWER_S, {A: "x"}) == {"x": [Start("x", 1, 1, (A,))]}
    assert bed.owners.repeats == 1
    bed.owners.paused(100.0)
    assert bed.orders(ANSWER_S + 100.0, {A: "x"}) == {}


def test_one_that_does_not_let_go_loses_the_queue_to_a_newer_epoch(bed: Bed) -> None:
    bed.owners.holds(0, "x", [held(A, 7)])
    assert bed.orders(0, {A: "y"}) == {"x": [Stop("x", 1, (A,))]}
    assert bed.owners.moving(STOP_S) == 1
    assert bed.owners.moving(STOP_S + 1) == 0
    orders = bed.orders(STOP_S + 1, {A: "y"})
    assert orders == {"x": [Stop("x", 1, (A,))], "y": [Start("y", 1, 1, (A,))]}
    assert bed.owners.forced == 1
    [note] = bed.notes.take()
    assert isinstance(note, Note)
    assert note.is_trouble
    assert "x has not released t/0" in note.words


def test_a_queue_stays_where_it_is_until_its_next_owner_has_come(bed: Bed) -> None:
    bed.owners.holds(0, "x", [held(A, 1)])
    assert bed.orders(0, {A: None}) == {}
    assert bed.orders(0, {B: None}) == {"x": [Stop("x", 1, (A,))]}  # A has no owner


def test_who_changes_his_mind_waits_for_the_answer(bed: Bed) -> None:
    bed.owners.holds(0, "x", [held(A, 1)])
    bed.orders(0, {A: "y"})
    assert bed.orders(1, {A: "x"}) == {}
    assert bed.owners.stopped("x", A)
    assert bed.orders(2, {A: "x"}) == {"x": [Start("x", 1, 1, (A,))]}


class TestHolds:
    def test_what_a_member_says_that_it_holds_it_owns(self, bed: Bed) -> None:
        assert bed.owners.holds(0, "x", [held(A, 3)]) == []
        assert bed.state(A) == ("x", 3, OWNED)

    def test_what_it_does_not_name_any_more_it_has_lost(self, bed: Bed) -> None:
        bed.owners.holds(0, "x", [held(A, 3)])
        bed.owners.holds(1, "x", [])
        assert bed.owners.of == {}

    def test_what_it_has_not_heard_of_yet_it_keeps(self, bed: Bed) -> None:
        bed.orders(0, {A: "x"})
        bed.owners.holds(1, "x", [])
        assert bed.state(A) == ("x", 1, STARTING)

    def test_a_start_that_was_heard_is_answered_by_it(self, bed: Bed) -> None:
        bed.orders(0, {A: "x"})
        bed.owners.holds(1, "x", [held(A, 1)])
        assert bed.state(A) == ("x", 1, OWNED)

    def test_of_two_the_newer_epoch_owns_and_the_other_is_to_stop(self, bed: Bed) -> None:
        bed.owners.holds(0, "x", [held(A, 3)])
        assert bed.owners.holds(1, "y", [held(A, 2)]) == [A]
        assert bed.owners.holds(1, "y", [held(A, 4)]) == []
        assert bed.state(A) == ("y", 4, OWNED)

    def test_one_that_was_away_does_not_get_back_what_another_has_had(self, bed: Bed) -> None:
        bed.owners.holds(0, "x", [held(A, 3)])
        bed.owners.holds(1, "y", [held(A, 4)])
        assert bed.owners.gone("y") == 1
        assert bed.owners.holds(2, "x", [held(A, 3)]) == [A]
        assert bed.owners.of == {}


def test_answers_to_what_nobody_said_are_told_from_others(bed: Bed) -> None:
    assert bed.owners.started(0, "x", 1, A) is None
    assert not bed.owners.stopped("x", A)
    bed.orders(0, {A: "x"})
    assert bed.owners.started(0, "x", 9, A) is None
    assert not bed.owners.stopped("x", A)
    bed.owners.refused("x", 9, A)
    assert A in bed.owners.of
    bed.owners.refused("x", 1, A)
    assert bed.owners.of == {}


def test_orders_are_cut_to_what_a_message_holds(bed: Bed) -> None:
    queues = [Queue("t", number) for number in range(QUEUES_SENT + 1)]
    orders = bed.orders(0, dict.fromkeys(queues, "x"))["x"]
    assert [len(order.queues) for order in orders if isinstance(order, Start)] == [QUEUES_SENT, 1]
