"""The digest job. It finds runs, computes the figures of the runs that are not digested yet, and writes a digest.

Run it with `bench digest`, or unchanged with `spark-submit` on a cluster, over any path that Spark can read:

    spark-submit --master … bench/spark/job.py s3a://bucket/runs --out digest/

The executors do not need this package; the driver does. The driver writes the digest, which is small, to a local
directory. All I/O happens in `main`, `digest` and the functions that these call by name (`inventory.find`, `logs.read`,
`digestdir`). The figures come from the pure functions in transforms and quantiles.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ingeborg.bench.digest import files as digestdir
from ingeborg.bench.digest import kept
from ingeborg.bench.digest.document import CAUSAL, PERCENTILES_PPM, Json, Rows, document
from ingeborg.bench.digest.tables import Digest
from ingeborg.bench.errors import BenchError
from ingeborg.bench.spark import inventory, logs, progress
from ingeborg.bench.spark import transforms as t
from ingeborg.bench.spark.quantiles import percentiles, sketched
from ingeborg.bench.spark.schema import BUCKETS_PER_DECADE, CURVE_PPM, EXACT_DELIVERIES_MAX, KEPT, SKETCH_ACCURACY
from ingeborg.bench.spark.session import SPARK_ERRORS, sized

FIGURES_AT_ONCE = 4
"""Number of jobs that run in parallel. More jobs would not finish faster on the few cores of one machine, and would
share its memory."""

SECOND_PPM = {500_000: "p50_ns", 990_000: "p99_ns", 1_000_000: "max_ns"}
"""The percentiles of each second and their names in its table."""

LAG_PPM = (PERCENTILES_PPM["p50"], PERCENTILES_PPM["p99"], PERCENTILES_PPM["max"])

Say = Callable[[str], None]


def figures(read: logs.Logs, several: Sequence[int], large: Sequence[int]) -> dict[str, Callable[[], DataFrame]]:
    """Return every figure of every run by the names that `document` uses, as a function that makes its frame. For a
    small log, Spark needs longer to plan a frame than to compute it, so the caller runs these functions in parallel.

    `several` has the numbers of the runs with more than one measured phase. These runs also need percentiles over all
    measured phases together. `large` has the numbers of the large runs, in which a sketch gives the percentiles of
    phases.
    """
    events = read.events
    news = t.news_of(events).persist(KEPT)
    deliveries = t.deliveries_of(events, news).persist(KEPT)
    measured = read.phases.where(F.col("measured") == 1).select("run", "phase")
    judged = deliveries.where(F.col("run").isin([*several])).join(F.broadcast(measured), ["run", "phase"], "left_semi")
    points = sorted({*CURVE_PPM, *PERCENTILES_PPM.values()})

    def latency(rows: DataFrame, keys: list[str]) -> DataFrame:
        exact = percentiles(rows.where(~F.col("run").isin([*large])), keys, points, "latency_ns")
        if not large:
            return exact
        few = sketched(rows.where(F.col("run").isin([*large])), keys, points, "latency_ns", SKETCH_ACCURACY)
        return exact.unionByName(few)

    made: dict[str, Callable[[], DataFrame]] = {
        "deliveries": lambda: t.delivery_counts(deliveries),
        "outcomes": lambda: t.outcomes(news, deliveries),
        "latency": lambda: latency(deliveries, ["run", "phase"]),
        "second_latency": lambda: percentiles(deliveries, ["run", "second"], SECOND_PPM, "latency_ns"),
        "histogram": lambda: t.histogram(deliveries),
        "sending": lambda: t.sending_counts(events),
        "lag": lambda: percentiles(t.lags(events), ["run", "phase"], LAG_PPM, "lag_ns"),
        "errors": lambda: t.error_counts(events),
        "second_counts": lambda: t.per_second_counts(events),
        "machine": lambda: t.machine_rates(read.machine),
        "processes": lambda: t.machine_phases(read.machine, read.phases),
        "counters": lambda: t.counter_deltas(read.counters),
    }
    return made | ({"latency_measured": lambda: latency(judged, ["run"])} if several else {})


def seconds(counts: Rows, latency: Rows) -> list[Json]:
    """Return the table of seconds, which has every second from each run's first to its last. If nothing happened in a
    second, the counts are 0 and the latencies are missing."""
    runs: dict[str, dict[int, Json]] = {}
    for row in counts:
        runs.setdefault(row["run"], {})[row["second"]] = dict(row)
    for row in latency:
        of_run = runs.setdefault(row["run"], {})
        of_run.setdefault(row["second"], {})[SECOND_PPM[row["ppm"]]] = row["latency_ns"]
    zero = dict.fromkeys(("news", "reports", "duplicates_offered", "delivered", "errors"), 0)
    return [
        {**zero, **of_run.get(second, {}), "run": run, "second": second}
        for run, of_run in sorted(runs.items())
        for second in range(min(of_run), max(of_run) + 1)
    ]


def histogram(rows: Rows) -> list[Json]:
    """Add to each row the bounds of its bucket in ns. The bucket of values up to 0 has no lower bound, and its upper
    bound is 0."""

    def bound(bucket: int) -> int:
        return round(10 ** (bucket / BUCKETS_PER_DECADE))

    return [
        dict(row)
        | (
            {"low_ns": bound(row["bucket"]), "high_ns": bound(row["bucket"] + 1)}
            if row["bucket"] >= 0
            else {"high_ns": 0}
        )
        for row in rows
    ]


def digest(spark: SparkSession, paths: Sequence[str], out: Path, *, fresh: bool = False, say: Say = print) -> Json:
    """Digest the runs in and below `paths` into the directory `out`, and return the document. Raises BenchError if a
    log cannot be digested.

    If `out` already holds a run, made from exactly the same files, its figures come from there. `say` gets the number
    of these runs. With `fresh`, all runs are computed.
    """
    progress.step("finding the runs")
    runs = inventory.find(spark, paths)
    progress.step("comparing the files with their checksums")
    made_of = {run.run: inventory.made_of(run) for run in runs}
    old = Digest.empty() if fresh else digestdir.remembered(out, made_of, say)
    new = [run for run in runs if run.run not in old.runs]
    if old.runs:
        say(
            f"{len(old.runs)} of {len(runs)} runs have not changed since they were digested into {out}, so {len(new)} "
            "are computed (--fresh computes all)"
        )
    made = old.joined(_digested(spark, new, made_of)) if new else old
    progress.step("writing the digest")
    return digestdir.write(out, made, [run.run for run in runs])


def _digested(spark: SparkSession, runs: list[inventory.RunLog], made_of: Mapping[str, Json]) -> Digest:
    """Return the digest of these runs. Each Spark job computes its figure for all runs together."""
    names = [run.run for run in runs]
    has_causal_goal = any(CAUSAL in run.facts["goals"] for run in runs)
    if has_causal_goal:
        kept.require()

    def rows(frame: DataFrame) -> list[Json]:
        return [row.asDict() | {"run": names[row.run]} for row in frame.collect()]

    with sized(spark, sum(run.size_bytes for run in runs)):
        read = logs.read(spark, runs)
        phases = rows(read.phases)
        measured = Counter(row["run"] for row in phases if row["measured"])
        several = [number for number, name in enumerate(names) if measured[name] > 1]
        large = [number for number, run in enumerate(runs) if run.deliveries > EXACT_DELIVERIES_MAX]
        frames = figures(read, several, large)
        # Each figure is a small job. While one job runs, another is planned. This keeps every core busy.
        parts = [lambda frame=frame: rows(frame()) for frame in frames.values()]
        made = progress.run("computing the figures", parts, FIGURES_AT_ONCE)
        tables = dict(zip(frames, made, strict=True)) | {"phases": phases}
        if has_causal_goal:
            # This import is only here, so that executors need Arrow only if there is such a goal.
            from ingeborg.bench.spark.causal import verdicts

            tables["causal"] = verdicts(read, lambda run: CAUSAL in run.facts["goals"], shown=0)
    tables["seconds"] = seconds(tables.pop("second_counts"), tables.pop("second_latency"))
    described = [
        {
            # `log` describes the files of the run as they were read, so the document does not repeat them.
            "facts": {name: value for name, value in run.facts.items() if name != "files"},
            "directory": run.shown,
            "log": _log(run, made_of[run.run]),
            "percentile_error": 1 / SKETCH_ACCURACY if number in large else None,
        }
        for number, run in enumerate(runs)
    ]
    return Digest.of(
        document(described, tables),
        {
            "seconds": tables["seconds"],
            "histogram": histogram(tables["histogram"]),
            "machine": sorted(tables["machine"], key=itemgetter("at_ns")),
            "counters": tables["counters"],
        },
    )


def _log(run: inventory.RunLog, made_of: Json) -> Json:
    """Return the document's entry about a run's log, with its size, what was left out, and its identity."""
    size = {"files": len(run.files), "size_bytes": run.size_bytes, "lines": run.lines}
    return size | {"torn": sorted(run.torn), "empty": sorted(run.empty)} | made_of


def main(arguments: Sequence[str] | None = None) -> int:
    """Run under spark-submit, which configures the session. Return 0 after success, 1 after a failure, and 2 after
    wrong usage."""
    parser = argparse.ArgumentParser(description="Digest the logs of runs on a Spark cluster (under spark-submit).")
    parser.add_argument(
        "runs",
        nargs="+",
        metavar="RUN",
        help="directory of a run, or of many runs at any depth; any path that Spark can read",
    )
    parser.add_argument("--out", required=True, metavar="DIR", help="local directory for the digest")
    parser.add_argument("--fresh", action="store_true", help="also compute the runs that DIR already holds")
    options = parser.parse_args(arguments)
    out = Path(options.out)
    session = SparkSession.builder.appName("bench digest").getOrCreate()
    try:
        out.mkdir(parents=True, exist_ok=True)
        digest(session, options.runs, out, fresh=options.fresh)
    except (BenchError, OSError) as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    except SPARK_ERRORS as error:
        print(f"bench: Spark failed: {logs.reason(error)}", file=sys.stderr)
        return 1
    finally:
        session.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
