"""Ending subscriptions: the operations of the contract on the bucket type that expires.

Owns: which objects of that type an operation touches, in which order, and which are written again so that they stay.
Must never: write an object of the other types, or take a subscription out before its end is where its client will ask.

**An end against a listen.** A ``listen`` writes the location (L), then reads what has ended of its client (A). An
``end`` reads the location (R1), writes what ends to what has ended of the client (E), reads the location once more
(R2), and only if that is still the given one takes the subscription out (T). Each of the two so writes before it reads
what the other one has written:

- L is through before R2 begins: R2 finds it, the subscription was never out, and E is undone.
- L is not through before R2 begins: then A, which comes after L, begins after E was through, and names the end. Should
  R2 find L all the same, the case is the first.

So no subscription is lost in silence, whenever a process dies, and a message finds a subscription that stays at every
moment: nothing is taken out to be put back. The price is a client that listens between E and its undoing: it hears of
an end that did not come to pass, subscribes again, and has what it had. A crash after E leaves that for longer: a
client that still does not listen is ended again by the next home. (E after R2 would be wrong: L and A fit in between.
Taking out before R2 would be wrong for messages, and for a crash.)

**Against a new subscription** the stamp decides: T takes out only what has the stamp that was given. A new one writes
its entry, then takes its topic out of what has ended and puts it into the client's list; so where T finds another stamp
``end`` does these two as well, which it had undone before. A plain one likewise takes its topic out of what has ended
after it is written; one that was written before E is found by a read after T.

What is written last is not lost before it expires: the objects that lead to others are written with them, and ``renew``
writes them all. The list of a client has topics of many slots; each home writes it again once in a while.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import aclosing
from typing import Final

from ingeborg.protocol.bounded import BoundedMap

from ..base import Ended, Ending, Location, Term
from .flow import each, together
from .layout import Buckets, ListObject, SetObject, partition_of, place_of
from .objects import Address, Objects
from .sets import RENEWED_AT_ONCE, LargeSets
from .terms import EndedTopics, Stamped, TermObject, TermPartition, keep_later

LISTS_RENEWED_MAX: Final = 65_536
"""Clients whose list is known to have been written again lately: 10 MB. Of more of them some are written more often."""

Pair = tuple[str, str]
"""A client, and a topic."""

# part of the slot, place of the topic, 0 (in the partition) or 1 (in objects of its own), place of the client
_CURSOR: Final = re.compile("([0-9a-f]{2})([0-9a-f]{32})([01])([0-9a-f]{32})", re.ASCII)


class EndingSubscriptions:
    """See the operations of the same names in ``base.Store``.

    :param expiry_s: after which the backend deletes what has not been written again, or later.
    :param plain: which of these pairs are plain subscriptions.
    :param locations: of these clients.
    """

    def __init__(
        self,
        objects: Objects,
        buckets: Buckets,
        counters: dict[str, int],
        *,
        expiry_s: float,
        at_once: int,
        wall_clock: Callable[[], float],
        plain: Callable[[Collection[Pair]], Awaitable[set[Pair]]],
        locations: Callable[[Sequence[str]], Awaitable[list[Location | None]]],
    ) -> None:
        self.renew_s = expiry_s / 3
        self._expiry_s = expiry_s
        self._objects = objects
        self._buckets = buckets
        self._counters = counters
        self._at_once = at_once
        self._wall_clock = wall_clock
        self._plain = plain
        self._locations = locations
        self._kept_s = expiry_s
        self._parts = 0  # of each slot; 0: not open
        self._lists_renewed: BoundedMap[str, float] = BoundedMap(LISTS_RENEWED_MAX)
        self._topics = LargeSets(
            objects, buckets.ending_subscribers, counters, at_once=at_once, kind=self._new_object, expiring=True
        )
        self._names = LargeSets(objects, buckets.ending_names, counters, at_once=at_once, kind=SetObject, expiring=True)
        self._lists = LargeSets(
            objects,
            buckets.ending_clients,
            counters,
            at_once=at_once,
            kind=lambda: ListObject(self._now_ms()),
            expiring=True,
        )

    def open(self, partitions_per_slot: int) -> None:
        """From here on operations may be asked for."""
        self._parts = partitions_per_slot

    # What others ask.

    async def subscribe(self, batch: Sequence[tuple[str, Sequence[str], Term]]) -> None:
        """``Store.subscribe_ending``."""
        wanted = {(client, topic): term for client, topics, term in batch for topic in topics}
        for pair in await self._plain(wanted):
            del wanted[pair]
        await self._put(wanted)
        # What is plain already is subscribed to as well, so it has not ended either.
        ended = _topics_of({(client, topic) for client, topics, _ in batch for topic in topics})
        await together(
            lambda: self._change_lists(_topics_of(wanted), adding=True), lambda: self._change_ended(ended, adding=False)
        )

    async def take_out(self, pairs: Collection[Pair]) -> None:
        """These are no ending subscriptions any more. They stay in their clients' lists."""
        await self._take(dict.fromkeys(pairs))

    async def make_plain(self, pairs: Collection[Pair]) -> set[Pair]:
        """These have become plain ones, and are written as such; those that were ending ones. They stay in their
        clients' lists."""
        return set(await self._take(dict.fromkeys(pairs), marking=True))

    async def unlist(self, pairs: Collection[Pair]) -> None:
        """Take them out of their clients' lists."""
        await self._change_lists(_topics_of(pairs), adding=False)

    async def come_back(self, pairs: Collection[Pair]) -> None:
        """These have been subscribed to, so they are not among what has ended."""
        await self._change_ended(_topics_of(pairs), adding=False)

    async def subscribers(self, topics: Sequence[str]) -> list[set[str]]:
        """The clients with an ending subscription to each topic, or one that has become plain lately."""
        partitions = await self._read_partitions(topics)
        found = [set(partitions[self._address(topic)].topics.get(topic, ())) for topic in topics]

        async def read_large(position: int) -> None:
            found[position] |= await self._topics.members(topics[position])

        large = [n for n, topic in enumerate(topics) if partitions[self._address(topic)].elsewhere(topic)]
        await each(large, read_large, self._at_once)
        return found

    async def terms(self, pairs: Sequence[Pair]) -> list[Term | None]:
        """``Store.terms``."""
        found = await self._find(pairs)
        # After a crash both may be there; then the plain one counts.
        for pair in await self._plain(found):
            del found[pair]
        return [found[pair].term if pair in found else None for pair in pairs]

    async def held(self, pairs: Collection[Pair]) -> set[Pair]:
        """Those that are ending subscriptions, whatever is beside them."""
        return set(await self._find(pairs))

    async def topics(self, client: str, after: bytes, limit: int) -> list[str]:
        """Up to ``limit`` topics of the client's ending subscriptions, by ``place_of``, from the first above on."""
        return await self._lists.page(client, after, limit)

    async def page(self, slot: int, cursor: str | None, limit: int) -> tuple[list[Ending], str | None]:
        """``Store.ending``."""
        if cursor is None:
            part, after_topic, phase, after_client = 0, b"", 0, b""
        elif (match := _CURSOR.fullmatch(cursor)) and (part := int(match[1], 16)) < self._parts:
            after_topic, phase, after_client = bytes.fromhex(match[2]), int(match[3]), bytes.fromhex(match[4])
        else:
            raise ValueError(f"{cursor!r} is no cursor of this store")
        found: list[Ending] = []
        while part < self._parts:
            partition = await self._objects.read(self._new_partition, self._buckets.ending_partition(slot, part))
            for place, topic in sorted((place_of(topic), topic) for topic in await self._named(slot, part, partition)):
                if place < after_topic:
                    continue
                if place > after_topic:
                    phase, after_client = 0, b""
                async with aclosing(self._entries(topic, partition, phase, after_client)) as stretches:
                    async for phase, entries in stretches:
                        for position, client in sorted((place_of(client), client) for client in entries):
                            entry = entries[client]
                            if entry.mark:
                                continue
                            found.append(Ending(topic, client, entry.term, entry.stamp))
                            if len(found) >= limit:
                                return found, f"{part:02x}{place.hex()}{phase}{position.hex()}"
            part += 1
            after_topic, phase, after_client = b"", 0, b""
        return found, None

    async def ended(self, clients: Sequence[str]) -> list[Ended | None]:
        """``Store.ended``."""
        found: dict[str, Ended | None] = {}
        kept_ms = round(self._kept_s * 1000)

        async def read(client: str) -> None:
            object_ = await self._objects.read(self._new_ended, self._buckets.ended_of(client))
            found[client] = object_.ended(kept_ms)

        await each(list(dict.fromkeys(clients)), read, self._at_once)
        return [found[client] for client in clients]

    def forget_after(self, kept_s: float) -> None:
        """From here on this process tells nothing that ended longer ago."""
        self._kept_s = min(kept_s, self._expiry_s)

    # Ending.

    async def end(self, batch: Sequence[tuple[Sequence[Ending], Location | None, bool]]) -> list[list[Ending]]:
        """``Store.end``; the order of the steps is in the module's text."""
        asked = {(ending.client, ending.topic) for endings, _, _ in batch for ending in endings}
        found: dict[Pair, Stamped] = {}
        going: list[int] = []

        async def find() -> None:
            found.update(await self._find(asked))

        async def find_places() -> None:
            going.extend(await self._in_place(batch, range(len(batch))))

        await together(find, find_places)

        def has_stamp(ending: Ending) -> bool:
            held = found.get((ending.client, ending.topic))
            return held is not None and held.stamp == ending.stamp

        def of(numbers: Iterable[int]) -> dict[Pair, int]:
            """What of these entries has the stamp that was given."""
            endings = [ending for number in numbers for ending in batch[number][0]]
            return {(ending.client, ending.topic): ending.stamp for ending in endings if has_stamp(ending)}

        await self._change_ended(_topics_of(of(going)), adding=True)
        still = dict.fromkeys(await self._in_place(batch, going))
        moved = [number for number in going if number not in still]
        self._counters["ends_called_off"] += len(moved)
        await self._change_ended(_topics_of(of(moved)), adding=False)
        stamps = of(still)
        await self.unlist(stamps)
        left = await self._take(stamps)
        # Last of all: one that became plain after this was named before, and takes its name out by itself.
        plain = await self._plain(stamps.keys() | (asked - found.keys()))
        stays = [pair for pair in stamps if pair in left or pair in plain]
        await together(
            lambda: self._change_lists(_topics_of([pair for pair in left if not left[pair].mark]), adding=True),
            lambda: self._change_ended(_topics_of(stays), adding=False),
        )

        outcome: list[list[Ending]] = []
        gone = asked - found.keys()
        for number, (endings, _, _) in enumerate(batch):
            out = []
            for ending in endings:
                pair = (ending.client, ending.topic)
                if number in still and has_stamp(ending) and pair not in left:
                    gone.add(pair)  # also for what comes after it
                if pair in gone and pair not in plain:
                    out.append(ending)
            outcome.append(out)
        return outcome

    async def _in_place(
        self, batch: Sequence[tuple[Sequence[Ending], Location | None, bool]], numbers: Iterable[int]
    ) -> list[int]:
        """Those entries of the batch whose clients are where they have to be for it."""
        clients = {number: batch[number][0][0].client for number in numbers if batch[number][2] and batch[number][0]}
        asked = list(dict.fromkeys(clients.values()))
        found = dict(zip(asked, await self._locations(asked), strict=True))
        return [number for number in numbers if number not in clients or found[clients[number]] == batch[number][1]]

    # Keeping.

    async def renew(self, slot: int) -> None:
        """``Store.renew``: with the slot's objects the lists of its clients."""
        for part in range(self._parts):
            address = self._buckets.ending_partition(slot, part)

            def edit(partition: TermPartition) -> TermPartition:
                partition.renew()
                return partition

            partition = await self._objects.change(self._new_partition, address, edit)
            self._counters["endings_renewed"] += partition.dirty
            if partition.full:
                self._counters["endings_renewed"] += await self._names.renew(_name_of(address))
            await self._renew_lists({client for clients in partition.topics.values() for client in clients})
            for topic in await self._named(slot, part, partition):
                if partition.elsewhere(topic):
                    self._counters["endings_renewed"] += await self._topics.renew(topic, self._renew_lists_in)

    async def _renew_lists_in(self, shard: TermObject) -> None:
        await self._renew_lists(shard.members)

    async def _renew_lists(self, clients: Iterable[str]) -> None:
        now = self._wall_clock()

        async def write(client: str) -> None:
            self._counters["endings_renewed"] += await self._lists.renew(client)
            self._lists_renewed.put(client, now)

        # Of two slots of a client that are renewed one after the other the second leaves its list alone. The longest
        # between two writes of a list is so one and a half times ``renew_s``, half the expiry.
        due = [
            client
            for client in clients
            if (last := self._lists_renewed.get(client)) is None or not 0 <= now - last < self.renew_s / 2
        ]
        await each(due, write, RENEWED_AT_ONCE)

    # Objects.

    def _now_ms(self) -> int:
        return int(self._wall_clock() * 1000)

    def _new_partition(self) -> TermPartition:
        return TermPartition(self._now_ms())

    def _new_object(self) -> TermObject:
        return TermObject(self._now_ms())

    def _new_ended(self) -> EndedTopics:
        return EndedTopics(self._now_ms())

    def _address(self, topic: str) -> Address:
        return self._buckets.ending_partition(*partition_of(topic, self._parts))

    async def _read_partitions(self, topics: Iterable[str]) -> dict[Address, TermPartition]:
        partitions: dict[Address, TermPartition] = {}

        async def read(address: Address) -> None:
            partitions[address] = await self._objects.read(self._new_partition, address)

        await each(list(dict.fromkeys(map(self._address, topics))), read, self._at_once)
        return partitions

    async def _find(self, pairs: Collection[Pair]) -> dict[Pair, Stamped]:
        """Those that are ending subscriptions."""
        partitions = await self._read_partitions(topic for _, topic in pairs)
        found: dict[Pair, Stamped] = {}
        large: defaultdict[str, set[str]] = defaultdict(set)
        for client, topic in pairs:
            partition = partitions[self._address(topic)]
            if entry := partition.topics.get(topic, {}).get(client):
                found[client, topic] = entry
            if partition.elsewhere(topic):
                large[topic].add(client)

        async def look(topic: str) -> None:
            entries: dict[str, Stamped] = {}
            await self._topics.look(topic, large[topic], lambda shard: keep_later(entries, shard.terms))
            for client in large[topic] & entries.keys():
                held = found.get((client, topic))
                if held is None or held.rank < entries[client].rank:
                    found[client, topic] = entries[client]

        await each(list(large), look, self._at_once)
        return {pair: entry for pair, entry in found.items() if not entry.mark}

    async def _named(self, slot: int, part: int, partition: TermPartition) -> set[str]:
        """All topics of the partition that can have ending subscriptions."""
        names = {*partition.topics, *partition.spilled}
        if partition.full:
            names |= await self._names.members(_name_of(self._buckets.ending_partition(slot, part)))
        return names

    async def _entries(
        self, topic: str, partition: TermPartition, phase: int, after: bytes
    ) -> AsyncGenerator[tuple[int, dict[str, Stamped]], None]:
        """The topic's subscriptions, those of its partition (phase 0) before those in objects of its own (1); from the
        first above the place ``after`` on, of the phase given."""
        here = partition.topics.get(topic, {})
        if phase == 0:
            yield 0, {client: entry for client, entry in here.items() if place_of(client) > after}
            after = b""
        if not partition.elsewhere(topic):
            return
        terms: dict[str, Stamped] = {}
        stretches = self._topics.stretches(topic, after, lambda shard: keep_later(terms, shard.terms))
        async with aclosing(stretches):
            async for stretch in stretches:
                # A client that is in both places, by a late write of a former home, has come already.
                yield 1, {client: terms.pop(client) for client in stretch if client not in here}

    async def _put(self, wanted: Mapping[Pair, Term]) -> None:
        plan: defaultdict[Address, list[Pair]] = defaultdict(list)
        for client, topic in wanted:
            plan[self._address(topic)].append((client, topic))
        large: defaultdict[str, set[str]] = defaultdict(set)

        async def change(address: Address) -> None:
            def edit(partition: TermPartition) -> tuple[list[Pair], bool]:
                full, spilled = partition.full, len(partition.spilled)
                elsewhere = [
                    (client, topic)
                    for client, topic in plan[address]
                    if not partition.put(topic, client, wanted[client, topic])
                ]
                self._counters["partitions_filled"] += partition.full - full
                self._counters["topics_spilled"] += len(partition.spilled) - spilled
                return elsewhere, partition.full

            elsewhere, full = await self._objects.change(self._new_partition, address, edit)
            for client, topic in elsewhere:
                large[topic].add(client)
            if full and elsewhere:
                # Before there is anything under the name: what could not be found would not be renewed.
                await self._names.update(_name_of(address), {topic for _, topic in elsewhere}, ())

        await each(list(plan), change, self._at_once)

        async def change_large(topic: str) -> None:
            def put(shard: TermObject, client: str, limit: int) -> bool:
                return shard.put(client, wanted[client, topic], limit)

            await self._topics.update(topic, large[topic], (), put=put)

        await each(list(large), change_large, self._at_once)

    async def _take(self, stamps: Mapping[Pair, int | None], *, marking: bool = False) -> dict[Pair, Stamped]:
        """Take out what has the stamp given with it (``None``: whichever it has); those that have another stamp. Or
        mark them, whichever stamp they have; all that there were."""
        plan: defaultdict[Address, list[Pair]] = defaultdict(list)
        for client, topic in stamps:
            plan[self._address(topic)].append((client, topic))
        left: dict[Pair, Stamped] = {}
        large: defaultdict[str, set[str]] = defaultdict(set)

        async def change(address: Address) -> None:
            def edit(partition: TermPartition) -> list[Pair]:
                for client, topic in plan[address]:
                    stamp = stamps[client, topic]
                    if held := partition.mark(topic, client) if marking else partition.take(topic, client, stamp):
                        left[client, topic] = held
                return [pair for pair in plan[address] if partition.elsewhere(pair[1])]

            for client, topic in await self._objects.change(self._new_partition, address, edit):
                large[topic].add(client)

        await each(list(plan), change, self._at_once)

        async def change_large(topic: str) -> None:
            def take(shard: TermObject, client: str) -> None:
                if held := shard.mark(client) if marking else shard.take(client, stamps[client, topic]):
                    left[client, topic] = held

            await self._topics.update(topic, (), large[topic], take=take)

        await each(list(large), change_large, self._at_once)
        return left

    async def _change_lists(self, topics_of: Mapping[str, list[str]], *, adding: bool) -> None:
        async def change(client: str) -> None:
            topics = topics_of[client]
            await self._lists.update(client, topics if adding else (), () if adding else topics)

        await each(list(topics_of), change, self._at_once)

    async def _change_ended(self, topics_of: Mapping[str, list[str]], *, adding: bool) -> None:
        kept_ms = round(self._expiry_s * 1000)

        async def change(client: str) -> None:
            def edit(ended: EndedTopics) -> None:
                if adding:
                    self._counters["ended_unnamed"] += ended.add(topics_of[client], kept_ms)
                else:
                    ended.discard(topics_of[client])

            await self._objects.change(self._new_ended, self._buckets.ended_of(client), edit)

        await each(list(topics_of), change, self._at_once)


def _topics_of(pairs: Collection[Pair]) -> dict[str, list[str]]:
    """By client."""
    topics: dict[str, list[str]] = {}
    for client, topic in pairs:
        topics.setdefault(client, []).append(topic)
    return topics


def _name_of(partition: Address) -> str:
    """Of the set with the topics that a full partition has no room for."""
    return partition.key.decode()
