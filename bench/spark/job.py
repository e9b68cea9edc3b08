"""The digest job: reads runs, computes their figures, writes a digest.

Run it by `bench digest`, or unchanged by `spark-submit` on a cluster, over any path that Spark can read:

    spark-submit --master … bench/spark/job.py s3a://bucket/run-1 s3a://bucket/run-2 --out digest/

The executors need nothing of this package; the driver needs it installed. The digest is small, and is written by the
driver to a local directory. I/O is in `main` and what it calls by name (`logs.read`, `digestdir.write`); the figures
come from the pure functions in transforms.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from bench import digestdir
from bench.digest import PERCENTILES_PPM, Json, Rows, document
from bench.errors import BenchError
from bench.spark import logs
from bench.spark import transforms as t
from bench.spark.schema import BUCKETS_PER_DECADE, CURVE_PPM

FIGURES_AT_ONCE = 4
"""Jobs under way at once. More would not run faster on the few cores of one machine, and would share its memory."""


def figures(read: logs.Logs, several: Sequence[str]) -> dict[str, DataFrame]:
    """Every figure of every run, as frames still to be computed, by the names that `document` asks for.

    `several`: the runs with more than one measured phase, which need percentiles over all of these together.
    """
    events = read.events
    news = t.news_of(events)
    deliveries = t.deliveries_of(events, news).cache()
    measured = read.phases.where(F.col("measured") == 1).select("run", "phase")
    judged = deliveries.where(F.col("run").isin(several)).join(F.broadcast(measured), ["run", "phase"], "left_semi")
    points = sorted({*CURVE_PPM, *PERCENTILES_PPM.values()})
    made = {
        "sending": t.sending_counts(events),
        "deliveries": t.delivery_counts(deliveries),
        "outcomes": t.outcomes(news, deliveries),
        "errors": t.error_counts(events),
        "latency": t.percentiles(deliveries, ["run", "phase"], points),
        "second_counts": t.per_second_counts(events),
        "second_latency": t.per_second_latency(deliveries),
        "histogram": t.histogram(deliveries),
        "machine": t.machine_rates(read.machine),
        "counters": t.counter_deltas(read.counters),
    }
    return made | ({"latency_measured": t.percentiles(judged, ["run"], points)} if several else {})


def seconds(counts: Rows, latency: Rows) -> list[Json]:
    """The table of seconds, without gaps: from each run's first to its last second, counts 0 and latency empty where
    nothing happened."""
    names = {500_000: "p50_ns", 990_000: "p99_ns", 1_000_000: "max_ns"}
    table: dict[tuple[str, int], Json] = {(row["run"], row["second"]): dict(row) for row in counts}
    for row in latency:
        key = row["run"], row["second"]
        table.setdefault(key, {"run": key[0], "second": key[1]})[names[row["ppm"]]] = row["latency_ns"]
    zero = dict.fromkeys(("news", "reports", "duplicates_offered", "delivered", "errors"), 0)
    rows: list[Json] = []
    for run in sorted({run for run, _ in table}):
        of_run = [second for other, second in table if other == run]
        rows += [
            {"run": run, "second": second} | zero | table.get((run, second), {})
            for second in range(min(of_run), max(of_run) + 1)
        ]
    return rows


def histogram(rows: Rows) -> list[Json]:
    """Bucket numbers -> their bounds in ns. What is not positive has no lower bound, and 0 above it."""

    def bound(bucket: int) -> int:
        return round(10 ** (bucket / BUCKETS_PER_DECADE))

    made = [
        dict(row)
        | (
            {"low_ns": bound(row["bucket"]), "high_ns": bound(row["bucket"] + 1)}
            if row["bucket"] >= 0
            else {"high_ns": 0}
        )
        for row in rows
    ]
    return sorted(made, key=lambda row: (row["run"], row["second"], row["phase"], row["high_ns"]))


def digest(spark: SparkSession, paths: Sequence[str], out: Path) -> Json:
    """Digest the runs at `paths` into the directory `out`; returns the document. Raises BenchError."""
    try:
        read = logs.read(spark, paths)
        phases = _rows(read.phases)
        measured = Counter(row["run"] for row in phases if row["measured"])
        frames = figures(read, [run for run, number in measured.items() if number > 1])
        # Each figure is a small job: planning one while another runs keeps every core busy.
        with ThreadPoolExecutor(FIGURES_AT_ONCE) as pool:
            tables = dict(zip(frames, pool.map(_rows, frames.values()), strict=True)) | {"phases": phases}
    finally:
        spark.catalog.clearCache()
    made = document([_described(run) for run in read.runs], tables)
    by_time = sorted(tables["machine"], key=lambda row: (row["run"], row["source"], row["second"]))
    by_name = sorted(tables["counters"], key=lambda row: (row["run"], row["phase"], row["source"], row["name"]))
    digestdir.write(
        out,
        made,
        {
            "seconds": seconds(tables["second_counts"], tables["second_latency"]),
            "histogram": histogram(tables["histogram"]),
            "machine": by_time,
            "counters": by_name,
        },
    )
    return made


def _rows(frame: DataFrame) -> list[Json]:
    return [row.asDict() for row in frame.collect()]


def _described(run: logs.RunLog) -> Json:
    log = asdict(run)
    facts, directory = log.pop("facts"), logs.shown(log.pop("directory"))
    return {"facts": facts, "directory": directory, "log": log}


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point of spark-submit, which brings the session's configuration: 0 done, 1 failed, 2 wrong usage."""
    parser = argparse.ArgumentParser(description="Digest the logs of runs on a Spark cluster (under spark-submit).")
    parser.add_argument("runs", nargs="+", metavar="RUN", help="directory of a run: any path that Spark can read")
    parser.add_argument("--out", required=True, metavar="DIR", help="local directory for the digest")
    options = parser.parse_args(arguments)
    out = Path(options.out)
    session = SparkSession.builder.appName("bench digest").getOrCreate()
    try:
        out.mkdir(parents=True, exist_ok=True)
        digest(session, options.runs, out)
    except (BenchError, OSError) as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    except PySparkException as error:
        print(f"bench: Spark failed: {logs.first_line(error)}", file=sys.stderr)
        return 1
    finally:
        session.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
