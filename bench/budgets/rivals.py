"""Compare this broker with its rivals, which alternate in one run: CPU time, end-to-end rates, and traffic.

    python -m ingeborg.bench.budgets.rivals [cost | topics | traffic | echo …]

**Centrifuge** (a Go library, built into a cache on the first run) speaks JSON over WebSocket, as this broker does. It
stores nothing and drops no duplicates. Both servers get the load of `cost`: the same payloads at the same rates from
the same light generator. Each publish is in a separate frame, as if it came from one of many publishers. The servers
treat the load differently:

- Centrifuge replies to every publish, and its protocol cannot turn the replies off. This broker replies if the publish
  says `ack`. So this broker's cost is measured twice: without replies, as programs use it, and with a reply to each
  publish, as with Centrifuge. Both costs have to meet the goals.
- Centrifuge puts up to 16 messages for one connection into one frame. This broker puts each message into its own frame.
- Centrifuge's pings are messages of its own protocol, an empty object every 25 seconds. The generator answers them.

**Redis and NATS** (the machine's installed version, and the current release) get the workload `topics` from `loadgen`,
as this broker does. Each system is one server or endpoint, which starts on an empty store for each run. The same
generator reaches all systems through their Python clients. A Python program therefore limits the rates, so the server's
CPU time is reported next to them. A further turn measures this broker with several messages in a frame (`--lines`).

**The traffic workload** against NATS and RabbitMQ is in ``carried``.

**The machine's speed** is measured in the same run with a bare echo (`echo`), because absolute figures depend on it.
Every figure is the median of three turns. The program takes twenty minutes, on an idle machine.

Owns: the goals for this broker against rivals. Must never: configure a rival so that it is slower than with its default
settings, or compare figures from runs that did not alternate.
"""

from __future__ import annotations

import argparse
import contextlib
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import orjson
import psutil
import uvloop

from ingeborg.bench import starting
from ingeborg.bench.compare.matrix import System
from ingeborg.bench.compare.servers import running
from ingeborg.bench.comparison.groups import of_kind
from ingeborg.bench.comparison.topics import number_of_topics
from ingeborg.bench.errors import BenchError
from ingeborg.bench.rivals import go_programs
from ingeborg.protocol.outgoing import OutgoingSocket

from . import carried, cost, echo
from .carried import IN_LINES, LINES, NATS, OURS, RABBITMQ
from .light import TIMEOUT_S, ask, started
from .loads import digest, loadgen
from .model import Check, show

ROUNDS = 3

#: Maximum CPU time of this broker per publish, as a share of Centrifuge's CPU time, by fan-out.
COST_SHARE = {1: 0.8, 5: 0.8, 20: 0.9, 100: 0.9}

#: Numbers of topics, which are below the 50,000 topics that the routing cache holds, and the number of messages of a
#: run, which takes a second or two.
TOPICS, MESSAGES = (1 << 11, 1 << 13, 1 << 15), 100_000
#: Minimum end-to-end rate of this broker, as a multiple of the rival's rate.
RATE_RATIO = {"redis": 1.0, "nats": 1.2, "nats-current": 1.2}
NAMES = {"redis": "Redis", **NATS}
SYSTEMS = (OURS, IN_LINES, *(System(name, name) for name in RATE_RATIO))

Json = dict[str, Any]


# Centrifuge


class CentrifugeLoad(cost.Load):
    """The load of ``cost`` on a server that speaks Centrifuge's JSON protocol. A message in either direction is one or
    more JSON objects, one per line. Only publications count as deliveries."""

    def __init__(self, url: str, process: psutil.Process, fanout: int) -> None:
        super().__init__(url, process, fanout)
        self._publication = b'{"push":{"channel":%b,"pub":{' % orjson.dumps(self._topic)

    async def _introduce(self, publisher: OutgoingSocket) -> None:
        await _granted(publisher, {"id": 1, "connect": {}})

    async def _subscribe(self, subscriber: OutgoingSocket, name: str) -> None:
        await _granted(subscriber, {"id": 1, "connect": {"name": name}})
        await _granted(subscriber, {"id": 2, "subscribe": {"channel": self._topic}})

    def _publish(self, number: int, payload: str, ack: bool) -> bytes:
        return orjson.dumps({"id": 1 + number, "publish": {"channel": self._topic, "data": payload}})

    def _delivered(self, socket: OutgoingSocket, data: bytes) -> None:
        self._deliveries -= data.count(self._publication)
        if not self._deliveries:
            self._look()
        _answer_ping(socket, data)

    def _replied(self, socket: OutgoingSocket, data: bytes) -> None:
        self._replies -= data.count(b'"publish":')
        if b'"error":' in data:
            self._error = bytes(data)
        if self._error or not self._replies:
            self._look()
        _answer_ping(socket, data)


