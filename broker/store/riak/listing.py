"""All subscriptions of a store on Riak, one after the other.

Owns: which objects are read for that, and in which order. Must never: write, or hold more than some objects at a time.

The partition objects have names that can be reckoned: all of them are read, and with them the large sets that they
name. Only a topic that came after its partition was full is named nowhere but in its own objects; so where a partition
is full, the names of those are listed, which a cluster does by going through all its objects (``docs/riak.md``).
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Final, TypeVar

from ingeborg.protocol.hashes import SLOTS

from ..base import PAGE_SUBSCRIPTIONS
from . import riak_pb2 as pb
from . import wire
from .flow import each
from .layout import Buckets, Partition, SetObject, partition_of
from .objects import Address, Objects
from .pool import Pool
from .sets import LargeSets

OBJECTS_AT_ONCE: Final = 8
"""Objects read ahead: 256 KB each and some ten times that when taken apart."""

LIST_TIMEOUT_S: Final = 3600.0
"""What the cluster may take for the names of all objects: it reads every key it has."""

LIST_SILENCE_S: Final = 120.0
"""Without a further name for so long, the node that lists them is given up."""

_ROOT: Final = re.compile(rb"[0-9a-f]{32}")

_Subscribers = tuple[str, list[str]]


T = TypeVar("T")


async def in_pages(
    everything: AsyncGenerator[tuple[str, list[T]], None],
) -> AsyncGenerator[list[tuple[str, list[T]]], None]:
    """What comes of topics, cut into pages of ``PAGE_SUBSCRIPTIONS`` at most, none empty."""
    page: list[tuple[str, list[T]]] = []
    room = PAGE_SUBSCRIPTIONS
    async with aclosing(everything):
        async for topic, entries in everything:
            start = 0
            while start < len(entries):
                part = entries[start : start + room]
                page.append((topic, part))
                start += len(part)
                room -= len(part)
                if not room:
                    yield page
                    page, room = [], PAGE_SUBSCRIPTIONS
    if page:
        yield page


class Listing:
    """See ``Store.subscriptions``. ``partitions_per_slot``: of the open store."""

    def __init__(
        self,
        pool: Pool,
        objects: Objects,
        buckets: Buckets,
        large_topics: LargeSets[SetObject],
        *,
        bucket_type: bytes,
        partitions_per_slot: int,
    ) -> None:
        self._pool = pool
        self._objects = objects
        self._buckets = buckets
        self._large_topics = large_topics
        self._type = bucket_type
        self._per_slot = partitions_per_slot
        self._full = bytearray(SLOTS * partitions_per_slot)  # 1: that partition is full

    async def pages(self) -> AsyncGenerator[list[_Subscribers], None]:
        """Everything, cut into pages."""
        async with aclosing(in_pages(self._all())) as pages:
            async for page in pages:
                yield page

    async def _all(self) -> AsyncGenerator[_Subscribers, None]:
        for first in range(0, len(self._full), OBJECTS_AT_ONCE):
            async for subscribers in self._partitions(range(first, min(first + OBJECTS_AT_ONCE, len(self._full)))):
                yield subscribers
        if any(self._full):
            async for subscribers in self._unnamed():
                yield subscribers

    async def _partitions(self, numbers: range) -> AsyncIterator[_Subscribers]:
        partitions: dict[int, Partition] = {}

        async def read(number: int) -> None:
            address = self._buckets.partition(*divmod(number, self._per_slot))
            partitions[number] = await self._objects.read(Partition, address)

        await each(numbers, read, OBJECTS_AT_ONCE)
        for number in numbers:
            partition = partitions[number]
            self._full[number] = partition.full
            for topic, clients in partition.topics.items():
                yield topic, sorted(clients)
            if partition.full:
                continue  # any of its topics may have a set of its own: they come with those that it does not name
            for topic in sorted(partition.spilled):
                here = partition.topics.get(topic, set())
                async for stretch in self._large_topics.stretches(topic):
                    yield topic, [client for client in stretch if client not in here]

    async def _unnamed(self) -> AsyncIterator[_Subscribers]:
        """The sets of their own of the topics of full partitions."""
        # The names go to a file first, 16 bytes each: a list of keys that its reader holds up runs out of time.
        with tempfile.TemporaryFile(prefix="ingeborg-") as file:
            async with aclosing(self._roots()) as names:
                async for name in names:
                    file.write(name)
            file.seek(0)
            while part := file.read(16 * OBJECTS_AT_ONCE):
                names_read: list[str] = []

                async def read(position: int, part: bytes = part, names_read: list[str] = names_read) -> None:
                    address = Address(self._buckets.subscribers, part[position : position + 16].hex().encode())
                    root = await self._objects.read(SetObject, address)
                    if root.name and self._full[self._number(root.name)]:
                        names_read.append(root.name)

                await each(range(0, len(part), 16), read, OBJECTS_AT_ONCE)
                for topic in sorted(names_read):
                    async for stretch in self._large_topics.stretches(topic):
                        yield topic, list(stretch)

    def _number(self, topic: str) -> int:
        slot, part = partition_of(topic, self._per_slot)
        return slot * self._per_slot + part

    async def _roots(self) -> AsyncGenerator[bytes, None]:
        """The topics' hashes of all sets of their own, 16 bytes each."""
        request = pb.RpbListKeysReq(
            bucket=self._buckets.subscribers, type=self._type, timeout=round(LIST_TIMEOUT_S * 1000)
        )
        answers = self._pool.stream(
            wire.LIST_KEYS_REQUEST,
            request.SerializeToString(),
            wire.LIST_KEYS_ANSWER,
            pb.RpbListKeysResp,
            LIST_SILENCE_S,
        )
        async with aclosing(answers):
            async for answer in answers:
                for key in answer.keys:
                    if _ROOT.fullmatch(key):
                        yield bytes.fromhex(key.decode())
                if answer.done:
                    return
