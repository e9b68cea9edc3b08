"""Judge the document's findings about hits, copies and parameters by our figures, and list all its findings.

Owns: the choice of figures for each of these findings. Must never: do I/O.

The document prints no numbers with its charts, so only its sentences can be compared with our figures. The document
does not say how much memory there is, or what happens to a record that a subscriber missed. So this module judges each
finding without a limit, and for each interpretation of bounded memory. `timings` judges the findings about time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from ingeborg.bench.caching import timings
from ingeborg.bench.caching.cases import OTHER_RETURNS, SHARES, SWEEP_SHARE
from ingeborg.bench.caching.found import FETCHED, MISSED, Found, Json, Rate
from ingeborg.bench.caching.judging import SLIGHT, by_verdict, falls, ms, one_seed, over, points, room, sign
from ingeborg.bench.caching.live.cases import STRATEGIES
from ingeborg.bench.caching.policies.named import NOVEL
from ingeborg.bench.text.blocks import FAILS, HOLDS, NOISE, Claim, Verdict

SIMILAR: Final = 0.1
"""Two duplication factors count as similar up to this relative difference."""

UNLIMITED: Final = "unlimited memory"

NOT_JUDGED: Final = (
    "“Scalability with respect to publishers.” No run changes the number of publishers: the document gives no figure "
    "for it, and the broker sees one stream of records.",
    "“High availability and fault tolerance, inherently provided by Kafka.” No run ends Kafka or the broker. If a "
    "record goes to memory or to the database, a broker that ends loses the records that only its memory has, unless "
    "it reads them from Kafka again.",
)
"""Sentences of the document that no figure can judge, with the reason."""

World = tuple[float | None, bool]
"""A room, and whether missed records request admission again."""


def judged(found: Found) -> list[Claim]:
    """Return the findings that have figures, in the document's order."""
    claims = [timings.database(found), _hits(found), _copies(found), timings.latency(found), timings.throughput(found)]
    claims += [_threshold(found), _mean(found), _buffer(found)]
    return [claim for claim in claims if claim.verdicts]


# Experiments 1 and 2: hits, duplication


def _readings(
    found: Found, judge: Callable[[int, World], str], said: Callable[[World], str], before: str = ""
) -> list[Verdict]:
    """Judge without a limit, and for each interpretation of bounded memory. Rooms with equal verdicts share a line."""

    def of(name: str, world: World) -> list[Verdict]:
        numbers = [number for number in found.records if _document(found, number, "buffer", world)]
        note = one_seed(_document(found, number, "buffer", world) for number in numbers)
        verdict = over(judge(number, world) for number in numbers)
        return [Verdict(f"{name}{note}", verdict, said(world))] if numbers else []

    verdicts = of(f"{before}{UNLIMITED}", (None, False))
    for again, reading in MISSED.items():
        rooms = [one for share in found.capacities(again=again) for one in of(room(share), (share, again))]
        verdicts += by_verdict(rooms, lambda names, reading=reading: f"{before}{names}, {reading}")  # type: ignore[misc]
    return verdicts


def _document(found: Found, records: int, policy: str, world: World) -> Json | None:
    return found.document(records, policy, world[0], again=world[1])


def _difference(found: Found, records: int, one: str, other: str, what: str, world: World) -> Rate | None:
    return found.difference(records, one, other, what, world[0], again=world[1])


def _rates(found: Found, what: str, form: str, world: World) -> str:
    """Return the strategies' rates with the largest number of records, as text. The text is empty for rooms that only
    run with that number. It includes the number of seeds, because unlimited memory has more seeds than other rooms."""
    rows = {name: _document(found, found.most, name, world) for name in STRATEGIES[1:]}
    known = {name: row for name, row in rows.items() if row is not None}
    if world[0] not in (None, *SHARES) or not known:
        return ""
    seeds = min(row["seeds"] for row in known.values())
    of = "one seed" if seeds == 1 else f"{seeds} seeds"
    return f"{', '.join(f'{name} {row[what][0]:{form}}' for name, row in known.items())} ({of})"


def _exceptions(found: Found, world: World) -> list[str]:
    """Return the numbers of records with which another rule is certainly better than buffer."""
    texts = []
    for other in NOVEL[:2]:
        numbers = [
            f"{number:,}"
            for number in found.records
            if sign(_difference(found, number, "buffer", other, "by_read", world)) == FAILS
        ]
        if numbers:
            texts.append(f"{other} is ahead of buffer with {', '.join(numbers)} records")
    return texts


