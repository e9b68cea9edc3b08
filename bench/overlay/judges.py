"""Judges of the document's sentences. Each compares one sentence with our figures.

Owns: the cells that judge each sentence, and the limits of "equal", "slightly" and the like. Must never: combine
interpretations or seeds (``claims`` does), make markup, or do I/O.

A judge gets the figures of one size under one interpretation. It raises ``MissingError`` if figures are missing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from ingeborg.bench.experiments.figures import verdict
from ingeborg.bench.overlay.cases import ALL, DOCUMENT, KB, LONG, PAYLOADS, THESIS, TIMERS, TREES
from ingeborg.bench.overlay.cells import Grid, share, start_of
from ingeborg.bench.overlay.drawn import degree
from ingeborg.bench.text.blocks import FAILS, NOISE, PARTLY

Json = Mapping[str, Any]

SAME: Final = 0.05
"""A relative difference of two mean latencies or RMRs matters only if it is greater than this. An RMR is notable if it
is greater than this."""

SLIGHT: Final = 1.5
"""A latency is slightly higher if it is higher by at most this factor."""

CHANGING: Final = 0.001
"""A tree changes constantly if at least this share of the nodes requests another link with each message."""

COPED: Final = 0.999
"""A protocol copes with a fault if at least this share of the later messages arrives."""

SINGLE: Final = (*((protocol, 1) for protocol in TREES), ("prc", 1))
"""The lines of figure 4.2 with one sender. PRC-broadcast has one line for both modes."""


Name = TypeVar("Name")
Found = TypeVar("Found", bound=Collection[Any] | bool)


class MissingError(LookupError):
    """Raised if there are not enough cells for a verdict."""


@dataclass(frozen=True)
class Finding:
    """A verdict, and the figures for it."""

    verdict: str
    found: str


Judge = Callable[[Grid], Finding]


# Helpers


def _some(found: Found) -> Found:
    """Return the figures. Raises ``MissingError`` if there are none."""
    if not found:
        raise MissingError
    return found


def _each(names: Iterable[Name], figures: Callable[[Name], Found]) -> dict[Name, Found]:
    """Return the figures of each name. Raises ``MissingError`` if a name has no figures."""
    return {name: _some(figures(name)) for name in names}


def _at(found: Mapping[int, float], payload: int) -> float:
    """Return the figure for a payload. Raises ``MissingError`` if there is none."""
    return _some([value for each, value in found.items() if each == payload])[0]


def asked(row: Json) -> float:
    """Return GRAFTs per node and counted message."""
    count = row["kinds"].get("graft", (0,))[0]
    return float(count / (row["phases"]["run"]["messages"] * row["nodes"]))


def _size(payload: int) -> str:
    return f"{payload // KB:,} KB"


def _times(ratios: Mapping[int, float]) -> str:
    return ", ".join(f"× {ratio:.2f} ({_size(payload)})" for payload, ratio in ratios.items())


def _range(values: Iterable[float], form: str = ".3f") -> str:
    low, high = min(found := list(values)), max(found)
    return f"{low:{form}}" if f"{low:{form}}" == f"{high:{form}}" else f"{low:{form}} to {high:{form}}"


def _plain(grid: Grid) -> list[Json]:
    """Return the rows of the document's protocols in worlds without faults, under every interpretation."""
    return [row for row in grid.rows if row["experiment"] in (THESIS, TIMERS) and row["protocol"] in DOCUMENT]


def redundancies(grid: Grid, protocol: str, senders: int) -> dict[int, float]:
    """Return the RMR for each payload, as the mean over the intervals (figure 4.3)."""
    each = {payload: grid.by_interval(protocol, senders, payload, "redundancy").values() for payload in PAYLOADS}
    return {payload: sum(values) / len(values) for payload, values in each.items() if values}


def _spreads(grid: Grid, protocol: str, senders: int) -> dict[int, float]:
    """Return, for each payload, the ratio of the slowest to the fastest interval's mean latency."""
    each = {payload: grid.by_interval(protocol, senders, payload).values() for payload in PAYLOADS}
    return {payload: max(values) / min(values) for payload, values in each.items() if len(values) > 1}


# Reliability and order


def reliable(grid: Grid) -> Finding:
    rows = _some(_plain(grid))
    least = [min(phase["least"] for phase in row["phases"].values() if phase["messages"]) for row in rows]
    whole = sum(value == 1.0 for value in least)
    return Finding(
        verdict(whole == len(rows)),
        f"{whole} of {len(rows)} cells; the worst-delivered message reached {share(min(least))} of the nodes",
    )


