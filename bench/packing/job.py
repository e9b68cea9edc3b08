"""The PySpark job that computes the figures of the page from the rows of all streams.

Owns: every figure that covers more than one stream. Must never: draw anything.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from ingeborg.autoscaler.groups.packing import DOCUMENT
from ingeborg.bench.packing import latency, scores
from ingeborg.bench.packing.cases import ALGORITHMS, OPTIMUM_EVERY
from ingeborg.bench.packing.work import LATENCIES, OPTIMA, ROWS, TIMES
from ingeborg.bench.spark.session import local_session

Json = dict[str, Any]

_ROWS = (
    "case string, items int, delta double, seed int, algorithm string, bins array<int>, rscore array<double>, "
    "moves array<int>"
)
_OPTIMA = "case string, delta double, seed int, number int, lower int, best int, how string, optimum int"
_LATENCIES = (
    "seed int, algorithm string, consumers double, late double, over_all array<double>, over_positive array<double>, "
    "most double, histogram array<double>"
)
_TIMES = "case string, delta double, algorithm string, form string, number int, ms double, slice_ms double"

#: Options of Spark, which uses all cores and has enough memory for the rows of a thousand seeds.
MASTER, MEMORY = "local[*]", "4g"

#: Algorithms in figure 5.
HISTOGRAMS = ("MWF", "kd_27", "mend")

#: Algorithms to compare with ``mend``, the product's own.
BESIDE = ("MWF", "MWFP", "NFD", "MBF", "MBFP", "BFD")


def digest(out: Path) -> tuple[Json, list[Json]]:
    """Digest everything below ``out``, in a separate session."""
    with local_session(MASTER, MEMORY, out / "spark.log") as spark:
        return figures(spark, out)


def figures(spark: SparkSession, out: Path) -> tuple[Json, list[Json]]:
    """Digest everything below ``out``. Return the figures that the seeds determine, and the times."""

    def rows(kind: str, schema: str) -> DataFrame | None:
        folder = out / kind
        return spark.read.schema(schema).json(str(folder)) if folder.is_dir() else None

    streams = rows(ROWS, _ROWS)
    assert streams is not None
    decisions = _decisions(streams).cache()
    document: Json = {
        "scores": columns(_scores(_by_stream(decisions))),
        "optimum": _optimum(decisions, rows(OPTIMA, _OPTIMA)),
        "latency": _latency(rows(LATENCIES, _LATENCIES)),
    }
    times = _times(rows(TIMES, _TIMES))
    decisions.unpersist()
    return document, times


def _decisions(streams: DataFrame) -> DataFrame:
    """Return a row for each decision, with its number of bins and the fewest bins of any of the document's algorithms
    (equation 28)."""
    each = streams.select(
        "case",
        "items",
        "delta",
        "seed",
        "algorithm",
        F.posexplode(F.arrays_zip("bins", "rscore", "moves")).alias("number", "one"),
    ).select("case", "items", "delta", "seed", "algorithm", "number", "one.*")
    of_document = F.when(F.col("algorithm").isin(*DOCUMENT), F.col("bins"))
    same = Window.partitionBy("case", "delta", "seed", "number")
    return each.withColumn("fewest", F.min(of_document).over(same))


def _by_stream(decisions: DataFrame) -> list[Json]:
    """Return the cardinal bin score and the mean Rscore (equations 28 and 29) of each stream."""
    excess = F.when(F.col("fewest") > 0, (F.col("bins") - F.col("fewest")) / F.col("fewest")).otherwise(0.0)
    table = decisions.groupBy("case", "items", "delta", "seed", "algorithm").agg(
        F.avg(excess).alias("cbs"),
        F.avg("rscore").alias("rscore"),
        F.avg("bins").alias("bins"),
        F.avg("moves").alias("moves"),
    )
    return [row.asDict() for row in table.collect()]


def _scores(streams: Sequence[Json]) -> list[Json]:
    """Return the mean scores over the seeds, with intervals, and the mean differences from ``mend`` on the same
    stream."""
    by_key: dict[tuple[str, float, str], dict[int, Json]] = defaultdict(dict)
    for row in streams:
        by_key[row["case"], row["delta"], row["algorithm"]][row["seed"]] = row
    found = []
    names = list(ALGORITHMS)
    for case, delta, algorithm in sorted(by_key, key=lambda key: (key[0], key[1], names.index(key[2]))):
        rows = by_key[case, delta, algorithm]
        ours = by_key.get((case, delta, "mend"), {})
        entry: Json = {"case": case, "items": next(iter(rows.values()))["items"], "delta": delta}
        entry |= {"algorithm": algorithm, "seeds": len(rows)}
        for name in ("cbs", "rscore", "bins", "moves"):
            entry[name] = _rounded(scores.interval([rows[seed][name] for seed in sorted(rows)]))
        if algorithm in BESIDE and ours:
            for name in ("cbs", "rscore"):
                differences = [rows[seed][name] - ours[seed][name] for seed in sorted(rows)]
                entry[f"{name}_more_than_mend"] = _rounded(scores.interval(differences))
        found.append(entry)
    return found


def columns(rows: Sequence[Json]) -> Json:
    """Return the rows as a table that has the names of the columns only once."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    return {"names": names, "rows": [[row.get(name) for name in names] for row in rows]}


