"""Time and memory of the digest of 0.1, 1, 10 and 30 million events: `python -m ingeborg.bench.micro.digest`.

With `--causal` it measures the causal check instead. With `--heard LATENCY_MS …` it measures the causal check of
further logs, one for each LATENCY_MS. Each of these logs has a million messages of 10,000 publishers, and each
publisher receives the messages of ten others 1 ms to LATENCY_MS later. With a longer latency, more messages overtake
others.

Owns: the synthetic log of a large traffic run (20 connections, 1,000 topics, a fan-out of 5, 200 seconds), the log of
the publishers, and the measurement of the whole command. The measurement includes the start of Java, because users also
wait for Java. This program is not a test, because times on a shared machine vary too much for a test. Logs and digests
are in a temporary directory, which is deleted.
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
"""Share of the publishes that repeat another connection's payload (300 of 1,300 in the thesis)."""

START_NS = 5_000 * NS_PER_S
"""The start of the run, on the machine's clock."""

MS = NS_PER_S // 1_000

PART_LINES = 500_000
"""Maximum number of lines of a part, as in the generator. If a part of this size is lost or damaged, little is lost.
Spark reads parts in parallel."""

SAMPLE_S = 0.2
"""Seconds between two measurements of the command's memory."""

PUBLISHERS, MESSAGES = 10_000, 1_000_000
HEARD = 10
"""The number of other publishers whose messages each publisher receives."""

TIMEOUT_S = 3_600
"""The time limit of a command. No digest that is worth measuring takes longer."""


def traffic_log(directory: Path, events: int, seed: int = 1) -> None:
    """Write a run of about `events` events into `directory`, as two generator processes would write it. Each process's
    events are in chronological order."""
    # A new message has one row for its publish and one for each delivery. On average, it is published 1 / (1 -
    # DUPLICATES) times.
    number = round(events / (1 + FANOUT + 1 / (1 - DUPLICATES)))
    _log(directory, "traffic", _chunks(random.Random(seed), number, 2 * NS_PER_S, (2 + SECONDS) * NS_PER_S), seed)


def heard_log(directory: Path, messages: int, latency_ms: int, seed: int = 1) -> None:
    """Write a run with this number of messages from `PUBLISHERS` publishers. Each publisher sends a message to its own
    topic every two seconds, and other publishers receive it 1 ms to `latency_ms` later."""
    _log(directory, "heard", _hearing(random.Random(seed), messages, latency_ms), seed)


def _hearing(rng: random.Random, messages: int, latency_ms: int) -> Iterator[list[list[tuple[int, str]]]]:
    listeners: list[list[int]] = [[] for _ in range(PUBLISHERS)]
    for connection in range(PUBLISHERS):
        for topic in rng.sample(range(PUBLISHERS - 1), HEARD):
            listeners[topic + (topic >= connection)].append(connection)
    step = SECONDS * NS_PER_S // messages
    for first in range(0, messages, PUBLISHERS):
        rows: list[list[tuple[int, str]]] = [[], []]
        seq = 1 + first // PUBLISHERS
        for index, topic in enumerate(rng.sample(range(PUBLISHERS), min(PUBLISHERS, messages - first))):
            at = START_NS + 2 * NS_PER_S + (first + index) * step
            rows[0].append((at, f"news,run,,{topic},{seq},{at},{at},{len(listeners[topic])},\n"))
            rows[topic & 1].append((at, f"sent,run,{topic},{topic},{seq},{at},{at + 1000},1,\n"))
            for connection in listeners[topic]:
                took = rng.randint(MS, latency_ms * MS)
                line = f"received,run,{connection},{topic},{seq},{at},{at + took},{took},\n"
                rows[connection & 1].append((at + took, line))
        yield rows


