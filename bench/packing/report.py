"""The report of `bench packing`: the document's sentences with verdicts, its figures, and our further figures.

Owns: the words, tables and plots. Must never: compute a figure that the digest does not have, except ratios of two
figures.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from ingeborg.autoscaler.groups.packing import DOCUMENT
from ingeborg.bench.experiments.experiment import Digest
from ingeborg.bench.experiments.figures import percent, with_interval
from ingeborg.bench.packing import claims, late_claims, latency
from ingeborg.bench.packing.claims import MODIFIED, PRINTED
from ingeborg.bench.packing.found import MAIN, SMALL, Found, Scores, Values
from ingeborg.bench.packing.readings import NextFit
from ingeborg.bench.report.plots import COLOURS, Plot, Point, Series, linear, logarithmic
from ingeborg.bench.text.blocks import (
    Block,
    Bullets,
    Cell,
    Figure,
    Fold,
    Panel,
    Report,
    Section,
    Text,
    judged,
    panel,
    table,
)

Json = Mapping[str, Any]

#: The fewest consumers in figure 8. With fewer consumers it would only show a backlog.
FEWEST_SHOWN: Final = 15

#: The meanings of the cases' names, for titles.
CASES: Final = {
    "as written": "sizes as written",
    "whole per cent": "sizes in whole per cent",
    "in order": "items in order",
    "from 0": "first sizes 0",
    "from half C": "first sizes half C",
    "from C": "first sizes C",
    "Zipf 1": "loads by Zipf's law, exponent 1",
    "Zipf 0.5": "loads by Zipf's law, exponent 0.5",
}

LEAD: Final = (
    "This report compares the twelve algorithms of Diogo Landau et al., “Multi-Objective Optimization of Consumer "
    "Group Autoscaling in Message Broker Systems” (arXiv 2402.06085, 2024), with `mend`, an algorithm of this project.",
    "Consumers are bins, and queues are items. In each stream, every queue gets a new load for each decision, which "
    "differs from the former load by at most delta, in per cent of a consumer's capacity C. CBS is the mean excess of "
    "used bins over the fewest that any of the document's algorithms used. R (Rscore) is the load that moves at a "
    "decision, as a multiple of C. ± is half the width of the 95 % confidence interval over the streams.",
)


def report(digest: Digest) -> Report:
    """Return the report for the digest of `job.digest`."""
    found = Found(digest.pure)
    scores = found.scores
    main, small = (Scored(scores, case) for case in (MAIN, SMALL))
    others = [case for case in scores.cases if case not in (MAIN, SMALL) and not case.startswith("4096")]
    large = [case for case in scores.cases if case.startswith("4096")]
    sections = [
        Section(
            "The claims of the document, and our results",
            judged("The document's sentences", [*claims.judged(found), *late_claims.judged(found)], NOTE),
        ),
        Section("Figures 5 to 8: latency", _latency(list(found.latency.values()))),
        Section("Figures 9 to 12: bins and moves", [*main.lines(), *_fronts(digest.pure), *main.tables()]),
        Section(
            "Beyond the document",
            [*_ahead(scores), *small.tables(), *(block for case in others for block in Scored(scores, case).tables())],
        ),
        Section("Compared with the optimum", _optimum(digest.pure["optimum"])),
        Section(
            "4,096 queues",
            [*(block for case in large for block in Scored(scores, case).tables()), *_times(digest.measured)],
        ),
    ]
    return Report(
        "Packing consumer groups",
        "Evaluation",
        LEAD,
        [section for section in sections if section.blocks],
        "make packing",
        ["docs/packing.md explains each figure."],
    )


NOTE: Final = (
    "“As written”: sizes can exceed the capacity, as in equation 15. Elsewhere they are at most the capacity, as in "
    "the program that the document's authors have published. “In order”: NF, FF, BF and WF always get the queues in "
    "the same order. Elsewhere the order is random."
)


def _number(values: Values) -> str:
    return with_interval(values, "{:.2f}".format)


def _seconds(value: float) -> str:
    return f"{value:.2f} s" if value < 100 else f"{value:,.0f} s"


# Bins and moves


class Scored:
    """The figures of one case."""

    def __init__(self, scores: Scores, case: str) -> None:
        self._scores = scores
        self._case = case
        self._deltas = scores.deltas(case)
        items, _, named = case.partition(" ")
        self._title = f"{int(items):,} queues" + (f", {CASES.get(named, named)}" if named else "")

    def tables(self) -> list[Block]:
        """Return a panel with the figures of all algorithms, folded unless the case is the document's."""
        if not self._deltas:
            return []
        names = self._scores.algorithms(self._case)
        seeds = self._scores.of(self._case, self._deltas[-1], names[0])["seeds"]
        both = [self._table(names, "cbs", "CBS", percent), self._table(names, "rscore", "R", _number)]
        text = Text(f"Means over {seeds} {'stream' if seeds == 1 else 'streams'} for each delta.")
        return [(Panel if self._case == MAIN else Fold)(self._title, [text, *both])]

    def _table(self, names: Sequence[str], what: str, title: str, text: Callable[[Values], str]) -> Block:
        rows = [
            [name, *(text(self._scores.of(self._case, delta, name)[what]) for delta in self._deltas)] for name in names
        ]
        return table(title, ("", *(f"delta {delta:g}" for delta in self._deltas)), rows)

    def lines(self) -> list[Block]:
        """Return figures 9 to 11. The document's algorithms are in two groups, because a plot of thirteen lines is not
        readable."""
        if not self._deltas:
            return []
        known = self._scores.algorithms(self._case)
        plain = [name for name in DOCUMENT if name in known and name not in MODIFIED]
        few = [name for name in (*MODIFIED, "BFD", "mend") if name in known]
        return [
            self._over_delta(plain, "cbs", "Figure 9: CBS of the existing algorithms", "f9"),
            self._over_delta(few, "cbs", "Figures 9 and 10: CBS of the modified algorithms, BFD and mend", "f10"),
            self._over_delta(plain, "rscore", "Figure 11a: R of the existing algorithms", "f11a"),
            self._over_delta(few, "rscore", "Figure 11b: R of the modified algorithms, BFD and mend", "f11b"),
        ]

    def _over_delta(self, names: Sequence[str], what: str, title: str, identity: str) -> Figure:
        series = [
            Series(
                name,
                [(delta, self._scores.mean(self._case, delta, name, what)) for delta in self._deltas],
                index,
                dots=True,
            )
            for index, name in enumerate(names)
        ]
        values = [value for line in series for _, value in line.points if value is not None]
        last = {line.name: line.points[-1][1] or 0.0 for line in series}
        text = _axis(what)
        plot = Plot(
            title=title,
            description="At the largest delta: " + ", ".join(f"{name} {text(last[name])}" for name in names) + ".",
            series=series,
            x=linear(max(self._deltas), lambda value: f"{value:g}"),
            y=linear(max(values), text),
        )
        return Figure(plot, identity, f"{self._title}, by delta.")


