"""Judge the document's sentences by our figures, and this broker's goals.

Owns: the choice of figures for each sentence and goal. Must never: make markup, or do I/O.

The document's text leaves open how its layer works (`layer.settings.Readings`). So each sentence is judged twice, for
the layer according to the document's text and according to its programs. Each verdict names its interpretation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from ingeborg.bench.dyconits import published
from ingeborg.bench.dyconits.cases import ALL, E4, E5, E6, KAFKA, LATEST, LAYERS, NAMES, PLAIN
from ingeborg.bench.dyconits.found import ERRORS, Found, Json, Mean, amount, percent
from ingeborg.bench.dyconits.layer.settings import HIGH, LOW, TOPICS
from ingeborg.bench.text.blocks import FAILS, HOLDS, NOISE, PARTLY, Claim, Verdict

FACTOR: Final = 1.5
"""A measured change agrees with a printed change if it is greater or smaller by at most this factor. If only the
direction is the same, the sentence holds in part."""

LEAST: Final = 0.02
"""A smaller relative change than this is noise."""

NEAR_NOTHING: Final = 1.5
"""A reader keeps up if its mean numerical error, in messages, is at most this."""

BOUND_S: Final = 10.0
"""The staleness bound of each topic in E3, in seconds."""

READING: Final = {system: f"the layer by the document's {system.partition('-')[2]}" for system in LAYERS}


def judged(found: Found) -> list[Claim]:
    """Return the sentences that have figures: first the main findings, then the numbers in the document's order."""
    claims = [*_main_findings(found), *_low_load(found), *(_change(found, printed) for printed in published.CHANGES)]
    return [claim for claim in [*claims, *_overhead(found)] if claim.verdicts]


def _verdicts(found: Found, experiment: str, judge: Callable[[str], tuple[str, str]]) -> list[Verdict]:
    """Judge each interpretation of the layer that has run, if plain Kafka has run too."""
    if not found.cells(experiment, KAFKA):
        return []
    return [Verdict(READING[system], *judge(system)) for system in LAYERS if found.cells(experiment, system)]


def _claim(where: str, text: str, verdicts: Sequence[Verdict], why: str = "", published: str = "") -> Claim:
    """Return a claim. Its figures are the figures of its verdicts."""
    said = [f"{one.reading.rpartition(' ')[2]}: {one.found}" for one in verdicts]
    return Claim(where, text, [one._replace(found="") for one in verdicts], said, why, published)


# Printed changes


def _change(found: Found, printed: published.Change) -> Claim:
    def judge(system: str) -> tuple[str, str]:
        is_error = printed.figure in ERRORS
        topics = (printed.topic,) if printed.topic else TOPICS if is_error else ("",)
        changes = {topic: found.change(printed.experiment, system, printed.figure, topic) for topic in topics}
        said = "; ".join(f"{topic} {percent(each)}".strip() for topic, each in changes.items())
        pairs = ", ".join(
            f"{amount(printed.figure, found.mean(printed.experiment, KAFKA, printed.figure, topic))} to "
            f"{amount(printed.figure, found.mean(printed.experiment, system, printed.figure, topic))}"
            for topic in topics
        )
        return agreement([*changes.values()], printed.low, printed.high), f"{said} ({pairs})"

    return _claim(printed.where, printed.text, _verdicts(found, printed.experiment, judge))


def agreement(changes: Sequence[Mean | None], low: float, high: float) -> str:
    """Return the verdict on printed changes.

    Args:
        changes: our changes, one for each topic. None means that the topic has no error in the base.
        low, high: the printed range, whose ends have the same sign.
    """
    known = [change.mean for change in changes if change is not None]
    if not known:
        return FAILS
    if all(change * low > 0 and abs(change) >= LEAST for change in known):
        least, most = sorted((abs(low), abs(high)))
        agrees = all(least / FACTOR <= abs(change) <= most * FACTOR for change in known)
        return HOLDS if agrees else PARTLY
    is_noise = all(abs(change) < LEAST for change in known) and abs(low) < 2 * LEAST
    return NOISE if is_noise else FAILS


# Low load


