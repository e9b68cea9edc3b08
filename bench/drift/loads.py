"""Measure the costs of a publish, a delivery, a `listen` and a `subscribe` in an endpoint.

Owns: the loads. Must never: load the machine so heavily that no core stays idle, or include the endpoint's start in a
measurement.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import orjson
import psutil

from ingeborg.bench.budgets import cost
from ingeborg.bench.budgets.light import TIMEOUT_S, cpu_s, dial
from ingeborg.bench.errors import BenchError
from ingeborg.protocol.outgoing import OutgoingSocket

#: Number of `listen` commands, each from a different client, and number of `subscribe` commands, all from one client.
#: All commands of a kind are sent together.
LISTENS, SUBSCRIBES = 10_000, 10_000

FIGURES = {
    "publish": "received publish",
    "delivery": "delivered message",
    "listen": "listen",
    "subscribe": "subscribe to a topic",
}
"""The measured figures, with their labels in the report."""


async def measure(url: str, process: psutil.Process, seconds: float) -> Mapping[str, float]:
    """Return the CPU time in microseconds of each of ``FIGURES``. ``seconds``: duration of the load for each number of
    subscribers."""
    listen = await _commands(url, process, [_listen(number) for number in range(LISTENS)])
    subscribe = await _commands(url, process, [_subscribe(number) for number in range(SUBSCRIBES)])
    costs = {}
    for fanout, rate in cost.RATES.items():
        async with cost.Load(url, process, fanout) as load:
            costs[fanout] = await load.cost_us(rate, seconds)
    line = cost.fit(costs)
    return {"publish": line.publish_us, "delivery": line.delivery_us, "listen": listen, "subscribe": subscribe}


def _listen(number: int) -> bytes:
    return orjson.dumps({"command": "listen", "client_id": f"listener {number}"})


def _subscribe(number: int) -> bytes:
    return orjson.dumps({"command": "subscribe", "client_id": "subscriber", "topic": f"some artist - song {number}"})


async def _commands(url: str, process: psutil.Process, frames: list[bytes]) -> float:
    """Return the CPU time of one frame in microseconds. All frames go over one connection, and all have to succeed."""
    answered = 0
    over = asyncio.get_running_loop().create_future()

    def answer(_: OutgoingSocket, data: bytes) -> None:
        nonlocal answered
        answered += 1
        if data != b'{"result":"success"}' and not over.done():
            over.set_exception(BenchError(f"an endpoint refused a command: {data[:200]!r}"))
        elif answered == len(frames) and not over.done():
            over.set_result(None)

    socket = await dial(url, answer)
    try:
        before_s = cpu_s(process)
        socket.write(*frames)
        async with asyncio.timeout(TIMEOUT_S):
            await over
        return (cpu_s(process) - before_s) / len(frames) * 1e6
    finally:
        socket.transport.close()
