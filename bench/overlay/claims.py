"""Judge the document's sentences, and grove's goals, by our figures.

Owns: the verdicts by interpretation and over all seeds, and the goals as numbers. Must never: do I/O.

If all nodes send, the document leaves two things open: whether a message precedes the counted messages, and after which
time (TIMEOUT1) a node requests an announced message. So each sentence about several senders is judged under every
interpretation for which there are cells. A verdict that is not the same with all seeds is within noise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from ingeborg.bench.overlay.cases import ALL, COLD, SENDERS, TIMEOUT1_MS, TIMEOUTS_MS, WARM
from ingeborg.bench.overlay.cells import Cells, Reading, View, share
from ingeborg.bench.overlay.judges import Finding, MissingError
from ingeborg.bench.overlay.sentences import SENTENCES, Sentence
from ingeborg.bench.text.blocks import DEPENDS, NOISE, Claim, Verdict
from ingeborg.bench.text.blocks import Cell as Shown

Json = Mapping[str, Any]

SETTLED_S_MAX: Final = 5.0
CHURN_RELIABILITY_MIN: Final = 0.9999
CHURN_RMR_MAX: Final = 0.3
"""Goals of grove under faults: the maximum time from a crash or a cut until all due messages have arrived, and, under
churn, the minimum share of due messages that arrive and the maximum RMR."""

OPEN: Final = "The document gives neither TIMEOUT1 nor the start, and the verdict depends on both. "


@dataclass(frozen=True)
class Judged(Finding):
    """A finding, and the seeds on which it is based."""

    seeds: tuple[int, ...]


def judged(cells: Cells, sizes: Sequence[int]) -> list[Claim]:
    """Return a claim for each sentence that can be judged. ``sizes`` are numbers of nodes. A sentence is judged for the
    first of these numbers with which enough cells exist."""
    claims = []
    for sentence in SENTENCES:
        each = (_verdicts(sentence, cells, nodes) for nodes in sizes)
        verdicts = next((found for found in each if found), None)
        if verdicts:
            where = f"{'sections' if ',' in sentence.where else 'section'} {sentence.where}"
            claim = Claim(where, sentence.text, verdicts, (), sentence.why)
            if len(verdicts) == 1:
                claim = replace(claim, verdicts=[verdicts[0]._replace(found="")], found=[f"{verdicts[0].found}."])
            claims.append(replace(claim, why=OPEN + claim.why) if claim.verdict == DEPENDS else claim)
    return claims


def _verdicts(sentence: Sentence, cells: Cells, nodes: int) -> list[Verdict]:
    if not sentence.several:
        found = _judge(sentence, cells, View(nodes))
        return [] if found is None else [Verdict(_rests_on(nodes, found), found.verdict, found.found)]
    return [verdict for start in (COLD, WARM) for verdict in _of_start(sentence, cells, nodes, start)]


def _of_start(sentence: Sentence, cells: Cells, nodes: int, start: str) -> list[Verdict]:
    """Judge a sentence about several senders. The usual TIMEOUT1 is judged with all loads. Then all values of TIMEOUT1
    are judged with the few loads that ran with them. These second verdicts count only if they differ from each other,
    because with fewer loads a verdict may differ anyway. Values with the same verdict are one interpretation."""
    usual = _judge(sentence, cells, View(nodes, Reading(start)))
    timers: dict[int, Judged] = {}
    for timeout1_ms in TIMEOUTS_MS:
        found = _judge(sentence, cells, View(nodes, Reading(start, timeout1_ms), few_loads=True))
        if found is not None:
            timers[timeout1_ms] = found
    has_others = bool(timers.keys() - {TIMEOUT1_MS})
    differ = has_others and (usual is None or len({found.verdict for found in timers.values()}) > 1)
    verdicts = []
    if usual is not None:
        reading = f"{_rests_on(nodes, usual)}, {start} start, TIMEOUT1 {TIMEOUT1_MS} ms, all loads"
        same = "; other values of TIMEOUT1 make no difference" if has_others and not differ else ""
        verdicts.append(Verdict(reading + same, usual.verdict, usual.found))
    for verdict in dict.fromkeys(found.verdict for found in timers.values()) if differ else ():
        of = {timeout1_ms: found for timeout1_ms, found in timers.items() if found.verdict == verdict}
        first, timeouts = next(iter(of)), ", ".join(map(str, of))
        reading = f"{_rests_on(nodes, *of.values())}, {start} start, TIMEOUT1 {timeouts} ms, two loads"
        verdicts.append(Verdict(reading, verdict, f"at {first} ms: {of[first].found}"))
    return verdicts


def _judge(sentence: Sentence, cells: Cells, view: View) -> Judged | None:
    """Judge by the means over all seeds. If any single seed has another verdict, the result is within noise."""
    found = _finding(sentence, cells, view)
    if found is None:
        return None
    each = {
        seed: one
        for seed in cells.seeds(view.nodes)
        if (one := _finding(sentence, cells, replace(view, seed=seed))) is not None
    }
    same = all(one.verdict == found.verdict for one in each.values())
    return Judged(found.verdict if same else NOISE, found.found, tuple(each))


def _finding(sentence: Sentence, cells: Cells, view: View) -> Finding | None:
    """Return the finding, or ``None`` if the cells of this view do not suffice."""
    try:
        return sentence.judge(cells.grid(view))
    except MissingError:
        return None


def _rests_on(nodes: int, *found: Judged) -> str:
    return f"{nodes:,} nodes, {seeds_of(seed for each in found for seed in each.seeds)}"


def seeds_of(seeds: Iterable[int]) -> str:
    """Return the different seeds as words."""
    each = sorted(set(seeds))
    return f"{'seed' if len(each) == 1 else 'seeds'} {', '.join(map(str, each))}"


# grove's goals


def _run(row: Json) -> Json:
    phase: Json = row["phases"]["run"]
    return phase


def _at_most(limit: float, form: str, value: Callable[[Json, Json], float | None]) -> Callable[[Json, Json], Shown]:
    """Return a goal whose figure has an upper limit, computed from the rows of grove and of a flood."""

    def shown(row: Json, flood: Json) -> Shown:
        figure = value(row, flood)
        return Shown("–") if figure is None else Shown(f"{figure:{form}}", mark="good" if figure <= limit else "bad")

    return shown


def _whole(row: Json, _: Json) -> Shown:
    least = _run(row)["least"]
    return Shown(share(least), mark="good" if least == 1.0 else "bad")


#: Each goal's name and limit, whether it is also a goal if all nodes send, and its figure.
_GOALS: Final[tuple[tuple[str, str, bool, Callable[[Json, Json], Shown]], ...]] = (
    ("reliability", "100 %", True, _whole),
    ("out of order", "0", True, _at_most(0, ",", lambda row, _: row["violations"])),
    ("RMR", "≤ 0.01", False, _at_most(0.01, ".4f", lambda row, _: _run(row)["redundancy"])),
    (
        "mean latency, relative to a flood",
        "≤ 1.3",
        False,
        _at_most(1.3, ".2f", lambda row, flood: _run(row)["mean_ms"] / _run(flood)["mean_ms"]),
    ),
    (
        "last hop, relative to a flood",
        "≤ 1.1",
        False,
        _at_most(1.1, ".2f", lambda row, flood: _run(row)["last_hop"] / _run(flood)["last_hop"]),
    ),
    ("bytes of an order entry", "≤ 8", False, _at_most(8.0, ".2f", lambda row, _: row["entry_bytes"])),
)


def goals(cells: Cells, nodes: int) -> list[list[str | Shown]]:
    """Return a row for each goal, with a figure for every number of senders. The figure has no mark if the goal does
    not apply, and is a dash if its cell does not exist."""
    flood = cells.smallest(nodes, "flood", 1)
    groves = {senders: cells.smallest(nodes, "grove", senders) for senders in SENDERS}
    if flood is None or not any(groves.values()):
        return []
    rows: list[list[str | Shown]] = []
    for text, limit, of_all, figure in _GOALS:
        shown = {senders: Shown("–") if row is None else figure(row, flood) for senders, row in groves.items()}
        if not of_all:
            shown[ALL] = Shown(shown[ALL].text)
        rows.append([text, limit, *shown.values()])
    return rows


def survived(row: Json) -> bool:
    """Return whether, in a cell with a crash or a cut, all living nodes have neighbours, and received all due messages,
    in order and in time."""
    whole = all(phase["least"] == 1.0 for phase in row["phases"].values())
    return whole and not row["violations"] and not row["isolated"] and float(row["settled_s"]) <= SETTLED_S_MAX


def endured(row: Json) -> bool:
    """Return whether, in a cell with churn, nearly all due messages arrived, in order and with few extra copies."""
    enough = float(row["phases"]["run"]["reliability"]) >= CHURN_RELIABILITY_MIN
    return enough and not row["violations"] and float(row["redundancy"]) <= CHURN_RMR_MAX
