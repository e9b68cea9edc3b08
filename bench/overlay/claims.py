"""Judge the document's sentences about its figures, and grove's goals, by our figures.

Owns: the verdict over all readings and seeds, and the goals as numbers. Must never: make markup, or do I/O.

If all nodes send, the document says neither whether a message came before, nor after which time (TIMEOUT1) a node
requests an announced message. So each sentence about several senders is judged under every reading for which there are
cells. A sentence whose verdict is not the same under all of them *depends* on the reading. A sentence whose verdict is
not the same with all seeds is within noise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from ingeborg.bench.overlay.cells import Cells, Reading, View
from ingeborg.bench.overlay.experiments import ALL, COLD, SENDERS, TIMEOUT1_MS, TIMEOUTS_MS, WARM
from ingeborg.bench.overlay.judges import DEPENDS, EQUAL, Finding
from ingeborg.bench.overlay.sentences import SENTENCES, Sentence
from ingeborg.bench.overlay.summary import share

Json = Mapping[str, Any]

GOAL_SENDERS: Final = SENDERS

SETTLED_S_MAX: Final = 5.0
CHURN_RELIABILITY_MIN: Final = 0.9999
CHURN_RMR_MAX: Final = 0.3
"""Goals of grove under faults: the maximum time from a crash or a cut until all due messages have arrived, and, under
churn, the minimum share of due messages that arrive and the maximum RMR."""

Verdict = tuple[str, str, str]
"""A reading, the verdict under it, and the figures."""

OPEN: Final = "The document gives neither TIMEOUT1 nor the start, and these decide. "


@dataclass(frozen=True)
class Claim:
    """A sentence, its verdict, the figures for it, and the reason for these figures. ``reading``: the cells that the
    verdict rests on. ``by_reading``: the same for each reading, if the sentence is about several senders."""

    text: str
    verdict: str
    found: str
    why: str
    reading: str
    by_reading: tuple[Verdict, ...] = ()


@dataclass(frozen=True)
class Judged(Finding):
    """A finding, and the seeds that it rests on."""

    seeds: tuple[int, ...]


@dataclass(frozen=True)
class Goal:
    """One of grove's goals: for each number of senders, the figure as text, and whether it meets the goal."""

    text: str
    limit: str
    found: list[tuple[str, bool | None]]  # None if no goal applies to this number


def judged(cells: Cells, nodes: int) -> list[Claim]:
    """Return all sentences that can be judged by the cells with this number of nodes. A figure is a mean over the
    seeds."""
    claims = [(_open if each.several else _plain)(each, cells, nodes) for each in SENTENCES]
    return [claim for claim in claims if claim is not None]


def _plain(sentence: Sentence, cells: Cells, nodes: int) -> Claim | None:
    found = _judge(sentence, cells, View(nodes))
    if found is None:
        return None
    return Claim(sentence.text, found.verdict, found.found, sentence.why, f"{nodes:,} nodes, {_seeds([found])}")


def _open(sentence: Sentence, cells: Cells, nodes: int) -> Claim | None:
    """Judge a sentence about several senders: at the usual TIMEOUT1 with all loads, and at all values of TIMEOUT1 with
    the few loads that have them."""
    usual: dict[str, Judged] = {}
    timed: dict[str, dict[int, Judged]] = {}
    for start in (COLD, WARM):
        found = _judge(sentence, cells, View(nodes, Reading(start)))
        if found is not None:
            usual[start] = found
        timers = {}
        for timeout1_ms in TIMEOUTS_MS:
            found = _judge(sentence, cells, View(nodes, Reading(start, timeout1_ms), few_loads=True))
            if found is not None:
                timers[timeout1_ms] = found
        if timers.keys() - {TIMEOUT1_MS}:
            timed[start] = timers
    groups = [[one.verdict for one in usual.values()]] if usual else []
    groups += [[one.verdict for one in timers.values()] for timers in timed.values()]
    if not groups:
        return None
    agree = all(len(set(group)) == 1 for group in groups)
    said = [f"{start}: {found.found}" for start, found in usual.items()]
    return Claim(
        sentence.text,
        groups[0][0] if agree else DEPENDS,
        "; ".join(said + _by_timer(timed)),
        sentence.why if agree else OPEN + sentence.why,
        _rests_on(nodes, usual, timed),
        _by_reading(usual, timed),
    )


def _judge(sentence: Sentence, cells: Cells, view: View) -> Judged | None:
    """Judge by the means over all seeds. If a seed alone has another verdict, the result is within noise."""
    found = sentence.judge(cells.grid(view))
    if found is None:
        return None
    each = {
        seed: one
        for seed in cells.seeds(view.nodes)
        if (one := sentence.judge(cells.grid(replace(view, seed=seed)))) is not None
    }
    same = all(one.verdict == found.verdict for one in each.values())
    return Judged(found.verdict if same else EQUAL, found.found, tuple(each))


