"""The store contract on a Riak cluster.

Owns: which objects an operation touches, and in which order. Must never: know how an object gets to a node (``pool``),
how versions of it merge (``layout``, ``objects``), or anything of the endpoint.

Layout, quorums and their reasons: ADR 0003. How to set up a cluster: ``docs/riak.md``.
"""

from __future__ import annotations

import re
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Final

import ormsgpack

from ..base import Endpoint, Location, Revocation, Shape, StoreMisconfigured, StoreUnavailable, Subscribers
from ..features import require_name
from . import riak_pb2 as pb
from . import wire
from .checks import check_nodes, check_types, settle_layout
from .connecting import Connecting
from .counters import zeroed
from .flow import each
from .layout import VERSION, Buckets, Layout, ListObject, Partition, Revoked, Whereabouts, partition_of, place_of
from .listing import Listing
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

SWITCHES_MAX: Final = 3
"""Tries to switch off what others switch on meanwhile. Two may be chance; the third says that they mean it."""

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
    :param namespace: what the names of all buckets start with; several brokers can share a cluster.
    :param partitions_per_slot: a power of two; ``None`` takes what the store was created with (1 for a new one).
    :param node_confirms: machines that must have a write before it counts. 1 for a cluster of one node, for trying out.
    :param read_only: of a store that is there already; nothing is written, siblings that are found are left.
    :param connecting: ``Secured`` where Riak's security is on; in plain text where none is given.
    """

    #: A cluster of three nodes writes 600 objects a second; a partition's is written once for all its topics.
    shape = Shape(topics_at_once=2_000, slots_together=True)

    def __init__(
        self,
        nodes: Sequence[tuple[str, int]],
        *,
        timeout_s: float = TIMEOUT_S,
        attempt_timeout_s: float = ATTEMPT_TIMEOUT_S,
        connections_per_node: int = CONNECTIONS_PER_NODE,
        bucket_type: str = "ingeborg",
        seen_type: str = "ingeborg_seen",
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
        self._objects = Objects(
            self._pool,
            self.counters,
            bucket_type=bucket_type.encode(),
            node_confirms=node_confirms,
            server_timeout_s=self._server_timeout_s,
            read_only=read_only,
        )
        self._read_only = read_only
        self._buckets = Buckets(namespace)
        self._types = (bucket_type, seen_type)
        self._wanted = partitions_per_slot
        self._partitions_per_slot = 0  # not open
        self._wall_clock = wall_clock
        # One operation may fill the pool; several share it by its line.
        self._at_once = self._pool.capacity
        self._large_topics = LargeSets(self._objects, self._buckets.subscribers, self.counters, at_once=self._at_once)
        self._topics_of = LargeSets(
            self._objects,
            self._buckets.clients,
            self.counters,
            at_once=self._at_once,
            kind=lambda: ListObject(int(self._wall_clock() * 1000)),
        )
        self._registry = Registry(self._objects, self._buckets, at_once=self._at_once)

    async def open(self) -> None:
        await check_nodes(self._pool)
        await check_types(self._pool, *self._types)
        self._partitions_per_slot = await settle_layout(
            self._objects, self._buckets, self._wanted, read_only=self._read_only
        )

    async def close(self) -> None:
        self._partitions_per_slot = 0
        self._pool.close()
        await self._objects.close()

    async def repaired(self) -> None:
        """Wait until the siblings that reads have found are written back, or could not be."""
        await self._objects.repaired()

    # Subscriptions. The subscriber set first, the client's index after it: what a crash in between leaves is a topic
    # missing from a listing until the client subscribes again, and never a listed topic that delivers nothing.

    async def subscribe(self, batch: Sequence[tuple[str, Sequence[str]]]) -> None:
        await self._change_subscribers(self._plan(batch, 0))
        await self._change_topics(batch, adding=True)

    async def unsubscribe(self, batch: Sequence[tuple[str, Sequence[str]]]) -> None:
        await self._change_subscribers(self._plan(batch, 1))
        await self._change_topics(batch, adding=False)

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

    async def subscribers(self, topics: Sequence[str]) -> list[set[str]]:
        places = [self._partition(topic) for topic in topics]
        partitions: dict[Address, Partition] = {}

        async def read(address: Address) -> None:
            partitions[address] = await self._objects.read(Partition, address)

        await each(list(dict.fromkeys(places)), read, self._at_once)
        found = [set(partitions[place].topics.get(topic, ())) for topic, place in zip(topics, places, strict=True)]

        async def read_large(position: int) -> None:
            found[position] |= await self._large_topics.members(topics[position])

        large = [n for n, topic in enumerate(topics) if partitions[places[n]].elsewhere(topic)]
        await each(large, read_large, self._at_once)
        return found

    def subscribers_now(self, topics: Sequence[str]) -> list[Subscribers] | None:
        return None

    async def topics(self, client: str, cursor: str | None, limit: int) -> tuple[list[str], str | None]:
        self._require_open()
        if limit < 1:
            raise ValueError("a page has at least one topic")
        if cursor is not None and not _CURSOR.fullmatch(cursor):
            raise ValueError(f"{cursor!r} is no cursor of this store")
        after = bytes.fromhex(cursor) if cursor is not None else b""
        # One more than asked for tells whether there is a next page, so that no page is ever empty but the only one.
        page = await self._topics_of.page(client, after, limit + 1)
        if len(page) <= limit:
            return page, None
        return page[:limit], place_of(page[limit - 1]).hex()

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

    async def listen(self, clients: Sequence[str], incarnation: str) -> list[Location]:
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
        return [location for location in found if location is not None]

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

    # Features, in the layout object.

    async def features(self) -> frozenset[str]:
        # Versions that contradict each other are a person's to decide, so none is written back from here.
        return (await self._objects.read_only(Layout, self._buckets.layout)).features

    async def switch(self, feature: str, on: bool) -> None:
        require_name(feature)
        for _ in range(SWITCHES_MAX):
            await self._objects.change(Layout, self._buckets.layout, lambda layout: layout.switch(feature, on))
            # An *off* that missed a write under way is not true, and this is when it shows.
            if on or feature not in await self.features():
                return
        raise StoreUnavailable(f"other processes switch {feature!r} on at the same time: it is still on, try again")

    # Revoked tokens, in an object beside it.

    async def revoke(self, batch: Sequence[Revocation]) -> None:
        now = self._wall_clock()
        await self._objects.change(Revoked, self._buckets.revocations, lambda revoked: revoked.revoke(batch, now))

    async def revocations(self) -> list[Revocation]:
        return (await self._objects.read(Revoked, self._buckets.revocations)).revocations


def _expiry(value: bytes) -> float:
    """When a stored hash expires, in seconds since the epoch; one that cannot be read has expired."""
    try:
        version, expires = ormsgpack.unpackb(value)
    except (ormsgpack.MsgpackDecodeError, TypeError, ValueError):
        return 0.0
    return float(expires) if version == VERSION else 0.0
