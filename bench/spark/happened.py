"""The order of events in a log, as far as the rows show it. This module makes the frames of the causal check.

Owns the decision which rows can establish an order of messages (docs/causal.md explains the words). All functions are
pure (DataFrame -> DataFrame). `shipped` has the Python code that the executors run. A row belongs to the run in its
`run` column.

For two rows of the same connection, `at_ns` decides which row is "before" the other. For equal times, the order of the
lines decides, as for `reordered`, because the same process wrote both rows. Rows of different connections have an order
only through a message that went from one connection to the other.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from ingeborg.bench.causality.clocks import NEVER
from ingeborg.bench.spark import shipped
from ingeborg.bench.spark.schema import POSITION
from ingeborg.bench.spark.transforms import NEWS

MARK = "causal"
"""The `detail` of a report that was published as causal."""

_WHEN = ("at_ns", *POSITION)


def marks_of(events: DataFrame) -> DataFrame:
    """Return, per `run`: the number of `reports`, and the number of `marked` reports."""
    sent = events.where(F.col("kind") == "sent")
    return sent.groupBy("run").agg(F.count("*").alias("reports"), F.count_if(F.col("detail") == MARK).alias("marked"))


def told_of(events: DataFrame, marked: Sequence[int]) -> DataFrame:
    """Return a row for each report of a message that some connection received, and for the first copy of a message on
    each connection: `run, topic, seq, connection, at_ns`, POSITION, `is_sent`, `intended_ns`, and

    - `originals` (of reports): the number of reports of the message that the system may have taken for the original,
      including this report. It is 0 if this report was due after a connection had the message. The report is then a
      duplicate;
    - `depends`: whether the message depends on earlier messages. In the runs `marked` it is false if an original of the
      message has no mark, or if the log lacks the message's first report by schedule, which may have been the original;
    - `began_ns`, `ended_ns`: when the first and the last original were sent, or null if the log does not say;
    - `latest_ns` (of copies): the greatest `ended_ns` of the dependent messages that reached this connection before;
    - `last_ns`: when the connection began to send for the last time, or null if it never sent.
    """
    both = (
        events.where(F.col("kind").isin("sent", "received"))
        .withColumn("is_sent", F.col("kind") == "sent")
        .withColumn("depends", (F.col("detail") == MARK) | ~F.col("run").isin([*marked]))
        .select(
            *(*NEWS, "connection", *_WHEN, "is_sent", "intended_ns"),
            F.coalesce("depends", F.lit(False)).alias("depends"),
            (F.col("is_sent") & (F.col("value") == 1)).alias("is_first"),
        )
        .repartition("run", "topic")
    )
    same = Window.partitionBy(*NEWS, "is_sent", "connection").orderBy(*_WHEN)
    every = Window.partitionBy(*NEWS)
    sent = F.col("is_sent")
    # No connection can have a message before an original was written. If a log says otherwise, its clock is doubtful.
    original = sent & (F.col("intended_ns") <= F.greatest("came_ns", "meant_ns"))
    of_messages = (
        both.withColumn("copy", F.row_number().over(same))
        .where(sent | (F.col("copy") == 1))
        .withColumn("came_ns", F.min(F.when(~sent, F.col("at_ns"))).over(every))
        .withColumn("meant_ns", F.min(F.when(sent, F.col("intended_ns"))).over(every))
        .where(F.col("came_ns").isNotNull())
        .withColumn("original", original)
        .withColumn("originals", F.when(F.col("original"), F.count_if("original").over(every)).otherwise(0))
        .withColumn("began_ns", F.min(F.when(F.col("original"), F.col("at_ns"))).over(every))
        .withColumn("ended_ns", F.max(F.when(F.col("original"), F.col("at_ns"))).over(every))
        .withColumn("depends", F.coalesce(F.min(F.when(F.col("original"), F.col("depends"))).over(every), F.lit(False)))
        .withColumn("depends", F.col("depends") & F.max("is_first").over(every))
    )
    own = Window.partitionBy("run", "connection").orderBy(*_WHEN)
    before = own.rowsBetween(Window.unboundedPreceding, -1)
    always = own.rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)
    return (
        of_messages.withColumn("latest_ns", F.max(F.when(~sent & F.col("depends"), F.col("ended_ns"))).over(before))
        .withColumn("last_ns", F.max(F.when(sent, F.col("intended_ns"))).over(always))
        .drop("copy", "came_ns", "meant_ns", "original", "is_first")
    )


def is_late() -> Column:
    """Return whether a row is a late copy. Take a dependent message that the copy's connection had already received.
    The copy is late if the last original of that message was sent after the first original of the copy's own message,
    or at the same time. Only a late copy can be a violation, and only messages that were sent no later than `latest_ns`
    can show the violation."""
    return ~F.col("is_sent") & F.coalesce(F.col("latest_ns") >= F.col("began_ns"), F.lit(False))


def counts_of(told: DataFrame) -> DataFrame:
    """Return, per `run`: `deliveries`, the number of first copies that can be judged; `unsent`, the number of first
    copies that nobody in the log sent; and `late`, the number of late copies among the deliveries."""
    known = F.col("began_ns").isNotNull()
    return told.groupBy("run").agg(
        F.count_if(~F.col("is_sent") & known).alias("deliveries"),
        F.count_if(~F.col("is_sent") & ~known).alias("unsent"),
        F.count_if(is_late()).alias("late"),
    )


def rows_of(told: DataFrame) -> DataFrame:
    """Return `shipped.ROWS`, the rows from which the clocks are computed."""
    until = told.where(is_late()).groupBy(*NEWS).agg(F.max("latest_ns").alias("until_ns"))
    sent = told.where("is_sent").join(until, list(NEWS), "left")
    heard = told.where(~F.col("is_sent") & F.col("began_ns").isNotNull() & (F.col("at_ns") <= F.col("last_ns")))
    reports = _longs(sent, {"until_ns": F.coalesce("until_ns", F.lit(NEVER))})
    copies = _longs(heard, {"originals": F.lit(shipped.RECEIVED), "until_ns": F.lit(NEVER)})
    return reports.unionByName(copies)


def _longs(rows: DataFrame, given: dict[str, Column]) -> DataFrame:
    return rows.select(*(given.get(name, F.col(name)).cast("long").alias(name) for name in shipped.ROWS), *POSITION)


def clocks_of(rows: DataFrame) -> DataFrame:
    """Return `shipped.CLOCKED` and `clock`. A sequential pass over each run computes them."""
    return shipped.run(_in_time(rows), shipped.Pass, shipped.schema(shipped.CLOCKED, clock=True))


def too_late_of(told: DataFrame, clocks: DataFrame) -> DataFrame:
    """Return `shipped.TOO_LATE`, the violations. The search treats each connection separately."""
    late = is_late().alias("late")
    came = told.where(~F.col("is_sent")).select(*NEWS, "connection", *_WHEN, "began_ns", "ended_ns", late)
    coming = came.join(clocks.where(F.col("seq") != shipped.NONE), list(NEWS)).where(
        F.col("late") | (F.size("clock") > 0)
    )
    # The rows of a connection are sorted by time, and Python gets them in this order.
    sorted_rows = coming.repartition("run", "connection").sortWithinPartitions("run", "connection", *_WHEN)
    columns = [F.col(name).cast("long").alias(name) for name in shipped.COMING]
    return shipped.run(sorted_rows.select(*columns, "clock"), shipped.TooLate, shipped.schema(shipped.TOO_LATE))


def links_of(rows: DataFrame, wanted: Sequence[shipped.Wanted]) -> DataFrame:
    """Return `shipped.LINKS` of the wanted trails. The links are found in the rows between the two ends of each
    trail."""
    between = F.lit(False)
    for run, _, began_ns, _, ended_ns in wanted:
        between |= (F.col("run") == run) & F.col("at_ns").between(began_ns, ended_ns)
    return shipped.run(_in_time(rows.where(between), 1), shipped.trails(wanted), shipped.schema(shipped.LINKS))


def _in_time(rows: DataFrame, partitions: int | None = None) -> DataFrame:
    spread = rows.repartition(partitions) if partitions else rows.repartition("run")
    return spread.sortWithinPartitions("run", *_WHEN).select(*shipped.ROWS)
