"""Measure the workloads on this broker alone, each on an empty store: rates, latencies, memory (figures 1, 3, 4, 7).

    python -m ingeborg.bench.budgets.loads traffic|topics|radio|memory [--full]

Runs `loadgen` as a user would, and then digests its logs. Owns: the size of each workload in a budget. Must never:
compute a figure that the digest already contains.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil

from ingeborg.bench.compare.matrix import System
from ingeborg.bench.compare.run import LOSSES
from ingeborg.bench.compare.servers import running
from ingeborg.bench.comparison.topics import number_of_topics
from ingeborg.bench.comparison.traffic import headline
from ingeborg.bench.digest.files import DOCUMENT
from ingeborg.bench.errors import BenchError

from . import echo
from .clients import allow_files
from .light import started
from .model import Check, measured, show

WORKLOADS = Path(__file__).parent.parent / "workloads"
LOADGEN_S_MAX, DIGEST_S_MAX, IMPORT_S_MAX = 1_500.0, 600.0, 600.0

#: Goals of figure 1: messages in and out per second, p99 in ms at that rate, and p99 in ms at half that rate.
IN_ALL, P99_MS, HALF_P99_MS = 100_000, 50.0, 5.0
#: The numbers of topics of figure 3, and its three goals. The first is subscriptions per second. The second is the
#: message rate with the most topics, as a share of the rate with few topics. The third is the growth of the endpoint's
#: memory in bytes.
TOPICS, FEW = 2_097_152, 1_024
SUBSCRIBE_PER_S, END_TO_END_SHARE, GROWTH_BYTES = 200_000, 0.75, 100_000_000
#: Messages of the run with few topics, which takes a few seconds. The run with most topics has one message for each
#: topic. The run with one topic has the same number of messages, so that the hashes of their payloads take the same
#: memory.
FEW_MESSAGES = 200_000
#: Limits of figure 4, in ms and s.
RADIO_P50_MS, RADIO_P99_MS, CONNECT_S = 10.0, 100.0, 180.0
RADIO_ENDPOINTS = 7
#: The short form of figure 4: a fifth of the clients, stations and songs, for a minute. So the number of reports per
#: station and the number of wish lists per song stay the same.
RADIO_SHORT = {"clients": 20_000, "stations": 4_000, "songs": 200_000, "duration_s": 60}
#: Figure 7: ten million payloads in ten minutes. The number of topics is four times the number that the routing cache
#: holds.
FLOOD_PER_S, FLOOD_FULL_S, FLOOD_S, FLOOD_TOPICS = 17_000, 600, 60, 200_000
FLAT_BYTES = 5_000_000

Json = dict[str, Any]


def loadgen(workload: str, file: str, urls: Sequence[str], out: Path, *words: str) -> None:
    """Run a workload to its end, with the settings of its file and then ``words``. Raises ``BenchError``."""
    command = [
        sys.executable,
        "-m",
        "ingeborg.loadgen.cli",
        workload,
        "--workload",
        str(WORKLOADS / file),
        "--out",
        str(out),
    ]
    for url in urls:
        command += ["--url", url]
    # Losses are not an error here, because they are a figure that is checked later.
    _run([*command, *words], LOADGEN_S_MAX, results=(0, LOSSES))


def _run(command: Sequence[str], seconds_max: float, *, results: Sequence[int] = (0,)) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds_max, check=False)
    except subprocess.TimeoutExpired:
        raise BenchError(f"{' '.join(command[:5])} … did not end within {seconds_max:g} s") from None
    if done.returncode not in results:
        raise BenchError(f"{' '.join(command[:5])} … failed: {done.stderr[-2000:] or done.stdout[-2000:]}")
    return done.stdout


def _options(settings: Mapping[str, object]) -> list[str]:
    return [word for name, value in settings.items() for word in ("--" + name.replace("_", "-"), str(value))]


def digest(folder: Path) -> list[Json]:
    """Digest the logs in the folder's `logs`, and return the runs in the order in which they started. Raises
    ``BenchError``, also if a run has failed."""
    out = folder / "digest"
    _run([sys.executable, "-m", "ingeborg.bench.cli", "digest", "--out", str(out), str(folder / "logs")], DIGEST_S_MAX)
    runs: list[Json] = json.loads((out / DOCUMENT).read_text(encoding="utf-8"))["runs"]
    for run in runs:
        if run["failed"]:
            raise BenchError(f"{run['run']}: {run['failed']}")
    return sorted(runs, key=lambda run: int(run["facts"]["started_ns"]))


@contextlib.contextmanager
def _endpoint(folder: Path) -> Iterator[tuple[str, list[tuple[int, int]]]]:
    """Start one endpoint on an empty store. Yield its URL and a list. Twice a second, an entry is added to the list:
    the time on the clock of `loadgen`, and the bytes of the endpoint's anonymous memory."""
    with (
        tempfile.TemporaryDirectory(dir=folder) as store,
        started(
            "ingeborg.broker.command.cli", "serve", "--port", "0", "--store", f"lmdb:{store}", "--dedup-ttl", "10"
        ) as found,
    ):
        url, process = found
        seen: list[tuple[int, int]] = []
        over = threading.Event()

        def watch() -> None:
            with contextlib.suppress(psutil.NoSuchProcess):
                while not over.wait(0.5):
                    memory = process.memory_info()
                    seen.append((time.monotonic_ns(), memory.rss - memory.shared))

        thread = threading.Thread(target=watch, daemon=True)
        thread.start()
        try:
            yield url, seen
        finally:
            over.set()
            thread.join()


