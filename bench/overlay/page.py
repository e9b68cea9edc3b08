"""The page of `bench overlay`: the document's figures and sentences, our figures for them, and further experiments.

Owns: the texts, tables, plots and drawings. Must never: compute a figure that the cells lack, except means over cells
and ratios of two figures.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from ingeborg.bench.overlay import claims, judges
from ingeborg.bench.overlay.cells import Cells, start_of
from ingeborg.bench.overlay.experiments import ALL, INTERVALS_MS, KB, PAYLOADS, SENDERS, TIMEOUTS_MS
from ingeborg.bench.overlay.summary import share, what
from ingeborg.bench.report.charts import Drawn
from ingeborg.bench.report.markup import Html, badge, bullets, explain, folded, framed, html, panel, plot, table
from ingeborg.bench.report.plots import Plot, Series, linear, logarithmic

Json = Mapping[str, Any]

#: The lines in figures 4.2 and 4.3, each with a protocol and a number of senders.
LINES: Final = (
    ("prc", 1),
    *(("plumtree", senders) for senders in SENDERS),
    *(("cptcast", senders) for senders in SENDERS),
    ("grove", 1),
    ("grove", 20),
)

#: Protocols in the tables that compare all protocols, at the document's smallest payload and shortest interval.
BESIDE: Final = ("flood", "prc", "gossip", "star", "plumtree", "cptcast", "grove")

MARKS: Final = {"holds": "good", "does not": "bad", "within noise": "warn", "depends": "warn"}

SIDE: Final = 640
"""Width of the drawing, in user units."""


def page(document: Json) -> str:
    """Return the whole page from the command's results."""
    cells = Cells(document["cells"])
    lead = Html(
        "<p class=lead>CPTCast, Plumtree and PRC-broadcast as in the document (CPTCast: causal broadcast over trees), "
        "and <b>grove</b>, the protocol of this project, among simulated nodes at two sites that are 12.5 ms apart, "
        "with 50 nodes on each host. The same seed gives the same page.</p>"
    )
    parts: list[Html] = []
    for nodes in cells.sizes("thesis"):
        parts += [
            _heading(f"The document's experiments, {nodes:,} nodes"),
            _claims(cells, nodes),
            *_latencies(cells, nodes),
            _redundancies(cells, nodes),
            _heading(f"Beyond the document, {nodes:,} nodes"),
            _goals(cells, nodes),
            _beside(cells, nodes),
            _kinds(cells, nodes),
        ]
    for nodes in cells.sizes("timers"):
        parts += [_heading(f"The wait for an announced message, {nodes:,} nodes"), _timers(cells, nodes)]
    for nodes in cells.sizes("crash"):
        parts += [_heading(f"Crashes and cuts, {nodes:,} nodes"), *_crashes(cells, nodes), _cuts(cells, nodes)]
    for nodes in cells.sizes("churn"):
        parts += [_heading(f"Churn, {nodes:,} nodes"), _churn(cells, nodes)]
    parts += [_heading("An overlay and a tree"), _drawing(document["drawing"]), _all(cells)]
    footer = Html(
        "<footer><p>Made by bench overlay. Every figure comes from a row that the command keeps.</p></footer>"
    )
    return framed("Broadcast over trees", "Evaluation", lead, [part for part in parts if part], footer)


def _heading(text: str) -> Html:
    return Html(f"<h2>{html(text)}</h2>")


def _name(protocol: str, senders: int) -> str:
    return f"{protocol}, {'one sender' if senders == 1 else 'all' if senders == ALL else f'{senders} senders'}"


# The document's figures


def _claims(cells: Cells, nodes: int) -> Html:
    rows = [
        [
            claim.text,
            badge(claim.verdict, MARKS[claim.verdict]),
            Html(f"{html(claim.found)}<span class=said>{html(claim.why)} ({html(claim.reading)})</span>"),
        ]
        for claim in claims.judged(cells, nodes)
    ]
    if not rows:
        return Html("")
    seeds = len(cells.seeds(nodes))
    worlds = (
        "There is one world for each cell."
        if seeds == 1
        else f"There are {seeds} worlds with different seeds for each cell. Figures are means, and a result that holds "
        "only in some worlds is within noise."
    )
    return panel(
        "The document's sentences",
        table(("chapter 4", "here", "our figures, and the reason"), rows, "Sentences", "compared words sentences"),
        explain(
            f"{worlds} A difference of latency or RMR of less than {judges.NOISE:.0%} is within noise. If all nodes "
            "send, a cell starts cold, or warm after one message of any node, which makes a tree. Otherwise, each "
            "sender has sent one message before. The document gives neither the start nor TIMEOUT1."
        ),
    )


