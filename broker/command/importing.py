"""`ingeborg import`: subscriptions from JSON lines straight into a store that no endpoint uses meanwhile.

Owns: reading and checking the lines, batches for the store, what is said of the progress. Must never: write to a store
with living endpoints: their caches would not know, and publishes would miss the new subscribers.

A line is ``{"client_id": "…", "topic": "…"}``, or has a list of topics; or it is ``{"topic": "…", "client_ids": […]}``,
as `ingeborg export` writes them. They are checked as a ``subscribe`` is (SPEC section 2). Adding is idempotent: a file
may be imported again, from any line on.

A line with ``"until": "disconnect"``, ``"ends_at"`` (Unix time in seconds) or both is of ending subscriptions. Those
that are over are left out, and counted.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator
from typing import Any, BinaryIO, NamedTuple, TextIO

import orjson

from ingeborg.protocol.errors import ProtocolError
from ingeborg.protocol.filters import canonical_filter
from ingeborg.protocol.messages import check
from ingeborg.protocol.topics import check_topic
from ingeborg.protocol.wire import decode

from ..store.base import Store, StoreError, Term

#: Subscriptions handed to the store at once, and how often that may be under way: 20 MB of topics of usual length. The
#: embedded store writes large batches in the order of its pages.
BATCH, BATCHES_AT_ONCE = 100_000, 2
#: Lines are read so many bytes at a time; a line may have as many as a client's frame.
READ_BYTES, LINE_BYTES_MAX = 1 << 20, 16 << 20
#: Two looks at the registry so far apart tell living endpoints from dead ones: they show a sign of life each second.
LOOK_S = 2.5
SAY_EVERY_S = 1.0
#: Of `ends_at`, in Unix seconds: the year 2286. What is above it is meant in milliseconds.
ENDS_AT_MAX = 10_000_000_000

OK, FAILED = 0, 1

Subscriptions = list[tuple[str, list[str]]]


class Line(NamedTuple):
    """What one line says. ``filter``: canonical text; without term and filter they are plain."""

    subscriptions: Subscriptions
    term: Term | None = None
    filter: str | None = None


class Batch:
    """What some lines have."""

    def __init__(self) -> None:
        self.last_line = 0
        self.plain: Subscriptions = []
        self.ending: list[tuple[str, list[str], Term]] = []
        self.filters: list[tuple[str, list[str], str, bool]] = []
        self.size = 0  # subscriptions in all of them
        self.expired = 0  # that are over already

    def add(self, line: Line, unix_s: float) -> None:
        """What it has, but what is over."""
        subscriptions, term, text = line
        size = sum(len(topics) for _, topics in subscriptions)
        if term is not None and term.ends_at and term.ends_at <= unix_s:
            self.expired += size
            return
        self.size += size
        if text is not None:
            self.filters += [(client, topics, text, False) for client, topics in subscriptions]
        elif term is not None:
            self.ending += [(client, topics, term) for client, topics in subscriptions]
        else:
            self.plain += subscriptions

    def counts(self) -> tuple[int, int, int]:
        """Subscriptions of every kind, ending ones, and those with a filter."""
        return self.size, sum(len(topics) for _, topics, _ in self.ending), sum(len(each[1]) for each in self.filters)


class ImportFailed(Exception):
    """Why it ended, in words."""


class Imported(NamedTuple):
    """How much is in the store. ``ending``: so many of the subscriptions end by themselves; ``expired``: so many more
    were over; ``filtered``: so many of them have a filter."""

    lines: int
    subscriptions: int
    seconds: float
    ending: int = 0
    expired: int = 0
    filtered: int = 0

    def __str__(self) -> str:
        rate = self.subscriptions / max(self.seconds, 1e-9)
        kinds = ((self.ending, "ending ones"), (self.filtered, "with filters"))
        among = ", ".join(f"{count:,} of them {kind}" for count, kind in kinds if count)
        expired = f"; {self.expired:,} were over and are left out" if self.expired else ""
        counts = f"{self.subscriptions:,} subscriptions{f' ({among})' if among else ''} of {self.lines:,} lines"
        return f"{counts} in {self.seconds:.1f} s ({rate:,.0f} a second){expired}"


async def living(store: Store) -> list[str]:
    """Names of the endpoints that use the store."""
    before = {endpoint.incarnation: endpoint.heartbeat for endpoint in await store.endpoints()}
    if not before:
        return []
    await asyncio.sleep(LOOK_S)
    return [
        endpoint.name for endpoint in await store.endpoints() if before.get(endpoint.incarnation) != endpoint.heartbeat
    ]


async def _batches(lines: BinaryIO) -> AsyncIterator[Batch]:
    """``ImportFailed``: a bad line."""
    loop = asyncio.get_running_loop()
    unix_s = time.time()
    number = 0
    batch = Batch()
    # In a thread, since a terminal or a pipe blocks.
    while part := await loop.run_in_executor(None, _read, lines):
        for line in part:
            number += 1
            if line.isspace():
                batch.last_line = number
                continue
            try:
                found = _line(line)
            except ProtocolError as error:
                if batch.last_line:
                    yield batch
                raise ImportFailed(
                    f"line {number}: {error}; everything before it is in the store: mend the line, and import the file "
                    "again"
                ) from None
            batch.add(found, unix_s)
            batch.last_line = number
            if batch.size >= BATCH:
                yield batch
                batch = Batch()
    if batch.last_line:
        yield batch


def _read(lines: BinaryIO) -> list[bytes]:
    """Some lines; of one that is too long, its beginning."""
    part: list[bytes] = []
    size = 0
    try:
        while size < READ_BYTES and (line := lines.readline(LINE_BYTES_MAX + 1)):
            part.append(line)
            size += len(line)
    except OSError as error:
        raise ImportFailed(f"cannot read the lines: {error.strerror}") from None
    return part


def _line(line: bytes) -> Line:
    if len(line) > LINE_BYTES_MAX:
        raise ProtocolError(
            "too_large", f"longer than {LINE_BYTES_MAX} bytes; one client, or topic, may have several lines"
        )
    value = decode(line)
    term, text = _term(value), _filter(value)
    if text is not None and term is not None:
        raise ProtocolError(
            "bad_state", "Key 'filter' with 'until' or 'ends_at': what has a filter does not end by itself"
        )
    if "filtered_ids" in value:
        if text is None or "client_ids" in value:
            raise ProtocolError("bad_state", "Key 'filtered_ids' goes with a 'filter', and without 'client_ids'")
        return Line(_subscribers(value, "filtered_ids"), None, text)
    if "client_ids" in value:
        if text is not None:
            raise ProtocolError("bad_state", "Key 'client_ids' with a 'filter': there it is 'filtered_ids'")
        return Line(_subscribers(value, "client_ids"), term)
    value["command"] = "subscribe"
    command = check(value, 0)
    return Line([(command.client, list(command.topics))], term, text)


def _filter(value: dict[str, Any]) -> str | None:
    """Of a line, without whose keys the rest is that of one without a filter; ``None``: it is one."""
    if "replace" in value:
        raise ProtocolError("bad_state", "Key 'replace' is for commands: a line takes nothing out")
    return canonical_filter(value.pop("filter")) if "filter" in value else None


def _term(value: dict[str, Any]) -> Term | None:
    """Of a line, without whose keys the rest is that of a plain one; ``None``: it is one."""
    if "ttl_s" in value:
        raise ProtocolError("bad_state", "Key 'ttl_s' is for commands: a line has 'ends_at', Unix time in seconds")
    if "until" not in value and "ends_at" not in value:
        return None
    disconnect = "until" in value
    if disconnect and value.pop("until") != "disconnect":
        raise ProtocolError("bad_state", "Key 'until' has to be \"disconnect\"; leave it out for what stays")
    if "ends_at" not in value:
        return Term(disconnect, 0.0)
    ends_at = value.pop("ends_at")
    if type(ends_at) not in (int, float) or not 0 < ends_at < ENDS_AT_MAX:
        raise ProtocolError(
            "bad_state", f"Key 'ends_at' has to be a number above 0 and below {ENDS_AT_MAX}: Unix time in seconds"
        )
    return Term(disconnect, float(ends_at))


def _subscribers(value: dict[str, Any], key: str) -> Subscriptions:
    """Of a line with one topic and its clients, which are at this key."""
    clients, topic = value[key], value.get("topic")
    if "client_id" in value or type(clients) is not list:
        raise ProtocolError("bad_state", f"Key '{key}' has to be a list, without a 'client_id' beside it")
    if type(topic) is not str:
        raise ProtocolError("bad_state", f"Key 'topic' has to be one string where there are '{key}'")
    topics = [check_topic(topic)]
    batch = []
    for number, client in enumerate(clients, 1):
        try:
            batch.append((check({"command": "listen", "client_id": client}, 0).client, topics))
        except ProtocolError as error:
            raise ProtocolError("bad_state", f"Item {number} of '{key}': {error}") from None
    return batch


async def load(lines: BinaryIO, store: Store, told: TextIO, *, progress: bool = True) -> Imported:
    """Everything into an open store. ``ImportFailed``, ``StoreError``; what was handed over before is in. ``told``:
    where the progress is said, if that is wanted."""
    began_s = said_s = time.monotonic()
    under_way: dict[asyncio.Task[None], Batch] = {}
    line = done = ending = filtered = expired = 0

    async def finish_some(most: int) -> None:
        nonlocal done, ending, filtered
        while len(under_way) > most:
            finished, _ = await asyncio.wait(under_way, return_when=asyncio.FIRST_COMPLETED)
            for task in finished:
                counts = under_way.pop(task).counts()
                task.result()
                done, ending, filtered = done + counts[0], ending + counts[1], filtered + counts[2]

    def imported() -> Imported:
        return Imported(line, done, time.monotonic() - began_s, ending, expired, filtered)

    try:
        async for batch in _batches(lines):
            await finish_some(BATCHES_AT_ONCE - 1)
            under_way[asyncio.create_task(_write(store, batch))] = batch
            line = batch.last_line
            expired += batch.expired
            if progress and time.monotonic() - said_s >= SAY_EVERY_S:
                said_s = time.monotonic()
                print(f"ingeborg import: {imported()}", file=told, flush=True)
        await finish_some(0)
    except ImportFailed:
        await finish_some(0)
        raise
    finally:
        for task in under_way:
            task.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)
    return imported()


async def _write(store: Store, batch: Batch) -> None:
    if batch.plain:
        await store.subscribe(batch.plain)
    if batch.ending:
        await store.subscribe_ending(batch.ending)
    if batch.filters:
        await store.subscribe_filtered(batch.filters)


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
            imported = await load(lines, store, told, progress=not as_json)
        finally:
            await store.close()
    except (ImportFailed, StoreError) as error:
        print(f"ingeborg import: {error}", file=told)
        if isinstance(error, StoreError):
            print("ingeborg import: `ingeborg doctor` looks for what is wrong with the store", file=told)
        return FAILED
    print(orjson.dumps(imported._asdict()).decode() if as_json else f"imported {imported}", file=out)
    return OK