def _rounded(values: Iterable[float]) -> list[float]:
    return [round(value, 5) for value in values]


def _optimum(decisions: DataFrame, optima: DataFrame | None) -> Json | None:
    """Return how far each algorithm is from the optimum, and how often it reaches the optimum, over the decisions whose
    optimum is known."""
    if optima is None:
        return None
    looked_at = decisions.where(F.col("number") % OPTIMUM_EVERY == 0)
    known = looked_at.join(optima.drop("lower", "best"), ["case", "delta", "seed", "number"])
    above = known.where(F.col("optimum").isNotNull())
    table = above.groupBy("algorithm").agg(
        F.avg((F.col("bins") - F.col("optimum")) / F.greatest(F.col("optimum"), F.lit(1))).alias("excess"),
        F.avg((F.col("bins") == F.col("optimum")).cast("double")).alias("reached"),
        F.sum((F.col("bins") < F.col("optimum")).cast("int")).alias("below"),
    )
    rows = {row["algorithm"]: row.asDict() for row in table.collect()}
    how = {row["how"]: row["count"] for row in optima.groupBy("how").count().collect()}
    return {
        "settled": {name: how.get(name, 0) for name in ("bound", "solved", "unsolved")},
        "algorithms": [
            {
                "algorithm": name,
                "excess": round(rows[name]["excess"], 5),
                "reached": round(rows[name]["reached"], 5),
                "below": rows[name]["below"],
            }
            for name in ALGORITHMS
            if name in rows
        ],
    }


def _latency(rows: DataFrame | None) -> list[Json]:
    """Return the mean latencies over the seeds. A histogram is the mean of the histograms of all streams."""
    if rows is None:
        return []
    by_algorithm: dict[str, list[Json]] = defaultdict(list)
    for row in rows.orderBy("seed").collect():
        by_algorithm[row["algorithm"]].append(row.asDict())
    found = []
    for algorithm, each in by_algorithm.items():
        entry: Json = {"algorithm": algorithm, "seeds": len(each)}
        for name in ("consumers", "late", "most"):
            entry[name] = _rounded(scores.interval([row[name] for row in each]))
        for name in ("over_all", "over_positive"):
            entry[name] = [
                _rounded((*scores.interval(values), min(values), max(values)))
                for values in zip(*(row[name] for row in each), strict=True)
            ]
        if algorithm in HISTOGRAMS:
            histogram = [sum(values) / len(each) for values in zip(*(row["histogram"] for row in each), strict=True)]
            entry["histogram"] = [round(value, 6) for value in histogram]
        found.append(entry)
    assert all(len(entry["over_all"]) == len(latency.PERCENTILES) for entry in found)
    return sorted(found, key=_place)


def _place(entry: Json) -> tuple[int, int, str]:
    """Return the sort key. Algorithms come first, then Kafka's assignments by their number of consumers."""
    name = entry["algorithm"]
    return (1, int(name.removeprefix("kd_")), "") if name.startswith("kd_") else (0, 0, name)


def _times(rows: DataFrame | None) -> list[Json]:
    """Return the median and the longest time of decisions. The first decision of each stream, which packs everything,
    does not count."""
    if rows is None:
        return []
    table = (
        rows.where("number > 0")
        .groupBy("case", "algorithm", "form")
        .agg(
            F.expr("percentile(ms, 0.5)").alias("median_ms"),
            F.max("ms").alias("max_ms"),
            F.max("slice_ms").alias("slice_ms"),
        )
    )
    return sorted((row.asDict() for row in table.collect()), key=lambda row: (row["case"], row["algorithm"]))
