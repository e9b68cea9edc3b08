"""Measure the cost of each system's client library in the generator: CPU time per publish and per delivered message.

    python -m ingeborg.bench.micro.adapters [SYSTEM…]

Starts the server of each system (as `bench rivals` does). A second process publishes 5,000 messages of 200 bytes per
second, in batches of 100, to one topic, and this process receives them. Prints the CPU microseconds of both processes,
and the names of systems that are not installed. The program takes some seconds per system, on an idle machine.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import uvloop

from ingeborg.bench.compare import servers
from ingeborg.bench.compare.matrix import System
from ingeborg.loadgen.backends import SYSTEMS, open_backend

MESSAGES, BATCH, RATE_PER_S = 20_000, 100, 5_000
TIMEOUT_S = 60.0
TOPIC = "topic"


async def publish(system: str, urls: Sequence[str]) -> None:
    """Run the publisher, and print its CPU microseconds per message. The first batch is not measured, because it
    creates the topic."""
    backend = open_backend(system, urls, "measure")
    async with asyncio.timeout(TIMEOUT_S):
        connection = await backend.connect(0, lambda topic, text: None, print)
        began_s = before_s = 0.0
        for start in range(0, BATCH + MESSAGES, BATCH):
            messages = [(TOPIC, f"{start + number:09}".ljust(200, "x")) for number in range(BATCH)]
            await connection.publish(messages)
            if start == 0:
                await asyncio.sleep(1.0)
                began_s, before_s = time.monotonic(), time.process_time()
            await asyncio.sleep(max(began_s + start / RATE_PER_S - time.monotonic(), 0.001))
        print((time.process_time() - before_s) / MESSAGES * 1e6)
        await connection.close()
        await backend.close()


async def measure(system: str, urls: Sequence[str]) -> tuple[float, float]:
    """Return CPU microseconds per publish, and per delivery."""
    received, began_s, all_came = 0, 0.0, asyncio.Event()

    def on_message(topic: str, text: str) -> None:
        nonlocal received, began_s
        received += 1
        if received == BATCH:
            began_s = time.process_time()
        elif received == BATCH + MESSAGES:
            all_came.set()

    backend = open_backend(system, urls, "measure")
    async with asyncio.timeout(TIMEOUT_S):
        subscriber = await backend.connect(1, on_message, print)
        await subscriber.subscribe([TOPIC])
        publisher = await asyncio.create_subprocess_exec(
            sys.executable, "-m", __spec__.name, "--publish", system, *urls, stdout=asyncio.subprocess.PIPE
        )
        await all_came.wait()
        delivery_us = (time.process_time() - began_s) / MESSAGES * 1e6
        said, _ = await publisher.communicate()
        await subscriber.close()
        await backend.close()
    return float(said), delivery_us


def main(names: Sequence[str]) -> None:
    print("system     us per publish  us per delivery")
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            try:
                with servers.running(System(name=name, system=name), Path(folder), layer=False) as running:
                    publish_us, delivery_us = uvloop.run(measure(name, running.urls))
            except servers.Skipped as error:
                print(f"{name:<9}  {error}")
            else:
                print(f"{name:<9} {publish_us:15.1f} {delivery_us:16.1f}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--publish"]:
        uvloop.run(publish(sys.argv[2], sys.argv[3:]))
    else:
        main(sys.argv[1:] or list(SYSTEMS))
