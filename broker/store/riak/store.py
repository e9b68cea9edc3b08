"""The store contract on a Riak cluster.

Owns: which objects an operation touches, and in which order. Must never: know how an object gets to a node (``pool``),
how versions of it merge (``layout``, ``objects``), or anything of the endpoint.

Layout, quorums and their reasons: ADR 0003. How to set up a cluster: ``docs/riak.md``.
"""

from __future__ import annotations

import re
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from contextlib import aclosing
from typing import Final

import ormsgpack

from ..base import (
    Ended,
    Ending,
    Endpoint,
    Kept,
    Location,
    Revocation,
    Settings,
    Shape,
    StoreError,
    StoreMisconfigured,
    StoreUnavailable,
    Subscribers,
    Term,
)
from ..settings import packed
from . import riak_pb2 as pb
from . import wire
from .checks import ENDING_SECTION, GONE, Backends, check_nodes, check_types, settle_layout
from .connecting import Connecting
from .counters import zeroed
from .ending import EndingSubscriptions, Pair
from .filtered import FilteredSubscriptions
from .flow import each, together
from .layout import (
    VERSION,
    Buckets,
    Layout,
    ListObject,
    Partition,
    Revoked,
    SetObject,
    Whereabouts,
    partition_of,
    place_of,
)
from .listing import Listing, in_pages
from .objects import Address, Objects
from .pool import Pool
from .registry import Registry
from .sets import LargeSets

TIMEOUT_S: Final = 4.0
"""For one object, all attempts together: the endpoint tells its client ``store_unavailable`` within five seconds."""

ATTEMPT_TIMEOUT_S: Final = 1.5
"""For one attempt: a loaded node answers in tens of milliseconds, and two silent ones leave time for a third."""

CONNECTIONS_PER_NODE: Final = 8
"""A node does 1,000 requests a second on one connection and about twice that on many; eight are plenty."""

ENDING_EXPIRY_S: Final = 86_400.0
"""A day: renewed three times in it, what clients subscribed to lives through a night without any endpoint."""

NO_JOURNAL: Final = (
    "a store on Riak keeps no journal of messages: keep history in memory (history = memory), or use the embedded store"
)

_CURSOR: Final = re.compile("[0-9a-f]{32}", re.ASCII)  # the place of the last topic of a page

# partition -> (topics and clients to add, topics and clients to take out)
_Plan = dict[Address, tuple[list[tuple[str, str]], list[tuple[str, str]]]]


