"""Judge the document's sentences about its autoscaler and about Kafka's own groups by our figures.

Owns: the choice of figures for each sentence. Must never: make markup, or do I/O.

The document measures sections V and VI-F on its own machines, and computes section VI-C with a model. Here all figures
are measured, and the times of section VI-C are scaled 1:10. The percentiles of the comparison cover all data. The
percentiles of the document cover only late data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

from ingeborg.bench.autoscale.cases import ASSIGNORS, KEDA
from ingeborg.bench.experiments.figures import together, verdict
from ingeborg.bench.text.blocks import Claim, Verdict

Json = Mapping[str, Any]

P50, P90, P99 = range(3)

#: The medians of figure 13 count as one common rate if their ratio is at most ``COMMON``. ``RATE`` is the document's
#: common rate, in bytes per second.
COMMON: Final = 1.25
RATE: Final = 2.3e6
#: The document's times, in seconds: until a new rate is measured, until a change is complete, and the range of times in
#: which most members start.
MEASURED_S: Final = 30.0
SETTLED_S: Final = 5.0
JOINED_S: Final = (10.0, 50.0)
#: A relative difference from the document's figure that does not matter.
NEAR: Final = 0.1
#: The document compares Kafka's equal shares with MWF. With the same number of consumers, the latency of equal shares
#: is ``TIMES`` times that of MWF. ``MORE`` is the share of additional consumers with which equal shares become better
#: than MWF.
TIMES: Final = 48.0
MORE: Final = 0.6


def judged(measured: Json) -> list[Claim]:
    """Return the sentences that have figures, in the document's order. If the figures of a sentence do not allow a
    verdict, its ``found`` says why."""
    systems, runs = measured.get("systems") or [], measured.get("runs") or []
    changes = measured.get("changes") or []
    claims = [_more_needed(systems), _times(systems), _unreliable(runs), _keda(systems)]
    claims += [_rate(measured.get("throughput") or []), _measured(measured.get("steps")), _decided(changes)]
    claims += [_joined(changes), _settled(changes)]
    return [claim for claim in claims if claim.verdicts or claim.found]


def _named(rows: Iterable[Json], system: str) -> list[Json]:
    """Return the rows of a system, by its number of members or its permitted lag."""
    return sorted((row for row in rows if row["system"] == system), key=lambda row: int(row["number"]))


def _assigned(systems: Sequence[Json]) -> list[tuple[Json, str, list[Json]]]:
    """Return MWF's row with each of Kafka's assignments and its rows."""
    each = [(mwf, name, _named(systems, name)) for mwf in _named(systems, "mwf") for name in ASSIGNORS]
    return [one for one in each if one[2]]


def _mean_s(row: Json, at: int = P99) -> float:
    """Return the mean of a percentile of the latency."""
    return float(row["latency_s"][at][0])


def _near(one: float, other: float) -> bool:
    return abs(one - other) <= NEAR * other


def _listed(found: Sequence[str], before: str = "") -> list[str]:
    return [f"{before}{'; '.join(found)}."] if found else []


# The abstract, and section VI-C: Kafka's own groups


def _more_needed(systems: Sequence[Json]) -> Claim:
    verdicts, found = [], []
    for mwf, assignor, rows in _assigned(systems):
        better = [row for row in rows if _mean_s(row) < _mean_s(mwf)]
        more = min(row["members"][0] / mwf["members"][0] - 1.0 for row in (better or rows[-1:]))
        which = f"is better from {better[0]['number']} members on" if better else "is never better"
        text = (
            f"it {which}; p99 {_mean_s(rows[-1]):.2f} s with {rows[-1]['number']} members, {more:.0%} more than MWF, "
            f"whose p99 is {_mean_s(mwf):.2f} s"
        )
        verdicts.append(Verdict(f"{assignor}, p99", verdict(not better or more >= MORE), text))
        found.append(f"{assignor} {which}")
    return Claim(
        "Abstract",
        "Kafka's assignment has lower latencies than MWF only with at least 60 % more consumers.",
        verdicts,
        _listed(found),
        "Only the numbers of members that were measured count.",
    )


def _times(systems: Sequence[Json]) -> Claim:
    verdicts, found = [], []
    for mwf, assignor, rows in _assigned(systems):
        fewer = [row for row in rows if row["members"][0] <= mwf["members"][0]]
        if fewer and _mean_s(mwf, P90):
            p90_s, times = _mean_s(fewer[-1], P90), _mean_s(fewer[-1], P90) / _mean_s(mwf, P90)
            text = (
                f"p90 {p90_s:.2f} s with {fewer[-1]['number']} members, {times:.0f} times that of MWF with "
                f"{mwf['members'][0]:.1f} members"
            )
            verdicts.append(Verdict(f"{assignor}, all data", verdict(times >= TIMES), text))
            found.append(f"{assignor} {times:.0f} times")
    return Claim(
        "VI-C",
        "With the same number of consumers, Kafka's assignment has a 90th percentile of latency that is 48 times that "
        "of MWF.",
        verdicts,
        _listed(found),
        "The sentence holds if the factor is at least 48. An overloaded member falls behind until the stream ends, so "
        "the factor grows with the length of a stream.",
    )


def _unreliable(runs: Sequence[Json]) -> Claim:
    verdicts, found = [], []
    for assignor in ASSIGNORS:
        by_seed: dict[int, list[Json]] = {}
        for row in _named(runs, assignor):
            by_seed.setdefault(row["seed"], []).append(row)
        steps = [(seed, *pair) for seed, rows in by_seed.items() for pair in pairwise(rows)]
        worse = [step for step in steps if step[2]["latency_s"][P99] > step[1]["latency_s"][P99]]
        if steps:
            count = f"{len(worse)} of {len(steps)} steps"
            some = ", ".join(f"{one['number']} to {other['number']} (stream {seed})" for seed, one, other in worse[:3])
            text = f"p99 gets worse at {count}{f', such as {some}' * bool(some)}"
            verdicts.append(Verdict(f"{assignor}, p99 of a stream", verdict(bool(worse)), text))
            found.append(f"{assignor} at {count}")
    return Claim(
        "VI-C",
        "More consumers do not reliably improve latencies if partitions are shared by their number.",
        verdicts,
        _listed(found, "More members make p99 worse: "),
        "A different number of members leads to different groups of partitions. A group can then be too much for its "
        "member.",
    )


def _keda(systems: Sequence[Json]) -> Claim:
    verdicts, unjudged = [], []
    for mwf in _named(systems, "mwf"):
        for row in _named(systems, KEDA):
            # Results that were stored before runs had a warm-up do not say whether a run began with a backlog.
            behind = row.get("not_caught_up")
            late = f"p99 {_mean_s(row):.2f} s with {row['members'][0]:.1f} members"
            if behind is None or behind:
                count = "an unknown number" if behind is None else str(behind)
                unjudged.append(
                    f"Lag {row['number']} is not judged: {late}, but {count} of {row['seeds']} runs began with a "
                    "backlog."
                )
                continue
            least, text = _mean_s(row) - row["latency_s"][P99][1], f"{late}; MWF {_mean_s(mwf):.2f} s"
            verdicts.append(Verdict(f"lag {row['number']}, p99", verdict(least > _mean_s(mwf)), text))
    return Claim(
        "VI-C",
        "KEDA's way to add consumers and to leave the assignment to Kafka is unreliable.",
        verdicts,
        unjudged,
        "Here KEDA is represented by its rule. The sentence holds if the whole 95 % confidence interval of its p99 is "
        "above the p99 of MWF. Runs that began with a backlog are not judged, because their figures contain it.",
    )


# Section VI-F: the autoscaler itself


def _rate(rows: Sequence[Json]) -> Claim:
    medians = [float(row["median"]) for row in rows]
    verdicts = []
    if medians:
        verdicts.append(Verdict("a common rate in all tests", verdict(max(medians) <= COMMON * min(medians))))
        verdicts.append(Verdict("2.3 MB/s", together(_near(median, RATE) for median in medians)))
    return Claim(
        "VI-F",
        "A consumer's highest rate has a common mode of 2.3 MB/s in all three tests.",
        verdicts,
        [f"Medians: {', '.join(f'{median / 1e6:.0f} MB/s' for median in medians)}."] if medians else [],
        "The document's consumer sends to a data warehouse in a cloud. Ours sends to a service on the same machine.",
    )


def _measured(steps: Json | None) -> Claim:
    known = steps["known_after_s"] if steps else ()
    texts = ["never" if value is None else f"{value:.1f} s" for value in known]
    is_near = together(value is not None and _near(value, MEASURED_S) for value in known)
    return Claim(
        "VI-F",
        "Δt1: the monitor needs 30 s to measure a new rate.",
        [Verdict("within 5 % of the new rate", is_near, f"after {', '.join(texts)}")] if known else [],
        why="The measured value rises or falls evenly for 30 s, the length of its window.",
    )


def _each(changes: Sequence[Json], event: str) -> list[tuple[Json, str]]:
    """Return the rows of this event, with their figures as a text."""
    form = "median {:.3g} s, p90 {:.3g} s, longest {:.3g} s, of {:,}".format
    chosen = [row for row in changes if row["event"] == event]
    return [(row, form(row["seconds"][P50], row["seconds"][P90], row["most"], row["count"])) for row in chosen]


def _step(
    changes: Sequence[Json], event: str, text: str, is_so: Callable[[Json], bool], why: str, found: Sequence[str] = ()
) -> Claim:
    """Judge the time of a step for each row. By default, the figures are the medians."""
    each = _each(changes, event)
    medians = _listed([f"{row['seconds'][P50]:.3g} s at {row['of']}" for row, _ in each], "Medians: ")
    verdicts = [Verdict(row["of"], verdict(is_so(row)), figures) for row, figures in each]
    return Claim("VI-F", text, verdicts, found or medians, why)


def _decided(changes: Sequence[Json]) -> Claim:
    return _step(
        changes,
        "decided",
        "Δt2: a decision, with the requests for new consumers, consistently takes less than 1 s.",
        lambda row: bool(row["most"] < 1.0),
        "The time includes packing and the orders. The call to the scaler is a separate step in this report.",
        [
            f"The longest of {row['count']:,} decisions at {row['of']} took {row['most']:.3g} s."
            for row, _ in _each(changes, "decided")
        ],
    )


def _joined(changes: Sequence[Json]) -> Claim:
    least, most = JOINED_S
    return _step(
        changes,
        "joined",
        "Δt3: a new consumer is ready after 10 to 50 s in 88 % of the cases, and after up to 500 s in the others.",
        lambda row: bool(least <= row["seconds"][P50] <= most),
        "The document starts pods in a Kubernetes cluster. Here a member is a process on the same machine. The "
        "verdict is based on the median.",
    )


def _settled(changes: Sequence[Json]) -> Claim:
    return _step(
        changes,
        "settled",
        "Δt4: the group has its new assignment after about 5 s.",
        lambda row: _near(row["seconds"][P50], SETTLED_S),
        "The document's consumer looks for orders once in a cycle of 2.5 s. Our member sees an order while it "
        "collects a batch.",
    )