def _low_load(found: Found) -> list[Claim]:
    def numerical(system: str) -> tuple[str, str]:
        means = {topic: found.mean("e1", system, "numerical", topic) for topic in TOPICS}
        maxima = {topic: found.mean("e1", system, "numerical_max", topic) for topic in TOPICS}
        keeps_up = all(mean is not None and mean.mean <= NEAR_NOTHING for mean in means.values())
        is_one = all(each is not None and each.mean <= FACTOR for topic, each in maxima.items() if topic != LOW)
        low = maxima[LOW]
        said = ", ".join(f"{topic} {amount('', means[topic])}, at most {amount('', maxima[topic])}" for topic in TOPICS)
        reaches_ten = low is not None and agreement([low], 10, 10) == HOLDS
        verdict = HOLDS if keeps_up and is_one and reaches_ten else PARTLY if keeps_up else FAILS
        return verdict, said

    def staleness(system: str) -> tuple[str, str]:
        means = {topic: found.mean("e1", system, "staleness_s", topic) for topic in TOPICS}
        maxima = {topic: found.mean("e1", system, "staleness_max_s", topic) for topic in TOPICS}
        most = max((each.mean for each in maxima.values() if each is not None), default=0.0)
        is_low = all(mean is not None and mean.mean < 0.1 for mean in means.values())
        said = f"mean {amount('staleness_s', means[LOW])} at low priority, at most {most:.1f} s"
        return HOLDS if is_low and 2 <= most <= 8 else PARTLY if is_low else FAILS, said

    def throughput(system: str) -> tuple[str, str]:
        change = found.change("e1", system, "taken_per_s")
        return (HOLDS if change is not None and abs(change.mean) <= 0.005 else FAILS), percent(change)

    return [
        _claim(
            "5.6.1",
            "E1: the mean numerical error is 0 and the maximum 1, except at low priority, where it reaches 10.",
            _verdicts(found, "e1", numerical),
        ),
        _claim("5.6.1", "E1: the mean staleness is 0 s, with outliers of 5.5 s.", _verdicts(found, "e1", staleness)),
        _claim("5.6.2", "E1: throughput changes by at most half a per cent.", _verdicts(found, "e1", throughput)),
    ]


# Main findings


def _main_findings(found: Found) -> list[Claim]:
    def less_cpu_fresh_high(system: str) -> tuple[str, str]:
        cpu, high = found.change("e3", system, "cpu"), found.change("e3", system, "staleness_s", HIGH)
        bounds = [cell["bounds"][HIGH]["staleness_bound_ms"] for cell in found.cells("e3", system) if cell["bounds"]]
        worst = found.mean("e3", system, "staleness_max_s", HIGH)
        assert worst is not None
        kept = worst.mean <= BOUND_S
        said = (
            f"CPU usage {percent(cpu)}, staleness of high priority {percent(high)}; at most "
            f"{amount('staleness_max_s', worst)}, with a bound that begins at {BOUND_S:g} s and "
            + (f"ends at {max(bounds) / 1e3:.0f} s" if bounds else "no update of the manager")
        )
        lower = cpu is not None and cpu.mean < -LEAST
        return (HOLDS if lower and kept else PARTLY if lower else FAILS), said

    def selective(system: str) -> tuple[str, str]:
        changes = [found.difference("e3", system, "numerical", topic) for topic in (HIGH, LOW)]
        high, low = (0.0 if change is None else change.mean for change in changes)
        return (
            HOLDS if high < 0 < low else FAILS
        ), f"mean numerical error: high {high:+,.0f}, low {low:+,.0f} messages"

    def mostly(system: str) -> tuple[str, str]:
        sizes = {each: _effect(found, each, system) for each in ("e1", "e2", "e3")}
        said = ", ".join(f"{each.upper()} {size:,.0f}" for each, size in sizes.items())
        is_most = sizes["e3"] == max(sizes.values())
        return (HOLDS if is_most else FAILS), f"mean change of the numerical errors, in messages: {said}"

    def half(system: str) -> tuple[str, str]:
        high = [found.change("e3", system, figure, HIGH) for figure in ERRORS]
        low = [found.change("e3", system, figure, LOW) for figure in ERRORS]
        better = agreement(high, -0.5, -0.5)
        worse = agreement(low, 10, 200)
        said = f"high {', '.join(map(percent, high))}; low {', '.join(map(percent, low))}"
        holds = better == worse == HOLDS
        return (HOLDS if holds else FAILS if better == FAILS else PARTLY), said

    def cpu(experiment: str, mean: float, peak: float) -> Callable[[str], tuple[str, str]]:
        def judge(system: str) -> tuple[str, str]:
            changes = [found.change(experiment, system, figure) for figure in ("cpu", "cpu_peak")]
            verdicts = {
                agreement([change], printed, printed) for change, printed in zip(changes, (mean, peak), strict=True)
            }
            verdict = verdicts.pop() if len(verdicts) == 1 else PARTLY
            return verdict, f"mean {percent(changes[0])}, peak {percent(changes[1])}"

        return judge

    def throughput(system: str) -> tuple[str, str]:
        changes = {each: found.change(each, system, "taken_per_s") for each in ("e2", "e3")}
        said = ", ".join(f"{each.upper()} {percent(change)}" for each, change in changes.items())
        return agreement([*changes.values()], -0.1, -0.1), said

    def unaffected(system: str) -> tuple[str, str]:
        cpu_change, taken = found.change("e1", system, "cpu"), found.change("e1", system, "taken_per_s")
        errors = _effect(found, "e1", system)
        small = all(change is not None and abs(change.mean) <= 0.05 for change in (cpu_change, taken))
        said = f"CPU usage {percent(cpu_change)}, throughput {percent(taken)}, errors {errors:+.1f} messages"
        return (HOLDS if small and errors < 5 else PARTLY if small else FAILS), said

    has_all = all(found.cells(each, KAFKA) for each in ("e1", "e2", "e3"))
    return [
        _claim(
            "MF1",
            "The layer limits CPU usage and keeps the bounds of topics of high priority, if there are other topics.",
            _verdicts(found, "e3", less_cpu_fresh_high),
            why="A bound of the layer never limits an error. It grows whenever a reader is busy.",
        ),
        _claim("MF2", "The layer prioritises some topics over others.", _verdicts(found, "e3", selective)),
        _claim(
            "MF3",
            "The layer changes most under a high load with different priorities.",
            _verdicts(found, "e3", mostly) if has_all else [],
        ),
        _claim(
            "MF4",
            "Under high load, errors fall by about 50 % at high priority, and grow 10 to 200 times at low priority.",
            _verdicts(found, "e3", half),
            why="Plain readers keep up with the topics of low priority. If these topics were not read at all, a reader "
            "could use their units for the topic of high priority, whose error would then fall by 48 %.",
        ),
        _claim(
            "MF5",
            "High load with priorities: mean CPU usage falls by 30 %, and the peak by 25 %.",
            _verdicts(found, "e3", cpu("e3", -0.30, -0.25)),
            published="Section 5.6.2 says 26 % and 31.89 %.",
        ),
        _claim(
            "MF6",
            "High load without priorities: mean CPU usage falls by 15 %, and the peak by 20 %.",
            _verdicts(found, "e2", cpu("e2", -0.15, -0.20)),
            published="Section 5.6.2 says 18.1 % and 15.03 %.",
        ),
        _claim(
            "MF7",
            "Under high load, throughput falls by about 10 %, with or without priorities.",
            _verdicts(found, "e3", throughput) if found.cells("e2", KAFKA) else [],
        ),
        _claim("MF8", "Under low load, nothing changes much.", _verdicts(found, "e1", unaffected)),
    ]


