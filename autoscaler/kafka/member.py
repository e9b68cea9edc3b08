"""A member of a group: fetches records, sends them to the sink, and follows the controller's orders, in a cycle (arXiv
2402.06085, section V-B).

Owns: the cycle, and the order of its steps. Must never: own a partition without an order, or report a partition as
released while a call to the sink for that partition is still running.

**Position.** The member continues a partition at the offset that the sink reports. If the sink does not store offsets,
the member continues at the group's committed offset in Kafka. When a member releases a partition, it drops records that
are not in the sink. The next owner reads these records again.

**A cycle** ends when ``batch_bytes`` have arrived, or after ``wait_s``. The member sends the batches of all partitions
concurrently, and the records of each partition in order. If the sink does not accept a partition's batch, the member
stops reading that partition until the sink accepts the batch. It continues to read the other partitions.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Final

from ..membership import Holding, Membership
from ..model import Queue
from ..settings import Settings
from ..sinks.base import Place, Record, RefusedError, Sink, SinkError
from .channel import Incoming, Outgoing, Received
from .connecting import KafkaProblem
from .progress import Progress
from .reading import Reader

_log = logging.getLogger("ingeborg.autoscale")

#: Seconds between two attempts after a failure: the initial value, and the maximum. The value doubles after each
#: failure.
_AGAIN_S: Final = 0.5
_AGAIN_S_MAX: Final = 30.0
#: A member's rates are means over about this many seconds.
_RATE_S: Final = 10.0
#: Seconds without a message from a controller before the member logs a warning.
_ALONE_S: Final = 60.0
#: While a batch is not full, the member checks at this interval, in seconds, for orders and for a call to ``end``,
#: because ``wait_s`` can be several minutes.
_LOOK_S: Final = 0.25
#: Seconds between two commits of all partitions. By default, Kafka forgets an offset a week after its last commit.
_COMMIT_ALL_S: Final = 3_600.0
_DENIED: Final = "this user lacks permission to read the topic: grant READ, with kafka-acls.sh"
#: Maximum number of partitions that are opened concurrently.
_OPEN_AT_ONCE: Final = 16


class Trouble:
    """A repeated failure: its last text, and the time of the next attempt."""

    def __init__(self) -> None:
        self.words = ""
        self.at_s = 0.0
        self._pause_s = _AGAIN_S

    def again(self, now_s: float, words: str) -> bool:
        """Count a failure. Return True if it must be reported, because its text is new."""
        is_new = words != self.words
        self.words, self.at_s = words, now_s + self._pause_s
        self._pause_s = min(2 * self._pause_s, _AGAIN_S_MAX)
        return is_new


class Member:
    """Runs a member. Times are in seconds, from ``clock``."""

    def __init__(
        self,
        settings: Settings,
        membership: Membership,
        sink: Sink,
        reader: Reader,
        progress: Progress,
        orders: Incoming,
        answers: Outgoing,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        self._core = membership
        self._sink = sink
        self._reader = reader
        self._progress = progress
        self._orders = orders
        self._answers = answers
        self._clock = clock
        self._number = 0
        #: Orders that were received but not yet carried out.
        self._told: list[Received] = []
        #: Records that were read but are not yet in the sink.
        self._unsent: dict[Queue, list[Record]] = {}
        self._troubles: dict[Queue, Trouble] = {}
        self._rates_at_s = clock()
        self._bytes: dict[Queue, int] = {}
        self._heard_s = clock()
        self._is_alone = False
        self._may_read_at_s = 0.0
        #: Offsets that are not committed yet, and the task that commits offsets.
        self._places: dict[Queue, int] = {}
        self._committing: asyncio.Task[None] | None = None
        #: Queues whose position the sink did not know.
        self._by_kafka: set[Queue] = set()
        #: Topics that this user may not read, each with the time of the next attempt.
        self._denied: dict[str, float] = {}
        self._committed_all_s = clock()
        self._is_ending = False
        self.read_bytes = 0
        self.read_records = 0
        self.skipped = 0

    def end(self) -> None:
        """Stop reading, and send the records already read to the sink."""
        self._is_ending = True

    async def run(self) -> None:
        """Run until ``end``. Raises ``KafkaProblem`` if Kafka is unreachable for longer than its time limit."""
        await self._orders.read_from({0: None})
        beating = asyncio.create_task(self._beat())
        try:
            while not self._is_ending:
                if beating.done():
                    beating.result()  # without beats the controller would not know this member
                await self._cycle()
            beating.cancel()
            await self._last()
        finally:
            beating.cancel()
            if self._committing is not None:
                self._committing.cancel()

    # The cycle

    async def _cycle(self) -> None:
        fetched = await self._fetch()
        for queue, records in fetched.items():
            self._unsent.setdefault(queue, []).extend(records)
        await self._send()
        await self._listen()
        self._begin_again()
        await self._open()
        await self._say()
        self._read_on()

    async def _fetch(self) -> dict[Queue, list[Record]]:
        """Run phase 1: fetch records until the batch is full, ``wait_s`` is over, or orders have arrived."""
        settings = self._settings.member
        fetched: dict[Queue, list[Record]] = {}
        amount, until_s = 0, self._clock() + settings.wait_s
        while not (self._is_ending or self._told or self._reader.out_of_range or self._reader.denied):
            left_s = until_s - self._clock()
            pause_s = self._may_read_at_s - self._clock()
            if left_s <= 0 or amount >= settings.batch_bytes:
                break
            wait_s = min(left_s, _LOOK_S)
            found: dict[Queue, list[Record]] = {}
            if pause_s > 0:
                await asyncio.sleep(min(pause_s, wait_s))
            else:
                found = await self._reader.take(wait_s)
            for queue, records in found.items():
                size = sum(len(record.key or b"") + len(record.value or b"") for record in records)
                amount += size
                fetched.setdefault(queue, []).extend(records)
                self._bytes[queue] = self._bytes.get(queue, 0) + size
                self._throttle(size)
            self._told += await self._orders.take(0.0)
        self.read_bytes += amount
        self.read_records += sum(map(len, fetched.values()))
        return fetched

    def _throttle(self, size: int) -> None:
        most = self._settings.member.throttle_bytes_per_s
        if most:
            self._may_read_at_s = max(self._may_read_at_s, self._clock()) + size / most

    async def _send(self) -> None:
        """Run phases 2 and 3: send the fetched records to the sink."""
        now_s = self._clock()
        due = [
            queue
            for queue, records in self._unsent.items()
            if records and (queue not in self._troubles or self._troubles[queue].at_s <= now_s)
        ]
        sent = await asyncio.gather(*(self._append(queue) for queue in due))
        self._places |= {queue: place for queue, place in zip(due, sent, strict=True) if place is not None}
        if now_s - self._committed_all_s > _COMMIT_ALL_S:
            self._committed_all_s = now_s
            self._places |= {queue: each.next for queue, each in self._core.held.items() if each.is_open}
        if self._places and (self._committing is None or self._committing.done()):
            places, self._places = self._places, {}
            self._committing = asyncio.create_task(self._commit(places))

    async def _commit_all(self) -> None:
        if self._committing is not None:
            await asyncio.wait([self._committing])
        places, self._places = self._places, {}
        if places:
            await self._commit(places)

    async def _commit(self, places: dict[Queue, int]) -> None:
        """Commit offsets in the background. If the sink stores offsets, the commits only inform observers. If it does
        not, and this member crashes, the next owner reads the records after the last commit again."""
        try:
            await self._progress.commit(places)
        except KafkaProblem as error:
            _log.warning("%s", error)

    async def _append(self, queue: Queue) -> int | None:
        """Send a queue's batch. Return the offset after the batch if the sink has stored it, and ``None`` otherwise."""
        records, holding = self._unsent[queue], self._core.held.get(queue)
        if holding is None or not holding.is_open:
            del self._unsent[queue]
            return None
        try:
            await self._sink.append(self._place(queue, holding), records)
        except RefusedError as error:
            self._refused(queue, error)
            return None
        except SinkError as error:
            self._failed(queue, holding, f"sink: {error}")
            return None
        self._unsent.pop(queue, None)
        self._works(queue, holding)
        holding.next = records[-1].offset + 1
        return holding.next

    async def _listen(self) -> None:
        """Run phase 4: carry out all orders from the controller that arrived in this cycle."""
        while received := self._told or await self._orders.take(0.0):
            self._told = []
            self._heard_s = self._clock()
            for each in received:
                if each.partition == 0:
                    self._core.welcomed(each.message)
                elif each.partition == self._core.number:
                    self._core.told(each.message)
            if self._core.number != self._number:
                self._number = self._core.number
                await self._orders.read_from({self._number: None} if self._number else {0: None})
        if self._core.closing & self._by_kafka:
            await self._commit_all()  # the next owner continues at the committed offset
        for queue in self._core.closing:
            self._forget(queue)
        self._core.closed()

    def _begin_again(self) -> None:
        """Reopen partitions whose position no longer exists, and keep reading the other partitions."""
        for queue in self._reader.out_of_range:
            holding = self._core.held.get(queue)
            if holding is not None and holding.is_open:
                holding.is_open = False
                self._core.opening.add(queue)
        self._reader.out_of_range.clear()
        now_s = self._clock()
        for topic in self._reader.denied:
            if topic not in self._denied:
                _log.warning("cannot read topic %s: %s", topic, _DENIED)
            self._denied[topic] = now_s + _AGAIN_S_MAX
        self._reader.denied.clear()
        for queue, holding in self._core.held.items():
            is_denied = self._denied.get(queue.topic, 0.0) > now_s
            if is_denied or holding.problem == _DENIED:
                holding.problem = _DENIED if is_denied else ""

    async def _open(self) -> None:
        now_s = self._clock()
        due = [
            queue
            for queue in sorted(self._core.opening)
            if queue not in self._troubles or self._troubles[queue].at_s <= now_s
        ]
        for first in range(0, len(due), _OPEN_AT_ONCE):
            await asyncio.gather(*(self._open_one(queue) for queue in due[first : first + _OPEN_AT_ONCE]))

    async def _open_one(self, queue: Queue) -> None:
        holding = self._core.held[queue]
        self._unsent.pop(queue, None)
        try:
            next = await self._sink.open(self._place(queue, holding))
            self._by_kafka.discard(queue)
            if next is None:
                self._by_kafka.add(queue)
                next = await self._progress.committed(queue)
            extent = await self._reader.extent(queue)
        except RefusedError as error:
            self._refused(queue, error)
            return
        except SinkError as error:
            self._failed(queue, holding, f"sink: {error}")
            return
        except KafkaProblem as error:
            self._failed(queue, holding, str(error))
            return
        if next is None:
            next = self._reader.start_of(extent)
            if self._settings.member.start_from == "latest":
                # Without this commit, the next owner would start at a later end, and skip the records in between.
                try:
                    await self._progress.commit({queue: next})
                except KafkaProblem as error:
                    self._failed(queue, holding, str(error))
                    return
        if next > extent.behind:
            self._failed(
                queue,
                holding,
                f"the sink has records up to offset {next:,}, beyond the end of this partition. If the topic was "
                "recreated, give it another table, or move the sink's records away",
            )
            return
        if next < extent.first:
            self.skipped += extent.first - next
            _log.error("%s: retention deleted offsets %d to %d before they were read", queue, next, extent.first - 1)
            next = extent.first
        self._works(queue, holding)
        self._core.opened(queue, holding.epoch, next)

    def _read_on(self) -> None:
        """Continue to read all partitions whose records the sink accepts."""
        places = {}
        for queue, holding in self._core.held.items():
            if holding.is_open and queue not in self._troubles and holding.problem != _DENIED:
                records = self._unsent.get(queue)
                places[queue] = records[-1].offset + 1 if records else holding.next
        self._reader.read(places)

    # Failures

    def _refused(self, queue: Queue, error: RefusedError) -> None:
        _log.warning("%s, so this member has released it", error)
        self._core.refused(queue, error.epoch)
        self._forget(queue)

    def _failed(self, queue: Queue, holding: Holding, words: str) -> None:
        if self._troubles.setdefault(queue, Trouble()).again(self._clock(), words):
            _log.warning("cannot read %s: %s", queue, words)
        holding.problem = words

    def _works(self, queue: Queue, holding: Holding) -> None:
        if self._troubles.pop(queue, None) is not None:
            _log.info("reading %s works again", queue)
        holding.problem = ""

    def _forget(self, queue: Queue) -> None:
        self._unsent.pop(queue, None)
        self._troubles.pop(queue, None)
        self._bytes.pop(queue, None)
        self._places.pop(queue, None)
        self._by_kafka.discard(queue)

    # Reports

    async def _beat(self) -> None:
        """Send beats independently of the cycle, which may be long."""
        beat_s = self._settings.member.beat_s
        while True:
            self._measure()
            if self._core.number and self._core.number == self._number:  # else it does not read its partition yet
                self._core.beat()
            now_s = self._clock()
            is_alone = now_s - self._heard_s > _ALONE_S
            if is_alone and not self._is_alone:
                _log.warning("no message from a controller for %d s; this member keeps reading its queues", _ALONE_S)
            self._is_alone = is_alone
            try:
                await self._say()
                if not self._core.number:
                    await self._answers.put([(0, self._core.hello())])
            except KafkaProblem as error:
                _log.warning("%s", error)
            await asyncio.sleep(beat_s)

    def _measure(self) -> None:
        now_s = self._clock()
        seconds = now_s - self._rates_at_s
        if seconds <= 0:
            return
        weight = min(seconds / _RATE_S, 1.0)
        for queue, holding in self._core.held.items():
            holding.bytes_per_s += weight * (self._bytes.get(queue, 0) / seconds - holding.bytes_per_s)
        self._bytes.clear()
        self._rates_at_s = now_s

    async def _say(self) -> None:
        messages = self._core.take()
        if messages:
            await self._answers.put([(0, message) for message in messages])

    async def _last(self) -> None:
        """Try once more to send the sink the records already read, and send the member's last message. The next owner
        reads again the records that the sink does not accept."""
        await self._send()
        await self._commit_all()
        left = {queue: len(records) for queue, records in self._unsent.items() if records}
        if left:
            _log.warning("the sink has not accepted %d records; the next owners read them again", sum(left.values()))
        await self._answers.put([(0, self._core.bye())])

    def _place(self, queue: Queue, holding: Holding) -> Place:
        return Place(
            *(self._settings.sink.table(queue.topic), queue.topic, queue.partition, holding.epoch, self._core.name)
        )
