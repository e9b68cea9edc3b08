"""`ingeborg import`: puts subscriptions from JSON lines into a store that no endpoint is using.

Owns: reading and checking the lines, batches for the store, the progress messages. Must never: write to a store while
endpoints use it, because their caches would lack the new subscribers, and messages would not reach them.

A line describes either a client or a topic. A client's line is ``{"client_id": "…", "topic": "…"}``, with a topic or a
list of topics, and optionally with ``filter``, ``"until": "disconnect"`` and ``ends_at`` (Unix time in seconds). A
topic's line is ``{"topic": "…", "client_ids": […], "subscriptions": […]}``, as `ingeborg export` writes it. The import
checks both kinds of line as endpoints check a ``subscribe`` (SPEC section 2). Importing is idempotent, so a file can
be imported again, from any line on. The import skips and counts subscriptions that have already ended.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, BinaryIO, NamedTuple, TextIO

import orjson

from ingeborg.protocol.errors import ProtocolError
from ingeborg.protocol.filters import canonical_filter
from ingeborg.protocol.messages import check
from ingeborg.protocol.topics import check_topic
from ingeborg.protocol.wire import decode

from ..store.base import Store, StoreError, Subscribe, Term
from .exporting import among_them

#: The number of subscriptions in a batch for the store, and the number of concurrent batches. With topics of usual
#: length they take 20 MB. The embedded store sorts the entries of a large batch into the order of its pages.
BATCH, BATCHES_AT_ONCE = 100_000, 2
#: The number of bytes read at a time, and the length limit of a line, which equals that of a client's frame.
READ_BYTES, LINE_BYTES_MAX = 1 << 20, 16 << 20
#: The seconds between two reads of the registry. Running endpoints change their heartbeat in the registry every second.
LOOK_S = 2.5
SAY_EVERY_S = 1.0
#: The limit of `ends_at`, in Unix seconds (the year 2286). A larger number would probably be in milliseconds.
ENDS_AT_MAX = 10_000_000_000

OK, FAILED = 0, 1


class Batch:
    """The subscriptions from several lines of the input."""

    def __init__(self) -> None:
        self.last_line = 0
        self.rows: list[Subscribe] = []
        self.size = 0  # subscriptions in all rows
        self.expiring = 0  # subscriptions with a term
        self.filtered = 0  # subscriptions with a filter
        self.expired = 0  # subscriptions that had already ended, which are not among the rows

    def add(self, row: Subscribe, unix_s: float) -> None:
        """Add the row, or count its subscriptions as expired if they have already ended."""
        size = len(row.topics)
        if row.term is not None and row.term.ends_at and row.term.ends_at <= unix_s:
            self.expired += size
            return
        self.rows.append(row)
        self.size += size
        self.expiring += size * (row.term is not None)
        self.filtered += size * (row.filter is not None)


class ImportFailed(Exception):
    """The import cannot continue. The text says why."""


class Imported(NamedTuple):
    """The outcome of an import. ``expiring`` is the number of subscriptions with a term, and ``filtered`` the number of
    subscriptions with a filter. ``expired`` is the number of other subscriptions, which the import skipped because they
    had already ended."""

    lines: int
    subscriptions: int
    seconds: float
    expiring: int = 0
    expired: int = 0
    filtered: int = 0

    def __str__(self) -> str:
        rate = self.subscriptions / max(self.seconds, 1e-9)
        expired = f"; skipped {self.expired:,} that had already ended" if self.expired else ""
        among = among_them(self.expiring, self.filtered)
        counts = f"{self.subscriptions:,} subscriptions{among} from {self.lines:,} lines"
        return f"{counts} in {self.seconds:.1f} s ({rate:,.0f} per second){expired}"


async def living(store: Store) -> list[str]:
    """Return the names of the endpoints that use the store."""
    before = {endpoint.incarnation: endpoint.heartbeat for endpoint in await store.endpoints()}
    if not before:
        return []
    await asyncio.sleep(LOOK_S)
    return [
        endpoint.name for endpoint in await store.endpoints() if before.get(endpoint.incarnation) != endpoint.heartbeat
    ]


async def _batches(lines: BinaryIO) -> AsyncIterator[Batch]:
    """Yield the lines' subscriptions in batches. Raises ``ImportFailed`` for a bad line."""
    loop = asyncio.get_running_loop()
    unix_s = time.time()
    number = 0
    batch = Batch()
    # Read in a thread, because reading from a terminal or a pipe blocks.
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
                    f"line {number}: {error}; all lines before it are in the store: correct the line, and import the "
                    "file again"
                ) from None
            for row in found:
                batch.add(row, unix_s)
            batch.last_line = number
            if batch.size >= BATCH:
                yield batch
                batch = Batch()
    if batch.last_line:
        yield batch


def _read(lines: BinaryIO) -> list[bytes]:
    """Read several lines. A line that is too long is cut off."""
    part: list[bytes] = []
    size = 0
    try:
        while size < READ_BYTES and (line := lines.readline(LINE_BYTES_MAX + 1)):
            part.append(line)
            size += len(line)
    except OSError as error:
        raise ImportFailed(f"cannot read the lines: {error.strerror}") from None
    return part


