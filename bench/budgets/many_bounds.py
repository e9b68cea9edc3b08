"""Measure an endpoint that has many clients with bounds: its CPU time while they are idle, and its memory under load.

    python -m ingeborg.bench.budgets.many_bounds [--minutes 10]

There are 1,000 connections with 100 clients each. All clients have the preset `wall`. Each client subscribes to one of
100 topics. One endpoint runs on the first core, and everything else on the second. After a minute without messages, the
program publishes 10 messages per second for the given number of minutes. Each message goes to 1,000 clients.

An endpoint that falls behind raises its level. It then holds messages, which take memory. So the program also reports
the highest level. If this level is not 0, the endpoint had too little processor time, and held messages caused the
growth.
"""

from __future__ import annotations

import asyncio
import time
from itertools import count
from statistics import median
from typing import NamedTuple

import orjson

from ingeborg.bench.errors import BenchError
from ingeborg.protocol.outgoing import OutgoingSocket

from .floor import endpoint, figures
from .light import TIMEOUT_S, dial
from .model import Check, command

CONNECTIONS, CLIENTS, TOPICS = 1_000, 100, 100
IDLE_S, MINUTES, RATE, SAMPLED_S = 60.0, 10.0, 10.0, 15.0

#: The goals: the greatest share of a core that the endpoint may use while clients are idle, and the greatest growth of
#: its memory from the first to the last third of the load.
CPU_MAX, GROWTH_MAX = 0.02, 0.02


async def connect(url: str, number: int) -> OutgoingSocket:
    """Connect, and have all clients of the connection listen and subscribe. Raises ``BenchError`` if a command
    fails."""
    done, answers = asyncio.get_running_loop().create_future(), 0

    def answered(_: OutgoingSocket, data: bytes) -> None:
        nonlocal answers
        answers += b'"success"' in data
        if b'"error"' in data and not done.done():
            done.set_exception(BenchError(data.decode()))
        elif answers == 2 * CLIENTS and not done.done():
            done.set_result(None)

    socket = await dial(url, answered)
    for client in range(number * CLIENTS, (number + 1) * CLIENTS):
        listen = {"command": "listen", "client_id": client, "bounds": "wall"}
        socket.write(orjson.dumps(listen))
        socket.write(orjson.dumps({"command": "subscribe", "client_id": client, "topic": f"topic {client % TOPICS}"}))
    async with asyncio.timeout(TIMEOUT_S):
        await done
    socket.on_message = lambda socket, data: None
    return socket


async def measure(minutes: float) -> list[Check]:
    """Measure everything. Raises ``BenchError`` if a command fails or the endpoint does not answer."""
    async with endpoint() as url:
        sockets = [await connect(url, number) for number in range(CONNECTIONS)]
        await asyncio.sleep(5.0)
        before = await figures(url)
        await asyncio.sleep(IDLE_S)
        after = await figures(url)
        name = "process_cpu_seconds_total"
        idle = (after[name] - before[name]) / IDLE_S
        load = await _load(url, minutes)
        held = (await figures(url))["ingeborg_bounds_clients"]
        for socket in sockets:
            socket.transport.close()
        await asyncio.sleep(0.1)
    return checks(held, idle, load)


class Load(NamedTuple):
    """Samples of the endpoint during the load: its resident memory in bytes, and its level."""

    sizes: list[float]
    levels: list[float]


async def _load(url: str, minutes: float) -> Load:
    """Publish, and return samples of the endpoint, which are ``SAMPLED_S`` seconds apart."""
    publisher = await dial(url)
    load = Load([], [])
    begin = time.monotonic()
    for number in count():
        at = begin + number / RATE
        if at > begin + minutes * 60:
            break
        await asyncio.sleep(max(at - time.monotonic(), 0.0))
        command = {"command": "publish", "client_id": "p", "topic": f"topic {number % TOPICS}", "payload": number}
        publisher.write(orjson.dumps(command))
        if at - begin >= (1 + len(load.sizes)) * SAMPLED_S:
            sample = await figures(url)
            load.sizes.append(sample["process_resident_memory_bytes"])
            load.levels.append(sample["ingeborg_bounds_level"])
    publisher.transport.close()
    return load


def checks(clients: float, idle: float, load: Load) -> list[Check]:
    """Compare the figures with their goals."""
    figure = f"CPU of {clients:,.0f} idle clients with bounds"
    rows = [Check(figure, f"at most {CPU_MAX:.0%} of a core", f"{idle:.2%}", idle <= CPU_MAX)]
    third = len(load.sizes) // 3
    if third:
        first, last = median(load.sizes[:third]), median(load.sizes[-third:])
        growth, level = last / first - 1, max(load.levels)
        text = f"{growth:+.1%} of {first / 1e6:,.0f} MB, at level {level:.0f}"
        rows.append(
            Check(
                "growth of memory from the first to the last third",
                f"at most {GROWTH_MAX:+.0%}",
                text,
                growth <= GROWTH_MAX,
            )
        )
    return rows


if __name__ == "__main__":
    command(__doc__, measure, "minutes", MINUTES)
