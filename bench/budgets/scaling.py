"""Measure the same load on 1, 2, 4 and 16 endpoints, and project its costs to 10, 100 and 1,000 endpoints.

    python -m ingeborg.bench.budgets.scaling [--rounds 4] [--burst 4]

First, publishes arrive one by one, which is the most expensive way. Then they arrive in bursts, as at a busy endpoint.
The machine is mostly idle at both rates. So the CPU time per publish shows the cost, without queueing. Every endpoint
gets the same number of publishes of each topic. So with E endpoints, exactly one in E publishes arrives at the home of
its topic. (This share has to be computed, because no metric counts the messages that go from another endpoint to the
home.) Subscribers are spread over the endpoints at random. The program counts forwards and deliveries, and measures the
CPU time of all endpoints, minus the time that they use while idle. It fits a model with the cost of each step to these
measurements. It takes two minutes on an idle machine.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import tempfile
import time
from collections.abc import AsyncIterator, Iterable, Sequence
from itertools import count
from pathlib import Path
from statistics import fmean
from typing import NamedTuple, Self

import orjson
import uvloop

from ingeborg.bench.compare.matrix import System
from ingeborg.bench.compare.servers import running
from ingeborg.bench.errors import BenchError
from ingeborg.protocol.outgoing import OutgoingSocket
from ingeborg.protocol.pages import PageError, fetch, samples

from .light import TIMEOUT_S, ask, dial
from .model import Check, measured, show

#: The last number of endpoints is too great for two cores. Its measurements show how well the model predicts points to
#: which it is not fitted, and which costs grow with the number of peers.
ENDPOINTS = (1, 2, 4, 16)
#: The model is fitted to these numbers of endpoints, and has to predict the measurements of the last number.
FITTED = ENDPOINTS[:-1]
#: For each number of subscribers of a topic, the number of publishes per second to all endpoints together.
RATES = {1: 400, 5: 400, 20: 300}
#: Settings of bursts: the possible numbers of publishes that each endpoint gets together, the default number, and the
#: rate as a multiple of the rate without bursts.
BURSTS, BURST, BURST_RATE = (2, 4, 8, 16, 32), 4, 2
TOPICS = 32
#: Number of publishes of one load. It is a multiple of the number of topics times each number of endpoints.
PUBLISHES = max(ENDPOINTS) * TOPICS
#: For this number of topics of each fan-out, the forwards are counted after each publish.
SINGLES = 12
#: Number of subscriber connections at each endpoint. It is so large that one endpoint can have all subscribers of a
#: topic. Few connections get two messages of a burst.
CLIENTS = 48
LISTENS, LISTENS_PER_S = 160, 200
IDLE_S = 3.0
SEED = 8
#: The ways in which publishes arrive: the field of ``Found``, and its name in texts.
KINDS = {"alone": "one by one", "bursts": "in bursts"}
FIT_WITHIN = 0.15
PROJECTED = (10, 100, 1_000)
#: Fan-outs of the workload, and of the radio world (docs/workloads/radio.md).
PROJECTED_FANOUTS = (5, 100)
#: Heartbeats of an endpoint per second (see the lease in ARCHITECTURE.md), and the number of slots that have homes.
BEATS_PER_S, SLOTS = 2, 4096


# -- the model


def holders_expected(endpoints: int, fanout: int) -> float:
    """Return the expected number of endpoints with at least one of ``fanout`` subscribers, if each subscriber is at a
    random endpoint."""
    return endpoints * (1 - (1 - 1 / endpoints) ** fanout)


def forwards_expected(endpoints: int, fanout: int) -> float:
    """Return the expected number of endpoints with subscribers, not counting the topic's home, which is a random
    endpoint."""
    return holders_expected(endpoints, fanout) * (endpoints - 1) / endpoints


def away(endpoints: int) -> float:
    """Return the share of publishes that arrive at an endpoint which is not the home of their topic."""
    return (endpoints - 1) / endpoints


class Costs(NamedTuple):
    """CPU microseconds of each step. ``publish`` is the cost of receiving and routing a message at its home. ``hop`` is
    the cost of sending the message from its origin to the home, and of the answer, at both endpoints. ``forward`` is
    the cost of sending the message from the home to another endpoint, and of the answer. ``delivery`` is the cost for
    each subscriber."""

    publish: float
    hop: float
    forward: float
    delivery: float

    def of(self, endpoints: int, fanout: int, forwards: float) -> float:
        """Return the cost of one publish, at all endpoints together."""
        return sum(cost * times for cost, times in zip(self, terms(endpoints, fanout, forwards), strict=True))


def terms(endpoints: int, fanout: int, forwards: float) -> tuple[float, ...]:
    """Return how often one publish incurs each of ``Costs``."""
    return (1.0, away(endpoints), forwards, fanout)


class Point(NamedTuple):
    """The measurements of one load. ``cpu_us``, ``holders`` and ``forwards`` are per publish, for all endpoints
    together."""

    endpoints: int
    fanout: int
    cpu_us: float
    holders: float
    forwards: float


def least_squares(rows: Sequence[Sequence[float]], values: Sequence[float]) -> list[float]:
    """Return the coefficients with the least squares of relative errors. Raises ``BenchError`` if the rows do not
    determine the coefficients."""
    # An error of 10 % counts the same for a cheap publish and for an expensive publish.
    scaled = [[cell / value for cell in row] for row, value in zip(rows, values, strict=True)]
    size = len(scaled[0])
    # Solve the normal equations by elimination. The last column has the right sides.
    system = [
        [*(sum(row[i] * row[j] for row in scaled) for j in range(size)), sum(row[i] for row in scaled)]
        for i in range(size)
    ]
    for i in range(size):
        pivot = max(range(i, size), key=lambda k: abs(system[k][i]))
        system[i], system[pivot] = system[pivot], system[i]
        if abs(system[i][i]) < 1e-15:
            raise BenchError("too few different loads for the model")
        for k in range(size):
            if k != i:
                factor = system[k][i] / system[i][i]
                system[k] = [left - factor * right for left, right in zip(system[k], system[i], strict=True)]
    return [system[i][size] / system[i][i] for i in range(size)]


def fit(points: Sequence[Point]) -> Costs:
    """Return the costs that explain the points best."""
    rows = [terms(point.endpoints, point.fanout, point.forwards) for point in points]
    return Costs(*least_squares(rows, [point.cpu_us for point in points]))


def worst_error(points: Sequence[Point], costs: Costs) -> float:
    """Return the greatest relative error of the costs at any point."""
    return max(abs(costs.of(p.endpoints, p.fanout, p.forwards) / p.cpu_us - 1) for p in points)


class Line(NamedTuple):
    """A value that grows with the peers of an endpoint. ``alone`` is the value without peers, and ``per_peer`` is added
    for each peer."""

    alone: float
    per_peer: float

    def at(self, endpoints: int) -> float:
        """Return the value for this total number of endpoints."""
        return self.alone + self.per_peer * (endpoints - 1)


def line(values: dict[int, float]) -> Line:
    """Fit a line through (endpoints, value)."""
    return Line(*least_squares([(1.0, endpoints - 1.0) for endpoints in values], list(values.values())))


class Projection(NamedTuple):
    """A prediction. ``cpu_us`` and ``hops`` are per publish. ``per_core`` is the number of publishes per second that
    one endpoint handles on a core of its own. ``total`` is the number for all endpoints together."""

    cpu_us: float
    hops: float
    per_core: float
    total: float


def projection(costs: Costs, idle: Line, endpoints: int, fanout: int) -> Projection:
    """Predict the costs when all endpoints are fully busy, with one core each. ``idle`` is the share of a core that an
    endpoint uses while it handles no messages."""
    forwards = forwards_expected(endpoints, fanout)
    cpu_us = costs.of(endpoints, fanout, forwards)
    total = endpoints * max(1 - idle.at(endpoints), 0.0) * 1e6 / cpu_us
    return Projection(cpu_us, away(endpoints) + forwards, total / endpoints, total)


def fullest(endpoints: int, draws: int = 20) -> float:
    """Return the slots of the endpoint with the most slots, divided by the mean. Rendezvous hashing assigns slots at
    random."""
    drawn = random.Random(SEED)
    most = []
    for _ in range(draws):
        slots = [0] * endpoints
        for _ in range(SLOTS):
            slots[drawn.randrange(endpoints)] += 1
        most.append(max(slots))
    return fmean(most) * endpoints / SLOTS


# -- the measurement


class Metrics(NamedTuple):
    """Sums over all endpoints since their start."""

    cpu_s: float
    received: float
    forwarded: float
    delivered: float
    refused: float  # requests that reached an endpoint that was not the home
    copied: float  # bytes

    @classmethod
    async def read(cls, urls: Sequence[str]) -> Metrics:
        """Read the metrics of these endpoints. An endpoint measures its own CPU time more precisely than the system
        reports it to other processes."""
        names = (
            *("process_cpu_seconds", "ingeborg_publishes_received", "ingeborg_messages_forwarded"),
            *("ingeborg_messages_delivered", "ingeborg_not_home", "ingeborg_replicated_bytes"),
        )
        sums = dict.fromkeys((f"{name}_total" for name in names), 0.0)
        try:
            pages = await asyncio.gather(*(fetch(url, "/metrics") for url in urls))
        except PageError as error:
            raise BenchError(str(error)) from None
        for page in pages:
            for sample in samples(page.text):
                if sample.name in sums:
                    sums[sample.name] += sample.value
        return cls(*sums.values())

    def since(self, before: Metrics) -> Metrics:
        """Return the growth since ``before``."""
        return Metrics(*(now - then for now, then in zip(self, before, strict=True)))


class Found(NamedTuple):
    """The results for one number of endpoints. ``alone`` and ``bursts`` are named as in ``KINDS``. ``idle`` is the
    share of a core that an idle endpoint uses. ``listen_us`` is the CPU time of all endpoints for one `listen`.
    ``singles`` has a pair for each single publish: the number of its forwards, and the number of endpoints with a
    subscriber. For ``refused``, see ``Metrics``."""

    alone: list[Point]
    bursts: list[Point]
    idle: float
    listen_us: float
    singles: list[tuple[int, int]]
    refused: int


def _topic(fanout: int, number: int) -> str:
    return f"scaling {fanout} {number}"


async def _paced(numbers: Sequence[int], rate: float) -> AsyncIterator[int]:
    """Yield each number when it is due, with a pause after each number, so that no turn of a server's loop handles two
    numbers."""
    start_s = time.monotonic()
    for position, number in enumerate(numbers):
        await asyncio.sleep(max(start_s + position / rate - time.monotonic(), 0.001))
        yield number


class Cluster:
    """Endpoints with their subscribers, a publisher at each endpoint, and a count of deliveries. ``fanouts`` are the
    fan-outs of its topics."""

    def __init__(self, urls: Sequence[str], fanouts: Iterable[int] = tuple(RATES)) -> None:
        self._urls = urls
        self._fanouts = tuple(fanouts)
        self._random = random.Random(SEED)
        self._sockets: list[OutgoingSocket] = []
        self._publishers: list[OutgoingSocket] = []
        self._received = self._expected = 0
        self._all_came = asyncio.Event()
        self._numbers = count()
        self._idle_s = 0.0  # CPU seconds that all idle endpoints together use per second
        #: Number of endpoints with a subscriber, by topic.
        self._holders: dict[str, int] = {}

    async def __aenter__(self) -> Self:
        wanted: dict[tuple[int, int], list[str]] = {}  # (endpoint, client) -> topics
        for fanout in self._fanouts:
            for number in range(TOPICS):
                places = [self._random.randrange(len(self._urls)) for _ in range(fanout)]
                topic = _topic(fanout, number)
                self._holders[topic] = len(set(places))
                for place in set(places):
                    for client in self._random.sample(range(CLIENTS), places.count(place)):
                        wanted.setdefault((place, client), []).append(topic)
        await asyncio.gather(*(self._endpoint(place, wanted) for place in range(len(self._urls))))
        self._publishers = [await self._dial(url) for url in self._urls]
        return self

    async def __aexit__(self, *_: object) -> None:
        for socket in self._sockets:
            socket.transport.close()
        await asyncio.sleep(0.1)

    async def _dial(self, url: str) -> OutgoingSocket:
        socket = await dial(url, self._came)
        self._sockets.append(socket)
        return socket

    async def _endpoint(self, place: int, wanted: dict[tuple[int, int], list[str]]) -> None:
        for client in range(CLIENTS):
            socket = await self._dial(self._urls[place])
            name = f"c{place}-{client}"
            await self._do(socket, command="listen", client_id=name)
            if topics := wanted.get((place, client)):
                await self._do(socket, command="subscribe", client_id=name, topic=topics)

    async def _do(self, socket: OutgoingSocket, **command: object) -> None:
        answer = await ask(socket, orjson.dumps(command))
        if b'"success"' not in answer:
            raise BenchError(f"{command['command']}: {answer.decode()}")

    def _came(self, _: OutgoingSocket, data: bytes) -> None:
        self._received += 1
        if self._received >= self._expected:
            self._all_came.set()

    def _frame(self, fanout: int, number: int) -> bytes:
        payload = f"{next(self._numbers):09} ".ljust(120, "x")
        command = {"command": "publish", "client_id": "p", "topic": _topic(fanout, number), "payload": payload}
        return orjson.dumps(command)

    async def _answers(self, wanted: int) -> None:
        try:
            async with asyncio.timeout(TIMEOUT_S):
                while self._received < wanted:
                    await self._all_came.wait()
        except TimeoutError:
            raise BenchError(f"{self._received} of {wanted} messages arrived") from None

    def _expect(self, wanted: int) -> None:
        self._received, self._expected = 0, wanted
        self._all_came.clear()

    async def idle(self) -> float:
        """Return the share of a core that each endpoint uses while it handles no messages."""
        before, start_s = await Metrics.read(self._urls), time.monotonic()
        await asyncio.sleep(IDLE_S)
        used = (await Metrics.read(self._urls)).since(before)
        self._idle_s = used.cpu_s / (time.monotonic() - start_s)
        return self._idle_s / len(self._urls)

    async def singles(self, fanout: int) -> list[tuple[int, int]]:
        """Publish to each topic once. For some of the publishes, return how often each was forwarded, and the maximum
        number of forwards that is allowed."""
        found = []
        before = await Metrics.read(self._urls)
        for number in range(TOPICS):
            self._expect(fanout)
            self._publishers[number % len(self._urls)].write(self._frame(fanout, number))
            await self._answers(fanout)
            if number < SINGLES:
                after = await Metrics.read(self._urls)
                found.append((round(after.forwarded - before.forwarded), self._holders[_topic(fanout, number)]))
                before = after
        return found

    async def _due(self, publishes: int, rate: float, burst: int) -> AsyncIterator[tuple[OutgoingSocket, range]]:
        """Whenever publishes are due (``rate`` publishes per second), yield a sender and the numbers of its publishes.
        ``burst``: see ``load``."""
        endpoints = len(self._urls)
        step = endpoints * burst if burst > 1 else 1
        async for first in _paced(range(0, publishes, step), rate / step):
            for place in range(min(step, endpoints)):
                yield self._publishers[(first + place) % endpoints], range(first + place, first + step, endpoints)

    async def load(self, fanout: int, burst: int) -> tuple[Point, int]:
        """Run one load. Return its costs, and the number of requests that reached an endpoint that was not the home.

        ``burst`` is the number of publishes that every endpoint gets together. If ``burst`` is 1, publishes come one at
        a time.
        """
        endpoints = len(self._urls)
        rate = RATES[fanout] * (BURST_RATE if burst > 1 else 1)
        frames = [self._frame(fanout, number // endpoints % TOPICS) for number in range(PUBLISHES)]
        self._expect(PUBLISHES * fanout)
        before, start_s = await Metrics.read(self._urls), time.monotonic()
        async for publisher, numbers in self._due(PUBLISHES, rate, burst):
            publisher.write(*(frames[number] for number in numbers))
        await self._answers(PUBLISHES * fanout)
        used = (await Metrics.read(self._urls)).since(before)
        cpu_s = used.cpu_s - self._idle_s * (time.monotonic() - start_s)
        if (used.received, used.delivered) != (PUBLISHES, PUBLISHES * fanout):
            raise BenchError(f"received {used.received:g} and delivered {used.delivered:g}: other numbers were due")
        holders = fmean(self._holders[_topic(fanout, number)] for number in range(TOPICS))
        point = Point(endpoints, fanout, cpu_s / PUBLISHES * 1e6, holders, used.forwarded / PUBLISHES)
        return point, round(used.refused)

    async def listens(self) -> float:
        """Return the CPU time of all endpoints for one ``listen``, in microseconds."""
        self._expect(LISTENS)
        before, start_s = await Metrics.read(self._urls), time.monotonic()
        async for number in _paced(range(LISTENS), LISTENS_PER_S):
            command = {"command": "listen", "client_id": f"l{number}"}
            self._publishers[number % len(self._urls)].write(orjson.dumps(command))
        await self._answers(LISTENS)
        used = (await Metrics.read(self._urls)).since(before)
        return (used.cpu_s - self._idle_s * (time.monotonic() - start_s)) / LISTENS * 1e6


async def measure(endpoints: int, rounds: int, burst: int = BURST) -> Found:
    """Start this number of endpoints, and measure them."""
    system = System(name="scaling", system="ingeborg", serve=("--endpoints", str(endpoints)))
    with tempfile.TemporaryDirectory() as folder, running(system, Path(folder), layer=False) as servers:
        async with Cluster(servers.urls) as cluster:
            singles = [single for fanout in RATES for single in await cluster.singles(fanout)]
            idle = await cluster.idle()
            kinds = [(fanout, at_once) for at_once in (1, burst) for fanout in RATES]
            loads = [[await cluster.load(*kind) for kind in kinds] for _ in range(rounds)]
            listen_us = await cluster.listens()
    # Use the minimum, because other work on the machine can only add to it.
    points = [same[0][0]._replace(cpu_us=min(point.cpu_us for point, _ in same)) for same in zip(*loads, strict=True)]
    refused = sum(refusals for load in loads for _, refusals in load)
    return Found(points[: len(RATES)], points[len(RATES) :], idle, listen_us, singles, refused)


# -- the report


def checks(found: dict[int, Found], costs: dict[str, Costs]) -> list[Check]:
    """Check the number of forwards against its limit, and check how well the model explains the measurements. The keys
    of ``costs`` are those of ``KINDS``."""
    points = [point for one in found.values() for point in (*one.alone, *one.bursts)]
    singles = [single for one in found.values() for single in one.singles]
    over = sum(forwards > holders for forwards, holders in singles)
    over += sum(point.forwards > point.holders for point in points)
    refused = sum(one.refused for one in found.values())
    rows = [
        Check(
            "forwards of a publish beyond one per endpoint with a subscriber",
            "none",
            f"{over} of {len(singles)} single publishes and {len(points)} loads",
            over == 0,
        ),
        Check("requests for a home that came to another endpoint", "none", f"{refused:,}", refused == 0),
    ]
    for kind, words in KINDS.items():
        error = worst_error(fitted(found, kind), costs[kind])
        figure = f"error of the model against the measured CPU, 1 to {FITTED[-1]} endpoints, {words}"
        rows.append(Check(figure, f"at most {FIT_WITHIN:.0%}", f"{error:.1%}", error <= FIT_WITHIN))
    return rows


def fitted(found: dict[int, Found], kind: str) -> list[Point]:
    """Return the points that the model is fitted to."""
    return [point for endpoints in FITTED for point in getattr(found[endpoints], kind)]


def ratios(found: dict[int, Found], kind: str) -> dict[int, float]:
    """Return the CPU time per publish at 4 endpoints relative to the time at 1 endpoint, by number of subscribers."""
    pairs = zip(getattr(found[1], kind), getattr(found[4], kind), strict=True)
    return {one.fanout: four.cpu_us / one.cpu_us for one, four in pairs}


def _show_measured(found: dict[int, Found], costs: dict[str, Costs]) -> None:
    print(
        "endpoints  subscribers  holders (expected)  forwards (expected)  CPU us one by one (model)  in bursts (model)"
    )
    for one in found.values():
        for alone, burst in zip(one.alone, one.bursts, strict=True):
            endpoints, fanout, _, holders, forwards = alone
            models = [costs[kind].of(endpoints, fanout, forwards) for kind in KINDS]
            print(
                f"{endpoints:9}  {fanout:11}  {holders:7.2f} ({holders_expected(endpoints, fanout):8.2f})"
                f"  {forwards:8.2f} ({forwards_expected(endpoints, fanout):8.2f})"
                f"  {alone.cpu_us:16.0f} ({models[0]:6.0f})  {burst.cpu_us:8.0f} ({models[1]:6.0f})"
            )
    for kind, words in KINDS.items():
        print(f"us, {words}: " + ", ".join(f"{name} {cost:.2f}" for name, cost in costs[kind]._asdict().items()))


def _show_growth(found: dict[int, Found], costs: dict[str, Costs], idle: Line, listen: Line) -> None:
    for name, values, fitted, unit in (
        ("idle", [one.idle * 100 for one in found.values()], idle, "percent of a core for each endpoint"),
        ("listen", [one.listen_us for one in found.values()], listen, "us of all endpoints together for each call"),
    ):
        scale = 100 if name == "idle" else 1
        seen = ", ".join(f"{value:.2f}" for value in values)
        print(f"{name}: {seen} {unit}; {fitted.alone * scale:.3f} + {fitted.per_peer * scale:.4f} per peer")
    for kind, words in KINDS.items():
        seen = ", ".join(f"{ratio:.2f} ({fanout})" for fanout, ratio in ratios(found, kind).items())
        print(f"CPU per publish at 4 endpoints, relative to 1 (subscribers), {words}: {seen}")
        parts = [
            costs[kind].of(p.endpoints, p.fanout, p.forwards) / p.cpu_us for p in getattr(found[ENDPOINTS[-1]], kind)
        ]
        seen = ", ".join(f"{part:.0%} ({fanout})" for part, fanout in zip(parts, RATES, strict=True))
        print(f"share of the CPU at {ENDPOINTS[-1]} endpoints that the model predicts (subscribers), {words}: {seen}")


def _show_projection(costs: dict[str, Costs], idle: Line, listen: Line) -> None:
    kinds = (
        ("one by one", costs["alone"]),
        ("in bursts", costs["bursts"]),
    )
    for words, cost in kinds:
        print(
            f"{words}:\nendpoints  subscribers  hops  CPU us per publish  publishes/s per core     in all  deliveries/s"
        )
        for fanout in PROJECTED_FANOUTS:
            for endpoints in PROJECTED:
                cpu_us, hops, per_core, total = projection(cost, idle, endpoints, fanout)
                print(
                    f"{endpoints:9,}  {fanout:11}  {hops:4.1f}  {cpu_us:18,.0f}  {per_core:20,.0f}"
                    f"  {total:9,.0f}  {total * fanout:12,.0f}"
                )
    print("for each endpoint:")
    print("endpoints  links  pings/s, both ways  registry reads/s, all  idle core  us per listen  fullest home")
    for endpoints in PROJECTED:
        peers_each = endpoints - 1
        print(
            f"{endpoints:9,}  {peers_each:5,}  {BEATS_PER_S * peers_each * 2:18,}  {BEATS_PER_S * endpoints**2:21,}"
            f"  {idle.at(endpoints):9.1%}  {listen.at(endpoints):13,.0f}  {fullest(endpoints):12.2f}"
        )


def report(rounds: int = 4, burst: int = BURST) -> list[Check]:
    """Measure, print the tables, and return the checks. Raises ``BenchError``."""
    times = {endpoints: rounds if endpoints in FITTED else 1 for endpoints in ENDPOINTS}
    found = {endpoints: uvloop.run(measure(endpoints, times[endpoints], burst)) for endpoints in ENDPOINTS}
    costs = {kind: fit(fitted(found, kind)) for kind in KINDS}
    idle = line({endpoints: one.idle for endpoints, one in found.items()})
    listen = line({endpoints: one.listen_us for endpoints, one in found.items()})
    _show_measured(found, costs)
    _show_growth(found, costs, idle, listen)
    _show_projection(costs, idle, listen)
    return checks(found, costs)


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument(
        "--burst", type=int, choices=BURSTS, default=BURST, help="number of publishes that each endpoint gets together"
    )
    options = parser.parse_args()
    print(measured(), flush=True)
    try:
        show(report(options.rounds, options.burst))
    except BenchError as error:
        parser.exit(1, f"{error}\n")


if __name__ == "__main__":
    main()
