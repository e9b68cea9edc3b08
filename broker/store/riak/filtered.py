"""Subscriptions with filters: the operations of the contract, in buckets of their own beside those of plain ones.

Owns: which objects of these buckets an operation touches, and in which order. Must never: write an object of plain or
ending subscriptions, or take a filter out before what replaces it is written.

**Objects of their own.** Filters have partition objects, cut as those of plain subscriptions are. ``subscribers`` reads
them after the others, and a topic without filters costs that one read and no more. Small topics share objects here as
well.

**A replacement** takes out what it has seen, and sees it before it adds its own: in one write where the client's
filters are all in a partition; else in a read before it. So of two replacements of what a client has, at the same time,
one at most takes out what the other one adds, and the client is never without any. What is added in between stays.

**The list** of a client's topics is written after the filters themselves, and read for listings only.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import aclosing
from typing import Final, NamedTuple

from ingeborg.protocol.hashes import SLOTS

from ..base import FILTERS_MAX, TooManyFilters
from .ending import Pair
from .filter_objects import FilterObject, FilterPartition
from .flow import each
from .layout import Buckets, ListObject, SetObject, partition_of, place_of
from .listing import OBJECTS_AT_ONCE
from .objects import Address, Objects
from .sets import LargeSets

# 0 (in the partition) or 1 (in objects of the topic's own), place of the client
_CURSOR: Final = re.compile("([01])([0-9a-f]{32})", re.ASCII)

Page = tuple[list[tuple[str, str]], str | None]
"""Clients and filters, and the cursor of what follows."""

_START: Final = (0, b"")


class _Placed(NamedTuple):
    """Where what is wanted went, or has to go."""

    beyond: dict[Pair, set[str]]
    """What had no room in the partition: it belongs into the topic's own objects."""
    seen: dict[Pair, frozenset[str]]
    """What there was of these before."""
    apart: dict[Pair, frozenset[str]]
    """What the partition has of those whose topic has objects of its own. Nothing has been added for them."""


