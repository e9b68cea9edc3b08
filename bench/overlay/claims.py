"""The document's sentences about its figures, and grove's goals, judged by what was found.

Owns: which sentence is judged by which cells, and the goals as numbers. Must never: make markup. Pure.

The document prints no numbers beside its charts, so that its sentences are what can be held against ours. Its
"multi-sender" is "any process": cells in which all nodes send, and no message went before. Beside them stand cells of
100 senders each of which has sent one before, for that makes the difference: a tree that has come to rest is not moved
by another sender.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ingeborg.bench.overlay.cells import Cells
from ingeborg.bench.overlay.drawn import degree
from ingeborg.bench.overlay.experiments import ALL, AT_REST, DOCUMENT, INTERVALS_MS, PAYLOADS, SENDERS

Json = Mapping[str, Any]

NOISE: Final = 0.05
"""By how much a mean of one world may differ from that of another seed: two that differ by less are taken for equal."""

HOLDS, FAILS, EQUAL = "holds", "does not", "within noise"

GOAL_SENDERS: Final = SENDERS

SETTLED_S_MAX: Final = 5.0
CHURN_RELIABILITY_MIN: Final = 0.9999
CHURN_RMR_MAX: Final = 0.3
"""Of grove under faults: after a crash or a cut everything owed has come within so long; under churn so much has come,
for so many copies more than a tree's."""


@dataclass(frozen=True)
class Claim:
    """A sentence, its verdict, and the figures that it rests on."""

    text: str
    verdict: str
    found: str


@dataclass(frozen=True)
class Goal:
    """One of grove's: for each number of senders what was found, and whether that meets it."""

    text: str
    limit: str
    found: list[tuple[str, bool | None]]  # None: it is no goal there


def judged(cells: Cells, nodes: int) -> list[Claim]:
    """All sentences that the cells of this size can judge."""
    if any(cells.smallest(nodes, protocol, 1) is None for protocol in DOCUMENT):
        return []
    several = [protocol for protocol in ("plumtree", "cptcast") if cells.smallest(nodes, protocol, ALL) is not None]
    claims = [_reliable(cells, nodes), _ordered(cells, nodes), _redundant(cells, nodes), _single(cells, nodes)]
    claims += [_optimal(cells, nodes), _heavy(cells, nodes), _overhead(cells, nodes)]
    if len(several) == 2:
        claims += [_below_one(cells, nodes), _worst(cells, nodes), _higher(cells, nodes), _flat(cells, nodes)]
    return claims


def _grid(cells: Cells, nodes: int) -> list[Json]:
    return [row for row in cells.of("thesis", nodes) if row["protocol"] in DOCUMENT]


def _reliable(cells: Cells, nodes: int) -> Claim:
    rows = _grid(cells, nodes)
    least = min(phase["least"] for row in rows for phase in row["phases"].values() if phase["messages"])
    whole = sum(all(phase["least"] == 1.0 for phase in row["phases"].values()) for row in rows)
    return Claim(
        "All experiments exhibit a reliability of 100 % (4.3).",
        HOLDS if least == 1.0 else FAILS,
        f"{whole} of {len(rows)} cells; of the worst message {least:.4%} got it",
    )


def _ordered(cells: Cells, nodes: int) -> Claim:
    of = {
        protocol: sum(row["violations"] for row in _grid(cells, nodes) if row["protocol"] == protocol)
        for protocol in DOCUMENT
    }
    return Claim(
        "PRC-broadcast and CPTCast preserve causal order, Plumtree promises none (4.2.3).",
        HOLDS if of["prc"] == of["cptcast"] == 0 else FAILS,
        "deliveries out of order: " + ", ".join(f"{protocol} {count:,}" for protocol, count in of.items()),
    )


def _values(cells: Cells, nodes: int, protocol: str, senders: int, name: str) -> list[float]:
    """A figure's mean over the intervals, by payload."""
    found = [cells.over_intervals(nodes, protocol, senders, payload, name) for payload in PAYLOADS]
    return [value for value in found if value is not None]


def _listed(values: Iterable[float], form: str = ".3f") -> str:
    return ", ".join(f"{value:{form}}" for value in values)