def _latencies(cells: Cells, nodes: int) -> list[Html]:
    found = []
    for number, payload in enumerate(PAYLOADS):
        series = []
        for index, (protocol, senders) in enumerate(LINES):
            points: list[tuple[float, float | None]] = [
                (interval, cells.mean_ms(nodes, protocol, senders, payload, interval)) for interval in INTERVALS_MS
            ]
            if any(value is not None for _, value in points):
                series.append(Series(_name(protocol, senders), points, index, dots=True))
        if series:
            drawn = Drawn(
                Plot(
                    title=f"Figure 4.2{'abcd'[number]}: mean latency, payloads of {payload // 1000:,} KB",
                    description="At the shortest interval: "
                    + ", ".join(f"{line.name} {_ms(line.points[0][1])}" for line in series)
                    + ".",
                    series=series,
                    x=linear(max(INTERVALS_MS), lambda value: f"{value:g} ms"),
                    y=logarithmic([y for line in series for _, y in line.points if y], _ms),
                )
            )
            found.append(plot(drawn, f"f42-{nodes}-{number}", "By the interval between two broadcasts."))
    return found


def _ms(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value / 1e3:.3g} s" if value >= 1_000 else f"{value:.3g} ms"


def _redundancies(cells: Cells, nodes: int) -> Html:
    rows = []
    for protocol, senders in LINES:
        values = [cells.redundancy(nodes, protocol, senders, payload) for payload in PAYLOADS]
        if any(value is not None for value in values):
            rows.append([_name(protocol, senders), *("–" if value is None else f"{value:.3f}" for value in values)])
    if not rows:
        return Html("")
    return panel(
        "Figure 4.3: payloads beyond those of a tree (RMR)",
        table(("", *(f"{payload // 1000:,} KB" for payload in PAYLOADS)), rows, "RMR by payload"),
        explain(
            "The RMR is m / (n - 1) - 1 for m copies of a payload that n nodes got. Each value is a mean over the "
            "intervals, without each sender's first message. The document reports about 4 for PRC-broadcast, close to "
            "0 for one sender, and less than 1 for several senders."
        ),
    )


# Beyond the document


def _judged(text: str, met: bool | None) -> str | Html:
    """Return a figure with its verdict as a badge, or the text alone if ``met`` is None, because no goal applies."""
    return text if met is None else badge(text, "good" if met else "bad")


def _goals(cells: Cells, nodes: int) -> Html:
    rows = [
        [goal.text, goal.limit, *(_judged(text, met) for text, met in goal.found)]
        for goal in claims.goals(cells, nodes)
    ]
    if not rows:
        return Html("")
    names = claims.GOAL_SENDERS
    return panel(
        "grove and its goals",
        table(("", "goal", *(_name("", senders).removeprefix(", ") for senders in names)), rows, "Goals"),
        explain(
            "Messages have 1 KB, and one is sent every 20 ms. If all nodes send, nearly every message is the first one "
            "of its root. Such a message floods the overlay and makes a tree."
        ),
    )


def _beside(cells: Cells, nodes: int) -> Html:
    columns: tuple[tuple[str, Callable[[Json, Json], str]], ...] = (
        ("reliability", lambda _, phase: share(phase["reliability"])),
        ("out of order", lambda row, _: f"{row['violations']:,}"),
        ("mean", lambda _, phase: _ms(phase["mean_ms"])),
        ("p50", lambda _, phase: _ms(phase["p50_ms"])),
        ("p99", lambda _, phase: _ms(phase["p99_ms"])),
        ("last hop", lambda _, phase: f"{phase['last_hop']:.1f}"),
        ("RMR", lambda _, phase: f"{phase['redundancy']:.3f}"),
        ("first", lambda row, _: _first(row)),
        ("control", lambda _, phase: f"{phase['control_bytes']:.0f} B"),
        ("memory", lambda row, _: f"{row['memory_bytes'] / 1e3:,.1f} kB"),
    )
    rows = [
        [_name(protocol, senders), *(text(row, row["phases"]["run"]) for _, text in columns)]
        for protocol in BESIDE
        for senders in SENDERS
        if (row := cells.smallest(nodes, protocol, senders)) is not None
    ]
    return panel(
        "All protocols compared: 1 KB every 20 ms",
        table(("", *(name for name, _ in columns)), rows, "All protocols"),
        explain(
            "Out of order: deliveries of a message after a later message whose sender already had it. Last hop: the "
            "longest path of a payload, in links (LDH). First: RMR of each sender's first message. Control: bytes "
            "other than the payload, per node and message. Memory: bytes of a node's state at the end, in this "
            "interpreter."
        ),
    )


def _first(row: Json) -> str:
    return f"{row['phases']['first']['redundancy']:.2f}" if "first" in row["phases"] else "–"