def _log(directory: Path, workload: str, chunks: Iterator[list[list[tuple[int, str]]]], seed: int) -> None:
    directory.mkdir(parents=True)
    parts = [_parts(directory, process) for process in (0, 1)]
    for part in parts:
        next(part)
    for chunk in chunks:
        for part, rows in zip(parts, chunk, strict=True):
            part.send([line for _, line in sorted(rows)])
    for part in parts:
        part.close()
    run = {
        "schema": SCHEMA_VERSION,
        "run": directory.name,
        "system": "ingeborg",
        "variant": "synthetic",
        "workload": workload,
        "series": None,
        "seed": seed,
        "started_unix_ms": 1_772_000_000_000,
        "started_ns": START_NS,
        "complete": True,
        "config": {},
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
    """Yield the events of both processes as pairs of time and line, for up to 5,000 new messages at a time."""
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
    """Receive lists of lines, and write them to the files of parts."""
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
    """The cost of one command: elapsed seconds, CPU seconds, and the largest resident memory of all its processes
    together in bytes."""

    elapsed_s: float
    cpu_s: float
    rss_bytes_max: int


def measure(command: list[str], driver_memory: str, said: Path) -> Measured:
    """Run `bench` with these arguments as a user does, and write its output to the file `said`. Raises
    CalledProcessError or TimeoutExpired."""
    command = [sys.executable, "-m", "ingeborg.bench.cli", *command, "--master", "local[2]"]
    began = time.monotonic()
    with said.open("w") as file:
        process = psutil.Popen([*command, "--driver-memory", driver_memory], stdout=file)
    rss_max = 0
    cpu: dict[int, float] = {}
    try:
        while process.poll() is None:
            if time.monotonic() - began > TIMEOUT_S:
                raise subprocess.TimeoutExpired(command, TIMEOUT_S)
            rss = 0
            for each in _tree(process):
                # If the process ended between the two calls, its previous measurement counts.
                with contextlib.suppress(psutil.NoSuchProcess):
                    rss += each.memory_info().rss
                    cpu[each.pid] = sum(each.cpu_times()[:2])
            rss_max = max(rss_max, rss)
            time.sleep(SAMPLE_S)
    finally:
        for each in _tree(process):
            with contextlib.suppress(psutil.NoSuchProcess):
                each.kill()
    # A check with findings prints them, and exits with code 1.
    if process.returncode and not (process.returncode == 1 and "check" in command and said.stat().st_size):
        raise subprocess.CalledProcessError(process.returncode, command)
    return Measured(time.monotonic() - began, sum(cpu.values()), rss_max)


def _tree(process: psutil.Process) -> list[psutil.Process]:
    try:
        return [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def main() -> int:
    parser = argparse.ArgumentParser(
        description="Measure the digest, or the causal check, of synthetic logs on two cores."
    )
    parser.add_argument(
        "--millions",
        type=float,
        nargs="+",
        default=[0.1, 1, 10, 30],
        help="millions of events in each log (default: 0.1 1 10 30)",
    )
    parser.add_argument("--causal", action="store_true", help="measure `bench check causal` instead of the digest")
    parser.add_argument(
        "--heard",
        type=int,
        nargs="+",
        metavar="LATENCY_MS",
        help="measure the causal check of logs of 10,000 publishers",
    )
    parser.add_argument("--driver-memory", default="4g", help="memory of Spark (default: %(default)s)")
    options = parser.parse_args()
    print("| log | bytes | elapsed | processor time | peak memory | µs of a core per event |")
    print("|--:|--:|--:|--:|--:|--:|")
    for size in options.heard or options.millions:
        with tempfile.TemporaryDirectory(prefix="measure-digest-") as directory:
            log, said = Path(directory) / "log", Path(directory) / "said"
            if options.heard:
                name, events = f"received within {size:,} ms", (2 + HEARD) * MESSAGES
                heard_log(log, MESSAGES, size)
            else:
                name, events = f"{size:g} M", round(size * 1_000_000)
                traffic_log(log, events)
            size_bytes = sum(file.stat().st_size for file in log.iterdir())
            is_check = options.causal or options.heard
            command = (
                ["check", "causal", "--shown", "1", str(log)] if is_check else ["digest", str(log), "--out", directory]
            )
            done = measure(command, options.driver_memory, said)
            words = said.read_text() if is_check else ""
        print(
            f"| {name} | {size_bytes / 1e6:,.0f} MB | {done.elapsed_s:.0f} s | {done.cpu_s:.0f} s "
            f"| {done.rss_bytes_max / 1e9:.1f} GB | {done.cpu_s / events * 1e6:.1f} |\n{words}",
            flush=True,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
