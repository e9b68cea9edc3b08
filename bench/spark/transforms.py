"""Pure functions (DataFrame -> DataFrame) that compute figures from the rows of a log.

Owns the definitions of lost, conflated, duplicated, reordered, overtaken, in, out, lag and the histogram
(bench/SCHEMA.md explains these words). The functions never read or write a file, collect a row, or run Python on an
executor. They only use column expressions, so the workers of a cluster do not need this package.

A row belongs to the run in its `run` column (any key), and has the time of the run's beginning, `started_ns`. Times are
nanoseconds of the generator's monotonic clock. `second` is the number of whole seconds since `started_ns`.

All figures of a message depend only on rows of its topic. So Spark shuffles news and deliveries once, by run and topic,
and every join, window and count of messages happens within these partitions. (A session allows this with
`spark.sql.requireAllClusterKeysForCoPartition=false`. Without this setting, the figures are the same, but cost more
shuffles.)
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window, WindowSpec
from pyspark.sql import functions as F

from ingeborg.bench.spark.quantiles import bucket_of
from ingeborg.bench.spark.schema import NS_PER_S, POSITION

NEWS = ("topic", "seq", "run")
"""The columns that identify a news item. They have the same order everywhere, so that rows sorted for one step are
already sorted for the next step."""

NEAR_NS = 100_000_000
"""How far outside a phase a sample of the machine may lie and still count in the phase."""

SHORT_S = 0.1
"""A shorter time between two samples gives no rate. Kernels count processor time in steps of 10 ms. So in 20 ms, a
process may seem to have used one and a half cores."""

_RATES = ("net_rx_bytes", "net_tx_bytes", "disk_read_bytes", "disk_write_bytes")


def news_of(events: DataFrame) -> DataFrame:
    """Return one row per news item: `run, topic, seq, phase`, `expected` (the deliveries that it must cause), and
    `written` (how often the log has it, which must be once)."""
    return (
        events.where(F.col("kind") == "news")
        .select(*NEWS, "phase", "value")
        .repartition("run", "topic")
        .groupBy(*NEWS)
        .agg(F.min("phase").alias("phase"), F.max("value").alias("expected"), F.count("*").alias("written"))
    )


def deliveries_of(events: DataFrame, news: DataFrame) -> DataFrame:
    """Return one row per received message: `run, topic, seq, connection, at_ns, latency_ns`, and

    - `skipped`: how many other messages of its topic this message replaces for its connection;
    - `phase`: the phase of its news, so that a message that arrives in the drain counts in the phase that published it;
    - `second`: the second in which the message was meant to be sent;
    - `known`: false if no news row announces the message;
    - `repeated`: an earlier row has the same connection, topic and seq (a duplicate delivery);
    - `reordered`: the message is not a repetition, a higher seq of the topic came earlier on this connection, and until
      the message came only one connection was meant to publish either of the two messages;
    - `overtaken`: as `reordered`, but a second connection was meant to publish one of the two messages as well, or the
      log names no publisher.

    "Earlier" means a smaller `at_ns` or, for equal times, an earlier line in the log.
    """
    received = (
        events.where(F.col("kind") == "received")
        .select(
            *NEWS,
            "connection",
            "at_ns",
            F.col("value").alias("latency_ns"),
            F.coalesce(F.col("detail").try_cast("long"), F.lit(0)).alias("skipped"),
            second_of("intended_ns").alias("second"),
            F.col("phase").alias("own_phase"),
            *POSITION,
        )
        .repartition("run", "topic")
    )
    when = ("at_ns", *POSITION)
    same = Window.partitionBy(*NEWS, "connection").orderBy(*when)
    # Topic and connection come first, because a sort compares its first column fastest.
    stream = Window.partitionBy("topic", "connection", "run").orderBy(*when)
    alone = Window.partitionBy("topic", "connection", "run", "publisher").orderBy(*when)

    def after_later(window: WindowSpec) -> Column:
        before = F.max("seq").over(window.rowsBetween(Window.unboundedPreceding, -1))
        return F.coalesce(before > F.col("seq"), F.lit(False)) & ~F.col("repeated")

    return (
        received.withColumn("repeated", F.row_number().over(same) > 1)
        .join(news.select(*NEWS, "phase", "expected"), list(NEWS), "left")
        .join(_publishers_of(events), list(NEWS), "left")
        .withColumn("publisher", F.when(F.coalesce(F.col("others_ns") > F.col("at_ns"), F.lit(True)), F.col("only")))
        .withColumn("reordered", after_later(alone) & F.col("publisher").isNotNull())
        .withColumn("overtaken", after_later(stream) & ~F.col("reordered"))
        .select(
            *NEWS,
            "connection",
            "at_ns",
            "latency_ns",
            "skipped",
            "second",
            F.coalesce("phase", "own_phase").alias("phase"),
            F.col("expected").isNotNull().alias("known"),
            "repeated",
            "reordered",
            "overtaken",
        )
    )


def _publishers_of(events: DataFrame) -> DataFrame:
    """Return one row per sent message: `run, topic, seq`, `only` (the connection that was meant to publish it first),
    and `others_ns` (when the next connection was meant to publish it, or null if no other connection was)."""
    sent = events.where(F.col("kind") == "sent").repartition("run", "topic")
    meant = sent.groupBy(*NEWS, "connection").agg(F.min("intended_ns").alias("meant_ns"))
    in_time = F.sort_array(F.collect_list(F.struct("meant_ns", "connection")))
    return (
        meant.groupBy(*NEWS)
        .agg(in_time.alias("meant"))
        .select(
            *NEWS,
            F.get("meant", F.lit(0))["connection"].alias("only"),
            F.get("meant", F.lit(1))["meant_ns"].alias("others_ns"),
        )
    )


def sending_counts(events: DataFrame) -> DataFrame:
    """Return, for each `run, phase` in the rows: `news`, `reports` (in), `duplicates_offered` and `errors`; `first_ns`
    and `last_ns`, the times of the first and the last row; `first_sent_ns` and `last_sent_ns`, the times of the first
    and the last report; and `first_intended_ns`, when the first report was meant to be sent."""
    kind = F.col("kind")
    sent = kind == "sent"
    return events.groupBy("run", "phase").agg(
        F.count_if(kind == "news").alias("news"),
        F.count_if(sent).alias("reports"),
        F.count_if(sent & (F.col("value") == 0)).alias("duplicates_offered"),
        F.count_if(kind == "error").alias("errors"),
        F.min("at_ns").alias("first_ns"),
        F.max("at_ns").alias("last_ns"),
        F.min(F.when(sent, F.col("at_ns"))).alias("first_sent_ns"),
        F.max(F.when(sent, F.col("at_ns"))).alias("last_sent_ns"),
        F.min(F.when(sent, F.col("intended_ns"))).alias("first_intended_ns"),
    )


def lags(events: DataFrame) -> DataFrame:
    """Return one row per report: `run, phase`, and `lag_ns`, how far the sender was behind its schedule."""
    sent = events.where(F.col("kind") == "sent")
    return sent.select("run", "phase", (F.col("at_ns") - F.col("intended_ns")).alias("lag_ns"))


def delivery_counts(deliveries: DataFrame) -> DataFrame:
    """Return, per `run, phase` of the news: `delivered` (out: all messages received), `duplicated`, `reordered`,
    `overtaken`, `unannounced`, the mean latency `mean_ns`, and `first_received_ns` and `last_received_ns`, the times of
    the first and the last delivery."""
    return deliveries.groupBy("run", "phase").agg(
        F.count("*").alias("delivered"),
        F.count_if("repeated").alias("duplicated"),
        F.count_if("reordered").alias("reordered"),
        F.count_if("overtaken").alias("overtaken"),
        F.count_if(~F.col("known")).alias("unannounced"),
        F.avg("latency_ns").alias("mean_ns"),
        F.min("at_ns").alias("first_received_ns"),
        F.max("at_ns").alias("last_received_ns"),
    )


def outcomes(news: DataFrame, deliveries: DataFrame) -> DataFrame:
    """Return, per `run, phase` of the news: `expected` deliveries; `lost` and `conflated`, which together are the
    missing deliveries (expected deliveries minus distinct connections reached, summed over news); `skipped`, the number
    of messages that deliveries replace; `excess`, connections reached beyond the expected ones; and `rewritten`, news
    that the log has more than once.

    A delivery with `skipped` replaces missing deliveries of its topic and phase. If too few are missing there, the rest
    replaces missing deliveries of earlier phases, because an endpoint may hold a message until the next phase has
    begun, and conflate it then.
    """
    reached = (
        deliveries.where("known")
        .groupBy(*NEWS)
        .agg(F.count_if(~F.col("repeated")).alias("reached"), F.sum("skipped").alias("skipped"))
    )
    missing = F.col("expected") - F.coalesce("reached", F.lit(0))
    of_topics = (
        news.join(reached, list(NEWS), "left")
        .groupBy("run", "topic", "phase")
        .agg(
            F.min("seq").alias("first_seq"),
            F.sum("expected").alias("expected"),
            F.sum(F.greatest(missing, F.lit(0))).alias("missing"),
            F.coalesce(F.sum("skipped"), F.lit(0)).alias("skipped"),
            F.sum(F.greatest(-missing, F.lit(0))).alias("excess"),
            F.count_if(F.col("written") > 1).alias("rewritten"),
        )
    )
    backwards = Window.partitionBy("run", "topic").orderBy(F.desc("first_seq"))
    until_here = backwards.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    beyond = F.sum(F.col("missing") - F.col("skipped")).over(until_here)
    lost_from_here = F.greatest(F.max("beyond").over(until_here), F.lit(0))
    return (
        of_topics.withColumn("beyond", beyond)
        .withColumn("lost_from_here", lost_from_here)
        .withColumn("lost", F.col("lost_from_here") - F.lag("lost_from_here", 1, 0).over(backwards))
        .groupBy("run", "phase")
        .agg(
            *(F.sum(name).alias(name) for name in ("expected", "lost", "skipped", "excess", "rewritten")),
            F.sum(F.col("missing") - F.col("lost")).alias("conflated"),
        )
    )


def error_counts(events: DataFrame) -> DataFrame:
    """Return, per `run, phase, code`: `errors`."""
    return (
        events.where(F.col("kind") == "error")
        .groupBy("run", "phase", F.coalesce("detail", F.lit("no code")).alias("code"))
        .agg(F.count("*").alias("errors"))
    )


def second_of(name: str) -> Column:
    """Return the whole seconds from the run's start to the time in column `name`."""
    return F.floor((F.col(name) - F.col("started_ns")) / NS_PER_S).cast("int")