def ordered(grid: Grid) -> Finding:
    counts: dict[str, int] = {}
    for row in _plain(grid):
        name = f"plumtree {start_of(row)}" if row["protocol"] == "plumtree" else row["protocol"]
        counts[name] = counts.get(name, 0) + row["violations"]
    _some({"prc", "cptcast"} <= counts.keys())
    return Finding(
        verdict(counts["prc"] == counts["cptcast"] == 0),
        "deliveries out of order: " + ", ".join(f"{name} {count:,}" for name, count in sorted(counts.items())),
    )


def flood(grid: Grid) -> Finding:
    floods = [row for row in grid.rows if row["protocol"] == "flood"]
    still = [row for row in floods if row["experiment"] == THESIS]
    moving = _some([row for row in floods if row["experiment"] in ("crash", "cut", "churn")])
    static = sum(row["violations"] + row["doubles"] for row in still)
    found = f"with faults, {sum(row['doubles'] for row in moving):,} repeated deliveries in {len(moving)} cells"
    return Finding(
        verdict(not static and all(row["doubles"] for row in moving)),
        found + (f"; without faults, {static}" if still else ""),
    )


# One sender, and PRC-broadcast


def alike(grid: Grid) -> Finding:
    figures = ("mean_ms", "redundancy")
    ratios = _some([ratio for name in figures for ratio in grid.ratios(("prc", ALL), ("prc", 1), name).values()])
    return Finding(
        verdict(all(abs(ratio - 1) <= SAME for ratio in ratios)),
        f"latency and RMR with all nodes as senders are × {_range(ratios, '.2f')} of those with one sender",
    )


def copies(grid: Grid) -> Finding:
    values, expected = _some(redundancies(grid, "prc", 1)).values(), degree(grid.nodes) - 1
    return Finding(
        verdict(all(abs(value - expected) <= SAME * expected for value in values)),
        f"{_range(values)} with {degree(grid.nodes)} neighbours",
    )


def single(grid: Grid) -> Finding:
    values = _each(TREES, lambda protocol: [*redundancies(grid, protocol, 1).values()])
    return Finding(
        verdict(all(value <= SAME for each in values.values() for value in each)),
        "; ".join(f"{protocol} {_range(each)}" for protocol, each in values.items()),
    )


def stable(grid: Grid) -> Finding:
    rows = [row for protocol in TREES for row in grid.line(protocol, 1)]
    light = _some([asked(row) for row in rows if row["payload_bytes"] <= PAYLOADS[1]])
    heavy = _some([asked(row) for row in rows if row["payload_bytes"] > PAYLOADS[1]])
    return Finding(
        verdict(max(light) == 0.0),
        f"GRAFTs per node and message: {_range(light)} up to {_size(PAYLOADS[1])}, {_range(heavy)} above",
    )


def optimal(grid: Grid) -> Finding:
    ratios = _each(TREES, lambda protocol: grid.ratios((protocol, 1), ("prc", 1)))
    return Finding(
        verdict(all(ratio <= 1 + SAME for each in ratios.values() for ratio in each.values())),
        "compared with PRC-broadcast: " + "; ".join(f"{name} {_times(each)}" for name, each in ratios.items()),
    )


def best(grid: Grid) -> Finding:
    ratios = {}
    for payload in PAYLOADS[:-1]:
        for interval, mean in grid.by_interval("prc", 1, payload).items():
            trees = [grid.figure(protocol, 1, payload, interval, "mean_ms") for protocol in TREES]
            known = [value for value in trees if value is not None]
            if known:
                ratios[f"{_size(payload)} every {interval} ms"] = mean / min(known)
    worst = max(_some(ratios), key=lambda name: ratios[name])
    return Finding(
        verdict(ratios[worst] <= 1 + SAME),
        f"compared with the faster tree: × {min(ratios.values()):.2f} to {ratios[worst]:.2f} ({worst})",
    )


def heavy(grid: Grid) -> Finding:
    flood, tree = (grid.by_interval(protocol, 1, PAYLOADS[-1]) for protocol in ("prc", "cptcast"))
    ratios = _some({interval: flood[interval] / tree[interval] for interval in flood if interval in tree})
    if min(ratios.values()) <= 1 + SAME:
        judged = NOISE if min(ratios.values()) >= 1 - SAME else FAILS
    else:
        judged = verdict(max(ratios.values()) <= SLIGHT, PARTLY)
    return Finding(
        judged,
        "PRC-broadcast compared with CPTCast: "
        + ", ".join(f"× {ratio:.2f} every {interval} ms" for interval, ratio in ratios.items()),
    )


