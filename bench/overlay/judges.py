"""Judges of the document's sentences. Each compares one sentence with our figures.

Owns: the cells that judge each sentence, and the limits of "equal", "slightly" and the like. Must never: combine
readings or seeds (``claims`` does), make markup, or do I/O.

A judge gets the figures of one size under one reading, and returns ``None`` if they do not suffice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ingeborg.bench.overlay.cases import ALL, DOCUMENT, KB, LONG, PAYLOADS, THESIS, TIMERS, TREES
from ingeborg.bench.overlay.cells import Grid, share, start_of
from ingeborg.bench.overlay.drawn import degree
from ingeborg.bench.text.blocks import FAILS, HOLDS, NOISE, PARTLY

Json = Mapping[str, Any]

SAME: Final = 0.05
"""A relative difference of two mean latencies or RMRs is too small to matter if it is not above this. An RMR is
notable above it."""

SLIGHT: Final = 1.5
"""A latency is slightly higher if it is at most this many times as high."""

CHANGING: Final = 0.001
"""A tree changes constantly if with each message at least this share of the nodes requests another link."""

COPED: Final = 0.999
"""A protocol copes with a fault if at least this share of the later messages arrives."""

SINGLE: Final = (*((protocol, 1) for protocol in TREES), ("prc", 1))
"""The lines of figure 4.2 with one sender. PRC-broadcast has one line for both modes."""


@dataclass(frozen=True)
class Finding:
    """A verdict, and the figures for it."""

    verdict: str
    found: str


Judge = Callable[[Grid], Finding | None]


# Helpers


def asked(row: Json) -> float:
    """Return GRAFTs per node and counted message."""
    count = row["kinds"].get("graft", (0,))[0]
    return float(count / (row["phases"]["run"]["messages"] * row["nodes"]))


def _if(condition: bool, otherwise: str = FAILS) -> str:
    return HOLDS if condition else otherwise


def _size(payload: int) -> str:
    return f"{payload // KB:,} KB"


def _times(ratios: Mapping[int, float]) -> str:
    return ", ".join(f"× {ratio:.2f} ({_size(payload)})" for payload, ratio in ratios.items())


def _range(values: Iterable[float], form: str = ".3f") -> str:
    low, high = min(found := list(values)), max(found)
    return f"{low:{form}}" if f"{low:{form}}" == f"{high:{form}}" else f"{low:{form}} to {high:{form}}"


def _plain(grid: Grid) -> list[Json]:
    """Return the rows of the document's protocols in worlds without faults, under every reading."""
    return [row for row in grid.rows if row["experiment"] in (THESIS, TIMERS) and row["protocol"] in DOCUMENT]


def redundancies(grid: Grid, protocol: str, senders: int) -> dict[int, float]:
    """Return the RMR for each payload, as the mean over the intervals (figure 4.3)."""
    found = {}
    for payload in PAYLOADS:
        values = grid.by_interval(protocol, senders, payload, "redundancy").values()
        if values:
            found[payload] = sum(values) / len(values)
    return found


def _spreads(grid: Grid, protocol: str, senders: int) -> dict[int, float]:
    """Return, for each payload, the ratio of the slowest to the fastest interval's mean latency."""
    found = {}
    for payload in PAYLOADS:
        values = grid.by_interval(protocol, senders, payload).values()
        if len(values) > 1:
            found[payload] = max(values) / min(values)
    return found


# Reliability and order


def reliable(grid: Grid) -> Finding | None:
    rows = _plain(grid)
    if not rows:
        return None
    least = [min(phase["least"] for phase in row["phases"].values() if phase["messages"]) for row in rows]
    whole = sum(value == 1.0 for value in least)
    return Finding(
        _if(whole == len(rows)),
        f"{whole} of {len(rows)} cells; the worst-delivered message reached {share(min(least))} of the nodes",
    )


def ordered(grid: Grid) -> Finding | None:
    counts: dict[str, int] = {}
    for row in _plain(grid):
        name = f"plumtree {start_of(row)}" if row["protocol"] == "plumtree" else row["protocol"]
        counts[name] = counts.get(name, 0) + row["violations"]
    if not {"prc", "cptcast"} <= counts.keys():
        return None
    return Finding(
        _if(counts["prc"] == counts["cptcast"] == 0),
        "deliveries out of order: " + ", ".join(f"{name} {count:,}" for name, count in sorted(counts.items())),
    )


