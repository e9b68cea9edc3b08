"""The PySpark job: turns the rows of all units into the figures of the page.

Owns: every figure except those of a single unit. Must never: draw a plot, or run a unit.

With bounded room, a policy runs in two ways: with or without admitting missed records again. The document's experiments
keep both ways, because each is an interpretation of the document. On other streams, the better way counts. It is chosen
separately for each stream and room.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import combinations
from statistics import fmean
from typing import Any, Final

import orjson
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from ingeborg.bench.caching.cases import SHARES
from ingeborg.bench.caching.live.parts import PARTS
from ingeborg.bench.caching.live.work import FACTS, LIVE
from ingeborg.bench.caching.policies.named import BELADY, NOVEL, ONLINE, OURS, OWED
from ingeborg.bench.caching.restaurants import RETURNS
from ingeborg.bench.caching.work import BOUND, CEILING, ROWS, SIMULATED
from ingeborg.bench.experiments.digesting import DIGESTED, read
from ingeborg.bench.experiments.experiment import Digest, Results
from ingeborg.bench.experiments.figures import columns, interval, rounded

Json = dict[str, Any]

_ROWS: Final = (
    "kind string, stream string, away_s double, wishes double, sweep boolean, records int, exponent double, "
    "returns double, seed int, share double, policy string, parameters string, reads_in boolean, told boolean, "
    "requests long, reads long, hits double, by_record double, cached long, copies long, written long, variance double"
)
_SIMULATED: Final = "exponent double, seed int, share double, policy string, simulated long, narrow long"
_OF_PART: Final = "struct<mean_ms: double, p99_ms: double>"
_LIVE: Final = (
    "unit string, kind string, records int, rounds int, strategy string, parameters map<string, string>, "
    "capacity double, database string, via string, writes string, fetches string, seed int, run int, written long, "
    "deliveries long, hit_rate double, database_reads long, latency_mean_ms double, broker_busy double, "
    f"load_busy double, broker_cpu_s double, seconds double, records_per_s double, parts map<string, {_OF_PART}>"
)
_DIGESTED: Final = "unit string, latency struct<p50_ms: double, p99_ms: double, max_ms: double>"

#: The figures of the document's experiments over the number of records, of its experiments 5 to 7, of the sweep over
#: capacities, and of other streams.
DOCUMENT_FIGURES: Final = (
    *("by_read", "by_record", "duplication", "copies_per_record", "cached_share", "written_share"),
)
SWEEP_FIGURES: Final = ("by_read", "variance")
CAPACITY_FIGURES: Final = ("by_read", "duplication")
READS_FIGURES: Final = ("by_read",)

#: The pairs of strategies that are compared seed by seed, and the compared figures.
PAIRED: Final = ("all", *NOVEL)
COMPARED: Final = ("by_read", "duplication")


def figures(spark: SparkSession, results: Results) -> Digest:
    """Return the figures of everything in the folder."""
    out = results.out
    kept = read(spark, out / ROWS, _ROWS)
    rows = _with_rates(spark.createDataFrame([], _ROWS) if kept is None else kept).cache()
    document = _document(rows.where("kind = 'document'"))
    pure: Json = {
        "requests": columns(_requests(rows.where("kind = 'requests'"), read(spark, out / SIMULATED, _SIMULATED))),
        "document": columns(document["means"]),
        "differences": columns(document["differences"]),
    }
    reads = _reads(rows.where("kind = 'reads'"))
    pure |= {name: columns(each) for name, each in reads.items()}
    rows.unpersist()
    live = read(spark, out / LIVE, _LIVE)
    if live is None:
        return Digest(pure, {})
    notes: list[Json] = list(results.rows(FACTS))
    facts = notes[-1] | {"note": " ".join(dict.fromkeys(row["note"] for row in notes if row["note"]))} if notes else {}
    return Digest(pure, {"live": columns(_live(live, read(spark, out / DIGESTED, _DIGESTED))), "facts": facts})


def _with_rates(rows: DataFrame) -> DataFrame:
    """Add five figures. The first is the hit rate by read. The second is the mean number of subscribers of a record in
    memory, which is the document's duplication factor. The third is the same mean over all records, where a record
    outside memory counts as 0. The fourth is the share of admitted records. The fifth is the share of records that the
    database gets if a record goes to memory or to the database."""

    def per(one: str, other: str) -> Column:
        return F.when(F.col(other) > 0, F.col(one) / F.col(other)).otherwise(0.0)

    return (
        rows.withColumn("by_read", per("hits", "reads"))
        .withColumn("duplication", per("copies", "cached"))
        .withColumn("copies_per_record", per("copies", "records"))
        .withColumn("cached_share", per("cached", "records"))
        .withColumn("written_share", F.col("written") / F.col("records"))
        .withColumn("reads_in", F.coalesce("reads_in", F.lit(False)))
    )


def _by_seed(rows: DataFrame, keys: Sequence[str], names: Sequence[str]) -> list[Json]:
    """For each key, return the figures of each seed."""
    seeds = F.array_sort(F.collect_list(F.struct("seed", *names))).alias("seeds")
    found = []
    for row in rows.groupBy(*keys).agg(seeds).collect():
        entry = {key: row[key] for key in keys}
        entry["by_seed"] = {each["seed"]: each.asDict() for each in row["seeds"]}
        found.append(entry)
    return sorted(found, key=lambda entry: [(entry[key] is not None, entry[key]) for key in keys])


def _better(ways: Iterable[Json], keys: Sequence[str]) -> list[Json]:
    """For each key, return the way with more hits by read, on average. If two ways are equal, the way without repeated
    admission wins."""
    best: dict[tuple[Any, ...], Json] = {}
    for entry in sorted(ways, key=lambda entry: bool(entry["reads_in"])):
        key = tuple(entry[name] for name in keys)
        if key not in best or round(_mean(entry), 9) > round(_mean(best[key]), 9):
            best[key] = entry
    return list(best.values())


def _mean(entry: Json) -> float:
    return fmean(each["by_read"] for each in entry["by_seed"].values())


def _means(entry: Json, names: Sequence[str]) -> Json:
    """Replace the values of each seed by means and intervals."""
    by_seed = entry["by_seed"].values()
    found = {name: value for name, value in entry.items() if name != "by_seed"} | {"seeds": len(by_seed)}
    for name in names:
        values = [each[name] for each in by_seed if each[name] is not None]
        found[name] = rounded(interval(values)) if values else None
    return found


def _difference(one: Json, other: Json, name: str) -> list[float]:
    """Return the first value minus the second, as a mean and interval over the seeds that both entries have."""
    seeds = sorted(one["by_seed"].keys() & other["by_seed"].keys())
    return rounded(interval([one["by_seed"][seed][name] - other["by_seed"][seed][name] for seed in seeds]))


# The document's experiments


def _document(rows: DataFrame) -> dict[str, list[Json]]:
    world = ("records", "exponent", "returns", "share", "reads_in")
    entries = _by_seed(rows, ("sweep", *world, "policy", "parameters"), (*DOCUMENT_FIGURES, "variance"))
    worlds: dict[tuple[Any, ...], list[Json]] = defaultdict(list)
    for entry in entries:
        if not entry["sweep"] and entry["policy"] in PAIRED:
            worlds[tuple(entry[key] for key in world)].append(entry)
    differences = [
        dict(zip(world, key, strict=True))
        | {"one": one["policy"], "other": other["policy"]}
        | {name: _difference(one, other, name) for name in COMPARED}
        for key, those in worlds.items()
        for one, other in combinations(those, 2)
    ]
    return {"means": [_means(entry, _figures_of(entry)) for entry in entries], "differences": differences}


def _figures_of(entry: Json) -> Sequence[str]:
    """Return the figures of a row that the report shows."""
    if entry["sweep"]:
        return SWEEP_FIGURES
    over_records = entry["share"] in (None, *SHARES) and entry["returns"] == RETURNS
    return DOCUMENT_FIGURES if over_records else CAPACITY_FIGURES


# Requests; records and reads


def _requests(rows: DataFrame, simulated: DataFrame | None) -> list[Json]:
    """Average three hit rates over the seeds: the rate of our policy, the rate of libcachesim, and the rate of our
    policy with a sketch as exact as libcachesim's."""
    keys = ("exponent", "share", "policy")
    rates = rows.withColumn("rate", F.col("hits") / F.col("requests"))
    theirs = ("libcachesim", "narrow")
    if simulated is not None:
        beside = simulated.withColumnRenamed("simulated", "libcachesim")
        rates = rates.join(beside, [*keys, "seed"], "left")
        for name in theirs:
            rates = rates.withColumn(name, F.col(name) / F.col("requests"))
    else:
        for name in theirs:
            rates = rates.withColumn(name, F.lit(None).cast("double"))
    each = F.array_sort(F.collect_list(F.struct("seed", "rate", *theirs)))
    found = []
    for row in rates.groupBy(*keys).agg(each.alias("seeds")).orderBy(*keys).collect():
        entry = {key: row[key] for key in keys} | {"seeds": len(row["seeds"])}
        for name in ("rate", *theirs):
            values = [one[name] for one in row["seeds"] if one[name] is not None]
            entry[name] = rounded(interval(values)) if values else None
        found.append(entry)
    return found


