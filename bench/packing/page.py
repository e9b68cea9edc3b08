"""The page of `bench packing`: compares the document's claims about its algorithms with our results.

Owns: the words, tables and plots. Must never: compute a figure that the digest does not have, except the ratio of two
figures.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from ingeborg.autoscaler.groups.packing import DOCUMENT
from ingeborg.bench.packing import latency
from ingeborg.bench.packing.found import MAIN, SMALL, Scores
from ingeborg.bench.packing.scores import front
from ingeborg.bench.report.charts import Drawn
from ingeborg.bench.report.markup import Html, badge, bullets, explain, html, panel, plot, table
from ingeborg.bench.report.page import framed
from ingeborg.bench.report.plots import COLOURS, Plot, Series, linear, logarithmic

Json = Mapping[str, Any]

MODIFIED: Final = ("MWF", "MBF", "MWFP", "MBFP")
PLAIN: Final = tuple(name for name in DOCUMENT if name not in MODIFIED)

#: The fewest consumers in plots and tables. With fewer consumers they would only show a backlog.
FEWEST_SHOWN: Final = 15

#: From the document's sentences (section VI-E): delta, the share by which MWF moves less, and the share by which it
#: needs more bins.
CLAIMS: Final = ((5.0, 0.55, 0.118), (25.0, 0.23, 0.088))

#: From section VI-C: the number of consumers, and the 90th percentile of the latencies above 0, in seconds.
LATENCY_CLAIMS: Final = {
    "MWF": "15 consumers, p90 4.52 s",
    "kd_15": "p90 217 s",
    "kd_24": "p90 2.70 s",
    "kd_27": "up to 40 s",
    "kd_30": "p90 1.11 s",
    "kd_31": "none late",
    "kd_32": "none late",
}


def page(document: Json, times: Sequence[Json]) -> str:
    """Return the whole page for the digest of `job.digest`."""
    scores = Scores(document["scores"])
    lead = Html(
        "<p class=lead>Consumers are bins, and the loads of their queues are items whose sizes change. This page "
        "compares the twelve algorithms of the document (Landau et al., arXiv 2402.06085) with <b>mend</b>, an "
        "algorithm of this project, on the document's own streams. CBS: the mean excess of used bins over the fewest "
        "that any of the document's algorithms used. R (Rscore): the load that moves at a decision, as a multiple of "
        "a bin's capacity. ± is half an interval of 95 % over the seeds."
        "</p>"
    )
    parts = [
        _heading("The document's claims, and our results"),
        _claims(scores),
        _reductions(scores),
        _starts(scores),
        _heading("Bins and moves"),
        *_lines(scores),
        *_fronts(scores),
        *(_table(scores, case) for case in (MAIN, SMALL)),
        _ahead(scores),
        *(_table(scores, f"{case} {reading}") for reading in ("as written", "in order") for case in (MAIN, SMALL)),
        _heading("Compared with the optimum"),
        _optimum(document["optimum"]),
        _heading("Latency, compared with equal numbers of queues"),
        *_latency(document["latency"]),
        _heading("Very many queues"),
        *(_table(scores, case) for case in scores.cases if case.startswith("4096")),
        _times(times),
    ]
    footer = Html("<footer><p>Made by bench packing. docs/packing.md explains each figure.</p></footer>")
    return framed("Packing consumer groups", "Evaluation", lead, [part for part in parts if part], footer)


def summary(document: Json) -> str:
    """Return Markdown tables of bins and moves, with aligned columns, for the terminal and the documentation."""
    scores = Scores(document["scores"])
    lines = [
        "# Packing consumer groups",
        "",
        "Each cell shows two means: the excess of used bins over the fewest that any of the document's algorithms used",
        "(CBS), and the load that moves at a decision, as a multiple of a bin's capacity (R).",
    ]
    for case in (SMALL, MAIN):
        deltas = scores.deltas(case)
        rows = [[f"{case} queues", *(f"delta {delta:g}" for delta in deltas)]]
        for name in scores.algorithms(case):
            each = [scores.of(case, delta, name) for delta in deltas]
            rows.append([name, *(f"{row['cbs'][0]:.1%}, {row['rscore'][0]:.2f}" for row in each)])
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        rows.insert(1, ["-" * width for width in widths])
        lines += ["", *("| " + " | ".join(map(str.ljust, row, widths)) + " |" for row in rows)]
    return "\n".join(lines) + "\n"


def _heading(text: str) -> Html:
    return Html(f"<h2>{html(text)}</h2>")


def _percent(values: Sequence[float], digits: int = 1) -> str:
    return f"{values[0]:.{digits}%}" + (f" ± {100 * values[1]:.{digits}f}" if values[1] else "")


def _number(values: Sequence[float]) -> str:
    return f"{values[0]:.2f}" + (f" ± {values[1]:.2f}" if values[1] else "")


def _seconds(value: float) -> str:
    return f"{value:.2f} s" if value < 100 else f"{value:,.0f} s"


# The document's claims


def _claims(scores: Scores) -> Html:
    deltas = [delta for delta in scores.deltas(MAIN) if delta]

    def holds(test: Any) -> Html:
        found = [f"{delta:g}" for delta in deltas if test(delta)]
        mark = "good" if len(found) == len(deltas) else "bad" if not found else "warn"
        return badge(f"{len(found)} of {len(deltas)} deltas", mark)

    def order(delta: float, what: str, names: Sequence[str] = tuple(DOCUMENT)) -> list[str]:
        return sorted(names, key=lambda name: scores.mean(MAIN, delta, name, what))

    def fronts(delta: float) -> list[str]:
        return front({name: _point(scores, MAIN, delta, name) for name in DOCUMENT})

    rows = [
        ("NF needs the most bins, then NFD", holds(lambda delta: order(delta, "cbs")[-2:] == ["NFD", "NF"])),
        (
            "BFD needs the fewest bins of all",
            holds(lambda delta: scores.mean(MAIN, delta, "BFD", "cbs") <= min(_all(scores, delta, "cbs", DOCUMENT))),
        ),
        (
            "MBFP needs the fewest bins of the modified algorithms",
            holds(lambda delta: order(delta, "cbs", MODIFIED)[0] == "MBFP"),
        ),
        (
            "The modified algorithms and NFD are the five that move least",
            holds(lambda delta: set(order(delta, "rscore")[:5]) == {*MODIFIED, "NFD"}),
        ),
        (
            "Modified algorithms that move less need more bins",
            holds(lambda delta: order(delta, "rscore", MODIFIED) == order(delta, "cbs", MODIFIED)[::-1]),
        ),
        ("MWF moves least of all", holds(lambda delta: order(delta, "rscore")[0] == "MWF")),
        (
            "MWF, MBF and MBFP are on the front, and MWFP is not",
            holds(lambda delta: {"MWF", "MBF", "MBFP"} <= set(fronts(delta)) and "MWFP" not in fronts(delta)),
        ),
        (
            "R grows with delta, for every algorithm",
            holds(
                lambda delta: (
                    delta == deltas[0]
                    or all(
                        scores.mean(MAIN, delta, name, "rscore")
                        > scores.mean(MAIN, deltas[deltas.index(delta) - 1], name, "rscore")
                        for name in DOCUMENT
                    )
                )
            ),
        ),
    ]
    like = [
        f"{name} at delta {delta:g}: {_likeness(scores, delta, name)}"
        for name in ("MWF", "MBF")
        for delta in (deltas[0], deltas[-1])
    ]
    return panel(
        f"Orders in figures 9 to 12, with {MAIN} queues",
        table(("the document", "holds in"), rows, "Orders"),
        explain(
            "A sentence holds at a delta if the means over all seeds satisfy it; only deltas above 0 count. The "
            "document also says that a modified algorithm packs like its online fit at a small delta, and like the "
            f"decreasing form of that fit at a large delta. Bins beyond the fewest: {'; '.join(like)}."
        ),
    )


def _likeness(scores: Scores, delta: float, name: str) -> str:
    """Return the excess bins of a modified algorithm and of the two forms of its fit, and which form is closer."""
    online = name.removeprefix("M")
    mine, *others = (scores.mean(MAIN, delta, each, "cbs") for each in (name, online, f"{online}D"))
    near = [abs(mine - each) for each in others]
    return f"{mine:.1%}, {online} {others[0]:.1%}, {online}D {others[1]:.1%}" + (
        " (online)" if near[0] < near[1] else " (decreasing)"
    )


def _all(scores: Scores, delta: float, what: str, names: Sequence[str] | Mapping[str, Any]) -> list[float]:
    return [scores.mean(MAIN, delta, name, what) for name in names]


def _point(scores: Scores, case: str, delta: float, name: str) -> tuple[float, float]:
    return scores.mean(case, delta, name, "cbs"), scores.mean(case, delta, name, "rscore")


def _reductions(scores: Scores) -> Html:
    rows = []
    for case in (MAIN, f"{MAIN} in order", f"{MAIN} as written", SMALL):
        for delta, less, more in CLAIMS:
            ours = scores.mean(case, delta, "MWF", "rscore")
            cells = [f"{case}, delta {delta:g}", f"+{more:.1%}", _percent(scores.of(case, delta, "MWF")["cbs"])]
            cells.append(f"-{less:.0%}")
            cells += [f"{ours / scores.mean(case, delta, name, 'rscore') - 1:+.0%}" for name in PLAIN]
            rows.append(cells)
    header = ("queues", "bins, printed", "bins", "R, printed", *(f"to {name}" for name in PLAIN))
    return panel(
        "MWF: more bins, less to move",
        table(header, rows, "MWF compared with each of the adapted algorithms"),
        explain(
            "The document says that MWF reduces R, but does not say compared with which algorithm. So this table "
            "compares MWF with each of the others. “As written”: sizes can exceed the capacity, as in equation 15. "
            "Elsewhere they are at most the capacity, as in the program that the document's authors have published. "
            "“In order”: NF, FF, BF and WF always process the queues in the same order. Elsewhere the order is "
            "random, and the algorithms rank as in the document."
        ),
    )


def _starts(scores: Scores) -> Html:
    cases = [case for case in scores.cases if case == SMALL or " from " in case]
    if len(cases) < 2:
        return Html("")
    rows = []
    for case in cases:
        start = case.partition(" from ")[2] or "random"
        rows.append(
            [start]
            + [
                f"{_percent(scores.of(case, delta, name)['cbs'])}, {_number(scores.of(case, delta, name)['rscore'])}"
                for delta, _, _ in CLAIMS
                for name in ("MWF", "BFD")
            ]
        )
    header = ("first sizes", *(f"{name}, delta {delta:g}" for delta, _, _ in CLAIMS for name in ("MWF", "BFD")))
    return panel("The start of a stream (section VI-B)", table(header, rows, "CBS and R by the first sizes"))


# Bins and moves


def _lines(scores: Scores) -> list[Html]:
    main = [name for name in scores.algorithms(MAIN) if name in DOCUMENT or name == "mend"]
    few = [*MODIFIED, "BFD", "mend"]
    return [
        _over_delta(scores, main, "cbs", "Figure 9: bins beyond the fewest (CBS)", "f9"),
        _over_delta(scores, few, "cbs", "Figure 10: CBS of the modified algorithms, BFD and mend", "f10"),
        _over_delta(scores, main, "rscore", "Figure 11: load moved at a decision (R)", "f11"),
    ]


def _over_delta(scores: Scores, names: Sequence[str], what: str, title: str, identity: str) -> Html:
    deltas = scores.deltas(MAIN)
    series = [
        Series(name, [(delta, scores.mean(MAIN, delta, name, what)) for delta in deltas], index, dots=True)
        for index, name in enumerate(names)
    ]
    high = max(value for line in series for _, value in line.points if value is not None)
    last = {line.name: line.points[-1][1] or 0.0 for line in series}
    text = _axis(what)
    drawn = Drawn(
        Plot(
            title=title,
            description="At the largest delta: " + ", ".join(f"{name} {text(last[name])}" for name in names) + ".",
            series=series,
            x=linear(max(deltas), lambda value: f"{value:g}"),
            y=linear(high, text),
        )
    )
    return plot(
        drawn, identity, f"{MAIN} queues. The x axis is delta, the greatest change of a size, in per cent of C."
    )


def _axis(what: str) -> Any:
    return (lambda value: f"{value:.3g}") if what == "rscore" else (lambda value: f"{value:.0%}")


def _fronts(scores: Scores) -> list[Html]:
    found = []
    for letter, delta in (("a", 5.0), ("b", 25.0)):
        names = [name for name in scores.algorithms(MAIN) if name in DOCUMENT or name == "mend"]
        points = {name: _point(scores, MAIN, delta, name) for name in names}
        of_document = front({name: points[name] for name in names if name in DOCUMENT})
        everyone = front(points)
        drawn = Drawn(
            Plot(
                title=f"Figure 12{letter}: bins and moves at delta {delta:g}",
                description="On the front: " + ", ".join(everyone) + ".",
                # After the eighth algorithm the colours repeat, and the dots become rings.
                series=[
                    Series(
                        name,
                        [points[name]],
                        index,
                        dots=True,
                        hollow=frozenset({points[name][0]}) if index >= COLOURS else frozenset(),
                    )
                    for index, name in enumerate(names)
                ],
                x=linear(max(x for x, _ in points.values()), _axis("cbs")),
                y=linear(max(y for _, y in points.values()), _axis("rscore")),
            )
        )
        caption = (
            "R over CBS. Points further left and further down are better; the modified algorithms and mend are rings. "
            f"The front of the document's algorithms: {', '.join(of_document)}. The front with mend: "
            f"{', '.join(everyone)}."
        )
        found.append(plot(drawn, f"f12{letter}", caption))
    return found


def _table(scores: Scores, case: str) -> Html:
    deltas = scores.deltas(case)
    header = ("", *(f"delta {delta:g}" for delta in deltas))

    def of(what: str, text: Callable[[Sequence[float]], str]) -> Html:
        rows = [
            [name, *(text(scores.of(case, delta, name)[what]) for delta in deltas)] for name in scores.algorithms(case)
        ]
        return table(header, rows, f"{what}, {case} queues")

    seeds = scores.of(case, deltas[-1], "MWF")["seeds"]
    return panel(
        f"{case} queues",
        explain(f"Excess of used bins over the fewest (CBS), as a mean over {seeds} streams for each delta."),
        of("cbs", _percent),
        explain("Load moved at a decision (R), as a multiple of a bin's capacity."),
        of("rscore", _number),
    )


def _ahead(scores: Scores) -> Html:
    rows = []
    for case in (SMALL, MAIN):
        for delta in scores.deltas(case):
            if not delta:
                continue
            cells: list[str] = [f"{case}, delta {delta:g}"]
            for name in ("MWF", "MWFP", "NFD"):
                row = scores.of(case, delta, name)
                bins, moves = row["cbs_more_than_mend"], row["rscore_more_than_mend"]
                certain = min(bins[0] - bins[1], moves[0] - moves[1]) > 0.0
                text = f"{_percent(bins)}, {_number(moves)}"
                cells.append(badge(text, "good" if certain else "bad"))
            rows.append(cells)
    return panel(
        "How many more bins (CBS) and how much more R the others need than mend",
        table(("queues", "MWF", "MWFP", "NFD"), rows, "Differences from mend"),
        explain("Means of the differences within each stream. Green: both intervals are above 0."),
    )


# The optimum, latencies and times


def _optimum(found: Json | None) -> Html:
    if found is None:
        return panel("The optimum is unknown", explain("bench packing --optimum PYTHON searches for the optimum."))
    settled = found["settled"]
    looked_at = sum(settled.values())
    rows = [
        [row["algorithm"], f"{row['excess']:.1%}", f"{row['reached']:.0%}", str(row["below"])]
        for row in found["algorithms"]
    ]
    return panel(
        f"{SMALL} queues",
        bullets(
            [
                f"We examined {looked_at:,} decisions. For {settled['bound']:,}, the best packing found has as few "
                f"bins as the lower bound L2. CP-SAT found the optimum of another {settled['solved']:,}. The optimum "
                f"of {settled['unsolved']:,} is unknown."
            ]
        ),
        table(("", "bins above the optimum", "optimal", "below the optimum"), rows, "Compared with the optimum"),
        explain("No packing can be below the optimum, so that column has to be 0."),
    )


def _latency(rows: Sequence[Json]) -> list[Html]:
    if not rows:
        return []
    by_name = {row["algorithm"]: row for row in rows}
    p90 = latency.PERCENTILES.index(0.9)
    body = []
    for row in rows:
        if row["algorithm"].startswith("kd_") and row["consumers"][0] < FEWEST_SHOWN:
            continue
        positive, over_all = row["over_positive"] and row["over_positive"][p90], row["over_all"][p90]
        body.append(
            [
                row["algorithm"],
                f"{row['consumers'][0]:.1f}",
                LATENCY_CLAIMS.get(row["algorithm"], ""),
                f"{_seconds(positive[0])} ({_seconds(positive[2])} to {_seconds(positive[3])})" if positive else "none",
                f"{_seconds(over_all[0])} ({_seconds(over_all[2])} to {_seconds(over_all[3])})",
                f"{row['late'][0]:.1%}",
                f"{row['most'][0]:.1f} s",
            ]
        )
    counted = [row for row in rows if row["algorithm"].startswith("kd_")]
    return [
        _histogram(by_name),
        _over_consumers(counted, by_name),
        _percentiles(counted),
        panel(
            "Figures 6 to 8: consumers, and how late data is read",
            table(
                ("", "consumers", "the document", "p90 of late data", "p90 of all data", "late", "latest"),
                body,
                "Latencies",
            ),
            explain(
                "Means over the streams, and their range. The document's 90th percentile covers only late data. So "
                "for every packing that moves anything it is about 0.9 times the pause of 5 s: it follows from the "
                "document's assumed pause and is not a result. Most data is on time. With too few consumers the "
                "backlog grows as long as the stream lasts, so these figures hold only for streams of 3,000 s."
            ),
        ),
    ]


def _histogram(by_name: Mapping[str, Json]) -> Html:
    series, later = [], []
    for index, name in enumerate(("MWF", "kd_27", "mend")):
        points: list[tuple[float, float | None]] = []
        *steps, rest = by_name[name]["histogram"]
        for step, value in enumerate(steps):
            points += [(step * latency.STEP_S, value or None), ((step + 1) * latency.STEP_S, value or None)]
        series.append(Series(name, points, index))
        later.append(f"{name} {rest:.1%}")
    end = (latency.STEPS - 1) * latency.STEP_S
    drawn = Drawn(
        Plot(
            title="Figure 5: latency of MWF, mend and 27 consumers with equal numbers",
            description="The share of all data by its latency, in steps of half a second.",
            series=series,
            x=linear(end, lambda value: f"{value:g} s"),
            y=logarithmic([y for line in series for _, y in line.points if y], lambda value: f"{100 * value:.3g}%"),
        )
    )
    caption = (
        "The share of all data in each half second of latency. The share of data that is later than "
        f"{end:g} s: {', '.join(later)}."
    )
    return plot(drawn, "f5", caption)


def _over_consumers(counted: Sequence[Json], by_name: Mapping[str, Json]) -> Html:
    points = [(row["consumers"][0], row["late"][0]) for row in counted]
    drawn = Drawn(
        Plot(
            title="Figure 7: share of late data",
            description="The share of data that is read late, over the number of consumers.",
            series=[Series("equal numbers of queues", points, 0, dots=True)],
            x=linear(32, lambda value: f"{value:g}"),
            y=linear(1.0, lambda value: f"{value:.0%}"),
            limits=[
                (
                    by_name["MWF"]["late"][0],
                    f"MWF {by_name['MWF']['late'][0]:.1%}, mend {by_name['mend']['late'][0]:.1%}",
                )
            ],
        )
    )
    return plot(drawn, "f7", "The table below shows how many consumers MWF and mend need.")


def _percentiles(counted: Sequence[Json]) -> Html:
    shown = [row for row in counted if row["consumers"][0] >= FEWEST_SHOWN]
    series = [
        Series(
            f"p{100 * part:g}",
            # No data of these consumers may be late: then the line has a gap.
            [
                (row["consumers"][0], (row["over_positive"][index][0] or None) if row["over_positive"] else None)
                for row in shown
            ],
            index,
            dots=True,
        )
        for index, part in enumerate(latency.PERCENTILES)
    ]
    drawn = Drawn(
        Plot(
            title="Figure 8: percentiles of the latency of late data",
            description="With equal numbers of queues, over the number of consumers (15 or more).",
            series=series,
            x=linear(32, lambda value: f"{value:g}", FEWEST_SHOWN),
            y=logarithmic([y for line in series for _, y in line.points if y], lambda value: f"{value:g} s"),
        )
    )
    return plot(drawn, "f8", "Means over the streams.")


def _times(rows: Sequence[Json]) -> Html:
    body = [
        [
            f"{row['case']}, {row['algorithm']}",
            row["form"],
            f"{row['median_ms']:.1f}",
            f"{row['max_ms']:.1f}",
            f"{row['slice_ms']:.2f}",
        ]
        for row in rows
    ]
    header = ("", "form", "median, ms", "longest, ms", "longest slice, ms")
    return panel(
        "How long a decision takes",
        table(header, body, "Times"),
        explain(
            "Measured on the machine and in the form that ran the command. Only these figures do not follow from the "
            "seed. Each decision is made three times, and the shortest time of each slice counts. The first decision "
            "of a stream, which packs everything, is left out."
        ),
    )
