"""Judge the document's findings about hits, copies and parameters by our figures, and list all its findings.

Owns: the choice of figures for each of these findings. Must never: make markup, or do I/O.

The document prints no numbers with its charts, so only its sentences can be compared with our figures. The document
does not say how much memory there is, or what happens to a record that a subscriber missed. So this module judges each
finding without a limit, and with bounded memory by each reading. `timings` judges the findings about time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from ingeborg.bench.caching import timings
from ingeborg.bench.caching.cases import SWEEP_SHARE
from ingeborg.bench.caching.found import FETCHED, MISSED, STRATEGIES, Found, Json, Rate
from ingeborg.bench.caching.judging import (
    EQUAL,
    FAILS,
    HOLDS,
    NOISE,
    Claim,
    Verdicts,
    by_verdict,
    falls,
    ms,
    one_seed,
    over,
    points,
    room,
    sign,
)
from ingeborg.bench.caching.policies.named import NOVEL

SIMILAR: Final = 0.1
"""Largest relative difference of two duplication factors that count as similar."""

UNLIMITED: Final = "unlimited memory"

NOT_JUDGED: Final = {
    "Scalability with respect to publishers.": "No run changes the number of publishers: the document gives no figure "
    "for it, and the broker sees one stream of records.",
    "High availability and fault tolerance, inherently provided by Kafka.": "No run ends Kafka or the broker. If a "
    "record goes to memory or to the database, a broker that ends loses the records that only its memory has, unless "
    "it reads them from Kafka again.",
}
"""Sentences of the document that no figure can judge, with the reason."""

Judge = Callable[[int, float | None, bool], str]
"""A verdict for a number of records, a room and a reading of bounded memory."""


def judged(found: Found) -> list[Claim]:
    """Return the findings that have figures, in the order of the experiments."""
    claims = [_hits(found), _copies(found), timings.latency(found), timings.throughput(found)]
    claims += [_threshold(found), _mean(found), _buffer(found), timings.database(found)]
    return [claim for claim in claims if claim.verdicts]


# Experiments 1 and 2: hits, duplication


def _readings(found: Found, judge: Judge, before: str = "") -> Verdicts:
    """Judge without a limit, and for both readings of bounded memory. Rooms with equal verdicts share a line."""
    verdicts: Verdicts = []
    records = [number for number in found.records if found.document(number, "buffer")]
    if records:
        note = one_seed(found.document(number, "buffer") for number in records)
        verdicts.append((f"{before}{UNLIMITED}{note}", over(judge(number, None, False) for number in records)))
    for again, reading in MISSED.items():
        rooms = []
        for share in found.capacities(again=again):
            numbers = [number for number in found.records if found.document(number, "buffer", share, again=again)]
            note = one_seed(found.document(number, "buffer", share, again=again) for number in numbers)
            rooms.append((f"{room(share)}{note}", over(judge(number, share, again) for number in numbers)))
        verdicts += by_verdict(rooms, lambda names, reading=reading: f"{before}{names}, {reading}")  # type: ignore[misc]
    return verdicts


def _rates(
    found: Found, what: str, form: str, share: float | None, *, again: bool = False, exponent: float = 1.0
) -> str:
    """Return the strategies' rates with the largest number of records."""
    texts = []
    for name in STRATEGIES[1:]:
        row = found.document(found.most, name, share, again=again, exponent=exponent)
        if row is not None:
            texts.append(f"{name} {row[what][0]:{form}}")
    return ", ".join(texts)


def _listed_rates(found: Found, what: str, form: str) -> list[str]:
    """Return the strategies' rates without a limit, and for each room of each reading."""
    texts = [f"{UNLIMITED}: {_rates(found, what, form, None)}"]
    for again, reading in MISSED.items():
        texts += [
            f"{room(share)}, {reading}: {_rates(found, what, form, share, again=again)}"
            for share in found.capacities(again=again)
            if share in (0.1, 0.01)
        ]
    return [f"{text}, with {found.most:,} records" for text in texts if not text.endswith(": ")]


def _hits(found: Found) -> Claim:
    def judge(number: int, share: float | None, again: bool) -> str:
        return over(
            sign(found.difference(number, "buffer", other, "by_read", share, again=again)) for other in NOVEL[:2]
        )

    even = _rates(found, "by_read", ".3f", None, exponent=0.0)
    return Claim(
        1,
        "Buffer has consistently the best hit rate, except for unlimited caching.",
        _readings(found, judge),
        [*_listed_rates(found, "by_read", ".3f"), *_leads(found), *_returns(found)],
        "Threshold's hit rate by read is μ/(λ+μ) for any stream, because admitted records raise the threshold, and "
        "refused records lower it. Buffer admits a record if it has more subscribers than the previous record. Mean "
        "admits it if it has more than the last three records on average."
        + (f" Hit rates with equally popular kinds, apart from chance: {even}." if even else "")
        + " With bounded memory, LRU evicts, because the slides name no eviction. If missed records ask for admission "
        "again, the rules see other records, and each read is a new chance for a record.",
    )


