"""The report of `bench overlay`: the document's sentences with verdicts, its figures, and further experiments.

Owns: the words, tables, plots and the drawing. Must never: compute a figure that the cells do not have, except means
over cells and ratios of two figures.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from ingeborg.bench.experiments.experiment import Digest
from ingeborg.bench.overlay import claims, judges, printed
from ingeborg.bench.overlay.cases import (
    ALL,
    COLD,
    INTERVALS_MS,
    KB,
    NAMED_MS,
    PAYLOADS,
    SENDERS,
    THESIS,
    TIMEOUTS_MS,
    TIMERS,
    TREES,
    WARM,
)
from ingeborg.bench.overlay.cells import Cells, Reading, View, share, start_of
from ingeborg.bench.report.plots import Plot, Point, Series, linear, logarithmic
from ingeborg.bench.text.blocks import (
    Block,
    Cell,
    Claim,
    Drawing,
    Figure,
    Fold,
    Panel,
    Report,
    Section,
    Table,
    Text,
    judged,
    panel,
    table,
)

Json = Mapping[str, Any]

Line = tuple[str, int, str]
"""A protocol, its number of senders, and the start."""

Columns = tuple[tuple[str, Callable[[Json], str | Cell]], ...]
"""Columns of a table, computed from a cell's row."""

SINGLE: Final[tuple[Line, ...]] = (("prc", 1, WARM), ("plumtree", 1, WARM), ("cptcast", 1, WARM))
SEVERAL: Final[tuple[Line, ...]] = (
    ("prc", 1, WARM),
    ("plumtree", ALL, COLD),
    ("cptcast", ALL, COLD),
    ("plumtree", ALL, WARM),
    ("cptcast", ALL, WARM),
)
"""The lines of figures 4.2 and 4.3, in two groups, because in one group two of the five lines would hide other lines.
PRC-broadcast has one line for both groups."""

OURS: Final[tuple[Line, ...]] = (
    *((protocol, senders, WARM) for protocol in TREES for senders in (20, 100)),
    ("prc", ALL, COLD),
    ("grove", 1, WARM),
    ("grove", 20, WARM),
)
"""Lines that the document does not have."""

COMPARED: Final = ("flood", "prc", "gossip", "star", "plumtree", "cptcast", "grove")

SIDE: Final = 640
"""Width of the drawing, in user units."""

LEAD: Final = (
    "This report repeats the experiments of Paulo Henrique Branco Dias, “Tree-based Decentralized and Robust Causal "
    "Dissemination” (master's dissertation, NOVA University of Lisbon; it prints no year, but one of its examples "
    "reserves machines for February 2020). The dissertation compares its protocol, CPTCast (causal broadcast over a "
    "tree), with Plumtree and PRC-broadcast. `grove` is this project's protocol.",
    "Simulated nodes broadcast messages over an overlay, in which each node has about five neighbours. They run at "
    "two sites that are 12.5 ms apart, with 50 nodes on each host. RMR is m / (n - 1) - 1 for m copies of a payload "
    "that n nodes got, so that a tree has 0. If all nodes send, a world starts cold, or warm after one message of any "
    "node, which makes a tree. Otherwise, each sender has sent one message before the counted messages.",
)


