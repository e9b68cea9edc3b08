"""Percentiles of values in nanoseconds. They are exact (but not all values are sorted), or come from a sketch.

Owns the definition of "the p-th percentile". It is the value of the nearest rank, so each figure is a value that was
measured. All functions are pure (DataFrame -> DataFrame). Must never: collect a row, or interpolate between two values.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from ingeborg.bench.spark.schema import BUCKETS_PER_DECADE, FINE

_PPM = 1_000_000


def bucket_of(value: str, parts: int = 1) -> Column:
    """Return the bucket of a value in ns. Bucket b holds values from 10^(b/20) up to 10^((b+1)/20), and is divided
    again into `parts`. Bucket -1 holds values that are not positive."""
    ns = F.col(value)
    return F.when(ns > 0, F.floor(F.log10(ns) * (BUCKETS_PER_DECADE * parts))).otherwise(F.lit(-1)).cast("int")


def percentiles(rows: DataFrame, keys: Sequence[str], points_ppm: Iterable[int], value: str) -> DataFrame:
    """Return exact percentiles of the column `value` by nearest rank: `keys, ppm, value`, one row per group and point.

    The percentile p of n values is the value of rank ceil(n p). There are two passes over the rows, and no sort. The
    first pass counts the rows by fine bucket. The counts give the bucket of each wanted rank. The second pass ranks
    only the values in these buckets, by distinct value, so that equal values cost only one row.
    """
    fine = rows.select(*keys, value, bucket_of(value, FINE).alias("bucket"))
    wanted = _wanted(fine.groupBy(*keys, "bucket").agg(F.count("*").alias("n")), keys, points_ppm)
    # The few rows near a wanted rank, grouped by value, with the wanted ranks of their bucket.
    near = (
        fine.join(F.broadcast(wanted), [*keys, "bucket"])
        .groupBy(*keys, "before", "sought", value)
        .agg(F.count("*").alias("n"))
    )
    by_value = Window.partitionBy(*keys, "before").orderBy(value)
    upto = F.col("before") + F.sum("n").over(by_value.rowsBetween(Window.unboundedPreceding, 0))
    ranked = near.withColumn("upto", upto).withColumn("point", F.explode("sought"))
    found = (F.col("point.rank") <= F.col("upto")) & (F.col("point.rank") > F.col("upto") - F.col("n"))
    return ranked.where(found).select(*keys, F.col("point.ppm").alias("ppm"), value)


def _wanted(counts: DataFrame, keys: Sequence[str], points_ppm: Iterable[int]) -> DataFrame:
    """Return the buckets that hold a wanted rank: `keys, bucket`, `before` (the number of values in lower buckets), and
    `sought` (the points)."""
    groups = Window.partitionBy(*keys)
    lower = groups.orderBy("bucket").rowsBetween(Window.unboundedPreceding, Window.currentRow)
    ranked = counts.withColumn("upto", F.sum("n").over(lower)).withColumn("total", F.sum("n").over(groups))
    points = F.array(
        *(
            F.struct(
                F.lit(point).cast("long").alias("ppm"),
                # This uses integer arithmetic, so that rounding does not change a rank.
                F.greatest(F.lit(1), F.expr(f"(total * {point}L + {_PPM - 1}L) div {_PPM}L")).alias("rank"),
            )
            for point in points_ppm
        )
    )
    before = F.col("upto") - F.col("n")
    inside = F.filter(points, lambda point: (point["rank"] > before) & (point["rank"] <= F.col("upto")))
    return ranked.select(*keys, "bucket", before.alias("before"), inside.alias("sought")).where(F.size("sought") > 0)


def sketched(rows: DataFrame, keys: Sequence[str], points_ppm: Iterable[int], value: str, accuracy: int) -> DataFrame:
    """Return percentiles in the same form as `percentiles`, from one mergeable sketch per group, in one pass (Greenwald
    and Khanna, 2001; Spark's percentile_approx). Each figure is a value that was measured, and its rank among n values
    deviates from the wanted rank by at most n / `accuracy`. The smallest and the largest value are exact."""
    points = sorted(points_ppm)
    sketch = F.percentile_approx(value, [point / _PPM for point in points], accuracy)
    names = F.array(*(F.lit(point).cast("long") for point in points))
    pairs = F.explode(F.arrays_zip(names.alias("ppm"), F.col("sketch").alias(value))).alias("pair")
    return rows.groupBy(*keys).agg(sketch.alias("sketch")).select(*keys, pairs).select(*keys, "pair.*")