def _leads(found: Found) -> list[str]:
    """Describe buffer's lead over mean for each number of records, with each room of experiment 1."""
    rooms = [(None, False), *((share, again) for again in MISSED for share in (0.1, 0.01))]
    texts = []
    for share, again in rooms:
        leads = {
            number: difference
            for number in found.records
            if (difference := found.difference(number, "buffer", "mean", "by_read", share, again=again)) is not None
        }
        if leads:
            name = UNLIMITED if share is None else f"{room(share)}, {MISSED[again]}"
            each = ", ".join(f"{number:,} {points(lead)}" for number, lead in leads.items())
            texts.append(f"buffer's lead over mean in points, by records, {name}: {each}")
    return texts


def _returns(found: Found) -> list[str]:
    """Describe buffer's lead over mean if subscribers return more or less often than the default."""
    texts = []
    for returns in (5.0, 80.0):
        for share in (0.1, 0.01):
            lead = found.difference(found.most, "buffer", "mean", "by_read", share, returns=returns)
            if lead is not None:
                texts.append(f"{room(share)} and {returns:g} returns {points(lead)}")
    return [f"buffer's lead over mean in points, {MISSED[False]}, by returns: {', '.join(texts)}"] if texts else []


def _copies(found: Found) -> Claim:
    def most(number: int, share: float | None, again: bool) -> str:
        return over(
            sign(found.difference(number, one, other, "duplication", share, again=again))
            for one in NOVEL[:2]
            for other in ("buffer", "all")
        )

    def alike(number: int, share: float | None, again: bool) -> str:
        one, other = (found.document(number, name, share, again=again) for name in NOVEL[:2])
        if one is None or other is None:
            return EQUAL
        high, low = sorted((one["duplication"][0], other["duplication"][0]), reverse=True)
        return HOLDS if high - low <= SIMILAR * high else FAILS

    return Claim(
        2,
        "Threshold and mean consistently have similar duplication factors, and the greatest ones.",
        [*_readings(found, most, "the greatest: "), *_readings(found, alike, "similar: ")],
        [
            *(f"mean subscribers of a record in memory, {text}" for text in _listed_rates(found, "duplication", ".1f")),
            f"copies per record, over all records, {UNLIMITED}: {_rates(found, 'copies_per_record', '.1f', None)}",
        ],
        "A strategy that admits only the few records with many subscribers has a greater factor. Factors count as "
        f"similar if they differ by at most {SIMILAR:.0%}.",
    )


# Experiments 5 to 7: parameters


def _numbers(parameters: str) -> list[float]:
    return [float(value) for value in parameters.split()]


def _swept_latencies(found: Found, strategy: str, only: str = "") -> dict[str, dict[str, Json]]:
    """Return latencies by their parameters, for each reading of how subscribers fetch."""
    latencies = {}
    for fetches, reading in FETCHED.items():
        rows = sorted(found.measured_sweep(strategy, fetches).items(), key=lambda item: _numbers(item[0]))
        if rows:
            latencies[reading] = {name: row for name, row in rows if name.startswith(only)}
    return latencies


def _swept_rates(found: Found, strategy: str, only: str = "") -> dict[str, dict[str, Rate]]:
    """Return hit rates by their parameters, for each reading."""
    readings: list[tuple[str, float | None, bool]] = [(UNLIMITED, None, False)]
    readings += [(f"{room(SWEEP_SHARE)}, {reading}", SWEEP_SHARE, again) for again, reading in MISSED.items()]
    rates = {}
    for reading, share, again in readings:
        rows = sorted(found.sweep(strategy, share, again=again).items(), key=lambda item: _numbers(item[0]))
        if rows:
            note = one_seed(row for _, row in rows)
            rates[reading + note] = {name: row["by_read"] for name, row in rows if name.startswith(only)}
    return rates


def _falling(rows: Sequence[Json]) -> str:
    """Return whether the latency falls. Only the database's part can depend on the parameters. If this part changes by
    less than the noise, all other changes are chance."""
    parts = [float(row["database_ms"]) for row in rows]
    values: list[Rate] = [(row["latency_ms"][0], row["latency_ms"][1]) for row in rows]
    return EQUAL if max(parts) - min(parts) <= NOISE * min(mean for mean, _ in values) else falls(values)