def _kinds(cells: Cells, nodes: int) -> Html:
    rows = []
    for protocol in BESIDE:
        for senders in (1, 20):
            row = cells.smallest(nodes, protocol, senders)
            if row is not None:
                each = row["phases"]["run"]["messages"] * nodes
                text = ", ".join(
                    f"{name} {count / each:.2f} ({size / each:.0f} B)"
                    for name, (count, size, _) in row["kinds"].items()
                )
                rows.append([_name(protocol, senders), text])
    return panel(
        "Traffic over the links, per node and message", table(("", "messages (bytes)"), rows, "Kinds", "words")
    )


def _timers(cells: Cells, nodes: int) -> Html:
    found: dict[tuple[str, str, int, int], dict[int, Json]] = {}
    for row in cells.timers(nodes):
        senders = _name(row["protocol"], row["senders"])
        key = (senders, start_of(row), row["payload_bytes"], row["interval_ms"])
        found.setdefault(key, {}).setdefault(row["timeout1_ms"], row)

    def text(row: Json | None) -> Html:
        if row is None:
            return Html("–")
        phase = row["phases"]["run"]
        beside = f"RMR {phase['redundancy']:.2f}, {judges.asked(row):.3f} GRAFTs"
        return Html(f"{html(_ms(phase['mean_ms']))}<span class=small>{html(beside)}</span>")

    rows = [
        [
            f"{senders}, {start}",
            Html(f"{payload // KB:,} KB<span class=small>every {interval} ms</span>"),
            *(text(of.get(timeout)) for timeout in TIMEOUTS_MS),
        ]
        for (senders, start, payload, interval), of in sorted(found.items(), key=lambda item: (item[0][2], item[0]))
    ]
    return panel(
        "Plumtree and CPTCast with other timers",
        table(("", "", *(f"after {timeout} ms" for timeout in TIMEOUTS_MS)), rows, "Timers", "compared"),
        explain(
            "The columns are values of TIMEOUT1, after which a node requests an announced message (TIMEOUT2 is 0.4 of "
            "this time). The cells have the mean latency, the RMR, and the GRAFTs per node and message. The document "
            "gives no value for TIMEOUT1. If a message came before, and the timer is longer than the delay between "
            "an announcement and the message on the tree, the tree settles. If the timer is shorter, the tree "
            "changes with every message."
        ),
    )


# Faults


def _crashes(cells: Cells, nodes: int) -> list[Html]:
    rows = cells.of("crash", nodes)
    series: list[Series] = []
    for index, protocol in enumerate(dict.fromkeys(row["protocol"] for row in rows)):
        points = sorted((row["share"], 1 - _least(row)) for row in rows if row["protocol"] == protocol)
        series.append(Series(protocol, points, index, dots=True))
    body = [_faulted(row) for row in sorted(rows, key=lambda row: (row["protocol"], row["share"]))]
    drawn = Drawn(
        Plot(
            title="Share of surviving nodes that lack the worst-delivered message",
            description="The share of surviving nodes that lack the message that reached the fewest of them, by the "
            "share of nodes that crashed.",
            series=series,
            x=linear(0.8, lambda value: f"{value:.0%}", 0.0),
            y=linear(1.0, lambda value: f"{value:.0%}"),
        )
    )
    return [
        plot(drawn, f"crash-{nodes}", "By the share of nodes that crash at once, with 20 senders."),
        panel("A share of the nodes crashes at once", table(_FAULT_COLUMNS, body, "Crashes"), _FAULT_WORDS),
    ]


def _least(row: Json) -> float:
    return min(float(phase["least"]) for phase in row["phases"].values())


_FAULT_COLUMNS: Final = (
    "",
    "goal",
    "before",
    "during the fault",
    "after",
    "settled after",
    "out of order",
    "parts, isolated",
    "registry",
    "RMR",
)
_FAULT_WORDS: Final = explain(
    "Before, during the fault, after: reliability of the messages sent in each period, among nodes that are up at the "
    "end. The period of the fault is the 5 s of the cut, or the 5 s after the crash. Settled after: the time from the "
    "crash, or from the end of the cut, to the last delivery of a message sent before that moment. Registry: reads of "
    "the registry by nodes that knew no other node. Goal of grove: no message lost or out of order, no node isolated, "
    "settled within "
    f"{claims.SETTLED_S_MAX:g} s."
)


def _faulted(row: Json) -> list[str]:
    """Return the cells of a crash or a cut, in the order of ``_FAULT_COLUMNS``."""
    return [
        _faulty(row),
        _met(row, claims.survived),
        *(share(row["phases"][name]["reliability"]) for name in ("run", "during", "after")),
        f"{row['settled_s']:.2f} s",
        f"{row['violations']:,}",
        f"{row['islands']}, {row['isolated']}",
        f"{row['registry_reads']}",
        f"{row['redundancy']:.3f}",
    ]


