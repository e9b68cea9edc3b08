"""Judge the document's sentences about its figures, and grove's goals, by our figures.

Owns: the choice of cells that judge each sentence, and the goals as numbers. Must never: make markup, or do I/O.

The document prints no numbers with its charts, so only its sentences can be compared with our figures. In its
"multi-sender" mode, "any process" may send. We compare it with cells in which all nodes send, and no earlier message
has made a tree. Other cells have 100 senders, and each has sent one message before. That difference matters, because
another sender does not change a tree that has settled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from ingeborg.bench.overlay.cells import Cells
from ingeborg.bench.overlay.drawn import degree
from ingeborg.bench.overlay.experiments import ALL, AT_REST, DOCUMENT, INTERVALS_MS, KB, PAYLOADS, SENDERS
from ingeborg.bench.overlay.sites import NANCY_BITS_PER_S, NODES_PER_HOST, RENNES_BITS_PER_S
from ingeborg.bench.overlay.summary import share

Json = Mapping[str, Any]

NOISE: Final = 0.05
"""A relative difference of two mean latencies or RMRs is too small to matter if it is not above this."""

HOLDS, FAILS, EQUAL = "holds", "does not", "within noise"

GOAL_SENDERS: Final = SENDERS

TREES: Final = ("plumtree", "cptcast")
ENDS: Final = (INTERVALS_MS[-1], INTERVALS_MS[0])

SETTLED_S_MAX: Final = 5.0
CHURN_RELIABILITY_MIN: Final = 0.9999
CHURN_RMR_MAX: Final = 0.3
"""Goals of grove under faults: the maximum time from a crash or a cut until all due messages have arrived, and, under
churn, the minimum share of due messages that arrive and the maximum RMR."""


@dataclass(frozen=True)
class Claim:
    """A sentence, its verdict, the figures for it, and the reason for these figures."""

    text: str
    verdict: str
    found: str
    why: str


@dataclass(frozen=True)
class Goal:
    """One of grove's goals: for each number of senders, the figure as text, and whether it meets the goal."""

    text: str
    limit: str
    found: list[tuple[str, bool | None]]  # None if no goal applies to this number


def judged(cells: Cells, nodes: int) -> list[Claim]:
    """Return all sentences that can be judged by the cells with this number of nodes. If there are several seeds, the
    figures are means over the seeds, and a sentence whose verdict depends on the seed is within noise."""
    of_all = _judged(cells, nodes)
    of_each = [_judged(seed, nodes) for seed in cells.by_seed(nodes)]
    return [
        claim if all(each[index].verdict == claim.verdict for each in of_each) else replace(claim, verdict=EQUAL)
        for index, claim in enumerate(of_all)
    ]


def _judged(cells: Cells, nodes: int) -> list[Claim]:
    if any(cells.smallest(nodes, protocol, 1) is None for protocol in DOCUMENT):
        return []
    several = [protocol for protocol in TREES if cells.smallest(nodes, protocol, ALL) is not None]
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
        f"{whole} of {len(rows)} cells; the worst-delivered message reached {share(least)} of the nodes",
        "No node and no link fails in these worlds, and a node that has an announcement requests the message until it "
        "arrives.",
    )


def _ordered(cells: Cells, nodes: int) -> Claim:
    of = {
        protocol: sum(row["violations"] for row in _grid(cells, nodes) if row["protocol"] == protocol)
        for protocol in DOCUMENT
    }
    return Claim(
        "PRC-broadcast and CPTCast preserve causal order, and Plumtree promises no order (4.2.3).",
        HOLDS if of["prc"] == of["cptcast"] == 0 else FAILS,
        "deliveries out of order: " + ", ".join(f"{protocol} {count:,}" for protocol, count in of.items()),
        "If Plumtree's tree changes, a message on the new branch overtakes a message that a node still has to request "
        "on the old branch.",
    )


def _values(cells: Cells, nodes: int, protocol: str, senders: int, name: str) -> list[float]:
    """Return a figure for each payload, as the mean over the intervals."""
    found = [cells.over_intervals(nodes, protocol, senders, payload, name) for payload in PAYLOADS]
    return [value for value in found if value is not None]


def _listed(values: Iterable[float], form: str = ".3f") -> str:
    return ", ".join(f"{value:{form}}" for value in values)


def asked(row: Json) -> float:
    """Return GRAFTs per node and counted message."""
    count = row["kinds"].get("graft", (0,))[0]
    return float(count / (row["phases"]["run"]["messages"] * row["nodes"]))


