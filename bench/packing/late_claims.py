"""Judge the document's sentences about latencies (section VI-C) by our figures.

Owns: the choice of figures for each sentence. Must never: make markup, or do I/O.

The document computes these figures for a single stream. So each figure is judged twice: for the mean over our streams,
and for their range, into which the document's stream should fall. The document counts latency samples, and this project
counts bytes. Every algorithm reads the same bytes, so the share of late data ranks the algorithms in the same way as
the number of late samples.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Final

from ingeborg.bench.experiments.figures import percent, together, verdict
from ingeborg.bench.packing import latency
from ingeborg.bench.packing.found import Found, Json, Values
from ingeborg.bench.text.blocks import HOLDS, Claim, Verdict

P90: Final = latency.PERCENTILES.index(0.9)

#: The document's figures: the number of consumers of MWF, the 90th percentile of its late data in seconds, and the same
#: percentile for equal shares, by their number of consumers.
CONSUMERS: Final = 15.0
MWF_S: Final = 4.52
EQUAL_S: Final = {15: 217.0, 24: 2.70, 30: 1.11, 31: 0.0, 32: 0.0}

#: The numbers of consumers with which equal shares leave less data late than MWF does, in the document.
BETTER: Final = (24, 30, 31, 32)

#: The latest data with 27 consumers, in seconds.
MOST_27_S: Final = 40.0

#: Equal shares need this share of additional consumers to be as good as MWF.
MORE: Final = 0.6

#: A smaller relative difference of two latencies does not matter.
NOISE: Final = 0.05

MEAN, RANGE = "mean of the streams", "range of the streams"


def judged(found: Found) -> list[Claim]:
    """Return the sentences in the document's order, or nothing if the digest has no latencies."""
    rows = found.latency
    if not {"MWF", "kd_27", *(f"kd_{number}" for number in EQUAL_S)} <= rows.keys():
        return []
    return [*_printed(rows), _better(rows), _equal(rows), _more_needed(rows), _unreliable(rows)]


def _equal_shares(rows: Mapping[str, Json]) -> list[tuple[int, Json]]:
    """Return the rows of equal shares by their number of consumers."""
    each = [(int(name.removeprefix("kd_")), row) for name, row in rows.items() if name.startswith("kd_")]
    return sorted(each, key=lambda pair: pair[0])


def _p90_s(row: Json) -> Values:
    """Return the 90th percentile of late data. It is 0 if no data is late."""
    if row["over_positive"] is None:
        return (0.0, 0.0, 0.0, 0.0)
    mean, half, least, most = row["over_positive"][P90]
    return (mean, half, 0.0 if row["with_late"] < row["seeds"] else least, most)


def _verdicts(values: Values, printed: float) -> list[Verdict]:
    """Return the two verdicts on a printed figure."""
    mean, _, least, most = values
    near = abs(mean - printed) <= NOISE * max(abs(mean), abs(printed))
    within = least * (1 - NOISE) <= printed <= most * (1 + NOISE)
    return [Verdict(MEAN, verdict(near)), Verdict(RANGE, verdict(within))]


def _seconds(values: Values) -> str:
    mean, _, least, most = values
    return f"{mean:,.2f} s on average ({least:,.2f} to {most:,.2f} s)"


def _printed(rows: Mapping[str, Json]) -> list[Claim]:
    """Return the sentences with one printed figure."""
    why = (
        f"The figure follows from the assumed pause of {latency.PAUSE_S:g} s: the latency after a move falls evenly "
        "to 0, so its 90th percentile is 0.9 times the pause for every algorithm that moves anything."
    )
    mwf, p90_s, most_s = rows["MWF"], _p90_s(rows["MWF"]), rows["kd_27"]["most"]
    mean, half, least, most = mwf["consumers"]
    return [
        Claim(
            "VI-C",
            "MWF needs 15 consumers on average.",
            _verdicts(mwf["consumers"], CONSUMERS),
            [f"{mean:.1f} ± {half:.1f} consumers; the streams need {least:.1f} to {most:.1f}"],
            "The number follows from the load of the stream.",
        ),
        Claim(
            "VI-C",
            "The 90th percentile of MWF's late data is 4.52 s.",
            _verdicts(p90_s, MWF_S),
            [f"{_seconds(p90_s)}; {percent(mwf['late'])} of the data is late"],
            why,
        ),
        Claim(
            "VI-C",
            "With 27 consumers that have equal numbers of partitions, data is up to 40 s late.",
            _verdicts(most_s, MOST_27_S),
            [f"the latest data of a stream: {_seconds(most_s)}"],
            "The pairs of partitions are random. An overloaded consumer falls behind until the stream ends.",
        ),
    ]


