"""The objects that hold the records of topics: a topic's partition and, for a large topic, its own objects.

Owns: the addresses of these objects, and how to read them. Must never: write an object.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from .access import Access
from .entries import Entries, Pair
from .flow import each
from .layout import SetObject, partition_of
from .objects import Address
from .partitions import Partition, TopicObject
from .sets import LargeSets


class TopicObjects:
    """The objects of a store. ``parts`` is the number of partitions per slot, which is set before the first read."""

    def __init__(self, access: Access) -> None:
        self.objects = access.objects
        self.buckets = access.buckets
        self.counters = access.counters
        self.at_once = access.at_once
        self.parts = 0
        self.large = LargeSets(access, access.buckets.subscribers, TopicObject)
        #: The names of topics for which a full partition has no room.
        self.names = LargeSets(access, access.buckets.names, SetObject)

    def address(self, topic: str) -> Address:
        """Return the address of the topic's partition."""
        return self.buckets.partition(*partition_of(topic, self.parts))

    def by_partition(self, pairs: Iterable[Pair]) -> dict[Address, list[Pair]]:
        plan: dict[Address, list[Pair]] = {}
        for pair in pairs:
            plan.setdefault(self.address(pair[1]), []).append(pair)
        return plan

    async def read_partitions(self, topics: Iterable[str]) -> dict[Address, Partition]:
        return await self.read(list(dict.fromkeys(map(self.address, topics))), self.at_once)

    async def read(self, addresses: Sequence[Address], at_once: int) -> dict[Address, Partition]:
        partitions: dict[Address, Partition] = {}

        async def read(address: Address) -> None:
            partitions[address] = await self.objects.read(Partition, address)

        await each(addresses, read, at_once)
        return partitions

    async def find_large(self, pairs: Iterable[Pair]) -> dict[Pair, dict[int, Entries]]:
        """Return the parts of the records in the topics' own objects, by level."""
        clients = clients_of(pairs)
        found: dict[Pair, dict[int, Entries]] = defaultdict(dict)

        async def look(topic: str) -> None:
            def meet(level: int, shard: TopicObject) -> None:
                for client in clients[topic] & shard.members:
                    found[client, topic][level] = shard.held(client)

            await self.large.look(topic, clients[topic], meet)

        await each(list(clients), look, self.at_once)
        return found


def clients_of(pairs: Iterable[Pair]) -> dict[str, set[str]]:
    """Group clients by topic."""
    clients: defaultdict[str, set[str]] = defaultdict(set)
    for client, topic in pairs:
        clients[topic].add(client)
    return dict(clients)
