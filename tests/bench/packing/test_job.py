"""The digest, compared with the same figures in plain Python."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from statistics import fmean, median
from typing import TYPE_CHECKING, Any

import pytest

from ingeborg.autoscaler.groups.packing import DOCUMENT
from ingeborg.bench.experiments.experiment import Digest, Results
from ingeborg.bench.packing import work
from ingeborg.bench.packing.cases import ALGORITHMS, OPTIMUM_EVERY
from ingeborg.bench.packing.found import Found, Scores

from . import small

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Json = dict[str, Any]

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def digested(spark: SparkSession, results: Path) -> Digest:
    from ingeborg.bench.packing import job

    return job.figures(spark, results)


def rows(results: Path, kind: str) -> list[Json]:
    return list(Results(results).rows(kind))


def by_stream(results: Path) -> dict[tuple[str, float, int], dict[str, Json]]:
    found: defaultdict[tuple[str, float, int], dict[str, Json]] = defaultdict(dict)
    for row in rows(results, work.ROWS):
        if "unnamed" in row:
            continue
        found[row["case"], row["delta"], row["seed"]][row["algorithm"]] = row
    return found


def excess(of: dict[str, Json], algorithm: str) -> float:
    """Return the score of equation 28."""
    fewest = [
        min(of[name]["bins"][number] for name in DOCUMENT if name in of) for number in range(len(of["MWF"]["bins"]))
    ]
    return fmean((bins - least) / least for bins, least in zip(of[algorithm]["bins"], fewest, strict=True))


def test_scores_are_means_over_decisions_and_then_over_seeds(digested: Digest, results: Path) -> None:
    streams = by_stream(results)
    scores = Scores(digested.pure["scores"]).rows
    assert len(scores) == len({(case, delta, name) for (case, delta, _), of in streams.items() for name in of})
    for row in scores:
        seeds = [of for (case, delta, _), of in sorted(streams.items()) if (case, delta) == (row["case"], row["delta"])]
        assert row["seeds"] == len(seeds)
        name = row["algorithm"]
        assert row["cbs"][0] == pytest.approx(fmean(excess(of, name) for of in seeds), abs=1e-5)
        assert row["rscore"][0] == pytest.approx(fmean(fmean(of[name]["rscore"]) for of in seeds), abs=1e-5)
        assert row["bins"][0] == pytest.approx(fmean(fmean(of[name]["bins"]) for of in seeds), abs=1e-5)
        assert row["moves"][0] == pytest.approx(fmean(fmean(of[name]["moves"]) for of in seeds), abs=1e-5)
        if row["cbs_more_than_mend"] is not None:
            less = fmean(excess(of, name) - excess(of, "mend") for of in seeds)
            assert row["cbs_more_than_mend"][0] == pytest.approx(less, abs=1e-5)


def test_with_two_seeds_an_interval_is_half_their_difference_by_students_value(digested: Digest, results: Path) -> None:
    one, other = (by_stream(results)["200", 5.0, seed] for seed in (1, 2))
    row = Scores(digested.pure["scores"]).of("200", 5.0, "MWF")
    assert row["cbs"][1] == pytest.approx(12.706 * abs(excess(one, "MWF") - excess(other, "MWF")) / 2, abs=1e-4)


def test_nothing_is_below_the_optimum_and_what_is_unknown_is_counted(digested: Digest, results: Path) -> None:
    optima = rows(results, work.OPTIMA)
    found = digested.pure["optimum"]
    assert sum(found["settled"].values()) == len(optima)
    assert found["settled"]["unsolved"] == sum(row["optimum"] is None for row in optima) > 0
    for row in found["algorithms"]:
        assert row["below"] == 0
        known = [(one["bins"][row["algorithm"]], one["optimum"]) for one in optima if one["optimum"] is not None]
        assert row["excess"] == pytest.approx(fmean((bins - best) / best for bins, best in known), abs=1e-5)
        assert row["reached"] == pytest.approx(fmean(bins == best for bins, best in known), abs=1e-5)
    assert [row["algorithm"] for row in found["algorithms"]] == list(ALGORITHMS)
    assert all(row["number"] % OPTIMUM_EVERY == 0 for row in optima)


def test_latencies_are_means_with_their_range(digested: Digest, results: Path) -> None:
    latencies = rows(results, work.LATENCIES)
    for row in digested.pure["latency"]:
        of = [one for one in latencies if one["algorithm"] == row["algorithm"]]
        assert row["seeds"] == len(of) == small.SEEDS
        assert row["late"][0] == pytest.approx(fmean(one["late"] for one in of), abs=1e-5)
        for index, (mean, _, least, most) in enumerate(row["over_all"]):
            values = [one["over_all"][index] for one in of]
            assert (mean, least, most) == pytest.approx((fmean(values), min(values), max(values)), abs=1e-5)


def test_figures_6_to_8_have_every_algorithm_and_percentiles_only_of_late_data(digested: Digest, results: Path) -> None:
    shown = {row["algorithm"]: row for row in digested.pure["latency"]}
    assert set(shown) == {*ALGORITHMS, *(f"kd_{number}" for number in range(1, 33))}
    of = {(one["algorithm"], one["seed"]): one for one in rows(results, work.LATENCIES)}
    for name, row in shown.items():
        late = [of[name, seed]["over_positive"] for seed in (1, 2) if of[name, seed]["over_positive"]]
        assert row["with_late"] == len(late)
        if late:
            assert row["over_positive"][0][0] == pytest.approx(fmean(each[0] for each in late), abs=1e-5)
        else:
            assert row["over_positive"] is None
    assert shown["kd_32"]["with_late"] == 0
    kd_20 = shown["kd_20"]
    assert kd_20["less_late_than_claimed"] == sum(of["kd_20", one]["late"] < of["MWF", one]["late"] for one in (1, 2))
    worse = sum(of["kd_20", seed]["late"] > of["kd_19", seed]["late"] for seed in (1, 2))
    assert kd_20["worse_than_one_fewer"]["late"] == worse
    assert "worse_than_one_fewer" not in shown["kd_1"]


def test_reductions_are_means_of_the_ratios_within_streams(digested: Digest, results: Path) -> None:
    found = Found(digested.pure)
    ratios = [
        fmean(of["MWF"]["rscore"]) / fmean(of["NFD bin 0"]["rscore"]) - 1
        for of in (by_stream(results)["200", 5.0, seed] for seed in (1, 2))
    ]
    values = found.reduction("200", 5.0, "NFD bin 0")
    assert values is not None
    assert [values[0], *values[2:]] == pytest.approx([fmean(ratios), min(ratios), max(ratios)], abs=1e-4)
    assert found.reduction("200", 5.0, "MWF") is None


def test_figure_12_has_its_points_with_names_and_its_front_for_each_reading(digested: Digest) -> None:
    scores = Scores(digested.pure["scores"])
    drawn = {(row["case"], row["delta"], row["next_fit"]): row for row in digested.pure["fronts"]}
    assert len(drawn) == len(digested.pure["fronts"])
    text, program = (drawn["200", 5.0, reading] for reading in ("equation 14", "bin 0 first"))
    names, others = ({name for name, *_ in row["points"]} for row in (program, text))
    assert names - others == {"NF bin 0", "NFD bin 0"}
    for row in (text, program):
        points = {name: (x, y) for name, x, y in row["points"]}
        assert len(points) == len(DOCUMENT)
        mean = [scores.mean("200", 5.0, "MWF", what) for what in ("cbs", "rscore")]
        assert points["MWF"] == pytest.approx(mean, abs=1e-5)
        corners = [tuple(corner) for corner in row["line"]]
        assert {points[name] for name in row["front"]} <= set(corners)
        assert corners == sorted(corners, key=lambda corner: (corner[0], -corner[1]))
        assert [name for name, *_ in row["ours"]] == ["mend"]
    assert not any(case.startswith("4096") for case, *_ in drawn)


def test_naming_counts_the_decisions_with_another_number_of_bins(digested: Digest, results: Path) -> None:
    each = [row for row in rows(results, work.ROWS) if row.get("unnamed")]
    assert len(digested.pure["naming"]) == len({(row["case"], row["delta"], row["algorithm"]) for row in each})
    for row in digested.pure["naming"]:
        pairs = [
            pair
            for one in each
            if (one["case"], one["delta"], one["algorithm"]) == (row["case"], row["delta"], row["algorithm"])
            for pair in zip(one["bins"], one["unnamed"], strict=True)
        ]
        assert row["decisions"] == len(pairs)
        assert row["changed"] == sum(one != other for one, other in pairs)
        assert row["changed"] == 0 or row["algorithm"] in ("FF", "FFD")
    assert "32 naming" not in {row["case"] for row in Scores(digested.pure["scores"]).rows}


def test_a_digest_of_a_part_has_only_its_figures(spark: SparkSession, results: Path, tmp_path: Path) -> None:
    from ingeborg.bench.packing import job

    (tmp_path / work.LATENCIES).symlink_to(results / work.LATENCIES)
    document, measured = job.figures(spark, tmp_path)
    assert (document["optimum"], document["naming"], document["fronts"], measured) == (None, [], [], {})
    assert Found(document).views() == []
    assert len(document["latency"]) == len(ALGORITHMS) + 32


def test_times_leave_out_the_first_decision(digested: Digest, results: Path) -> None:
    times = [row for row in rows(results, work.TIMES) if row["number"]]
    assert {row["algorithm"] for row in digested.measured["times"]} == {"MWF", "mend"}
    for row in digested.measured["times"]:
        of = [one for one in times if one["algorithm"] == row["algorithm"]]
        assert row["median_ms"] == pytest.approx(median(one["ms"] for one in of))
        assert row["slice_ms"] == max(one["slice_ms"] for one in of)