def _redundant(cells: Cells, nodes: int) -> Claim:
    values = _values(cells, nodes, "prc", 1, "redundancy")
    expected = degree(nodes) - 1
    return Claim(
        "PRC-broadcast has a nearly constant RMR, of the number of neighbours less one: 4 of 5 (4.3.2).",
        HOLDS if all(abs(value - expected) <= NOISE * expected for value in values) else FAILS,
        f"{_listed(values)} with {degree(nodes)} neighbours",
    )


def _single(cells: Cells, nodes: int) -> Claim:
    values = {protocol: _values(cells, nodes, protocol, 1, "redundancy") for protocol in ("plumtree", "cptcast")}
    return Claim(
        "With a single sender the RMR of Plumtree and CPTCast tends to 0 (4.3.2).",
        HOLDS if max(max(each) for each in values.values()) <= NOISE else FAILS,
        "; ".join(f"{protocol} {_listed(each)}" for protocol, each in values.items()),
    )


def _below_one(cells: Cells, nodes: int) -> Claim:
    values = {protocol: _values(cells, nodes, protocol, ALL, "redundancy") for protocol in ("plumtree", "cptcast")}
    still = [
        value
        for protocol in ("plumtree", "cptcast")
        for value in _values(cells, nodes, protocol, AT_REST, "redundancy")
    ]
    return Claim(
        "With several senders it is notable, and less than 1 (4.3.2).",
        HOLDS if max(max(each) for each in values.values()) < 1.0 else FAILS,
        "; ".join(f"{protocol} {_listed(each)}" for protocol, each in values.items())
        + _at_rest(max(still, default=0.0), "at most "),
    )


def _at_rest(value: float, sign: str = "× ") -> str:
    """The same of senders that have sent before."""
    return f"; {AT_REST} that have sent before: {sign}{value:.2f}"


def _ratios(cells: Cells, nodes: int, one: tuple[str, int], other: tuple[str, int]) -> list[float]:
    """Mean latency of one beside the other's, by payload, over the intervals that both have."""
    found = []
    for payload in PAYLOADS:
        pairs = [
            (mine, others)
            for interval in INTERVALS_MS
            if (mine := cells.mean_ms(nodes, *one, payload, interval)) is not None
            and (others := cells.mean_ms(nodes, *other, payload, interval)) is not None
        ]
        if pairs:
            found.append(sum(mine for mine, _ in pairs) / sum(others for _, others in pairs))
    return found


def _at_most(ratios: Sequence[float], limit: float) -> str:
    return HOLDS if all(ratio <= limit for ratio in ratios) else FAILS


def _above(ratio: float) -> str:
    return HOLDS if ratio > 1 + NOISE else EQUAL if ratio >= 1 - NOISE else FAILS


def _optimal(cells: Cells, nodes: int) -> Claim:
    ratios = [
        ratio for protocol in ("plumtree", "cptcast") for ratio in _ratios(cells, nodes, (protocol, 1), ("prc", 1))
    ]
    return Claim(
        "With a single sender both have optimal latency, as PRC-broadcast has (4.3.1).",
        HOLDS if max(ratios) <= 1 + NOISE else FAILS,
        f"Plumtree and CPTCast beside PRC-broadcast, by payload: × {_listed(ratios, '.2f')}",
    )


def _heavy(cells: Cells, nodes: int) -> Claim:
    ratio = _ratios(cells, nodes, ("prc", 1), ("cptcast", 1))[-1]
    each = []
    for interval in INTERVALS_MS:
        flood, tree = (cells.mean_ms(nodes, protocol, 1, PAYLOADS[-1], interval) for protocol in ("prc", "cptcast"))
        if flood is not None and tree is not None:
            each.append(f"× {flood / tree:.2f} every {interval} ms")
    return Claim(
        "At 1 MB PRC-broadcast is slightly slower than a single sender's tree (4.3.1).",
        _above(ratio),
        f"PRC-broadcast beside CPTCast: {', '.join(each)}. Where it is many times as slow, a copy from each "
        "neighbour is more than an interface carries in that time",
    )