def flood(grid: Grid) -> Finding | None:
    still = [row for row in grid.rows if row["protocol"] == "flood" and row["experiment"] == THESIS]
    moving = [row for row in grid.rows if row["protocol"] == "flood" and row["experiment"] in ("crash", "cut", "churn")]
    if not moving:
        return None
    static = sum(row["violations"] + row["doubles"] for row in still)
    found = f"with faults, {sum(row['doubles'] for row in moving):,} repeated deliveries in {len(moving)} cells"
    return Finding(
        _if(not static and all(row["doubles"] for row in moving)),
        found + (f"; without faults, {static}" if still else ""),
    )


# One sender, and PRC-broadcast


def alike(grid: Grid) -> Finding | None:
    figures = ("mean_ms", "redundancy")
    ratios = [ratio for name in figures for ratio in grid.ratios(("prc", ALL), ("prc", 1), name).values()]
    if not ratios:
        return None
    return Finding(
        _if(all(abs(ratio - 1) <= SAME for ratio in ratios)),
        f"latency and RMR with all nodes as senders are × {_range(ratios, '.2f')} of those with one sender",
    )


def copies(grid: Grid) -> Finding | None:
    values = redundancies(grid, "prc", 1).values()
    if not values:
        return None
    expected = degree(grid.nodes) - 1
    return Finding(
        _if(all(abs(value - expected) <= SAME * expected for value in values)),
        f"{_range(values)} with {degree(grid.nodes)} neighbours",
    )


def single(grid: Grid) -> Finding | None:
    values = {protocol: redundancies(grid, protocol, 1).values() for protocol in TREES}
    if not all(values.values()):
        return None
    return Finding(
        _if(all(value <= SAME for each in values.values() for value in each)),
        "; ".join(f"{protocol} {_range(each)}" for protocol, each in values.items()),
    )


def stable(grid: Grid) -> Finding | None:
    rows = [row for protocol in TREES for row in grid.line(protocol, 1)]
    light = [asked(row) for row in rows if row["payload_bytes"] <= PAYLOADS[1]]
    heavy = [asked(row) for row in rows if row["payload_bytes"] > PAYLOADS[1]]
    if not light or not heavy:
        return None
    return Finding(
        _if(max(light) == 0.0),
        f"GRAFTs per node and message: {_range(light)} up to {_size(PAYLOADS[1])}, {_range(heavy)} above",
    )


def optimal(grid: Grid) -> Finding | None:
    ratios = {protocol: grid.ratios((protocol, 1), ("prc", 1)) for protocol in TREES}
    if not all(ratios.values()):
        return None
    return Finding(
        _if(all(ratio <= 1 + SAME for each in ratios.values() for ratio in each.values())),
        "compared with PRC-broadcast: " + "; ".join(f"{name} {_times(each)}" for name, each in ratios.items()),
    )


def best(grid: Grid) -> Finding | None:
    ratios = {}
    for payload in PAYLOADS[:-1]:
        for interval, mean in grid.by_interval("prc", 1, payload).items():
            trees = [grid.figure(protocol, 1, payload, interval, "mean_ms") for protocol in TREES]
            known = [value for value in trees if value is not None]
            if known:
                ratios[f"{_size(payload)} every {interval} ms"] = mean / min(known)
    if not ratios:
        return None
    worst = max(ratios, key=lambda name: ratios[name])
    return Finding(
        _if(ratios[worst] <= 1 + SAME),
        f"compared with the faster tree: × {min(ratios.values()):.2f} to {ratios[worst]:.2f} ({worst})",
    )


def heavy(grid: Grid) -> Finding | None:
    flood, tree = (grid.by_interval(protocol, 1, PAYLOADS[-1]) for protocol in ("prc", "cptcast"))
    ratios = {interval: flood[interval] / tree[interval] for interval in flood if interval in tree}
    if not ratios:
        return None
    if min(ratios.values()) <= 1 + SAME:
        verdict = NOISE if min(ratios.values()) >= 1 - SAME else FAILS
    else:
        verdict = _if(max(ratios.values()) <= SLIGHT, PARTLY)
    return Finding(
        verdict,
        "PRC-broadcast compared with CPTCast: "
        + ", ".join(f"× {ratio:.2f} every {interval} ms" for interval, ratio in ratios.items()),
    )


def overhead(grid: Grid) -> Finding | None:
    ratios = grid.ratios(("cptcast", 1), ("plumtree", 1))
    return Finding(_if(max(ratios.values()) <= 1 + SAME), _times(ratios)) if ratios else None