def report(digest: Digest) -> Report:
    """Return the report for a digest of the evaluation."""
    cells = Cells(digest.pure["cells"])
    sizes = cells.sizes(THESIS, TIMERS, "crash", "cut", "churn")
    sentences = claims.judged(cells, sizes)
    note = (
        f"Figures are means over seeds. A difference of latency or RMR of at most {judges.SAME:.0%} does not count. A "
        "verdict that only some seeds have is within noise. All loads: each payload at each interval. Two loads: 1 KB "
        "every 20 ms, and 1 MB every 300 ms."
    )
    title = "The document's sentences"
    sections = [Section("The claims of the document, and our results", judged(title, sentences, note))]
    for nodes in sizes[:1]:
        sections += [
            Section(f"Figures 4.2 and 4.3, {nodes:,} nodes", _figures(cells, nodes)),
            Section("The wait for an announced message", _timers(cells, nodes)),
        ]
    sections.append(Section("The algorithms as printed", _printed(cells)))
    sections += [Section(f"Beyond the document, {nodes:,} nodes", _beyond(cells, nodes)) for nodes in sizes[:1]]
    for nodes in cells.sizes("crash", "cut", "churn"):
        sections.append(Section(f"Faults, {nodes:,} nodes", _faults(cells, nodes)))
    for nodes in sizes[1:]:
        folds = (
            ("Figures 4.2 and 4.3", _figures(cells, nodes)),
            ("The wait for an announced message", _timers(cells, nodes)),
            ("Beyond the document", _beyond(cells, nodes)),
        )
        others = [Fold(title, blocks) for title, blocks in folds if blocks]
        sections.append(Section(f"With {nodes:,} nodes", [*_differing(cells, sentences, nodes), *others]))
    sections += [
        Section("An overlay and a tree", [_drawing(digest.pure["drawing"])]),
        Section("All cells", _all(cells, digest.measured)),
    ]
    return Report(
        "Broadcast over trees",
        "Evaluation",
        LEAD,
        [section for section in sections if section.blocks],
        "bench overlay --out DIR",
        ["docs/overlay.md explains each figure."],
    )


def _senders(senders: int) -> str:
    return "one sender" if senders == 1 else "all nodes" if senders == ALL else f"{senders} senders"


def _name(line: Line) -> str:
    protocol, senders, start = line
    return f"{protocol}, {_senders(senders)}{f', {start}' if senders == ALL and protocol in TREES else ''}"


def _ms(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value / 1e3:.3g} s" if value >= 1_000 else f"{value:.3g} ms"


def _size(payload: int) -> str:
    return f"{payload // KB:,} KB"


# The document's figures


def _figures(cells: Cells, nodes: int) -> list[Block]:
    found: list[Block] = []
    for number, payload in enumerate(PAYLOADS):
        for letter, title, lines in (("s", "one sender", SINGLE), ("m", "all nodes as senders", SEVERAL)):
            name = f"Figure 4.2{'abcd'[number]}: mean latency, {_size(payload)}, {title}"
            points = [_latencies(cells, nodes, line, payload) for line in lines]
            series = [
                Series(_name(line), each, index, dashed=line[0] == "cptcast", dots=True)
                for index, (line, each) in enumerate(zip(lines, points, strict=True))
                if each
            ]
            if len(series) > 1:
                found.append(_latency(name, series, f"f42-{nodes}-{number}{letter}"))
    lines = (*SINGLE, *SEVERAL[1:])
    rmr = "Figure 4.3: payloads beyond those of a tree (RMR)"
    found += _means(cells, nodes, lines, "Figure 4.2: mean latency")
    return found + _rmrs(cells, nodes, lines, rmr, _FLOODS)


def _latencies(cells: Cells, nodes: int, line: Line, payload: int) -> list[Point]:
    grid = cells.grid(View(nodes, Reading(line[2])))
    means = {each: grid.figure(*line[:2], payload, each, "mean_ms") for each in INTERVALS_MS}
    return [(interval, mean) for interval, mean in means.items() if mean is not None]


def _latency(title: str, series: Sequence[Series], identity: str) -> Figure:
    values = [value for line in series for _, value in line.points if value]
    at_shortest = ", ".join(f"{line.name} {_ms(line.points[0][1])}" for line in series)
    plot = Plot(
        title=title,
        description=f"At the shortest interval: {at_shortest}.",
        series=series,
        x=linear(max(INTERVALS_MS), lambda value: f"{value:g} ms"),
        y=logarithmic(values, _ms),
    )
    return Figure(plot, identity, "By the interval between two broadcasts. The latencies have a log scale.")


