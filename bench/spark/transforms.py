"""From the rows of a log to its figures: pure functions DataFrame -> DataFrame.

Owns the definitions of lost, duplicated, reordered, in, out and of every latency figure (bench/SCHEMA.md says them in
words). It never reads or writes a file, collects a row, or runs Python on an executor: column expressions only, so a
cluster needs nothing of ours on its workers.

A row belongs to the run in its `run` column, and knows its beginning, `started_ns`. Times are nanoseconds of the
generator's monotonic clock; `second` is the number of whole seconds since `started_ns`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from bench.spark.schema import BUCKETS_PER_DECADE, CORRUPT, MACHINE, NS_PER_S, OFFSET_S_MAX, Table

POSITION = ("file", "block", "line")
"""Where a row stands: ordering by these three is the order of lines in one file."""


def checked(lines: DataFrame, table: Table) -> DataFrame:
    """Lines of text (`raw`, with `started_ns` of their run and whatever else) -> the same with the typed columns of
    `table`, and `problem`: null for a good row, else what is wrong with it, in words.

    RFC 4180 quoting, except that a field holds no line break.
    """
    options = {
        "mode": "PERMISSIVE",
        "columnNameOfCorruptRecord": CORRUPT,
        "escape": '"',
        "ignoreLeadingWhiteSpace": "false",
        "ignoreTrailingWhiteSpace": "false",
    }
    columns = ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in table.parsed.fields)
    parsed = lines.withColumn("parsed", F.from_csv("raw", columns, options)).select(*lines.columns, "parsed.*")
    return parsed.withColumn("problem", _problem(table)).drop(CORRUPT)


def _far(name: str) -> Column:
    return F.col(name).isNull() | (F.abs(F.col(name) - F.col("started_ns")) > OFFSET_S_MAX * NS_PER_S)


def _problem(table: Table) -> Column:
    """The first thing that is wrong with a row, as text; null where nothing is."""
    misfit = f"not {len(table.columns)} columns with numbers where they belong ({table.header})"
    found = [(F.col(CORRUPT).isNotNull() | (F.col("raw") == ""), misfit), *_PROBLEMS[table.name]()]
    return F.coalesce(*(F.when(condition, F.lit(text)) for condition, text in found))


def _event_problems() -> list[tuple[Column, str]]:
    col = F.col
    kind = col("kind")
    message = kind != "error"
    return [
        (kind.isNull() | ~kind.isin("news", "sent", "received", "error"), "unknown kind"),
        (col("phase").isNull(), "no phase"),
        (_far("at_ns"), "at_ns is missing, or more than a week from the run's start"),
        (message & _far("intended_ns"), "intended_ns is missing, or more than a week from the run's start"),
        (
            message & (col("topic").isNull() | col("seq").isNull() | col("value").isNull()),
            "topic, seq or value is missing",
        ),
        (message & (col("seq") < 1), "seq is below 1"),
        (kind.isin("sent", "received") & col("connection").isNull(), "connection is missing"),
        ((kind == "news") & (col("value") < 0), "a negative number of deliveries"),
        ((kind == "sent") & ~col("value").isin(0, 1), "value of sent is neither 0 nor 1"),
        (
            (kind == "received") & (col("value") != col("at_ns") - col("intended_ns")),
            "value is not at_ns - intended_ns",
        ),
    ]


def _phase_problems() -> list[tuple[Column, str]]:
    col = F.col
    return [
        (col("phase").isNull(), "no phase"),
        (_far("start_ns"), "start_ns is missing, or more than a week from the run's start"),
        (_far("end_ns"), "end_ns is missing, or more than a week from the run's start"),
        (col("end_ns") < col("start_ns"), "end_ns is before start_ns"),
        (col("measured").isNull() | ~col("measured").isin(0, 1), "measured is neither 0 nor 1"),
    ]


def _machine_problems() -> list[tuple[Column, str]]:
    return [
        (_far("at_ns"), "at_ns is missing, or more than a week from the run's start"),
        (F.col("source").isNull(), "no source"),
    ]


def _counter_problems() -> list[tuple[Column, str]]:
    return [
        (_far("at_ns"), "at_ns is missing, or more than a week from the run's start"),
        (F.col("phase").isNull() | F.col("source").isNull() | F.col("name").isNull(), "no phase, source or name"),
        (F.col("value").isNull() | F.isnan("value"), "no value"),
    ]


_PROBLEMS: dict[str, Callable[[], list[tuple[Column, str]]]] = {
    "events": _event_problems,
    "phases": _phase_problems,
    "machine": _machine_problems,
    "counters": _counter_problems,
}


def news_of(events: DataFrame) -> DataFrame:
    """One row per news: `run, topic, seq, phase, expected` (deliveries it must cause), and `written`: how often the
    log says it, which must be once."""
    return (
        events.where(F.col("kind") == "news")
        .groupBy("run", "topic", "seq")
        .agg(F.min("phase").alias("phase"), F.max("value").alias("expected"), F.count("*").alias("written"))
    )


def deliveries_of(events: DataFrame, news: DataFrame) -> DataFrame:
    """One row per received message: `run, started_ns, phase, topic, seq, connection, intended_ns,
    at_ns, latency_ns`, and

    - `phase`: that of its news, so that what arrives in the drain counts where it belongs;
    - `known`: false where no news row announces it;
    - `repeated`: the same connection, topic and seq came before (a duplicate delivery);
    - `reordered`: a higher seq of the topic came before on this connection, and it is not a repetition.

    "Before" is by `at_ns`, and within one clock reading by the order of lines in the log.
    """
    received = events.where(F.col("kind") == "received").select(
        "run",
        "started_ns",
        F.col("phase").alias("own_phase"),
        "connection",
        "topic",
        "seq",
        "intended_ns",
        "at_ns",
        F.col("value").alias("latency_ns"),
        *POSITION,
    )
    joined = received.join(news.select("run", "topic", "seq", "phase", "expected"), ["run", "topic", "seq"], "left")
    when = ("at_ns", *POSITION)
    stream = Window.partitionBy("run", "connection", "topic").orderBy(*when)
    same = Window.partitionBy("run", "connection", "topic", "seq").orderBy(*when)
    before = F.max("seq").over(stream.rowsBetween(Window.unboundedPreceding, -1))
    return (
        joined.withColumn("repeated", F.row_number().over(same) > 1)
        .withColumn("reordered", F.coalesce(before > F.col("seq"), F.lit(False)) & ~F.col("repeated"))
        .select(
            "run",
            "started_ns",
            F.coalesce("phase", "own_phase").alias("phase"),
            "topic",
            "seq",
            "connection",
            "intended_ns",
            "at_ns",
            "latency_ns",
            F.col("expected").isNotNull().alias("known"),
            "repeated",
            "reordered",
        )
    )


def sending_counts(events: DataFrame) -> DataFrame:
    """Per `run, phase` of the rows themselves: `news`, `reports` (in), `duplicates_offered`, `errors`, and the first
    and last time seen, `first_ns` and `last_ns`."""
    kind = F.col("kind")
    return events.groupBy("run", "phase").agg(
        F.count_if(kind == "news").alias("news"),
        F.count_if(kind == "sent").alias("reports"),
        F.count_if((kind == "sent") & (F.col("value") == 0)).alias("duplicates_offered"),
        F.count_if(kind == "error").alias("errors"),
        F.min("at_ns").alias("first_ns"),
        F.max("at_ns").alias("last_ns"),
    )


def delivery_counts(deliveries: DataFrame) -> DataFrame:
    """Per `run, phase` of the news: `delivered` (out, everything received), `duplicated`, `reordered`, `unannounced`,
    and `mean_ns` of the latency."""
    return deliveries.groupBy("run", "phase").agg(
        F.count("*").alias("delivered"),
        F.count_if("repeated").alias("duplicated"),
        F.count_if("reordered").alias("reordered"),
        F.count_if(~F.col("known")).alias("unannounced"),
        F.avg("latency_ns").alias("mean_ns"),
    )


def outcomes(news: DataFrame, deliveries: DataFrame) -> DataFrame:
    """Per `run, phase` of the news: `expected` deliveries, `lost` (expected, minus distinct connections reached, summed
    over news), `excess` (reached beyond what was expected), `rewritten` (news that the log says more than once)."""
    reached = (
        deliveries.where(F.col("known") & ~F.col("repeated"))
        .groupBy("run", "topic", "seq")
        .agg(F.count("*").alias("reached"))
    )
    missing = F.col("expected") - F.coalesce("reached", F.lit(0))
    return (
        news.join(reached, ["run", "topic", "seq"], "left")
        .groupBy("run", "phase")
        .agg(
            F.sum("expected").alias("expected"),
            F.sum(F.greatest(missing, F.lit(0))).alias("lost"),
            F.sum(F.greatest(-missing, F.lit(0))).alias("excess"),
            F.count_if(F.col("written") > 1).alias("rewritten"),
        )
    )


def error_counts(events: DataFrame) -> DataFrame:
    """Per `run, phase, code`: `errors`."""
    return (
        events.where(F.col("kind") == "error")
        .groupBy("run", "phase", F.coalesce("detail", F.lit("no code")).alias("code"))
        .agg(F.count("*").alias("errors"))
    )


def percentiles(rows: DataFrame, keys: list[str], points_ppm: Iterable[int]) -> DataFrame:
    """Exact percentiles of `latency_ns` by nearest rank: `keys, ppm, latency_ns`, one row per group and point.

    The point p of n values is the value of rank ceil(n p), so each figure is a latency that was measured. Ranks come
    from a sort, which Spark does outside memory where it must.
    """
    order = Window.partitionBy(*keys).orderBy("latency_ns")
    ranked = rows.select(*keys, "latency_ns", F.row_number().over(order).alias("rank"))
    points = F.explode(F.array(*(F.lit(point).cast("long") for point in points_ppm)))
    wanted = (
        rows.groupBy(*keys)
        .agg(F.count("*").alias("n"))
        .select(*keys, "n", points.alias("ppm"))
        .withColumn("rank", F.greatest(F.lit(1), F.expr("(n * ppm + 999999) div 1000000")).cast("int"))
    )
    return ranked.join(F.broadcast(wanted), [*keys, "rank"]).select(*keys, "ppm", "latency_ns")


def second_of(name: str) -> Column:
    """Whole seconds from the run's start to the time in column `name`."""
    return F.floor((F.col(name) - F.col("started_ns")) / NS_PER_S)


