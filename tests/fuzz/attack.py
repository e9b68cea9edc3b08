"""Malformed frames, commands and requests against a real endpoint, by the million, while other clients use it normally.

    python -m tests.fuzz.attack --count 1000000 [--seed 1] [--tls]

Owns: the endpoint, the witnesses (clients that behave), and the comparison of states before and after. Must never: send
anything malformed itself; the attacker is a separate process, so that it does not add to the witnesses' latencies.

Exits with 1 if an answer was wrong, a witness missed something, or the endpoint did not return to its former state.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
import uvloop

from ingeborg.protocol.client import Client, ClientError
from ingeborg.protocol.errors import ProtocolError
from ingeborg.protocol.pages import fetch, samples
from tests.broker.running import COMPLAINT, PATIENCE_S, form_of, over_tls, serving
from tests.broker.transports import Authority

#: Witnesses, and the rate per second at which each publishes to the next one.
WITNESSES, PER_S = 4, 25.0
#: Malformed things sent before the comparison, so that caches, allocators and the collector settle.
WARM_UP = 5_000
#: Seconds of measuring the witnesses without an attack.
QUIET_S = 5.0
#: The permitted growth of the endpoint's memory: parts of frames of 64 connections, of up to 100 kB each, and the
#: allocator's reserves.
GROWTH_BYTES_MAX = 40_000_000
#: An attack of a million takes some minutes. This is the longest time for each thing sent, and for the rest.
SECONDS_EACH_MAX, SECONDS_MORE = 0.01, 120.0

#: Expected log lines about the attack, and about a machine that has too much to do.
_RIGHT = re.compile(r"no link with 127\.0\.0\.1: |not ready: the store does not answer")


class Witness:
    """A client that subscribes to a topic of its own, and publishes to another witness's."""

    def __init__(self, url: str, number: int) -> None:
        self.name = f"witness {number}"
        self.published = 0
        self.failed: list[str] = []
        self.heard: Counter[int] = Counter()
        self.latencies_s: list[float] = []
        self.client = Client(
            url, self.name, listen=True, timeout_s=PATIENCE_S, backoff_max_s=0.5, on_notification=self._note
        )
        self._next = f"witness {(number + 1) % WITNESSES}"

    def _note(self, key: str | None, payload: Any) -> None:
        if key == self.name:
            self.heard[payload["number"]] += 1
            self.latencies_s.append(time.monotonic() - payload["at"])

    async def run(self) -> None:
        """Publish by the clock, without waiting for an answer before the next publish."""
        began = time.monotonic()
        async with asyncio.TaskGroup() as group:
            try:
                while True:
                    group.create_task(self._publish(self.published))
                    self.published += 1
                    await asyncio.sleep(max(0.0, began + self.published / PER_S - time.monotonic()))
            except asyncio.CancelledError:
                asyncio.current_task().uncancel()  # type: ignore[union-attr]

    async def _publish(self, number: int) -> None:
        try:
            await self.client.publish(self._next, {"number": number, "at": time.monotonic()}, ack=True)
        except (ClientError, ProtocolError) as error:
            self.failed.append(str(error))


@dataclass
class State:
    """The endpoint's state at one moment."""

    memory_bytes: float
    files: int
    metrics: dict[str, float]


@dataclass
class Found:
    """The result of an attack. ``missed``: publishes of witnesses that did not come exactly once; ``failed``: those
    without an acknowledgement; ``lost``: the witnesses' lost connections. Latencies in seconds, sorted."""

    told: dict[str, Any]
    before: State
    after: State
    said: str
    published: int = 0
    missed: int = 0
    failed: list[str] = field(default_factory=list)
    lost: int = 0
    quiet_s: list[float] = field(default_factory=list)
    attacked_s: list[float] = field(default_factory=list)

    @property
    def grown_bytes(self) -> float:
        """Return the growth of the endpoint's memory."""
        return self.after.memory_bytes - self.before.memory_bytes

    def complaints(self) -> list[str]:
        """Return the unexpected complaints in the endpoint's log. It may log reasons for refused handshakes of
        endpoints, each at intervals, and that the machine did not let it run for some seconds."""
        lines = [line for line in self.said.splitlines() if COMPLAINT.search(line)]
        return [line for line in lines if not _RIGHT.search(line)]

    def faults(self) -> list[str]:
        """Return a description of each fault."""
        metrics = self.after.metrics
        wrong = [
            (self.told["surprised"], f"wrong answers, such as {self.told['surprises'][:3]}"),
            (self.missed, "publishes of the witnesses that did not come exactly once"),
            (len(self.failed), f"publishes of the witnesses that failed, such as {self.failed[:3]}"),
            (self.lost, "connections of the witnesses that were lost"),
            (int(metrics["ingeborg_turns_failed_total"]), "turns failed"),
            (self.said.count("Traceback"), "tracebacks in the endpoint's log"),
            (len(complaints := self.complaints()), f"other complaints in the endpoint's log, such as {complaints[:3]}"),
            (max(self.after.files - self.before.files, 0), "more open files than before"),
            (int(metrics["ingeborg_connections"]) - WITNESSES, "connections left"),
            (int(metrics["ingeborg_clients"]) - WITNESSES, "clients left"),
        ]
        found = [f"{count:,} {what}" for count, what in wrong if count]
        if self.grown_bytes > GROWTH_BYTES_MAX:
            found.append(f"memory grew by {self.grown_bytes / 1e6:.1f} MB")
        return found


