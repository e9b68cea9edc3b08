"""The PySpark job that computes the figures of the page from the rows of all streams.

Owns: every figure that covers more than one stream. Must never: draw a plot.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from ingeborg.autoscaler.groups.packing import DOCUMENT
from ingeborg.bench.experiments.digesting import read
from ingeborg.bench.experiments.experiment import Digest
from ingeborg.bench.experiments.figures import columns, interval, rounded, spread
from ingeborg.bench.packing import latency
from ingeborg.bench.packing.cases import ALGORITHMS
from ingeborg.bench.packing.front import front, staircase
from ingeborg.bench.packing.readings import NextFit, twelve
from ingeborg.bench.packing.work import LATENCIES, OPTIMA, ROWS, TIMES

Json = dict[str, Any]

_ROWS = (
    "case string, items int, delta double, seed int, algorithm string, bins array<int>, rscore array<double>, "
    "moves array<int>, unnamed array<int>"
)
_OPTIMA = (
    "case string, delta double, seed int, number int, lower int, best int, how string, optimum int, "
    "bins map<string, int>"
)
_LATENCIES = (
    "seed int, algorithm string, consumers double, late double, over_all array<double>, over_positive array<double>, "
    "most double, histogram array<double>"
)
_TIMES = "case string, delta double, algorithm string, form string, number int, ms double, slice_ms double"

#: Algorithms in figure 5.
HISTOGRAMS = ("MWF", "kd_27", "mend")

#: Algorithms to compare with ``mend``, the product's own.
BESIDE = ("MWF", "MWFP", "NFD", "MBF", "MBFP", "BFD")

#: The document's own algorithm in its claims (section VI-E).
CLAIMED = "MWF"


def figures(spark: SparkSession, out: Path) -> Digest:
    """Digest everything below ``out``."""
    streams = read(spark, out / ROWS, _ROWS)
    known = [] if streams is None else _by_stream(_decisions(streams.where("unnamed IS NULL")))
    document: Json = {
        "scores": columns(_scores(known)),
        "reductions": columns(_reductions(known)),
        "fronts": _fronts(known),
        "naming": [] if streams is None else _naming(streams),
        "optimum": _optimum(read(spark, out / OPTIMA, _OPTIMA)),
        "latency": _latency(read(spark, out / LATENCIES, _LATENCIES)),
    }
    times = _times(read(spark, out / TIMES, _TIMES))
    return Digest(document, {"times": times} if times else {})


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
            entry[name] = rounded(spread([rows[seed][name] for seed in sorted(rows)]))
        if algorithm in BESIDE and ours:
            for name in ("cbs", "rscore"):
                differences = [rows[seed][name] - ours[seed][name] for seed in sorted(rows)]
                entry[f"{name}_more_than_mend"] = rounded(interval(differences))
        found.append(entry)
    return found


def _reductions(streams: Sequence[Json]) -> list[Json]:
    """Return how much less load ``CLAIMED`` moves than each other algorithm, as the ratio of the two minus 1, over the
    streams of each case and delta. Streams in which one of the two moves nothing do not count."""
    by_stream: dict[tuple[str, float], dict[int, dict[str, float]]] = defaultdict(lambda: defaultdict(dict))
    for row in streams:
        by_stream[row["case"], row["delta"]][row["seed"]][row["algorithm"]] = row["rscore"]
    found = []
    for (case, delta), seeds in sorted(by_stream.items()):
        for name in ALGORITHMS:
            each = [moved for _, moved in sorted(seeds.items()) if moved.get(name) and moved.get(CLAIMED)]
            if name != CLAIMED and each:
                ratios = [moved[CLAIMED] / moved[name] - 1.0 for moved in each]
                entry: Json = {"case": case, "delta": delta, "than": name, "streams": len(ratios)}
                found.append({**entry, "change": rounded(spread(ratios))})
    return found


def _fronts(streams: Sequence[Json]) -> list[Json]:
    """Return figure 12 for each case, delta and interpretation of next fit: the points of the document's algorithms
    with their names, and the corners of the front. ``mend`` is a point too, but not part of the front."""
    by_key: dict[tuple[str, float], dict[str, list[Json]]] = defaultdict(lambda: defaultdict(list))
    for row in streams:
        by_key[row["case"], row["delta"]][row["algorithm"]].append(row)
    found = []
    for (case, delta), rows in sorted(by_key.items()):
        means = {
            name: tuple(rounded(fmean(row[what] for row in of) for what in ("cbs", "rscore")))
            for name, of in rows.items()
        }
        for reading in NextFit:
            points = {name: (means[name][0], means[name][1]) for name in twelve(reading) if name in means}
            if len(points) < len(DOCUMENT):
                continue
            entry: Json = {"case": case, "delta": delta, "next_fit": reading.value}
            entry["points"] = [[name, *point] for name, point in points.items()]
            entry["ours"] = [["mend", *means["mend"]]] if "mend" in means else []
            entry["front"] = front(points)
            entry["line"] = [list(corner) for corner in staircase(points)]
            found.append(entry)
    return found


def _naming(streams: DataFrame) -> list[Json]:
    """Return a row for each case, delta and algorithm. It has the number of decisions in which the names of the former
    bins change the number of bins, and the means with and without these names."""
    each = streams.where("unnamed IS NOT NULL").select(
        "case", "delta", "algorithm", F.explode(F.arrays_zip("bins", "unnamed")).alias("one")
    )
    table = each.groupBy("case", "delta", "algorithm").agg(
        F.count("*").alias("decisions"),
        F.sum((F.col("one.bins") != F.col("one.unnamed")).cast("int")).alias("changed"),
        F.avg("one.bins").alias("bins"),
        F.avg("one.unnamed").alias("unnamed"),
    )
    names = list(ALGORITHMS)
    rows = [row.asDict() for row in table.collect()]
    rows = [{**row, "bins": round(row["bins"], 5), "unnamed": round(row["unnamed"], 5)} for row in rows]
    return sorted(rows, key=lambda row: (row["case"], row["delta"], names.index(row["algorithm"])))


def _optimum(optima: DataFrame | None) -> Json | None:
    """Return how far each algorithm is from the optimum, and how often it reaches the optimum, over the decisions whose
    optimum is known."""
    if optima is None:
        return None
    known = optima.where("optimum IS NOT NULL").select("optimum", F.explode("bins").alias("algorithm", "used"))
    table = known.groupBy("algorithm").agg(
        F.avg((F.col("used") - F.col("optimum")) / F.greatest(F.col("optimum"), F.lit(1))).alias("excess"),
        F.avg((F.col("used") == F.col("optimum")).cast("double")).alias("reached"),
        F.sum((F.col("used") < F.col("optimum")).cast("int")).alias("below"),
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
    """Return figures 5 to 8 for every algorithm and every number of equal shares: each figure with its mean over the
    streams, interval, minimum and maximum. Percentiles of late data cover only the streams that have late data
    (``with_late``), and are ``None`` if there are no such streams."""
    if rows is None:
        return []
    by_algorithm: dict[str, dict[int, Json]] = defaultdict(dict)
    for row in rows.collect():
        by_algorithm[row["algorithm"]][row["seed"]] = row.asDict()
    found = []
    for algorithm, by_seed in by_algorithm.items():
        each = [by_seed[seed] for seed in sorted(by_seed)]
        late = [row["over_positive"] for row in each if row["over_positive"]]
        entry: Json = {"algorithm": algorithm, "seeds": len(each), "with_late": len(late)}
        for name in ("consumers", "late", "most"):
            entry[name] = rounded(spread([row[name] for row in each]))
        entry["over_all"] = _percentiles([row["over_all"] for row in each])
        entry["over_positive"] = _percentiles(late) if late else None
        if algorithm in HISTOGRAMS:
            histograms = zip(*(row["histogram"] for row in each), strict=True)
            entry["histogram"] = rounded((sum(values) / len(each) for values in histograms), 6)
        if algorithm.startswith("kd_"):
            entry |= _compared(by_algorithm, algorithm)
        found.append(entry)
    assert all(len(entry["over_all"]) == len(latency.PERCENTILES) for entry in found)
    return sorted(found, key=_place)


def _percentiles(rows: Sequence[Sequence[float]]) -> list[list[float]]:
    return [rounded(spread(values)) for values in zip(*rows, strict=True)]


def _compared(by_algorithm: Mapping[str, Mapping[int, Json]], algorithm: str) -> Json:
    """Compare equal shares with ``CLAIMED``, and with equal shares of one consumer fewer. Return in how many streams
    equal shares leave less data late than ``CLAIMED`` does. Also return in how many streams they have more late data
    than with one consumer fewer, and in how many a higher 90th percentile."""
    entry: Json = {}
    mine, claimed = by_algorithm[algorithm], by_algorithm.get(CLAIMED)
    if claimed:
        entry["less_late_than_claimed"] = sum(row["late"] < claimed[seed]["late"] for seed, row in mine.items())
    fewer = by_algorithm.get(f"kd_{int(algorithm.removeprefix('kd_')) - 1}")
    if fewer:
        pairs = [(row, fewer[seed]) for seed, row in mine.items()]
        entry["worse_than_one_fewer"] = {
            "late": sum(row["late"] > other["late"] for row, other in pairs),
            "p90": sum(_p90_s(row) > _p90_s(other) for row, other in pairs),
        }
    return entry


def _p90_s(row: Json) -> float:
    """Return the 90th percentile of the late data, or 0 if no data is late."""
    late: Sequence[float] = row["over_positive"] or ()
    return late[latency.PERCENTILES.index(0.9)] if late else 0.0


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
