"""The document's broker: it matches a record, writes it to the database, may keep it in memory, and delivers it to
polling subscribers.

Owns: the way of a record through the broker, and the time of each step. Must never: use a socket, or decide which
records are in memory.

The filter index matches a new record (``broker.core.filters``: one equality filter of a subscriber is the document's
bitmap). The broker offers the record to the cache, and queues it for the database. When the record is safe in the
database, it waits for its subscribers. Each subscriber gets it with its next poll, from memory (a hit) or from the
database. So the durability of writes does not favour any policy, and a record outside memory can always be read.

With ``either``, the broker does not write a record that is in memory, and does not queue it, unless one of its
subscribers still waits for an earlier record. No record may leave memory then, because it would be lost.

The broker numbers records in the order of arrival. A subscriber gets each record once, in that order.
"""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from ingeborg.bench.caching.live.database import Database, DatabaseError
from ingeborg.bench.caching.live.memory import Memory
from ingeborg.bench.caching.live.messages import Answer, answer
from ingeborg.broker.core.filters.index import Index

POLLED_MAX: Final = 500
"""Maximum number of records in an answer. It is the default of Kafka's consumers (``max.poll.records``)."""

WRITTEN_MAX: Final = 1_000
"""Maximum number of records in a transaction. Later records wait about ten milliseconds for the end of a full
transaction."""

QUEUED_MAX: Final = 4 * WRITTEN_MAX
"""If this number of records waits for the database, the broker stops reading from publishers."""

Send = Callable[[bytes], None]

_Queued = tuple[int, bytes | None, list[str]]
"""A record in the queue: its number, its payload (unless only memory has the payload), and its subscribers."""