def _better(rows: Mapping[str, Json]) -> Claim:
    claimed, seeds, shares = rows["MWF"]["late"], rows["MWF"]["seeds"], _equal_shares(rows)
    better = [number for number, row in shares if row["late"][0] < claimed[0]]
    counts = {number: row["less_late_than_claimed"] for number, row in shares}
    each = all(count == (seeds if number in BETTER else 0) for number, count in counts.items())
    some = ", ".join(f"{number}: {count}" for number, count in counts.items() if count)
    return Claim(
        "VI-C",
        "Only equal shares with 24, 30, 31 and 32 consumers have fewer late samples than MWF.",
        [
            Verdict(MEAN, verdict(better == list(BETTER))),
            Verdict(f"each of {seeds} streams", verdict(each)),
        ],
        [
            "on average, equal shares leave less data late than MWF with "
            f"{', '.join(map(str, better)) or 'no number of'} consumers ({percent(claimed)} with MWF)",
            f"number of streams, of {seeds}, in which equal shares are better, by consumers: {some}",
        ],
        "Which numbers of consumers are better depends on the random pairs of partitions. With one consumer for each "
        "partition, none is overloaded.",
    )


def _equal(rows: Mapping[str, Json]) -> Claim:
    found = {number: _p90_s(rows[f"kd_{number}"]) for number in EQUAL_S}
    each = [_verdicts(found[number], printed) for number, printed in EQUAL_S.items()]
    texts = [
        f"{number} consumers, {printed:g} s in the document: {_seconds(found[number])}"
        for number, printed in EQUAL_S.items()
    ]
    if claimed := _p90_s(rows["MWF"])[0]:
        times = found[15][0] / claimed
        texts.append(f"with 15 consumers, {times:,.0f} times that of MWF; in the document, 48 times")
    return Claim(
        "VI-C",
        "The 90th percentile of late data is 217, 2.70, 1.11, 0 and 0 s with equal shares for 15, 24, 30, 31 and 32 "
        "consumers.",
        [Verdict(both[0].reading, together(one.verdict == HOLDS for one in both)) for both in zip(*each, strict=True)],
        texts,
        "An overloaded consumer falls behind until the stream ends, so the figure grows with the length of the stream "
        "and depends on its load. Means and ranges of seconds cover the streams with late data.",
    )


def _more_needed(rows: Mapping[str, Json]) -> Claim:
    claimed = rows["MWF"]
    readings: dict[str, Callable[[Json], bool]] = {
        "share of late data": lambda row: row["late"][0] < claimed["late"][0],
        "90th percentile of late data": lambda row: _p90_s(row)[0] < _p90_s(claimed)[0],
    }
    verdicts, texts = [], []
    for reading, is_better in readings.items():
        fewest = min((number for number, row in _equal_shares(rows) if is_better(row)), default=None)
        if fewest is None:
            texts.append(f"{reading}: no number of consumers suffices")
            continue
        more = fewest / claimed["consumers"][0] - 1.0
        verdicts.append(Verdict(reading, verdict(more >= MORE)))
        texts.append(f"{reading}: equal shares need {fewest} consumers, {more:.0%} more than MWF")
    return Claim(
        "Abstract",
        "Equal shares have lower latencies than MWF only with at least 60 % more consumers.",
        verdicts,
        texts,
        "Judged by the means over the streams.",
    )


def _unreliable(rows: Mapping[str, Json]) -> Claim:
    shares = _equal_shares(rows)
    verdicts, texts = [], []
    for what, name in (("late", "share of late data"), ("p90", "90th percentile of late data")):
        worse = {number: row["worse_than_one_fewer"][what] for number, row in shares if row.get("worse_than_one_fewer")}
        if worse:
            steps, seeds = sum(worse.values()), rows["MWF"]["seeds"] * len(worse)
            verdicts.append(Verdict(f"{name}, each stream", verdict(steps)))
            texts.append(f"{name}: one more consumer makes it worse in {steps} of {seeds} steps ({steps / seeds:.0%})")
    means = [row["late"][0] for _, row in shares]
    rises = sum(later > earlier for earlier, later in pairwise(means))
    verdicts.append(Verdict(f"share of late data, {MEAN}", verdict(rises)))
    texts.append(f"the mean share of late data rises at {rises} of {len(means) - 1} steps from 1 to {shares[-1][0]}")
    return Claim(
        "VI-C",
        "More consumers do not reliably improve latencies if partitions are shared by their number.",
        verdicts,
        texts,
        "A step from k to k + 1 consumers makes other random pairs of partitions. On average over many streams more "
        "consumers help; in a single stream they can do harm.",
    )
