"""Speeds of queues: against a model that keeps everything, and by example."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingeborg.autoscaler.model import Flow, Queue
from ingeborg.autoscaler.speeds import STEPS, Meter, Reading, RecordSizes, Windows

A, B, C = Queue("orders", 0), Queue("orders", 1), Queue("users", 0)
QUEUES = [A, B, C]

WINDOW_S = 30.0


class Model:
    """Keeps all measurements, and recomputes the figure each time."""

    def __init__(self) -> None:
        self.history: list[tuple[float, dict[Queue, int]]] = []

    def speeds(self) -> dict[Queue, float]:
        _, last = self.history[-1]
        found = {}
        for queue in last:
            mine: list[tuple[float, int]] = []  # since the queue exists without a break
            for time_s, amounts in reversed(self.history):
                if queue not in amounts:
                    break
                mine.insert(0, (time_s, amounts[queue]))
            first_s = self.first_s()
            inside = [(time_s, amount) for time_s, amount in mine if time_s >= first_s]
            grown = sum(max(0, b - a) for (_, a), (_, b) in pairwise(inside))
            seconds = inside[-1][0] - inside[0][0]
            found[queue] = grown / seconds if seconds else 0.0
        return found

    def first_s(self) -> float:
        """Return the oldest time within the window; the second to last time, if that is older."""
        times = [time_s for time_s, _ in self.history]
        return min([time_s for time_s in times if times[-1] - time_s <= WINDOW_S] + times[-2:-1])

    def shrunk(self) -> int:
        return sum(
            after[queue] < before[queue]
            for (_, before), (_, after) in pairwise(self.history)
            for queue in before.keys() & after.keys()
        )


#: Seconds between two measurements: at least a step of the window, so that the window keeps every one.
PAUSES = st.one_of(st.integers(1, 40), st.sampled_from([0.5, 7.25, 29.5, 31.0, 500.0]))
AMOUNTS = st.dictionaries(st.sampled_from(QUEUES), st.integers(0, 1_000_000))


@given(st.lists(st.tuples(PAUSES, AMOUNTS), min_size=1, max_size=60))
def test_speeds_are_those_of_a_model_that_keeps_everything(measurements: list[tuple[float, dict[Queue, int]]]) -> None:
    windows, model, now_s = Windows(WINDOW_S), Model(), 1_000.0
    for pause_s, amounts in measurements:
        now_s += pause_s
        windows.add(now_s, amounts)
        model.history.append((now_s, amounts))
        assert windows.speeds() == pytest.approx(model.speeds())
        assert windows.shrunk == model.shrunk()


@given(
    st.lists(st.tuples(st.floats(0.001, 40.0), st.integers(0, 10_000)), min_size=2, max_size=200), st.floats(0.1, 60.0)
)
def test_without_shrinking_it_is_last_less_first_by_the_time(steps: list[tuple[float, int]], window_s: float) -> None:
    """For any interval of measurements, the section's formula holds, from a first one that is never older than the
    window, and at most a step younger."""
    windows, now_s, amount = Windows(window_s), 0.0, 0
    history = []
    for pause_s, more in steps:
        now_s, amount = now_s + pause_s, amount + more
        windows.add(now_s, {A: amount})
        history.append((now_s, amount))
        first_s = now_s - windows.span_s
        [(_, first)] = [min(history, key=lambda each: abs(each[0] - first_s))]
        expected = (amount - first) / windows.span_s if windows.span_s else 0.0
        assert windows.speeds()[A] == pytest.approx(expected)
        if len(history) > 1:
            assert windows.span_s <= max(window_s, now_s - history[-2][0]) + 1e-9


def test_many_measurements_take_no_more_memory_than_some() -> None:
    windows = Windows(WINDOW_S)
    for n in range(10_000):
        windows.add(n * 0.01, {A: n})
    assert len(windows._points) <= 2 * STEPS + 2
    assert windows.speeds()[A] == pytest.approx(100.0)
    assert windows.span_s == pytest.approx(WINDOW_S, rel=0.05)


def test_nothing_measured_gives_nothing() -> None:
    windows = Windows(WINDOW_S)
    assert windows.speeds() == {}
    assert windows.span_s == 0.0


def test_one_measurement_gives_no_speed() -> None:
    windows = Windows(WINDOW_S)
    windows.add(5.0, {A: 100})
    assert windows.speeds() == {A: 0.0}
    assert windows.span_s == 0.0


def test_a_queue_that_appears_has_the_speed_of_its_own_time() -> None:
    windows = Windows(WINDOW_S)
    windows.add(0.0, {A: 0})
    windows.add(10.0, {A: 100, B: 5_000})
    assert windows.speeds() == {A: 10.0, B: 0.0}
    windows.add(20.0, {A: 200, B: 5_100})
    assert windows.speeds() == {A: 10.0, B: 10.0}


def test_a_queue_that_vanishes_and_comes_back_is_another_one() -> None:
    windows = Windows(WINDOW_S)
    windows.add(0.0, {A: 0, B: 1_000})
    windows.add(1.0, {A: 10})
    assert windows.speeds() == {A: 10.0}
    windows.add(2.0, {A: 20, B: 7})
    assert windows.speeds() == {A: 10.0, B: 0.0}
    assert windows.shrunk == 0


def test_an_amount_that_shrinks_is_counted_and_goes_on_from_there() -> None:
    windows = Windows(WINDOW_S)
    windows.add(0.0, {A: 1_000})
    windows.add(1.0, {A: 0})
    assert windows.speeds() == {A: 0.0}
    assert windows.shrunk == 1
    windows.add(2.0, {A: 50})
    assert windows.speeds() == {A: 25.0}
    assert windows.shrunk == 1


def test_a_pause_longer_than_the_window_gives_the_mean_of_the_pause() -> None:
    windows = Windows(WINDOW_S)
    for n in range(5):
        windows.add(float(n), {A: n})
    windows.add(104.0, {A: 5_004})
    assert windows.speeds() == {A: 50.0}
    windows.add(105.0, {A: 5_005})
    assert windows.speeds() == {A: 1.0}


def test_a_clock_that_stands_still_gives_no_speed() -> None:
    windows = Windows(WINDOW_S)
    windows.add(1.0, {A: 0})
    windows.add(1.0, {A: 10})
    assert windows.speeds() == {A: 0.0}


# The size of a record


def reading(end: int, size: int, begin: int = 0, committed: int | None = None) -> Reading:
    return Reading(begin, end, size, committed)


def test_the_mean_size_is_that_of_the_log_at_first() -> None:
    assert RecordSizes(WINDOW_S).means(0.0, {A: reading(10, 1_000)}) == {A: 100.0}


def test_the_mean_size_is_that_of_what_is_written_later() -> None:
    sizes = RecordSizes(WINDOW_S)
    sizes.means(0.0, {A: reading(10, 1_000)})
    assert sizes.means(1.0, {A: reading(15, 6_000)}) == {A: 1_000.0}
    assert sizes.means(2.0, {A: reading(15, 6_000)}) == {A: 1_000.0}


def test_what_is_long_ago_counts_less() -> None:
    sizes = RecordSizes(WINDOW_S)
    sizes.means(0.0, {A: reading(0, 0)})
    sizes.means(1.0, {A: reading(100, 100_000)})
    [mean] = sizes.means(301.0, {A: reading(200, 110_000)}).values()
    assert mean == pytest.approx(100.0, rel=0.02)


def test_an_empty_queue_is_like_its_topic_and_else_like_the_group() -> None:
    empty, other = reading(0, 0), Queue("other", 0)
    found = RecordSizes(WINDOW_S).means(0.0, {A: empty, B: reading(10, 1_000), C: reading(10, 3_000), other: empty})
    assert found == {A: 100.0, B: 100.0, C: 300.0, other: 200.0}


def test_nothing_is_known_of_empty_queues() -> None:
    assert RecordSizes(WINDOW_S).means(0.0, {A: reading(0, 0), C: reading(7, 0, begin=7)}) == {A: 0.0, C: 0.0}
    assert RecordSizes(WINDOW_S).means(0.0, {}) == {}


def test_records_that_are_deleted_alone_do_not_make_the_others_large() -> None:
    """Kafka keeps the bytes of deleted records as long as their segment."""
    sizes = RecordSizes(WINDOW_S)
    sizes.means(0.0, {A: reading(1_000, 100_000)})
    sizes.means(1.0, {A: reading(1_010, 101_000)})
    sizes.means(2.0, {A: reading(1_010, 101_000, begin=1_009)})
    assert sizes.means(3.0, {A: reading(1_011, 101_100, begin=1_009)}) == {A: 100.0}


def test_retention_does_not_change_the_size_of_records() -> None:
    sizes = RecordSizes(WINDOW_S)
    sizes.means(0.0, {A: reading(1_000, 100_000)})
    sizes.means(1.0, {A: reading(1_010, 101_000)})
    assert sizes.means(2.0, {A: reading(1_020, 52_000, begin=500)}) == {A: 100.0}
    # This also holds if more is written than deleted.
    assert sizes.means(3.0, {A: reading(1_420, 72_000, begin=700)}) == {A: 100.0}


def test_a_topic_made_anew_begins_anew() -> None:
    sizes = RecordSizes(WINDOW_S)
    sizes.means(0.0, {A: reading(1_000, 100_000)})
    sizes.means(1.0, {A: reading(1_010, 101_000)})
    assert sizes.means(2.0, {A: reading(10, 20_000)}) == {A: 2_000.0}


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), min_size=1, max_size=50))
def test_sizes_and_offsets_need_not_be_read_at_the_same_instant(steps: list[tuple[int, int]]) -> None:
    """Records have 100 bytes, and the size is read some records later than the offset. The mean is off by at most the
    share of these last records in everything written."""
    sizes, written = RecordSizes(1e12), 0
    sizes.means(0.0, {A: reading(0, 0)})
    for n, (records, late) in enumerate(steps, 1):
        end = written + records
        written = end + late
        [mean] = sizes.means(float(n), {A: reading(end, 100 * written)}).values()
        assert mean == pytest.approx(100.0 * written / end if end else 0.0)


# Flows


def test_flows_by_offsets_are_records_times_their_size() -> None:
    meter = Meter(by_offsets=True, window_s=WINDOW_S, earliest=True)
    assert meter.flows(0.0, {A: reading(100, 10_000, committed=90)}) == (Flow(A, 0.0, 1_000.0),)
    assert meter.span_s == 0.0
    # Retention has halved the log; it has grown by 50 records nevertheless.
    assert meter.flows(10.0, {A: reading(150, 7_500, begin=75, committed=90)}) == (Flow(A, 500.0, 6_000.0),)
    assert meter.span_s == 10.0
    assert meter.shrunk == 0


def test_flows_by_the_sizes_of_logs_are_their_growth() -> None:
    meter = Meter(by_offsets=False, window_s=WINDOW_S, earliest=True)
    meter.flows(0.0, {A: reading(100, 10_000, committed=100)})
    assert meter.flows(10.0, {A: reading(150, 15_000, committed=150)}) == (Flow(A, 500.0, 0.0),)
    assert meter.flows(20.0, {A: reading(200, 10_000, begin=100, committed=200)}) == (Flow(A, 250.0, 0.0),)
    assert meter.shrunk == 1


@pytest.mark.parametrize(
    ("committed", "earliest", "records"),
    [
        (40, True, 60),
        (None, True, 80),
        (None, False, 0),
        (100, True, 0),
        (120, True, 0),  # the topic was recreated
        (5, True, 80),  # retention has deleted some unread records
    ],
)
def test_what_the_group_has_not_read(committed: int | None, earliest: bool, records: int) -> None:
    meter = Meter(by_offsets=True, window_s=WINDOW_S, earliest=earliest)
    [flow] = meter.flows(0.0, {A: reading(100, 800, begin=20, committed=committed)})
    assert flow.stock == records * 10.0


def test_flows_are_sorted_and_of_all_queues_that_there_are() -> None:
    meter = Meter(by_offsets=True, window_s=WINDOW_S, earliest=True)
    meter.flows(0.0, {C: reading(0, 0), A: reading(0, 0), B: reading(0, 0)})
    assert [flow.queue for flow in meter.flows(1.0, {C: reading(0, 0), A: reading(0, 0)})] == [A, C]


@given(st.lists(st.tuples(PAUSES, st.lists(st.integers(0, 100), min_size=4, max_size=4)), min_size=1, max_size=30))
def test_flows_are_never_below_zero(measurements: list[tuple[float, list[int]]]) -> None:
    for by_offsets in (True, False):
        meter, now_s = Meter(by_offsets=by_offsets, window_s=WINDOW_S, earliest=True), 0.0
        for pause_s, (begin, more, size, committed) in measurements:
            now_s += pause_s
            [flow] = meter.flows(now_s, {A: Reading(begin, begin + more, size, committed)})
            assert flow.bytes_per_s >= 0
            assert flow.stock >= 0
