"""Judge the document's seven findings by our figures.

Owns: the choice of figures for each finding. Must never: make markup, or do I/O.

The document prints no numbers with its charts, so only its sentences can be compared with our figures. The document
does not say how much memory there is. So this module judges each finding about hit rates three times: without a limit,
and with 10 % and 1 % of the bytes of all records. It judges each finding about time for every set-up that was measured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

from ingeborg.bench.caching.found import NOVEL, PLACES, ROOMS, STRATEGIES, Found, Rate
from ingeborg.bench.caching.live.cases import LATENCY, THROUGHPUT

Json = Mapping[str, Any]

NOISE: Final = 0.05
"""A smaller relative difference of two latencies or throughputs does not matter."""

SIMILAR: Final = 0.1
"""Largest relative difference of two duplication factors that count as similar."""

HOLDS, FAILS, EQUAL = "holds", "does not hold", "within noise"


@dataclass(frozen=True)
class Claim:
    """A finding of the document, with a verdict for each reading, the figures behind the verdicts, and the reason."""

    number: int
    text: str
    verdicts: list[tuple[str, str]]
    found: list[str]
    why: str


def room(share: float | None) -> str:
    """Return the name of this room on a page."""
    return "unbounded" if share is None else f"{share:.0%}"


def ms(value: float | None) -> str:
    """Format a time in milliseconds."""
    if value is None:
        return "–"
    return f"{1e3 * value:,.0f} µs" if value < 1 else f"{value:,.1f} ms"


def judged(found: Found) -> list[Claim]:
    """Return the findings that have figures, in the order of the experiments."""
    claims = [_hits(found), _copies(found), _latency(found), _throughput(found)]
    claims += [_threshold(found), _mean(found), _buffer(found)]
    return [claim for claim in claims if claim.verdicts]


def _over(verdicts: Iterable[str]) -> str:
    """Combine the verdicts for several numbers of records. The finding fails if it fails for at least one number, and
    holds if it holds for every number."""
    each = list(verdicts)
    return FAILS if FAILS in each else EQUAL if EQUAL in each else HOLDS


def _sign(difference: Rate | None) -> str:
    """Return whether the first of two values is greater than the second. ``difference`` is the first minus the
    second."""
    if difference is None:
        return EQUAL
    mean, half = difference
    return HOLDS if mean - half > 0 else FAILS if mean + half < 0 else EQUAL


# Experiments 1 and 2: hits, duplication


def _largest(found: Found) -> int:
    return max(found.records, default=0)


def _rates(found: Found, what: str, form: str, share: float | None, exponent: float = 1.0) -> str:
    """Return the strategies' rates, which are from the experiments with the greatest number of records."""
    texts = []
    for name in STRATEGIES[1:]:
        row = found.document(_largest(found), name, share, exponent)
        if row is not None:
            texts.append(f"{name} {row[what][0]:{form}}")
    return ", ".join(texts)


def _hits(found: Found) -> Claim:
    verdicts, texts = [], []
    for share in ROOMS:
        records = [number for number in found.records if found.document(number, "buffer", share)]
        if records:
            each = [
                _sign(found.difference(number, "buffer", other, "by_read", share))
                for number in records
                for other in NOVEL[:2]
            ]
            verdicts.append((room(share), _over(each)))
            texts.append(f"{room(share)}: {_rates(found, 'by_read', '.3f', share)}")
    even = _rates(found, "by_read", ".3f", None, 0.0)
    lead = _leads(found)
    return Claim(
        1,
        "Buffer has consistently the best hit rate, except for unlimited caching.",
        verdicts,
        [f"hit rate by read with {_largest(found):,} records, {text}" for text in texts],
        "Threshold's hit rate by read is μ/(λ+μ) for any stream, because admitted records raise the threshold, and "
        "refused records lower it. Buffer admits a record if it has more subscribers than the previous record. Mean "
        f"admits it if it has more than the last three records on average.{lead}"
        + (f" Hit rates with equally popular kinds, apart from chance: {even}." if even else "")
        + " If not all records fit, LRU decides which records stay, and a rule can only keep records out.",
    )


