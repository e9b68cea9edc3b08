"""The plan of all experiments, divided into cells: the document's grid, and the experiments that the document left out.

Owns: the plan, and all its numbers. Must never: run a cell.

A cell is one world from its beginning to its end, with one protocol, one number of senders, one payload size and one
interval. Cells run separately, and each has its own files.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

KB: Final = 1_000

PAYLOADS: Final = (1 * KB, 100 * KB, 500 * KB, 1_000 * KB)
INTERVALS_MS: Final = (20, 50, 100, 300)
"""Values of the document's experiments (section 4.3). The document says that intervals "ranged between 20 and
300"; the intermediate values are ours."""

ALL: Final = 0
"""A special number of senders: a random node broadcasts each message."""

SENDERS: Final = (1, 20, 100, ALL)
"""Numbers of senders. ``ALL`` is the document's multi-sender mode, in which "any process is allowed"."""

BROADCASTS: Final = 100

NODES: Final = 10_000
NODES_MIN, NODES_MAX = 12, 20_000
"""Limits of the number of nodes. With fewer nodes there is no real overlay. With more nodes a run takes too long,
because a world runs in one process."""

DOCUMENT: Final = ("plumtree", "cptcast", "prc")
OURS: Final = ("grove", "flood", "gossip", "star")
PROTOCOLS: Final = (*DOCUMENT, *OURS)

CRASHED: Final = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8)
"""Shares of the nodes that crash at the same time."""

CHURN: Final = (0.001, 0.003, 0.01)
"""Nodes that crash per second, as shares of all nodes. The same number of nodes join."""

TIMEOUT1_MS: Final = 250
"""The time for which Plumtree and CPTCast wait for an announced message before they request it. The document gives no
value for it."""

TIMEOUTS_MS: Final = (TIMEOUT1_MS, 100, 50, 25, 10)
"""The values of this wait that the experiments compare. The wait decides whether a tree settles."""

AT_REST: Final = 100
"""Number of senders in experiments where each sender must have sent a message before."""

FAULTY: Final = ("grove", "plumtree", "prc", "flood")
"""Protocols that run under faults. ``cptcast`` is added only in small worlds."""

CPTCAST_FAULTY_MAX: Final = 1_000
"""Maximum number of nodes of a world in which ``cptcast`` runs under faults. To make a link safe, two floods must reach
all nodes, so the cost of faults grows with the square of the number of nodes."""


@dataclass(frozen=True)
class Cell:
    """``share``: the share of nodes that crash at once or, under churn, the share that crash and join per second.
    ``broadcasts``: number of counted messages."""

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

    @property
    def name(self) -> str:
        """Return the name of the cell's files."""
        parts = [self.experiment, self.protocol, f"n{self.nodes}"]
        if not self.faulty:
            parts += [f"s{self.senders or 'all'}", f"{self.payload_bytes // KB}KB", f"{self.interval_ms}ms"]
        elif self.share:
            parts.append(f"{100 * self.share:g}%")
        if self.experiment == "timers":
            parts.append(f"after{self.timeout1_ms}ms")
        return "-".join([*parts, f"seed{self.seed}"])

    @property
    def faulty(self) -> bool:
        """Return whether links and nodes come and go."""
        return self.experiment not in ("thesis", "timers")

    @property
    def first(self) -> int:
        """Return the number of messages before the counted ones: one from each sender, or none if all nodes send."""
        return 0 if self.senders == ALL else self.senders

    @property
    def deliveries(self) -> int:
        """Return the number of deliveries of all messages at all nodes."""
        return self.nodes * (self.first + self.broadcasts)

    def facts(self) -> dict[str, Any]:
        """Return the cell's fields for a row."""
        return {"cell": self.name, **asdict(self)}


def thesis(nodes: int, seed: int) -> list[Cell]:
    """Return the document's 144 cells, the same grid for grove with one and twenty senders, and other protocols for
    comparison with the smallest payload."""

    def grid(protocol: str, senders: int) -> list[Cell]:
        return [
            Cell("thesis", protocol, nodes, min(senders, nodes), payload, interval, seed=seed)
            for payload in PAYLOADS
            for interval in INTERVALS_MS
        ]

    cells = [cell for protocol in ("cptcast", "plumtree") for senders in SENDERS for cell in grid(protocol, senders)]
    cells += grid("prc", 1)  # one number of senders suffices, because every node forwards over all its links
    cells += grid("grove", 1) + grid("grove", 20)
    cells += [Cell("thesis", "grove", nodes, senders, seed=seed) for senders in SENDERS[2:] if senders <= nodes]
    cells += [Cell("thesis", protocol, nodes, seed=seed) for protocol in ("flood", "gossip", "star")]
    return list(dict.fromkeys(cells))


def crash(nodes: int, seed: int) -> list[Cell]:
    """Return cells in which a share of the nodes crashes at once, and cells in which a cut separates two halves of the
    nodes for a while."""
    cells = [
        Cell("crash", protocol, nodes, _senders(nodes), KB, 20, 400, share, seed)
        for protocol in _faulty(nodes)
        for share in CRASHED
    ]
    return cells + [
        Cell("cut", protocol, nodes, _senders(nodes), KB, 20, 400, 0.0, seed) for protocol in _faulty(nodes)
    ]


def churn(nodes: int, seed: int) -> list[Cell]:
    """Return cells in which nodes crash and new nodes join all the time."""
    return [
        Cell("churn", protocol, nodes, _senders(nodes), KB, 50, 400, share, seed)
        for protocol in _faulty(nodes)
        for share in CHURN
    ]


def timers(nodes: int, seed: int) -> list[Cell]:
    """Return cells of Plumtree and CPTCast with several values of TIMEOUT1. Messages are either small and frequent, or
    large and rare. Either all nodes send, or each of the senders has sent before."""
    return list(
        dict.fromkeys(
            Cell("timers", protocol, nodes, min(senders, nodes), *load, seed=seed, timeout1_ms=timeout1_ms)
            for protocol in ("plumtree", "cptcast")
            for senders in (AT_REST, ALL)
            for load in ((KB, INTERVALS_MS[0]), (PAYLOADS[-1], INTERVALS_MS[-1]))
            for timeout1_ms in TIMEOUTS_MS
        )
    )


EXPERIMENTS: Final[dict[str, Callable[[int, int], list[Cell]]]] = {
    "thesis": thesis,
    "timers": timers,
    "crash": crash,
    "churn": churn,
}


def _senders(nodes: int) -> int:
    """Return the number of senders under faults. At least half of the nodes do not send, because under churn only these
    nodes crash."""
    return min(20, nodes // 2)


def _faulty(nodes: int) -> Sequence[str]:
    return (*FAULTY, "cptcast") if nodes <= CPTCAST_FAULTY_MAX else FAULTY


def plan(experiment: str, nodes: int, seed: int, protocols: Sequence[str]) -> list[Cell]:
    """Return the cells of an experiment for these protocols. Long cells come first, so that all processes end at about
    the same time."""
    cells = [cell for cell in EXPERIMENTS[experiment](nodes, seed) if cell.protocol in protocols]
    return sorted(cells, key=lambda cell: (-_weight(cell), cell.name))


def _weight(cell: Cell) -> float:
    """Return a relative estimate of the duration: the copies of a message per node, times the number of all
    messages."""
    copies = {"flood": 5.0, "prc": 6.0, "gossip": 5.0, "cptcast": 3.0, "star": 1.0}.get(cell.protocol, 2.5)
    return copies * (cell.first + cell.broadcasts)