def overhead(grid: Grid) -> Finding:
    ratios = _some(grid.ratios(("cptcast", 1), ("plumtree", 1)))
    return Finding(verdict(max(ratios.values()) <= 1 + SAME), _times(ratios))


def accentuated(grid: Grid) -> Finding:
    known = {}
    for line in SINGLE:
        means = {payload: grid.by_interval(*line, payload) for payload in PAYLOADS}
        if all(len(means[payload]) > 1 for payload in (PAYLOADS[0], PAYLOADS[-1])):
            known[line] = {payload: each[min(each)] / each[max(each)] for payload, each in means.items() if each}
    return Finding(
        verdict(all(each[PAYLOADS[-1]] > max(1.0, each[PAYLOADS[0]]) * (1 + SAME) for each in _some(known).values())),
        "shortest interval compared with the longest: "
        + "; ".join(f"{protocol} {_times(each)}" for (protocol, _), each in known.items()),
    )


def few(grid: Grid) -> Finding:
    each = {senders: grid.ratios(("cptcast", senders), ("prc", 1)) for senders in (1, 20)}
    ratios = _some({senders: found[PAYLOADS[-1]] for senders, found in each.items() if PAYLOADS[-1] in found})
    return Finding(
        verdict(max(ratios.values()) < 1 - SAME),
        "CPTCast compared with PRC-broadcast at 1 MB: "
        + ", ".join(f"× {ratio:.2f} with {senders} senders" for senders, ratio in ratios.items()),
    )


def number(grid: Grid) -> Finding:
    ratios: dict[str, list[float]] = {}
    for row in grid.rows:
        if row["experiment"] == "long" and start_of(row) == grid.view.reading.start:
            for short in grid.cells(row["protocol"], ALL, row["payload_bytes"], row["interval_ms"]):
                if short["seed"] == row["seed"]:
                    means = [each["phases"]["run"]["mean_ms"] for each in (short, row)]
                    ratios.setdefault(row["protocol"], []).append(means[0] / means[1])
    return Finding(
        verdict(all(abs(ratio - 1) <= SAME for each in _some(ratios).values() for ratio in each)),
        f"mean latency of 100 messages compared with that of {LONG}, after a cold start: "
        + ", ".join(f"{protocol} × {_range(each, '.2f')}" for protocol, each in ratios.items()),
    )


# All nodes as senders


def changing(grid: Grid) -> Finding:
    values = _each(TREES, lambda protocol: [asked(row) for row in grid.line(protocol, ALL)])
    return Finding(
        verdict(min(min(each) for each in values.values()) >= CHANGING),
        "GRAFTs per node and message: " + ", ".join(f"{name} {_range(each)}" for name, each in values.items()),
    )


def slower(grid: Grid) -> Finding:
    ratios = _each(TREES, lambda protocol: grid.ratios((protocol, ALL), (protocol, 1)))
    return Finding(
        verdict(all(ratio > 1 + SAME for each in ratios.values() for ratio in each.values())),
        "; ".join(f"{protocol} {_times(each)}" for protocol, each in ratios.items()),
    )


def slowest(grid: Grid, protocol: str, others: Sequence[tuple[str, int]]) -> Finding:
    """Judge whether a protocol, with all nodes as senders, is slower than all other lines at every payload that all of
    these lines have."""
    ratios = _each(others, lambda other: grid.ratios((protocol, ALL), other)).values()
    shared = [payload for payload in PAYLOADS if all(payload in each for each in ratios)]
    least = _some({payload: min(each[payload] for each in ratios) for payload in shared})
    return Finding(verdict(min(least.values()) > 1 + SAME), f"compared with the slowest other line: {_times(least)}")


def cptcast_slower(grid: Grid) -> Finding:
    ratios = _some(grid.ratios(("cptcast", ALL), ("plumtree", ALL)))
    return Finding(verdict(min(ratios.values()) > 1 + SAME), _times(ratios))


