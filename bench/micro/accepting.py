"""Measure the cost of accepting clients when several processes share a port:
``python -m ingeborg.bench.micro.accepting``.

Clients connect at a constant rate, do the opening handshake of WebSocket, and disconnect. They connect first to an
endpoint with its own port, then to 1, 2 and 4 endpoints that share a port. The program measures the CPU time of all
endpoints per connect, and the time from a connect to the endpoint's answer. Sharing is most expensive at low load,
because every waiting process wakes up for every connection. Then the program stops one of four endpoints
(SIGSTOP) for a while, and measures how long clients wait. Finally, many clients stay connected, and the program prints
how they are distributed over the endpoints.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import signal
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import psutil
import uvloop

from ingeborg.bench.budgets.model import measured
from ingeborg.bench.starting import Started, serve, started
from ingeborg.protocol.pages import fetch, samples

#: The longest time that a client waits for the answer, in seconds.
TIMEOUT_S = 10.0
#: Seconds for which one of four endpoints is stopped. The other endpoints notice the stop in less time.
STOPPED_S = 3.0

_REQUEST = (
    b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)


class Connect(NamedTuple):
    """One client's connect. ``began`` is the time at which the connect was due, on the monotonic clock. ``took_s`` is
    the number of seconds until the answer. It is infinite if the answer was too late or the endpoint refused the
    client."""

    began: float
    took_s: float


async def connect(port: int, began: float, kept: list[asyncio.StreamWriter] | None) -> Connect:
    """Run one client. If ``kept`` is given, the client stays connected and its writer is added to ``kept``."""
    writer = None
    try:
        async with asyncio.timeout(TIMEOUT_S):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(_REQUEST)
            head = await reader.readuntil(b"\r\n\r\n")
        took_s = time.monotonic() - began if head.startswith(b"HTTP/1.1 101 ") else float("inf")
    except (OSError, asyncio.IncompleteReadError):  # `OSError` includes a time-out
        took_s = float("inf")
    if writer is not None:
        if kept is None:
            writer.transport.abort()
        else:
            kept.append(writer)
    return Connect(began, took_s)


async def stream(
    port: int, rate: float, seconds: float, kept: list[asyncio.StreamWriter] | None = None
) -> list[Connect]:
    """Start clients at a constant rate, without waiting for the answers to earlier clients."""
    began = time.monotonic()
    async with asyncio.TaskGroup() as group:
        tasks = []
        for number in range(int(rate * seconds)):
            due = began + number / rate
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            tasks.append(group.create_task(connect(port, due, kept)))
    return [task.result() for task in tasks]


@contextlib.contextmanager
def endpoints(count: int, *, shared: bool) -> Iterator[tuple[Started, list[psutil.Process]]]:
    """Start this number of endpoints, and yield them with their processes."""
    with tempfile.TemporaryDirectory() as folder:
        options = ["--port", "0", "--name", "e", "--store", f"lmdb:{folder}/store", "--endpoints", str(count)]
        options += ["--share-port"] if shared else []
        with started("endpoints", serve(*options), Path(folder, "log"), endpoints=count) as broker:
            supervisor = psutil.Process(broker.child.pid)
            yield broker, supervisor.children() if shared else [supervisor]


def cpu_s(processes: Sequence[psutil.Process]) -> float:
    return sum(sum(process.cpu_times()[:2]) for process in processes)


def port_of(broker: Started) -> int:
    return urlsplit(broker.url).port or 0


def row(name: str, connects: Sequence[Connect]) -> str:
    """Return the times of the connects as a row of text."""
    took = sorted(each.took_s for each in connects)
    answered = [each for each in took if each != float("inf")]
    if not answered:
        return f"{name:34} {len(took):6,} connects, no answers"
    at = {share: 1000 * answered[min(len(answered) - 1, int(share * len(answered)))] for share in (0.5, 0.99, 1.0)}
    late = len(took) - len(answered)
    times = f"p50 {at[0.5]:.1f}  p99 {at[0.99]:.1f}  max {at[1.0]:.1f} ms"
    return f"{name:34} {len(took):6,} connects  {times}  not answered {late}"


async def cost(rate: float, seconds: float, count: int, shared: bool) -> str:
    with endpoints(count, shared=shared) as (broker, processes):
        await stream(port_of(broker), rate, 1.0)
        before = cpu_s(processes)
        await asyncio.sleep(seconds)
        idle_s = cpu_s(processes) - before
        before = cpu_s(processes)
        connects = await stream(port_of(broker), rate, seconds)
        each_us = 1e6 * (cpu_s(processes) - before - idle_s) / len(connects)
    name = f"{count} sharing a port" if shared else "1 with its own port"
    return row(f"{name}: {each_us:.0f} µs of CPU", connects)


async def stopped(rate: float) -> list[str]:
    """Stop one of four endpoints for a while, in the middle of a stream of connects."""
    with endpoints(4, shared=True) as (broker, processes):
        streaming = asyncio.create_task(stream(port_of(broker), rate, STOPPED_S + 3.0))
        await asyncio.sleep(1.0)
        at = time.monotonic()
        processes[0].send_signal(signal.SIGSTOP)
        await asyncio.sleep(STOPPED_S)
        processes[0].send_signal(signal.SIGCONT)
        connects = await streaming
    before = [each for each in connects if each.began < at]
    held = [each for each in before if each.began + each.took_s >= at + 1.0]
    during = [each for each in connects if at <= each.began < at + STOPPED_S]
    return [
        row("connects before one of four stops", before),
        row("  connects while it is stopped", during),
        row("  after it continues", [each for each in connects if each.began >= at + STOPPED_S]),
        f"  connects from before the stop that it delayed: {len(held)}",
    ]


async def spread(clients: int, rate: float) -> str:
    """Return, as text, how many connections each of four endpoints has."""
    with endpoints(4, shared=True) as (broker, _):
        kept: list[asyncio.StreamWriter] = []
        await stream(port_of(broker), rate, clients / rate, kept)
        counts = []
        for url in broker.inside:
            page = await fetch(url, "/metrics", timeout_s=TIMEOUT_S)
            counts.append(next(int(s.value) for s in samples(page.text) if s.name == "ingeborg_connections"))
        for writer in kept:
            writer.transport.abort()
    return f"{clients:,} clients that stay, at {rate:,.0f}/s, by endpoint: {', '.join(map(str, sorted(counts)))}"


async def measure(rate: float, seconds: float, rounds: int, clients: int) -> None:
    for _ in range(rounds):
        for count, shared in ((1, False), (1, True), (2, True), (4, True)):
            print(await cost(rate, seconds, count, shared), flush=True)
    print(*await stopped(rate), sep="\n", flush=True)
    for faster in (1, 4):
        print(await spread(clients, faster * rate), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rate", type=float, default=1_000, help="connects per second (%(default)s)")
    parser.add_argument("--seconds", type=float, default=5, help="length of each measurement (%(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="number of rounds of the cost measurements (%(default)s)")
    parser.add_argument(
        "--clients", type=int, default=4_000, help="number of clients that stay connected (%(default)s)"
    )
    options = parser.parse_args()
    print(measured(), flush=True)
    uvloop.run(measure(options.rate, options.seconds, options.rounds, options.clients))


if __name__ == "__main__":
    main()
