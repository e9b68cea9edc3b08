"""Compare an endpoint's CPU time per message with that of a bare `websockets` server that parses and broadcasts.

    python -m ingeborg.bench.budgets.cost [--rounds 3]

The two servers take turns. Both get the same frames at the same rate. A frame is a publish of about 200 bytes to one
topic with 1, 5, 20 or 100 subscribers. For each server, the program fits a line to the CPU time per publish as a
function of the number of subscribers. The line gives the cost of a received publish, and the extra cost of each
delivered message. The program takes two minutes, on an idle machine.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

import orjson
import psutil
import uvloop

from ingeborg.bench.errors import BenchError
from ingeborg.protocol.outgoing import OutgoingSocket

from .light import TIMEOUT_S, OnMessage, ask, cpu_s, dial, started
from .model import Check, measured, show

#: Publishes per second, by the number of subscribers of the topic. Either server needs at most a third of a core for
#: this load.
RATES = {1: 4000, 5: 1600, 20: 500, 100: 100}
LOAD_S = 3.0
#: Seconds between two writes. All publishes that are due are sent in one write, because publishes of many publishers
#: also arrive together.
TICK_S = 0.005
#: Goals as multiples of the bare server's costs. The goals are based on measured costs. Unlike the bare server, a
#: broker also validates, hashes, checks for duplicates and routes.
PUBLISH_RATIO, DELIVERY_RATIO = 1.0, 0.8


class Line(NamedTuple):
    """CPU microseconds of a publish without deliveries, and of each delivery."""

    publish_us: float
    delivery_us: float


def fit(costs: dict[int, float]) -> Line:
    """Fit a line through (fan-out, microseconds per publish) with the least squares of relative errors."""
    # Weights are 1 / cost^2, so that an error of 10 % counts the same at 1 subscriber and at 100.
    weights = {fanout: 1 / cost**2 for fanout, cost in costs.items()}
    total = sum(weights.values())
    mean_f = sum(weights[f] * f for f in costs) / total
    mean_c = sum(weights[f] * costs[f] for f in costs) / total
    slope = sum(weights[f] * (f - mean_f) * (costs[f] - mean_c) for f in costs) / sum(
        weights[f] * (f - mean_f) ** 2 for f in costs
    )
    return Line(mean_c - slope * mean_f, slope)


class Load:
    """A topic with its subscribers and a publisher, on one server that speaks this broker's protocol. Subclasses speak
    other protocols."""

    def __init__(self, url: str, process: psutil.Process, fanout: int) -> None:
        self._url, self._process, self._fanout = url, process, fanout
        self._topic = f"topic {fanout}"
        self._sockets: list[OutgoingSocket] = []
        #: Deliveries and replies that are still missing. Both counts decrease to 0.
        self._deliveries = self._replies = 0
        self._all_came = asyncio.Event()
        self._error = b""
        self._number = 0

    async def __aenter__(self) -> Load:
        for number in range(self._fanout):
            await self._subscribe(await self._dialled(self._delivered), f"s{self._fanout}-{number}")
        self._publisher = await self._dialled(self._replied)
        await self._introduce(self._publisher)
        return self

    async def __aexit__(self, *_: object) -> None:
        for socket in self._sockets:
            socket.transport.close()

    async def _dialled(self, on_message: OnMessage) -> OutgoingSocket:
        socket = await dial(self._url, on_message)
        self._sockets.append(socket)
        return socket

    # The protocol's messages

    async def _subscribe(self, subscriber: OutgoingSocket, name: str) -> None:
        await ask(subscriber, orjson.dumps({"command": "listen", "client_id": name}))
        await ask(subscriber, orjson.dumps({"command": "subscribe", "client_id": name, "topic": self._topic}))

    async def _introduce(self, publisher: OutgoingSocket) -> None:
        """Send what the protocol requires before the first publish."""

    def _publish(self, number: int, payload: str, ack: bool) -> bytes:
        """Return the message for a publish. With ``ack``, the server replies to the message."""
        command = {"command": "publish", "client_id": "p", "topic": self._topic, "payload": payload}
        return orjson.dumps(command | {"ack": True} if ack else command)

    def _delivered(self, _: OutgoingSocket, data: bytes) -> None:
        """Handle a message for a subscriber."""
        self._deliveries -= 1
        if not self._deliveries:
            self._look()

    def _replied(self, _: OutgoingSocket, data: bytes) -> None:
        """Handle a message for the publisher."""
        self._replies -= 1
        if b'"error"' in data:
            self._error = bytes(data)
        if self._error or not self._replies:
            self._look()

    def _look(self) -> None:
        if self._error or (not self._deliveries and not self._replies):
            self._all_came.set()

    def _frame(self, ack: bool) -> bytes:
        self._number += 1
        return self._publish(self._number, f"{self._number:09} ".ljust(120, "x"), ack)

    async def cost_us(self, rate: int, seconds: float = LOAD_S, *, ack: bool = False) -> float:
        """Return the server's CPU time per publish, in microseconds. The load lasts ``seconds``. With ``ack``, the
        server replies to each publish. Raises ``BenchError`` if a delivery or a reply is missing."""
        count = int(rate * seconds)
        frames = [self._frame(ack) for _ in range(count)]
        self._deliveries, self._replies = count * self._fanout, count * ack
        self._all_came.clear()
        before_s = cpu_s(self._process)
        start_s = time.monotonic()
        sent = 0
        while sent < count:
            due = min(int((time.monotonic() - start_s) * rate) + 1, count)
            if due > sent:
                self._publisher.write(*frames[sent:due])
                sent = due
            await asyncio.sleep(TICK_S)
        try:
            async with asyncio.timeout(TIMEOUT_S):
                await self._all_came.wait()
        except TimeoutError:
            raise BenchError(
                f"{self._url}: {self._deliveries:,} of {count * self._fanout:,} deliveries and {self._replies:,} of "
                f"{count * ack:,} replies did not come within {TIMEOUT_S:g} s"
            ) from None
        if self._error:
            raise BenchError(f"{self._url} refused a publish: {self._error.decode(errors='replace')}")
        return (cpu_s(self._process) - before_s) / count * 1e6


async def measure(rounds: int) -> tuple[dict[int, float], dict[int, float]]:
    """Return CPU microseconds per publish by fan-out, as medians of the rounds: for this broker's endpoint, and for the
    bare server."""
    with (
        tempfile.TemporaryDirectory() as folder,
        started("ingeborg.broker.command.cli", "serve", "--port", "0", "--store", f"lmdb:{folder}/store") as (
            our_url,
            ours,
        ),
        started("ingeborg.bench.budgets.bare") as (bare_url, bare),
    ):
        found: tuple[dict[int, float], dict[int, float]] = ({}, {})
        for fanout, rate in RATES.items():
            async with Load(our_url, ours, fanout) as our, Load(bare_url + "/publish", bare, fanout) as its:
                pairs = [(await our.cost_us(rate), await its.cost_us(rate)) for _ in range(rounds)]
            for costs, seen in zip(found, zip(*pairs, strict=True), strict=True):
                costs[fanout] = median(seen)
        return found


def checks(ours: dict[int, float], bare: dict[int, float]) -> Sequence[Check]:
    """Compare the two ratios with their goals."""
    our, its = fit(ours), fit(bare)
    rows = []
    for what, mine, other, most in (
        ("CPU per received publish", our.publish_us, its.publish_us, PUBLISH_RATIO),
        ("CPU per delivered message", our.delivery_us, its.delivery_us, DELIVERY_RATIO),
    ):
        if other <= 0:
            raise BenchError("the bare server's costs do not fit a line: was the machine idle?")
        text = f"{mine:.1f} us, {mine / other:.2f} times {other:.1f} us"
        rows.append(Check(what, f"at most {most:g} times a bare websockets server's", text, mine <= most * other))
    return rows


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    print(measured(), flush=True)
    ours, bare = uvloop.run(measure(options.rounds))
    print("subscribers  endpoint, us per publish  bare websockets  ratio")
    for fanout, cost in ours.items():
        print(f"{fanout:11}  {cost:24.1f}  {bare[fanout]:15.1f}  {cost / bare[fanout]:5.2f}")
    show(checks(ours, bare))


if __name__ == "__main__":
    main()
