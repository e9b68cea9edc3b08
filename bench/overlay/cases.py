"""The plan of all experiments, divided into parts, and the parts into cells.

Owns: the parts, all their numbers, and the estimate of a cell's cost. Must never: run a cell, or
read a result.

A cell is one world from its beginning to its end, with one protocol, one number of senders, one payload size and one
interval. Cells run separately, and each has its own files.

**The document's cells.** Its figure 4.2 has five lines: Plumtree and CPTCast, each with one sender and with several,
and PRC-broadcast. Section 4.3 names four payloads, and says that the intervals "ranged between 20 and 300
milliseconds". So 40 cells have an interval that the document names. They form the part ``document``. Another 40 cells
have intervals between 20 and 300 ms, which the document does not name (``between``). Together, these 80 cells are the
document's grid. All other cells are ours.

**Cold and warm.** If all nodes send, the document does not say whether a message came before the counted messages. One
sentence suggests that it did ("after the network had […] converged to a stable state"). Another suggests that it did
not ("each experiment" begins "at the network setup", section 4.2.3). So each of these cells runs twice: *cold*, without
an earlier message, and *warm*, after one message of any node, which has made a tree.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from ingeborg.bench.experiments.experiment import Part, Unit
from ingeborg.bench.overlay.drawn import degree

KB: Final = 1_000

PAYLOADS: Final = (1 * KB, 100 * KB, 500 * KB, 1_000 * KB)
NAMED_MS: Final = (20, 300)
BETWEEN_MS: Final = (50, 100)
INTERVALS_MS: Final = tuple(sorted((*NAMED_MS, *BETWEEN_MS)))
"""Intervals between two broadcasts: the intervals that the document names, and our intervals between them."""

ALL: Final = 0
"""A special number of senders, for which a random node broadcasts each message. This is the document's multi-sender
mode, in which "any process is allowed"."""

SENDERS: Final = (1, 20, 100, ALL)

COLD, WARM = "cold", "warm"

BROADCASTS: Final = 100
LONG: Final = 400
"""Number of messages in cells that show whether the number of messages matters."""

SEEDS: Final = 2
"""The default number of seeds. With more seeds, the default parts take more than an hour."""

NODES: Final = 10_000
"""The document's number of nodes."""

SMALL: Final = 1_000
NODES_MIN, NODES_MAX = 12, 20_000
"""Limits of the number of nodes. With fewer nodes, there is no real overlay. With more nodes, a run takes too long,
because a world runs in one process."""

TREES: Final = ("plumtree", "cptcast")
DOCUMENT: Final = (*TREES, "prc")
OURS: Final = ("grove", "flood", "gossip", "star")
PROTOCOLS: Final = (*DOCUMENT, *OURS)

CRASHED: Final = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8)
"""Shares of the nodes that crash at the same time."""

CHURN: Final = (0.001, 0.003, 0.01)
"""Nodes that crash per second, as shares of all nodes. The same number of nodes join."""

TIMEOUT1_MS: Final = 250
"""The time for which Plumtree and CPTCast wait for an announced message before they request it. The document gives no
value for it."""

TIMEOUTS_MS: Final = (TIMEOUT1_MS, 150, 100, 50, 25, 10)
"""The values of this wait that the experiments compare. Whether a tree settles depends on the wait."""

LOADS: Final = ((PAYLOADS[0], NAMED_MS[0]), (PAYLOADS[-1], NAMED_MS[-1]))
"""Payload and interval of the cells that compare these values: small and frequent, or large and rare."""

FAULTY: Final = ("grove", "plumtree", "prc", "flood")
"""Protocols that run under faults. ``cptcast`` is added only in small worlds."""

CPTCAST_FAULTY_MAX: Final = 1_000
"""Maximum number of nodes of a world in which ``cptcast`` runs under faults. To make a link safe, two floods must reach
all nodes. So the cost of faults grows with the square of the number of nodes."""

PRINTED_NODES: Final = 200
"""Maximum number of nodes of a world in which a protocol runs as printed in the document."""

PRINTED: Final = "everything"
"""The value of ``Cell.without`` for a protocol without any repair, which is the document as printed."""

THESIS, TIMERS, UNREPAIRED = "thesis", "timers", "printed"
"""Experiments whose names the code compares."""