def _line(line: bytes) -> list[Subscribe]:
    if len(line) > LINE_BYTES_MAX:
        raise ProtocolError(
            "too_large", f"longer than {LINE_BYTES_MAX} bytes; split it: a client or a topic can have several lines"
        )
    value = decode(line)
    if not value.keys() & {"client_ids", "filtered_ids", "subscriptions"}:
        named = {key: value[key] for key in ("client_id", "topic") if key in value}
        command = check({"command": "subscribe"} | named, 0)
        return [Subscribe(command.client, list(command.topics), *_how(value))]
    topic = value.get("topic")
    if type(topic) is not str:
        raise ProtocolError("bad_state", "Key 'topic' has to be one string in a line that lists clients")
    if "client_id" in value:
        raise ProtocolError("bad_state", "Key 'client_id' must not be in a line that lists clients")
    topics = [check_topic(topic)]
    # In the old export format these fields apply to all ids of a line. Ids with a filter are in ``filtered_ids``.
    how = _how(value)
    if ("filtered_ids" in value) is not (how[0] is not None):
        raise ProtocolError("bad_state", "Key 'filter' needs a 'client_id' or 'filtered_ids' in the line")
    if how != (None, None) and ("subscriptions" in value or {"client_ids", "filtered_ids"} <= value.keys()):
        raise ProtocolError(
            "bad_state",
            "Keys 'filter', 'until' and 'ends_at' need a single list of ids, or belong in each item of 'subscriptions'",
        )

    def of_id(client: Any) -> Subscribe:
        return Subscribe(check({"command": "listen", "client_id": client}, 0).client, topics, *how)

    def of_fields(fields: Any) -> Subscribe:
        if type(fields) is not dict or "client_id" not in fields:
            raise ProtocolError("bad_state", "Has to be an object with a 'client_id'")
        filter, term = _how(fields)
        return of_id(fields["client_id"])._replace(filter=filter, term=term)

    ids = [*_items(value, "client_ids", of_id), *_items(value, "filtered_ids", of_id)]
    return [*ids, *_items(value, "subscriptions", of_fields)]


def _items(value: dict[str, Any], key: str, row: Callable[[Any], Subscribe]) -> Iterator[Subscribe]:
    items = value.get(key, [])
    if type(items) is not list:
        raise ProtocolError("bad_state", f"Key '{key}' has to be a list")
    for number, item in enumerate(items, 1):
        try:
            yield row(item)
        except ProtocolError as error:
            raise ProtocolError("bad_state", f"Item {number} of '{key}': {error}") from None


def _how(value: dict[str, Any]) -> tuple[str | None, Term | None]:
    """Return the filter and the term of one client, or of all ids in a line of the old format."""
    for key, text in (("replace", "an import removes nothing"), ("ttl_s", "give 'ends_at', Unix time in seconds")):
        if key in value:
            raise ProtocolError("bad_state", f"Key '{key}' is for commands: {text}")
    return canonical_filter(value["filter"]) if "filter" in value else None, _term(value)


def _term(value: dict[str, Any]) -> Term | None:
    if "until" not in value and "ends_at" not in value:
        return None
    if value.get("until", "disconnect") != "disconnect":
        raise ProtocolError("bad_state", "Key 'until' has to be \"disconnect\"; without it the subscription stays")
    ends_at = value.get("ends_at", 0.0)
    if "ends_at" in value and (type(ends_at) not in (int, float) or not 0 < ends_at < ENDS_AT_MAX):
        raise ProtocolError(
            "bad_state", f"Key 'ends_at' has to be a number above 0 and below {ENDS_AT_MAX}: Unix time in seconds"
        )
    return Term("until" in value, float(ends_at))


async def load(lines: BinaryIO, store: Store, told: TextIO, *, progress: bool = True) -> Imported:
    """Put the subscriptions of all lines into an open store, and write progress messages to ``told``. Raises
    ``ImportFailed`` or ``StoreError``; the store then has all earlier batches."""
    began_s = said_s = time.monotonic()
    under_way: dict[asyncio.Task[None], Batch] = {}
    line = done = expiring = filtered = expired = 0

    async def finish_some(most: int) -> None:
        nonlocal done, expiring, filtered
        while len(under_way) > most:
            finished, _ = await asyncio.wait(under_way, return_when=asyncio.FIRST_COMPLETED)
            for task in finished:
                batch = under_way.pop(task)
                task.result()
                done, expiring, filtered = done + batch.size, expiring + batch.expiring, filtered + batch.filtered

    def imported() -> Imported:
        return Imported(line, done, time.monotonic() - began_s, expiring, expired, filtered)

    try:
        async for batch in _batches(lines):
            await finish_some(BATCHES_AT_ONCE - 1)
            under_way[asyncio.create_task(_write(store, batch.rows))] = batch
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


async def _write(store: Store, rows: list[Subscribe]) -> None:
    if rows:
        await store.subscribe(rows)


async def run(
    lines: BinaryIO, store: Store, *, as_json: bool = False, out: TextIO | None = None, told: TextIO | None = None
) -> int:
    """Run the command, and return the exit code. The result goes to ``out``, and messages go to ``told``."""
    out, told = out or sys.stdout, told or sys.stderr
    try:
        await store.open()
        try:
            if names := await living(store):
                raise ImportFailed(
                    f"these endpoints use the store: {', '.join(names)}. Their caches would miss the new "
                    "subscriptions: stop the endpoints first, or subscribe through an endpoint instead"
                )
            imported = await load(lines, store, told, progress=not as_json)
        finally:
            await store.close()
    except (ImportFailed, StoreError) as error:
        print(f"ingeborg import: {error}", file=told)
        if isinstance(error, StoreError):
            print("ingeborg import: run `ingeborg doctor` to find what is wrong with the store", file=told)
        return FAILED
    print(orjson.dumps(imported._asdict()).decode() if as_json else f"imported {imported}", file=out)
    return OK
