"""`ingeborg import`: subscriptions from JSON lines straight into a store that no endpoint uses meanwhile.

Owns: reading and checking the lines, batches for the store, what is said of the progress. Must never: write to a store
with living endpoints: their caches would not know, and publishes would miss the new subscribers.

A line is ``{"client_id": "…", "topic": "…"}``, or has a list of topics; or it is ``{"topic": "…", "client_ids": […]}``,
as `ingeborg export` writes them. They are checked as a ``subscribe`` is (SPEC section 2). Adding is idempotent: a file
may be imported again, from any line on.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator
from typing import Any, BinaryIO, NamedTuple, TextIO

import orjson

from ingeborg.protocol.errors import ProtocolError
from ingeborg.protocol.messages import check
from ingeborg.protocol.topics import check_topic
from ingeborg.protocol.wire import decode

from ..store.base import Store, StoreError

#: Subscriptions handed to the store at once, and how often that may be under way: 20 MB of topics of usual length. The
#: embedded store writes large batches in the order of its pages.
BATCH, BATCHES_AT_ONCE = 100_000, 2
#: Lines are read so many bytes at a time; a line may have as many as a client's frame.
READ_BYTES, LINE_BYTES_MAX = 1 << 20, 16 << 20
#: Two looks at the registry so far apart tell living endpoints from dead ones: they show a sign of life each second.
LOOK_S = 2.5
SAY_EVERY_S = 1.0

OK, FAILED = 0, 1

Batch = list[tuple[str, list[str]]]


class ImportFailed(Exception):
    """Why it ended, in words."""


class Imported(NamedTuple):
    """How much is in the store."""

    lines: int
    subscriptions: int
    seconds: float

    def __str__(self) -> str:
        rate = self.subscriptions / max(self.seconds, 1e-9)
        counts = f"{self.subscriptions:,} subscriptions of {self.lines:,} lines"
        return f"{counts} in {self.seconds:.1f} s ({rate:,.0f} a second)"


async def living(store: Store) -> list[str]:
    """Names of the endpoints that use the store."""
    before = {endpoint.incarnation: endpoint.heartbeat for endpoint in await store.endpoints()}
    if not before:
        return []
    await asyncio.sleep(LOOK_S)
    return [
        endpoint.name for endpoint in await store.endpoints() if before.get(endpoint.incarnation) != endpoint.heartbeat
    ]


async def _batches(lines: BinaryIO) -> AsyncIterator[tuple[int, int, Batch]]:
    """Number of the batch's last line, its subscriptions' number, and itself. ``ImportFailed``: a bad line."""
    loop = asyncio.get_running_loop()
    number = size = 0
    batch: Batch = []
    # In a thread, since a terminal or a pipe blocks.
    while part := await loop.run_in_executor(None, _read, lines):
        for line in part:
            number += 1
            if line.isspace():
                continue
            try:
                subscriptions = _subscriptions(line)
            except ProtocolError as error:
                if batch:
                    yield number - 1, size, batch
                raise ImportFailed(
                    f"line {number}: {error}; everything before it is in the store: mend the line, and import the file "
                    "again"
                ) from None
            batch += subscriptions
            size += sum(len(topics) for _, topics in subscriptions)
            if size >= BATCH:
                yield number, size, batch
                batch, size = [], 0
    if batch:
        yield number, size, batch


def _read(lines: BinaryIO) -> list[bytes]:
    """Some lines; of one that is too long, its beginning."""
    part: list[bytes] = []
    size = 0
    while size < READ_BYTES and (line := lines.readline(LINE_BYTES_MAX + 1)):
        part.append(line)
        size += len(line)
    return part


def _subscriptions(line: bytes) -> Batch:
    if len(line) > LINE_BYTES_MAX:
        raise ProtocolError(
            "too_large", f"longer than {LINE_BYTES_MAX} bytes; one client, or topic, may have several lines"
        )
    value = decode(line)
    if "client_ids" in value:
        return _subscribers(value)
    value["command"] = "subscribe"
    command = check(value, 0)
    return [(command.client, list(command.topics))]


def _subscribers(value: dict[str, Any]) -> Batch:
    """Of a line with one topic and its clients."""
    clients, topic = value["client_ids"], value.get("topic")
    if "client_id" in value or type(clients) is not list:
        raise ProtocolError("bad_state", "Key 'client_ids' has to be a list, without a 'client_id' beside it")
    if type(topic) is not str:
        raise ProtocolError("bad_state", "Key 'topic' has to be one string where there are 'client_ids'")
    topics = [check_topic(topic)]
    batch = []
    for number, client in enumerate(clients, 1):
        try:
            batch.append((check({"command": "listen", "client_id": client}, 0).client, topics))
        except ProtocolError as error:
            raise ProtocolError("bad_state", f"Item {number} of 'client_ids': {error}") from None
    return batch


async def load(lines: BinaryIO, store: Store, told: TextIO | None) -> Imported:
    """Everything into an open store. ``ImportFailed``, ``StoreError``; what was handed over before is in. ``told``:
    where progress is said, if anywhere.
    """
    began_s = said_s = time.monotonic()
    under_way: dict[asyncio.Task[None], tuple[int, int]] = {}
    line = done = 0

    async def finish_some(most: int) -> None:
        nonlocal done
        while len(under_way) > most:
            finished, _ = await asyncio.wait(under_way, return_when=asyncio.FIRST_COMPLETED)
            for task in finished:
                _, size = under_way.pop(task)
                task.result()
                done += size

    try:
        async for number, size, batch in _batches(lines):
            await finish_some(BATCHES_AT_ONCE - 1)
            under_way[asyncio.create_task(store.subscribe(batch))] = (number, size)
            line = number
            if told is not None and time.monotonic() - said_s >= SAY_EVERY_S:
                said_s = time.monotonic()
                print(f"ingeborg import: {Imported(line, done, said_s - began_s)}", file=told, flush=True)
        await finish_some(0)
    except ImportFailed:
        await finish_some(0)
        raise
    finally:
        for task in under_way:
            task.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)
    return Imported(line, done, time.monotonic() - began_s)


async def run(
    lines: BinaryIO, store: Store, *, as_json: bool = False, out: TextIO | None = None, told: TextIO | None = None
) -> int:
    """The command: results to ``out``, everything said to the person to ``told``. Returns the exit code."""
    out, told = out or sys.stdout, told or sys.stderr
    try:
        await store.open()
        try:
            if names := await living(store):
                raise ImportFailed(
                    f"the store is in use by {', '.join(names)}, whose caches would not know of new subscriptions: "
                    "stop the endpoints first, or subscribe through one of them"
                )
            imported = await load(lines, store, None if as_json else told)
        finally:
            await store.close()
    except (ImportFailed, StoreError) as error:
        print(f"ingeborg import: {error}", file=told)
        return FAILED
    print(orjson.dumps(imported._asdict()).decode() if as_json else f"imported {imported}", file=out)
    return OK