@dataclass(frozen=True)
class Cell:
    """A cell of the plan. ``share``: the share of nodes that crash at the same time or, under churn, the share that
    crash and join per second. ``broadcasts``: number of counted messages. ``warm``: if all nodes send, whether a
    message comes before the counted messages. ``without``: the repair that the protocol lacks, or ``PRINTED``.
    ``fault``: the fault in a cell of the experiment ``UNREPAIRED`` (in other cells, the experiment says it)."""

    experiment: str
    protocol: str
    nodes: int
    senders: int = 1
    payload_bytes: int = KB
    interval_ms: int = 20
    broadcasts: int = BROADCASTS
    share: float = 0.0
    seed: int = 1
    timeout1_ms: int = TIMEOUT1_MS
    warm: bool = False
    without: str = ""
    fault: str = ""

    @property
    def name(self) -> str:
        """Return the name of the cell's files."""
        parts = [self.experiment, self.protocol, f"n{self.nodes}"]
        if self.experiment == UNREPAIRED:
            parts += [self.fault or "nofault", f"{self.payload_bytes // KB}KB", f"{self.interval_ms}ms"]
            parts.append(f"without-{self.without}" if self.without else "repaired")
        elif not self.faulty:
            parts += [f"s{self.senders or 'all'}", f"{self.payload_bytes // KB}KB", f"{self.interval_ms}ms"]
        if self.share:
            parts.append(f"{100 * self.share:g}%")
        if self.warm:
            parts.append(WARM)
        if self.experiment == TIMERS:
            parts.append(f"after{self.timeout1_ms}ms")
        return "-".join([*parts, f"seed{self.seed}"])

    @property
    def faults(self) -> str:
        """Return the kind of the world's fault, or an empty string."""
        return self.experiment if self.experiment in ("crash", "cut", "churn") else self.fault

    @property
    def faulty(self) -> bool:
        """Return whether links and nodes come and go."""
        return bool(self.faults)

    @property
    def first(self) -> int:
        """Return the number of messages before the counted messages: one from each sender. If all nodes send, there is
        one message from any node, or none at a cold start."""
        return int(self.warm) if self.senders == ALL else self.senders

    @property
    def deliveries(self) -> int:
        """Return the number of deliveries of all messages at all nodes."""
        return self.nodes * (self.first + self.broadcasts)

    @property
    def cost(self) -> float:
        """Estimate the seconds that a core takes for the cell and for the check of its log, on the machine on which
        ``_SECONDS`` was measured. On other machines, the ratio of two costs is the same."""
        return _cost(self) + CHECK_S * self.deliveries

    def facts(self) -> dict[str, Any]:
        """Return the cell's fields for a row. The row has the start only if all nodes send. It has the fields about a
        protocol as printed only if the cell is about such a protocol."""
        fields = asdict(self)
        warm, without, fault = (fields.pop(name) for name in ("warm", "without", "fault"))
        found = {"cell": self.name, **fields}
        if self.senders == ALL:
            found["start"] = WARM if warm else COLD
        if self.experiment == UNREPAIRED:
            found |= {"without": without, "fault": fault}
        return found


# Cost

_EVENTS: Final = {
    "plumtree": (4.3, 2.3),
    "cptcast": (5.3, 2.6),
    "prc": (5.0, 5.0),
    "grove": (4.6, 1.3),
    "flood": (5.0, 5.0),
    "gossip": (4.0, 4.0),
    "star": (1.0, 0.5),
}
"""Number of events for each message at each node, if a node has five neighbours: without a payload, and for each MB of
payload."""

_FLOODS: Final = 75
"""Number of events at each node for each crash and each join, in the protocols that make links safe."""

_SECONDS: Final = {"cptcast": 3.8, "grove": 4.0}
_SECONDS_OTHERS: Final = 2.7
"""Seconds of a core for a million events. With these values, the estimate for the stored results of 10,000 nodes is the
time that they really took: 4,400 s for 1.31 billion events."""


def _cost(cell: Cell) -> float:
    fixed, per_mb = _EVENTS[cell.protocol]
    copies = degree(cell.nodes) / 5 * (fixed + per_mb * cell.payload_bytes / 1e6)
    events = cell.nodes * (cell.first + cell.broadcasts) * copies
    if cell.protocol == "plumtree" and cell.senders == ALL and not cell.warm:
        events *= 1.2
    if cell.faults == "crash":
        events *= 1 - 0.8 * cell.share
    if cell.protocol in ("prc", "cptcast"):
        floods = {
            "crash": cell.nodes * max(0.0, 1 - (cell.share / 0.65) ** 2) / 19,
            "cut": cell.nodes / 11,
            "churn": cell.nodes * cell.share * cell.broadcasts * cell.interval_ms / 1e3,
        }
        events += _FLOODS * cell.nodes * floods.get(cell.faults, 0.0)
    if cell.without in ("expects", PRINTED):
        events = EVENTS_PRINTED_MAX
    return events / 1e6 * _SECONDS.get(cell.protocol, _SECONDS_OTHERS)


