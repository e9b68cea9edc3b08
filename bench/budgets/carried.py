"""Measure the traffic that this broker and its rivals carry within the latency limit, and its CPU cost. Systems
alternate.

    python -m ingeborg.bench.budgets.rivals traffic

Each system starts on an empty store. `loadgen` then searches for the system's greatest rate (``traffic.toml``: p99
within 50 ms), as in a comparison. NATS runs in two versions: the machine's installed version and the current release.
NATS does not drop duplicates, so its load contains none. RabbitMQ has the deduplication layer in front of it, as in the
thesis. The layer's CPU time does not count here: only the server's does. A further turn measures this broker with
several messages in a frame (``--lines``). The figures are medians of three turns. The program takes a quarter of an
hour.

Owns: the goals for this broker's traffic against rivals. Must never: compute a figure that the digest already contains.
"""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from ingeborg.bench.compare.matrix import System
from ingeborg.bench.compare.servers import running
from ingeborg.bench.comparison.traffic import main_phase
from ingeborg.bench.errors import BenchError
from ingeborg.bench.rivals import go_programs

from .loads import digest, loadgen
from .model import Check

ROUNDS = 3

OURS = System("ingeborg", "ingeborg", serve=("--dedup-ttl", "10"))
IN_LINES = dataclasses.replace(OURS, name="ingeborg-lines", lines=True)
#: The names that `loadgen` gives to this broker with ``--lines``, and to RabbitMQ behind the deduplication layer.
LINES, LAYERED = f"{OURS.name}, lines", "rabbitmq, with dedup layer"
NATS = {"nats": "the machine's NATS", "nats-current": f"NATS {go_programs.NATS.release()}"}
RABBITMQ = System("rabbitmq", "rabbitmq", dedup=("traffic",))
SYSTEMS = (OURS, IN_LINES, *(System(name, name) for name in NATS), RABBITMQ)

#: Settings of the search. The first rate is close to the slowest system's greatest rate. The other settings are the
#: number of processes, the seconds of a step, and the seconds of a measurement.
SEARCH = ("--processes", "2", "--start-rate", "2000", "--step-s", "2", "--measure-s", "4")

#: Maximum CPU costs of a delivered message. The first is a multiple of NATS's cost. The other two are shares of
#: RabbitMQ's cost: one applies when this broker puts one message into each frame, the other when it puts in several.
NATS_RATIO, RABBITMQ_SHARE, RABBITMQ_SHARE_LINES = 1.3, 1 / 6, 1 / 8

Json = dict[str, Any]


class Carried(NamedTuple):
    """The medians of one system. ``in_all`` is the number of messages in and out per second, and ``server_us`` the
    server's CPU time for each delivered message. ``lost`` counts the lost messages of all turns, and ``unheld`` the
    turns in which no rate met the latency limit."""

    in_all: float
    server_us: float
    lost: int
    unheld: int = 0


def carried(runs: Iterable[Json]) -> dict[str, Carried]:
    """Return the medians of a digest's runs, by system. A run in which no rate met the limit counts as 0 messages per
    second and has no CPU cost. Raises ``BenchError`` if a system has no other run, or if its CPU cost is unknown."""
    groups: dict[str, list[Json]] = {}
    for run in runs:
        groups.setdefault(run["facts"]["variant"], []).append(run)
    found = {}
    for name, group in groups.items():
        rates, costs = [], []
        for run in group:
            phase = main_phase(run)
            if phase is None:
                rates.append(0.0)
                continue
            if (cost_us := phase["cpu_us_per_delivered"]["server"]) is None:
                raise BenchError(f"{run['run']}: its server's CPU is unknown")
            rates.append(phase["reports_per_s"] + phase["delivered_per_s"])
            costs.append(cost_us)
        if not costs:
            raise BenchError(f"{name}: no rate met the limit")
        lost = sum(run["measured"]["lost"] for run in group)
        found[name] = Carried(median(rates), median(costs), lost, len(rates) - len(costs))
    return found


def measure(systems: Sequence[System] = SYSTEMS, words: Sequence[str] = SEARCH, rounds: int = ROUNDS) -> list[Check]:
    """Measure every system. Raises ``BenchError`` if a system is not installed or has failed."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for turn in range(rounds):
            for system in systems:
                with running(system, folder / "servers", layer=bool(system.dedup)) as server:
                    loadgen(
                        *("traffic", "traffic.toml", server.urls, folder / "logs" / f"{system.name}-{turn}"),
                        *("--system", system.adapter, "--variant", system.system, *words),
                        *(("--lines",) if system.lines else ()),
                        *(("--dedup", server.dedup_url) if server.dedup_url is not None else ()),
                    )
        return checks(carried(digest(folder)))


def checks(found: Mapping[str, Carried]) -> list[Check]:
    """Compare this broker with each rival, with one message in each frame and with several."""
    ours, lined, rabbitmq = found[OURS.system], found[LINES], found[LAYERED]
    rows = []
    for name, words in NATS.items():
        theirs = found[name]
        ratio = ours.in_all / theirs.in_all
        rows.append(
            Check(
                f"traffic in and out, against {words}",
                "a greater rate than the rival's",
                f"{_rate(ours)}, {ratio:.2f} times {_rate(theirs)}",
                ratio > 1 and not ours.lost,
            )
        )
    for name, words in NATS.items():
        rows.append(
            _cost_check(
                "traffic, CPU per delivered message", ours, words, found[name], NATS_RATIO, f"{NATS_RATIO:g} times"
            )
        )
    for figure, mine, share in (
        ("traffic, CPU per delivered message", ours, RABBITMQ_SHARE),
        ("traffic, several messages in a frame, CPU per delivered message", lined, RABBITMQ_SHARE_LINES),
    ):
        rows.append(_cost_check(figure, mine, "RabbitMQ", rabbitmq, share, f"1/{1 / share:.0f} of"))
    rows.append(
        Check(
            "traffic in and out, several messages in a frame",
            "reported; nothing lost",
            f"{_rate(lined)}, {lined.in_all / ours.in_all:.2f} times {_rate(ours)}",
            not lined.lost,
        )
    )
    return rows


def _cost_check(figure: str, ours: Carried, words: str, theirs: Carried, most: float, written: str) -> Check:
    ratio = ours.server_us / theirs.server_us
    return Check(
        f"{figure}, compared with {words}",
        f"at most {written} the rival's",
        f"{ours.server_us:.2f} us, {ratio:.2f} times {theirs.server_us:.2f} us",
        ratio <= most,
    )


def _rate(of: Carried) -> str:
    unheld = f" ({of.unheld} turns in which no rate met the limit)" if of.unheld else ""
    return f"{of.in_all:,.0f}/s" + (f" (lost {of.lost})" if of.lost else "") + unheld