def _leads(found: Found) -> str:
    """Describe buffer's lead over mean for each number of records."""
    parts = []
    for number in found.records:
        difference = found.difference(number, "buffer", "mean", "by_read")
        if difference is not None:
            parts.append(f"{100 * difference[0]:+.1f} ± {100 * difference[1]:.1f}")
    return (
        f" Buffer's lead over mean, {found.records[0]:,} to {found.records[-1]:,} records: {', '.join(parts)} points."
    )


def _copies(found: Found) -> Claim:
    verdicts = []
    records = [number for number in found.records if found.document(number, "threshold")]
    if records:
        most = _over(
            _sign(found.difference(number, one, other, "duplication"))
            for number in records
            for one in NOVEL[:2]
            for other in ("buffer", "all")
        )
        alike = _over(HOLDS if _alike(found, number) else FAILS for number in records)
        verdicts = [("the greatest", most), ("similar", alike)]
    return Claim(
        2,
        "Threshold and mean consistently have similar duplication factors, and the greatest ones.",
        verdicts,
        [
            f"mean subscribers of a record in memory, with {_largest(found):,} records: "
            f"{_rates(found, 'duplication', '.1f', None)}",
            f"copies per record, over all records: {_rates(found, 'copies_per_record', '.1f', None)}",
        ],
        "A strategy that admits only the few records with many subscribers has a greater factor. Threshold admits "
        "the fewest records. The factor does not depend on the room, because a rule does not know the room. In the "
        "document's slides, threshold writes every record to the database, and mean and buffer write only the records "
        "that they do not keep. Here all strategies write all records.",
    )


def _alike(found: Found, records: int) -> bool:
    one, other = (found.document(records, name) for name in NOVEL[:2])
    if one is None or other is None:
        return False
    high, low = sorted((one["duplication"][0], other["duplication"][0]), reverse=True)
    return bool(high - low <= SIMILAR * high)


# Experiments 3 and 4: latency, throughput


def _latency(found: Found) -> Claim:
    verdicts, texts = [], []
    parts: list[str] = []
    for place in PLACES:
        pairs = {}
        for records in found.measured_records(LATENCY, place):
            none, everything = (found.measured(LATENCY, records, name, None, place) for name in ("none", "all"))
            if none is not None and everything is not None:
                pairs[records] = (none, everything)
        if not pairs:
            continue
        last = pairs[max(pairs)]
        verdicts.append((place, _slower(*last)))
        parts += [HOLDS if one["database_ms"] > other["database_ms"] else FAILS for one, other in pairs.values()]
        beside = ", ".join(f"{records:,}: × {one['latency_ms'] / other['latency_ms']:.3f}" for records, (one, other)
                           in pairs.items())  # fmt: skip
        whole, reading, writing = (
            " and ".join(ms(row[name]) for row in last) for name in ("latency_ms", "database_ms", "writing_ms")
        )
        texts.append(
            f"{place}: latency of none divided by that of all, by records, {beside}; with {max(pairs):,}, none and all "
            f"take {whole}, the database's reads {reading}, and its writes {writing}"
        )
    return Claim(
        3,
        "Latency is greatest without a cache, above all with many records; with few, the difference is negligible.",
        [*verdicts, ("the database's part", _over(parts))] if verdicts else [],
        texts,
        "Subscribers poll twice a second, as Kafka's consumers can, so a record waits a quarter of a second for "
        "a subscriber, on average. A read of LMDB takes microseconds, so no strategy can change the latency visibly. A "
        "read of Riak is a request over the network. If every delivery needs a read, writes wait for reads as well."
        f"{_again(found)}",
    )