def _means(cells: Cells, nodes: int, lines: Sequence[Line], title: str) -> list[Block]:
    """Return a table with the mean latency of each line, for each payload at the intervals that the document names."""
    loads = [(payload, interval) for payload in PAYLOADS for interval in NAMED_MS]
    rows = []
    for line in lines:
        grid = cells.grid(View(nodes, Reading(line[2])))
        values = [grid.figure(*line[:2], *load, "mean_ms") for load in loads]
        if any(value is not None for value in values):
            rows.append([_name(line), *map(_ms, values)])
    header = ("", *(f"{_size(payload)}, {interval} ms" for payload, interval in loads))
    return panel(title, header, rows, "By payload and interval.")


def _rmrs(cells: Cells, nodes: int, lines: Sequence[Line], title: str, note: str = "") -> list[Block]:
    """Return a table with the RMR of each line, for each payload."""
    rows = []
    for line in lines:
        found = judges.redundancies(cells.grid(View(nodes, Reading(line[2]))), *line[:2])
        if found:
            rows.append([_name(line), *(_rmr(found.get(payload)) for payload in PAYLOADS)])
    return panel(title, ("", *map(_size, PAYLOADS)), rows, note)


_FLOODS: Final = (
    "Means over the intervals, without each sender's first message. In PRC-broadcast, a node sends a message over each "
    "of its links, also back to the sender. So the RMR of PRC-broadcast is the number of neighbours minus one. The "
    "document reports an RMR of about 4 for PRC-broadcast. For the trees, it reports an RMR close to 0 with one "
    "sender, and less than 1 with several senders."
)


def _timers(cells: Cells, nodes: int) -> list[Block]:
    found: dict[tuple[int, str, str, int], dict[int, Json]] = {}
    for row in cells.timers(nodes):
        line = _name((row["protocol"], row["senders"], start_of(row)))
        key = (row["payload_bytes"], line, _size(row["payload_bytes"]), row["interval_ms"])
        found.setdefault(key, {}).setdefault(row["timeout1_ms"], row)

    def shown(row: Json | None) -> Cell:
        if row is None:
            return Cell("–")
        run = row["phases"]["run"]
        return Cell(_ms(run["mean_ms"]), f"RMR {run['redundancy']:.2f}, {judges.asked(row):.3f} GRAFTs")

    rows = [
        [Cell(line, f"{size} every {interval} ms"), *(shown(of.get(timeout)) for timeout in TIMEOUTS_MS)]
        for (_, line, size, interval), of in sorted(found.items())
    ]
    note = (
        "The columns are values of TIMEOUT1, after which a node requests an announced message (TIMEOUT2 is 0.4 of this "
        "time). The cells have the mean latency, the RMR, and the GRAFTs per node and message, with the first seed. "
        "The document gives no value for TIMEOUT1. If a message came before, and TIMEOUT1 is longer than the delay "
        "between an announcement and the message on the tree, the tree settles. If TIMEOUT1 is shorter than that "
        "delay, the tree changes with every message."
    )
    header = ("", *(f"{timeout} ms" for timeout in TIMEOUTS_MS))
    return panel("Plumtree and CPTCast with other values of TIMEOUT1", header, rows, note)


def _printed(cells: Cells) -> list[Block]:
    rows: list[list[str | Cell]] = []
    for place in printed.places(cells):
        faults = ", ".join(f"{fault} ({count} of {place.seeds} seeds)" for fault, count in place.faults.items())
        always = place.seeds in place.faults.values()
        words, mark = ("worse", "bad") if always else ("some seeds", "warn") if faults else ("no difference", "plain")
        world = f"{place.protocol}, {place.world}"
        figures = Cell(f"{faults}: {place.printed}" if faults else place.printed, f"with all repairs: {place.repaired}")
        rows.append([Cell(place.text, world), Cell(words, mark=mark), figures])
    note = (
        "Each row has two worlds. In one, the protocol lacks this repair, and in the other it has all repairs. The "
        "third column names what is worse as printed, and has the figures of the first seed. A figure that is worse "
        "only with some seeds can be worse by chance, because all events after the first difference can differ between "
        "the two worlds. A place without a difference needs a rarer sequence of events, for which the project has a "
        "test."
    )
    return panel("Eight places as printed", ("place", "as printed", "figures"), rows, note, "words")


