"""The stored rows of a unit: the same bytes from the same seed."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import orjson
import pytest

from ingeborg.autoscaler.groups.instance import Instance, rscore
from ingeborg.autoscaler.groups.packing import pack
from ingeborg.bench.experiments.experiment import Results, Unit
from ingeborg.bench.packing import optimum, work
from ingeborg.bench.packing.cases import ALGORITHMS, LATENCY_ITEMS
from ingeborg.bench.packing.streams import CAPACITY, drawn

from . import small


def read(out: Path, kind: str, unit: Unit) -> list[dict[str, Any]]:
    return [orjson.loads(line) for line in (out / kind / f"{unit.name}.jsonl").read_bytes().splitlines()]


def test_a_row_is_an_algorithm_and_has_each_decision_from_where_it_left_off(tmp_path: Path) -> None:
    unit = small.first("32")
    work.run(unit, Results(tmp_path), None)
    rows = read(tmp_path, work.ROWS, unit)
    assert [row["algorithm"] for row in rows] == list(ALGORITHMS)
    row = next(row for row in rows if row["algorithm"] == "mend")
    former, bins, scores = None, [], []
    for sizes in drawn(32, small.COUNT, 5.0, 1):
        instance = Instance(sizes, former, CAPACITY)
        former = pack(ALGORITHMS["mend"], instance)
        bins.append(len(set(former)))
        scores.append(rscore(instance, former))
    assert row["bins"] == bins
    assert row["rscore"] == pytest.approx(scores, abs=1e-6)
    assert {name: row[name] for name in ("case", "items", "delta", "seed")} == {
        "case": "32",
        "items": 32,
        "delta": 5.0,
        "seed": 1,
    }


def test_the_same_unit_gives_the_same_bytes(tmp_path: Path, exact: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(optimum, "PROGRAM", exact)
    for unit in map(small.first, ("32", "200 in order", "optimum", "latency")):
        for name in ("one", "other"):
            work.run(unit, Results(tmp_path / name), sys.executable)
    kept = {
        name: {path.relative_to(tmp_path / name): path.read_bytes() for path in (tmp_path / name).rglob("*.jsonl")}
        for name in ("one", "other")
    }
    assert len(kept["one"]) == 4
    assert kept["one"] == kept["other"]


def test_decisions_of_very_many_items_are_timed(results: Path) -> None:
    unit = next(unit for unit in small.units() if unit.work.case.timed)
    times = read(results, work.TIMES, unit)
    assert [(row["algorithm"], row["number"]) for row in times] == [("MWF", 0), ("MWF", 1), ("mend", 0), ("mend", 1)]
    assert all(0.0 < row["slice_ms"] <= row["ms"] for row in times)


def test_latencies_are_those_of_some_algorithms_and_of_every_number_of_consumers(results: Path) -> None:
    rows = read(results, work.LATENCIES, small.first("latency"))
    names = [row["algorithm"] for row in rows]
    assert names == [*ALGORITHMS, *(f"kd_{number}" for number in range(1, LATENCY_ITEMS + 1))]
    assert [row["consumers"] for row in rows[len(ALGORITHMS) :]] == list(range(1, LATENCY_ITEMS + 1))
    # With a consumer for each queue, no data is late, so late data has no percentiles.
    assert (rows[-1]["late"], rows[-1]["over_positive"]) == (0.0, None)


def test_the_optima_say_how_they_were_found(results: Path) -> None:
    rows = list(Results(results).rows(work.OPTIMA))
    assert {row["case"] for row in rows} == {"optimum"}
    for row in rows:
        assert list(row["bins"]) == list(ALGORITHMS)
        assert min(row["bins"].values()) == row["best"]
        if row["how"] == "bound":
            assert row["lower"] == row["best"]
        assert row["optimum"] == {"bound": row["best"], "unsolved": None}.get(row["how"], row["optimum"])
        assert row["optimum"] is None or row["lower"] <= row["optimum"] <= row["best"]
    assert {row["how"] for row in rows} >= {"bound", "unsolved"}


def test_the_optimum_is_of_the_documents_own_streams(results: Path) -> None:
    [streams, optima] = [
        {row["algorithm"]: row["bins"][0] for row in read(results, work.ROWS, small.first("32"))},
        read(results, work.OPTIMA, small.first("optimum"))[0]["bins"],
    ]
    assert streams == optima


def test_without_former_bins_each_measurement_is_packed_a_second_time(results: Path) -> None:
    rows = {row["algorithm"]: row for row in read(results, work.ROWS, small.first("200 naming", 25.0))}
    assert rows["BFD"]["bins"] == rows["BFD"]["unnamed"]
    assert rows["FF"]["bins"] != rows["FF"]["unnamed"]
    assert rows["FF by age"]["bins"] == rows["FF by age"]["unnamed"] == rows["FF"]["unnamed"]


def test_both_readings_of_next_fit_need_the_same_bins_and_move_other_loads(results: Path) -> None:
    rows = {row["algorithm"]: row for row in read(results, work.ROWS, small.first("200"))}
    for name in ("NF", "NFD"):
        assert rows[name]["bins"] == rows[f"{name} bin 0"]["bins"]
        assert sum(rows[name]["rscore"]) < sum(rows[f"{name} bin 0"]["rscore"])
