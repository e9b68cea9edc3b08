"""Measure the cost of a second busy endpoint: a hop in full batches, and the traffic of two endpoints compared with
one.

    python -m ingeborg.bench.budgets.hops [hop traffic]

**A hop.** The workload ``topics`` has its publisher at one endpoint and its subscriber at the other. Either endpoint
can be the home of a topic, so each message crosses the link once, and its confirmation comes back. There are always
10,000 messages in flight, so batches are full. The cost of the hop is the CPU time of both endpoints, minus the CPU
time of the same load on one endpoint.

**Traffic.** First, one endpoint gets publishes at a fixed rate. Then two endpoints that share a port get the same rate.
The kernel spreads the connections over the two endpoints. The figure is the CPU time of all endpoints for each publish.
According to the model of docs/scaling.md, two endpoints with a core each carry ``2 * one / two`` times the traffic of
one. This factor is only computed. It cannot be measured here, because the generator uses the same cores.

The systems alternate, and the figures are medians of three turns. The program takes four minutes, on an idle machine.

Owns: the comparison of one endpoint with two. Must never: compute a figure that the digest already contains.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from ingeborg.bench.compare.matrix import System
from ingeborg.bench.compare.servers import running
from ingeborg.bench.comparison.groups import of_kind
from ingeborg.bench.errors import BenchError

from . import echo
from .loads import digest, loadgen
from .model import Check, measured, show

ROUNDS = 3

#: Number of topics, which all fit into every cache, and number of messages of a run. A run takes a few seconds.
TOPICS, MESSAGES = 2_048, 200_000
#: Maximum cost of a hop, in CPU microseconds of both endpoints together.
HOP_US = 15.0

#: Publishes per second, and seconds of the load. Each system can carry this rate on two cores that it shares with the
#: generator.
RATE_PER_S, RATE_S = 25_000, 8
#: The gain that two endpoints with a core each should have over one.
GAIN = 1.3

_ONE = ("--dedup-ttl", "10")
_TWO = (*_ONE, "--endpoints", "2")

#: The systems with one endpoint and with two. For a hop the generator chooses the endpoint of each client, so each
#: endpoint has its own port.
SYSTEMS = {1: System("one", "ingeborg", serve=_ONE), 2: System("two", "ingeborg", serve=_TWO)}
SHARED = {1: SYSTEMS[1], 2: System("two", "ingeborg", serve=(*_TWO, "--share-port"))}

Json = dict[str, Any]


class Cost(NamedTuple):
    """The result of one system. ``server_us`` is the CPU time of all endpoints for each publish. ``lost`` counts the
    lost messages of all turns."""

    server_us: float
    lost: int


def costs(runs: Sequence[Json], turns: int) -> dict[int, Cost]:
    """Return the costs by number of endpoints. The digest lists the runs turn by turn, in the order of ``SYSTEMS``.
    Raises ``BenchError`` if the CPU time of a run's servers is unknown."""
    found = {}
    for index, endpoints in enumerate(SYSTEMS):
        used, lost = [], 0
        for turn in range(turns):
            run = runs[turn * len(SYSTEMS) + index]
            phase = of_kind(run, "run")
            if phase is None or (delivered_us := phase["cpu_us_per_delivered"]["server"]) is None:
                raise BenchError(f"{run['run']}: its servers' CPU is unknown")
            used.append(delivered_us * phase["delivered_per_s"] / phase["reports_per_s"])
            lost += run["measured"]["lost"]
        found[endpoints] = Cost(median(used), lost)
    return found


def measure(
    workload: str, file: str, words: Sequence[str], rounds: int, systems: Mapping[int, System]
) -> dict[int, Cost]:
    """Run the workload on the systems alternately. Raises ``BenchError``."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for turn in range(rounds):
            for endpoints, system in systems.items():
                with running(system, folder / "servers", layer=False) as server:
                    loadgen(workload, file, server.urls, folder / "logs" / f"{turn}-{endpoints}", *words)
        return costs(digest(folder), rounds)


def hop_check(found: Mapping[int, Cost], speed: float) -> Check:
    """Compare the cost of a hop with its goal. ``speed`` is the speed of this machine (``echo``), which scales the
    goal."""
    one, two = found[1], found[2]
    hop_us, most_us = two.server_us - one.server_us, HOP_US / speed
    return Check(
        "CPU of a hop in full batches, both endpoints",
        f"at most {most_us:.1f} us: {HOP_US:g} / {speed:.2f}",
        f"{hop_us:.1f} us: {two.server_us:.1f} us with the hop, {one.server_us:.1f} without{_lost(found)}",
        hop_us <= most_us and not one.lost + two.lost,
    )


def traffic_check(found: Mapping[int, Cost]) -> Check:
    """Compare the load that one endpoint carries with the load that two endpoints with a core each carry."""
    one, two = found[1], found[2]
    gain = 2 * one.server_us / two.server_us
    return Check(
        "traffic, two endpoints with a core each on a shared port, by the model",
        f"at least {GAIN:g} times one",
        f"{gain:.2f} times one: {two.server_us:.1f} us per publish at {RATE_PER_S:,}/s, {one.server_us:.1f} on "
        f"one{_lost(found)}",
        gain >= GAIN and not one.lost + two.lost,
    )


def _lost(found: Mapping[int, Cost]) -> str:
    lost = sum(cost.lost for cost in found.values())
    return f"; {lost} lost" if lost else ""


def _hop(rounds: int) -> list[Check]:
    speed = echo.factor()
    words = ("--first", str(TOPICS), "--last", str(TOPICS), "--messages", str(MESSAGES))
    return [hop_check(measure("topics", "topics.toml", words, rounds, SYSTEMS), speed)]


def _traffic(rounds: int) -> list[Check]:
    words = ("--processes", "2", "--rate", str(RATE_PER_S), "--duration-s", str(RATE_S))
    return [traffic_check(measure("traffic", "traffic.toml", words, rounds, SHARED))]


#: The parts, in this order.
PARTS: Mapping[str, Callable[[int], list[Check]]] = {"hop": _hop, "traffic": _traffic}


def report(rounds: int = ROUNDS) -> list[Check]:
    """Measure the hop and the traffic. Raises ``BenchError``."""
    return [check for part in PARTS.values() for check in part(rounds)]


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "part", choices=[*PARTS, []], nargs="*", metavar="PART", help=f"{', '.join(PARTS)}; default: all"
    )
    print(measured(), flush=True)
    for part in parser.parse_args().part or PARTS:
        show(PARTS[part](ROUNDS))


if __name__ == "__main__":
    main()
