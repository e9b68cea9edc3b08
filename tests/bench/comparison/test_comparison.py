"""Comparisons of runs: repetitions, ratios, limits, failures, and no figure that is not the digest's."""

from __future__ import annotations

import json
import statistics

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingeborg.bench import comparison
from ingeborg.bench.text import blocks, statements, tables, verdicts
from tests.bench import digests


def the_row(*runs: digests.Json) -> comparison.TrafficRow:
    (table,) = comparison.traffic(digests.document(*runs))
    (row,) = table.rows
    return row


def texts(table: blocks.Table, column: str) -> list[str]:
    index = table.header.index(column)
    return [row[index].plain for row in table.rows]


# -- repetitions, loads, the baseline


def test_runs_of_one_configuration_are_repetitions_whatever_their_seed() -> None:
    row = the_row(*(digests.traffic(f"r{seed}", rate, seed=seed) for seed, rate in enumerate((3000, 5000, 4000))))
    assert [run["run"] for run in row.runs] == ["r0", "r1", "r2"]
    assert row.figures["in_per_s"] == (4000, 3000, 5000, 3)
    assert row.chosen["run"] == "r2", "the median's run stands for all in plots"


def value(figure: comparison.Figure | None) -> float:
    assert figure is not None
    return figure.value


def test_counts_are_added_up_so_that_the_median_hides_no_loss() -> None:
    row = the_row(digests.traffic("a"), digests.traffic("b", lost=7), digests.traffic("c"))
    assert value(row.figures["lost"]) == 7


def test_another_load_is_another_table_and_another_setup_another_row() -> None:
    other_load = digests.traffic("load", config=digests.TRAFFIC | {"fanout": 20.0})
    other_setup = digests.traffic("setup", config=digests.TRAFFIC | {"processes": 4})
    found = comparison.traffic(digests.document(digests.traffic("plain"), other_load, other_setup))
    assert [[row.name for row in table.rows] for table in found] == [
        ["ingeborg · processes 2", "ingeborg · processes 4"],
        ["ingeborg"],
    ]
    assert found[1].load["fanout"] == 20.0


def test_systems_without_repeats_stand_in_the_same_table() -> None:
    raw = digests.traffic("raw", system="nats", config=digests.TRAFFIC | {"duplicates": 0.0})
    (table,) = comparison.traffic(digests.document(digests.traffic("own"), raw))
    assert len(table.rows) == 2


def test_the_baseline_is_this_broker_at_home_or_the_first() -> None:
    def names(*systems: tuple[str, str]) -> list[str]:
        runs = [digests.traffic(f"r{n}", system=system, variant=variant) for n, (system, variant) in enumerate(systems)]
        return [row.name for row in comparison.traffic(digests.document(*runs))[0].rows]

    assert names(("nats", ""), ("ingeborg", "lookup"), ("ingeborg", "home, lmdb")) == [
        "ingeborg · home, lmdb",
        "ingeborg · lookup",
        "nats",
    ]
    assert names(("redis", ""), ("nats", "")) == ["redis", "nats"]


def test_ratios_are_to_the_baseline() -> None:
    document = digests.document(digests.traffic("a", 4000, variant="home"), digests.traffic("b", 1000, system="nats"))
    (table,) = comparison.traffic(document)
    rates, cost, _ = tables.traffic(table)
    assert texts(rates, "Out, ratio") == ["1", "× 0.25"]
    assert texts(cost, "Ratio") == ["1", "× 1.00"]


# -- limits


def test_nothing_else_at_its_limit_is_the_systems_own() -> None:
    assert [limit.part for limit in the_row(digests.traffic("a")).limits] == ["system"]


def test_without_the_generators_processor_use_nobody_knows() -> None:
    assert [limit.part for limit in the_row(digests.traffic("a", server_us=None)).limits] == ["unknown"]


@pytest.mark.parametrize("part", ["generator", "layer", "machine"])
def test_what_broke_in_the_step_above_is_never_passed_off_as_the_system(part: str) -> None:
    row = the_row(digests.traffic("a", limits=digests.saturated(part)))
    assert row.limits == ((part, f"the busiest {part} process used 97% of a core"),)
    shown = tables.limit(row.limits)
    assert (shown.text, shown.mark) == (part, "warn")
    assert "97% of a core" in shown.more