class Broker:
    """The broker. ``now_ns`` reads the clock. With ``waits``, a poll that finds nothing gets its answer when a record
    arrives. Without ``waits``, it gets an answer immediately. With ``either``, a record is in memory or in the
    database, and not in both. The broker calls ``changed`` when it is no longer ``full``."""

    def __init__(
        self,
        memory: Memory,
        database: Database,
        now_ns: Callable[[], int],
        *,
        waits: bool,
        either: bool = False,
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        self._memory = memory
        self._database = database
        self._now_ns = now_ns
        self._waits = waits
        self._either = either
        self._changed = changed
        self._index = Index()
        self._waiting: dict[str, list[int]] = {}  # the records that each subscriber has not received yet
        self._held: dict[str, Send] = {}  # polls that wait for a record
        self._busy: set[str] = set()  # subscribers with a pending answer
        self._queue: list[_Queued] = []
        self._behind: dict[str, int] = {}  # with ``either``: number of queued records for which each subscriber waits
        self._queued = asyncio.Event()
        #: Set while the broker is not ``full``.
        self.room = asyncio.Event()
        self.room.set()
        self._reading: set[asyncio.Task[None]] = set()
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        # the times at which each record arrived, was queued for the database, and was safe (or in memory, if it is not
        # written)
        self.came_ns, self.matched_ns, self.safe_ns = array("q"), array("q"), array("q")
        self.readers = array("l")
        self._counts = dict.fromkeys(
            (
                "caching_database_reads_total",
                "caching_commits_total",
                "caching_written_total",
                "caching_bytes_written_total",
            ),
            0,
        )
        self._gone = 0

    @property
    def full(self) -> bool:
        """Return whether publishers must stop for now."""
        return len(self._queue) >= QUEUED_MAX

    def subscribe(self, subscriber: str, text: str) -> None:
        """Subscribe with a filter's canonical text."""
        self._index.add(subscriber, text)
        self._waiting[subscriber] = []

    def leave(self, subscriber: str) -> None:
        """Remove the subscriber and its waiting records."""
        if self._waiting.pop(subscriber, None) is not None:
            self._index.remove_all(subscriber)
            self._held.pop(subscriber, None)
            self._gone += 1

    def publish(self, payloads: Sequence[bytes]) -> None:
        """Accept records that arrived now."""
        now_ns, memory = self._now_ns, self._memory
        came_ns = now_ns()
        at_once: list[_Queued] = []
        for payload in payloads:
            readers, _ = self._index.match(payload)
            number = len(self.came_ns)
            unwritten = memory.publish(number, payload, len(readers)) and self._either
            queued = (number, None if unwritten else payload, readers)
            if unwritten and self._behind.keys().isdisjoint(readers):
                at_once.append(queued)
            else:
                self._enqueue(queued)
            self.came_ns.append(came_ns)
            self.safe_ns.append(0)
            self.readers.append(len(readers))
            self.matched_ns.append(now_ns())
        self._hand_over(at_once)
        if self.full:
            self.room.clear()

    def _enqueue(self, queued: _Queued) -> None:
        self._queue.append(queued)
        self._queued.set()
        if self._either:
            for reader in queued[2]:
                self._behind[reader] = self._behind.get(reader, 0) + 1

    def poll(self, subscriber: str, send: Send) -> None:
        """Give the subscriber the records that it has not received yet. A subscriber must wait for the answer before it
        polls again."""
        assert subscriber not in self._busy
        if self._waits and not self._waiting[subscriber]:
            self._held[subscriber] = send
        else:
            self._answer(subscriber, send)

    def _answer(self, subscriber: str, send: Send) -> None:
        asked_ns = self._now_ns()
        waiting = self._waiting[subscriber]
        numbers = waiting[:POLLED_MAX]
        del waiting[:POLLED_MAX]
        read = self._memory.read
        payloads = [read(number) for number in numbers]
        missed = [number for number, payload in zip(numbers, payloads, strict=True) if payload is None]
        made = Answer(numbers, payloads, len(numbers) - len(missed), bool(waiting), asked_ns, self._now_ns())
        if not missed:
            send(answer(made, (), self._now_ns()))
            return
        self._counts["caching_database_reads_total"] += len(missed)
        try:
            found = self._database.read(missed)
        except DatabaseError as error:
            self._fail(error)
            return
        if isinstance(found, list):
            send(answer(made, found, self._now_ns()))
            return
        self._busy.add(subscriber)
        task = asyncio.ensure_future(self._answer_later(subscriber, made, found, send))
        self._reading.add(task)
        task.add_done_callback(self._reading.discard)

    async def _answer_later(self, subscriber: str, made: Answer, found: Awaitable[list[bytes]], send: Send) -> None:
        try:
            payloads = await found
        except DatabaseError as error:
            self._fail(error)
            return
        self._busy.discard(subscriber)
        send(answer(made, payloads, self._now_ns()))

    async def write(self) -> None:
        """Write published records, until cancelled. Raises the database's errors."""
        while True:
            await self._queued.wait()
            batch = self._next()
            items = [(number, payload) for number, payload, _ in batch if payload is not None]
            if items:
                await self._database.write(items)
                self._counts["caching_commits_total"] += 1
                self._counts["caching_written_total"] += len(items)
                self._counts["caching_bytes_written_total"] += sum(len(payload) for _, payload in items)
            was_full = self.full
            del self._queue[: len(batch)]
            if not self._queue:
                self._queued.clear()
            if self._either:
                self._caught_up(batch)
            self._hand_over(batch)
            if was_full and not self.full:
                self.room.set()
                self._changed()

    def _next(self) -> list[_Queued]:
        """Return the first records of the queue. If only memory has the first record, return all records up to the
        first record that must be written, because they need not wait for that write."""
        queue, unwritten = self._queue, 0
        while unwritten < len(queue) and queue[unwritten][1] is None:
            unwritten += 1
        return queue[: unwritten or WRITTEN_MAX]

    def _caught_up(self, batch: Sequence[_Queued]) -> None:
        """Count the records of the batch as no longer queued."""
        behind = self._behind
        for _, _, readers in batch:
            for reader in readers:
                behind[reader] -= 1
                if not behind[reader]:
                    del behind[reader]

    def _hand_over(self, batch: Sequence[_Queued]) -> None:
        safe_ns = self._now_ns()
        waiting, held = self._waiting, self._held
        answered: dict[str, None] = {}
        for number, _, readers in batch:
            self.safe_ns[number] = safe_ns
            for reader in readers:
                if reader in waiting:
                    waiting[reader].append(number)
                    if reader in held:
                        answered[reader] = None
        for reader in answered:
            self._answer(reader, held.pop(reader))

    def _fail(self, error: DatabaseError) -> None:
        if not self.failed.done():
            self.failed.set_exception(error)

    def counters(self) -> dict[str, int]:
        """Return the counts since the beginning, by their names in ``counters.csv``. ``caching_queued`` is the number
        of records that are still queued."""
        now = {"caching_subscribers_gone_total": self._gone, "caching_queued": len(self._queue)}
        return {**self._memory.counters(), **self._counts, **now}

    async def close(self) -> None:
        """Cancel pending answers, and wait for their end."""
        for task in self._reading:
            task.cancel()
        if self._reading:
            await asyncio.wait(self._reading)
