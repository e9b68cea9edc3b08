"""Legal but hostile connections against a real endpoint: what does a bystander notice, and what memory does it take?

    python -m tests.fuzz.hostile [--tls] [SCENARIO …]
    python -m tests.fuzz.hostile --turns 5 posts lists slow-bodies   # with and without the traffic, by turns

Owns: the scenarios, the bystander, and the two bounds. Must never: send from the bystander's process; the hostile
clients are a separate process, so that they do not add to the latencies measured here.

Every scenario has two new endpoints on an empty store. The bystander listens and publishes at both, ``PER_S`` times a
second, to topics with homes at either. The program exits with 1 if a message was later than ``LATE_S_MAX`` in each of
``TRIES`` plays. It also exits with 1 if in one play a lease lapsed, a publish failed or was missed, an endpoint logged
an unexpected line, or the memory of the endpoint or its reader exceeded its bound.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import os
import re
import sys
import tempfile
import time
import zlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import orjson
import uvloop

from ingeborg import form
from ingeborg.protocol.client import Client, ClientError
from ingeborg.protocol.errors import ProtocolError
from ingeborg.protocol.hashes import slot_of
from ingeborg.protocol.lines import LINES
from ingeborg.protocol.pages import fetch, samples
from tests.broker.running import (
    COMPLAINT,
    PATIENCE_S,
    children,
    form_of,
    ingeborg,
    over_tls,
    raw_frame,
    scheme,
    serving_tls,
)
from tests.broker.transports import Authority

from .attack import percentile_ms
from .hostile_connections import Hostile, MiB, connect
from .hostile_http import PLAYS

#: Expected log lines: on a machine that has too much to do, on an end while a million changes are under way, and on
#: clients that go on sending after the close.
_RIGHT = re.compile(
    r"not ready: the store does not answer|could not (hand over to the other endpoints|finish everything) within"
    r"|clients did not answer the close"
)

#: How late a bystander's message may be, in seconds.
LATE_S_MAX = 0.050

#: The bystander's publishes a second, to each of its two topics.
PER_S = 100.0

#: Seconds of measuring before the hostile connection begins, and of the hostile connection. With ``--turns``, each of
#: the two takes ``TURN_S``.
QUIET_S, HOSTILE_S, TURN_S = 1.0, 4.0, 10.0

#: A scenario with a late message runs again: the endpoint's delays recur each time, and the machine's do not.
TRIES = 3

#: The largest frame of the hostile connections: the default limit.
FRAME_BYTES = 16 * MiB

#: The limit on data that all connections of the endpoint hold together in these runs, and on the growth of the process.
#: The process also has caches, and a second copy of a frame while it reads the frame.
HELD_BYTES_MAX = 128 * MiB
GROWTH_BYTES_MAX = 256 * MiB

#: The limit on its reader's memory. The reader has one frame at a time.
READER_BYTES_MAX = 512 * MiB


# -- Hostile traffic


def _filled(head: bytes, unit: bytes, tail: bytes, size: int = FRAME_BYTES) -> bytes:
    """Return a JSON text of at most ``size`` bytes: a list of as many units as fit."""
    count = (size - len(head) - len(tail)) // (len(unit) + 1)
    return head + b",".join([unit] * count) + tail


def _numbered(head: bytes, form: bytes, tail: bytes, size: int = FRAME_BYTES) -> bytes:
    unit = len(form % 1_000_000) + 1
    return head + b",".join(form % (1_000_000 + n) for n in range((size - len(head) - len(tail)) // unit)) + tail


_LISTEN = b'{"command":"listen","client_id":"h"}\n'
_PUBLISH = b'{"command":"publish","client_id":"h","topic":"t","x":'
_PAYLOAD = b'{"command":"publish","client_id":"h","topic":"t","dedup":false,"payload":'


def _texts(name: str, size: int) -> bytes:
    texts = {
        "integers": lambda: _filled(_PUBLISH + b"[1234567890123456789,", b"1", b'],"payload":1}', size),
        "long integers": lambda: _filled(_PUBLISH + b"[", b"1234567890123456789", b'],"payload":1}', size),
        "nested lists": lambda: _filled(_PUBLISH + b"[", b"[]", b'],"payload":1}', size),
        "escaped colons": lambda: _filled(_PUBLISH + b"[", b'{"\\u003a":1}', b'],"payload":1}', size),
        "empty strings": lambda: _filled(
            _PUBLISH + b'["\\u003a:",', b'""', b',1234567890123456789],"payload":1}', size
        ),
        "keys": lambda: _numbered(_PUBLISH + b"{", b'"%d":1', b',"\\u003a":":"},"payload":1}', size),
        "payload": lambda: _filled(_PAYLOAD + b"[", b"[]", b"]}", min(size, MiB)),
        "not ASCII": lambda: _PUBLISH + b'"' + "a€b𝄞".encode() * ((size - 100) // 9) + b'","payload":1}',
        "subscribe": lambda: _numbered(b'{"command":"subscribe","client_id":"h","topic":[', b'"song %d"', b"]}", size),
        "until": lambda: _numbered(
            b'{"command":"subscribe","client_id":"h","until":"disconnect","topic":[', b'"song %d"', b"]}", size
        ),
        "filter": lambda: _numbered(
            b'{"command":"subscribe","client_id":"h","topic":"t","filter":{"a":[', b'"song %d"', b"]}}", size
        ),
        "unsubscribe": lambda: _numbered(
            b'{"command":"unsubscribe","client_id":"h","topic":[', b'"song %d"', b"]}", size
        ),
    }
    return texts[name]()


def frames_of(name: str, size: int = FRAME_BYTES) -> Callable[[str], Awaitable[None]]:
    """Send one such frame after the other on one connection, as fast as the endpoint takes them."""

    async def send(url: str) -> None:
        frame = raw_frame(0x81, _texts(name, size))
        connection = await connect(url)
        await connection.upgrade()
        reading = connection.read_on()
        while not reading.done():
            await connection.write(frame)

    return send


def lines_of(unit: bytes) -> Callable[[str], Awaitable[None]]:
    """Send frames of 1 MiB, made of such lines, on one connection, as fast as the endpoint takes them."""

    async def send(url: str) -> None:
        frame = raw_frame(0x81, (unit * (MiB // len(unit) + 1))[:MiB].rpartition(b"\n")[0])
        connection = await connect(url)
        await connection.upgrade(protocol=LINES)
        reading = connection.read_on()
        while not reading.done():
            await connection.write(frame)

    return send


async def pieces(url: str) -> None:
    """Send 16 MiB in fragments of one byte, and of one MiB."""
    connection = await connect(url)
    await connection.upgrade()
    reading = connection.read_on()
    text = _texts("not ASCII", FRAME_BYTES)
    small = b"".join(raw_frame(0x00, b"a") for _ in range(50_000))
    large = b"".join(
        raw_frame(0x00 if n else 0x01, text[n : n + 9 * 100_000]) for n in range(0, len(text) - 900_000, 900_000)
    )
    while not reading.done():
        await connection.write(large + small + raw_frame(0x80))


async def listens(url: str) -> None:
    """Listen as 200,000 clients on one connection, which closes, and as the same ones on the next."""
    frames = b"".join(
        raw_frame(0x81, b'{"command":"listen","client_id":"hostile %d"}' % number) for number in range(200_000)
    )
    former = None
    while True:
        connection = await connect(url)
        await connection.upgrade()
        replies = 0
        connection.writer.write(frames)
        while replies < 200_000:
            data = await connection.reader.read(MiB)
            if not data:
                break
            replies += data.count(b'"success"')
        if former is not None:
            former.writer.transport.abort()
            former = None
        else:
            former = connection


async def bombs(url: str) -> None:
    """Send small compressed frames that inflate to large ones."""
    connection = await connect(url)
    await connection.upgrade("permessage-deflate")
    reading = connection.read_on()
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    text = _filled(_PUBLISH + b"[", b"[]", b'],"payload":1}', 2 * MiB - 1000)
    frame = raw_frame(0xC1, (packer.compress(text) + packer.flush(zlib.Z_SYNC_FLUSH))[:-4])
    while not reading.done():
        await connection.write(frame * 8)
        packer = zlib.compressobj(9, zlib.DEFLATED, -15)


async def large_bombs(url: str) -> None:
    """Send a frame that inflates to 16 MiB on each connection. The endpoint closes each at its limit."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    text = _filled(_PUBLISH + b"[", b"[]", b'],"payload":1}')
    frame = raw_frame(0xC1, (packer.compress(text) + packer.flush(zlib.Z_SYNC_FLUSH))[:-4])
    while True:
        connection = await connect(url)
        await connection.upgrade("permessage-deflate")
        await connection.write(frame)
        reading = connection.read_on()
        await asyncio.wait((reading,), timeout=2.0)
        connection.writer.transport.abort()


async def pages(url: str) -> None:
    """Request pages of 10,000 long topics, as many as the endpoint allows under way."""
    connection = await connect(url)
    await connection.upgrade()
    topics = [f"{number:06d} {'x' * 400}" for number in range(20_000)]
    for start in range(0, len(topics), 5_000):
        text = orjson.dumps({"command": "subscribe", "client_id": "h", "topic": topics[start : start + 5_000]})
        await connection.write(raw_frame(0x81, text))
    ask = raw_frame(0x81, b'{"command":"subscriptions","client_id":"h","limit":10000}')
    reading = connection.read_on()
    while not reading.done():
        await connection.write(ask * 500)


async def crowd(url: str) -> None:
    """Publish payloads of 1 MiB to one topic with 5,000 subscribers on one connection that reads."""
    connection = await connect(url)
    await connection.upgrade()
    commands = [b'{"command":"listen","client_id":"c%d"}' % number for number in range(5_000)]
    commands += [b'{"command":"subscribe","client_id":"c%d","topic":"crowd"}' % number for number in range(5_000)]
    connection.writer.write(b"".join(raw_frame(0x81, command) for command in commands))
    replies = 0
    while replies < 10_000 and (data := await connection.reader.read(MiB)):
        replies += data.count(b'"success"')
    reading = connection.read_on()
    payload = b'"' + b"x" * (MiB - 64) + b'"'
    publish = b'{"command":"publish","client_id":"p","topic":"crowd","dedup":false,"payload":%b}' % payload
    sender = await connect(url)
    await sender.upgrade()
    while not reading.done():
        await sender.write(raw_frame(0x81, publish))
        await asyncio.sleep(0.5)


async def broadcasts(url: str) -> None:
    """Send broadcasts of 100 KB, one after the other, to 200 clients that read."""
    connections = []
    for number in range(200):
        connection = await connect(url)
        await connection.upgrade()
        await connection.write(raw_frame(0x81, b'{"command":"listen","client_id":"b%d"}' % number))
        connections.append(connection.read_on())
    await _on_and_on(url, b'{"command":"broadcast","client_id":"s","dedup":false,"payload":"' + b"x" * 100_000 + b'"}')


async def one_slot(url: str) -> None:
    """Subscribe to topics of one slot."""
    connection = await connect(url)
    await connection.upgrade()
    reading = connection.read_on()
    topics = [topic for topic in (f"t{number}" for number in range(2_000_000)) if slot_of(topic) == 7]
    number = 0
    while not reading.done():
        number += 1
        text = orjson.dumps({"command": "subscribe", "client_id": f"h{number % 50}", "topic": topics})
        await connection.write(raw_frame(0x81, text))


# -- Many connections: memory


async def unfinished(url: str) -> None:
    """Send 60 frames of 16 MiB that lack their last byte."""
    frame = raw_frame(0x81, _texts("integers", FRAME_BYTES))[:-1]
    await _many(url, 60, frame)


async def deaf(url: str) -> None:
    """Fill the outboxes of 60 subscribers that do not read."""
    connections = []
    for number in range(60):
        connection = await connect(url)
        await connection.upgrade()
        connection.stop_reading()
        await connection.write(
            raw_frame(0x81, b'{"command":"listen","client_id":"deaf%d"}' % number)
            + raw_frame(0x81, b'{"command":"subscribe","client_id":"deaf%d","topic":"deaf%d"}' % (number, number))
        )
        connections.append(connection)
    sender = await connect(url)
    await sender.upgrade()
    passed_over = sender.read_on()
    payload = b"x" * (MiB - 64)
    for turn in range(15):
        for number in range(60):
            text = b'{"command":"publish","client_id":"p","topic":"deaf%d","dedup":false,"payload":"%d%b"}'
            await sender.write(raw_frame(0x81, text % (number, turn, payload)))
    await passed_over


async def thousand(url: str) -> None:
    """Publish 10 KB, again and again, to one topic with 1,000 subscribers that do not read."""
    connections = []
    for number in range(1_000):
        connection = await connect(url)
        await connection.upgrade()
        connection.stop_reading()
        await connection.write(
            raw_frame(0x81, b'{"command":"listen","client_id":"s%d"}' % number)
            + raw_frame(0x81, b'{"command":"subscribe","client_id":"s%d","topic":"slow"}' % number)
        )
        connections.append(connection)
    await _on_and_on(
        url, b'{"command":"publish","client_id":"p","topic":"slow","dedup":false,"payload":"' + b"x" * 10_000 + b'"}'
    )


async def identifiers(url: str) -> None:
    """Send commands with ids of 15 MiB on 60 connections that do not read the replies."""
    text = b'{"command":"listen","client_id":"i","id":"' + b"i" * (15 * MiB) + b'"}'
    await _many(url, 60, raw_frame(0x81, text) * 4)


async def _many(url: str, count: int, data: bytes) -> None:
    connections = []
    for _ in range(count):
        connection = await connect(url)
        await connection.upgrade()
        connection.stop_reading()
        connections.append(connection)

    async def write(connection: Hostile) -> None:
        with contextlib.suppress(OSError):
            await connection.write(data)

    await asyncio.gather(*(write(connection) for connection in connections))
    await asyncio.Event().wait()  # and keep the connections


async def _on_and_on(url: str, text: bytes) -> None:
    """Send this on one connection as fast as the endpoint reads it, until the endpoint closes."""
    connection = await connect(url)
    await connection.upgrade()
    reading = connection.read_on()
    while not reading.done():
        await connection.write(raw_frame(0x81, text))


class Scenario(NamedTuple):
    """A scenario. ``play``: sends the traffic; ``options``: further options of the endpoint."""

    play: Callable[[str], Awaitable[None]]
    options: tuple[str, ...] = ()


SCENARIOS: dict[str, Scenario] = {
    "integers": Scenario(frames_of("integers")),
    "long-integers": Scenario(frames_of("long integers")),
    "nested-lists": Scenario(frames_of("nested lists")),
    "escaped-colons": Scenario(frames_of("escaped colons")),
    "empty-strings": Scenario(frames_of("empty strings")),
    "keys": Scenario(frames_of("keys")),
    "not-ascii": Scenario(frames_of("not ASCII")),
    "payloads": Scenario(frames_of("payload")),
    "nested-lists-64k": Scenario(frames_of("nested lists", 64 << 10)),
    "keys-64k": Scenario(frames_of("keys", 64 << 10)),
    "subscribe": Scenario(frames_of("subscribe")),
    "until": Scenario(frames_of("until")),
    "filters": Scenario(frames_of("filter")),
    "filters-64k": Scenario(frames_of("filter", 64 << 10)),
    "unsubscribe": Scenario(frames_of("unsubscribe")),
    "fragments": Scenario(pieces),
    "listens": Scenario(listens),
    "bombs": Scenario(bombs, ("compression = true",)),
    "large-bombs": Scenario(large_bombs, ("compression = true",)),
    "pages": Scenario(pages),
    "crowd": Scenario(crowd),
    "broadcasts": Scenario(broadcasts),
    "one-slot": Scenario(one_slot),
    "unfinished": Scenario(unfinished),
    "thousand": Scenario(thousand),
    "deaf": Scenario(deaf),
    "identifiers": Scenario(identifiers),
    "lines": Scenario(lines_of(_PAYLOAD + b"1}\n")),
    "empty-lines": Scenario(lines_of(b"\n")),
    **{name: Scenario(play) for name, play in PLAYS.items()},
    "lines-of-two-kinds": Scenario(lines_of(_LISTEN + _LISTEN.replace(b"listen", b"unlisten"))),
}


# -- The bystander


@dataclass
class Noticed:
    """The bystander's latencies, in seconds, and the endpoint's state."""

    quiet_s: list[float] = field(default_factory=list)
    hostile_s: list[float] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    lapsed: int = 0
    missed: int = 0
    said: list[str] = field(default_factory=list)
    forms: set[str] = field(default_factory=set)
    rss_before: int = 0
    rss_most: int = 0
    reader_most: int = 0
    #: The share of the time, without and with the hostile traffic, in which the attacked endpoint could have run, but
    #: waited for a core; and the share of the machine's time that its host gave to other machines.
    waited: tuple[float, float] = (0.0, 0.0)
    stolen: tuple[float, float] = (0.0, 0.0)

    @property
    def late_s(self) -> float:
        """Return the longest latency of a message."""
        return max(self.hostile_s, default=float("inf"))

    @property
    def grown(self) -> int:
        """Return the largest growth of the endpoint's memory, in bytes."""
        return self.rss_most - self.rss_before

    def faults(self) -> list[str]:
        """Return a description of each fault."""
        wrong = [
            (self.late_s > LATE_S_MAX, f"a bystander's message was {self.late_s * 1e3:.0f} ms late"),
            (self.missed, f"{self.missed} messages of the bystander were missed"),
            (self.failed, f"{len(self.failed)} publishes of the bystander failed, such as {self.failed[:1]}"),
            (self.lapsed, f"{self.lapsed} leases lapsed"),
            (others := self.forms - {form.name()}, f"an endpoint is {' and '.join(sorted(others))}"),
            (self.said, f"{len(self.said)} lines in the logs, such as {self.said[:1]}"),
            (self.grown > GROWTH_BYTES_MAX, f"memory grew by {self.grown / MiB:.0f} MiB"),
            (self.reader_most > READER_BYTES_MAX, f"the reader took {self.reader_most / MiB:.0f} MiB"),
        ]
        return [text for is_so, text in wrong if is_so]


async def endure(name: str, directory: Path, seconds: float = HOSTILE_S, quiet_s: float = QUIET_S) -> Noticed:
    """Play a scenario once, after ``quiet_s`` seconds without it."""
    scenario = SCENARIOS[name]
    noticed = Noticed()
    store = f"lmdb:{directory / 'store'}"
    settings = directory / "settings.toml"
    settings.write_text("\n".join((*scenario.options, f"max-held-bytes = {HELD_BYTES_MAX}")) + "\n")
    common = ("--port", "0", "--store", store, "--config", str(settings), *serving_tls())
    async with (
        ingeborg(directory, "serve", *common, "--name", "attacked") as attacked,
        ingeborg(directory, "serve", *common, "--name", "beside") as beside,
    ):
        url, other = await attacked.ready_url(), await beside.ready_url()
        assert url.startswith(f"{scheme()}:")
        noticed.forms = {await form_of(url), await form_of(other)}
        latencies = noticed.quiet_s
        published = 0

        def heard(key: str | None, at: Any) -> None:
            if isinstance(at, float):  # not a hostile broadcast
                latencies.append(time.monotonic() - at)

        async with (
            Client(url, "here", listen=True, timeout_s=PATIENCE_S, on_notification=heard) as here,
            Client(other, "there", listen=True, timeout_s=PATIENCE_S, on_notification=heard) as there,
        ):
            for client in (here, there):
                await client.subscribe([f"bystander {client.client_id} {n}" for n in range(8)])

            async def publish(client: Client, number: int) -> None:
                nonlocal published
                try:
                    await client.publish(f"bystander here {number % 8}", time.monotonic(), ack=True)
                    await client.publish(f"bystander there {number % 8}", time.monotonic(), ack=True)
                    published += 2
                except (ClientError, ProtocolError) as error:
                    noticed.failed.append(str(error))

            async def run(client: Client) -> None:
                number, began = 0, time.monotonic()
                async with asyncio.TaskGroup() as group:
                    while not ended.is_set():
                        group.create_task(publish(client, number))
                        number += 1
                        await asyncio.sleep(max(0.0, began + number / PER_S - time.monotonic()))

            ended = asyncio.Event()
            noticed.rss_before = _rss(attacked.pid)
            async with asyncio.TaskGroup() as group:
                group.create_task(run(here))
                group.create_task(run(there))
                watching = group.create_task(_watch(attacked.pid, noticed))
                begun = _Clocks.of(attacked.pid)
                await asyncio.sleep(quiet_s)
                quiet = _Clocks.of(attacked.pid)
                latencies = noticed.hostile_s
                process = await asyncio.create_subprocess_exec(
                    *(sys.executable, "-m", "tests.fuzz.hostile", "--play", url, "--seconds", str(seconds), name)
                )
                async with asyncio.timeout(PATIENCE_S):
                    await process.wait()
                over = _Clocks.of(attacked.pid)
                noticed.waited = quiet.waited_since(begun), over.waited_since(quiet)
                noticed.stolen = quiet.stolen_since(begun), over.stolen_since(quiet)
                ended.set()
                watching.cancel()
            with contextlib.suppress(TimeoutError):  # `missed` counts them
                async with asyncio.timeout(PATIENCE_S):
                    while len(noticed.quiet_s) + len(noticed.hostile_s) < published:  # noqa: ASYNC110
                        await asyncio.sleep(0.02)
            noticed.missed = published - len(noticed.quiet_s) - len(noticed.hostile_s)
        metrics = {sample.series: sample.value for sample in samples((await fetch(url, "/metrics")).text)}
        noticed.lapsed = int(metrics.get("ingeborg_leases_lapsed_total", 0))
    lines = (attacked.said() + beside.said()).splitlines()
    noticed.said = [line for line in lines if COMPLAINT.search(line) and not _RIGHT.search(line)]
    return noticed


class _Clocks(NamedTuple):
    """The times at one moment, in seconds: the monotonic clock, the endpoint's waiting for a core, and the host's
    other machines on all cores."""

    now: float
    waited: float
    stolen: float

    @classmethod
    def of(cls, pid: int) -> _Clocks:
        waited_ns = int(Path(f"/proc/{pid}/schedstat").read_text(encoding="ascii").split()[1])
        stolen = int(Path("/proc/stat").read_text(encoding="ascii").split()[8]) / os.sysconf("SC_CLK_TCK")
        return cls(time.monotonic(), waited_ns / 1e9, stolen / (os.cpu_count() or 1))

    def waited_since(self, before: _Clocks) -> float:
        return (self.waited - before.waited) / (self.now - before.now)

    def stolen_since(self, before: _Clocks) -> float:
        return (self.stolen - before.stolen) / (self.now - before.now)


async def _watch(pid: int, noticed: Noticed) -> None:
    while True:
        noticed.rss_most = max(noticed.rss_most, _rss(pid))
        noticed.reader_most = max(noticed.reader_most, sum(_rss(child) for child in _readers(pid)))
        await asyncio.sleep(0.05)


def _readers(pid: int) -> list[int]:
    return [child for child in children(pid) if "ingeborg.broker.shell.reader" in _command(child)]


def _command(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_text(encoding="utf-8")
    return ""


def _rss(pid: int) -> int:
    with contextlib.suppress(OSError):
        pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")
    return 0


async def _play(scenario: Scenario, url: str, seconds: float) -> None:
    """Play the scenario until it ends, or its time is over: an endpoint may stop reading, and should."""
    with contextlib.suppress(TimeoutError, OSError, asyncio.IncompleteReadError):
        async with asyncio.timeout(seconds):
            await scenario.play(url)


def row(name: str, noticed: Noticed, tries: int) -> str:
    """Return a row of the table for people."""
    hostile = sorted(noticed.hostile_s)
    p99 = hostile[int(len(hostile) * 0.99)] if hostile else float("inf")
    found = "; ".join(noticed.faults()) or "ok"
    cells = (
        name,
        f"{max(noticed.quiet_s, default=0) * 1e3:.1f} ms",
        f"{p99 * 1e3:.1f} ms",
        f"{noticed.late_s * 1e3:.1f} ms",
        f"+{noticed.grown / MiB:.0f} MiB",
        f"{noticed.reader_most / MiB:.0f} MiB",
        found if tries == 1 else f"{found} ({tries} plays)",
    )
    return f"| {' | '.join(cells)} |"


TURNS_HEAD = """\
| hostile | p50 without | with | p99.9 without | with | waited for a core | with | stolen | with | |
| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | --- |"""


def row_of_turns(name: str, turns: list[Noticed]) -> str:
    """Return a row of the table of ``--turns``: all messages of all turns, with and without the hostile traffic."""
    sides = [
        sorted(itertools.chain.from_iterable(turn.quiet_s for turn in turns)),
        sorted(itertools.chain.from_iterable(turn.hostile_s for turn in turns)),
    ]
    cells = [f"{percentile_ms(side, percent):.1f} ms" for percent in (50, 99.9) for side in sides]
    for shares in ([turn.waited for turn in turns], [turn.stolen for turn in turns]):
        cells += [f"{100 * sum(side) / len(side):.1f} %" for side in zip(*shares, strict=True)]
    found = {fault for turn in turns for fault in turn.faults() if "late" not in fault}
    return f"| {' | '.join((name, *cells, '; '.join(sorted(found)) or 'ok'))} |"


HEAD = f"""\
| hostile | most before | p99 | most (bound: {LATE_S_MAX * 1e3:.0f} ms) | memory \
(bound: +{GROWTH_BYTES_MAX // MiB} MiB) | reader (bound: {READER_BYTES_MAX // MiB} MiB) | |
| --- | ---: | ---: | ---: | ---: | ---: | --- |"""


def _played(name: str, tls: bool, *times_s: float) -> Noticed:
    with (
        tempfile.TemporaryDirectory(prefix="ingeborg-hostile-") as directory,
        over_tls(Authority(Path(directory))) if tls else contextlib.nullcontext(),
    ):
        return uvloop.run(endure(name, Path(directory), *times_s))


def main() -> int:
    """Run the command. Returns the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("scenarios", nargs="*", metavar="SCENARIO", choices=[[], *SCENARIOS], help=", ".join(SCENARIOS))
    parser.add_argument("--tls", action="store_true", help="over TLS")
    parser.add_argument("--turns", type=int, help=f"{TURN_S:.0f} s without and with the traffic, this many times")
    parser.add_argument("--play", metavar="URL", help=argparse.SUPPRESS)
    parser.add_argument("--seconds", type=float, default=HOSTILE_S, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.play:
        uvloop.run(_play(SCENARIOS[options.scenarios[0]], options.play, options.seconds))
        return 0
    failed = False
    # A table follows. A row says so if an endpoint runs the other form.
    print(f"at endpoints that are {form.name()}, over {'TLS' if options.tls else 'TCP'}\n", flush=True)
    if options.turns:
        print(TURNS_HEAD, flush=True)
        for name in options.scenarios or SCENARIOS:
            turns = [_played(name, options.tls, TURN_S, TURN_S) for _ in range(options.turns)]
            print(row_of_turns(name, turns), flush=True)
            failed = failed or any(turn.missed or turn.failed or turn.lapsed for turn in turns)
        return int(failed)
    print(HEAD, flush=True)
    for name in options.scenarios or SCENARIOS:
        tries = 0
        while True:
            tries += 1
            noticed = _played(name, options.tls)
            if noticed.late_s <= LATE_S_MAX or tries == TRIES:
                break
        print(row(name, noticed, tries), flush=True)
        failed = failed or bool(noticed.faults())
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
