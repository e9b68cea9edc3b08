"""The current size of a queue, and its recent maximum, against a model that keeps everything."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ingeborg.autoscaler.model import Flow, Queue
from ingeborg.autoscaler.sizes import PARTS, Sizes

A = Queue("t", 0)
LOOK_BACK_S = 60.0


def test_what_has_not_been_read_counts_as_if_it_came_in_some_time() -> None:
    sizes = Sizes(LOOK_BACK_S, 10.0)
    sizes.measured(0.0, [Flow(A, 5.0, 100.0)])
    assert sizes.now == {A: 15.0}
    without = Sizes(LOOK_BACK_S, 0.0)
    without.measured(0.0, [Flow(A, 5.0, 100.0)])
    assert without.now == {A: 5.0}


@given(st.lists(st.tuples(st.floats(0.1, 30.0), st.floats(0.0, 100.0)), min_size=1, max_size=60))
def test_the_greatest_is_that_of_the_time_looked_back_and_of_little_more(steps: list[tuple[float, float]]) -> None:
    sizes = Sizes(LOOK_BACK_S, 0.0)
    now_s, seen = 0.0, []
    for seconds, size in steps:
        now_s += seconds
        seen.append((now_s, size))
        sizes.measured(now_s, [Flow(A, size, 0.0)])
        least = max(size for at_s, size in seen if now_s - at_s < LOOK_BACK_S)
        # A part begins with the measurement after its time, up to one interval of measurements late.
        most = max(size for at_s, size in seen if now_s - at_s <= LOOK_BACK_S + 2 * LOOK_BACK_S / PARTS + 31.0 * PARTS)
        assert least <= sizes.peaks()[A] <= most
    assert sizes.known_s(now_s) == now_s - seen[0][0]


def test_after_a_longer_pause_it_is_as_new() -> None:
    sizes = Sizes(LOOK_BACK_S, 0.0)
    sizes.measured(0.0, [Flow(A, 50.0, 0.0)])
    sizes.measured(LOOK_BACK_S - 1.0, [Flow(A, 5.0, 0.0)])
    assert (sizes.known_s(LOOK_BACK_S), sizes.peaks()[A]) == (LOOK_BACK_S, 50.0)
    sizes.measured(10 * LOOK_BACK_S, [Flow(A, 7.0, 0.0)])
    assert (sizes.known_s(10 * LOOK_BACK_S), sizes.peaks()[A]) == (0.0, 7.0)


def test_a_pause_longer_than_what_is_looked_back_leaves_nothing() -> None:
    sizes = Sizes(LOOK_BACK_S, 0.0)
    sizes.measured(0.0, [Flow(A, 100.0, 0.0)])
    sizes.measured(1_000.0, [Flow(A, 1.0, 0.0)])
    assert sizes.peaks() == {A: 1.0}


def test_without_looking_back_the_greatest_is_what_is_now() -> None:
    sizes = Sizes(0.0, 0.0)
    assert sizes.known_s(9.0) == 0.0
    sizes.measured(0.0, [Flow(A, 100.0, 0.0)])
    sizes.measured(1.0, [Flow(A, 1.0, 0.0)])
    assert sizes.peaks() == {A: 1.0}