def test_one_of_several_runs_with_another_limit_is_enough_for_doubt() -> None:
    row = the_row(digests.traffic("a"), digests.traffic("b", limits=digests.saturated()))
    assert [limit.part for limit in row.limits] == ["generator"]


def test_steps_far_above_or_below_the_sustained_rate_say_nothing_of_it() -> None:
    run = digests.traffic("a")
    for phase in run["phases"]:
        if phase["kind"] == "search" and phase["offered_per_s"] < 4000:
            phase["saturated"] = digests.saturated()
    far = dict(run["phases"][-4], phase="far", offered_per_s=50_000.0, saturated=digests.saturated("machine"))
    assert far["kind"] == "search"
    run["phases"].insert(2, far)
    assert [limit.part for limit in the_row(run).limits] == ["system"]


def test_the_end_of_the_search_and_a_fixed_rate_are_not_the_systems_limit() -> None:
    most = the_row(digests.traffic("a", 4000, config=digests.TRAFFIC | {"most_rate": 4000.0}))
    assert [limit.part for limit in most.limits] == ["ceiling"]
    about = digests.facts("f", workload="traffic", config=digests.TRAFFIC | {"rate": 100.0})
    fixed = the_row(digests.run(about, [digests.phase("run", "run", 0, 10, 1e6, offered_per_s=100.0)]))
    assert [limit.part for limit in fixed.limits] == ["rate"]
    assert value(fixed.figures["out_per_s"]) == 250


def test_a_run_that_sustained_nothing_has_no_figures_and_a_reason() -> None:
    run = digests.traffic("a", limits=digests.saturated())
    run["phases"] = [phase for phase in run["phases"] if not phase["measured"]]
    (table,) = comparison.traffic(digests.document(digests.run(run["facts"], run["phases"])))
    (row,) = table.rows
    assert row.phase is None
    assert [limit.part for limit in row.limits] == ["generator"]
    assert texts(tables.traffic(table)[0], "In") == ["none (no rate was sustained)"]


# -- topics


def test_a_series_has_a_point_per_number_of_topics_and_its_failure() -> None:
    runs = [digests.topics(f"n{n}", n, system="kafka") for n in (1, 2)]
    runs.append(digests.topics("n4", 4, system="kafka", failed="time-out"))
    (table,) = comparison.topics(digests.document(*reversed(runs)))
    (series,) = table.series
    assert [point.topics for point in series.points] == [1, 2, 4]
    assert series.finished == 2
    assert series.failure is not None
    assert (series.failure.topics, series.failure.failed) == (4, "time-out")
    assert series.points[2].figures["produce_per_s"] is None
    assert texts(tables.topics(table)[0], "Ended by") == ["failed at 4 (time-out)"]
    assert texts(tables.topics(table)[1], "kafka")[-1] == "failed"


def test_a_longer_and_a_shorter_series_compare_at_what_both_finished() -> None:
    own = [digests.topics(f"o{n}", n, subscribe_s=1, variant="home") for n in (1, 2, 4)]
    other = [
        digests.topics(f"r{n}", n, subscribe_s=20, system="rabbitmq", config=digests.TOPICS | {"topics": n, "last": 2})
        for n in (1, 2)
    ]
    (table,) = comparison.topics(digests.document(*other, *own))
    assert [series.name for series in table.series] == ["ingeborg · home", "rabbitmq"]
    ended = tables.topics(table)[0]
    assert texts(ended, "Compared at") == ["4", "2"]
    assert texts(ended, "Subscribe time") == ["1", "× 20.0"]


def test_memory_per_topic_is_the_slope_above_a_thousand() -> None:
    runs = [digests.topics(f"n{n}", n, server_bytes=5e7 + (1e7 if n < 100 else 0) + 700 * n) for n in (1, 1024, 65_536)]
    (table,) = comparison.topics(digests.document(*runs))
    assert table.series[0].bytes_per_topic == pytest.approx(700)
    assert texts(tables.series(table.series[0]), "More, per topic") == ["–", "–", "700 B"]