CHECK_S: Final = 1.3e-5
"""Seconds of a core for the check of a delivery in the log. On two cores, a million deliveries take 5 s
(docs/digest.md). Each batch of 15 million takes another 20 s, in which Java starts."""

EVENTS_PRINTED_MAX: Final = 4_000_000
"""Maximum number of events of a protocol as printed. A repaired protocol needs 60,000 to 3 million events in the same
world."""


# Parts


def _grid(protocol: str, senders: int, intervals: Sequence[int], nodes: int, seed: int) -> list[Cell]:
    """Return a line of figure 4.2 with all payloads. If all nodes send and the protocol has a tree, the line has cold
    and warm cells."""
    starts = (False, True) if senders == ALL and protocol in TREES else (False,)
    return [
        Cell(THESIS, protocol, nodes, min(senders, nodes), payload, interval, seed=seed, warm=warm)
        for payload in PAYLOADS
        for interval in intervals
        for warm in starts
    ]


def _lines(intervals: Sequence[int], nodes: int, seed: int) -> list[Cell]:
    cells = [
        cell for protocol in TREES for senders in (1, ALL) for cell in _grid(protocol, senders, intervals, nodes, seed)
    ]
    return cells + _grid("prc", 1, intervals, nodes, seed)


def _document(nodes: int, seed: int) -> list[Cell]:
    return _lines(NAMED_MS, nodes, seed)


def _between(nodes: int, seed: int) -> list[Cell]:
    return _lines(BETWEEN_MS, nodes, seed)


def _more(nodes: int, seed: int) -> list[Cell]:
    lines = [(protocol, senders) for protocol in TREES for senders in (20, 100)] + [("grove", 1), ("grove", 20)]
    cells = [cell for line in lines for cell in _grid(*line, INTERVALS_MS, nodes, seed)]
    cells += [
        Cell(THESIS, "prc", nodes, ALL, payload, interval, seed=seed)
        for payload in (PAYLOADS[0], PAYLOADS[-1])
        for interval in NAMED_MS
    ]
    return cells + [Cell("long", protocol, nodes, ALL, broadcasts=LONG, seed=seed) for protocol in TREES]


def _grove(nodes: int, seed: int) -> list[Cell]:
    cells = [Cell(THESIS, "grove", nodes, senders, seed=seed) for senders in SENDERS if senders <= nodes]
    return cells + [Cell(THESIS, protocol, nodes, seed=seed) for protocol in ("flood", "gossip", "star")]


def _timers(nodes: int, seed: int) -> list[Cell]:
    return [
        Cell(TIMERS, protocol, nodes, ALL, *load, seed=seed, timeout1_ms=timeout1_ms, warm=warm)
        for protocol in TREES
        for load in LOADS
        for warm in (False, True)
        for timeout1_ms in TIMEOUTS_MS[1:]
    ]


def _crash(nodes: int, seed: int) -> list[Cell]:
    crashes = [
        Cell("crash", protocol, nodes, _senders(nodes), KB, 20, 400, share, seed)
        for protocol in _faulty(nodes)
        for share in CRASHED
    ]
    cuts = [Cell("cut", protocol, nodes, _senders(nodes), KB, 20, 400, 0.0, seed) for protocol in _faulty(nodes)]
    return crashes + cuts


def _churn(nodes: int, seed: int) -> list[Cell]:
    return [
        Cell("churn", protocol, nodes, _senders(nodes), KB, 50, 400, share, seed)
        for protocol in _faulty(nodes)
        for share in CHURN
    ]


