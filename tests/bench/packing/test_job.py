"""The digest, compared with the same figures in plain Python."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from statistics import fmean, median
from typing import TYPE_CHECKING, Any

import orjson
import pytest

from ingeborg.autoscaler.groups.packing import DOCUMENT
from ingeborg.bench.packing import work
from ingeborg.bench.packing.cases import ALGORITHMS, OPTIMUM_EVERY
from ingeborg.bench.packing.page import Scores

from . import small

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Json = dict[str, Any]

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def digested(spark: SparkSession, results: Path) -> tuple[Json, list[Json]]:
    from ingeborg.bench.packing import job

    return job.figures(spark, results)


def rows(results: Path, kind: str) -> list[Json]:
    return [orjson.loads(line) for path in sorted((results / kind).iterdir()) for line in path.open("rb")]


def by_stream(results: Path) -> dict[tuple[str, float, int], dict[str, Json]]:
    found: defaultdict[tuple[str, float, int], dict[str, Json]] = defaultdict(dict)
    for row in rows(results, work.ROWS):
        found[row["case"], row["delta"], row["seed"]][row["algorithm"]] = row
    return found


def excess(of: dict[str, Json], algorithm: str) -> float:
    """Return the score of equation 28."""
    fewest = [
        min(of[name]["bins"][number] for name in DOCUMENT if name in of) for number in range(len(of["MWF"]["bins"]))
    ]
    return fmean((bins - least) / least for bins, least in zip(of[algorithm]["bins"], fewest, strict=True))


def test_scores_are_means_over_decisions_and_then_over_seeds(digested: tuple[Json, list[Json]], results: Path) -> None:
    streams = by_stream(results)
    scores = Scores(digested[0]["scores"]).rows
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


def test_with_two_seeds_an_interval_is_half_their_difference_by_students_value(
    digested: tuple[Json, list[Json]], results: Path
) -> None:
    one, other = (by_stream(results)["200", 5.0, seed] for seed in (1, 2))
    row = Scores(digested[0]["scores"]).of("200", 5.0, "MWF")
    assert row["cbs"][1] == pytest.approx(12.706 * abs(excess(one, "MWF") - excess(other, "MWF")) / 2, abs=1e-4)


def test_nothing_is_below_the_optimum_and_what_is_unknown_is_counted(
    digested: tuple[Json, list[Json]], results: Path
) -> None:
    optima = rows(results, work.OPTIMA)
    found = digested[0]["optimum"]
    assert sum(found["settled"].values()) == len(optima)
    assert found["settled"]["unsolved"] == sum(row["optimum"] is None for row in optima) > 0
    streams = by_stream(results)
    for row in found["algorithms"]:
        assert row["below"] == 0
        known = [
            (streams[one["case"], one["delta"], one["seed"]][row["algorithm"]]["bins"][one["number"]], one["optimum"])
            for one in optima
            if one["optimum"] is not None
        ]
        assert row["excess"] == pytest.approx(fmean((bins - best) / best for bins, best in known), abs=1e-5)
        assert row["reached"] == pytest.approx(fmean(bins == best for bins, best in known), abs=1e-5)
    assert [row["algorithm"] for row in found["algorithms"]] == list(ALGORITHMS)
    assert all(row["number"] % OPTIMUM_EVERY == 0 for row in optima)


def test_latencies_are_means_with_their_range(digested: tuple[Json, list[Json]], results: Path) -> None:
    latencies = rows(results, work.LATENCIES)
    for row in digested[0]["latency"]:
        of = [one for one in latencies if one["algorithm"] == row["algorithm"]]
        assert row["seeds"] == len(of) == small.SEEDS
        assert row["late"][0] == pytest.approx(fmean(one["late"] for one in of), abs=1e-5)
        for index, (mean, _, least, most) in enumerate(row["over_all"]):
            values = [one["over_all"][index] for one in of]
            assert (mean, least, most) == pytest.approx((fmean(values), min(values), max(values)), abs=1e-5)


def test_times_leave_out_the_first_decision(digested: tuple[Json, list[Json]], results: Path) -> None:
    times = [row for row in rows(results, work.TIMES) if row["number"]]
    assert {row["algorithm"] for row in digested[1]} == {"MWF", "mend"}
    for row in digested[1]:
        of = [one for one in times if one["algorithm"] == row["algorithm"]]
        assert row["median_ms"] == pytest.approx(median(one["ms"] for one in of))
        assert row["slice_ms"] == max(one["slice_ms"] for one in of)
