"""Stamps, and the watermark: the most that a home can say about concluded messages. SPEC section 8.10."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ingeborg.broker.core.retained.clock import Clock


def test_the_watermark_is_before_the_first_message_that_has_not_ended() -> None:
    clock = Clock()
    assert clock.watermark == 0
    first, second, third = clock.stamp(), clock.stamp(), clock.stamp()
    assert clock.watermark == 0
    clock.close(second)
    assert clock.watermark == 0
    clock.close(first)
    assert clock.watermark == second
    clock.close(third)
    assert clock.watermark == third
    clock.close(third)  # twice is once
    clock.close(99)
    assert clock.watermark == third


def test_a_stamp_is_greater_than_all_that_was_heard_of() -> None:
    clock = Clock()
    clock.see(7)
    clock.see(3)
    assert clock.watermark == 7  # a peer may announce 7, since this home no longer gives such a stamp
    assert clock.stamp() == 8
    assert clock.step() == 9
    assert clock.watermark == 7


@given(st.lists(st.integers(-3, 20)))
def test_no_watermark_ever_covers_a_stamp_that_is_open_or_to_come(steps: list[int]) -> None:
    """``steps``: -1 gives a stamp, -2 ends the oldest, -3 ends the newest; any other number comes from a peer."""
    clock, told = Clock(), 0
    underway: list[int] = []
    for step in steps:
        if step == -1:
            stamp = clock.stamp()
            assert stamp > told
            underway.append(stamp)
        elif step < 0 and underway:
            clock.close(underway.pop(0 if step == -2 else -1))
        elif step >= 0:
            clock.see(step)
        assert clock.watermark >= told
        told = clock.watermark
        assert all(stamp > told for stamp in underway)
        assert clock.watermark == (min(underway) - 1 if underway else clock.value)