async def _granted(socket: OutgoingSocket, command: Json) -> None:
    """Send a command and wait for its success."""
    reply = await ask(socket, orjson.dumps(command))
    if b'"error":' in reply:
        raise BenchError(f"Centrifuge refused {orjson.dumps(command).decode()}: {reply.decode(errors='replace')}")


def _answer_ping(socket: OutgoingSocket, data: bytes) -> None:
    # A string in JSON contains no newline, so an empty object at the start of a line is a whole message.
    if data.startswith(b"{}") or b"\n{}" in data:
        socket.write(b"{}")


@contextlib.contextmanager
def centrifuge(program: Path, folder: Path) -> Iterator[tuple[str, psutil.Process]]:
    """Start the server. Yield its URL and its process; the server runs until the block ends. Raises ``BenchError``."""
    with starting.started("Centrifuge", [str(program)], folder / "centrifuge.log", patience_s=TIMEOUT_S) as server:
        yield server.url, server.child.process


class Costs(NamedTuple):
    """CPU microseconds per publish. ``ours`` is this broker's cost without replies, and ``acked`` its cost with
    replies. ``theirs`` is the cost of Centrifuge, which always replies."""

    ours: float
    acked: float
    theirs: float


async def measure_costs(program: Path, rounds: int = ROUNDS, seconds: float = cost.LOAD_S) -> dict[int, Costs]:
    """Return medians of the rounds, by fan-out, at the same rates as in ``cost``."""
    with (
        tempfile.TemporaryDirectory() as name,
        started("ingeborg.broker.command.cli", "serve", "--port", "0", "--store", f"lmdb:{name}/store") as our,
        centrifuge(program, Path(name)) as their,
    ):
        found = {}
        for fanout, rate in cost.RATES.items():
            async with cost.Load(*our, fanout) as mine, CentrifugeLoad(*their, fanout) as other:
                turns = [
                    (
                        await mine.cost_us(rate, seconds),
                        await mine.cost_us(rate, seconds, ack=True),
                        await other.cost_us(rate, seconds, ack=True),
                    )
                    for _ in range(rounds)
                ]
            found[fanout] = Costs(*map(median, zip(*turns, strict=True)))
        return found


def cost_checks(found: Mapping[int, Costs]) -> list[Check]:
    """Compare the cost at each fan-out with its goal, with and without this broker's replies."""
    rows = []
    for words, acked in (("without this broker's replies", False), ("with replies from both", True)):
        for fanout, costs in found.items():
            most, mine = COST_SHARE[fanout], costs.acked if acked else costs.ours
            share = mine / costs.theirs
            rows.append(
                Check(
                    f"CPU per publish to {fanout}, {words}",
                    f"at most {most:g} times Centrifuge's",
                    f"{mine:.1f} us, {share:.2f} times {costs.theirs:.1f} us",
                    share <= most,
                )
            )
    return rows


# Redis and NATS


class Rate(NamedTuple):
    """The result of one system. ``per_s`` is messages per second from end to end, and ``server_us`` the server's CPU
    time for each message. ``lost`` counts the lost messages of all turns."""

    per_s: float
    server_us: float | None
    lost: int