def per_second_counts(events: DataFrame) -> DataFrame:
    """Per `run, second` in which it happened: `news`, `reports`, `duplicates_offered`, `delivered`, `errors`."""
    kind = F.col("kind")
    return events.groupBy("run", second_of("at_ns").alias("second")).agg(
        F.count_if(kind == "news").alias("news"),
        F.count_if(kind == "sent").alias("reports"),
        F.count_if((kind == "sent") & (F.col("value") == 0)).alias("duplicates_offered"),
        F.count_if(kind == "received").alias("delivered"),
        F.count_if(kind == "error").alias("errors"),
    )


def per_second_latency(deliveries: DataFrame) -> DataFrame:
    """Per `run, second` in which the schedule *meant* to send, and `ppm` 500,000, 990,000, 1,000,000: `latency_ns`.

    By the intended second, a stall shows from the moment it began.
    """
    return percentiles(
        deliveries.withColumn("second", second_of("intended_ns")), ["run", "second"], (500_000, 990_000, 1_000_000)
    )


def histogram(deliveries: DataFrame) -> DataFrame:
    """Per `run, phase, second` (intended), `bucket`: `deliveries`. Bucket b holds latencies from 10^(b/20) ns up to
    10^((b+1)/20) ns; -1 holds what is not positive."""
    latency = F.col("latency_ns")
    bucket = F.when(latency > 0, F.floor(F.log10(latency) * BUCKETS_PER_DECADE)).otherwise(F.lit(-1))
    return deliveries.groupBy("run", "phase", second_of("intended_ns").alias("second"), bucket.alias("bucket")).agg(
        F.count("*").alias("deliveries")
    )


