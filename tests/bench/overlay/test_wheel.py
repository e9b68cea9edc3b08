"""Virtual time: order within a slot, and no event in the past."""

from __future__ import annotations

from ingeborg.bench.overlay.wheel import CALL, Wheel, slots


def test_what_is_put_into_a_slot_keeps_its_order() -> None:
    wheel = Wheel()
    for number in range(5):
        wheel.put(7, (number, None, 0, CALL))
    assert [event[0] for event in wheel.slots[7]] == list(range(5))


def test_what_would_be_past_is_due_now_and_last() -> None:
    wheel = Wheel()
    wheel.now = 10
    wheel.put(10, ("first", None, 0, CALL))
    wheel.put(3, ("late", None, 0, CALL))
    assert [event[0] for event in wheel.slots[10]] == ["first", "late"]


def test_a_time_is_a_number_of_slots_and_never_none() -> None:
    assert [slots(seconds) for seconds in (0.0, 0.00004, 0.0001, 0.01, 60.0)] == [1, 1, 1, 100, 600_000]


def test_a_call_is_due_after_its_time() -> None:
    wheel = Wheel()
    wheel.now = 100
    wheel.call(0.5, print, "x")
    assert wheel.slots[5_100] == [(print, ("x",), 0, CALL)]
