"""Writes the records of subscriptions.

Owns: the order of writes. The index of terms (``terms``) is written first, and the objects that hold the records after
it. Must never: remove a subscription before its replacement is written, or give a record a term that is not in the
index yet.

**A client's record at a topic** is normally in one object: the topic's partition, or one of the topic's own objects. A
new subscription is added to the record in that object if there is room. A network partition, or a large topic, can
spread a record over several objects. Readers then merge the parts of the record (``entries.merged``).

**A replacement** first finds out which subscriptions the client has, then adds its own, and removes only those that it
has found. If all are in one object, one write does all three steps. Otherwise reads of all objects precede the write.
The new subscription goes to the first object that has anything of the client. So of two concurrent replacements, at
most one removes the other's addition, and the client always has a subscription. Subscriptions that are added between
the reads and the removal stay.

**Obsolete index rows** are removed after all writes. If a write left several versions of an object, a merge can bring
back a subscription that this write removed. The rows of such a subscription stay until expiry finds them. **A merge can
also bring back** a record whose row is gone. So a process that writes several versions as one first adds the terms of
that object to the index.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, Protocol

from ingeborg.protocol.bounded import BoundedMap

from ..base import StoreUnavailable, Subscription, TooManyFilters
from . import entries as of
from .entries import ALL, NOTHING, PLAIN, Entries, Pair, Wanted
from .flow import each
from .objects import Address
from .partitions import Partition, TopicObject
from .terms import Terms
from .topic_objects import TopicObjects, clients_of

NAMED_MAX: Final = 65_536
"""The number of topics, in full partitions, for which this process remembers that their names are stored: 10 MB. If
there are more, the process stores some names again."""

STAMPS_MAX: Final = 8
"""How often a writer tries a greater stamp for a term because the record already has an equal or greater one. This
happens when two endpoints whose clocks differ give terms to one subscription at the same time."""

PARTITION: Final = -1
"""The value for the topic's partition where a level is expected."""


class _Written(Protocol):
    contested: bool


class Over:
    """Collects index rows that no record has any more."""

    def __init__(self) -> None:
        self._rows: list[Subscription] = []
        self._taken: list[tuple[_Written, Subscription]] = []

    def note(self, pair: Pair, before: Entries, after: Entries, state: _Written) -> None:
        """Register that the part of the record in this object changed from ``before`` to ``after``."""
        for row in of.superseded(pair, before, after):
            # If the subscription got another term, or lost its term, no merge can bring the old term back.
            if (row.filter or ALL) in after:
                self._rows.append(row)
            else:
                self._taken.append((state, row))

    def add(self, rows: list[Subscription]) -> None:
        """Register rows that no record has any more."""
        self._rows += rows

    def rows(self) -> list[Subscription]:
        """Return the rows. Call this after all writes."""
        return self._rows + [row for state, row in self._taken if not state.contested]


