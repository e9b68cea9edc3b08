"""Measure two endpoints while the device under their store's file system stands still.

Run ``python -m tests.cluster.measure_disk_stall [--seconds 10] [--sync]`` as root on a system with loop devices.

The device is a file on another file system, which stays frozen meanwhile. ``--sync`` has the kernel write all files of
the store just as the stall begins. ADR 38 has the results.
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from ingeborg.protocol.client import Client
from tests.broker.running import plain

from .processes import Cluster, cluster_of
from .traffic import Ear, streaming

SERIES = ("leases_lapsed_total", "endpoints_gone_total", "store_errors_total", "loop_lag_seconds_sum")


def _run(*command: str | Path) -> None:
    subprocess.run(command, check=True)


@contextmanager
def _mounted(image: Path, size: str, at: Path) -> Iterator[None]:
    """A separate file system in the file ``image``."""
    at.mkdir()
    _run("truncate", "-s", size, image)
    _run("mkfs.ext4", "-q", "-F", image)
    _run("mount", "-o", "loop", image, at)
    try:
        yield
    finally:
        _run("umount", at)


@asynccontextmanager
async def _frozen(directory: Path, seconds: float) -> AsyncIterator[asyncio.Task[None]]:
    """Freeze the file system for this long; the task ends when the freeze does."""

    async def thaw() -> None:
        try:
            await asyncio.sleep(seconds)
        finally:
            _run("fsfreeze", "-u", directory)

    _run("fsfreeze", "-f", directory)
    thawing = asyncio.create_task(thaw())
    await asyncio.sleep(0)  # the freeze has begun, and will end in any case
    try:
        yield thawing
        await thawing
    finally:
        thawing.cancel()
        await asyncio.wait({thawing})


async def _measure(cluster: Cluster, under: Path, store: Path, options: argparse.Namespace) -> None:
    topics = [topic for name in "ab" for topic in cluster.topics_at_home(name, "x", 20)]
    async with (
        Client(cluster["a"].url, "publisher", timeout_s=60) as publisher,
        Ear(cluster["b"].url, "ear") as ear,
        plain(cluster["a"].url) as ann,
    ):
        await ear.client.subscribe(topics)
        async with streaming(publisher, topics) as stream:
            await stream.goes_on(200)
            before = {name: await cluster[name].metrics() for name in "ab"}
            async with _frozen(under, options.seconds) as thawing:
                began = time.monotonic()
                if options.sync:
                    subprocess.Popen(["sync", "-f", store])  # noqa: ASYNC220 - it takes as long as the stall
                while not thawing.done():
                    asked = time.monotonic()
                    reply = await ann.ask({"command": "subscribe", "client_id": "ann", "topic": "t"})
                    took_s = time.monotonic() - asked
                    print(f"{asked - began:4.1f} s: subscribe: {reply.get('info', 'success')}, after {took_s:.1f} s")
            await stream.goes_on(200)
        await ear.hears(stream.acknowledged)
    twice = sum(count > 1 for count in ear.heard.values())
    print(f"publishes: {stream.sent}, failed: {len(stream.failed)}; messages heard twice: {twice}")
    for name, was in before.items():
        now = await cluster[name].metrics()
        print(name, ", ".join(f"{series}: {now[series] - was[series]:.3g}" for series in SERIES))
        print("\n".join(line for line in cluster[name].said().splitlines() if " INFO " not in line))


async def main(options: argparse.Namespace) -> None:
    """Stall once, and print what happened."""
    with tempfile.TemporaryDirectory() as folder:
        under, store = Path(folder) / "under", Path(folder) / "store"
        with _mounted(Path(folder) / "image", "400M", under), _mounted(under / "image", "300M", store):
            async with cluster_of("ab", Path(folder), store=f"lmdb:{store / 'store'}") as cluster:
                await _measure(cluster, under, store, options)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--sync", action="store_true")
    sys.exit(asyncio.run(main(parser.parse_args())))