def _asked(cells: Cells, nodes: int, senders: int, payload: int, interval: int) -> str:
    parts = []
    for protocol in TREES:
        row = cells.cell(nodes, protocol, senders, payload, interval)
        if row is not None:
            parts.append(f"{protocol} {asked(row):.3f}")
    return f"GRAFTs per node and message, {payload // KB:,} KB every {interval} ms: {', '.join(parts)}."


def _redundant(cells: Cells, nodes: int) -> Claim:
    values = _values(cells, nodes, "prc", 1, "redundancy")
    expected = degree(nodes) - 1
    return Claim(
        "PRC-broadcast has a nearly constant RMR: the number of neighbours minus one, which is 4 for 5 neighbours "
        "(4.3.2).",
        HOLDS if all(abs(value - expected) <= NOISE * expected for value in values) else FAILS,
        f"{_listed(values)} with {degree(nodes)} neighbours",
        "A node sends a message over each of its d links, also back to the sender (Algorithm 1). With n nodes, that "
        "makes n d copies for any root.",
    )


def _single(cells: Cells, nodes: int) -> Claim:
    values = {protocol: _values(cells, nodes, protocol, 1, "redundancy") for protocol in TREES}
    return Claim(
        "With a single sender the RMR of Plumtree and CPTCast tends to 0 (4.3.2).",
        HOLDS if max(max(each) for each in values.values()) <= NOISE else FAILS,
        "; ".join(f"{protocol} {_listed(each)}" for protocol, each in values.items()),
        "The first message prunes all links except those of a tree, and the root's later messages use that tree. "
        + _asked(cells, nodes, 1, PAYLOADS[0], INTERVALS_MS[0]),
    )


def _below_one(cells: Cells, nodes: int) -> Claim:
    values = {protocol: _values(cells, nodes, protocol, ALL, "redundancy") for protocol in TREES}
    still = [value for protocol in TREES for value in _values(cells, nodes, protocol, AT_REST, "redundancy")]
    return Claim(
        "With several senders the RMR is notable, and less than 1 (4.3.2).",
        HOLDS if max(max(each) for each in values.values()) < 1.0 else FAILS,
        "; ".join(f"{protocol} {_listed(each)}" for protocol, each in values.items())
        + _at_rest(max(still, default=0.0), "at most "),
        "A GRAFT brings a copy over another link, which stays in the tree until a duplicate message prunes a link. "
        + _asked(cells, nodes, ALL, PAYLOADS[0], INTERVALS_MS[0]),
    )


def _at_rest(value: float, sign: str = "× ") -> str:
    """Return the text of the same figure for senders that have sent before."""
    return f"; with {AT_REST} senders that have sent before: {sign}{value:.2f}"


def _ratios(cells: Cells, nodes: int, one: tuple[str, int], other: tuple[str, int]) -> list[float]:
    """Return the ratio of two series' mean latencies for each payload, over the intervals that both series have."""
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
    ratios = [ratio for protocol in TREES for ratio in _ratios(cells, nodes, (protocol, 1), ("prc", 1))]
    return Claim(
        "With a single sender, Plumtree and CPTCast have an optimal latency like that of PRC-broadcast (4.3.1).",
        HOLDS if max(ratios) <= 1 + NOISE else FAILS,
        f"Plumtree and CPTCast compared with PRC-broadcast, by payload: × {_listed(ratios, '.2f')}",
        "The tree consists of the paths that were fastest for the first message. Unlike the messages of a flood, later "
        "messages cannot take another path when it is faster, but they do not queue behind copies either.",
    )


def _heavy(cells: Cells, nodes: int) -> Claim:
    ratio = _ratios(cells, nodes, ("prc", 1), ("cptcast", 1))[-1]
    each = []
    for interval in INTERVALS_MS:
        flood, tree = (cells.mean_ms(nodes, protocol, 1, PAYLOADS[-1], interval) for protocol in ("prc", "cptcast"))
        if flood is not None and tree is not None:
            each.append(f"× {flood / tree:.2f} every {interval} ms")
    gbps = degree(nodes) * NODES_PER_HOST * PAYLOADS[-1] * 8 / INTERVALS_MS[0] / 1e6
    return Claim(
        "At 1 MB, PRC-broadcast is slightly slower than the tree of a single sender (4.3.1).",
        _above(ratio),
        f"PRC-broadcast compared with CPTCast: {', '.join(each)}",
        f"{degree(nodes)} copies of 1 MB to each of the {NODES_PER_HOST} nodes of a host, every {INTERVALS_MS[0]} ms, "
        f"need {gbps:.0f} Gbps, but the interface of a host has {NANCY_BITS_PER_S / 1e9:.0f} or "
        f"{RENNES_BITS_PER_S / 1e9:.0f} Gbps. So the queue grows with every message. It does not grow at longer "
        "intervals.",
    )


