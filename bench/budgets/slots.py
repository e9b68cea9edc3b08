"""Measure slots that move with their contents: 320 MiB of pages, and a table of duplicates with a million payloads.

    python -m ingeborg.bench.budgets.slots [--only pages|duplicates] [--mib 320] [--keys 1000000]

The endpoints have their own processes and share one embedded store. In addition to the product's contents, each slot
has pages (`ingeborg.bench.micro.paged`). The program takes a minute and a half, on an idle machine.

Pages: two endpoints have all pages. A third endpoint joins, and then the first leaves in an orderly way. Publishers at
all endpoints send 600 messages per second with `ack`, and 200 pages change per second. A slot has no home from the last
action of its old home until its new home learns that it may act. The processes of both endpoints report the times of
these two events. At the end, the program compares a digest of each slot's pages with the digest of their last writes.

Duplicates: one endpoint's table is filled inside its process, without publishing. A second endpoint joins. Then the
first endpoint's table is filled again, and the first endpoint leaves. A probe sends light messages, one at a time. In
each process, a watch reports long turns of the event loop. It reports two times: the elapsed time, and the thread's CPU
time. The lesser of the two is the time that the turn itself took.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import math
import signal
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Sequence
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import orjson
import uvloop

from ingeborg.bench.errors import BenchError
from ingeborg.bench.starting import Endpoint, end_all, python
from ingeborg.protocol.hashes import SLOTS, slot_of

from .model import Check, measured, show
from .pages import Side, SideLost, digest, page
from .steady import Listener, Probe, Publisher, Sent

#: Maximum time for which a slot may have no home, and for which a publish to the slot may wait, in milliseconds.
HOMELESS_MS = 500.0
#: Two time limits, in seconds. ``JOIN_S``: how long a new endpoint waits for the copies of its slots. ``LEAVE_S``: how
#: long a leaving endpoint waits until other endpoints have copies of its slots. After that, slots move without copies.
JOIN_S, LEAVE_S = 30.0, 6.0
#: Maximum seconds for transferring a million duplicates, and maximum milliseconds for which other work may stall.
DUPLICATES_S, STALL_MS = 2.0, 10.0

#: Bytes of a page. 16 pages are a chunk of 64 KiB.
PAGE_BYTES = 4096
#: Messages per second of all publishers together, the number of their topics, and the number of page changes per
#: second.
PUBLISHES_PER_S, TOPICS, CHANGES_PER_S = 600.0, 512, 200.0
#: Seconds for connections and caches to settle, seconds of measuring before slots move, and seconds of measuring after
#: the move.
SETTLE_S, BEFORE_S, AFTER_S = 2.0, 5.0, 1.0
#: Number of topics of a probe. Messages count as sent during a move until ``MEANWHILE_S`` seconds after the arrival of
#: the last slot.
PROBE_TOPICS, MEANWHILE_S = 16, 0.2
#: The longest wait for the last answers at the end, and the time between two checks for them, in seconds.
ANSWER_S, LOOK_S = 15.0, 0.05
#: Pause before another attempt to write a page whose slot has no acting home, in seconds. The measured wait for a home
#: is only as precise as this pause.
RETRY_S = 0.005

Json = dict[str, Any]


class Node:
    """An endpoint with pages, and its side channel."""

    def __init__(self, name: str, folder: Path, **variables: str) -> None:
        self.name = name
        self._socket = folder / f"{name}.side"
        store = f"lmdb:{folder / 'store'}"
        options = ["--watch", "--side", str(self._socket), "--store", store, "--dedup-ttl", "900"]
        serving = python("ingeborg.bench.micro.paged")
        self.endpoint = Endpoint(name, options, folder, variables, serving=serving)

    async def start(self) -> None:
        """Start the endpoint, and wait until it acts for its slots and its side channel is open."""
        await self.endpoint.start()
        self.side = await Side.opened(self._socket, ANSWER_S)

    async def leave(self) -> Json:
        """Let the endpoint leave in an orderly way, wait for its end, and return its report."""
        self.endpoint.signal(signal.SIGTERM)
        if code := await self.endpoint.ended():
            raise BenchError(f"endpoint {self.name} ended with {code}: {self.endpoint.said()[-2000:]}")
        await self.side.close()
        told: Json = orjson.loads(self._socket.with_suffix(".last").read_bytes())
        return told


@contextlib.asynccontextmanager
async def _nodes(names: str, **variables: str) -> AsyncIterator[list[Node]]:
    """Yield endpoints that are not started yet."""
    with tempfile.TemporaryDirectory() as folder:
        nodes = [Node(name, Path(folder), **variables) for name in names]
        try:
            yield nodes
        except ExceptionGroup as errors:  # if many failed, one reason is enough
            raise errors.exceptions[0] from None
        finally:
            await end_all([node.endpoint for node in nodes])


class Move(NamedTuple):
    """A move of slots, combined from the processes' reports. ``begun_ns`` and ``over_ns`` are times in nanoseconds.
    ``without_ms`` is the longest time for which a slot had no home. ``in_part`` counts slots that arrived incomplete,
    and ``lost`` counts slots whose arrival no process has reported."""

    begun_ns: int
    over_ns: int
    slots: frozenset[int]
    without_ms: float
    in_part: int
    lost: int

    @property
    def took_s(self) -> float:
        """Return the seconds from the first copy until the last slot was at its next home."""
        return (self.over_ns - self.begun_ns) / 1e9


def move(told: Iterable[Json], since_ns: int, until_ns: int) -> Move:
    """Combine the reports on slots that were released between these two times."""
    told = list(told)
    arrivals: dict[int, list[tuple[int, bool]]] = {}
    for each in told:
        for at_ns, what, slots, whole in each["told"]:
            for slot in slots if what == "arrived" else ():
                arrivals.setdefault(slot, []).append((at_ns, whole))
    begun_ns = min((at for each in told for at, count in each["copies"] if count and at >= since_ns), default=until_ns)
    moved: set[int] = set()
    longest_ns = over_ns = in_part = lost = 0
    for at_ns, slots in (row for each in told for row in each["let_go"]):
        if not since_ns <= at_ns < until_ns:
            continue
        moved.update(slots)
        for slot in slots:
            after = [arrival for arrival in arrivals.get(slot, ()) if arrival[0] >= at_ns]
            if not after:
                lost += 1
                continue
            arrived_ns, whole = min(after)
            longest_ns = max(longest_ns, arrived_ns - at_ns)
            over_ns = max(over_ns, arrived_ns)
            in_part += not whole
    without_ms = math.inf if lost else longest_ns / 1e6
    return Move(begun_ns, over_ns or until_ns, frozenset(moved), without_ms, in_part, lost)


# -- pages


class Pages(NamedTuple):
    """The result of the measurement with pages. ``before``, ``joining`` and ``leaving`` are the messages that were due
    before an endpoint joined, while it joined, and while another left. They are messages of publishers whose endpoint
    stays. ``going`` are the messages of the publisher at the leaving endpoint while that endpoint leaves. ``moves`` has
    both moves, and ``moved_mib`` the MiB of copies that were sent in each move. ``resent`` counts messages that had no
    reply when their endpoint left, and were sent again. ``unheard`` counts messages that the subscriber did not get.
    ``paused_ms`` has the length of each pause of a connection."""

    before: list[Sent]
    joining: list[Sent]
    leaving: list[Sent]
    going: list[Sent]
    moves: tuple[Move, Move]
    moved_mib: tuple[float, float]
    refused: Counter[str]
    unanswered: int
    resent: int
    unheard: int
    paused_ms: list[float]
    pages: int
    changes: int
    wrong_slots: int
    waited_ms: float


class _Changes:
    """Changes pages at a steady rate, each at the home of its slot, and remembers their last writes."""

    def __init__(self, nodes: Sequence[Node], each: int) -> None:
        self.nodes = list(nodes)
        self._each = each
        self._random = Random(1)
        self._homes: dict[int, Node] = {}
        self._under_way: set[tuple[int, int]] = set()
        self.versions: Counter[tuple[int, int]] = Counter()
        self.waited_ms = 0.0  # the longest wait for a home that accepted the page

    async def go_on(self, stop: asyncio.Event) -> None:
        """Change pages until ``stop``."""
        began_s = time.monotonic()
        async with asyncio.TaskGroup() as tasks:
            number = 0
            while not stop.is_set():
                key = self._random.randrange(SLOTS), self._random.randrange(self._each)
                if key not in self._under_way:
                    tasks.create_task(self._change(key))
                number += 1
                await asyncio.sleep(max(0.0, began_s + number / CHANGES_PER_S - time.monotonic()))

    async def _change(self, key: tuple[int, int]) -> None:
        self._under_way.add(key)
        slot, number = key
        began_s = time.monotonic()
        while True:
            node = self._homes.get(slot, self.nodes[0])
            try:
                fields = {"slot": slot, "number": number, "version": self.versions[key] + 1, "size": PAGE_BYTES}
                answer = await node.side.ask("write", **fields)
            except SideLost:
                answer = {"yes": False, "home": ""}  # the endpoint has left, and accepts no more pages
            if answer["yes"]:
                break
            others = [other for other in self.nodes if other is not node]
            named = [other for other in others if other.name == answer["home"]]
            self._homes[slot] = self._random.choice(named or others)
            await asyncio.sleep(RETRY_S if time.monotonic() - began_s > RETRY_S else 0)
        self.waited_ms = max(self.waited_ms, (time.monotonic() - began_s) * 1e3)
        self.versions[key] += 1
        self._under_way.remove(key)


async def measure_pages(mib: int, before_s: float = BEFORE_S) -> Pages:
    """Measure the moves of pages once. Raises ``BenchError``."""
    each = max(mib * (1 << 20) // PAGE_BYTES // SLOTS, 1)
    topics = [f"slots {number}" for number in range(TOPICS)]
    stop = asyncio.Event()
    async with _nodes("abc") as (a, b, c), asyncio.TaskGroup() as tasks:
        for node in (a, b):
            await node.start()
        filled = [await node.side.ask("fill", within_s=120.0, pages=each, size=PAGE_BYTES) for node in (a, b)]
        pages = sum(answer["pages"] for answer in filled)
        if pages != each * SLOTS:
            raise BenchError(f"{pages:,} pages were filled instead of {each * SLOTS:,}")
        listener = Listener("listener", [b.endpoint.url], topics)
        await listener.begin()
        urls = [node.endpoint.url for node in (b, c, a)]
        publishers: list[Publisher] = []

        async def publish_at(node: Node, per_s: float) -> None:
            mine = [node.endpoint.url, *(url for url in urls if url != node.endpoint.url)]
            publishers.append(publisher := Publisher(f"publisher {len(publishers)}", mine, topics, per_s))
            await publisher.open()
            tasks.create_task(publisher.publish(stop))
            keepers.append(tasks.create_task(publisher.keep()))

        keepers: list[asyncio.Task[None]] = []
        for node in (a, b):
            await publish_at(node, PUBLISHES_PER_S / 3)
        changes = _Changes([a, b], each)
        changing = tasks.create_task(changes.go_on(stop))
        await asyncio.sleep(SETTLE_S)

        before_ns = time.monotonic_ns()
        await asyncio.sleep(before_s)
        joins_ns = time.monotonic_ns()
        await c.start()
        changes.nodes.append(c)
        await publish_at(c, PUBLISHES_PER_S / 3)
        await asyncio.sleep(AFTER_S)
        copied = [(await node.side.ask("told"))["counts"].get("replicated_bytes", 0) for node in (a, b)]
        await asyncio.sleep(SETTLE_S)
        leaves_ns = time.monotonic_ns()
        of_a = await a.leave()
        changes.nodes.remove(a)
        await asyncio.sleep(AFTER_S)
        end_ns = time.monotonic_ns()

        stop.set()
        await changing
        for _ in range(int(ANSWER_S / LOOK_S)):
            if listener.heard >= sum(len(one.sent) + one.unanswered for one in publishers):
                break
            await asyncio.sleep(LOOK_S)
        told = [of_a, await b.side.ask("told"), await c.side.ask("told")]
        wrong = await _wrong_slots((b, c), each, changes.versions)
        for task in keepers:
            task.cancel()
    sent = [one for publisher in publishers for one in publisher.sent]
    refused: Counter[str] = Counter()
    for publisher in publishers:
        refused += publisher.refused

    def due(since_ns: int, until_ns: int, those: Sequence[Sent] = sent) -> list[Sent]:
        return [one for one in those if since_ns <= one.due_ns < until_ns]

    at_a, *others = publishers

    return Pages(
        due(before_ns, joins_ns),
        due(joins_ns, leaves_ns),
        due(leaves_ns, end_ns, [one for publisher in others for one in publisher.sent]),
        due(leaves_ns, end_ns, at_a.sent),
        (move(told, joins_ns, leaves_ns), move(told, leaves_ns, end_ns)),
        (sum(copied) / (1 << 20), (of_a["counts"]["replicated_bytes"] - copied[0]) / (1 << 20)),
        refused,
        sum(publisher.unanswered for publisher in publishers),
        sum(publisher.repeated for publisher in publishers),
        len(sent) - listener.heard,
        [paused_us / 1e3 for process in told for at_ns, paused_us in process["paused"] if at_ns >= before_ns],
        pages,
        changes.versions.total(),
        wrong,
        changes.waited_ms,
    )


async def _wrong_slots(nodes: Sequence[Node], each: int, versions: Counter[tuple[int, int]]) -> int:
    """Return the number of wrong slots. A slot is right if exactly one endpoint has it, with exactly the pages of the
    last writes."""
    slots = list(range(SLOTS))
    found = [(await node.side.ask("digests", within_s=120.0, slots=slots))["digests"] for node in nodes]
    wrong = 0
    for slot, at in enumerate(zip(*found, strict=True)):
        there = [mine for mine in at if mine]
        wrong += there != [digest(page(slot, number, versions[slot, number], PAGE_BYTES) for number in range(each))]
    return wrong


def percentile(of: Iterable[Sent], share: float) -> float:
    """Return this percentile of the latency in milliseconds, or 0 if there are no messages."""
    sorted_ms = sorted(one.ms for one in of)
    return sorted_ms[min(int(len(sorted_ms) * share), len(sorted_ms) - 1)] if sorted_ms else 0.0


def _latency(of: Iterable[Sent]) -> str:
    sent = list(of)
    return f"p99 {percentile(sent, 0.99):.1f} ms, max {percentile(sent, 1.0):.0f} ms"


def checks_of_pages(found: Pages) -> list[Check]:
    """Judge each figure while an endpoint joins, and while one leaves."""
    rows = []
    for word, one, mib, sent, most_s in zip(
        ("joins", "leaves"),
        found.moves,
        found.moved_mib,
        (found.joining, found.leaving),
        (JOIN_S, LEAVE_S),
        strict=True,
    ):
        text = f"{one.without_ms:.0f} ms at most, of {len(one.slots):,} slots"
        figure = f"an endpoint {word}: a slot without a home"
        rows.append(Check(figure, f"at most {HOMELESS_MS:g} ms", text, one.without_ms <= HOMELESS_MS))
        moving = [message for message in sent if message.slot in one.slots]
        others = [message for message in sent if message.slot not in one.slots]
        going = f"; for publishers that have to move {_latency(found.going)}" if sent is found.leaving else ""
        text = f"{_latency(moving)}; to other slots {_latency(others)}; before the move {_latency(found.before)}{going}"
        goal = f"at most {HOMELESS_MS:g} ms"
        is_met = bool(moving) and percentile(moving, 1.0) <= HOMELESS_MS
        rows.append(
            Check(f"an endpoint {word}: time from a publish to its reply, if its slot moves", goal, text, is_met)
        )
        text = f"{mib:.0f} MiB in {one.took_s:.1f} s, {mib / one.took_s if one.took_s else 0:.0f} MiB/s"
        rows.append(Check(f"an endpoint {word}: copies", f"within {most_s:g} s", text, one.took_s <= most_s))
    count = sum(map(len, (found.before, found.joining, found.leaving, found.going)))
    refused = found.refused.total() + found.unanswered
    text = f"{refused:,} of {count:,}; {found.unheard:,} not delivered; {found.resent:,} sent again to another endpoint"
    rows.append(Check("publishes refused or unanswered", "none", text, not refused and found.unheard <= 0))
    text = f"{len(found.paused_ms):,} times, {max(found.paused_ms, default=0.0):.0f} ms at most"
    rows.append(Check("publishers whose connection was paused", "none", text, not found.paused_ms))
    in_part = sum(one.in_part + one.lost for one in found.moves)
    text = (
        f"{SLOTS - found.wrong_slots:,} of {SLOTS:,} slots right, {found.pages:,} pages, {found.changes:,} changes (a "
        f"change waited {found.waited_ms:.0f} ms at most); {in_part:,} slots arrived incomplete"
    )
    rows.append(Check("pages complete at their new homes", "all", text, not found.wrong_slots and not in_part))
    return rows


# -- duplicates


class Handed(NamedTuple):
    """One transfer of duplicates. ``keys`` is the number of transferred keys. ``stalls`` has the longest turns of each
    process, before the move and during the move. ``staying`` and ``moving`` are the probe's messages to topics whose
    slots stay, and to topics whose slots move."""

    keys: int
    move: Move
    stalls: dict[str, tuple[Stall, Stall]]
    before: list[Sent]
    staying: list[Sent]
    moving: list[Sent]


class Stall(NamedTuple):
    """The longest turns of a loop, in milliseconds. ``own_ms`` counts only the time while its thread had the CPU.
    ``clock_ms`` also counts the time of other programs on the machine."""

    own_ms: float
    clock_ms: float


def stall(told: Json, since_ns: int, until_ns: int) -> Stall:
    """Return the longest turns within this time. Short turns are not in the report, and count as 0."""
    turns = [(late_us, used_us) for at_ns, late_us, used_us in told["turns"] if since_ns <= at_ns < until_ns]
    own_us = max((min(turn) for turn in turns), default=0)
    return Stall(own_us / 1e3, max((late_us for late_us, _ in turns), default=0) / 1e3)


async def measure_duplicates(keys: int, before_s: float = BEFORE_S) -> tuple[Handed, Handed]:
    """Measure one transfer of duplicates when an endpoint joins, and one when an endpoint leaves. Raises
    ``BenchError``."""
    async with _nodes("ab", INGEBORG_MAX_DUPLICATE_KEYS=str(2 * keys)) as (a, b):
        await a.start()
        await a.side.ask("seen", within_s=120.0, keys=keys)
        homes = (await a.side.ask("homes", names=["a", "b"]))["homes"]
        topics = {name: _topics(homes, name) for name in "ab"}

        async with _probing(a, topics) as (probes, began_ns):
            await asyncio.sleep(before_s)
            joins_ns = time.monotonic_ns()
            await b.start()
            await asyncio.sleep(AFTER_S)
            told = {"a": await a.side.ask("told"), "b": await b.side.ask("told")}
        handed = told["b"]["keys"]
        joined = _handed(handed, told, (began_ns, joins_ns, time.monotonic_ns()), probes["a"], probes["b"])

        # Add new keys. The table also still holds the transferred keys, but they belong to slots of the other endpoint.
        await a.side.ask("seen", within_s=120.0, keys=handed)
        async with _probing(b, topics) as (probes, began_ns):
            await asyncio.sleep(before_s)
            leaves_ns = time.monotonic_ns()
            of_a = await a.leave()
            await asyncio.sleep(AFTER_S)
            told = {"a": of_a, "b": await b.side.ask("told")}
        times = began_ns, leaves_ns, time.monotonic_ns()
        return joined, _handed(told["b"]["keys"] - handed, told, times, probes["b"], probes["a"])


def _topics(homes: Sequence[str], name: str) -> list[str]:
    """Return some topics whose slots this endpoint has."""
    topics = (f"probe {number}" for number in itertools.count())
    return list(itertools.islice((topic for topic in topics if homes[slot_of(topic)] == name), PROBE_TOPICS))


@contextlib.asynccontextmanager
async def _probing(at: Node, topics: dict[str, list[str]]) -> AsyncIterator[tuple[dict[str, Probe], int]]:
    """Run probes at one endpoint. Yield the probes, by the endpoint that has their topics' slots, and the time from
    which their messages count."""
    stop = asyncio.Event()
    probes = {name: Probe(f"probe at {at.name} {name}", at.endpoint.url, some) for name, some in topics.items()}
    for probe in probes.values():
        await probe.begin()
    async with asyncio.TaskGroup() as tasks:
        for probe in probes.values():
            tasks.create_task(probe.probe(stop))
        try:
            await asyncio.sleep(SETTLE_S)
            yield probes, time.monotonic_ns()
        finally:
            stop.set()
    for probe in probes.values():
        await probe.close()
        if probe.lost_messages:
            raise BenchError(f"{probe.lost_messages:,} messages of the probe did not arrive")


def _handed(keys: int, told: dict[str, Json], times: tuple[int, int, int], stays: Probe, moves: Probe) -> Handed:
    began_ns, begins_ns, over_ns = times
    moved = move(told.values(), begins_ns, over_ns)
    until_ns = moved.over_ns + int(MEANWHILE_S * 1e9)
    stalls = {
        name: (stall(each, began_ns, begins_ns), stall(each, moved.begun_ns, until_ns)) for name, each in told.items()
    }

    def meanwhile(probe: Probe) -> list[Sent]:
        return [one for one in probe.sent if one.over_ns > moved.begun_ns and one.due_ns < until_ns]

    before = [one for probe in (stays, moves) for one in probe.sent if began_ns <= one.due_ns < begins_ns]
    return Handed(keys, moved, stalls, before, meanwhile(stays), meanwhile(moves))


def checks_of_duplicates(found: tuple[Handed, Handed]) -> list[Check]:
    """Judge each figure while an endpoint joins, and while one leaves."""
    rows = []
    for word, one in zip(("joins", "leaves"), found, strict=True):
        text = (
            f"{one.keys:,} in {one.move.took_s:.2f} s (put into the table without publishing); "
            f"a slot without a home for {one.move.without_ms:.0f} ms at most"
        )
        is_met = one.keys > 0 and one.move.took_s <= DUPLICATES_S and not one.move.in_part + one.move.lost
        rows.append(Check(f"an endpoint {word}: payloads transferred", f"within {DUPLICATES_S:g} s", text, is_met))
        for name, (before, meanwhile) in one.stalls.items():
            text = (
                f"{meanwhile.own_ms:.1f} ms (with other programs {meanwhile.clock_ms:.1f} ms; "
                f"before {before.own_ms:.1f} and {before.clock_ms:.1f} ms)"
            )
            figure = f"an endpoint {word}: longest turn of the loop of {name}"
            rows.append(Check(figure, f"at most {STALL_MS:g} ms", text, meanwhile.own_ms <= STALL_MS))
        extra_ms = percentile(one.staying, 1.0) - percentile(one.before, 1.0)
        text = (
            f"{extra_ms:+.1f} ms ({_latency(one.staying)}; before {_latency(one.before)}; "
            f"to slots that move {_latency(one.moving)})"
        )
        figure = f"an endpoint {word}: largest latency of a probe to slots that stay, compared with before"
        rows.append(Check(figure, f"at most {STALL_MS:g} ms more", text, extra_ms <= STALL_MS))
    return rows


# -- both measurements

ONLY = ("pages", "duplicates")


def measure(only: Sequence[str] = ONLY, mib: int = 320, keys: int = 1_000_000) -> list[Check]:
    """Measure the wanted parts, one at a time. Raises ``BenchError``."""
    found: list[Check] = []
    if "pages" in only:
        found += checks_of_pages(uvloop.run(measure_pages(mib)))
    if "duplicates" in only:
        found += checks_of_duplicates(uvloop.run(measure_duplicates(keys)))
    return found


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", choices=ONLY, nargs="+", default=ONLY)
    parser.add_argument("--mib", type=int, default=320)
    parser.add_argument("--keys", type=int, default=1_000_000)
    options = parser.parse_args()
    print(measured(), flush=True)
    try:
        show(measure(options.only, options.mib, options.keys))
    except BenchError as error:
        parser.exit(1, f"{error}\n")


if __name__ == "__main__":
    main()