def _effect(found: Found, experiment: str, system: str) -> float:
    """Return how much the mean numerical error of a topic changes, in messages. This is a mean, regardless of the
    direction."""
    differences = [found.difference(experiment, system, "numerical", topic) for topic in TOPICS]
    return sum(abs(each.mean) for each in differences if each is not None) / len(TOPICS)


# Overhead


def overhead(found: Found, experiment: str, system: str) -> float:
    """Return the number of the layer's messages that the readers processed, as a share of the topics' messages."""
    cells = found.cells(experiment, system)
    produced = sum(sum(cell["topics"][topic]["produced"] for topic in TOPICS) for cell in cells)
    return sum(cell["updates"] for cell in cells) / produced if produced else 0.0


def _overhead(found: Found) -> list[Claim]:
    claims = []
    for experiment in ("e1", "e2", "e3"):
        printed = published.OVERHEAD[experiment]

        def judge(system: str, experiment: str = experiment, printed: float = printed) -> tuple[str, str]:
            share = overhead(found, experiment, system)
            agrees = printed / FACTOR <= share <= printed * FACTOR
            is_below = share <= published.OVERHEAD_MOST[experiment]
            return (HOLDS if agrees else PARTLY if is_below else FAILS), f"{100 * share:.2f} %"

        claims.append(
            _claim(
                "table 5.2",
                f"{experiment.upper()}: the messages of the layer are {100 * printed:.2g} % of all messages.",
                _verdicts(found, experiment, judge),
                why="The sentence holds in part if our share is only below the upper bound of equation 5.1.",
            )
        )
    return claims


# This broker's goals


class Goal(NamedTuple):
    """A goal of this broker's bounds, our figure, and whether it is met."""

    experiment: str
    goal: str
    found: str
    is_met: bool