class FilteredSubscriptions:
    """See the operations of the same names in ``base.Store``."""

    def __init__(
        self,
        objects: Objects,
        buckets: Buckets,
        counters: dict[str, int],
        *,
        at_once: int,
        wall_clock: Callable[[], float],
    ) -> None:
        self._objects = objects
        self._buckets = buckets
        self._counters = counters
        self._at_once = at_once
        self._parts = 0  # of each slot; 0: not open
        self._topics = LargeSets(objects, buckets.filtered_subscribers, counters, at_once=at_once, kind=FilterObject)
        self._names = LargeSets(objects, buckets.filtered_names, counters, at_once=at_once, kind=SetObject)
        self._lists = LargeSets(
            objects,
            buckets.filtered_clients,
            counters,
            at_once=at_once,
            kind=lambda: ListObject(int(wall_clock() * 1000)),
        )

    def open(self, partitions_per_slot: int) -> None:
        """From here on operations may be asked for."""
        self._parts = partitions_per_slot

    # Writing.

    async def subscribe(self, batch: Sequence[tuple[str, Sequence[str], str, bool]]) -> None:
        """The part of ``Store.subscribe_filtered`` that concerns filters, the clients' lists of topics included."""
        wanted: dict[Pair, set[str]] = {}
        replacing: set[Pair] = set()
        for client, topics, text, replace in batch:
            for topic in topics:
                if replace:
                    wanted[client, topic] = {text}
                    replacing.add((client, topic))
                else:
                    wanted.setdefault((client, topic), set()).add(text)
        try:
            await self._put(wanted, replacing)
        except TooManyFilters:
            # What had been written by then counts, so it is listed.
            there = await self._find(list(wanted))
            await self._change_lists([pair for pair in wanted if there[pair]], adding=True)
            raise
        await self._change_lists(wanted, adding=True)

    async def _put(self, wanted: dict[Pair, set[str]], replacing: set[Pair]) -> None:
        """Into the topics' objects. ``TooManyFilters``: some may be written."""
        placed = await self._put_in_partitions(wanted, replacing)
        beyond, seen = placed.beyond, placed.seen
        if placed.apart:
            large = await self._find_large(placed.apart)
            for pair, here in placed.apart.items():
                seen[pair] = here | large[pair]
                _require_room(pair, seen[pair], wanted[pair], replacing)
            beyond |= {pair: wanted[pair] - here for pair, here in placed.apart.items()}
            again = {pair: here & wanted[pair] for pair, here in placed.apart.items()}
            for pair, texts in await self._put_again(again):
                beyond[pair] |= texts
        await self._put_in_large(beyond)
        await self._take({pair: seen[pair] - wanted[pair] for pair in seen if pair in replacing})

    async def unsubscribe(self, batch: Sequence[tuple[str, Sequence[str], str]]) -> None:
        """``Store.unsubscribe_filtered``."""
        going: dict[Pair, set[str]] = {}
        for client, topics, text in batch:
            for topic in topics:
                going.setdefault((client, topic), set()).add(text)
        left, apart = await self._take(going)
        large = await self._find_large(apart - left)
        gone = [pair for pair in going if pair not in left and not large.get(pair)]
        await self._change_lists(gone, adding=False)
        # What came meanwhile may have been listed before it was taken off the list here.
        back = await self._find(gone)
        await self._change_lists([pair for pair in gone if back[pair]], adding=True)

    async def take_out(self, pairs: Collection[Pair]) -> None:
        """These have no filters any more. They stay in their clients' lists."""
        await self._take(dict.fromkeys(pairs))

    async def unlist(self, pairs: Collection[Pair]) -> None:
        """Take them out of their clients' lists."""
        await self._change_lists(pairs, adding=False)

    # Reading.

    async def topics(self, client: str, after: bytes, limit: int) -> list[str]:
        """Up to ``limit`` topics at which the client has filters, by ``place_of``, from the first above on."""
        return await self._lists.page(client, after, limit)

    async def filters_of(self, pairs: Sequence[Pair]) -> list[list[str]]:
        """``Store.filters_of``."""
        found = await self._find(pairs)
        return [sorted(found[pair]) for pair in pairs]

    async def held(self, pairs: Collection[Pair]) -> set[Pair]:
        """Those that have a filter."""
        return {pair for pair, texts in (await self._find(pairs)).items() if texts}

    async def named(self, topics: Sequence[str]) -> list[str]:
        """Those of the topics that have any."""
        partitions = await self._read_partitions(topics)
        found: set[str] = set()

        async def look(topic: str) -> None:
            partition = partitions[self._address(topic)]
            if partition.topics.get(topic):
                found.add(topic)
            elif partition.elsewhere(topic):
                async with aclosing(self._entries(topic, partition, *_START)) as stretches:
                    async for _, clients in stretches:
                        if clients:
                            found.add(topic)
                            return

        await each(list(dict.fromkeys(topics)), look, self._at_once)
        return [topic for topic in topics if topic in found]

    async def pages(self, asked: Sequence[tuple[str, str | None]], limit: int) -> list[Page]:
        """``Store.filtered``. A client's filters come together, so a page may have some more than ``limit``."""
        if limit < 1:
            raise ValueError("a page has at least one filter")
        starts = [_START if cursor is None else _parsed(cursor) for _, cursor in asked]
        partitions = await self._read_partitions(topic for topic, _ in asked)
        found: list[Page] = [([], None)] * len(asked)

        async def read(position: int) -> None:
            topic, _ = asked[position]
            found[position] = await self._page(topic, partitions[self._address(topic)], *starts[position], limit)

        await each(range(len(asked)), read, self._at_once)
        return found

    async def everything(self) -> AsyncGenerator[tuple[str, list[tuple[str, str]]], None]:
        """All that there is, a topic in one or several parts; what is held does not grow with that."""
        for first in range(0, SLOTS * self._parts, OBJECTS_AT_ONCE):
            numbers = range(first, min(first + OBJECTS_AT_ONCE, SLOTS * self._parts))
            partitions: dict[int, FilterPartition] = {}

            async def read(number: int, partitions: dict[int, FilterPartition] = partitions) -> None:
                address = self._buckets.filtered_partition(*divmod(number, self._parts))
                partitions[number] = await self._objects.read(FilterPartition, address)

            await each(numbers, read, OBJECTS_AT_ONCE)
            for number in numbers:
                partition = partitions[number]
                names = {*partition.topics, *partition.spilled}
                if partition.full:
                    address = self._buckets.filtered_partition(*divmod(number, self._parts))
                    names |= await self._names.members(_name_of(address))
                for topic in sorted(names):
                    async with aclosing(self._entries(topic, partition, *_START)) as stretches:
                        async for _, clients in stretches:
                            yield topic, [(client, text) for client in clients for text in sorted(clients[client])]

    async def _page(self, topic: str, partition: FilterPartition, phase: int, after: bytes, limit: int) -> Page:
        pairs: list[tuple[str, str]] = []
        cursor: str | None = None
        async with aclosing(self._entries(topic, partition, phase, after)) as stretches:
            async for met_in, clients in stretches:
                for place, client in sorted((place_of(client), client) for client in clients):
                    if len(pairs) >= limit:  # and there is more
                        return pairs, cursor
                    pairs += [(client, text) for text in sorted(clients[client])]
                    cursor = f"{met_in}{place.hex()}"
        return pairs, None

    async def _entries(
        self, topic: str, partition: FilterPartition, phase: int, after: bytes
    ) -> AsyncGenerator[tuple[int, dict[str, set[str]]], None]:
        """The topic's clients and their filters, those of its partition (phase 0) before those in objects of its own
        (1); from the first above the place ``after`` on, of the phase given. None is without a filter."""
        here = partition.topics.get(topic, {})
        if phase == 0:
            yield 0, {client: texts for client, texts in here.items() if place_of(client) > after}
            after = b""
        if not partition.elsewhere(topic):
            return
        met: dict[str, set[str]] = {}
        stretches = self._topics.stretches(topic, after, lambda shard: _collect(met, shard.filters))
        async with aclosing(stretches):
            async for stretch in stretches:
                # What is in both places, by a late write of a former home, has come already.
                found = {client: met.pop(client) - here.get(client, set()) for client in stretch}
                yield 1, {client: texts for client, texts in found.items() if texts}

    async def _find(self, pairs: Collection[Pair]) -> dict[Pair, set[str]]:
        """What there is of each."""
        partitions = await self._read_partitions(topic for _, topic in pairs)
        found: dict[Pair, set[str]] = {}
        large: set[Pair] = set()
        for client, topic in pairs:
            partition = partitions[self._address(topic)]
            found[client, topic] = set(partition.held(topic, client))
            if partition.elsewhere(topic):
                large.add((client, topic))
        for pair, texts in (await self._find_large(large)).items():
            found[pair] |= texts
        return found

    async def _find_large(self, pairs: Collection[Pair]) -> dict[Pair, set[str]]:
        """What is in objects of their topics' own; nothing of those that have none there."""
        clients_of = _clients_of(pairs)
        found: dict[Pair, set[str]] = {pair: set() for pair in pairs}

        async def look(topic: str) -> None:
            def meet(shard: FilterObject) -> None:
                for client in clients_of[topic] & shard.filters.keys():
                    found[client, topic] |= shard.filters[client]

            await self._topics.look(topic, clients_of[topic], meet)

        await each(list(clients_of), look, self._at_once)
        return found

    # Objects.

    def _address(self, topic: str) -> Address:
        return self._buckets.filtered_partition(*partition_of(topic, self._parts))

    async def _read_partitions(self, topics: Iterable[str]) -> dict[Address, FilterPartition]:
        partitions: dict[Address, FilterPartition] = {}

        async def read(address: Address) -> None:
            partitions[address] = await self._objects.read(FilterPartition, address)

        await each(list(dict.fromkeys(map(self._address, topics))), read, self._at_once)
        return partitions

    def _by_partition(self, pairs: Iterable[Pair]) -> dict[Address, list[Pair]]:
        plan: defaultdict[Address, list[Pair]] = defaultdict(list)
        for client, topic in pairs:
            plan[self._address(topic)].append((client, topic))
        return plan

    async def _put_in_partitions(self, wanted: Mapping[Pair, set[str]], replacing: Collection[Pair]) -> _Placed:
        """Put filters where their topics have no objects of their own so far, and take out there what they replace."""
        plan = self._by_partition(wanted)
        beyond: dict[Pair, set[str]] = {}
        seen: dict[Pair, frozenset[str]] = {}
        apart: dict[Pair, frozenset[str]] = {}
        refused: list[TooManyFilters] = []

        async def change(address: Address) -> None:
            if refused:
                return
            unnamed: set[str] = set()

            def edit(partition: FilterPartition) -> None:
                held = {(client, topic): partition.held(topic, client) for client, topic in plan[address]}
                elsewhere = {pair: here for pair, here in held.items() if partition.elsewhere(pair[1])}
                apart.update(elsewhere)
                # All are looked at before anything is changed: what is refused here is not in here afterwards.
                for pair in held.keys() - elsewhere.keys():
                    _require_room(pair, held[pair], wanted[pair], replacing)
                full, spilled = partition.full, len(partition.spilled)
                for pair in plan[address]:
                    if pair in elsewhere:
                        continue
                    client, topic = pair
                    more = {text for text in sorted(wanted[pair]) if not partition.put(topic, client, text)}
                    if more:
                        beyond[pair], seen[pair] = more, held[pair]
                    elif pair in replacing:
                        for text in held[pair] - wanted[pair]:
                            partition.discard(topic, client, text)
                self._counters["partitions_filled"] += partition.full - full
                self._counters["topics_spilled"] += len(partition.spilled) - spilled
                if partition.full:
                    going = {topic for _, topic in elsewhere.keys() | (beyond.keys() & held.keys())}
                    unnamed.update(going - partition.spilled)

            try:
                await self._objects.change(FilterPartition, address, edit)
            except TooManyFilters as error:
                refused.append(error)
            if unnamed:
                # Before there is anything under the name: what cannot be found is missing when all are asked for.
                await self._names.update(_name_of(address), unnamed, ())

        await each(list(plan), change, self._at_once)
        if refused:
            # Only now: what is on its way to Riak is not called back by a cancellation, and has to be seen by whoever
            # looks at what has been written.
            raise refused[0]
        return _Placed(beyond, seen, apart)

    async def _put_again(self, texts_of: Mapping[Pair, frozenset[str]]) -> list[tuple[Pair, set[str]]]:
        """Write what a partition has once more, since it may be an old copy; what it has not any more."""
        plan = self._by_partition(pair for pair, texts in texts_of.items() if texts)
        missing: list[tuple[Pair, set[str]]] = []

        async def change(address: Address) -> None:
            def edit(partition: FilterPartition) -> None:
                for pair in plan[address]:
                    client, topic = pair
                    missing.append((pair, {text for text in texts_of[pair] if not partition.put(topic, client, text)}))

            await self._objects.change(FilterPartition, address, edit)

        await each(list(plan), change, self._at_once)
        return missing

    async def _put_in_large(self, texts_of: Mapping[Pair, set[str]]) -> None:
        """Put filters into objects of their topics' own."""
        clients_of = _clients_of([pair for pair, texts in texts_of.items() if texts])

        async def change(topic: str) -> None:
            left = {client: texts_of[client, topic] for client in clients_of[topic]}

            def put(shard: FilterObject, client: str, limit: int) -> bool:
                left[client] = {text for text in sorted(left[client]) if not shard.put(client, text, limit)}
                return not left[client]

            await self._topics.update(topic, clients_of[topic], (), put=put)

        await each(list(clients_of), change, self._at_once)

    async def _take(self, going: Mapping[Pair, Collection[str] | None]) -> tuple[set[Pair], set[Pair]]:
        """Take out these filters (``None``: all of the client's at the topic). Of which of these something is left in
        the partition, and which belong to topics with objects of their own."""
        plan = self._by_partition(pair for pair, texts in going.items() if texts is None or texts)
        left: set[Pair] = set()
        large: set[Pair] = set()

        async def change(address: Address) -> None:
            def edit(partition: FilterPartition) -> None:
                for client, topic in plan[address]:
                    texts = going[client, topic]
                    for text in partition.held(topic, client) if texts is None else texts:
                        partition.discard(topic, client, text)
                    if partition.held(topic, client):
                        left.add((client, topic))
                    if partition.elsewhere(topic):
                        large.add((client, topic))

            await self._objects.change(FilterPartition, address, edit)

        await each(list(plan), change, self._at_once)
        clients_of = _clients_of(large)

        async def change_large(topic: str) -> None:
            def take(shard: FilterObject, client: str) -> None:
                texts = going[client, topic]
                for text in (None,) if texts is None else texts:
                    shard.take(client, text)

            await self._topics.update(topic, (), clients_of[topic], take=take)

        await each(list(clients_of), change_large, self._at_once)
        return left, large

    async def _change_lists(self, pairs: Collection[Pair], *, adding: bool) -> None:
        topics_of: defaultdict[str, set[str]] = defaultdict(set)
        for client, topic in pairs:
            topics_of[client].add(topic)

        async def change(client: str) -> None:
            topics = topics_of[client]
            await self._lists.update(client, topics if adding else (), () if adding else topics)

        await each(list(topics_of), change, self._at_once)