def _reads(rows: DataFrame) -> dict[str, list[Json]]:
    """Average over the seeds. Also return the lead of `owed` over the best other policy: among policies that do not
    know which subscribers have received a record, and among policies that know it. ``over_rules`` has the lead of each
    policy over the document's best rule."""
    stream = ("stream", "away_s", "wishes", "share")
    knows = F.coalesce("told", F.lit(False)) & ~F.col("policy").isin(*OURS, BELADY)
    keys = (*stream, "policy", "knows")
    best = _better(_by_seed(rows.withColumn("knows", knows), (*keys, "reads_in"), READS_FIGURES), keys)
    streams: dict[tuple[Any, ...], list[Json]] = defaultdict(list)
    for entry in best:
        streams[tuple(entry[key] for key in stream)].append(entry)
    ahead, over_rules = [], []
    for key, entries in streams.items():
        facts = dict(zip(stream, key, strict=True))
        ours = [entry for entry in entries if entry["policy"] == OWED]
        for told in (False, True):
            others = [
                entry
                for entry in entries
                if entry["knows"] == told and entry["policy"] not in (*OURS, BELADY, BOUND, CEILING)
            ]
            if ours and others:
                other = max(others, key=_mean)
                difference = _difference(ours[0], other, "by_read")
                ahead.append(facts | {"knows": told, "other": other["policy"], "by_read": difference})
        online = [entry for entry in entries if entry["policy"] in ONLINE and not entry["knows"]]
        rule = max((entry for entry in online if entry["policy"] in NOVEL), key=_mean)
        over_rules += [
            facts | {"policy": entry["policy"], "rule": rule["policy"], "by_read": _difference(entry, rule, "by_read")}
            for entry in online
            if entry["policy"] not in NOVEL
        ]
    return {"reads": [_means(entry, READS_FIGURES) for entry in best], "ahead": ahead, "over_rules": over_rules}