def _hits(found: Found) -> Claim:
    def judge(number: int, world: World) -> str:
        return over(sign(_difference(found, number, "buffer", other, "by_read", world)) for other in NOVEL[:2])

    def said(world: World) -> str:
        rates = _rates(found, "by_read", ".3f", world)
        each = {number: _difference(found, number, "buffer", "mean", "by_read", world) for number in found.records}
        leads = [f"{number:,} records {points(lead)}" for number, lead in each.items() if lead is not None]
        lead = f"buffer's lead over mean in points: {', '.join(leads)}" if rates and leads else ""
        return "; ".join(filter(None, (rates, lead, *_exceptions(found, world))))

    returns = [
        f"{room(share)} and {returns:g} returns {points(lead)}"
        for returns in OTHER_RETURNS
        for share in sorted(SHARES, reverse=True)
        if (lead := found.difference(found.most, "buffer", "mean", "by_read", share, returns=returns)) is not None
    ]
    even = [found.document(found.most, name, exponent=0.0) for name in NOVEL]
    texts = [f"{name} {row['by_read'][0]:.3f}" for name, row in zip(NOVEL, even, strict=True) if row is not None]
    return Claim(
        "experiment 1",
        "Buffer consistently has the best hit rate, except for unlimited caching.",
        _readings(found, judge, said),
        [
            *[f"Buffer's lead over mean if {MISSED[False]}, by returns: {', '.join(returns)} points."] * bool(returns),
            *[f"With equally popular kinds, the hit rates are {', '.join(texts)}."] * bool(texts),
        ],
        "Threshold's hit rate by read is μ/(λ+μ) for any stream, because admitted records raise the threshold, and "
        "refused records lower it. Buffer admits a record if it has more subscribers than the previous record. Mean "
        "admits it if it has more than the last three records on average. With bounded memory, LRU evicts, because "
        "the slides name no eviction. If missed records ask for admission again, the rules see other records, and a "
        "record gets a new chance with each read.",
    )


def _copies(found: Found) -> Claim:
    def most(number: int, world: World) -> str:
        return over(
            sign(_difference(found, number, one, other, "duplication", world))
            for one in NOVEL[:2]
            for other in ("buffer", "all")
        )

    def alike(number: int, world: World) -> str:
        one, other = (_document(found, number, name, world) for name in NOVEL[:2])
        if one is None or other is None:
            return NOISE
        high, low = sorted((one["duplication"][0], other["duplication"][0]), reverse=True)
        return HOLDS if high - low <= SIMILAR * high else FAILS

    def said(world: World) -> str:
        return _rates(found, "duplication", ".1f", world)

    copies = _rates(found, "copies_per_record", ".1f", (None, False))
    return Claim(
        "experiment 2",
        "Threshold and mean consistently have similar duplication factors, and the greatest ones.",
        [*_readings(found, most, said, "the greatest: "), *_readings(found, alike, lambda _: "", "similar: ")],
        [f"Copies per record over all records, with {UNLIMITED}: {copies}."] if copies else [],
        "A strategy that admits only the few records with many subscribers has a greater factor. Factors count as "
        f"similar if they differ by at most {SIMILAR:.0%}.",
    )


# Experiments 5 to 7: parameters


def _numbers(parameters: str) -> list[float]:
    return [float(value) for value in parameters.split()]


def _falling(rows: Sequence[Json]) -> str:
    """Return whether the latency falls. Only the database's part of the latency can depend on the parameters. If this
    part changes by less than the noise, all other changes are due to chance."""
    parts = [float(row["database_ms"]) for row in rows]
    values: list[Rate] = [(row["latency_ms"][0], row["latency_ms"][1]) for row in rows]
    return NOISE if max(parts) - min(parts) <= SLIGHT * min(mean for mean, _ in values) else falls(values)