def _parsed(cursor: str) -> tuple[int, bytes]:
    match = _CURSOR.fullmatch(cursor)
    if match is None:
        raise ValueError(f"{cursor!r} is no cursor of this store")
    return int(match[1]), bytes.fromhex(match[2])


def _require_room(pair: Pair, held: frozenset[str], wanted: set[str], replacing: Collection[Pair]) -> None:
    """``TooManyFilters``, if the client would have more than it may. More than that can be there, after a cut."""
    count = len(wanted if pair in replacing else held | wanted)
    if count > FILTERS_MAX and not wanted <= held:
        raise TooManyFilters(
            f"client {pair[0]!r} would have {count} filters at topic {pair[1]!r}, where {FILTERS_MAX} are the most: "
            "take one out first, or let the new one replace the others"
        )


def _clients_of(pairs: Iterable[Pair]) -> dict[str, set[str]]:
    """By topic."""
    clients: defaultdict[str, set[str]] = defaultdict(set)
    for client, topic in pairs:
        clients[topic].add(client)
    return dict(clients)


def _collect(known: dict[str, set[str]], others: Mapping[str, set[str]]) -> None:
    for client, texts in others.items():
        known.setdefault(client, set()).update(texts)


def _name_of(partition: Address) -> str:
    """Of the set with the topics that a full partition has no room for."""
    return partition.key.decode()
