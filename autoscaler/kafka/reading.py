"""The records of the partitions that a member owns: fetched, and the place kept in each.

Owns: the consumer, which partitions it reads, and from where. Must never: know whose they are, or keep a record.
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

#: Records taken at once: some milliseconds of the loop.
_TAKE_MAX = 2_000


def consumer_of(options: Mapping[str, Any], member: MemberSettings) -> AIOKafkaConsumer:
    """As a ``Reader`` wants it, not started. ``options``: ``client_options``.

    What has been fetched of a partition is read before what is fetched of another one later. So a member that is held
    to a speed fetches a tenth of a second's reading of each.
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
    """Offsets of a partition: of the first record that is there, and behind the last one."""

    first: int
    behind: int


class Reader:
    """``consumer``: one that has no group (``progress`` says why). ``latest``: what the group has never read is read
    from its end on, not from its beginning."""

    def __init__(self, consumer: AIOKafkaConsumer, latest: bool, servers: str, timeout_s: float) -> None:
        self._consumer = consumer
        self._latest = latest
        self._servers = servers
        self._timeout_s = timeout_s
        self._places: dict[Queue, int] = {}
        #: Whose place is not there any more, or not yet: retention was faster, or the topic was made anew. Whoever
        #: looks, clears it.
        self.out_of_range: set[Queue] = set()
        #: Topics that this user may not read. Whoever looks, clears it.
        self.denied: set[str] = set()

    async def extent(self, queue: Queue) -> Extent:
        """What there is. Raises ``KafkaProblem``."""
        partition = TopicPartition(*queue)
        async with asking(f"the offsets of {queue} cannot be read", self._servers, self._timeout_s):
            first = await self._consumer.beginning_offsets([partition])
            behind = await self._consumer.end_offsets([partition])
        return Extent(first[partition], behind[partition])

    def start_of(self, extent: Extent) -> int:
        """Where to begin with what has never been read."""
        return extent.behind if self._latest else extent.first

    def read(self, places: Mapping[Queue, int]) -> None:
        """These and no others, from these offsets on."""
        if places.keys() != self._places.keys():
            self._consumer.assign([TopicPartition(*queue) for queue in places])
            changed: Iterable[Queue] = places
        else:
            changed = [queue for queue, place in places.items() if self._places[queue] != place]
        for queue in changed:
            self._consumer.seek(TopicPartition(*queue), places[queue])
        self._places = dict(places)

    async def take(self, wait_s: float) -> dict[Queue, list[Record]]:
        """What has come; nothing if that is nothing within ``wait_s``. Raises ``KafkaProblem``."""
        if not self._places:
            await asyncio.sleep(wait_s)
            return {}
        batches: Mapping[TopicPartition, Sequence[ConsumerRecord[bytes | None, bytes | None]]] = {}
        async with asking("nothing can be read", self._servers, wait_s + self._timeout_s):
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
    # Records of before Kafka 0.10 have no time.
    return Record(found.offset, -1 if found.timestamp is None else found.timestamp, found.key, found.value)
