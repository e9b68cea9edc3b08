"""The moments at which the times that parts gather become part of the histograms."""

from __future__ import annotations

from ingeborg.broker.core.counters import Counters
from ingeborg.broker.core.histogram import Histogram


def observed(histogram: Histogram) -> tuple[int, float]:
    """Return the number of times, and their sum in seconds."""
    return histogram.buckets()[-1][1], histogram.sum_s


def test_a_delivery_ends_when_its_turn_has_been_written_and_not_when_it_was_put_into_outboxes() -> None:
    counters = Counters()
    counters.put.append((10.0, 3))  # received at 10.0, for three subscribers
    counters.observe()
    assert observed(counters.delivery_times) == (0, 0.0)
    counters.written(10.5)
    counters.put.append((10.5, 1))  # the next turn's, not yet written
    counters.observe()
    assert observed(counters.delivery_times) == (3, 1.5)


def test_each_turn_is_observed_by_its_own_time_of_writing() -> None:
    counters = Counters()
    for received, written in ((10.0, 10.25), (11.0, 11.5)):
        counters.put.append((received, 1))
        counters.written(written)
    counters.observe()
    assert observed(counters.delivery_times) == (2, 0.75)


def test_what_was_observed_is_not_observed_again() -> None:
    counters = Counters()
    counters.put.append((10.0, 1))
    counters.written(11.0)
    counters.settled_s += [0.25, 0.5]
    counters.settled_at_once = 4
    for _ in range(3):
        counters.observe()
        counters.written(20.0)
    assert observed(counters.delivery_times) == (1, 1.0)
    assert observed(counters.publish_times) == (6, 0.75)


def test_a_publish_that_had_to_wait_for_nothing_took_no_time() -> None:
    counters = Counters()
    counters.settled_at_once = 5
    counters.settled_s.append(0.03)
    counters.observe()
    buckets = dict(counters.publish_times.buckets())
    assert (buckets[0.0001], buckets[0.05]) == (5, 6)