def _phase(run: Json, kind: str) -> Json:
    found: Json = next(phase for phase in run["phases"] if phase["kind"] == kind)
    return found


# Figure 1


def traffic(full: bool) -> list[Check]:
    """Measure one endpoint with fan-out 5, at the greatest sustainable rate and at half that rate. The measurement
    takes two minutes. This machine's speed (``echo``) scales the goal for the rate."""
    speed = echo.factor()
    search = () if full else ("--start-rate", "16000", "--step-s", "2")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with _endpoint(folder) as (url, _):
            loadgen("traffic", "traffic.toml", [url], folder / "logs" / "traffic", "--processes", "2", *search)
        (run,) = digest(folder)
    found = headline(run)
    in_all = found["reports_per_s"] + found["delivered_per_s"]
    goal = IN_ALL * speed
    p99_ms, half_ms = (of["latency_ns"]["p99"] / 1e6 for of in (found, _phase(run, "half")))
    words = f"{in_all:,.0f}/s, of which in {found['reports_per_s']:,.0f}/s; lost {run['measured']['lost']}"
    return [
        Check("traffic, in and out", f"at least {goal:,.0f}/s: {IN_ALL:,} x {speed:.2f}", words, in_all >= goal),
        Check("traffic, p99", f"below {P99_MS:g} ms", f"{p99_ms:.1f} ms", p99_ms < P99_MS),
        Check("traffic, p99 at half the rate", f"below {HALF_P99_MS:g} ms", f"{half_ms:.1f} ms", half_ms < HALF_P99_MS),
    ]


# Figure 3


def topics(full: bool) -> list[Check]:
    """Measure one topic, few topics and two million topics, each on a new endpoint. The measurement takes four minutes,
    whether or not ``full`` is set. This machine's speed (``echo``) scales the goal for the subscribe rate."""
    least = SUBSCRIBE_PER_S * (speed := echo.factor())
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        most: dict[int, int] = {}
        for number in (1, FEW, TOPICS):
            words = _options({"first": number, "last": number, "messages": FEW_MESSAGES if number == FEW else TOPICS})
            with _endpoint(folder) as (url, memory):
                loadgen("topics", "topics.toml", [url], folder / "logs" / str(number), *words)
            most[number] = max(size for _, size in memory)
        runs = digest(folder)
    _, few, many = sorted(runs, key=number_of_topics)
    subscribed = _phase(many, "subscribe")["amount_per_s"]
    rates = [_phase(run, "run")["end_to_end_per_s"] for run in (few, many)]
    growth = most[TOPICS] - most[1]
    lost = sum(run["measured"]["lost"] for run in runs)
    share = rates[1] / rates[0]
    return [
        Check(
            f"topics, subscribing to {TOPICS:,}",
            f"at least {least:,.0f}/s: {SUBSCRIBE_PER_S:,} x {speed:.2f}",
            f"{subscribed:,.0f}/s",
            subscribed >= least,
        ),
        Check(
            f"topics, end to end with {TOPICS:,}",
            f"at least {END_TO_END_SHARE:.0%} of the rate with {FEW:,}",
            f"{rates[1]:,.0f}/s, {share:.0%} of {rates[0]:,.0f}/s; lost {lost}",
            share >= END_TO_END_SHARE and not lost,
        ),
        Check(
            f"topics, the endpoint's RssAnon from 1 to {TOPICS:,}",
            f"grows by less than {GROWTH_BYTES / 1e6:.0f} MB",
            f"{growth / 1e6:.0f} MB, to {most[TOPICS] / 1e6:.0f} MB at most, each with {TOPICS:,} messages",
            growth < GROWTH_BYTES,
        ),
    ]


# Figure 4


