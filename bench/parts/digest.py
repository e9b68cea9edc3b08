"""How long the digest of 1, 10 and 30 million events takes, and its memory: `python -m ingeborg.bench.parts.digest`.

Owns the synthetic log of a traffic run at scale (20 connections, 1,000 topics, a fan-out of 5, 200 seconds) and the
measurement of the whole command, Java's start included, as its user waits for it. It is no test: a test that depends on
the clock of a shared machine proves nothing. Logs and digests are made in a temporary directory and removed.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

from ingeborg.bench.spark.schema import COUNTERS, EVENTS, MACHINE, NS_PER_S, PHASES, SCHEMA_VERSION

CONNECTIONS = 20
TOPICS = 1_000
FANOUT = 5
SECONDS = 200
DUPLICATES = 0.23
"""Share of the publishes that repeat another connection's payload (the thesis's 300 of 1,300)."""

START_NS = 5_000 * NS_PER_S
"""Of the run, on the machine's clock."""

MS = NS_PER_S // 1_000

PART_LINES = 500_000
"""As the generator does it: a part that is lost or torn costs little, and Spark reads parts side by side."""

SAMPLE_S = 0.2
"""Between two looks at the command's memory."""

TIMEOUT_S = 3_600
"""No digest that is worth measuring takes longer."""


def traffic_log(directory: Path, events: int, seed: int = 1) -> None:
    """Write a run of about `events` events into `directory`: two generator processes, each in the order of time."""
    directory.mkdir(parents=True)
    begin, end = 2 * NS_PER_S, (2 + SECONDS) * NS_PER_S
    # A news is one row and one delivery per listener, and is published 1 / (1 - DUPLICATES) times.
    number = round(events / (1 + FANOUT + 1 / (1 - DUPLICATES)))
    parts = [_parts(directory, process) for process in (0, 1)]
    for part in parts:
        next(part)
    for chunk in _chunks(random.Random(seed), number, begin, end):
        for part, rows in zip(parts, chunk, strict=True):
            part.send([line for _, line in sorted(rows)])
    for part in parts:
        part.close()
    run = {
        "schema": SCHEMA_VERSION,
        "run": directory.name,
        "system": "ingeborg",
        "variant": "synthetic",
        "workload": "traffic",
        "series": None,
        "seed": seed,
        "started_unix_ms": 1_772_000_000_000,
        "started_ns": START_NS,
        "complete": True,
        "config": {"events": events},
        "machine": {"cores": 2, "memory_bytes": 16_000_000_000, "kernel": "Linux 6.1", "cpu": "A processor"},
        "software": {"python": "3.11.7", "websockets": "17.0", "ingeborg": "0.1.0"},
        "goals": {"p50_ms": 500, "p99_ms": 2000},
    }
    (directory / "run.json").write_text(json.dumps(run), encoding="utf-8")
    phases: list[tuple[str, int, int, int, int | None]] = [
        ("connect", 0, 1, 0, CONNECTIONS),
        ("subscribe", 1, 2, 0, TOPICS * FANOUT),
    ]
    phases += [("run", 2, 2 + SECONDS, 1, None), ("drain", 2 + SECONDS, 4 + SECONDS, 0, None)]
    lines = [
        f"{name},{name},{START_NS + start * NS_PER_S},{START_NS + stop * NS_PER_S},{measured},,{amount or ''},"
        for name, start, stop, measured, amount in phases
    ]
    _table(directory / "phases.csv", PHASES.header, lines)
    roles = {"generator-0": "generator", "generator-1": "generator", "server-1": "server", "host": "host"}
    samples = [
        f"{START_NS + second * NS_PER_S},{source},{role},{0.4 * second:.3f},{10**8 + second},{10**8},,,,"
        for second in range(5 + SECONDS)
        for source, role in roles.items()
    ]
    _table(directory / "machine.csv", MACHINE.header, samples)
    _table(directory / "counters.csv", COUNTERS.header, [])