async def attack(count: int, seed: int, directory: Path, *, quiet_s: float = QUIET_S) -> Found:
    """Run an attack against an endpoint on an empty store in the directory; within ``over_tls``, over TLS."""
    async with AsyncExitStack() as stack:
        process, url = await stack.enter_async_context(serving(directory))
        print(f"at an endpoint that is {await form_of(url)}, at {url}\n", flush=True)
        witnesses = [Witness(url, number) for number in range(WITNESSES)]
        for witness in witnesses:
            await stack.enter_async_context(witness.client)
            await witness.client.subscribe(witness.name)
        async with publishing(witnesses):
            await _attacked(url, WARM_UP, seed + 1)
            before = await _state(process.pid, url)
            for witness in witnesses:
                witness.latencies_s.clear()
            await asyncio.sleep(quiet_s)
            quiet_s_each = [latency for witness in witnesses for latency in witness.latencies_s]
            for witness in witnesses:
                witness.latencies_s.clear()
            told = await _attacked(url, count, seed)
            attacked_s = [latency for witness in witnesses for latency in witness.latencies_s]
        await _all_heard(witnesses)
        after = await _state(process.pid, url, files=before.files)
        found = Found(told, before, after, process.said())
        for number, witness in enumerate(witnesses):
            heard = witnesses[(number + 1) % WITNESSES].heard
            found.published += witness.published
            found.missed += sum(heard[each] != 1 for each in range(witness.published))
            found.failed += witness.failed
            found.lost += witness.client.reconnects
        found.quiet_s, found.attacked_s = sorted(quiet_s_each), sorted(attacked_s)
        return found


@asynccontextmanager
async def publishing(witnesses: list[Witness]) -> AsyncIterator[None]:
    """Let the witnesses publish meanwhile."""
    tasks = [asyncio.create_task(witness.run()) for witness in witnesses]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks)


async def _all_heard(witnesses: list[Witness]) -> None:
    """Wait until every message has come. Messages that do not come in time are missed."""
    try:
        async with asyncio.timeout(PATIENCE_S):
            for number, witness in enumerate(witnesses):
                while len(witnesses[(number + 1) % WITNESSES].heard) < witness.published:  # noqa: ASYNC110
                    await asyncio.sleep(0.02)
    except TimeoutError:
        pass  # `missed` counts them


async def _attacked(url: str, count: int, seed: int) -> dict[str, Any]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.fuzz.attacker", url, str(count), str(seed)), stdout=asyncio.subprocess.PIPE
    )
    try:
        async with asyncio.timeout(count * SECONDS_EACH_MAX + SECONDS_MORE):
            out, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 0, "the attacker failed; standard error has its reason"
    told: dict[str, Any] = orjson.loads(out)
    return told


async def _state(pid: int, url: str, files: int | None = None) -> State:
    """Return the state once only the witnesses' connections and no additional files are open, or after a time-out."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        page = await fetch(url, "/metrics")
        metrics = {sample.series: sample.value for sample in samples(page.text)}
        await asyncio.sleep(0.1)  # until the page's own connection is closed
        open_files = len(os.listdir(f"/proc/{pid}/fd"))
        settled = metrics["ingeborg_connections"] == WITNESSES and (files is None or open_files <= files)
        if settled or time.monotonic() > deadline:
            return State(metrics["process_resident_memory_bytes"], open_files, metrics)


def percentile_ms(ordered: list[float], percent: float) -> float:
    """Return a percentile of seconds by nearest rank; 0 for an empty list."""
    return 1000 * ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))] if ordered else 0.0


def table(found: Found) -> str:
    """Return the result for people, as Markdown."""
    told = found.told
    sent = sum(told["kinds"].values())
    rows = [("malformed", "sent"), *((kind, f"{count:,}") for kind, count in sorted(told["kinds"].items()))]
    parts = [_markdown([*rows, ("in all", f"{sent:,}")])]
    by_count = sorted(told["answers"].items(), key=lambda item: -item[1])
    parts.append(_markdown([("answer", "times"), *((answer, f"{count:,}") for answer, count in by_count)]))
    others: list[tuple[str, ...]] = [("of the others", "without the attack", "with it")]
    others += [
        (name, f"{percentile_ms(found.quiet_s, percent):.1f} ms", f"{percentile_ms(found.attacked_s, percent):.1f} ms")
        for name, percent in (("p50", 50.0), ("p99", 99.0), ("most", 100.0))
    ]
    memory = [f"{state.memory_bytes / 1e6:.1f} MB" for state in (found.before, found.after)]
    others += [
        ("messages heard", f"{len(found.quiet_s):,}", f"{len(found.attacked_s):,}"),
        ("endpoint's memory, before and after", *memory),
        ("files open, before and after", str(found.before.files), str(found.after.files)),
    ]
    parts.append(_markdown(others))
    parts.append(
        f"{sent:,} in {told['seconds']:.0f} s ({sent / told['seconds']:,.0f}/s), {told['connections']:,} connections; "
        f"{found.published:,} published by the others, {found.missed:,} missed, {len(found.failed):,} failed\n"
    )
    return "\n".join(parts)


def _markdown(rows: list[tuple[str, ...]]) -> str:
    head, *body = rows
    lines = [head, ("---", *("---:" for _ in head[1:])), *body]
    return "".join(f"| {' | '.join(row)} |\n" for row in lines)


def main() -> int:
    """Run the command. Returns the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--count", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--tls", action="store_true", help="over TLS, and at TLS itself")
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="ingeborg-attack-") as directory,
        over_tls(Authority(Path(directory))) if options.tls else nullcontext(),
    ):
        found = uvloop.run(attack(options.count, options.seed, Path(directory)))
    print(table(found))
    faults = found.faults()
    for fault in faults:
        print(f"FAULT {fault}")
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main())