def accentuated(grid: Grid) -> Finding | None:
    known = {}
    for line in SINGLE:
        means = {payload: grid.by_interval(*line, payload) for payload in PAYLOADS}
        if all(len(means[payload]) > 1 for payload in (PAYLOADS[0], PAYLOADS[-1])):
            known[line] = {payload: each[min(each)] / each[max(each)] for payload, each in means.items() if each}
    if not known:
        return None
    return Finding(
        _if(all(each[PAYLOADS[-1]] > max(1.0, each[PAYLOADS[0]]) * (1 + SAME) for each in known.values())),
        "shortest interval compared with the longest: "
        + "; ".join(f"{protocol} {_times(each)}" for (protocol, _), each in known.items()),
    )


def few(grid: Grid) -> Finding | None:
    ratios = {
        senders: each[PAYLOADS[-1]]
        for senders in (1, 20)
        if PAYLOADS[-1] in (each := grid.ratios(("cptcast", senders), ("prc", 1)))
    }
    if not ratios:
        return None
    return Finding(
        _if(max(ratios.values()) < 1 - SAME),
        "CPTCast compared with PRC-broadcast at 1 MB: "
        + ", ".join(f"× {ratio:.2f} with {senders or 'all'} senders" for senders, ratio in ratios.items()),
    )


def number(grid: Grid) -> Finding | None:
    ratios: dict[str, list[float]] = {}
    for row in grid.rows:
        if row["experiment"] == "long" and start_of(row) == grid.view.reading.start:
            for short in grid.cells(row["protocol"], ALL, row["payload_bytes"], row["interval_ms"]):
                if short["seed"] == row["seed"]:
                    means = [each["phases"]["run"]["mean_ms"] for each in (short, row)]
                    ratios.setdefault(row["protocol"], []).append(means[0] / means[1])
    if not ratios:
        return None
    return Finding(
        _if(all(abs(ratio - 1) <= SAME for each in ratios.values() for ratio in each)),
        f"mean latency of 100 messages compared with that of {LONG}, after a cold start: "
        + ", ".join(f"{protocol} × {_range(each, '.2f')}" for protocol, each in ratios.items()),
    )


# All nodes as senders


def changing(grid: Grid) -> Finding | None:
    values = {protocol: [asked(row) for row in grid.line(protocol, ALL)] for protocol in TREES}
    if not all(values.values()):
        return None
    return Finding(
        _if(min(min(each) for each in values.values()) >= CHANGING),
        "GRAFTs per node and message: " + ", ".join(f"{name} {_range(each)}" for name, each in values.items()),
    )


def slower(grid: Grid) -> Finding | None:
    ratios = {protocol: grid.ratios((protocol, ALL), (protocol, 1)) for protocol in TREES}
    if not all(ratios.values()):
        return None
    return Finding(
        _if(all(ratio > 1 + SAME for each in ratios.values() for ratio in each.values())),
        "; ".join(f"{protocol} {_times(each)}" for protocol, each in ratios.items()),
    )


def slowest(grid: Grid, protocol: str, others: Sequence[tuple[str, int]]) -> Finding | None:
    """Judge whether a protocol, with all nodes as senders, is slower than all other lines at every payload."""
    least: dict[int, float] = {}
    for other in others:
        ratios = grid.ratios((protocol, ALL), other)
        if not ratios:
            return None
        least = {payload: min(ratio, least.get(payload, ratio)) for payload, ratio in ratios.items()}
    return Finding(_if(min(least.values()) > 1 + SAME), f"compared with the slowest other line: {_times(least)}")


def cptcast_slower(grid: Grid) -> Finding | None:
    ratios = grid.ratios(("cptcast", ALL), ("plumtree", ALL))
    return Finding(_if(min(ratios.values()) > 1 + SAME), _times(ratios)) if ratios else None


def flat(grid: Grid) -> Finding | None:
    several = {protocol: _spreads(grid, protocol, ALL) for protocol in TREES}
    single = {protocol: _spreads(grid, protocol, 1) for protocol in TREES}
    if not all(several.values()) or not all(single.values()):
        return None
    return Finding(
        _if(all(several[name][each] <= single[name][each] * (1 + SAME) for name in TREES for each in single[name])),
        "slowest interval compared with the fastest: "
        + "; ".join(f"{name} {_times(several[name])}, one sender {_times(single[name])}" for name in TREES),
    )