def _swept(
    found: Found,
    strategy: str,
    only: str = "",
    *,
    rises: bool = False,
    shown: Callable[[str], bool] = lambda _: True,
) -> list[Verdict]:
    """Judge hit rates and latencies. According to the document, the hit rate falls over the parameters, and the latency
    rises. With ``rises``, the hit rate rises, and the latency falls."""

    def ordered(rows: Mapping[str, Json]) -> dict[str, Json]:
        chosen = {name: row for name, row in rows.items() if name.startswith(only)}
        return dict(sorted(chosen.items(), key=lambda item: _numbers(item[0])))

    step = -1 if rises else 1
    verdicts = []
    readings: list[tuple[str, float | None, bool]] = [(UNLIMITED, None, False)]
    readings += [(f"{room(SWEEP_SHARE)}, {reading}", SWEEP_SHARE, again) for again, reading in MISSED.items()]
    for reading, share, again in readings:
        rows = ordered(found.sweep(strategy, share, again=again))
        if rows:
            rates: list[Rate] = [row["by_read"] for row in rows.values()]
            each = ", ".join(f"({name}) {row['by_read'][0]:.3f}" for name, row in rows.items() if shown(name))
            verdicts.append(Verdict(f"hit rate, {reading}{one_seed(rows.values())}", falls(rates[::step]), each))
    for fetches, reading in FETCHED.items():
        rows = ordered(found.measured_sweep(strategy, fetches))
        if rows:
            times = [row["database_ms"] for row in rows.values()]
            each = ", ".join(f"({name}) {ms(row['latency_ms'][0])}" for name, row in rows.items())
            said = f"{each}; the database's part {ms(min(times))} to {ms(max(times))}"
            verdicts.append(Verdict(f"latency, {reading}", _falling(list(rows.values())[::-step]), said))
    return verdicts


def _threshold(found: Found) -> Claim:
    rows = found.sweep("threshold").items()
    off = max((abs(row["by_read"][0] - _numbers(name)[1]) for name, row in rows), default=0.0)
    return Claim(
        "experiment 5",
        "Threshold's latency is lowest if μ ≫ λ, and increases towards λ ≫ μ.",
        _swept(found, "threshold", shown=lambda name: name[:3] in ("0.1", "0.3", "0.5", "0.7", "0.9")),
        ["The parameters in brackets are λ and μ."],
        "Without a limit, the hit rate is μ/(λ+μ) by construction, because the threshold rises by λu with each "
        "admitted record, falls by μu with each refused record, and returns to its start. Measured rates are at most "
        f"{off:.3f} off.",
    )


def _mean(found: Found) -> Claim:
    return Claim(
        "experiment 6",
        "Mean's latency falls as the batch grows, which implies a higher hit rate.",
        _swept(found, "mean", rises=True),
        ["The parameter in brackets is the batch."],
        "The record that ends a batch belongs to that batch. So a batch of 1 compares each record with itself, and "
        "admits no record. Until the first batch is full, the threshold is 0, which admits all records. So a batch as "
        "large as the stream is unlimited caching. In between, the hit rate is not monotone. A mean of two or three "
        "records varies, and more records exceed it than a mean of a hundred, which is above most records.",
    )


def _buffer(found: Found) -> Claim:
    rows = found.sweep("buffer")
    ones = {name: row for name, row in rows.items() if abs(sum(_numbers(name)) - 1) < 1e-9}
    same = [row["by_read"][0] for row in ones.values()]
    verdicts = _swept(found, "buffer", "0.7 ")
    fixed = {name: row for name, row in rows.items() if name.startswith("0.7 ")}
    whole = dict(sorted(ones.items(), key=lambda item: _numbers(item[0])[1]))
    for reading, those in (("γ = 0.7", fixed), ("γ + α = 1", whole)):
        if those and all(row.get("variance") for row in those.values()):
            # A small weight reduces the variance: the variance must rise with α.
            variances: list[Rate] = [row["variance"] for row in those.values()]
            listed = ", ".join(f"({name}) {row['variance'][0]:.2f}" for name, row in those.items())
            said = f"relative to that of u {listed}"
            verdicts.append(Verdict(f"variance of the threshold, {reading}", falls(variances[::-1]), said))
    return Claim(
        "experiment 7",
        "Buffer's latency is lower if the threshold includes a small portion of the previous value, which reduces the "
        "variance.",
        verdicts,
        ["The parameters in brackets are γ and α. In the verdicts on hit rates and latencies, γ is 0.7."],
        "u > γu + αu_prev is the same as u > α/(1−γ) u_prev, so only this quotient decides. With γ fixed, a small α "
        "admits more records. All pairs with γ + α = 1 give the same result, so there is nothing to optimise. The "
        "variance of the threshold is γ² + α² times that of u, because consecutive records are independent. It decides "
        "nothing."
        + (f" Hit rates of the {len(same)} pairs are from {min(same):.4f} to {max(same):.4f}." if same else ""),
    )
