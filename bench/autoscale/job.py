"""The PySpark job that computes the figures of the report from the rows of all runs.

Owns: every figure. Must never: draw a plot.

A latency is the time from a record's due time until a member passed the record on, in seconds. If a record had not
arrived when its run ended, the time until the end of the run counts as its latency. The real latency is at least as
long.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from ingeborg.bench.autoscale import response, scale, throughput, work
from ingeborg.bench.autoscale.cases import GROUPS, LONG, labels
from ingeborg.bench.experiments.digesting import machine, read
from ingeborg.bench.experiments.figures import rounded, spread

Json = dict[str, Any]

PERCENTILES: Final = (0.5, 0.9, 0.99, 0.999)
#: Figure 13 counts bytes in windows of this length, in seconds.
SAMPLE_S: Final = 0.25
#: The steps of a change, by their events in the journal.
EVENTS: Final = ("decided", "scaled", "joined", "given", "settled")
#: Events of a run's journal to count, by the name of the count in the run's row.
WITHIN: Final = {"decisions": "decided", "starts": "joined", "hand_overs": "given"}
#: A monitor has detected a new rate when its value differs from that rate by at most this share.
KNOWN: Final = 0.05

_ARRIVALS = "at long, partition int, times array<long>, waiting boolean"
_RUNNING = "unit string, at long, running int"
_FACTS = (
    "kafka string, unit string, system string, number int, seed int, begun_ms long, ended_ms long, iterations int, "
    "bytes_per_s double, never_read long, again long, refused long, sent_late_ms long, busy_percent double, "
    "delta double, part string, settled boolean, caught_up boolean, behind_s double"
)
_JOURNAL = "unit string, delta double, event string, seconds double, unix_ms long"
_THROUGHPUT = "at long, records long"
_STEPS = "time_s double, bytes_per_s double"


def figures(spark: SparkSession, out: Path) -> Json:
    """Digest everything below ``out``. The value of an experiment that has not run is ``None``."""
    facts = read(spark, out / work.FACTS, _FACTS)
    servers = [] if facts is None else facts.select("kafka").distinct().collect()
    facts = None if facts is None else facts.where("system is not null")
    steps = read(spark, out / response.STEPS, _STEPS)
    journals = read(spark, out / work.JOURNALS, _JOURNAL)
    return {
        "kafka": sorted(row["kafka"] for row in servers),
        "machine": machine(),
        "throughput": _throughput(read(spark, out / throughput.ROWS, _THROUGHPUT)),
        "steps": None if steps is None else _steps(steps),
        "changes": _changes(read(spark, out / response.JOURNALS, _JOURNAL), "delta"),
        "changes_long": _changes(read(spark, out / response.LONG_JOURNALS, _JOURNAL), "delta"),
        **_compared(spark, out, facts, GROUPS),
        "handovers": _changes(journals, "unit"),
        "long": _long(spark, out, facts),
    }


def _compared(spark: SparkSession, out: Path, facts: DataFrame | None, part: str) -> Json:
    """Return the runs of one part, the groups, and latencies over time. The values are ``None`` if the part has not
    run."""
    chosen = None if facts is None else facts.where(F.col("part") == part)
    if chosen is None or not chosen.take(1):
        return {"runs": None, "systems": None, "over_time": None}
    units = _units(spark, out, chosen)
    return {"runs": units, "systems": _systems(units), "over_time": _over_time(spark, out, chosen)}


def _long(spark: SparkSession, out: Path, facts: DataFrame | None) -> list[Json]:
    """Return the comparison with long streams, for each number of decisions in a stream."""
    if facts is None:
        return []
    counts = [row["iterations"] for row in facts.where(F.col("part") == LONG).select("iterations").distinct().collect()]
    return [
        {"iterations": count, **_compared(spark, out, facts.where(F.col("iterations") == count), LONG)}
        for count in sorted(counts)
    ]


# The comparison


def _latencies(spark: SparkSession, out: Path, facts: DataFrame) -> DataFrame:
    """Return a row for each record that was due while its run was measured: its unit, whether it had failed to arrive
    by the run's end, its due time in seconds since the run's beginning, and its latency in seconds."""
    name = F.regexp_extract(F.input_file_name(), r"([^/]+)\.jsonl$", 1)
    batches = spark.read.schema(_ARRIVALS).json(str(out / work.ARRIVALS)).withColumn("unit", name)
    is_waiting = F.coalesce("waiting", F.lit(False)).alias("waiting")
    each = batches.select("unit", "at", is_waiting, F.explode("times").alias("due"))
    return _within(each, "due", facts).select(
        "unit",
        "waiting",
        ((F.col("due") - F.col("begun_ms")) / 1e3).alias("time_s"),
        ((F.col("at") - F.col("due")) / 1e3).alias("latency_s"),
    )


def _within(rows: DataFrame, at: str, facts: DataFrame) -> DataFrame:
    """Return the rows whose time is within the measured time of their run. Add the beginning and the end of that
    time."""
    known = facts.select("unit", "begun_ms", "ended_ms")
    return rows.join(F.broadcast(known), "unit").where(f"{at} >= begun_ms and {at} <= ended_ms")


def _units(spark: SparkSession, out: Path, facts: DataFrame) -> list[Json]:
    """Return a row for each run."""
    latencies = _latencies(spark, out, facts)
    parts = ", ".join(map(str, PERCENTILES))
    found = latencies.groupBy("unit").agg(
        F.count("*").alias("records"),
        F.expr(f"percentile(latency_s, array({parts}))").alias("latency_s"),
        F.max("latency_s").alias("most_s"),
        F.avg((F.col("latency_s") > 1.0).cast("double")).alias("late"),
        F.sum(F.col("waiting").cast("int")).alias("waiting"),
    )
    running = _within(spark.read.schema(_RUNNING).json(str(out / work.RUNNING)), "at", facts)
    members = running.groupBy("unit").agg(
        F.avg("running").alias("members"), F.min("running").alias("fewest"), F.max("running").alias("most")
    )
    steps = _steps_within(spark, out, facts)
    names = {unit.label: place for place, unit in enumerate(labels())}
    table = [row.asDict() for row in facts.join(found, "unit").join(members, "unit").collect()]
    for row in table:
        del row["kafka"]
        row["label"] = f"{row['system']} {row['number']}" if row["number"] else row["system"]
        row |= {name: steps.get((row["unit"], event), 0) for name, event in WITHIN.items()}
        row["seconds"] = round((row.pop("ended_ms") - row.pop("begun_ms")) / 1e3, 1)
        row["latency_s"] = rounded(row["latency_s"], 3)
        for name in ("most_s", "late", "members", "bytes_per_s"):
            row[name] = round(row[name], 4)
    return sorted(table, key=lambda row: (names.get(row["label"], len(names)), row["seed"]))


def _steps_within(spark: SparkSession, out: Path, facts: DataFrame) -> dict[tuple[str, str], int]:
    """Return how often each event occurs in a run's journal during the run's measured time."""
    notes = read(spark, out / work.JOURNALS, _JOURNAL)
    counts = () if notes is None else _within(notes, "unix_ms", facts).groupBy("unit", "event").count().collect()
    return {(row["unit"], row["event"]): row["count"] for row in counts}


def _systems(units: list[Json]) -> list[Json]:
    """Return a row for each group. Each figure has its mean over the seeds, half the width of its 95 % confidence
    interval, its minimum and its maximum."""
    by_label: dict[str, list[Json]] = {}
    for row in units:
        by_label.setdefault(row["label"], []).append(row)
    found = []
    for label, rows in by_label.items():
        entry: Json = {"label": label, "system": rows[0]["system"], "number": rows[0]["number"], "seeds": len(rows)}
        entry |= {name: rounded(spread([row[name] for row in rows]), 4) for name in ("members", "late")}
        percentiles = zip(*(row["latency_s"] for row in rows), strict=True)
        entry["latency_s"] = [rounded(spread(values), 4) for values in percentiles]
        entry["waiting"] = sum(row["waiting"] for row in rows)
        # A run whose group was not warm has a backlog from its warm-up.
        entry["not_caught_up"] = sum(not row["caught_up"] for row in rows)
        entry["not_settled"] = sum(not row["settled"] for row in rows)
        entry["behind_s"] = max(row["behind_s"] for row in rows)
        entry["records"] = sum(row["records"] for row in rows)
        entry |= {name: sum(row[name] for row in rows) for name in WITHIN}
        found.append(entry)
    return found


def _over_time(spark: SparkSession, out: Path, facts: DataFrame) -> list[Json]:
    """Return p99 in each window of time, for every run."""
    windows = _latencies(spark, out, facts).withColumn("window", (F.col("time_s") / scale.WINDOW_S).cast("int"))
    table = windows.groupBy("unit", "window").agg(F.expr("percentile(latency_s, 0.99)").alias("p99_s"))
    found: dict[str, list[float]] = {}
    for row in table.orderBy("unit", "window").collect():
        found.setdefault(row["unit"], []).append(round(row["p99_s"], 2))
    return [{"unit": unit, "p99_s": values} for unit, values in found.items()]


# The document's figures


def _throughput(rows: DataFrame | None) -> list[Json] | None:
    """Return figure 13: bytes per second in each quarter of a second, from a run's first batch on. The empty quarters
    before the very last batch do not count, because that batch is not full and waits until its time is over."""
    if rows is None:
        return None
    named = rows.withColumn("run", F.regexp_extract(F.input_file_name(), r"([^/]+)\.jsonl$", 1))
    start = Window.partitionBy("run")
    placed = named.withColumn(
        "window", ((F.col("at") - F.min("at").over(start)) / (SAMPLE_S * 1e3)).cast("int")
    ).withColumn("last", F.max("window").over(start))
    whole = placed.where("window < last").groupBy("run", "window").agg(F.sum("records").alias("records"))
    windows: dict[str, dict[int, int]] = {}
    for row in whole.collect():
        windows.setdefault(row["run"], {})[row["window"]] = row["records"]
    found: dict[int, list[float]] = {}
    for run, records in windows.items():
        each = [records.get(window, 0) * throughput.RECORD_BYTES / SAMPLE_S for window in range(max(records) + 1)]
        found.setdefault(int(run.split("-")[1]), []).extend(each)
    for values in found.values():
        values.sort()
    totals = named.groupBy("run").agg((F.max("at") - F.min("at")).alias("ms"), F.sum("records").alias("records"))
    means: dict[int, list[float]] = {}
    for row in totals.collect():
        test = int(row["run"].split("-")[1])
        means.setdefault(test, []).append(row["records"] * throughput.RECORD_BYTES / (row["ms"] / 1e3))
    return [
        {
            "test": test,
            "samples": len(values),
            "mean": round(sum(means[test]) / len(means[test])),
            "median": round(values[len(values) // 2]),
            "least": round(values[0]),
            "most": round(values[-1]),
            "histogram": sorted(map(list, Counter(int(value // scale.SAMPLE_BYTES) for value in values).items())),
        }
        for test, values in sorted(found.items())
    ]


def _changes(rows: DataFrame | None, by: str) -> list[Json] | None:
    """Return figures 15 to 17: the time that each step took, for each delta, or for each of this project's groups over
    all seeds."""
    if rows is None:
        return None
    key = F.regexp_replace("unit", r"-s\d+$", "") if by == "unit" else F.format_string("delta %.0f", F.col("delta"))
    known = rows.where(F.col("seconds").isNotNull() & F.col("event").isin(*EVENTS)).withColumn("of", key)
    parts = ", ".join(map(str, PERCENTILES))
    place = F.floor(F.log10(F.greatest("seconds", F.lit(1e-4))) * scale.STEPS_TO_TEN).cast("int")
    histograms: dict[tuple[str, str], list[list[int]]] = {}
    for row in known.groupBy("of", "event", place.alias("place")).count().orderBy("place").collect():
        histograms.setdefault((row["of"], row["event"]), []).append([row["place"], row["count"]])
    table = known.groupBy("of", "event").agg(
        F.count("*").alias("count"),
        F.expr(f"percentile(seconds, array({parts}))").alias("seconds"),
        F.max("seconds").alias("most"),
        F.avg((F.col("seconds") < 1.0).cast("double")).alias("below_1_s"),
    )
    found = []
    for row in table.collect():
        entry: Json = {"of": row["of"], "event": row["event"], "count": row["count"], "most": round(row["most"], 4)}
        entry["seconds"] = rounded(row["seconds"], 4)
        entry["below_1_s"] = round(row["below_1_s"], 4)
        entry["histogram"] = histograms[row["of"], row["event"]]
        found.append(entry)
    return sorted(found, key=lambda entry: (entry["of"], EVENTS.index(entry["event"])))


def _steps(rows: DataFrame) -> Json:
    """Return the monitor's values while the load changes in steps, and how long it takes to detect each new rate."""
    series = [(row["time_s"], row["bytes_per_s"]) for row in rows.orderBy("time_s").collect()]
    overhead = 1 + scale.OVERHEAD_BYTES / scale.RECORD_BYTES
    known = []
    for number, rate in enumerate(scale.STEP_RATES[1:], 1):
        begun_s, wanted = number * scale.STEP_S, rate * overhead
        within = [
            time_s - begun_s
            for time_s, value in series
            if begun_s <= time_s < begun_s + scale.STEP_S and abs(value - wanted) <= KNOWN * wanted
        ]
        known.append(round(within[0], 2) if within else None)
    return {
        "known_after_s": known,
        "series": [[round(time_s, 1), round(value)] for time_s, value in series],
    }