# Real processes


def _live(rows: DataFrame, digested: DataFrame | None) -> list[Json]:
    """Average over the runs that repeat a unit, or differ only in their seed. Latency, throughput and the broker's CPU
    time for a record have intervals."""
    if digested is not None:
        rows = rows.join(digested, "unit", "left")
    else:
        rows = rows.withColumn("latency", F.lit(None).cast("struct<p50_ms: double, p99_ms: double, max_ms: double>"))
    keys = ("kind", "database", "via", "writes", "fetches", "records", "strategy", "capacity")
    figures = {
        "p50_ms": "latency.p50_ms",
        "p99_ms": "latency.p99_ms",
        "hit_rate": "hit_rate",
        "from_database": "from_database",
        "written_share": "written_share",
        "broker_busy": "broker_busy",
        "load_busy": "load_busy",
        "seconds": "seconds",
    }
    ranges = {"latency_ms": "latency_mean_ms", "records_per_s": "records_per_s", "cpu_us": "cpu_us"}
    published = F.col("records") * F.col("rounds")
    table = (
        rows.withColumn("settings", F.to_json("parameters"))
        .withColumn("from_database", F.col("database_reads") / F.col("deliveries"))
        .withColumn("written_share", F.col("written") / published)
        .withColumn("cpu_us", 1e6 * F.col("broker_cpu_s") / published)
        .groupBy(*keys, "settings")
        .agg(
            F.count("*").alias("runs"),
            *(F.round(F.avg(column), 5).alias(name) for name, column in figures.items()),
            *(F.array_sort(F.collect_list(column)).alias(name) for name, column in ranges.items()),
            *(F.round(F.avg(F.col("parts")[name]["mean_ms"]), 5).alias(f"{name}_ms") for name in PARTS),
        )
        .orderBy(*keys, "settings")
    )
    found = []
    for row in table.collect():
        entry = row.asDict()
        entry["parameters"] = " ".join(orjson.loads(entry.pop("settings")).values())
        entry |= {name: rounded(interval(entry[name])) if entry[name] else None for name in ranges}
        found.append({name: value for name, value in entry.items() if value is not None or name == "capacity"})
    return found