def _axis(what: str) -> Callable[[float], str]:
    return (lambda value: f"{value:.3g}") if what == "rscore" else (lambda value: f"{100 * value:.3g} %")


def _fronts(pure: Json) -> list[Block]:
    """Return figure 12, with its front as a line and its points with their names."""
    found: list[Block] = []
    for one in pure.get("fronts", ()):
        deltas = [delta for delta, _, _ in PRINTED]
        if one["case"] != MAIN or one["delta"] not in deltas or one["next_fit"] != NextFit.TEXT.value:
            continue
        letter = "ab"[deltas.index(one["delta"])]
        named = [*one["points"], *one["ours"]]
        line: list[Point] = [(x, y) for x, y in one["line"]]
        series = [Series("front of the document's algorithms", line, 0, steps=True)]
        series += [_dots("the document's algorithms", 1, one["points"]), _dots("mend", 2, one["ours"])]
        plot = Plot(
            title=f"Figure 12{letter}: bins and moves at delta {one['delta']:g}",
            description=f"On the front: {', '.join(one['front'])}.",
            series=[line for line in series if line.points],
            x=linear(max(x for _, x, _ in named), _axis("cbs")),
            y=linear(max(y for _, _, y in named), _axis("rscore")),
        )
        caption = f"R over CBS, {MAIN} queues. Points further left and further down are better."
        found.append(Figure(plot, f"f12{letter}", caption))
    return found


