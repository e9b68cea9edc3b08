"""Measure time and memory of `ingeborg export` with a large LMDB store: ``python -m ingeborg.bench.micro.export``.

Makes stores of 20,000 and of 2,000,000 subscriptions. A tenth of the subscriptions are to one topic, from clients that
have only this topic. All other clients have ten topics each. A real process then exports each store to /dev/null, and
this program reads that process's ``RssAnon`` every 20 ms.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from ingeborg.broker.store.base import Subscribe
from ingeborg.broker.store.embedded.store import EmbeddedStore


async def fill(directory: Path, subscriptions: int) -> None:
    drawn = random.Random(1)
    store = EmbeddedStore(directory)
    await store.open()
    clients = subscriptions // 10
    for first in range(0, clients, 10_000):
        batch = [
            Subscribe(f"client-{number:07}", ["the hit"] if number % 10 == 0 else songs(drawn, subscriptions))
            for number in range(first, min(first + 10_000, clients))
        ]
        await store.subscribe(batch)
    await store.subscribe([Subscribe(f"fan-{number:07}", ["the hit"]) for number in range(subscriptions // 100 * 9)])
    await store.close()


def songs(drawn: random.Random, subscriptions: int) -> list[str]:
    return [f"artist {n % 5000:04} - song {n:08}" for n in drawn.sample(range(subscriptions // 4), 10)]


def rss_anon_kib(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1])
    return 0  # the process has ended


def export(directory: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "ingeborg.broker.command.cli",
        "export",
        "--store",
        f"lmdb:{directory}",
        "--json",
        "/dev/null",
    ]
    began_s = time.monotonic()
    most = 0
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        while process.poll() is None:
            most = max(most, rss_anon_kib(process.pid))
            time.sleep(0.02)
        assert process.stderr is not None
        said = process.stderr.read().strip()
    print(f"{said}\n  exit code {process.returncode}, {time.monotonic() - began_s:.1f} s including its start; ", end="")
    print(f"RssAnon at most {most / 1024:.1f} MiB", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("subscriptions", nargs="*", type=int, default=[20_000, 2_000_000])
    for subscriptions in parser.parse_args().subscriptions:
        with tempfile.TemporaryDirectory() as directory:
            asyncio.run(fill(Path(directory), subscriptions))
            export(Path(directory))


if __name__ == "__main__":
    main()