def radio(full: bool) -> list[Check]:
    """Measure the radio workload on seven endpoints. Each song is on the same number of wish lists, which are imported
    beforehand. The measurement takes three minutes. At full length (100,000 clients, ten minutes of load) it takes a
    quarter of an hour."""
    settings = [] if full else _options(RADIO_SHORT)
    processes = 8 if full else 2
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        wishes = folder / "wishes.jsonl"
        _run(
            [
                *(sys.executable, "-m", "ingeborg.loadgen.cli", "wishes", "--out", str(wishes)),
                *("--workload", str(WORKLOADS / "radio-even.toml"), *settings),
            ],
            IMPORT_S_MAX,
        )
        imported = ""

        def load(store: str) -> None:
            nonlocal imported
            imported = _run(
                [sys.executable, "-m", "ingeborg.broker.command.cli", "import", str(wishes), "--store", store],
                IMPORT_S_MAX,
            ).strip()

        allow_files(20_000)
        system = System("ingeborg", "ingeborg", serve=("--endpoints", str(RADIO_ENDPOINTS)))
        with running(system, folder / "servers", layer=False, prepare=load) as servers:
            words = ["--subscribed", "--processes", str(processes), *settings]
            loadgen("radio", "radio-even.toml", servers.urls, folder / "logs" / "radio", *words)
        (run,) = digest(folder)
    found, connect = run["measured"], _phase(run, "connect")
    p50_ms, p99_ms = (found["latency_ns"][name] / 1e6 for name in ("p50", "p99"))
    missing = found["lost"] + found["duplicated"]
    load_words = f"{found['reports_per_s']:,.0f}/s in, {found['delivered_per_s']:,.0f}/s out"
    clients = f"{connect['amount']:,} clients"
    operations = run["store_operations_per_delivered"]
    return [
        Check("radio, import", "reported", imported.splitlines()[-1], True),
        Check(
            f"radio, connecting and listening, {clients}",
            f"within {CONNECT_S:g} s",
            f"{connect['duration_s']:.0f} s",
            connect["duration_s"] <= CONNECT_S,
        ),
        Check(f"radio, p50, {clients}", f"below {RADIO_P50_MS:g} ms", f"{p50_ms:.1f} ms", p50_ms < RADIO_P50_MS),
        Check(f"radio, p99, {clients}", f"below {RADIO_P99_MS:g} ms", f"{p99_ms:.1f} ms", p99_ms < RADIO_P99_MS),
        Check(
            "radio, messages lost or delivered twice",
            "none",
            f"{found['lost']} lost, {found['duplicated']} delivered twice, of {found['delivered']:,}; {load_words}",
            not missing,
        ),
        Check(
            "radio, store operations per delivered message",
            "at most 0.01",
            f"{operations:.3f}",
            operations <= 0.01,
        ),
    ]


# Figure 7


def memory(full: bool) -> list[Check]:
    """Measure an endpoint's memory while it gets distinct payloads. The number of topics is greater than the routing
    cache holds, and the endpoint can certainly handle the rate. The measurement takes two minutes. At full length (ten
    million payloads, ten minutes of load) it takes a quarter of an hour."""
    seconds = FLOOD_FULL_S if full else FLOOD_S
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        load = {"topics": FLOOD_TOPICS, "fanout": 1, "duplicates": 0, "rate": FLOOD_PER_S, "duration_s": seconds}
        with _endpoint(folder) as (url, seen):
            words = ("--processes", "2", *_options(load))
            loadgen("traffic", "traffic.toml", [url], folder / "logs" / "flood", *words)
        (run,) = digest(folder)
    found = run["measured"]
    phase = _phase(run, "run")
    start_ns = run["facts"]["started_ns"] + int(phase["start_s"] * 1e9)
    third_ns = int(phase["duration_s"] / 3 * 1e9)
    # The first third of the load does not count, because the tables fill up during that time.
    middle, last = (
        max(size for at_ns, size in seen if start_ns + n * third_ns <= at_ns < start_ns + (n + 1) * third_ns)
        for n in (1, 2)
    )
    words_of = f"from {middle / 1e6:.0f} to {last / 1e6:.0f} MB; {found['news']:,} payloads, {found['lost']} lost"
    flat = last - middle <= FLAT_BYTES and not found["lost"]
    return [
        Check(f"memory, over {seconds} s of distinct payloads", f"at most +{FLAT_BYTES / 1e6:g} MB", words_of, flat)
    ]


BUDGETS: Mapping[str, Callable[[bool], list[Check]]] = {
    "traffic": traffic,
    "topics": topics,
    "radio": radio,
    "memory": memory,
}


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("budget", choices=BUDGETS)
    parser.add_argument("--full", action="store_true")
    options = parser.parse_args()
    print(measured(), flush=True)
    show(BUDGETS[options.budget](options.full))


if __name__ == "__main__":
    main()