def machine_rates(machine: DataFrame) -> DataFrame:
    """Per `run, source` and sample: `second`, `cpu_cores` (processor seconds a second), `rss_bytes` (a level), and
    bytes a second of network and disk. A rate is null for a source's first sample and where its counter went back (the
    process was restarted)."""
    order = Window.partitionBy("run", "source").orderBy("at_ns")
    elapsed_s = (F.col("at_ns") - F.lag("at_ns").over(order)) / NS_PER_S

    def rate(name: str) -> Column:
        grown = F.col(name) - F.lag(name).over(order)
        return F.when((grown >= 0) & (elapsed_s > 0), grown / elapsed_s)

    return machine.select(
        "run",
        "source",
        second_of("at_ns").alias("second"),
        rate("cpu_s").alias("cpu_cores"),
        "rss_bytes",
        *(rate(name).alias(f"{name}_s") for name in MACHINE.columns.names[4:]),
    )


def counter_deltas(counters: DataFrame) -> DataFrame:
    """Per `run, phase, source, name`: `first`, `last` value in the phase, and `reset`: a `…_total` that went back, so
    the endpoint was restarted and what it counted before is not known."""
    return (
        counters.groupBy("run", "phase", "source", "name")
        .agg(F.min_by("value", "at_ns").alias("first"), F.max_by("value", "at_ns").alias("last"))
        .withColumn("reset", F.col("last") < F.col("first"))
    )