def _by_timer(timed: Mapping[str, Mapping[int, Judged]]) -> list[str]:
    """Return the verdicts by TIMEOUT1, together for both starts if they are the same."""
    said: dict[str, list[str]] = {}
    for start, timers in timed.items():
        verdicts: dict[str, list[str]] = {}
        for timeout1_ms, found in timers.items():
            verdicts.setdefault(found.verdict, []).append(str(timeout1_ms))
        text = ", ".join(f"{verdict} at {', '.join(timeouts)} ms" for verdict, timeouts in verdicts.items())
        said.setdefault(text, []).append(start)
    return [f"{' and '.join(starts)} by TIMEOUT1: {text}" for text, starts in said.items()]


def _by_reading(usual: Mapping[str, Judged], timed: Mapping[str, Mapping[int, Judged]]) -> tuple[Verdict, ...]:
    found = {Reading(start): one for start, one in usual.items()}
    for start, timers in timed.items():
        for timeout1_ms, one in timers.items():
            found.setdefault(Reading(start, timeout1_ms), one)
    return tuple(
        (f"{each.start}, TIMEOUT1 {each.timeout1_ms} ms", one.verdict, one.found) for each, one in found.items()
    )


def _rests_on(nodes: int, usual: Mapping[str, Judged], timed: Mapping[str, Mapping[int, Judged]]) -> str:
    parts = [f"{nodes:,} nodes, each a sender"]
    if usual:
        parts.append(f"{' and '.join(usual)} with TIMEOUT1 {TIMEOUT1_MS} ms, {_seeds(usual.values())}")
    if timed:
        others = [one for timers in timed.values() for key, one in timers.items() if key != TIMEOUT1_MS]
        parts.append(f"{' and '.join(timed)} with other values of TIMEOUT1, {_seeds(others)}")
    return "; ".join(parts)


def _seeds(found: Iterable[Judged]) -> str:
    seeds = sorted({seed for each in found for seed in each.seeds})
    return f"{'seed' if len(seeds) == 1 else 'seeds'} {', '.join(map(str, seeds))}"


# grove's goals


def goals(cells: Cells, nodes: int) -> list[Goal]:
    """Return all goals, each with a figure for every number of senders. A figure is a dash if its cell does not
    exist."""
    flood = cells.smallest(nodes, "flood", 1)
    groves = [cells.smallest(nodes, "grove", senders) for senders in GOAL_SENDERS]
    if flood is None or not any(groves):
        return []
    beside = flood["phases"]["run"]

    def goal(text: str, limit: str, of: Callable[[Json], tuple[str, bool | None]], but_all: bool = False) -> Goal:
        found: list[tuple[str, bool | None]] = []
        for senders, row in zip(GOAL_SENDERS, groves, strict=True):
            said, met = ("–", None) if row is None else of(row)
            found.append((said, None if but_all and senders == ALL else met))
        return Goal(text, limit, found)

    def run(row: Json) -> Json:
        phase: Json = row["phases"]["run"]
        return phase

    def ratio(row: Json, name: str) -> float:
        return float(run(row)[name] / beside[name])

    return [
        goal("reliability", "100 %", lambda row: (share(run(row)["least"]), run(row)["least"] == 1.0)),
        goal("out of order", "0", lambda row: (f"{row['violations']:,}", row["violations"] == 0)),
        goal("RMR", "≤ 0.01", lambda row: (f"{run(row)['redundancy']:.4f}", run(row)["redundancy"] <= 0.01), True),
        goal("mean latency, relative to a flood", "≤ 1.3", lambda row: _ratio(ratio(row, "mean_ms"), 1.3), True),
        goal("last hop, relative to a flood", "≤ 1.1", lambda row: _ratio(ratio(row, "last_hop"), 1.1), True),
        goal("bytes of an order entry", "≤ 8", lambda row: _bytes(row["entry_bytes"]), True),
        goal("memory of a node", "printed", lambda row: (f"{row['memory_bytes'] / 1e3:,.0f} kB", None)),
    ]


def survived(row: Json) -> bool:
    """Return whether, in a cell with a crash or a cut, all living nodes have neighbours, and received all due messages,
    in order and in time."""
    whole = all(phase["least"] == 1.0 for phase in row["phases"].values())
    return whole and not row["violations"] and not row["isolated"] and float(row["settled_s"]) <= SETTLED_S_MAX


def endured(row: Json) -> bool:
    """Return whether, in a cell with churn, nearly all due messages arrived, in order and with few extra copies."""
    enough = float(row["phases"]["run"]["reliability"]) >= CHURN_RELIABILITY_MIN
    return enough and not row["violations"] and float(row["redundancy"]) <= CHURN_RMR_MAX


def _ratio(value: float, limit: float) -> tuple[str, bool]:
    return f"{value:.2f}", value <= limit


def _bytes(value: float | None) -> tuple[str, bool]:
    return ("–", True) if value is None else (f"{value:.2f}", value <= 8.0)