def _again(found: Found) -> str:
    repeats = found.repeats
    if not repeats:
        return ""
    most = max(abs(one / other - 1) for one, other in repeats)
    return f" Two runs of the same unit differ by up to {most:.1%}."


def _slower(one: Json, other: Json) -> str:
    """Return whether the first latency is higher. Only the database's part, which also includes writes that wait for
    reads, can depend on the strategy. So a difference counts as chance if less than half of it comes from this part."""
    database_ms, other_ms = (row["database_ms"] + row["writing_ms"] for row in (one, other))
    if abs(database_ms - other_ms) < abs(one["latency_ms"] - other["latency_ms"]) / 2:
        return EQUAL
    ratio = one["latency_ms"] / other["latency_ms"]
    return HOLDS if ratio > 1 + NOISE else EQUAL if ratio >= 1 - NOISE else FAILS


def _throughput(found: Found) -> Claim:
    verdicts, texts = [], []
    for place in PLACES:
        records = found.measured_records(THROUGHPUT, place)
        if not records:
            continue
        rows = {name: found.measured(THROUGHPUT, records[-1], name, None, place) for name in STRATEGIES[:-1]}
        known = {name: row for name, row in rows.items() if row is not None}
        if "all" not in known or len(known) < 2:
            continue
        other = max((name for name in known if name != "all"), key=lambda name: float(known[name]["records_per_s"]))
        verdicts.append((place, _faster(known["all"], known[other])))
        each = ", ".join(f"{name} {_per_s(row)}" for name, row in known.items())
        texts.append(f"{place}, records/s with {records[-1]:,} records: {each}")
    return Claim(
        4,
        "Throughput is greatest with unlimited caching, above all with many records.",
        verdicts,
        texts,
        "The broker writes every record to the database, cached or not, and hands each subscriber all its records. "
        "This work is the same for all strategies. A hit only saves a look-up in LMDB, which takes a few microseconds "
        "for a batch of reads. The slowest and the fastest run are in brackets. A single run proves nothing.",
    )


def _per_s(row: Json) -> str:
    text = f"{row['records_per_s']:,.0f}"
    return text if row["runs"] == 1 else f"{text} ({row['slowest_per_s']:,.0f} … {row['fastest_per_s']:,.0f})"


def _faster(one: Json, other: Json) -> str:
    """Return whether the first unit is certainly faster. For this, there must be several runs of both units, and the
    slowest run of the first unit must be faster than the fastest run of the other unit."""
    if min(one["runs"], other["runs"]) == 1:
        return EQUAL
    if one["slowest_per_s"] > other["fastest_per_s"] and one["records_per_s"] > (1 + NOISE) * other["records_per_s"]:
        return HOLDS
    if one["fastest_per_s"] < other["slowest_per_s"] and other["records_per_s"] > (1 + NOISE) * one["records_per_s"]:
        return FAILS
    return EQUAL


# Experiments 5 to 7: parameters


def _falls(values: Sequence[float]) -> str:
    """Return whether each value is less than the previous value, or whether all are about equal."""
    if not values or max(values) - min(values) <= NOISE * max(values):
        return EQUAL
    return HOLDS if all(one > other for one, other in pairwise(values)) else FAILS


def _latencies(found: Found, strategy: str, parameters: Callable[[str], bool] = lambda _: True) -> dict[str, Json]:
    rows = sorted(found.measured_sweep(strategy).items(), key=lambda item: _numbers(item[0]))
    return {name: row for name, row in rows if parameters(name)}


def _numbers(parameters: str) -> list[float]:
    return [float(value) for value in parameters.split()]


def _falling(rows: Sequence[Json]) -> str:
    """Return whether the latency falls. Only the database's part can depend on the parameters. If this part changes by
    less than the noise, all other changes are chance."""
    parts = [float(row["database_ms"]) for row in rows]
    values = [float(row["latency_ms"]) for row in rows]
    return EQUAL if max(parts) - min(parts) <= NOISE * min(values) else _falls(values)