def _swept(
    rates: Mapping[str, Mapping[str, Rate]], latencies: Mapping[str, Mapping[str, Json]], *, rises: bool = False
) -> Verdicts:
    """Judge hit rates and latencies. By the document, the hit rate falls over the parameters and the latency rises, or,
    with ``rises``, the other way round."""
    step = -1 if rises else 1
    verdicts = [(f"hit rate, {reading}", falls(list(each.values())[::step])) for reading, each in rates.items()]
    return verdicts + [
        (f"latency, {reading}", _falling(list(each.values())[::-step])) for reading, each in latencies.items()
    ]


def _said(
    parameters: str,
    rates: Mapping[str, Mapping[str, Rate]],
    latencies: Mapping[str, Mapping[str, Json]],
    shown: Callable[[str], bool] = lambda _: True,
) -> list[str]:
    said = []
    for reading, each in rates.items():
        listed = ", ".join(f"({name}) {rate[0]:.3f}" for name, rate in each.items() if shown(name))
        said.append(f"hit rate by {parameters}, {reading}: {listed}")
    for reading, rows in latencies.items():
        reading_ms = [row["database_ms"] for row in rows.values()]
        whole = ", ".join(f"({name}) {ms(row['latency_ms'][0])}" for name, row in rows.items())
        said.append(f"latency, {reading}: {whole}; the database's part {ms(min(reading_ms))} to {ms(max(reading_ms))}")
    return said


def _threshold(found: Found) -> Claim:
    rates = _swept_rates(found, "threshold")
    latencies = _swept_latencies(found, "threshold")
    off = max(
        (abs(row["by_read"][0] - _numbers(name)[1]) for name, row in found.sweep("threshold").items()),
        default=0.0,
    )
    return Claim(
        5,
        "Threshold's latency is lowest if μ ≫ λ, and increases towards λ ≫ μ.",
        _swept(rates, latencies),
        _said("λ μ", rates, latencies, lambda name: name[:3] in ("0.1", "0.3", "0.5", "0.7", "0.9")),
        "Without a limit, the hit rate is μ/(λ+μ) by construction, because the threshold rises by λu with each "
        "admitted record, falls by μu with each refused record, and returns to its start. Measured rates are at most "
        f"{off:.3f} off.",
    )


def _mean(found: Found) -> Claim:
    rates, latencies = _swept_rates(found, "mean"), _swept_latencies(found, "mean")
    return Claim(
        6,
        "Mean's latency falls as the batch grows, which implies a higher hit rate.",
        _swept(rates, latencies, rises=True),
        _said("batch", rates, latencies),
        "The record that ends a batch belongs to that batch. So a batch of 1 compares each record with itself, and "
        "admits no record. Until the first batch is full, the threshold is 0, which admits all records. So a batch as "
        "large as the stream is unlimited caching. In between, the hit rate is not monotone. A mean of two or three "
        "records varies, and more records exceed it than a mean of a hundred, which is above most records.",
    )


def _buffer(found: Found) -> Claim:
    rates = _swept_rates(found, "buffer", "0.7 ")
    latencies = _swept_latencies(found, "buffer", "0.7 ")
    rows = found.sweep("buffer")
    ones = {name: row for name, row in rows.items() if abs(sum(_numbers(name)) - 1) < 1e-9}
    same = [row["by_read"][0] for row in ones.values()]
    fixed = {name: row["variance"] for name, row in rows.items() if name.startswith("0.7 ")}
    whole = {name: row["variance"] for name, row in sorted(ones.items(), key=lambda item: _numbers(item[0])[1])}
    verdicts = _swept(rates, latencies)
    said = _said("γ α, γ = 0.7", rates, latencies)
    for reading, variances in (("γ = 0.7", fixed), ("γ + α = 1", whole)):
        if variances:
            # A small weight reduces the variance: the variance must rise with α.
            verdicts.append((f"variance, {reading}", falls(list(variances.values())[::-1])))
            listed = ", ".join(f"({name}) {value[0]:.2f}" for name, value in variances.items())
            said.append(f"variance of the threshold, relative to that of u, {reading}: {listed}")
    return Claim(
        7,
        "Buffer's latency is lower if the threshold includes a small portion of the previous value, which reduces the "
        "variance.",
        verdicts,
        said,
        "u > γu + αu_prev is the same as u > α/(1−γ) u_prev, so only this quotient decides. With γ fixed, a small α "
        "admits more records. All pairs with γ + α = 1 give one result, so there is nothing to optimise. The variance "
        "of the threshold is γ² + α² times that of u, because consecutive records are independent. It decides nothing."
        + (f" Hit rates of the {len(same)} pairs are from {min(same):.4f} to {max(same):.4f}." if same else ""),
    )
