"""Do greedy clients keep the others waiting? ``python -m tests.broker.measure_fairness [--greedy 8] [--seconds 6]``.

Owns the measurement: some clients pipeline publishes as fast as the endpoint reads them, in a process of their own, and
read what they are answered; four others publish to each other 25 times a second. Their latencies are said, in seconds
before and beside the greedy ones. Needs two cores with nothing else to do.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path
from urllib.parse import urlsplit

import orjson
import uvloop

from ingeborg.protocol.frames import masked_text_frame
from tests.fuzz.attack import WITNESSES, Witness, percentile_ms, publishing

from .running import HANDSHAKE, serving

#: Publishes in one write, some 200 kB.
PIPELINED = 2_000


def greedy(url: str, clients: int, seconds: float) -> None:
    """The process that publishes."""
    parts = urlsplit(url)

    async def one(number: int) -> int:
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
        writer.write(HANDSHAKE.format(path="/").encode())
        reading = asyncio.create_task(_read_on(reader))
        published, until = 0, time.monotonic() + seconds
        while time.monotonic() < until:
            command = {"command": "publish", "client_id": f"greedy {number}", "topic": f"{number}"}
            frames = [
                masked_text_frame(orjson.dumps({**command, "payload": published + more}), bytes(4))
                for more in range(PIPELINED)
            ]
            writer.write(b"".join(frames))
            await writer.drain()
            published += PIPELINED
        writer.transport.abort()
        reading.cancel()
        return published

    async def all_of_them() -> None:
        each = await asyncio.gather(*(one(number) for number in range(clients)))
        print(f"{clients} greedy clients wrote {sum(each) / seconds:,.0f} publishes a second")

    uvloop.run(all_of_them())


async def _read_on(reader: asyncio.StreamReader) -> None:
    while await reader.read(1 << 20):
        pass


async def measure(clients: int, seconds: float) -> None:
    """Against an endpoint on an empty store."""
    with tempfile.TemporaryDirectory() as directory:
        async with serving(Path(directory)) as (_, url), AsyncExitStack() as stack:
            witnesses = [Witness(url, number) for number in range(WITNESSES)]
            for witness in witnesses:
                await stack.enter_async_context(witness.client)
                await witness.client.subscribe(witness.name)
            async with publishing(witnesses):
                await asyncio.sleep(seconds)
                _say("without them", witnesses)
                process = multiprocessing.get_context("spawn").Process(target=greedy, args=(url, clients, seconds))
                process.start()
                await asyncio.sleep(seconds)
                _say("beside them", witnesses)
                await asyncio.to_thread(process.join)


def _say(when: str, witnesses: list[Witness]) -> None:
    latencies = sorted(latency for witness in witnesses for latency in witness.latencies_s)
    p50, p99, most = (f"{percentile_ms(latencies, percent):.1f} ms" for percent in (50.0, 99.0, 100.0))
    print(f"{when}: {len(latencies):,} messages, p50 {p50}, p99 {p99}, most {most}")
    for witness in witnesses:
        witness.latencies_s.clear()


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description="Do greedy clients keep the others waiting?")
    parser.add_argument("--greedy", type=int, default=8, help="of them")
    parser.add_argument("--seconds", type=float, default=6.0)
    options = parser.parse_args()
    uvloop.run(measure(options.greedy, options.seconds))


if __name__ == "__main__":
    main()
