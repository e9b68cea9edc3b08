"""The PySpark job that computes the figures of the report from the rows of all runs.

Owns: every figure of a real run. Must never: draw a plot.

The definitions of the errors are those of `errors`, which computes them for runs in virtual time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from ingeborg.bench.dyconits import rows
from ingeborg.bench.dyconits.errors import PEAK_SAMPLES
from ingeborg.bench.dyconits.found import ERRORS
from ingeborg.bench.dyconits.layer.settings import TOPICS
from ingeborg.bench.experiments import digesting
from ingeborg.bench.experiments.experiment import Results
from ingeborg.bench.experiments.figures import rounded, spread

Json = dict[str, Any]

WINDOW_S: Final = 2
"""Width of the windows in which errors over time are averaged, in seconds."""

_PRODUCED = "topic string, first long, at_ms array<double>"
_SAMPLES = "reader string, topic string, at_ms double, taken long, skipped long, last long, received long"
_USED = "reader string, at_ms double, cpu_s double"
_CONTROLS = (
    "reader string, topic string, at_ms double, delay_ms double, numerical double, staleness_ms double, priority double"
)


def digest(results: Results) -> tuple[Json, Json]:
    """Digest all results: the figures of the virtual runs and of the real runs."""
    virtual = _virtual(list(results.rows("virtual")))
    measured: Json = {
        "machine": digesting.machine(),
        "fan_out": list(results.rows("fan-out")),
        "cells": [],
        "over_time": [],
    }
    facts = list(results.rows(rows.FACTS))
    if facts:
        with digesting.session(results) as spark:
            measured |= figures(spark, results.out, facts)
    return {"virtual": virtual}, measured


def figures(spark: SparkSession, out: Path, facts: Sequence[Json]) -> Json:
    """Digest the real runs below ``out``. Return a row for each reader of a run, and the errors over time."""

    def read(kind: str, schema: str) -> DataFrame:
        name = F.regexp_extract(F.input_file_name(), r"([^/]+)\.jsonl$", 1)
        return spark.read.schema(schema).json(str(out / kind)).withColumn("unit", name)

    lengths = {fact["unit"]: fact["length_s"] * 1e3 for fact in facts}
    known = spark.createDataFrame([*lengths.items()], "unit string, length_ms double")

    def within(frame: DataFrame) -> DataFrame:
        return frame.join(F.broadcast(known), "unit").where("at_ms >= 0 and at_ms <= length_ms")

    states = _states(read(rows.PRODUCED, _PRODUCED), within(read(rows.SAMPLES, _SAMPLES))).cache()
    topics = states.groupBy("unit", "reader", "topic").agg(
        *(
            column
            for place in ("", "endpoint_")
            for error in ("numerical", "staleness_s")
            for column in _mean_and_maximum(place + error)
        ),
        F.max("taken").alias("taken"),
        F.max("skipped").alias("skipped"),
        F.max("last").alias("last"),
        F.max("produced").alias("produced"),
    )
    used = _usage(within(read(rows.USED, _USED)))
    controls = (
        read(rows.CONTROLS, _CONTROLS)
        .groupBy("unit", "topic")
        .agg(
            F.max("staleness_ms").alias("staleness_bound_ms"),
        )
    )
    return {
        "cells": _cells(facts, topics.collect(), used.collect(), controls.collect()),
        "over_time": _over_time(states, facts),
    }


def _mean_and_maximum(name: str) -> list[Any]:
    maximum = f"{name.removesuffix('_s')}_max" + ("_s" if name.endswith("_s") else "")
    return [F.avg(name).alias(name), F.max(name).alias(maximum)]


def _states(produced: DataFrame, samples: DataFrame) -> DataFrame:
    """Return the samples with the errors at their times. There are two kinds of errors: for the messages that the
    reader has taken, and for those that have reached its process."""
    each = produced.select("unit", "topic", "first", F.posexplode("at_ms").alias("place", "at_ms")).select(
        "unit", "topic", (F.col("first") + F.col("place")).alias("number"), "at_ms"
    )
    known = each.select("unit", "topic", "at_ms", "number").withColumn("kind", F.lit(0))
    asked = samples.withColumn("kind", F.lit(1))
    until = (
        Window.partitionBy("unit", "topic")
        .orderBy("at_ms", "kind")
        .rowsBetween(Window.unboundedPreceding, Window.currentRow)
    )
    counted = (
        asked.unionByName(known, allowMissingColumns=True)
        .withColumn("produced", F.coalesce(F.max("number").over(until), F.lit(0)))
        .where("kind = 1")
        .drop("number", "kind")
    )
    for prefix, column in (("", "last"), ("endpoint_", "received")):
        following = each.select("unit", "topic", F.col("number").alias("next"), F.col("at_ms").alias("next_ms"))
        waiting = F.col("next_ms").isNotNull() & (F.col("next_ms") <= F.col("at_ms"))
        counted = (
            counted.withColumn("next", F.col(column) + 1)
            .join(following, ["unit", "topic", "next"], "left")
            .withColumn(f"{prefix}numerical", F.greatest(F.col("produced") - F.col(column), F.lit(0)))
            .withColumn(
                f"{prefix}staleness_s",
                F.when(waiting, (F.col("at_ms") - F.col("next_ms")) / 1e3).otherwise(0.0),
            )
            .drop("next", "next_ms")
        )
    return counted


def _usage(used: DataFrame) -> DataFrame:
    """Return mean and peak of the CPU usage of each reader, in per cent of a core, and its CPU time in seconds."""
    in_order = Window.partitionBy("unit", "reader").orderBy("at_ms")
    before = (F.lag(name, PEAK_SAMPLES).over(in_order) for name in ("cpu_s", "at_ms"))
    cpu_s, ms = (F.col(name) - value for name, value in zip(("cpu_s", "at_ms"), before, strict=True))
    means = (
        used.withColumn("part", cpu_s / ms * 1e5)
        .groupBy("unit", "reader")
        .agg(
            (F.max("cpu_s") - F.min("cpu_s")).alias("cpu_s"),
            (F.max("at_ms") - F.min("at_ms")).alias("ms"),
            F.max("part").alias("peak"),
        )
    )
    return means.select(
        "unit", "reader", "cpu_s", (F.col("cpu_s") / F.col("ms") * 1e5).alias("cpu"), F.col("peak").alias("cpu_peak")
    )


def _cells(facts: Sequence[Json], topics: Sequence[Any], used: Sequence[Any], controls: Sequence[Any]) -> list[Json]:
    """Return a row for each reader of a run."""
    bounds: dict[str, Json] = {}
    for row in controls:
        bounds.setdefault(row["unit"], {})[row["topic"]] = {"staleness_bound_ms": row["staleness_bound_ms"]}
    by_reader: dict[tuple[str, str], Json] = {}
    for row in topics:
        values = {name: _rounded(value) for name, value in row.asDict().items()}
        by_reader.setdefault((row["unit"], row["reader"]), {})[row["topic"]] = {
            name: value for name, value in values.items() if name not in ("unit", "reader", "topic")
        }
    usage = {(row["unit"], row["reader"]): row for row in used}
    found = []
    for fact in facts:
        readers = sorted(reader for unit, reader in by_reader if unit == fact["unit"])
        for reader in readers:
            states, cpu = by_reader[fact["unit"], reader], usage[fact["unit"], reader]
            taken = sum(state["taken"] for state in states.values())
            found.append(
                {
                    **{name: fact[name] for name in ("part", "experiment", "system", "seed", "length_s", "server")},
                    "reader": reader,
                    "server_cpu": _rounded(fact["server_s"] / fact["length_s"] * 100),
                    "level": fact["level"],
                    "late_ms": fact["late_ms"],
                    "updates": fact["updates"] / len(readers),
                    "reports": fact["reports"],
                    "cpu": _rounded(cpu["cpu"]),
                    "cpu_peak": _rounded(cpu["cpu_peak"] or cpu["cpu"]),
                    "cpu_us_per_taken": _rounded(cpu["cpu_s"] / max(taken, 1) * 1e6),
                    "taken_per_s": _rounded(taken / fact["length_s"]),
                    "units_per_s": _rounded(
                        sum(fact["units"][topic] * state["taken"] for topic, state in states.items()) / fact["length_s"]
                    ),
                    "lost": sum(state["last"] - state["taken"] - state["skipped"] for state in states.values()),
                    "skipped_per_s": _rounded(sum(state["skipped"] for state in states.values()) / fact["length_s"]),
                    "topics": states,
                    "bounds": bounds.get(fact["unit"]),
                }
            )
    return found


def _over_time(states: DataFrame, facts: Sequence[Json]) -> list[Json]:
    """Return the staleness in windows of time, averaged over all runs of a system."""
    named = {fact["unit"]: (fact["part"], fact["experiment"], fact["system"]) for fact in facts}
    window = (F.col("at_ms") / (WINDOW_S * 1e3)).cast("int").alias("window")
    table = states.groupBy("unit", "topic", window).agg(F.avg("staleness_s").alias("staleness_s"))
    found: dict[tuple[str, ...], dict[int, list[float]]] = {}
    for row in table.collect():
        windows = found.setdefault((*named[row["unit"]], row["topic"]), {})
        windows.setdefault(row["window"], []).append(row["staleness_s"])
    return [
        {
            **dict(zip(("part", "experiment", "system", "topic"), key, strict=True)),
            "staleness_s": rounded((fmean(windows[at]) for at in sorted(windows)), 3),
        }
        for key, windows in sorted(found.items())
    ]


def _virtual(found: Sequence[Json]) -> list[Json]:
    """Return a row for each experiment and interpretation. Each figure has its mean over the seeds, half the width of
    its 95 % confidence interval, its minimum and its maximum."""
    groups: dict[tuple[str, str], list[Json]] = {}
    for row in found:
        groups.setdefault((row["experiment"], row["label"]), []).append(row)

    def over(some: Iterable[Json], value: Callable[[Json], float]) -> list[float]:
        by_seed: dict[int, list[float]] = {}
        for row in some:
            by_seed.setdefault(row["seed"], []).append(value(row))
        return rounded(spread([sum(values) / len(values) for _, values in sorted(by_seed.items())]), 4)

    table = []
    for (experiment, label), some in groups.items():
        made: Json = {"experiment": experiment, "label": label, "seeds": len({each["seed"] for each in some})}
        for name in ("cpu", "cpu_peak", "taken_per_s"):
            made[name] = over(some, lambda each, name=name: each[name])  # type: ignore[misc]
        for topic in TOPICS:
            made[topic] = {
                name: over(some, lambda each, topic=topic, name=name: each[topic][name])  # type: ignore[misc]
                for name in ERRORS
            }
        table.append(made)
    return table


def _rounded(value: Any) -> Any:
    return round(value, 3) if isinstance(value, float) else value