def _differing(cells: Cells, sentences: Sequence[Claim], nodes: int) -> list[Block]:
    """Return the sentences that have a different verdict with this number of nodes."""
    larger = {claim.text: claim for claim in sentences}
    rows = []
    for claim in claims.judged(cells, [nodes]):
        if claim.verdict != larger[claim.text].verdict:
            found = claim.found[0] if claim.found else claim.verdicts[0].found
            rows.append([claim.text, larger[claim.text].verdict, claim.verdict, found])
    header = ("", "above", f"{nodes:,} nodes", f"figures with {nodes:,} nodes")
    same = Text("All sentences have the same verdicts as above.")
    return panel("Sentences with another verdict", header, rows, form="words") or [same]


# Beyond the document


def _beyond(cells: Cells, nodes: int) -> list[Block]:
    goals = claims.goals(cells, nodes)
    note = (
        "Messages have 1 KB, and one is sent every 20 ms. If all nodes send, nearly every message is the first one of "
        "its root. Such a message floods the overlay and makes a tree, so only the first two goals apply."
    )
    header = ("", "goal", *map(_senders, SENDERS))
    return [
        *panel("grove and its goals", header, goals, note),
        *_compared(cells, nodes),
        *_means(cells, nodes, OURS, "Mean latency of further lines"),
        *_rmrs(cells, nodes, OURS, "RMR of further lines"),
        *_kinds(cells, nodes),
    ]


