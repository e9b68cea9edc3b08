"""The causal check. It finds connections that received a message after another message that depends on it.

Run it with `bench check causal`, or unchanged with `spark-submit` on a cluster, over any path that Spark can read:

    spark-submit --master … bench/spark/causal.py s3a://bucket/runs

The executors need Python with pyarrow, but not this package. The driver needs this package. All I/O happens in `main`,
`check` and the functions that these call by name. `happened` decides which event happened before which. docs/causal.md
explains the check.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from ingeborg.bench.causality.clocks import NEVER
from ingeborg.bench.digest.document import NS_PER_S, Json
from ingeborg.bench.errors import BenchError
from ingeborg.bench.spark import happened, inventory, logs, progress, shipped
from ingeborg.bench.spark.schema import KEPT
from ingeborg.bench.spark.session import SPARK_ERRORS, sized
from ingeborg.bench.text import causal as text

Judged = Callable[[inventory.RunLog], bool]


def check(spark: SparkSession, paths: Sequence[str], *, shown: int = text.SHOWN) -> list[Json]:
    """Return the verdict on each run in and below `paths`, in the form of `verdicts`. Raises BenchError if a log cannot
    be checked."""
    progress.step("finding the runs")
    runs = inventory.find(spark, paths)
    progress.step("comparing the files with their checksums")
    for run in runs:
        inventory.made_of(run)  # raises an error if a file is not what the run wrote
    with sized(spark, sum(run.size_bytes for run in runs)):
        return verdicts(logs.read(spark, runs), lambda _: True, shown=shown)


def verdicts(read: logs.Logs, is_judged: Judged, *, shown: int) -> list[Json]:
    """Return the verdict on each run to judge, in order. A verdict has these fields:

    - `run`, `started_ns`, `whole`, and the `torn` and `empty` files;
    - the number of `reports`, and the number of `marked` reports;
    - `deliveries`: first copies that were judged; `late`: judged copies that arrived after a message that was sent
      later; `unsent`: copies of messages that nobody sent;
    - `violations`, and the number of `connections` that have one; `examples`: the first `shown` violations;
    - about the sequential pass: the number of `messages`, the `entries` of all their clocks, the most entries of a
      single clock (`entries_max`), and the processor time (`pass_s`).
    """
    progress.step("judging causal order")
    numbers = [number for number, run in enumerate(read.runs) if is_judged(run)]
    events = read.events.where(F.col("run").isin(numbers))
    marks = _by_run(happened.marks_of(events))
    told = happened.told_of(events, [run for run, row in marks.items() if row["marked"]]).persist(KEPT)
    counts = _by_run(happened.counts_of(told))
    # If no message overtook another, there is no violation, and the search can be skipped.
    late = told.where(F.col("run").isin([run for run, row in counts.items() if row["late"]]))
    passes: dict[int, Json] = {}
    totals: dict[int, Json] = {}
    examples: dict[int, list[Json]] = {}
    if any(row["late"] for row in counts.values()):
        rows = happened.rows_of(late)
        clocks = happened.clocks_of(rows).persist(KEPT)
        passes = _by_run(clocks.where(F.col("seq") == shipped.NONE).drop("clock", "topic", "seq", "axis", "number"))
        found = happened.too_late_of(late, clocks).persist(KEPT)
        totals = _by_run(
            found.groupBy("run").agg(
                F.count("*").alias("violations"), F.count_distinct("connection").alias("connections")
            )
        )
        if totals and shown:
            examples = _examples(rows, found, shown)
    nothing: Json = {
        **dict.fromkeys(("reports", "marked", "deliveries", "unsent", "late", "violations", "connections"), 0),
        **dict.fromkeys(("messages", "entries", "entries_max", "pass_ns"), 0),
    }
    made = []
    for number in numbers:
        run = read.runs[number]
        facts = {"run": run.run, "started_ns": run.facts["started_ns"], "whole": run.whole}
        facts |= {"torn": sorted(run.torn), "empty": sorted(run.empty)}
        figures = nothing | marks.get(number, {}) | counts.get(number, {}) | passes.get(number, {})
        figures |= totals.get(number, {})
        figures["pass_s"] = figures.pop("pass_ns") / NS_PER_S
        made.append(figures | facts | {"examples": examples.get(number, [])})
    return made


def _by_run(frame: DataFrame) -> dict[int, Json]:
    return {row["run"]: row.asDict() for row in frame.collect()}


def _examples(rows: DataFrame, found: DataFrame, shown: int) -> dict[int, list[Json]]:
    """Return the first violations of each run, with their trails (chains of causes)."""
    order = ("at_ns", "connection", "topic", "seq")
    first = F.row_number().over(Window.partitionBy("run").orderBy(*order)) <= shown
    chosen = found.withColumn("first", first).where("first").orderBy("run", *order).limit(text.SHOWN_MAX).collect()
    wanted = [
        (row.run, (row.topic, row.seq), row.began_ns, (row.before_topic, row.before_seq), row.before_ended_ns)
        for row in chosen
    ]
    links: dict[int, list[Json]] = {}
    for link in happened.links_of(rows, wanted).orderBy("trail", "place").collect():
        links.setdefault(link.trail, []).append(_link(link.asDict()))
    examples: dict[int, list[Json]] = {}
    for number, row in enumerate(chosen):
        kept = ("connection", "topic", "seq", "at_ns", "before_topic", "before_seq", "before_ns")
        example = {name: row[name] for name in kept} | {"trail": links.get(number, [])}
        examples.setdefault(row.run, []).append(example)
    return examples


def _link(link: Json) -> Json:
    """Return a link of a trail. `connection` sent this message at `at_ns`. The link's cause, if any, is a message that
    the connection had received at `cause_ns`, or had sent itself (if `cause_ns` is null)."""
    is_first, is_own = link["cause_seq"] == shipped.NONE, link["cause_ns"] == NEVER
    cause = dict.fromkeys(("cause_topic", "cause_seq")) if is_first else {}
    made = link | cause | ({"cause_ns": None} if is_own else {})
    return {name: value for name, value in made.items() if name not in ("trail", "place")}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run under spark-submit. Return 0 if there is no violation, 1 if there is a violation or the check failed, and 2
    after wrong usage."""
    parser = argparse.ArgumentParser(description="Check causal order in the logs of runs (under spark-submit).")
    parser.add_argument("runs", nargs="+", metavar="RUN", help="directory of a run, or of many runs at any depth")
    parser.add_argument(
        "--shown", type=text.shown, default=text.SHOWN, metavar="N", help="number of violations to show for each run"
    )
    options = parser.parse_args(arguments)
    session = SparkSession.builder.appName("bench check causal").getOrCreate()
    try:
        made = check(session, options.runs, shown=options.shown)
    except BenchError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    except SPARK_ERRORS as error:
        print(f"bench: Spark failed: {logs.reason(error)}", file=sys.stderr)
        return 1
    finally:
        session.stop()
    print(text.verdicts(made))
    return int(any(verdict["violations"] for verdict in made))


if __name__ == "__main__":
    sys.exit(main())
