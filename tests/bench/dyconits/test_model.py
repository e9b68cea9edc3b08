"""Runs in virtual time: the document's effects, and the errors of readers."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingeborg.bench.dyconits import errors, model, workload
from ingeborg.bench.dyconits.layer.settings import HIGH, LOW, MEDIUM, PROGRAMS, TEXT, TOPICS, Readings
from ingeborg.bench.dyconits.rows import Sample, Used

LOAD = workload.load(workload.DEFAULT)
LENGTH_S = 120.0


def run(experiment: str, readings: Readings | None) -> tuple[model.Found, dict[str, errors.Errors]]:
    found = model.run(LOAD, experiment, readings, 1, LENGTH_S)
    return found, {
        topic: errors.errors(
            found.produced[topic], [one for one in found.samples if (one.reader, one.topic) == ("c1", topic)]
        )
        for topic in TOPICS
    }


def test_a_run_follows_from_its_seed() -> None:
    one, other = (model.run(LOAD, "e3", PROGRAMS, 1, 20.0) for _ in range(2))
    assert one == other
    assert model.run(LOAD, "e3", PROGRAMS, 2, 20.0).produced != one.produced


def test_plain_readers_keep_up_with_a_low_load() -> None:
    _, seen = run("e1", None)
    assert all(each.numerical_max <= 2 and each.staleness_max_s < 0.1 for each in seen.values())


def test_under_high_load_plain_readers_fall_behind_where_a_message_costs_most() -> None:
    """The document's figures 5.5 and 5.6: 9,000 messages and 60 s, and 35 messages at most for the others."""
    _, seen = run("e3", None)
    assert 8_000 < seen[HIGH].numerical_max < 9_000
    assert max(seen[MEDIUM].numerical_max, seen[LOW].numerical_max) < 35


def test_the_layer_leaves_a_low_load_alone_except_a_low_priority() -> None:
    _, seen = run("e1", TEXT)
    assert seen[HIGH].numerical_max <= 2
    assert seen[LOW].numerical_max > 10
    assert seen[LOW].numerical < 10


@pytest.mark.parametrize("readings", [TEXT, PROGRAMS])
def test_the_layer_serves_high_priority_at_the_cost_of_low_priority(readings: Readings) -> None:
    _, plain = run("e3", None)
    layered, seen = run("e3", readings)
    assert seen[HIGH].numerical < plain[HIGH].numerical
    assert seen[LOW].numerical > 100 * plain[LOW].numerical
    assert seen[HIGH].staleness_max_s > 10, "the bound of 10 s does not bind"
    bounds = [control.staleness_ms for control in layered.controls if control.topic == HIGH]
    assert bounds == sorted(bounds), "bounds only grow"


def test_a_reader_passes_each_message_once_and_at_its_rate() -> None:
    found, _ = run("e2", None)
    last = {sample.topic: sample for sample in found.samples if sample.reader == "c1"}
    units = sum(sample.taken * LOAD.experiments["e2"].units[topic] for topic, sample in last.items())
    assert units == pytest.approx(LENGTH_S * 1e3 / LOAD.readers.unit_ms, rel=0.01)
    assert all(sample.taken <= len(found.produced[topic]) for topic, sample in last.items())


def test_a_message_without_units_is_taken_at_once() -> None:
    setup = replace(LOAD.experiments["e3"], units=dict.fromkeys(TOPICS, 0))
    free = replace(LOAD, experiments={**LOAD.experiments, "e3": setup})
    found = model.run(free, "e3", None, 1, 5.0)
    last = [sample for sample in found.samples if sample.reader == "c1"][-1]
    assert last.taken == sum(time_ms <= last.at_ms for time_ms in found.produced[last.topic])


# -- errors


def sample(at_ms: float, last: int) -> Sample:
    return Sample("c1", HIGH, at_ms, last, 0, last, last)


def test_errors_of_a_reader_by_hand() -> None:
    produced = [100.0, 200.0, 300.0]
    found = errors.errors(produced, [sample(50, 0), sample(150, 0), sample(250, 1), sample(400, 3)])
    assert found == errors.Errors(0.5, 1, 0.025, 0.05)


@given(st.lists(st.floats(0, 1e4), min_size=1, max_size=20).map(sorted), st.floats(0, 1e4), st.data())
def test_a_reader_without_waiting_messages_has_no_error(
    produced: list[float], at_ms: float, data: st.DataObject
) -> None:
    count = sum(time_ms <= at_ms for time_ms in produced)
    last = data.draw(st.integers(0, count))
    found = errors.errors(produced, [sample(at_ms, last)])
    assert found.numerical == count - last
    assert (found.staleness_s > 0 or last < count) if found.numerical else found.staleness_s == 0


def test_a_peak_is_the_greatest_usage_over_five_seconds() -> None:
    used = [Used("c1", 100.0 * place, 0.01 * max(place - 60, 0)) for place in range(121)]
    assert errors.usage(used) == pytest.approx((5.0, 10.0))
    assert errors.usage(used[:20]) == (0.0, 0.0)