def _dots(title: str, colour: int, points: Sequence[tuple[str, float, float]]) -> Series:
    """Return points with their names."""
    dots: list[Point] = [(x, y) for _, x, y in points]
    return Series(title, dots, colour, dots=True, joined=False, labels=[name for name, _, _ in points])


def _ahead(scores: Scores) -> list[Block]:
    rows: list[list[str | Cell]] = []
    for case in (SMALL, MAIN):
        for delta in scores.deltas(case):
            row = {name: scores.of(case, delta, name) for name in ("MWF", "MWFP", "NFD")} if delta else {}
            if not row or "cbs_more_than_mend" not in row["MWF"]:
                continue
            cells: list[str | Cell] = [f"{case}, delta {delta:g}"]
            for each in row.values():
                bins, moves = each["cbs_more_than_mend"], each["rscore_more_than_mend"]
                certain = min(bins[0] - bins[1], moves[0] - moves[1]) > 0.0
                cells.append(Cell(f"{percent(bins)}, {_number(moves)}", mark="good" if certain else "bad"))
            rows.append(cells)
    note = "Means of the differences within each stream. Green: both intervals are above 0."
    title = "How many more bins (CBS) and how much more R the others need than mend"
    return panel(title, ("queues", "MWF", "MWFP", "NFD"), rows, note)


# The optimum, latencies and times


def _optimum(found: Json | None) -> list[Block]:
    if found is None:
        return []
    settled = found["settled"]
    text = (
        f"We examined {sum(settled.values()):,} decisions with {SMALL} queues. For {settled['bound']:,}, the best "
        f"packing found has as few bins as the lower bound L2. CP-SAT found the optimum of another "
        f"{settled['solved']:,}. The optimum of {settled['unsolved']:,} is unknown."
    )
    rows = [
        [row["algorithm"], f"{row['excess']:.1%}", f"{row['reached']:.0%}", str(row["below"])]
        for row in found["algorithms"]
    ]
    header = ("", "bins above the optimum", "optimal", "below the optimum")
    note = "No packing can be below the optimum, so that column has to be 0."
    return [Bullets([text]), *panel("Distance from the optimum", header, rows, note)]


def _latency(rows: Sequence[Json]) -> list[Block]:
    if not rows:
        return []
    counted = [row for row in rows if row["algorithm"].startswith("kd_")]
    packed = [row for row in rows if not row["algorithm"].startswith("kd_")]
    return [
        _histogram({row["algorithm"]: row for row in rows}),
        _over_consumers(counted, packed),
        _percentiles(counted),
        Panel("Figures 6 to 8 for every algorithm", [_late_table(packed)]),
        Fold("Figures 6 to 8 for equal numbers of queues", [_late_table(counted)]),
    ]


def _late_table(rows: Sequence[Json]) -> Block:
    p90 = latency.PERCENTILES.index(0.9)

    def spread(values: Sequence[float]) -> Cell:
        return Cell(_seconds(values[0]), f"{_seconds(values[2])} to {_seconds(values[3])}")

    body = [
        [
            row["algorithm"],
            f"{row['consumers'][0]:.1f}",
            percent(row["late"]),
            spread(row["over_positive"][p90]) if row["over_positive"] else "none",
            spread(row["over_all"][p90]),
            _seconds(row["most"][0]),
        ]
        for row in rows
    ]
    note = (
        "Means over the streams, and their range. The document's 90th percentile covers only late data. For a packing "
        "that moves anything, this percentile is about 0.9 times the assumed pause of 5 s. If a group has too few "
        "consumers, its backlog grows as long as the stream lasts, so these figures hold only for streams of 3,000 s."
    )
    return table("", ("", "consumers", "late", "p90 of late data", "p90 of all data", "latest"), body, note)