def rates(runs: Iterable[Json]) -> dict[tuple[str, int], Rate]:
    """Return medians of the runs of a digest, by system and number of topics."""
    groups: dict[tuple[str, int], list[Json]] = {}
    for run in runs:
        groups.setdefault((run["facts"]["variant"], number_of_topics(run)), []).append(run)
    found = {}
    for key, group in groups.items():
        phases = [phase for run in group if (phase := of_kind(run, "run")) is not None]
        costs = [us for phase in phases if (us := phase["cpu_us_per_delivered"]["server"]) is not None]
        found[key] = Rate(
            median(phase["end_to_end_per_s"] for phase in phases),
            median(costs) if costs else None,
            sum(run["measured"]["lost"] for run in group),
        )
    return found


def measure_rates(
    rounds: int = ROUNDS, numbers: Sequence[int] = TOPICS, messages: int = MESSAGES
) -> dict[tuple[str, int], Rate]:
    """Run ``topics`` on each system, alternately. Raises ``BenchError`` if a system is not installed or has failed."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for turn in range(rounds):
            for number in numbers:
                for system in SYSTEMS:
                    with running(system, folder / "servers", layer=False) as server:
                        loadgen(
                            *("topics", "topics.toml", server.urls, folder / "logs" / f"{system.name}-{number}-{turn}"),
                            *("--system", system.adapter, "--variant", system.system, "--messages", str(messages)),
                            *(("--lines",) if system.lines else ()),
                            *("--first", str(number), "--last", str(number)),
                        )
        return rates(digest(folder))


def rate_checks(found: Mapping[tuple[str, int], Rate]) -> list[Check]:
    """Compare this broker with each rival at each number of topics. Also compare it with its own result for several
    messages in a frame."""
    rows = []
    numbers = sorted({number for _, number in found})
    for rival, least in RATE_RATIO.items():
        for number in numbers:
            ours, theirs = found[OURS.system, number], found[rival, number]
            ratio = ours.per_s / theirs.per_s
            rows.append(
                Check(
                    f"{number:,} topics end to end, against {NAMES[rival]}",
                    f"at least {least:g} times the rival's rate",
                    f"{_words(ours)}, {ratio:.2f} times {_words(theirs)}",
                    ratio >= least and not ours.lost,
                )
            )
    for number in numbers:
        ours, lined = found[OURS.system, number], found[LINES, number]
        rows.append(
            Check(
                f"{number:,} topics end to end, several messages in a frame",
                "reported; nothing lost",
                f"{_words(lined)}, {lined.per_s / ours.per_s:.2f} times {_words(ours)}",
                not lined.lost,
            )
        )
    return rows


def _words(rate: Rate) -> str:
    cpu = "" if rate.server_us is None else f" at {rate.server_us:.1f} us"
    return f"{rate.per_s:,.0f}/s{cpu}" + (f", lost {rate.lost}" if rate.lost else "")


# All parts


def _cost() -> list[Check]:
    return cost_checks(uvloop.run(measure_costs(go_programs.ensure(go_programs.CENTRIFUGE))))


def _topics() -> list[Check]:
    return rate_checks(measure_rates())


def _echo() -> list[Check]:
    return [echo.check(echo.measure())]


#: The parts, in this order.
PARTS: Mapping[str, Callable[[], list[Check]]] = {
    "echo": _echo,
    "cost": _cost,
    "topics": _topics,
    "traffic": carried.measure,
}


def measure() -> list[Check]:
    """Measure all parts. Raises ``BenchError`` before the first part if a rival is missing."""
    for program in go_programs.PROGRAMS:
        go_programs.ensure(program)
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as servers:
        # Start each rival here first. Otherwise, a rival that cannot start would fail only after minutes of measuring
        # other systems.
        for system in (*SYSTEMS[1:], RABBITMQ):
            servers.enter_context(running(system, Path(folder, system.name), layer=False))
    return [check for part in PARTS.values() for check in part()]


def _part(word: str) -> str:
    if word not in PARTS:
        raise argparse.ArgumentTypeError(f"{word!r} is none of {', '.join(PARTS)}")
    return word


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    # Do not use `choices`, because argparse would check even an empty list of words against them.
    parser.add_argument("part", type=_part, nargs="*", metavar="PART", help=f"{', '.join(PARTS)}; default: all")
    for part in parser.parse_args().part or PARTS:
        show(PARTS[part]())


if __name__ == "__main__":
    main()