def test_a_limit_while_flooding_marks_the_rates_and_not_the_time_to_subscribe() -> None:
    run = digests.topics("n1", 1, limits=digests.saturated())
    (table,) = comparison.topics(digests.document(run))
    _, subscribe, produce, _ = tables.topics(table)
    assert "†" not in subscribe.rows[0][1].plain
    assert produce.rows[0][1].plain == "20,000/s †"
    assert produce.note == "† The generator was at its limit, so the system itself may be faster."


# -- remarks


def test_noise_is_between_runs_or_within_the_only_one() -> None:
    document = digests.document(
        digests.traffic("a", 3000), digests.traffic("b", 4000), digests.traffic("c", system="nats")
    )
    (table,) = comparison.traffic(document)
    noise = statements.noise(table)
    assert texts(noise, "Noise") == ["between runs", "within the run (15 seconds)"]
    assert texts(noise, "Out") == ["11,550/s … 15,400/s", "± 2.1 %"]


def test_the_thesis_stands_beside_what_it_measured() -> None:
    (traffic,) = comparison.traffic(digests.document(digests.traffic("a", variant="home")))
    then = statements.then_and_now_traffic(traffic)
    assert [row[2].plain for row in then.rows] == ["1,840/s", "5,259/s", "–"]
    assert texts(then, "Now") == ["ingeborg · home", "not measured", "not measured"]
    runs = [
        digests.traffic("r", 500, system="rabbitmq"),
        digests.traffic("l", 300, system="rabbitmq", variant="with dedup layer"),
    ]
    (traffic,) = comparison.traffic(digests.document(*runs))
    then = statements.then_and_now_traffic(traffic)
    assert texts(then, "Now")[1] == "rabbitmq · with dedup layer", "the thesis had the layer, too"
    runs = [digests.topics("o", 64, 0.1), digests.topics("r", 64, 3, system="rabbitmq")]
    (topics,) = comparison.topics(digests.document(*runs))
    then = statements.then_and_now_topics(topics)
    assert [row[-1].plain for row in then.rows] == ["–", "× 30.0 (at 64)", "–"]
    assert "for every system the subscriber comes first" in statements.topics_order(topics)
    assert "at most 10,000 messages in flight" in statements.topics_order(topics)


def test_several_machines_or_commits_are_warned_of() -> None:
    one, other = digests.demo("a"), digests.demo("b", machine={"cores": 64}, commit="another")
    assert statements.warnings([one, one]) == []
    assert len(statements.warnings([one, other])) == 2


def forms(generator: str, *endpoints: str) -> digests.Json:
    return {"form": {"generator": generator, "endpoints": {str(number): form for number, form in enumerate(endpoints)}}}


def test_several_forms_of_the_code_are_warned_of() -> None:
    def warned(*runs: digests.Json) -> list[str]:
        told = statements.warnings([digests.demo(str(number), **form) for number, form in enumerate(runs)])
        return [text.partition(",")[0] for text in told]

    same = forms("compiled", "compiled", "compiled")
    assert warned(same, same, {"form": None}) == []
    differ = "The runs have 2 different forms of the"
    assert warned(same, forms("compiled", "interpreted")) == [f"{differ} endpoints"]
    assert warned(same, forms("interpreted", "compiled")) == [f"{differ} generator"]
    assert warned(same, {"system": "redis", "form": {"generator": "compiled"}}) == []


def test_runs_of_different_forms_are_no_repetitions_of_each_other() -> None:
    runs = [
        digests.traffic("a", 4000, variant="home", **forms("compiled", "compiled", "compiled")),
        digests.traffic("b", 4100, variant="home", **forms("compiled", "compiled", "compiled")),
        digests.traffic("c", 2000, variant="home", **forms("compiled", "interpreted", "interpreted")),
        digests.traffic("d", 1000, variant="home", form=None),  # an older log
    ]
    (table,) = comparison.traffic(digests.document(*runs))
    assert [(row.name, len(row.runs)) for row in table.rows] == [
        ("ingeborg · home · generator compiled · endpoints compiled", 2),
        ("ingeborg · home · generator compiled · endpoints interpreted", 1),
        ("ingeborg · home", 1),
    ]