def below_one(grid: Grid) -> Finding | None:
    values = {protocol: redundancies(grid, protocol, ALL).values() for protocol in TREES}
    if not all(values.values()):
        return None
    cells = [row["phases"]["run"]["redundancy"] for protocol in TREES for row in grid.line(protocol, ALL)]
    return Finding(
        _if(max(max(each) for each in values.values()) < 1.0),
        "; ".join(f"{name} {_range(each)}" for name, each in values.items()) + f"; highest cell {max(cells):.2f}",
    )


def notable(grid: Grid) -> Finding | None:
    values = {protocol: redundancies(grid, protocol, ALL) for protocol in TREES}
    if not all(PAYLOADS[0] in each and PAYLOADS[-1] in each for each in values.values()):
        return None
    plumtree, cptcast = (values[protocol] for protocol in TREES)
    only = all((value > SAME) == (payload == PAYLOADS[-1]) for payload, value in plumtree.items())
    return Finding(
        _if(only and min(cptcast.values()) > SAME),
        "; ".join(
            f"{name} " + ", ".join(f"{value:.3f} ({_size(payload)})" for payload, value in each.items())
            for name, each in values.items()
        ),
    )


def same_redundancy(grid: Grid) -> Finding | None:
    greatest: dict[str, float] = {}
    for protocol, senders in (*SINGLE, *((protocol, ALL) for protocol in TREES)):
        ranges = [
            max(values) - min(values)
            for payload in PAYLOADS
            if len(values := grid.by_interval(protocol, senders, payload, "redundancy").values()) > 1
        ]
        if not ranges:
            return None
        greatest[f"{protocol} {'one sender' if senders == 1 else 'all'}"] = max(ranges)
    return Finding(
        _if(max(greatest.values()) <= SAME),
        "greatest difference between two intervals: "
        + ", ".join(f"{line} {value:.3f}" for line, value in greatest.items()),
    )


def small(grid: Grid) -> Finding | None:
    ratio = grid.ratios(("cptcast", ALL), ("prc", 1)).get(PAYLOADS[0])
    if ratio is None:
        return None
    return Finding(_if(ratio > 1 + SAME), f"CPTCast compared with PRC-broadcast, 1 KB: × {ratio:.2f}")


def network(grid: Grid) -> Finding | None:
    flood = redundancies(grid, "prc", 1).get(PAYLOADS[-1])
    trees = {senders: redundancies(grid, "cptcast", senders).get(PAYLOADS[-1]) for senders in (1, ALL)}
    shares = {senders: (1 + tree) / (1 + flood) for senders, tree in trees.items() if tree is not None and flood}
    if len(shares) < len(trees):
        return None
    return Finding(
        _if(max(shares.values()) < 1 - SAME),
        f"payloads sent at 1 MB, compared with PRC-broadcast: × {shares[1]:.2f} with one sender, × {shares[ALL]:.2f} "
        "with all nodes",
    )


# Faults


def _broken(grid: Grid, protocol: str) -> list[Json]:
    return [row for row in grid.rows if row["protocol"] == protocol and row["experiment"] in ("crash", "cut")]


def _after(rows: Sequence[Json]) -> str:
    return ", ".join(
        f"{share(row['phases']['after']['reliability'])} "
        + ("after the cut" if row["experiment"] == "cut" else f"after a crash of {row['share']:.0%}")
        for row in rows
    )


def copes(grid: Grid, protocol: str) -> Finding | None:
    rows = _broken(grid, protocol)
    if not rows:
        return None
    shares = [row["phases"]["after"]["reliability"] for row in rows]
    coped = sum(value >= COPED for value in shares)
    worst = [row for row in rows if row["phases"]["after"]["reliability"] == min(shares)][:1]
    return Finding(
        _if(coped == len(rows)),
        f"{coped} of {len(rows)} cells deliver at least {COPED:.1%} of later messages; the worst, {_after(worst)}",
    )


def recovers(grid: Grid) -> Finding | None:
    rows = _broken(grid, "cptcast")
    if not rows:
        return None

    def ratios(name: str) -> list[float]:
        return [row["phases"]["during"][name] / row["phases"]["run"][name] for row in rows]

    sends, means = ratios("control_bytes"), ratios("mean_ms")
    return Finding(
        _if(min(sends) > 1 + SAME and max(means) <= SLIGHT),
        f"in the 5 s of the fault, control bytes × {_range(sends, '.0f')}, latency × {_range(means, '.1f')}",
    )