def _overhead(cells: Cells, nodes: int) -> Claim:
    ratios = _ratios(cells, nodes, ("cptcast", 1), ("plumtree", 1))
    return Claim(
        "With a single sender, causality costs CPTCast no significant latency beside Plumtree (4.3.1).",
        _at_most(ratios, 1 + NOISE),
        f"by payload × {_listed(ratios, '.2f')}",
    )


def _worst(cells: Cells, nodes: int) -> Claim:
    ratios = _ratios(cells, nodes, ("cptcast", ALL), ("plumtree", ALL))
    return Claim(
        "With several senders CPTCast has by far the highest latency, at every payload (4.3.1).",
        _above(min(ratios)),
        f"beside Plumtree with several, by payload × {_listed(ratios, '.2f')}"
        + _at_rest(max(_ratios(cells, nodes, ("cptcast", AT_REST), ("plumtree", AT_REST)), default=0.0)),
    )


def _higher(cells: Cells, nodes: int) -> Claim:
    ratios = _ratios(cells, nodes, ("plumtree", ALL), ("plumtree", 1))
    return Claim(
        "With several senders Plumtree has a higher latency than with one (4.3.1).",
        _above(min(ratios)),
        f"by payload × {_listed(ratios, '.2f')}"
        + _at_rest(max(_ratios(cells, nodes, ("plumtree", AT_REST), ("plumtree", 1)), default=0.0)),
    )


def _flat(cells: Cells, nodes: int) -> Claim:
    def spread(protocol: str, senders: int) -> float:
        """How much the latency of 1 MB grows from the longest interval to the shortest."""
        values = [cells.mean_ms(nodes, protocol, senders, PAYLOADS[-1], interval) for interval in INTERVALS_MS]
        known = [value for value in values if value is not None]
        return max(known) / min(known)

    several = {protocol: spread(protocol, ALL) for protocol in ("plumtree", "cptcast")}
    single = {protocol: spread(protocol, 1) for protocol in ("plumtree", "cptcast")}
    return Claim(
        "The interval changes latency little with several senders, and more with one (4.3.1).",
        HOLDS if all(several[protocol] < single[protocol] * (1 + NOISE) for protocol in several) else FAILS,
        "1 MB, the slowest interval beside the fastest: "
        + "; ".join(f"{name} × {several[name]:.2f} with all, × {single[name]:.2f} with one" for name in several),
    )


# grove's goals


def goals(cells: Cells, nodes: int) -> list[Goal]:
    """Each goal for each number of senders; a number of senders without a cell is left blank."""
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
        goal("reliability", "100 %", lambda row: (f"{run(row)['least']:.4%}", run(row)["least"] == 1.0)),
        goal("out of order", "0", lambda row: (f"{row['violations']:,}", row["violations"] == 0)),
        goal("RMR", "≤ 0.01", lambda row: (f"{run(row)['redundancy']:.4f}", run(row)["redundancy"] <= 0.01), True),
        goal("mean latency beside a flood's", "≤ 1.3", lambda row: _ratio(ratio(row, "mean_ms"), 1.3), True),
        goal("last hop beside a flood's", "≤ 1.1", lambda row: _ratio(ratio(row, "last_hop"), 1.1), True),
        goal("bytes of an order entry", "≤ 8", lambda row: _bytes(row["entry_bytes"]), True),
        goal("memory of a node", "printed", lambda row: (f"{row['memory_bytes'] / 1e3:,.0f} kB", None)),
    ]


def survived(row: Json) -> bool:
    """Of a crash or a cut: everybody who is up got all that is owed, in order and in time, and has a neighbour."""
    whole = all(phase["least"] == 1.0 for phase in row["phases"].values())
    return whole and not row["violations"] and not row["isolated"] and float(row["settled_s"]) <= SETTLED_S_MAX


def endured(row: Json) -> bool:
    """Of churn: nearly everything has come, in order, and for few copies."""
    enough = float(row["phases"]["run"]["reliability"]) >= CHURN_RELIABILITY_MIN
    return enough and not row["violations"] and float(row["redundancy"]) <= CHURN_RMR_MAX


def _ratio(value: float, limit: float) -> tuple[str, bool]:
    return f"{value:.2f}", value <= limit


def _bytes(value: float | None) -> tuple[str, bool]:
    return ("–", True) if value is None else (f"{value:.2f}", value <= 8.0)