def _faulty(row: Json) -> str:
    """Return the name of a cell with faults, for the table of its experiment."""
    words = [row["protocol"], *([f"{100 * row['share']:g} %"] if row["share"] else [])]
    return ", ".join([*words, *([f"seed {row['seed']}"] if row["seed"] > 1 else [])])


def _met(row: Json, goal: Callable[[Json], bool]) -> Html:
    """Say whether grove has met its goal. Other protocols have no goal."""
    if row["protocol"] != "grove":
        return Html("")
    return badge("met", "good") if goal(row) else badge("missed", "bad")


def _cuts(cells: Cells, nodes: int) -> Html:
    body = [_faulted(row) for row in cells.of("cut", nodes)]
    return (
        panel("Two halves of the nodes cut off from each other for 5 s", table(_FAULT_COLUMNS, body, "Cuts"))
        if body
        else Html("")
    )


def _churn(cells: Cells, nodes: int) -> Html:
    body = [
        [
            _faulty(row),
            _met(row, claims.endured),
            share(row["phases"]["run"]["reliability"]),
            share(row["phases"]["run"]["least"]),
            f"{row['violations']:,}",
            f"{row['redundancy']:.3f}",
            _ms(row["phases"]["run"]["mean_ms"]),
            _ms(row["phases"]["run"]["p99_ms"]),
            f"{row['islands']}, {row['isolated']}",
            f"{row['registry_reads']:,}",
        ]
        for row in sorted(cells.of("churn", nodes), key=lambda row: (row["protocol"], row["share"]))
    ]
    header = (
        "",
        "goal",
        "reliability",
        "worst message",
        "out of order",
        "RMR",
        "mean",
        "p99",
        "parts, isolated",
        "registry",
    )
    return panel(
        "Nodes crash and others join, by the share per second",
        table(header, body, "Churn"),
        explain(
            "A message is due to nodes that were in the overlay when it was sent, and are up at the end. Each new node "
            f"reads the registry. Goal of grove: reliability {claims.CHURN_RELIABILITY_MIN:.2%} or more, no message "
            f"out of order, RMR {claims.CHURN_RMR_MAX:g} or less."
        ),
    )


# Drawings


def _drawing(drawn: Json) -> Html:
    half = SIDE / 2

    def at(node: int) -> tuple[float, float]:
        x, y = drawn["places"][node]
        return round(half + x * (half - 12), 1), round(half + y * (half - 12), 1)

    def path(pairs: Sequence[Sequence[int]]) -> str:
        parts = []
        for one, other in pairs:
            (from_x, from_y), (to_x, to_y) = at(one), at(other)
            parts.append(f"M{from_x:g} {from_y:g}L{to_x:g} {to_y:g}")
        return "".join(parts)

    parents = drawn["parents"]
    tree = [(node, parent) for node, parent in enumerate(parents) if node != parent]
    dots = "".join(f"M{x:g} {y:g}h0" for x, y in map(at, range(len(parents))))
    root = next(node for node, parent in enumerate(parents) if node == parent)
    root_x, root_y = at(root)
    title = f"{len(parents)} nodes, {len(drawn['links'])} links, and the tree of one root"
    svg = (
        f'<svg viewBox="0 0 {SIDE} {SIDE}" role="img" aria-label="{html(title)}" style="max-width:{SIDE}px">'
        f'<path class="axis" opacity=".35" d="{path(drawn["links"])}"/><path class="line s0" d="{path(tree)}"/>'
        f'<path class="dot s1" d="{dots}"/><path class="dot s2" d="M{root_x:g} {root_y:g}h0" stroke-width="12"/></svg>'
    )
    words = (
        "Grey: the overlay's links between random neighbours. Coloured: the links over which nodes first got the "
        "payload of one message, from the root in the middle outwards. Each root has its own tree in the same overlay."
    )
    figure = f"<figure><h3>{html(title)}</h3>{svg}<figcaption>{html(words)}</figcaption></figure>"
    return Html(f'<section class="panel">{figure}</section>')


def _all(cells: Cells) -> Html:
    header = ("cell", "reliability", "out of order", "mean", "p99", "RMR", "events")
    rows = [
        [
            what(row),
            share(row["phases"]["run"]["reliability"]),
            f"{row['violations']:,}",
            _ms(row["phases"]["run"]["mean_ms"]),
            _ms(row["phases"]["run"]["p99_ms"]),
            f"{row['redundancy']:.3f}",
            f"{row['events']:,}",
        ]
        for row in cells.rows
    ]
    return panel(
        "All cells",
        bullets([f"{len(rows)} cells, with {sum(row['events'] for row in cells.rows):,} events in their worlds."]),
        folded("Each cell", table(header, rows, "All cells")),
    )
