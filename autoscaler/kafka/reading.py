"""Fetches records from a member's partitions, and tracks the position in each.

Owns: the consumer, its partitions, and the position in each partition. Must never: know a partition's owner, or keep a
record.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import OffsetOutOfRangeError, TopicAuthorizationFailedError
from aiokafka.structs import ConsumerRecord

from ..model import Queue
from ..settings import MemberSettings
from ..sinks.base import Record
from .connecting import asking

#: Maximum number of records in one read. A read of this size occupies the event loop for a few milliseconds.
_TAKE_MAX = 2_000


def consumer_of(options: Mapping[str, Any], member: MemberSettings) -> AIOKafkaConsumer:
    """Create a consumer for a ``Reader``, without starting it. ``options``: from ``client_options``.

    aiokafka returns records in the order of their fetches, also across partitions. A throttled member must not spend
    too long on one partition. So one fetch from a partition is limited to the bytes that the member reads in a tenth of
    a second.
    """
    portion = max(member.batch_bytes // 4, 1 << 20)
    if member.throttle_bytes_per_s:
        portion = max(int(member.throttle_bytes_per_s / 10), 1)
    return AIOKafkaConsumer(
        **options,
        enable_auto_commit=False,
        auto_offset_reset="none",
        isolation_level=member.isolation,
        max_partition_fetch_bytes=portion,
        fetch_max_wait_ms=100,
    )


class Extent(NamedTuple):
    """The offset of a partition's first existing record, and the offset after its last record."""

    first: int
    behind: int


class Reader:
    """Reads partitions. ``consumer``: a consumer without a group (``progress`` says why). ``latest``: read new queues
    from their end, and not from their beginning."""

    def __init__(self, consumer: AIOKafkaConsumer, latest: bool, servers: str, timeout_s: float) -> None:
        self._consumer = consumer
        self._latest = latest
        self._servers = servers
        self._timeout_s = timeout_s
        self._places: dict[Queue, int] = {}
        #: Partitions whose position does not exist, because retention has deleted it or the topic was recreated. The
        #: code that reads this set clears it.
        self.out_of_range: set[Queue] = set()
        #: Topics that this user may not read. The code that reads this set clears it.
        self.denied: set[str] = set()

    async def extent(self, queue: Queue) -> Extent:
        """Return the extent of a partition. Raises ``KafkaProblem``."""
        partition = TopicPartition(*queue)
        async with asking(f"cannot read the offsets of {queue}", self._servers, self._timeout_s):
            first = await self._consumer.beginning_offsets([partition])
            behind = await self._consumer.end_offsets([partition])
        return Extent(first[partition], behind[partition])

    def start_of(self, extent: Extent) -> int:
        """Return the offset at which to start reading a new queue."""
        return extent.behind if self._latest else extent.first

    def read(self, places: Mapping[Queue, int]) -> None:
        """Read these partitions and no others, each from its offset in ``places``."""
        if places.keys() != self._places.keys():
            self._consumer.assign([TopicPartition(*queue) for queue in places])
            changed: Iterable[Queue] = places
        else:
            changed = [queue for queue, place in places.items() if self._places[queue] != place]
        for queue in changed:
            self._consumer.seek(TopicPartition(*queue), places[queue])
        self._places = dict(places)

    async def take(self, wait_s: float) -> dict[Queue, list[Record]]:
        """Return the new records of each queue, or none if no record arrives within ``wait_s``. Raises
        ``KafkaProblem``."""
        if not self._places:
            await asyncio.sleep(wait_s)
            return {}
        batches: Mapping[TopicPartition, Sequence[ConsumerRecord[bytes | None, bytes | None]]] = {}
        async with asking("cannot read records", self._servers, wait_s + self._timeout_s):
            try:
                batches = await self._consumer.getmany(timeout_ms=int(wait_s * 1e3), max_records=_TAKE_MAX)
            except OffsetOutOfRangeError as error:
                [places] = error.args
                self.out_of_range |= {Queue(each.topic, each.partition) for each in places}
            except TopicAuthorizationFailedError as error:
                for each in error.args:
                    self.denied |= {each} if isinstance(each, str) else set(each)
        found = {}
        for partition, records in batches.items():
            queue = Queue(partition.topic, partition.partition)
            found[queue] = [_record(record) for record in records]
            self._places[queue] = records[-1].offset + 1
        return found


def _record(found: ConsumerRecord[bytes | None, bytes | None]) -> Record:
    # Records from before Kafka 0.10 have no timestamp.
    return Record(found.offset, -1 if found.timestamp is None else found.timestamp, found.key, found.value)