def flat(grid: Grid) -> Finding:
    several = _each(TREES, lambda protocol: _spreads(grid, protocol, ALL))
    single = _each(TREES, lambda protocol: _spreads(grid, protocol, 1))
    shared = [(name, payload) for name in TREES for payload in single[name] if payload in several[name]]
    return Finding(
        verdict(all(several[name][each] <= single[name][each] * (1 + SAME) for name, each in _some(shared))),
        "slowest interval compared with the fastest: "
        + "; ".join(f"{name} {_times(several[name])}, one sender {_times(single[name])}" for name in TREES),
    )


def below_one(grid: Grid) -> Finding:
    values = _each(TREES, lambda protocol: [*redundancies(grid, protocol, ALL).values()])
    cells = [row["phases"]["run"]["redundancy"] for protocol in TREES for row in grid.line(protocol, ALL)]
    return Finding(
        verdict(max(max(each) for each in values.values()) < 1.0),
        "; ".join(f"{name} {_range(each)}" for name, each in values.items()) + f"; highest cell {max(cells):.2f}",
    )


def notable(grid: Grid) -> Finding:
    plumtree, cptcast = (redundancies(grid, protocol, ALL) for protocol in TREES)
    for each in (plumtree, cptcast):
        _some({PAYLOADS[0], PAYLOADS[-1]} <= each.keys())
    only = all((value > SAME) == (payload == PAYLOADS[-1]) for payload, value in plumtree.items())
    return Finding(
        verdict(only and min(cptcast.values()) > SAME),
        "; ".join(
            f"{name} " + ", ".join(f"{value:.3f} ({_size(payload)})" for payload, value in each.items())
            for name, each in zip(TREES, (plumtree, cptcast), strict=True)
        ),
    )


def same_redundancy(grid: Grid) -> Finding:
    def differences(line: tuple[str, int]) -> list[float]:
        each = [grid.by_interval(*line, payload, "redundancy").values() for payload in PAYLOADS]
        return [max(values) - min(values) for values in each if len(values) > 1]

    greatest = _each((*SINGLE, *((protocol, ALL) for protocol in TREES)), differences)
    return Finding(
        verdict(max(map(max, greatest.values())) <= SAME),
        "greatest difference between two intervals: "
        + ", ".join(
            f"{protocol} {'one sender' if senders == 1 else 'all'} {max(each):.3f}"
            for (protocol, senders), each in greatest.items()
        ),
    )


def small(grid: Grid) -> Finding:
    ratio = _at(grid.ratios(("cptcast", ALL), ("prc", 1)), PAYLOADS[0])
    return Finding(verdict(ratio > 1 + SAME), f"CPTCast compared with PRC-broadcast, 1 KB: × {ratio:.2f}")


def network(grid: Grid) -> Finding:
    flood, *trees = (
        1 + _at(redundancies(grid, *line), PAYLOADS[-1]) for line in (("prc", 1), ("cptcast", 1), ("cptcast", ALL))
    )
    one, every = (tree / flood for tree in trees)
    return Finding(
        verdict(max(one, every) < 1 - SAME),
        f"payloads sent at 1 MB, compared with PRC-broadcast: × {one:.2f} with one sender, × {every:.2f} with all "
        "nodes",
    )


# Faults


def _broken(grid: Grid, protocol: str) -> list[Json]:
    return _some([row for row in grid.rows if row["protocol"] == protocol and row["experiment"] in ("crash", "cut")])


def copes(grid: Grid, protocol: str) -> Finding:
    rows = _broken(grid, protocol)
    shares = [row["phases"]["after"]["reliability"] for row in rows]
    coped = sum(value >= COPED for value in shares)
    worst = rows[shares.index(min(shares))]
    fault = "the cut" if worst["experiment"] == "cut" else f"a crash of {worst['share']:.0%}"
    return Finding(
        verdict(coped == len(rows)),
        f"{coped} of {len(rows)} cells deliver at least {COPED:.1%} of later messages; the worst, {share(min(shares))} "
        f"after {fault}",
    )


def recovers(grid: Grid) -> Finding:
    rows = _broken(grid, "cptcast")

    def ratios(name: str) -> list[float]:
        return [row["phases"]["during"][name] / row["phases"]["run"][name] for row in rows]

    sends, means = ratios("control_bytes"), ratios("mean_ms")
    return Finding(
        verdict(min(sends) > 1 + SAME and max(means) <= SLIGHT),
        f"in the 5 s of the fault, control bytes × {_range(sends, '.0f')}, latency × {_range(means, '.1f')}",
    )