def _overhead(cells: Cells, nodes: int) -> Claim:
    ratios = _ratios(cells, nodes, ("cptcast", 1), ("plumtree", 1))
    return Claim(
        "With a single sender, causality costs CPTCast no significant latency compared with Plumtree (4.3.1).",
        _at_most(ratios, 1 + NOISE),
        f"by payload × {_listed(ratios, '.2f')}",
        "Only messages on links outside the tree wait for an answer.",
    )


def _worst(cells: Cells, nodes: int) -> Claim:
    ratios = _ratios(cells, nodes, ("cptcast", ALL), ("plumtree", ALL))
    return Claim(
        "With several senders CPTCast has by far the highest latency, at every payload (4.3.1).",
        _above(min(ratios)),
        f"compared with Plumtree with several senders, by payload: × {_listed(ratios, '.2f')}"
        + _at_rest(max(_ratios(cells, nodes, ("cptcast", AT_REST), ("plumtree", AT_REST)), default=0.0)),
        "Messages behind an announcement are not announced. So a node of CPTCast learns of fewer missing messages and "
        f"requests fewer, and its tree changes less. {_asked(cells, nodes, ALL, PAYLOADS[0], INTERVALS_MS[0])}"
        f"{_with_timers(cells, nodes)} The simulation leaves out the time of the document's processors.",
    )


def _with_timers(cells: Cells, nodes: int) -> str:
    """Return a sentence on how CPTCast's latency compares with Plumtree's at other values of TIMEOUT1."""
    means: dict[str, dict[tuple[int, int], float]] = {protocol: {} for protocol in TREES}
    for row in cells.of("timers", nodes):
        if row["senders"] == ALL:
            means[row["protocol"]][row["payload_bytes"], row["timeout1_ms"]] = row["phases"]["run"]["mean_ms"]
    plumtree, cptcast = (means[protocol] for protocol in TREES)
    ratios = [cptcast[key] / plumtree[key] for key in sorted(plumtree.keys() & cptcast.keys())]
    return f" With other timers: × {min(ratios):.2f} to {max(ratios):.2f}." if ratios else ""


def _higher(cells: Cells, nodes: int) -> Claim:
    ratios = _ratios(cells, nodes, ("plumtree", ALL), ("plumtree", 1))
    hops = [cells.over_intervals(nodes, "plumtree", senders, PAYLOADS[0], "last_hop") for senders in (ALL, 1)]
    return Claim(
        "With several senders Plumtree has a higher latency than with one sender (4.3.1).",
        _above(min(ratios)),
        f"by payload × {_listed(ratios, '.2f')}"
        + _at_rest(max(_ratios(cells, nodes, ("plumtree", AT_REST), ("plumtree", 1)), default=0.0)),
        "The tree of one root is a detour for messages of another root: last hop "
        f"{' against '.join(f'{hop:.1f}' for hop in hops if hop is not None)} for one sender. A tree that no "
        "message has used yet changes for a while. If TIMEOUT1 is shorter than the tree's latency, the "
        "tree never stops changing.",
    )


def _flat(cells: Cells, nodes: int) -> Claim:
    def spread(protocol: str, senders: int) -> float:
        """Return the ratio of the slowest to the fastest interval's mean latency, for payloads of 1 MB."""
        values = [cells.mean_ms(nodes, protocol, senders, PAYLOADS[-1], interval) for interval in INTERVALS_MS]
        known = [value for value in values if value is not None]
        return max(known) / min(known)

    several = {protocol: spread(protocol, ALL) for protocol in TREES}
    single = {protocol: spread(protocol, 1) for protocol in TREES}
    return Claim(
        "The interval has little effect on latency with several senders, and more effect with one (4.3.1).",
        HOLDS if all(several[protocol] < single[protocol] * (1 + NOISE) for protocol in several) else FAILS,
        "1 MB, slowest interval compared with the fastest: "
        + "; ".join(
            f"{name} × {several[name]:.2f} with all nodes as senders, × {single[name]:.2f} with one sender"
            for name in several
        ),
        "At the longest interval, a change of the tree is finished before the next message arrives. At the shortest "
        "interval, many messages are "
        f"under way at the same time. {' '.join(_asked(cells, nodes, ALL, PAYLOADS[-1], each) for each in ENDS)}",
    )


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