def goals(found: Found, fan_out: Sequence[Json]) -> list[Goal]:
    """Return the goals whose experiments have run."""
    checks = [
        Goal(row["experiment"].upper(), f"{row['figure']}: {row['goal']}", row["measured"], row["met"])
        for row in fan_out
        if row["experiment"] in (E4, E5)
    ]
    return [*_low_load_goals(found), *_equal_goals(found), *_priority_goals(found), *checks, *_killed(fan_out)]


def _at_most(found: Found, experiment: str, system: str, figure: str, goal: float, text: str) -> list[Goal]:
    """Return the goal that a change is at most ``goal``."""
    change = found.change(experiment, system, figure)
    if change is None:
        return []
    return [Goal(experiment.upper(), f"{NAMES[system]}: {text}", percent(change), change.mean <= goal)]


def _low_load_goals(found: Found) -> list[Goal]:
    rows = []
    for system in (ALL, LATEST):
        for figure, name in (("cpu", "CPU usage"), ("taken_per_s", "throughput")):
            change = found.change("e1", system, figure)
            if change is not None:
                covers = abs(change.mean) <= max(change.half, LEAST)
                seen = f"; a difference of {100 * change.half:.1f} % could be detected" if change.half else ""
                rows.append(Goal("E1", f"{NAMES[system]}: {name} as without bounds", percent(change) + seen, covers))
        skipped = found.mean("e1", system, "skipped_per_s")
        if skipped is not None:
            said = amount("skipped_per_s", skipped)
            rows.append(Goal("E1", f"{NAMES[system]}: nothing is skipped", said, skipped.mean == 0))
    return rows


def _equal_goals(found: Found) -> list[Goal]:
    if not found.cells("e2", PLAIN) or not found.cells("e2", LATEST):
        return []
    changes = [found.change("e2", LATEST, figure) for figure in ERRORS]
    is_met = all(change is None or change.mean <= 0 for change in changes)
    errors = Goal("E2", f"{NAMES[LATEST]}: no error greater than without bounds", _listed(changes), is_met)
    return [errors, *_at_most(found, "e2", LATEST, "cpu", -0.15, "CPU usage of readers -15 %")]


def _priority_goals(found: Found) -> list[Goal]:
    rows = []
    for system in (ALL, LATEST):
        changes = [found.change("e3", system, figure, HIGH) for figure in ERRORS]
        if any(change is not None for change in changes):
            is_met = all(change is not None and change.mean <= -0.5 for change in changes)
            rows.append(Goal("E3", f"{NAMES[system]}: errors of high priority -50 %", _listed(changes), is_met))
        low = found.mean("e3", system, "staleness_max_s", LOW)
        if low is not None:
            said, is_met = amount("staleness_max_s", low), low.mean <= BOUND_S
            rows.append(Goal("E3", f"{NAMES[system]}: low priority within its {BOUND_S:g} s", said, is_met))
    rows += _at_most(found, "e3", LATEST, "cpu", -0.30, "mean CPU usage of readers -30 %")
    rows += _at_most(found, "e3", LATEST, "cpu_peak", -0.32, "peak CPU usage of readers -32 %")
    for figure, name in (("taken_per_s", "messages taken"), ("units_per_s", "units processed")):
        change = found.change("e3", ALL, figure)
        if change is not None:
            text = f"{NAMES[ALL]}: as many {name} as without bounds, less 1 %"
            rows.append(Goal("E3", text, percent(change), change.mean >= -0.01))
    return rows


def _listed(changes: Sequence[Mean | None]) -> str:
    numerical, numerical_max, staleness, staleness_max = map(percent, changes)
    return f"numerical {numerical}, maximum {numerical_max}; staleness {staleness}, maximum {staleness_max}"


def _killed(fan_out: Sequence[Json]) -> list[Goal]:
    by_kind: dict[str, Any] = {row["kind"]: row for row in fan_out if row["experiment"] == E6}
    rows = []
    for kind, row in by_kind.items():
        is_whole = row["lost"] == row["surplus"] == row["last_missing"] == 0
        said = (
            f"{row['acknowledged']:,} of {row['published']:,} publishes acknowledged; lost {row['lost']}, too many "
            f"{row['surplus']}, last messages missing {row['last_missing']}"
        )
        rows.append(Goal("E6", f"{kind}: every acknowledged message delivered or skipped", said, is_whole))
    for kind, goal in (("all", 0.30), ("latest", 0.45)):
        if "plain" in by_kind and kind in by_kind:
            saved = 1 - by_kind[kind]["cpu_s"] / by_kind["plain"]["cpu_s"]
            text = f"{kind}: CPU time of two endpoints -{goal:.0%}"
            rows.append(Goal("E6", text, f"{-saved:+.0%}", saved >= goal))
    return rows