def _rmr(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


#: Columns for a cell without faults, computed from its row and the phase of its counted messages.
_COLUMNS: Final[tuple[tuple[str, Callable[[Json, Json], str]], ...]] = (
    ("reliability", lambda _, run: share(run["reliability"])),
    ("out of order", lambda row, _: f"{row['violations']:,}"),
    ("mean", lambda _, run: _ms(run["mean_ms"])),
    ("p50", lambda _, run: _ms(run["p50_ms"])),
    ("p99", lambda _, run: _ms(run["p99_ms"])),
    ("last hop", lambda _, run: f"{run['last_hop']:.1f}"),
    ("RMR", lambda _, run: _rmr(run["redundancy"])),
    ("first", lambda row, _: f"{row['phases']['first']['redundancy']:.2f}" if "first" in row["phases"] else "–"),
    ("control", lambda _, run: f"{run['control_bytes']:.0f} B"),
    ("memory", lambda row, _: f"{row['memory_bytes'] / 1e3:,.1f} kB"),
)


def _compared(cells: Cells, nodes: int) -> list[Block]:
    rows = [
        [_name((protocol, senders, COLD)), *(text(row, row["phases"]["run"]) for _, text in _COLUMNS)]
        for protocol in COMPARED
        for senders in SENDERS
        if (row := cells.smallest(nodes, protocol, senders)) is not None
    ]
    note = (
        "Out of order: deliveries of a message after a later message whose sender already had it. Last hop: the "
        "longest path of a payload, in links (LDH). First: RMR of each sender's first message. Control: bytes other "
        "than the payload, per node and message. Memory: bytes of a node's state at the end, in this interpreter."
    )
    return panel("All protocols compared: 1 KB every 20 ms", ("", *(name for name, _ in _COLUMNS)), rows, note)


def _kinds(cells: Cells, nodes: int) -> list[Block]:
    rows = []
    for protocol in COMPARED:
        for senders in (1, 20):
            row = cells.smallest(nodes, protocol, senders)
            if row is not None:
                each = row["phases"]["run"]["messages"] * nodes
                kinds = [
                    f"{kind} {sent / each:.2f} ({size / each:.0f} B)" for kind, (sent, size, _) in row["kinds"].items()
                ]
                rows.append([_name((protocol, senders, WARM)), ", ".join(kinds)])
    title = "Traffic over the links, per node and message"
    return [Fold(title, [table("", ("", "messages (bytes)"), rows, form="words")])] if rows else []


# Faults


def _faults(cells: Cells, nodes: int) -> list[Block]:
    crashes, churn = (
        sorted(cells.of(name, nodes), key=lambda row: (row["protocol"], row["share"])) for name in ("crash", "churn")
    )
    cuts = cells.of("cut", nodes)
    found: list[Block] = [Text(_WHOLE)] if crashes or cuts else []
    if crashes:
        found += [*_why_flood(crashes), _undelivered(crashes, nodes)]
        found.append(Fold("A share of the nodes crashes at once", [_faulted(crashes, _BROKEN)]))
    if cuts:
        found.append(Panel("Two halves of the nodes cut off from each other for 5 s", [_faulted(cuts, _BROKEN)]))
    if churn:
        title = "Nodes crash and others join, by the share per second"
        found.append(Panel(title, [_faulted(churn, _MOVING, _NEARLY)]))
    return found


_WHOLE: Final = (
    "Before, fault, after: reliability of the messages sent in each period, among nodes that are up at the end. The "
    "period of the fault is the 5 s of the cut, or the 5 s after the crash. Settled: the time from the crash, or from "
    "the end of the cut, to the last delivery of a message sent before that moment. Repeated: deliveries of a message "
    "that the node had delivered before. Registry: reads of the registry by nodes that knew no other node. Goal of "
    f"grove: no message lost or out of order, no node isolated, settled within {claims.SETTLED_S_MAX:g} s."
)
_NEARLY: Final = (
    "A message is due to nodes that were in the overlay when it was sent, and are up at the end. Each new node reads "
    f"the registry. Goal of grove: reliability {claims.CHURN_RELIABILITY_MIN:.2%} or more, no message out of order, "
    f"RMR {claims.CHURN_RMR_MAX:g} or less."
)


def _faulted(rows: Sequence[Json], columns: Columns, note: str = "") -> Table:
    body = [[_faulty(row), *(text(row) for _, text in columns)] for row in rows]
    return table("", ("", *(name for name, _ in columns)), body, note)


def _why_flood(rows: Sequence[Json]) -> list[Block]:
    """Explain the greatest RMR of a flood."""
    floods = [row for row in rows if row["protocol"] == "flood" and row["doubles"]]
    return [
        Text(
            "A node of a flood forgets a message when all neighbours have sent it. If the overlay then gets a new "
            "link, a late copy on that link counts as new, and the node delivers it and sends it over all links again. "
            f"So a flood has an RMR of {row['redundancy']:.3f} after a crash of {row['share']:.0%}, with "
            f"{row['doubles']:,} repeated deliveries."
        )
        for row in sorted(floods, key=lambda row: -row["redundancy"])[:1]
    ]


def _undelivered(rows: Sequence[Json], nodes: int) -> Figure:
    series = []
    for index, protocol in enumerate(dict.fromkeys(row["protocol"] for row in rows)):
        least = {
            row["share"]: 1 - min(float(phase["least"]) for phase in row["phases"].values())
            for row in reversed(rows)
            if row["protocol"] == protocol
        }
        series.append(Series(protocol, sorted(least.items()), index, dashed=protocol == "cptcast", dots=True))
    plot = Plot(
        title="Share of surviving nodes that lack the worst-delivered message",
        description="The share of surviving nodes that lack the message with the fewest receivers.",
        series=series,
        x=linear(0.8, lambda value: f"{value:.0%}", 0.0),
        y=linear(1.0, lambda value: f"{value:.0%}"),
    )
    return Figure(plot, f"crash-{nodes}", "By the share of nodes that crash at the same time, with 20 senders.")


def _met(goal: Callable[[Json], bool]) -> Callable[[Json], Cell]:
    """Return whether grove has met its goal, as text. Other protocols have no goal."""

    def met(row: Json) -> Cell:
        if row["protocol"] != "grove":
            return Cell("")
        return Cell("met", mark="good") if goal(row) else Cell("missed", mark="bad")

    return met


#: Columns for a cell with a crash or a cut, and for a cell with churn.
_BROKEN: Final[Columns] = (
    ("goal", _met(claims.survived)),
    ("before", lambda row: share(row["phases"]["run"]["reliability"])),
    ("fault", lambda row: share(row["phases"]["during"]["reliability"])),
    ("after", lambda row: share(row["phases"]["after"]["reliability"])),
    ("settled", lambda row: f"{row['settled_s']:.2f} s"),
    ("out of order", lambda row: f"{row['violations']:,}"),
    ("repeated", lambda row: f"{row['doubles']:,}"),
    ("parts, isolated", lambda row: f"{row['islands']}, {row['isolated']}"),
    ("registry", lambda row: f"{row['registry_reads']:,}"),
    ("RMR", lambda row: _rmr(row["redundancy"])),
)
_MOVING: Final[Columns] = (
    ("goal", _met(claims.endured)),
    ("reliability", lambda row: share(row["phases"]["run"]["reliability"])),
    ("worst message", lambda row: share(row["phases"]["run"]["least"])),
    ("mean", lambda row: _ms(row["phases"]["run"]["mean_ms"])),
    ("p99", lambda row: _ms(row["phases"]["run"]["p99_ms"])),
    *(column for column in _BROKEN if column[0] in ("out of order", "repeated", "parts, isolated", "registry", "RMR")),
)


def _faulty(row: Json) -> str:
    words = [row["protocol"], *([f"{100 * row['share']:g} %"] if row["share"] else [])]
    return ", ".join([*words, *([f"seed {row['seed']}"] if row["seed"] > 1 else [])])


# The drawing, and all cells


def _drawing(drawn: Json) -> Drawing:
    half = SIDE / 2

    def at(node: int) -> str:
        x, y = (round(half + each * (half - 12), 1) for each in drawn["places"][node])
        return f"{x:g} {y:g}"

    def path(pairs: Sequence[Sequence[int]]) -> str:
        return "".join(f"M{at(one)}L{at(other)}" for one, other in pairs)

    parents = drawn["parents"]
    tree = [(node, parent) for node, parent in enumerate(parents) if node != parent]
    dots = "".join(f"M{at(node)}h0" for node in range(len(parents)))
    root = next(node for node, parent in enumerate(parents) if node == parent)
    title = f"{len(parents)} nodes, {len(drawn['links'])} links, and the tree of one root"
    svg = (
        f'<svg viewBox="0 0 {SIDE} {SIDE}" role="img" aria-label="{title}" style="max-width:{SIDE}px">'
        f'<path class="axis" opacity=".35" d="{path(drawn["links"])}"/><path class="line s0" d="{path(tree)}"/>'
        f'<path class="dot s1" d="{dots}"/><path class="dot s2" d="M{at(root)}h0" stroke-width="12"/></svg>'
    )
    words = (
        "Grey: the overlay's links between random neighbours. Coloured: the links over which nodes first got the "
        "payload of one message, from the root in the middle outwards. Each root has its own tree in the same overlay."
    )
    return Drawing(title, svg, words)


def _all(cells: Cells, measured: Json) -> list[Block]:
    columns = [(name, text) for name, text in _COLUMNS if name in ("reliability", "out of order", "mean", "p99", "RMR")]
    rows = [
        [row["cell"], *(text(row, row["phases"]["run"]) for _, text in columns), f"{row['events']:,}"]
        for row in cells.rows
    ]
    words = f"{len(rows)} cells, with {sum(row['events'] for row in cells.rows):,} events in their worlds."
    if measured.get("cpu_seconds"):
        speed = measured["events"] / measured["cpu_seconds"]
        words += f" The simulator handled {speed:,.0f} events per second of a core."
    header = ("cell", *(name for name, _ in columns), "events")
    return [Text(words), Fold("Each cell", [table("", header, rows, form="tall")])]