def _printed(nodes: int, seed: int) -> list[Cell]:
    nodes = min(nodes, PRINTED_NODES)

    def cells(protocol: str, places: Sequence[str], fault: str, *load: int, share: float = 0.0) -> list[Cell]:
        payload, interval, broadcasts = load
        world = Cell(
            UNREPAIRED, protocol, nodes, _senders(nodes), payload, interval, broadcasts, share, seed, fault=fault
        )
        return [replace(world, without=without) for without in ("", *places)]

    still = cells("cptcast", ("expects", "removes_found", PRINTED), "", KB, 20, BROADCASTS)
    return [
        *(replace(cell, senders=ALL) for cell in still),
        *cells("cptcast", ("asks_somebody",), "cut", KB, 20, 400),
        *cells("cptcast", ("two_ways", "safe_only"), "churn", KB, 50, 200, share=0.05),
        *cells("prc", ("two_ways",), "churn", KB, 50, 200, share=0.05),
        *cells("prc", ("in_turn", "strangers"), "churn", 1_000 * KB, 20, 400, share=0.05),
        *cells("prc", ("forgets",), "churn", KB, 250, 400, share=0.02),
    ]


_CELLS: Final[dict[str, Callable[[int, int], list[Cell]]]] = {
    "document": _document,
    "between": _between,
    "more": _more,
    "grove": _grove,
    "timers": _timers,
    "crash": _crash,
    "churn": _churn,
    "printed": _printed,
}
"""The cells of each part, by the number of nodes and the seed."""

_SIZES: Final = {"crash": (SMALL,), "churn": (SMALL,), "printed": (SMALL,)}
"""The numbers of nodes, for parts that do not run with both ``NODES`` and ``SMALL``."""

_FIRST_SEED: Final = {("grove", NODES), ("timers", NODES), ("crash", SMALL), ("churn", SMALL)}
"""Parts that run only with the first seed at a number of nodes. ``REPEATS`` has their other seeds."""

REPEATS: Final = "repeats"

PARTS: Final = (
    Part("document", "the thesis's lines and payloads at the intervals that it names, 20 and 300 ms, cold and warm"),
    Part("between", "the thesis's lines and payloads at two more intervals, 50 and 100 ms", is_default=False),
    Part(
        "more",
        "20 and 100 senders, all nodes as senders of PRC-broadcast, grove with all payloads, and runs of 400 messages",
        is_default=False,
    ),
    Part("grove", "grove, a flood, gossip and a star with 1 KB every 20 ms, and the goals of grove"),
    Part("timers", "Plumtree and CPTCast with other values of TIMEOUT1, and all nodes as senders, cold and warm"),
    Part("crash", "10 to 80 % of the nodes crash at the same time, or two halves are cut off from each other for 5 s"),
    Part("churn", "each second, 0.1 to 1 % of the nodes crash, and the same number of nodes join"),
    Part("printed", f"PRC-broadcast and CPTCast without their repairs, with {PRINTED_NODES} nodes"),
    Part(
        REPEATS,
        "further seeds of crash and churn, and of grove and timers with 10,000 nodes",
        is_default=False,
    ),
)
"""All parts, in the order of display."""


def plan(parts: Collection[str], nodes: int, seeds: Iterable[int]) -> list[Cell]:
    """Return the cells of these parts, in the order of display."""
    seeds = list(seeds)
    cells = [cell for part, of in _CELLS.items() if part in parts for seed in seeds for cell in of(nodes, seed)]
    return list(dict.fromkeys(cells))


def units(parts: Collection[str], seeds: int, nodes: int | None = None) -> list[Unit]:
    """Return the units of these parts, the most expensive first.

    Args:
        parts: the names of the parts.
        seeds: the number of seeds.
        nodes: the number of nodes in all worlds. By default, each part has its own numbers, and some parts run with one
            seed.
    """
    found: dict[Cell, str] = {}
    for part in _CELLS:
        for size in (nodes,) if nodes else _SIZES.get(part, (NODES, SMALL)):
            for seed in range(1, seeds + 1):
                repeats = not nodes and seed > 1 and (part, size) in _FIRST_SEED
                name = REPEATS if repeats else part
                for cell in plan([part], size, [seed]) if name in parts else ():
                    found.setdefault(cell, name)
    made = [Unit(cell.name, part, cell, cell.cost) for cell, part in found.items()]
    return sorted(made, key=lambda unit: (-unit.cost, unit.name))


def _senders(nodes: int) -> int:
    """Return the number of senders under faults. At least half of the nodes do not send, because under churn only nodes
    that do not send crash."""
    return min(20, nodes // 2)


def _faulty(nodes: int) -> Sequence[str]:
    return (*FAULTY, "cptcast") if nodes <= CPTCAST_FAULTY_MAX else FAULTY