def per_second_counts(events: DataFrame) -> DataFrame:
    """Return, per `run, second` of the events: `news`, `reports`, `duplicates_offered`, `delivered`, `errors`."""
    kind = F.col("kind")
    return events.groupBy("run", second_of("at_ns").alias("second")).agg(
        F.count_if(kind == "news").alias("news"),
        F.count_if(kind == "sent").alias("reports"),
        F.count_if((kind == "sent") & (F.col("value") == 0)).alias("duplicates_offered"),
        F.count_if(kind == "received").alias("delivered"),
        F.count_if(kind == "error").alias("errors"),
    )


def histogram(deliveries: DataFrame) -> DataFrame:
    """Return, per `run, phase, second` (in which a message was meant to be sent) and `bucket`: `deliveries`. Bucket b
    holds latencies from 10^(b/20) ns up to 10^((b+1)/20) ns. Bucket -1 holds latencies of 0 or below."""
    return deliveries.groupBy("run", "phase", "second", bucket_of("latency_ns").alias("bucket")).agg(
        F.count("*").alias("deliveries")
    )


def machine_rates(machine: DataFrame) -> DataFrame:
    """Return, per `run, source` and sample: `at_ns`, `role`, `second`, `cpu_cores` (processor seconds per second), the
    levels `rss_bytes` and `anon_bytes`, and bytes per second of network and disk. A rate is null for a source's first
    sample, for a sample less than `SHORT_S` after the previous one, and for a sample whose counter went back, because
    the process was restarted."""
    order = Window.partitionBy("run", "source").orderBy("at_ns")
    elapsed_s = (F.col("at_ns") - F.lag("at_ns").over(order)) / NS_PER_S

    def rate(name: str) -> Column:
        grown = F.col(name) - F.lag(name).over(order)
        return F.when((grown >= 0) & (elapsed_s >= SHORT_S), grown / elapsed_s)

    return machine.select(
        "run",
        "source",
        "role",
        "at_ns",
        second_of("at_ns").alias("second"),
        rate("cpu_s").alias("cpu_cores"),
        "rss_bytes",
        "anon_bytes",
        *(rate(name).alias(f"{name}_s") for name in _RATES),
    )