class RiakStore:
    """``base.Store`` on the Riak nodes given as ``(host, port)`` of their Protocol Buffers interface.

    ``counters`` holds what happened since the start, by the names in ``counters.MEANING``.

    :param timeout_s: for one object, retries on other nodes included. A batch of many objects may take longer as long
        as each is done in time; when one is not, the whole operation fails at once.
    :param connections_per_node: so many requests a node works on at the same time.
    :param bucket_type: created with ``allow_mult=true``; holds everything but the hashes.
    :param seen_type: for the hashes of ``lookup`` routing.
    :param ending_type: for ending subscriptions; its backend expires.
    :param ending_expiry_s: what is not written again for so long, that backend may delete, and not before.
    :param namespace: what the names of all buckets start with; several brokers can share a cluster.
    :param partitions_per_slot: a power of two; ``None`` takes what the store was created with (1 for a new one).
    :param node_confirms: machines that must have a write before it counts. 1 for a cluster of one node, for trying out.
    :param read_only: of a store that is there already; nothing is written, siblings that are found are left.
    :param connecting: ``Secured`` where Riak's security is on; in plain text where none is given.
    """

    def __init__(
        self,
        nodes: Sequence[tuple[str, int]],
        *,
        timeout_s: float = TIMEOUT_S,
        attempt_timeout_s: float = ATTEMPT_TIMEOUT_S,
        connections_per_node: int = CONNECTIONS_PER_NODE,
        bucket_type: str = "ingeborg",
        seen_type: str = "ingeborg_seen",
        ending_type: str = "ingeborg_ending",
        ending_expiry_s: float = ENDING_EXPIRY_S,
        namespace: str = "ingeborg",
        partitions_per_slot: int | None = None,
        node_confirms: int = 2,
        read_only: bool = False,
        connecting: Connecting | None = None,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        if not nodes:
            raise StoreMisconfigured("no Riak node given")
        self.counters: dict[str, int] = zeroed()
        self._pool = Pool(
            nodes,
            self.counters,
            timeout_s=timeout_s,
            attempt_timeout_s=attempt_timeout_s,
            connections_per_node=connections_per_node,
            connecting=connecting,
        )
        # The node gives up a little before the driver does: its own error says more than silence.
        self._server_timeout_s = attempt_timeout_s * 0.9
        self._objects, self._ending_objects = (
            Objects(
                self._pool,
                self.counters,
                bucket_type=name.encode(),
                node_confirms=node_confirms,
                server_timeout_s=self._server_timeout_s,
                read_only=read_only,
            )
            for name in (bucket_type, ending_type)
        )
        self._read_only = read_only
        self._buckets = Buckets(namespace)
        self._types = (bucket_type, seen_type, ending_type)
        self.seen_type, self.ending_type = seen_type, ending_type
        self._backends = Backends("", "")  # that these types name, once opened
        self._wanted = partitions_per_slot
        self._partitions_per_slot = 0  # not open
        self._wall_clock = wall_clock
        # One operation may fill the pool; several share it by its line.
        self._at_once = self._pool.capacity
        self._large_topics = LargeSets(
            self._objects, self._buckets.subscribers, self.counters, at_once=self._at_once, kind=SetObject
        )
        self._topics_of = LargeSets(
            self._objects,
            self._buckets.clients,
            self.counters,
            at_once=self._at_once,
            kind=lambda: ListObject(int(self._wall_clock() * 1000)),
        )
        self._registry = Registry(self._objects, self._buckets, at_once=self._at_once)
        self._filtered = FilteredSubscriptions(
            self._objects, self._buckets, self.counters, at_once=self._at_once, wall_clock=self._wall_clock
        )
        self._ending = EndingSubscriptions(
            self._ending_objects,
            self._buckets,
            self.counters,
            expiry_s=ending_expiry_s,
            at_once=self._at_once,
            wall_clock=self._wall_clock,
            plain=self._plain,
            locations=self.locations,
        )
        # A cluster of three nodes writes 600 objects a second; a partition's is written once for all its topics. When
        # it is slow each connection has one of them.
        self.shape = Shape(
            topics_at_once=2_000,
            slots_together=True,
            renew_s=self._ending.renew_s,
            topics_at_least=self._pool.capacity,
        )

    async def open(self) -> None:
        await check_nodes(self._pool)
        self._backends = await check_types(self._pool, *self._types)
        partitions_per_slot = await settle_layout(self._objects, self._buckets, self._wanted, read_only=self._read_only)
        try:
            # Riak makes a type whatever backend it names; one that a node does not have shows when it is used.
            await self._ending_objects.get(self._buckets.ending_partition(0, 0))
        except StoreUnavailable as error:
            raise StoreUnavailable(
                f"nothing can be read in bucket type {self.ending_type!r}: {error}. If other types can be read, a node "
                f"has no backend {self._backends.ending!r} in its riak.conf (docs/riak.md, {ENDING_SECTION})"
            ) from error
        self._ending.open(partitions_per_slot)
        self._filtered.open(partitions_per_slot)
        self._partitions_per_slot = partitions_per_slot

    async def close(self) -> None:
        self._partitions_per_slot = 0
        self._pool.close()
        await self._objects.close()
        await self._ending_objects.close()

    async def repaired(self) -> None:
        """Wait until the siblings that reads have found are written back, or could not be."""
        await self._objects.repaired()
        await self._ending_objects.repaired()

    @property
    def seen_backend(self) -> str:
        """The backend that the type for hashes names, once opened; empty: the cluster's default."""
        return self._backends.seen

    @property
    def ending_backend(self) -> str:
        """The same of the type for ending subscriptions."""
        return self._backends.ending

    # Subscriptions. The subscriber set first, the client's index after it: what a crash in between leaves is a topic
    # missing from a listing until the client subscribes again, and never a listed topic that delivers nothing.

    async def subscribe(self, batch: Sequence[tuple[str, Sequence[str]]]) -> None:
        await self._change_subscribers(self._plan(batch, 0))
        pairs = {(client, topic) for client, topics in batch for topic in topics}
        ending: set[Pair] = set()

        async def make_plain() -> None:
            ending.update(await self._ending.make_plain(pairs))

        # Only now: a crash leaves both, of which the plain one counts, or neither an older one nor the new one.
        await together(
            lambda: self._change_topics(batch, adding=True), make_plain, lambda: self._ending.come_back(pairs)
        )
        # After the plain list has them: a listing finds them in one of the two at any moment.
        await self._ending.unlist(ending)

    async def unsubscribe(self, batch: Sequence[tuple[str, Sequence[str]]]) -> None:
        await self._unsubscribe(batch, filters=True)

    async def _unsubscribe(self, batch: Sequence[tuple[str, Sequence[str]]], *, filters: bool) -> None:
        pairs = {(client, topic) for client, topics in batch for topic in topics}
        sets: list[Callable[[], Awaitable[None]]] = [
            lambda: self._change_subscribers(self._plan(batch, 1)),
            lambda: self._ending.take_out(pairs),
        ]
        lists: list[Callable[[], Awaitable[None]]] = [
            lambda: self._change_topics(batch, adding=False),
            lambda: self._ending.unlist(pairs),
        ]
        if filters:
            sets.append(lambda: self._filtered.take_out(pairs))
            lists.append(lambda: self._filtered.unlist(pairs))
        await together(*sets)
        await together(*lists)

    def _plan(self, batch: Sequence[tuple[str, Sequence[str]]], side: int) -> _Plan:
        plan: _Plan = {}
        for client, topics in batch:
            for topic in topics:
                plan.setdefault(self._partition(topic), ([], []))[side].append((topic, client))
        return plan

    async def _change_topics(self, batch: Sequence[tuple[str, Sequence[str]]], *, adding: bool) -> None:
        index: defaultdict[str, set[str]] = defaultdict(set)
        for client, topics in batch:
            if topics:
                index[client].update(topics)

        async def change(client: str) -> None:
            topics = index[client]
            await self._topics_of.update(client, topics if adding else (), () if adding else topics)

        await each(list(index), change, self._at_once)

    async def _change_subscribers(self, plan: _Plan) -> None:
        adding: defaultdict[str, set[str]] = defaultdict(set)
        removing: defaultdict[str, set[str]] = defaultdict(set)

        async def change(address: Address) -> None:
            to_add, to_remove = plan[address]

            def edit(partition: Partition) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
                full, spilled = partition.full, len(partition.spilled)
                for topic, client in to_remove:
                    partition.discard(topic, client)
                add_elsewhere = [(topic, client) for topic, client in to_add if not partition.add(topic, client)]
                self.counters["partitions_filled"] += partition.full - full
                self.counters["topics_spilled"] += len(partition.spilled) - spilled
                return add_elsewhere, [entry for entry in to_remove if partition.elsewhere(entry[0])]

            add_elsewhere, remove_elsewhere = await self._objects.change(Partition, address, edit)
            for topic, client in add_elsewhere:
                adding[topic].add(client)
            for topic, client in remove_elsewhere:
                removing[topic].add(client)

        await each(list(plan), change, self._at_once)

        async def change_large(topic: str) -> None:
            await self._large_topics.update(topic, adding[topic], removing[topic])

        await each(list({*adding, *removing}), change_large, self._at_once)

    async def subscribers(self, topics: Sequence[str]) -> tuple[list[set[str]], list[str]]:
        self._require_open()
        found: list[set[str]] = []
        others: list[set[str]] = []

        async def read() -> None:
            found.extend(await self._plain_subscribers(topics))

        async def read_ending() -> None:
            others.extend(await self._ending.subscribers(topics))

        await together(read, read_ending)
        # A filter that replaces one of these is written before that is taken out, so whoever is not in them is here.
        filtered = await self._filtered.named(topics)
        for clients, more in zip(found, others, strict=True):
            clients |= more
        return found, filtered

    async def _plain_subscribers(self, topics: Sequence[str]) -> list[set[str]]:
        places, partitions = await self._read_partitions(topics)
        found = [set(partitions[place].topics.get(topic, ())) for topic, place in zip(topics, places, strict=True)]

        async def read_large(position: int) -> None:
            found[position] |= await self._large_topics.members(topics[position])

        large = [n for n, topic in enumerate(topics) if partitions[places[n]].elsewhere(topic)]
        await each(large, read_large, self._at_once)
        return found

    async def _read_partitions(self, topics: Sequence[str]) -> tuple[list[Address], dict[Address, Partition]]:
        """Of each topic the address of its partition, and these."""
        places = [self._partition(topic) for topic in topics]
        partitions: dict[Address, Partition] = {}

        async def read(address: Address) -> None:
            partitions[address] = await self._objects.read(Partition, address)

        await each(list(dict.fromkeys(places)), read, self._at_once)
        return places, partitions

    async def _plain(self, pairs: Collection[Pair]) -> set[Pair]:
        """Those of these clients and topics that are plain subscriptions."""
        places, partitions = await self._read_partitions([topic for _, topic in pairs])
        found: set[Pair] = set()
        large: defaultdict[str, set[str]] = defaultdict(set)
        for (client, topic), place in zip(pairs, places, strict=True):
            if client in partitions[place].topics.get(topic, ()):
                found.add((client, topic))
            elif partitions[place].elsewhere(topic):
                large[topic].add(client)

        async def look(topic: str) -> None:
            def meet(shard: SetObject) -> None:
                found.update((client, topic) for client in large[topic] & shard.members)

            await self._large_topics.look(topic, large[topic], meet)

        await each(list(large), look, self._at_once)
        return found

    def subscribers_now(self, topics: Sequence[str]) -> tuple[list[Subscribers], list[str]] | None:
        return None

    async def topics(self, client: str, cursor: str | None, limit: int) -> tuple[list[str], str | None]:
        self._require_open()
        if limit < 1:
            raise ValueError("a page has at least one topic")
        if cursor is not None and not _CURSOR.fullmatch(cursor):
            raise ValueError(f"{cursor!r} is no cursor of this store")
        after = bytes.fromhex(cursor) if cursor is not None else b""
        # One more than asked for tells whether there is a next page, so that no page is ever empty but the only one.
        # In the order in which a subscription becomes another one (ending, plain, with a filter): it is in the later
        # list before it has left the earlier one.
        page = await self._ending.topics(client, after, limit + 1)
        page += await self._topics_of.page(client, after, limit + 1)
        page += await self._filtered.topics(client, after, limit + 1)
        page = sorted(set(page), key=place_of)[: limit + 1]
        if len(page) <= limit:
            return page, None
        return page[:limit], place_of(page[limit - 1]).hex()

    async def subscribed(self, client: str, topics: Sequence[str], unfiltered: bool = False) -> list[bool]:
        self._require_open()
        pairs = dict.fromkeys((client, topic) for topic in topics)  # each once, and in order
        found: set[Pair] = set()

        async def look(kind: Callable[[Collection[Pair]], Awaitable[set[Pair]]]) -> None:
            found.update(await kind(wanted))

        # By what delivers, and not by the client's lists, which a crash leaves behind. A subscription may become one of
        # another kind meanwhile, and be looked for too early there and too late where it was: a second look finds it.
        kinds = [self._ending.held, self._plain]
        if not unfiltered:
            kinds.append(self._filtered.held)
        for _ in range(2):
            if wanted := pairs.keys() - found:
                await each(kinds, look, len(kinds))
        return [(client, topic) in found for topic in topics]

    def subscribed_now(self, client: str, topics: Sequence[str], unfiltered: bool = False) -> list[bool] | None:
        return None

    # Subscriptions with filters.

    async def subscribe_filtered(self, batch: Sequence[tuple[str, Sequence[str], str, bool]]) -> None:
        self._require_open()
        replaced = [(client, topics) for client, topics, _, replace in batch if replace and topics]
        await self._filtered.subscribe(batch)
        if not replaced:
            return
        # Only now: at every moment, and after a crash at any, there is one or the other, or both.
        await self._unsubscribe(replaced, filters=False)

    async def unsubscribe_filtered(self, batch: Sequence[tuple[str, Sequence[str], str]]) -> None:
        self._require_open()
        await self._filtered.unsubscribe(batch)

    async def filtered(
        self, asked: Sequence[tuple[str, str | None]], limit: int
    ) -> list[tuple[list[tuple[str, str]], str | None]]:
        self._require_open()
        return await self._filtered.pages(asked, limit)

    def filtered_now(
        self, asked: Sequence[tuple[str, str | None]], limit: int
    ) -> list[tuple[list[tuple[str, str]], str | None]] | None:
        return None

    async def filters_of(self, pairs: Sequence[tuple[str, str]]) -> list[list[str]]:
        self._require_open()
        return await self._filtered.filters_of(pairs)

    async def filtered_subscriptions(self) -> AsyncIterator[list[tuple[str, list[tuple[str, str]]]]]:
        self._require_open()
        async with aclosing(in_pages(self._filtered.everything())) as pages:
            async for page in pages:
                yield page

    # Ending subscriptions.

    async def subscribe_ending(self, batch: Sequence[tuple[str, Sequence[str], Term]]) -> None:
        self._require_open()
        await self._ending.subscribe(batch)

    async def terms(self, pairs: Sequence[tuple[str, str]]) -> list[Term | None]:
        self._require_open()
        return await self._ending.terms(pairs)

    async def ending_slots(self) -> list[int] | None:
        return None

    async def ending(self, slot: int, cursor: str | None, limit: int) -> tuple[list[Ending], str | None]:
        self._require_open()
        return await self._ending.page(slot, cursor, limit)

    async def end(self, batch: Sequence[tuple[Sequence[Ending], Location | None, bool]]) -> list[list[Ending]]:
        self._require_open()
        return await self._ending.end(batch)

    async def ended(self, clients: Sequence[str]) -> list[Ended | None]:
        self._require_open()
        return await self._ending.ended(clients)

    async def renew(self, slot: int) -> None:
        self._require_open()
        await self._ending.renew(slot)

    async def tidy(self, kept_s: float) -> int:
        # Riak forgets what has expired by itself. Locations stay: docs/riak.md, Ending subscriptions.
        self._ending.forget_after(kept_s)
        return 0

    # The journal of kept messages: there is none, and whoever is to keep history in it is told so.

    async def keep(
        self,
        kept: Sequence[Kept],
        forgotten: Sequence[tuple[int, int]],
        floors: Sequence[tuple[int, int]],
        whole: Sequence[int] = (),
    ) -> None:
        raise StoreError(NO_JOURNAL)

    async def kept(
        self, slots: Sequence[int], cursor: str | None, limit: int
    ) -> tuple[list[Kept], list[tuple[int, int]], str | None]:
        raise StoreError(NO_JOURNAL)

    async def kept_top(self) -> int:
        raise StoreError(NO_JOURNAL)

    async def reach(self, lines: Sequence[str], stamp: int) -> tuple[list[tuple[str, int]], int]:
        raise StoreError(NO_JOURNAL)

    async def subscriptions(self) -> AsyncIterator[list[tuple[str, list[str]]]]:
        self._require_open()
        listing = Listing(
            self._pool,
            self._objects,
            self._buckets,
            self._large_topics,
            bucket_type=self._types[0].encode(),
            partitions_per_slot=self._partitions_per_slot,
        )
        async for page in listing.pages():
            yield page

    def _partition(self, topic: str) -> Address:
        self._require_open()
        return self._buckets.partition(*partition_of(topic, self._partitions_per_slot))

    def _require_open(self) -> None:
        if not self._partitions_per_slot:
            raise StoreUnavailable("the store is not open")

    # Locations.

    async def listen(self, clients: Sequence[str], incarnation: str) -> list[tuple[Location, Ended | None]]:
        found: list[Location | None] = [None] * len(clients)
        least = int(self._wall_clock() * 1000)

        async def move(position: int) -> None:
            def edit(whereabouts: Whereabouts) -> None:
                held = whereabouts.location
                # Drawn once: what another has written by the time of a second try stays if it is greater.
                drawn = found[position] or Location(max(held.number + 1, least) if held else least, incarnation, True)
                found[position] = drawn
                if held is None or held.rank < drawn.rank:
                    whereabouts.move(drawn)

            await self._objects.change(Whereabouts, self._buckets.location(clients[position]), edit)

        await each(range(len(clients)), move, self._at_once)
        ended = await self._ending.ended(clients)  # after the locations, or an ``end`` could be missed (``ending.py``)
        drawn = [location for location in found if location is not None]
        return list(zip(drawn, ended, strict=True))

    async def unlisten(self, batch: Sequence[tuple[str, Location]]) -> None:
        async def leave(entry: tuple[str, Location]) -> None:
            client, given = entry

            def edit(whereabouts: Whereabouts) -> None:
                # Written back with the context of what was just read. Should a newer listen land in between, the two
                # become siblings and the greater one, the listen, is true: it cannot be undone from here.
                if whereabouts.location == given and given.online:
                    whereabouts.move(given._replace(online=False))

            await self._objects.change(Whereabouts, self._buckets.location(client), edit)

        await each(batch, leave, self._at_once)

    async def locations(self, clients: Sequence[str]) -> list[Location | None]:
        found: dict[str, Location | None] = {}

        async def read(client: str) -> None:
            found[client] = (await self._objects.read(Whereabouts, self._buckets.location(client))).location

        await each(list(dict.fromkeys(clients)), read, self._at_once)
        return [found[client] for client in clients]

    def locations_now(self, clients: Sequence[str]) -> list[Location | None] | None:
        return None

    # Hashes, for lookup routing only: best effort, so a not-found is believed at once and no version is merged.

    async def seen(self, hashes: Sequence[bytes], ttl_s: float) -> list[bool]:
        self._require_open()
        now = self._wall_clock()
        expires = ormsgpack.packb([VERSION, now + ttl_s])
        known: dict[bytes, bool] = {}
        server_timeout_ms = round(self._server_timeout_s * 1000)
        bucket_type = self._types[1].encode()

        async def check(key: bytes) -> None:
            get = pb.RpbGetReq(bucket=self._buckets.seen, key=key, type=bucket_type, timeout=server_timeout_ms)
            self.counters["gets"] += 1
            answer = await self._pool.request(wire.GET_REQUEST, get.SerializeToString(), wire.GET_ANSWER, pb.RpbGetResp)
            known[key] = any(_expiry(content.value) > now for content in answer.content if not content.deleted)
            put = pb.RpbPutReq(bucket=self._buckets.seen, key=key, type=bucket_type, timeout=server_timeout_ms)
            put.content.value = expires
            self.counters["puts"] += 1
            self.counters["bytes_written"] += len(expires)
            await self._pool.request(wire.PUT_REQUEST, put.SerializeToString(), wire.PUT_ANSWER, pb.RpbPutResp)

        await each(list(dict.fromkeys(hashes)), check, self._at_once)
        answers = []
        for key in hashes:
            answers.append(known[key])
            known[key] = True  # the same hash again in one batch is a repetition
        return answers

    # The registry.

    async def register(self, endpoint: Endpoint) -> None:
        await self._registry.register(endpoint)

    async def heartbeat(self, endpoint: Endpoint) -> None:
        await self._registry.heartbeat(endpoint)

    async def deregister(self, endpoint: Endpoint) -> None:
        await self._registry.deregister(endpoint)

    async def endpoints(self) -> list[Endpoint]:
        return await self._registry.endpoints()

    # The cluster's settings, in the layout object. Versions of it that contradict each other are a person's to decide,
    # so none is written back from here.

    async def settings(self, first: Settings | None = None) -> Settings | None:
        found = (await self._layout()).settings
        if found is not None or first is None:
            return found
        await self._record(first, is_first=True)
        return (await self._layout()).settings  # another process may have recorded some at the same time

    async def set_settings(self, settings: Settings) -> None:
        await self._record(settings, is_first=False)

    async def _layout(self) -> Layout:
        layout = await self._objects.read_only(Layout, self._buckets.layout)
        if not layout.partitions_per_slot:
            raise StoreMisconfigured(GONE)
        return layout

    async def _record(self, settings: Settings, *, is_first: bool) -> None:
        packed(settings)  # or it raises
        await self._objects.change(
            Layout, self._buckets.layout, lambda layout: layout.record(settings, is_first=is_first)
        )

    # Revoked tokens, in an object beside it.

    async def revoke(self, batch: Sequence[Revocation]) -> None:
        now = self._wall_clock()
        await self._objects.change(Revoked, self._buckets.revocations, lambda revoked: revoked.revoke(batch, now))

    async def revocations(self) -> list[Revocation]:
        found = (await self._objects.read(Revoked, self._buckets.revocations)).revocations
        if not found:
            await self._layout()  # every endpoint asks all the time, so it finds out when the store is gone
        return found


def _expiry(value: bytes) -> float:
    """When a stored hash expires, in seconds since the epoch; one that cannot be read has expired."""
    try:
        version, expires = ormsgpack.unpackb(value)
    except (ormsgpack.MsgpackDecodeError, TypeError, ValueError):
        return 0.0
    return float(expires) if version == VERSION else 0.0
