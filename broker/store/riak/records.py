"""The records of subscriptions, with the operations and types of the store contract (``base``).

Owns: how to find a record: by client and topic, by topic, by client, or in a listing of all records. Must never: write
an object with records (``writing`` does), or add a topic to a client's list before the topic's record is written.

Each client has a list of topics, which is written after the records. Only listings read this list.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from heapq import nsmallest
from typing import Final

from ingeborg.protocol.hashes import SLOTS

from ..base import PAGE_SUBSCRIPTIONS, FilterPage, Subscribe, Subscribers, Subscription, TooManyFilters, TopicPage
from . import entries as of
from .access import Access
from .entries import ALL, NOTHING, PLAIN, Entries, Pair, Wanted
from .flow import each
from .layout import ListObject, place_of
from .partitions import Partition, TopicObject
from .sets import LargeSets
from .terms import Terms
from .topic_objects import TopicObjects
from .writing import Writer

FIRST_FILTERS: Final = 1_000
"""The number of a topic's filters that ``subscribers`` returns with the first page: about 100 KB."""

OBJECTS_AT_ONCE: Final = 8
"""The number of objects that ``everything`` reads ahead. An object has up to 256 KB, and takes about ten times as much
memory when it is decoded."""


class Records:
    """The records of a store. Call ``open`` before any other method."""

    def __init__(self, access: Access, terms: Terms) -> None:
        self._at_once = access.at_once
        self._topics = TopicObjects(access)
        self._writer = Writer(self._topics, terms)
        self._lists = LargeSets(access, access.buckets.clients, lambda: ListObject(access.now_ms))
        #: See ``Writer.take``.
        self.take = self._writer.take

    def open(self, partitions_per_slot: int) -> None:
        """Set the number of partitions per slot, which all operations need."""
        self._topics.parts = partitions_per_slot

    # Writing.

    async def subscribe(self, batch: Sequence[Subscribe]) -> list[Subscription]:
        """Implement ``Store.subscribe``, and update the clients' lists. Return the index rows that no record has any
        more."""
        wanted: dict[Pair, Wanted] = {}
        for row in batch:
            mine = Wanted({row.filter or ALL: row.term}, row.replace)
            for topic in row.topics:
                before = wanted.get((row.client, topic))
                wanted[row.client, topic] = mine if before is None else before.then(mine)
        try:
            over = await self._writer.write(wanted)
        except TooManyFilters:
            # Some records may have been written before the error. Add their topics to the lists.
            found = await self.find(wanted)
            await self.enlist([pair for pair in wanted if found[pair]])
            raise
        await self.enlist(wanted)
        return over

    async def unsubscribe(self, batch: Sequence[tuple[str, Sequence[str], str | None]]) -> list[Subscription]:
        """Implement ``Store.unsubscribe``, and update the clients' lists. Return the index rows that no record has any
        more."""
        going: dict[Pair, set[str] | None] = {}
        for client, topics, text in batch:
            for topic in topics:
                texts = going.setdefault((client, topic), set())
                if text is None:
                    going[client, topic] = None
                elif texts is not None:
                    texts.add(text)
        over, left = await self.take({pair: partial(of.take, gone=texts) for pair, texts in going.items()})
        gone = [pair for pair in going if not left[pair]]
        await self.unlist(gone)
        # A concurrent ``subscribe`` may have added a topic to the list just before this call removed the topic from it.
        found = await self.find([pair for pair in gone if going[pair] is not None])
        await self.enlist([pair for pair in found if found[pair]])
        return over

    async def enlist(self, pairs: Collection[Pair]) -> None:
        """Add the topics to their clients' lists."""
        await self._change_lists(pairs, adding=True)

    async def unlist(self, pairs: Collection[Pair]) -> None:
        """Remove the topics from their clients' lists."""
        await self._change_lists(pairs, adding=False)

    # Reading.

    async def find(self, pairs: Collection[Pair]) -> dict[Pair, Entries]:
        """Return the record of each pair, merged from all objects."""
        partitions = await self._topics.read_partitions(topic for _, topic in pairs)
        found: dict[Pair, Entries] = {}
        large: list[Pair] = []
        for client, topic in pairs:
            partition = partitions[self._topics.address(topic)]
            found[client, topic] = partition.held(topic, client)
            if partition.elsewhere(topic):
                large.append((client, topic))
        for pair, places in (await self._topics.find_large(large)).items():
            found[pair] = of.merged(found[pair], *places.values())
        return found

    async def topics(self, client: str, after: bytes, limit: int) -> list[str]:
        """Return up to ``limit`` of the client's topics in the order of ``place_of``, starting with the first topic
        above ``after``."""
        return await self._lists.page(client, after, limit)

    async def subscribers(self, topics: Sequence[str]) -> tuple[list[Subscribers], dict[str, FilterPage]]:
        """Implement ``Store.subscribers``."""
        partitions = await self._topics.read_partitions(topics)
        sets: list[set[str]] = [set(partitions[self._topics.address(topic)].topics.get(topic, ())) for topic in topics]
        pages: dict[str, FilterPage] = {}

        async def read(position: int) -> None:
            topic, found, texts = topics[position], sets[position], dict[str, set[str]]()
            partition = partitions[self._topics.address(topic)]
            _collect(found, texts, partition.others.get(topic, {}))

            def meet(shard: TopicObject) -> None:
                found.update(shard.members - shard.others.keys() if shard.others else shard.members)
                _collect(found, texts, shard.others)
                if len(texts) > 8 * FIRST_FILTERS:
                    for client in texts.keys() - set(nsmallest(FIRST_FILTERS + 1, texts, key=place_of)):
                        del texts[client]

            if partition.elsewhere(topic):
                await self._topics.large.visit(topic, meet)
            if texts:
                pages[topic] = _first_page(texts)

        await each(range(len(topics)), read, self._at_once)
        return list(sets), pages

    async def filtered(self, topic: str, after: bytes, limit: int) -> FilterPage:
        """Implement ``Store.filtered``. A page never splits a client's filters, so it can have slightly more than
        ``limit`` pairs."""
        partitions = await self._topics.read_partitions([topic])
        pairs: list[tuple[str, str]] = []
        last = after
        async with aclosing(self._stretches(topic, partitions[self._topics.address(topic)], after)) as stretches:
            async for records in stretches:
                for client in sorted(records, key=place_of):
                    texts = sorted(records[client].keys() - {ALL})
                    if texts and len(pairs) >= limit:
                        return pairs, last.hex()
                    if texts:
                        pairs += [(client, text) for text in texts]
                        last = place_of(client)
        return pairs, None

    async def everything(self) -> AsyncGenerator[list[TopicPage], None]:
        """Implement ``Store.all_subscriptions``."""
        page: list[TopicPage] = []
        room = PAGE_SUBSCRIPTIONS
        async with aclosing(self._everything()) as parts:
            async for topic, plain, others in parts:
                while plain or others:
                    first, plain = plain[:room], plain[room:]
                    rest = room - len(first)
                    second, others = others[:rest], others[rest:]
                    page.append((topic, first, second))
                    room = rest - len(second)
                    if not room:
                        yield page
                        page, room = [], PAGE_SUBSCRIPTIONS
        if page:
            yield page

    async def _everything(self) -> AsyncGenerator[TopicPage, None]:
        """Iterate over all topics. A topic can come in several parts. Memory use does not grow with the store."""
        for first in range(0, SLOTS * self._topics.parts, OBJECTS_AT_ONCE):
            addresses = [
                self._topics.buckets.partition(*divmod(number, self._topics.parts))
                for number in range(first, min(first + OBJECTS_AT_ONCE, SLOTS * self._topics.parts))
            ]
            partitions = await self._topics.read(addresses, OBJECTS_AT_ONCE)
            for address in addresses:
                partition = partitions[address]
                large = {*partition.spilled}
                if partition.full:
                    large |= await self._topics.names.members(address.key.decode())
                for topic in sorted(large.union(partition.topics, partition.others)):
                    async with aclosing(self._stretches(topic, partition, b"", topic in large)) as stretches:
                        async for records in stretches:
                            plain = [client for client, entries in records.items() if entries.get(ALL, ()) is None]
                            others = [
                                row
                                for client, entries in records.items()
                                if entries != PLAIN
                                for row in of.subscriptions((client, topic), entries)
                                if row.filter is not None or row.term is not None
                            ]
                            yield topic, plain, others

    async def _stretches(
        self, topic: str, partition: Partition, after: bytes, is_large: bool | None = None
    ) -> AsyncGenerator[dict[str, Entries], None]:
        """Iterate over the records of the topic's clients whose place (``place_of``) is above ``after``. Each stretch
        holds the records of some neighbouring clients. The stretches are in the order of places, but the clients within
        a stretch are not."""
        met = dict(partition.records(topic))
        if not (partition.elsewhere(topic) if is_large is None else is_large):
            yield {client: entries for client, entries in met.items() if place_of(client) > after}
            return

        def meet(shard: TopicObject) -> None:
            for client, entries in shard.records():
                met[client] = of.merged(entries, met.get(client, NOTHING))

        async with aclosing(self._topics.large.stretches(topic, after, meet, others=list(met))) as stretches:
            async for stretch in stretches:
                yield {client: met.pop(client) for client in stretch}

    async def _change_lists(self, pairs: Collection[Pair], *, adding: bool) -> None:
        topics_of: defaultdict[str, set[str]] = defaultdict(set)
        for client, topic in pairs:
            topics_of[client].add(topic)

        async def change(client: str) -> None:
            topics = topics_of[client]
            await self._lists.update(client, topics if adding else (), () if adding else topics)

        await each(list(topics_of), change, self._at_once)


def _collect(without: set[str], texts: dict[str, set[str]], others: Mapping[str, Entries]) -> None:
    """Add the clients that have a subscription without a filter to ``without``, and the filters of each client to
    ``texts``."""
    for client, entries in others.items():
        if ALL in entries:
            without.add(client)
        if found := entries.keys() - {ALL}:
            texts.setdefault(client, set()).update(found)


def _first_page(texts: Mapping[str, Collection[str]]) -> FilterPage:
    pairs: list[tuple[str, str]] = []
    cursor = ""
    for client in sorted(texts, key=place_of):
        if len(pairs) >= FIRST_FILTERS:
            return pairs, cursor
        pairs += [(client, text) for text in sorted(texts[client])]
        cursor = place_of(client).hex()
    return pairs, None