def _histogram(by_name: Mapping[str, Json]) -> Figure:
    series, later = [], []
    for index, name in enumerate(("MWF", "kd_27", "mend")):
        *steps, rest = by_name[name]["histogram"]
        points: list[Point] = [(step * latency.STEP_S, value or None) for step, value in enumerate(steps)]
        series.append(Series(name, [*points, (len(steps) * latency.STEP_S, None)], index, steps=True))
        later.append(f"{name} {rest:.1%}")
    end = (latency.STEPS - 1) * latency.STEP_S
    plot = Plot(
        title="Figure 5: latency of MWF, mend and 27 consumers with equal numbers",
        description="The share of all data by its latency, in steps of half a second.",
        series=series,
        x=linear(end, lambda value: f"{value:g} s"),
        y=logarithmic([y for line in series for _, y in line.points if y], _axis("cbs")),
    )
    caption = f"The share of all data in each half second. Share of data later than {end:g} s: {', '.join(later)}."
    return Figure(plot, "f5", caption)


def _over_consumers(counted: Sequence[Json], packed: Sequence[Json]) -> Figure:
    equal: list[Point] = [(row["consumers"][0], row["late"][0]) for row in counted]
    series = [Series("equal numbers of queues", equal, 0, dots=True)]
    points = [(row["algorithm"], row["consumers"][0], row["late"][0]) for row in packed]
    series.append(_dots("the document's algorithms", 1, [point for point in points if point[0] in DOCUMENT]))
    series.append(_dots("mend", 2, [point for point in points if point[0] == "mend"]))
    plot = Plot(
        title="Figures 6 and 7: consumers, and the share of late data",
        description="Each point is an algorithm, or a number of consumers with equal numbers of queues.",
        series=[line for line in series if line.points],
        x=linear(32, lambda value: f"{value:g}"),
        y=linear(1.0, lambda value: f"{value:.0%}"),
    )
    return Figure(plot, "f7", "The share of data that is read late, by the mean number of consumers.")


def _percentiles(counted: Sequence[Json]) -> Figure:
    shown = [row for row in counted if row["consumers"][0] >= FEWEST_SHOWN and row["over_positive"]]
    series = [
        Series(
            f"p{100 * part:g}",
            [(row["consumers"][0], row["over_positive"][index][0] or None) for row in shown],
            index % COLOURS,
            dots=True,
        )
        for index, part in enumerate(latency.PERCENTILES)
    ]
    plot = Plot(
        title="Figure 8: percentiles of the latency of late data",
        description=f"With equal numbers of queues, over the number of consumers ({FEWEST_SHOWN} or more).",
        series=series,
        x=linear(32, lambda value: f"{value:g}", FEWEST_SHOWN),
        y=logarithmic([y for line in series for _, y in line.points if y], lambda value: f"{value:g} s"),
    )
    return Figure(plot, "f8", "Means over the streams with late data. Without late data there is no point.")


def _times(measured: Json) -> list[Block]:
    rows = [
        [
            f"{row['case']}, {row['algorithm']}",
            row["form"],
            f"{row['median_ms']:.1f}",
            f"{row['max_ms']:.1f}",
            f"{row['slice_ms']:.2f}",
        ]
        for row in measured.get("times", ())
    ]
    note = (
        "Measured on the machine and in the form that ran the command. Only these figures do not follow from the seed. "
        "Each decision is made three times, and the shortest time of each slice counts. The first decision of a "
        "stream, which packs everything, is left out."
    )
    header = ("", "form", "median, ms", "longest, ms", "longest slice, ms")
    return panel("How long a decision takes", header, rows, note)
