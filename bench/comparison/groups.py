"""The groups of runs: repetitions, comparable runs, and the baseline of ratios.

Owns the vocabulary of a comparison (`Figure`, `Limit`) and its grouping. It takes every figure from the digest, and
derives medians and extremes over repetitions, sums of counts, and ratios. It neither reads logs nor formats numbers.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from typing import Any, NamedTuple, Protocol, TypeVar

from ingeborg.bench.digest.document import Json

OWN_SYSTEM = "ingeborg"
OWN_VARIANT = "home"
"""The baseline of ratios: this broker in its intended set-up."""

COUNTS = ("lost", "conflated", "duplicated", "reordered", "errors")
"""Counts whose sum over repetitions is shown. A median would hide a single run that lost something."""


class Figure(NamedTuple):
    """A figure over repetitions: the median (for a count, the sum), the least and the greatest value, and the number of
    runs that have the figure."""

    value: float
    low: float
    high: float
    runs: int


class Limit(NamedTuple):
    """The limit of a figure. `part` is `system` if the system itself was the limit. Otherwise it is `generator`,
    `layer`, `machine`, `ceiling` (the upper end of the search), `rate` (a fixed rate) or `unknown`. `why` is the reason
    in words."""

    part: str
    why: str


Figures = Mapping[str, Figure | None]
Read = Callable[[Json], float | None]
"""A function that finds a figure in a run of the digest."""


class Named(Protocol):
    """A row of a comparison."""

    @property
    def system(self) -> str: ...

    @property
    def variant(self) -> str: ...


Row = TypeVar("Row", bound=Named)


def ratio(of: Figure | None, to: Figure | None) -> float | None:
    """Return a figure as a multiple of the baseline's figure, or None if either figure is missing or the baseline's
    figure is 0."""
    return of.value / to.value if of is not None and to is not None and to.value else None


def load(run: Json, names: Sequence[str]) -> Json:
    """Return the named settings that a run's configuration has."""
    config = run["facts"].get("config")
    return {name: config[name] for name in names if name in config} if isinstance(config, dict) else {}


def of_kind(run: Json, kind: str) -> Json | None:
    """Return the phase of this kind, or the last such phase if there are several."""
    return next((phase for phase in reversed(run["phases"]) if phase["kind"] == kind), None)


CUT_SHORT = "cut short"
"""The reason of a run that its user ended: Ctrl-C, or a time limit."""


def failure(run: Json) -> str | None:
    """Return in words why a run did not end well, or None if it did."""
    if run["failed"]:
        return str(run["failed"])
    return None if run["facts"]["complete"] else CUT_SHORT


def figure(values: Iterable[float | None]) -> Figure | None:
    """Return the median of the existing values."""
    known = [value for value in values if value is not None]
    return Figure(statistics.median(known), min(known), max(known), len(known)) if known else None


def total(values: Iterable[float | None]) -> Figure | None:
    """Return the sum of the existing counts. A median would hide a single run that lost something."""
    known = [value for value in values if value is not None]
    return Figure(sum(known), min(known), max(known), len(known)) if known else None


def figures(reads: Mapping[str, Read], runs: Sequence[Json]) -> dict[str, Figure | None]:
    """Return the figures of repetitions: medians of what `reads` finds, and the sums of `COUNTS` over the measured
    phases."""
    made: dict[str, Figure | None] = {name: figure(map(read, runs)) for name, read in reads.items()}
    return made | {name: total(map(_measured(name), runs)) for name in COUNTS}


def _measured(name: str) -> Read:
    # An old digest has fewer counts.
    return lambda run: run["measured"].get(name) if run["measured"]["news"] else None


def saturated(phases: Iterable[Json]) -> tuple[Limit, ...]:
    """Return the parts, other than the system, that were at their limit in any phase."""
    return distinct(Limit(part["part"], part["why"]) for phase in phases for part in phase["saturated"])


def distinct(limits: Iterable[Limit]) -> tuple[Limit, ...]:
    """Return each part once, with the reason of its first appearance."""
    parts: dict[str, Limit] = {}
    for limit in limits:
        parts.setdefault(limit.part, limit)
    # `system` means that no other part was at its limit. So `system` does not count if another repetition had a part at
    # its limit.
    return tuple(limit for part, limit in parts.items() if part != "system" or len(parts) == 1)


def by_load(runs: Iterable[Json], names: Sequence[str]) -> list[tuple[Json, list[Json]]]:
    """Return a pair for each load: its settings, and its runs in their order."""
    tables: dict[str, tuple[Json, list[Json]]] = {}
    for run in runs:
        settings = load(run, names)
        tables.setdefault(_key(settings), (settings, []))[1].append(run)
    return list(tables.values())


def _key(value: Any) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False)


def forms_of(facts: Mapping[str, Any], what: str) -> dict[str, list[str]]:
    """Return the forms of the code (`compiled`, `interpreted`) that a run's `generator` or `endpoints` (``what``) had,
    each with the names of its processes. The result is empty if the log does not contain the form, and for the
    endpoints of systems other than this broker."""
    form = facts.get("form")
    said = form.get(what) if isinstance(form, dict) else None
    if isinstance(said, str):
        return {said: [what]}
    found: dict[str, list[str]] = {}
    for name, of_one in said.items() if isinstance(said, dict) else ():
        found.setdefault(str(of_one), []).append(str(name))
    return found


def _setup(run: Json, ignored: Set[str]) -> Json:
    """Return the settings that two runs of one system and variant must share to be repetitions of each other. They
    include the form of the code, because compiled and interpreted endpoints differ like endpoints with different
    settings."""
    facts = run["facts"]
    config = facts.get("config")
    setup = {name: value for name, value in config.items() if name not in ignored} if isinstance(config, dict) else {}
    forms = {what: " and ".join(sorted(forms_of(facts, what))) for what in ("generator", "endpoints")}
    return setup | {what: form for what, form in forms.items() if form}


def repetitions(runs: Sequence[Json], ignored: Set[str] = frozenset()) -> list[tuple[str, list[Json]]]:
    """Return groups of runs with the same system, variant and configuration, each with a name. If groups share system
    and variant, their names have the settings in which they differ."""
    groups: dict[tuple[str, str, str], list[Json]] = {}
    for run in runs:
        facts = run["facts"]
        key = (str(facts["system"]), str(facts.get("variant") or ""), _key(_setup(run, ignored)))
        groups.setdefault(key, []).append(run)
    made = []
    for (system, variant, _), group in groups.items():
        parts = [system] + [variant] * bool(variant)
        alike = [_setup(other[0], ignored) for key, other in groups.items() if key[:2] == (system, variant)]
        for name, value in _setup(group[0], ignored).items():
            if any(_key(other.get(name)) != _key(value) for other in alike):
                parts.append(f"{name.replace('_', ' ')} {value}")
        made.append((" · ".join(parts), group))
    return made


def baseline_first(rows: Sequence[Row]) -> list[Row]:
    """Sort the rows: first this broker with the variant of the baseline, then this broker with other variants, then the
    other systems. Rows of the same group keep their order."""

    def rank(row: Row) -> int:
        if row.system != OWN_SYSTEM:
            return 2
        return 0 if row.variant.partition(",")[0].strip() == OWN_VARIANT else 1

    return sorted(rows, key=rank)