def _chunks(rng: random.Random, number: int, begin: int, end: int) -> Iterator[list[list[tuple[int, str]]]]:
    """The events of both processes, some thousand news at a time: (time, line)."""
    listeners = [rng.sample(range(CONNECTIONS), FANOUT) for _ in range(TOPICS)]
    sequence = [0] * TOPICS
    step = (end - begin) / number
    latencies = [int(rng.lognormvariate(0.4, 0.6) * MS) for _ in range(100_003)]
    latency = itertools.cycle(latencies)
    for first in range(0, number, 5_000):
        rows: list[list[tuple[int, str]]] = [[], []]
        for index in range(first, min(first + 5_000, number)):
            topic = rng.randrange(TOPICS)
            seq = sequence[topic] = sequence[topic] + 1
            at = START_NS + begin + int(index * step)
            rows[0].append((at, f"news,run,,{topic},{seq},{at},{at},{FANOUT},\n"))
            publisher, copies = rng.randrange(CONNECTIONS), 1
            while rng.random() < DUPLICATES:
                copies += 1
            for copy in range(copies):
                meant = at + copy * 3 * MS
                done = meant + 40_000 + next(latency) // 100
                connection = (publisher + copy) % CONNECTIONS
                rows[connection & 1].append(
                    (done, f"sent,run,{connection},{topic},{seq},{meant},{done},{int(not copy)},\n")
                )
            for connection in listeners[topic]:
                took = next(latency) + index % 997
                rows[connection & 1].append(
                    (at + took, f"received,run,{connection},{topic},{seq},{at},{at + took},{took},\n")
                )
        yield rows


def _parts(directory: Path, process: int) -> Generator[None, list[str], None]:
    """Sent lists of lines, writes them in parts."""
    for number in itertools.count():
        with (directory / f"events-{process:03d}-{number:04d}.csv").open("w", encoding="utf-8") as file:
            file.write(EVENTS.header + "\n")
            lines = 0
            while lines < PART_LINES:
                rows = yield
                file.writelines(rows)
                lines += len(rows)


def _table(path: Path, header: str, lines: list[str]) -> None:
    path.write_text("".join(f"{line}\n" for line in (header, *lines)), encoding="utf-8")


@dataclass(frozen=True)
class Measured:
    """What one `bench digest` took: seconds of the clock and of processors, and the most resident memory of all its
    processes together, in bytes."""

    elapsed_s: float
    cpu_s: float
    rss_bytes_max: int


def measure(log: Path, out: Path, driver_memory: str) -> Measured:
    """Run the command on `log` as a user does. Raises CalledProcessError, or TimeoutExpired."""
    command = [
        sys.executable,
        "-m",
        "ingeborg.bench.cli",
        "digest",
        str(log),
        "--out",
        str(out),
        "--master",
        "local[2]",
    ]
    began = time.monotonic()
    process = psutil.Popen([*command, "--driver-memory", driver_memory], stdout=subprocess.DEVNULL)
    rss_max = 0
    cpu: dict[int, float] = {}
    try:
        while process.poll() is None:
            if time.monotonic() - began > TIMEOUT_S:
                raise subprocess.TimeoutExpired(command, TIMEOUT_S)
            rss = 0
            for each in _tree(process):
                # Gone between two lines: what it used was seen a moment ago.
                with contextlib.suppress(psutil.NoSuchProcess):
                    rss += each.memory_info().rss
                    cpu[each.pid] = sum(each.cpu_times()[:2])
            rss_max = max(rss_max, rss)
            time.sleep(SAMPLE_S)
    finally:
        for each in _tree(process):
            with contextlib.suppress(psutil.NoSuchProcess):
                each.kill()
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    return Measured(time.monotonic() - began, sum(cpu.values()), rss_max)


def _tree(process: psutil.Process) -> list[psutil.Process]:
    try:
        return [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure the digest of synthetic traffic logs on two cores.")
    parser.add_argument("--millions", type=int, nargs="+", default=[1, 10, 30], help="events (default: 1 10 30)")
    parser.add_argument("--driver-memory", default="4g", help="memory of Spark (default: %(default)s)")
    options = parser.parse_args()
    print("| events | log | elapsed | processor time | memory at most | µs of a core per event |")
    print("|--:|--:|--:|--:|--:|--:|")
    for millions in options.millions:
        with tempfile.TemporaryDirectory(prefix="measure-digest-") as directory:
            log = Path(directory) / f"traffic-{millions}"
            traffic_log(log, millions * 1_000_000)
            size = sum(file.stat().st_size for file in log.iterdir())
            done = measure(log, Path(directory) / "digest", options.driver_memory)
        print(
            f"| {millions} M | {size / 1e6:,.0f} MB | {done.elapsed_s:.0f} s | {done.cpu_s:.0f} s "
            f"| {done.rss_bytes_max / 1e9:.1f} GB | {done.cpu_s / millions:.1f} |",
            flush=True,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