def _swept(rates: Sequence[float], latencies: Sequence[Json]) -> list[tuple[str, str]]:
    """Judge hit rates and latencies. The caller passes them in an order in which, according to the document, the hit
    rate falls and the latency rises."""
    verdicts = [("hit rate", _falls(rates))] if rates else []
    return [*verdicts, *([("latency", _falling(latencies[::-1]))] if latencies else [])]


def _listed(values: Mapping[str, float], form: str, unit: str = "") -> str:
    return ", ".join(f"({name}) {value:{form}}{unit}" for name, value in values.items())


def _means(rows: Mapping[str, Json]) -> dict[str, float]:
    return {name: float(row["by_read"][0]) for name, row in rows.items()}


def _said(parameters: str, rates: Mapping[str, float], rows: Mapping[str, Json]) -> list[str]:
    said = [f"hit rate by {parameters}: {_listed(rates, '.3f')}"] if rates else []
    if rows:
        whole, reading = ({name: row[key] for name, row in rows.items()} for key in ("latency_ms", "database_ms"))
        part = f"{ms(min(reading.values()))} to {ms(max(reading.values()))}"
        said.append(f"latency: {_listed(whole, '.0f', ' ms')}; the database's part {part}")
    return said


def _threshold(found: Found) -> Claim:
    rates = _means(found.sweep("threshold"))
    latencies = _latencies(found, "threshold")
    shown = {name: rate for name, rate in rates.items() if _numbers(name)[0] in (0.1, 0.3, 0.5, 0.7, 0.9)}
    off = max((abs(rate - _numbers(name)[1]) for name, rate in rates.items()), default=0.0)
    return Claim(
        5,
        "Threshold's latency is lowest if μ ≫ λ, and increases towards λ ≫ μ.",
        _swept(list(rates.values()), list(latencies.values())),
        _said("λ μ", shown, latencies),
        "The hit rate is μ/(λ+μ) by construction, because the threshold rises by λu with each admitted record, falls "
        f"by μu with each refused record, and returns to its start. Measured rates are at most {off:.3f} off.",
    )


def _mean(found: Found) -> Claim:
    rates = dict(sorted(_means(found.sweep("mean")).items(), key=lambda item: int(item[0])))
    latencies = _latencies(found, "mean")
    return Claim(
        6,
        "Mean's latency falls as the batch grows, which means a higher hit rate.",
        _swept(list(rates.values())[::-1], list(latencies.values())[::-1]),
        _said("batch", rates, latencies),
        "The record that ends a batch belongs to that batch. So a batch of 1 compares each record with itself, and "
        "admits no record. Until the first batch is full, the threshold is 0, which admits all records. So a batch as "
        "large as the stream is unlimited caching. In between, the hit rate is not monotone. A mean of two or three "
        "records varies, and more records exceed it than a mean of a hundred, which is above most records.",
    )


def _buffer(found: Found) -> Claim:
    rates = {name: rate for name, rate in _means(found.sweep("buffer")).items() if name.startswith("0.7 ")}
    ones = [rate for name, rate in _means(found.sweep("buffer")).items() if abs(sum(_numbers(name)) - 1) < 1e-9]
    latencies = _latencies(found, "buffer", lambda name: name.startswith("0.7 "))
    same = f" Hit rates of the {len(ones)} pairs are from {min(ones):.4f} to {max(ones):.4f}." if ones else ""
    return Claim(
        7,
        "Buffer's latency is lower if the previous record has only a small weight in the threshold.",
        _swept(list(rates.values()), list(latencies.values())),
        _said("γ α, γ = 0.7", rates, latencies),
        "u > γu + αu_prev is the same as u > α/(1−γ) u_prev, so only this quotient decides. With γ fixed, a small α "
        "admits more records. All pairs with γ + α = 1 give one result, so there is nothing to optimise."
        f"{same}",
    )