class Writer:
    """Writes the records of a store."""

    def __init__(self, topics: TopicObjects, terms: Terms) -> None:
        self._topics = topics
        self._terms = terms
        self._named: BoundedMap[str, None] = BoundedMap(NAMED_MAX)
        topics.objects.before_resolving = self._index_again

    async def write(self, wanted: Mapping[Pair, Wanted]) -> list[Subscription]:
        """Subscribe, and return the index rows that no record has any more. If this raises ``TooManyFilters``, part of
        the subscriptions may be written."""
        over = Over()
        stamp = 0
        for _ in range(STAMPS_MAX):
            stamp = self._terms.stamp(stamp)
            rows = {pair: _rows(pair, mine, stamp) for pair, mine in wanted.items() if any(mine.terms.values())}
            await self._terms.add(row for of_pair in rows.values() for row in of_pair)
            round_ = Round(wanted, stamp, over)
            await self._put(round_)
            if not round_.late:
                return over.rows()
            stamp = max(round_.late.values())
            over.add([row for pair in round_.late for row in rows[pair]])
            wanted = {pair: wanted[pair] for pair in round_.late}
        raise StoreUnavailable("other endpoints give terms to the same subscriptions, with greater stamps each time")

    async def take(
        self, going: Mapping[Pair, Callable[[Entries], Entries]]
    ) -> tuple[list[Subscription], dict[Pair, Entries]]:
        """Remove subscriptions. Each function gets the part of a record that one object holds, and returns the part
        that stays there. Return the index rows that no record has any more, and the remaining record of each pair,
        merged from all objects."""
        plan = self._topics.by_partition(going)
        over = Over()
        left: dict[Pair, Entries] = dict.fromkeys(going, NOTHING)
        large: defaultdict[str, set[str]] = defaultdict(set)

        def keep(pair: Pair, held: Entries, state: _Written) -> Entries:
            after = going[pair](held)
            over.note(pair, held, after, state)
            left[pair] = of.merged(left[pair], after)
            return after

        async def change(address: Address) -> None:
            def edit(partition: Partition) -> None:
                for pair in plan[address]:
                    client, topic = pair
                    if held := partition.held(topic, client):
                        partition.assign(topic, client, keep(pair, held, partition))
                    if partition.elsewhere(topic):
                        large[topic].add(client)

            await self._topics.objects.change(Partition, address, edit)

        await each(list(plan), change, self._topics.at_once)

        async def change_large(topic: str) -> None:
            def take(shard: TopicObject, client: str) -> None:
                if held := shard.held(client):
                    shard.assign(client, keep((client, topic), held, shard))

            await self._topics.large.update(topic, (), large[topic], take=take)

        await each(list(large), change_large, self._topics.at_once)
        return over.rows(), left

    async def _put(self, round_: Round) -> None:
        """Write records into partitions. A record for which a partition has no room goes to the objects of its
        topic."""
        wanted = round_.wanted
        plan = self._topics.by_partition(wanted)
        plain: defaultdict[str, set[str]] = defaultdict(set)  # by topic: clients written without a read
        apart: dict[Pair, Entries] = {}  # all other records, with their part in the partition
        refused: list[TooManyFilters] = []

        async def change(address: Address) -> None:
            if refused:
                return
            beyond: set[str] = set()

            def edit(partition: Partition) -> None:
                full, spilled = partition.full, len(partition.spilled)
                afters: list[tuple[Pair, Entries, Entries]] = []
                # Check all records before changing any, so that a refused change leaves this object unchanged.
                for pair in plan[address]:
                    client, topic = pair
                    held = partition.held(topic, client)
                    if not wanted[pair].is_plain and partition.elsewhere(topic):
                        apart[pair] = held
                        beyond.add(topic)
                    elif (after := round_.after(pair, held)) is not None:
                        afters.append((pair, held, after))
                for pair, held, after in afters:
                    client, topic = pair
                    if partition.put(topic, client, after):
                        round_.note(pair, held, after, partition)
                        continue
                    beyond.add(topic)
                    if wanted[pair].is_plain:
                        plain[topic].add(client)
                    else:
                        apart[pair] = held
                beyond.difference_update(beyond & partition.spilled)  # the partition names these already
                self._topics.counters["partitions_filled"] += partition.full - full
                self._topics.counters["topics_spilled"] += len(partition.spilled) - spilled

            try:
                await self._topics.objects.change(Partition, address, edit)
            except TooManyFilters as error:
                refused.append(error)
            if unnamed := [topic for topic in beyond if topic not in self._named]:
                # Store the name before any object of the topic exists. Otherwise ``everything`` would miss the topic.
                await self._topics.names.update(address.key.decode(), unnamed, ())
                for topic in unnamed:
                    self._named.put(topic, None)

        await each(list(plan), change, self._topics.at_once)
        if refused:
            # Raise the error only now. A cancellation does not stop a write that is on its way to Riak, and the caller
            # reads the written records after the error.
            raise refused[0]

        async def add_large(topic: str) -> None:
            def put(shard: TopicObject, client: str, limit: int) -> bool:
                held = shard.held(client)
                after = of.merged(PLAIN, held)
                if not shard.put(client, after, limit):
                    return False
                round_.note((client, topic), held, after, shard)
                return True

            await self._topics.large.update(topic, plain[topic], (), put=put)

        await each(list(plain), add_large, self._topics.at_once)
        await self._put_apart(round_, apart)  # this can raise, so it comes after all other writes

    async def _put_apart(self, round_: Round, apart: Mapping[Pair, Entries]) -> None:
        """Write records of topics that have their own objects, after reading the records."""
        large = await self._topics.find_large(apart)
        places: dict[Pair, dict[int, Entries]] = {}
        new: dict[Pair, Entries] = {}
        for pair, here in apart.items():
            seen = {PARTITION: here, **large[pair]} if here else large[pair]
            after = round_.after(pair, of.merged(NOTHING, *seen.values()))
            if after is not None:
                places[pair] = seen
                new[pair] = {text: after[text] for text in round_.wanted[pair].terms}

        def add(pair: Pair, state: Partition | TopicObject, held: Entries, put: Callable[[Entries], bool]) -> bool:
            """Add the new subscriptions to this part of the record, or replace the part."""
            after = new[pair] if round_.wanted[pair].replace else of.merged(new[pair], held)
            if not put(after):
                return False
            for known in (held, *places[pair].values()):
                left = {text: entry for text, entry in known.items() if known is held or text in after}
                round_.note(pair, left, after, state)
            return True

        landed: dict[Pair, int] = {}
        plan = self._topics.by_partition(pair for pair in new if PARTITION in places[pair])

        async def change(address: Address) -> None:
            def edit(partition: Partition) -> None:
                for pair in plan[address]:
                    client, topic = pair
                    held = partition.held(topic, client)
                    if held and add(pair, partition, held, partial(partition.put, topic, client)):
                        landed[pair] = PARTITION

            await self._topics.objects.change(Partition, address, edit)

        await each(list(plan), change, self._topics.at_once)
        clients = clients_of(new.keys() - landed.keys())

        async def change_large(topic: str) -> None:
            def put(shard: TopicObject, client: str, limit: int) -> bool:
                return add((client, topic), shard, shard.held(client), partial(shard.put, client, limit=limit))

            levels_of = {client: places[client, topic].keys() - {PARTITION} for client in clients[topic]}
            at = {client: min(levels) for client, levels in levels_of.items() if levels}
            placed = await self._topics.large.update(topic, clients[topic], (), put=put, at=at)
            landed.update({(client, topic): level for client, level in placed.items()})

        await each(list(clients), change_large, self._topics.at_once)
        replaced = [pair for pair in new if round_.wanted[pair].replace]
        await self._take_replaced(
            {(pair, level): places[pair][level] for pair in replaced for level in places[pair].keys() - {landed[pair]}},
            round_,
        )

    async def _take_replaced(self, seen: Mapping[tuple[Pair, int], Entries], round_: Round) -> None:
        """Remove from each place the entries that were seen there, unless they have changed since."""

        def left(pair: Pair, level: int, state: Partition | TopicObject, held: Entries) -> Entries:
            after = of.take_seen(held, seen[pair, level])
            round_.note(pair, held, after, state)
            return after

        plan = self._topics.by_partition(pair for pair, level in seen if level == PARTITION)

        async def change(address: Address) -> None:
            def edit(partition: Partition) -> None:
                for pair in plan[address]:
                    client, topic = pair
                    held = partition.held(topic, client)
                    partition.assign(topic, client, left(pair, PARTITION, partition, held))

            await self._topics.objects.change(Partition, address, edit)

        await each(list(plan), change, self._topics.at_once)
        large: defaultdict[tuple[str, int], list[str]] = defaultdict(list)
        for (client, topic), level in seen:
            if level != PARTITION:
                large[topic, level].append(client)

        async def change_large(place: tuple[str, int]) -> None:
            topic, level = place

            def take(shard: TopicObject, client: str) -> None:
                shard.assign(client, left((client, topic), level, shard, shard.held(client)))

            await self._topics.large.change(topic, level, large[place], take)

        await each(list(large), change_large, self._topics.at_once)

    async def _index_again(self, state: Any) -> None:
        """Add the object's terms to the index before several versions of the object are written as one."""
        others: Mapping[str, Mapping[str, Entries]] = {}
        if isinstance(state, Partition):
            others = state.others
        elif isinstance(state, TopicObject):
            others = {state.name: state.others}
        await self._terms.add(
            row
            for topic, records in others.items()
            for client, entries in records.items()
            for row in of.superseded((client, topic), entries, NOTHING)
        )