def test_verdicts_name_what_was_missed_and_what_ended_early() -> None:
    document = digests.document(
        digests.traffic("good", variant="home"),
        digests.traffic("bad", lost=3, system="mqtt"),
        digests.topics("k", 4096, system="kafka", failed="time-out"),
    )
    table = verdicts.verdicts(document["runs"])
    assert [row[1].mark for row in table.rows] == ["good", "bad", "warn"]
    assert texts(table, "Missed, or ended early") == ["none", "lost 3, not ≤ 0", "4,096 topics: time-out"]


def test_the_comparison_of_a_hundred_runs_has_every_system() -> None:
    document = digests.compared()
    (traffic,) = comparison.traffic(document)
    (topics,) = comparison.topics(document)
    assert len(traffic.rows) == 8
    assert [series.name for series in topics.series] == [
        "ingeborg · home",
        "ingeborg · lookup",
        "rabbitmq",
        "kafka",
        "nats",
    ]
    assert topics.numbers == [1 << power for power in range(18)]
    assert comparison.others(document) == []


# -- no figure of its own


def leaves(value: object) -> set[float]:
    """Return every number in a JSON value."""
    if isinstance(value, dict):
        return set().union(*map(leaves, value.values()), set())
    if isinstance(value, list):
        return set().union(*map(leaves, value), set())
    return {float(value)} if isinstance(value, int | float) and not isinstance(value, bool) else set()


positive = st.floats(0.001, 1e9, allow_nan=False)


@given(st.lists(st.tuples(positive, positive, positive), min_size=1, max_size=5), st.data())
@settings(max_examples=60, deadline=None)
def test_every_figure_of_traffic_is_the_digests(drawn: list[tuple[float, float, float]], data: st.DataObject) -> None:
    runs = [digests.traffic(f"r{n}", rate % 1e5 + 600, p50, us) for n, (rate, p50, us) in enumerate(drawn)]
    for run in runs:
        run["store_operations_per_delivered"] = data.draw(st.none() | positive)
        run["memory"]["server_bytes_per_connection"] = data.draw(st.none() | positive)
    document = json.loads(json.dumps(digests.document(*runs)))
    (table,) = comparison.traffic(document)
    known = leaves(document)
    for key, figure in table.rows[0].figures.items():
        if figure is None:
            continue
        if key == "all_per_s":
            assert figure.low in {a + b for a in known for b in known if a > 0 and b > 0 and a + b == figure.low}
        elif key == "repeats":
            phase = comparison.main_phase(runs[0])
            assert phase is not None
            assert figure.high >= phase["duplicates_offered"] / phase["reports"] >= figure.low
        else:
            assert {figure.low, figure.high} <= known | {0.0}, key
            if figure.runs % 2 and key not in ("lost", "duplicated", "reordered", "errors"):
                assert figure.value in known, key
    phases = [phase for run in document["runs"] if (phase := comparison.main_phase(run)) is not None]
    assert len(phases) == len(runs)
    assert value(table.rows[0].figures["p99_ns"]) == statistics.median(phase["latency_ns"]["p99"] for phase in phases)


@given(st.lists(st.tuples(positive, positive, positive, positive), min_size=1, max_size=8))
@settings(max_examples=60, deadline=None)
def test_every_figure_of_topics_is_the_digests(drawn: list[tuple[float, float, float, float]]) -> None:
    runs = [digests.topics(f"n{n}", 1 << n, *values) for n, values in enumerate(drawn)]
    document = json.loads(json.dumps(digests.document(*runs)))
    (table,) = comparison.topics(document)
    for point, run in zip(table.series[0].points, document["runs"], strict=True):
        known = leaves(run)
        for key, figure in point.figures.items():
            assert figure is not None
            assert figure.low == figure.high == figure.value, key
            assert figure.value in known, key


def test_a_series_that_was_cut_short_has_not_failed() -> None:
    point = comparison.TopicsPoint(
        topics=4, runs=(), figures={}, subscribing=(), flooding=(), failed=comparison.CUT_SHORT
    )
    cell = tables.ending(comparison.TopicsSeries("slow", "slow", "", (point,)))
    assert (cell.text, cell.mark) == ("cut short at 4", "warn")