def machine_phases(machine: DataFrame, phases: DataFrame) -> DataFrame:
    """Return what each source (`run, phase, role, source`) used in a phase, between the samples nearest to its ends.

    `cpu_s` is the processor time within `elapsed_s`; both are null if the two samples are the same. `rss_first`,
    `rss_last`, `anon_first` and `anon_last` are the levels at these samples, in bytes. There is no row for a source
    without a sample in the phase, or at most `NEAR_NS` before or after the phase. (The generator takes samples at both
    ends of a phase, which may last only milliseconds.)

    `cpu_s` adds up the counter's growth from sample to sample. So it does not shrink when a process is restarted, or
    when another process reaps its child.
    """
    order = Window.partitionBy("run", "source").orderBy("at_ns")
    grown = F.greatest(F.col("cpu_s") - F.lag("cpu_s").over(order), F.lit(0.0))
    used = F.sum(grown).over(order.rowsBetween(Window.unboundedPreceding, Window.currentRow))
    # If a source does not report its processor time, the time is unknown and not 0.
    used = F.when(F.col("cpu_s").isNotNull(), used)
    samples = machine.select("run", "source", "role", "at_ns", "rss_bytes", "anon_bytes", used.alias("used_s"))
    sample = F.struct("at_ns", "used_s", "rss_bytes", "anon_bytes")

    def nearest(end: str) -> Column:
        return F.min_by(sample, F.struct(F.abs(F.col("at_ns") - F.col(end)), "at_ns"))

    elapsed_s = (F.col("last.at_ns") - F.col("first.at_ns")) / NS_PER_S
    return (
        samples.join(F.broadcast(phases.select("run", "phase", "start_ns", "end_ns")), "run")
        .groupBy("run", "phase", "role", "source")
        .agg(
            nearest("start_ns").alias("first"),
            nearest("end_ns").alias("last"),
            F.count_if(F.col("at_ns").between(F.col("start_ns") - NEAR_NS, F.col("end_ns") + NEAR_NS)).alias("near"),
        )
        .where(F.col("near") > 0)
        .select(
            "run",
            "phase",
            "role",
            "source",
            F.when(elapsed_s > 0, F.col("last.used_s") - F.col("first.used_s")).alias("cpu_s"),
            F.when(elapsed_s > 0, elapsed_s).alias("elapsed_s"),
            F.col("first.rss_bytes").alias("rss_first"),
            F.col("last.rss_bytes").alias("rss_last"),
            F.col("first.anon_bytes").alias("anon_first"),
            F.col("last.anon_bytes").alias("anon_last"),
        )
    )


def counter_deltas(counters: DataFrame) -> DataFrame:
    """Return, per `run, phase, source, name`: the `first` and the `last` value in the phase, and `reset`, which is true
    if the value went back. For a `…_total` this means that the server was restarted and that its earlier counts are
    unknown."""
    return (
        counters.groupBy("run", "phase", "source", "name")
        .agg(F.min_by("value", "at_ns").alias("first"), F.max_by("value", "at_ns").alias("last"))
        .withColumn("reset", F.col("last") < F.col("first"))
    )