class Round:
    """One round of writing: the subscriptions to write, and the outcome."""

    def __init__(self, wanted: Mapping[Pair, Wanted], stamp: int, over: Over) -> None:
        self.wanted = wanted
        self._stamp = stamp
        self._over = over
        self.late: dict[Pair, int] = {}  # pairs whose records have an equal or greater stamp, with that stamp

    def after(self, pair: Pair, held: Entries) -> Entries | None:
        """Return the client's record after the write, or ``None`` if the write needs a greater stamp. Raises
        ``TooManyFilters``."""
        wanted = self.wanted[pair]
        of.require_room(pair, held, wanted)
        after = of.put(held, wanted, self._stamp)
        if after is None:
            self.late[pair] = max(entry.stamp for entry in held.values() if entry is not None)
        return after

    def note(self, pair: Pair, before: Entries, after: Entries, state: _Written) -> None:
        """Register that the part of the record in this object changed from ``before`` to ``after``."""
        if before or after != PLAIN:
            self._over.note(pair, before, after, state)
            mine = _rows(pair, self.wanted[pair], self._stamp)
            self._over.add([row for row in mine if after.get(row.filter or ALL, row) is None])


def _rows(pair: Pair, wanted: Wanted, stamp: int) -> list[Subscription]:
    """Return the index rows of the terms that the call assigns."""
    terms = [(text, term) for text, term in wanted.terms.items() if term is not None]
    return [of.subscription(pair, text, of.stamped(term, stamp)) for text, term in terms]
