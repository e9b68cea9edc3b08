"""The store contract on a Riak cluster.

Owns: which objects an operation reads and writes, and in which order. Must never: know how an object gets to a node
(``pool``), how versions of an object merge (``layout``, ``objects``), or anything about the endpoint.

ADR 0003 explains the layout and the quorums. ``docs/riak.md`` explains how to set up a cluster.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing
from typing import Final

import ormsgpack

from ..base import (
    Ended,
    Endpoint,
    FilterPage,
    Location,
    RetainedMessage,
    Revocation,
    Settings,
    Shape,
    StoreError,
    StoreMisconfigured,
    StoreUnavailable,
    Subscribe,
    Subscribers,
    Subscription,
    TopicPage,
)
from ..settings import packed
from . import riak_pb2 as pb
from . import wire
from .access import Access
from .checks import GONE, check_nodes, check_types, settle_layout
from .connecting import Connecting
from .counters import zeroed
from .entries import subscriptions
from .expiry import End, Ends, after_cursor
from .flow import each, together
from .layout import VERSION, Buckets, Layout, Revoked, place_of
from .locations import Locations
from .objects import Objects
from .pool import Pool
from .records import Records
from .registry import Registry
from .terms import Terms

TIMEOUT_S: Final = 4.0
"""Time limit for one object, including all attempts. It is less than the five seconds within which the endpoint reports
``store_unavailable`` to its client."""

ATTEMPT_TIMEOUT_S: Final = 1.5
"""Time limit for one attempt. A loaded node answers in tens of milliseconds, and if two nodes are silent, there is time
for a third one."""

CONNECTIONS_PER_NODE: Final = 8
"""Number of connections to each node. A node handles 1,000 requests per second on one connection and about twice that
on many connections, so eight are plenty."""

NO_JOURNAL: Final = (
    "a store on Riak keeps no journal of messages: keep history in memory (history = memory), or use the embedded store"
)


class RiakStore:
    """Implements ``base.Store`` on the Riak nodes given as ``(host, port)`` of their Protocol Buffers interface.

    ``counters`` has the number of events since the start, by the names in ``counters.MEANING``.

    :param timeout_s: time limit for one object, including retries on other nodes. A batch of many objects can take
    longer. If one of its objects exceeds this limit, the whole operation fails immediately.
    :param connections_per_node: number of requests that the store sends to a node concurrently.
    :param bucket_type: a bucket type that was created with ``allow_mult=true``. It holds everything except the hashes.
    :param seen_type: the bucket type for the hashes of ``lookup`` routing.
    :param namespace: prefix of the names of all buckets, so that several brokers can share a cluster.
    :param partitions_per_slot: a power of two, or ``None`` to use the store's own value (1 for a new store).
    :param node_confirms: number of machines that must confirm a write. Use 1 for a trial cluster of one node.
    :param read_only: whether to open an existing store without writing anything, not even repairs of siblings.
    :param connecting: how to connect; ``Secured`` if Riak's security is on. By default, connections are in plain text.
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
        # The node gives up a little earlier than the driver, because the node's error says more than a time-out.
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
        self.seen_type = seen_type
        #: The storage backend that the bucket type for hashes names, or empty for the cluster's default. It is set when
        #: the store is open.
        self.seen_backend = ""
        self._wanted = partitions_per_slot
        self._is_open = False
        self._wall_clock = wall_clock
        # One operation may use all connections of the pool. Several operations share the pool through its queue.
        self._at_once = self._pool.capacity
        access = Access(self._objects, self._buckets, self.counters, self._at_once, wall_clock)
        self._registry = Registry(access)
        self._terms = Terms(access)
        self._records = Records(access, self._terms)
        self._locations = Locations(access)
        self._ends = Ends(access, self._records, self._terms, self._locations)
        # A cluster of three nodes writes 600 objects per second. All topics of a partition object are written together,
        # once. Even a slow cluster can write one object per connection in time.
        self.shape = Shape(topics_at_once=2_000, slots_together=True, topics_at_least=self._pool.capacity)

    async def open(self) -> None:
        await check_nodes(self._pool)
        self.seen_backend = await check_types(self._pool, *self._types)
        partitions_per_slot = await settle_layout(self._objects, self._buckets, self._wanted, read_only=self._read_only)
        self._records.open(partitions_per_slot)
        self._is_open = True

    async def close(self) -> None:
        self._is_open = False
        self._pool.close()
        await self._objects.close()

    async def repaired(self) -> None:
        """Wait until all repairs of siblings that reads have started are finished, successfully or not."""
        await self._objects.repaired()

    # Subscriptions. The record is written first, and the client's list of topics after it. If a process crashes in
    # between, a listing lacks the topic until the client subscribes again. But a listing never has a topic without a
    # record.

    async def subscribe(self, batch: Sequence[Subscribe]) -> None:
        self._require_open()
        over = await self._records.subscribe(batch)
        names_of: dict[str, set[tuple[str, str | None]]] = {}
        for row in batch:
            text = None if row.replace else row.filter or ""
            names_of.setdefault(row.client, set()).update((topic, text) for topic in row.topics)
        await together(lambda: self._locations.back(names_of), lambda: self._terms.discard(over))

    async def unsubscribe(self, batch: Sequence[tuple[str, Sequence[str], str | None]]) -> None:
        self._require_open()
        await self._terms.discard(await self._records.unsubscribe(batch))

    async def subscribers(self, topics: Sequence[str]) -> tuple[list[Subscribers], dict[str, FilterPage]]:
        self._require_open()
        return await self._records.subscribers(topics)

    def subscribers_now(self, topics: Sequence[str]) -> tuple[list[Subscribers], dict[str, FilterPage]] | None:
        return None

    async def filtered(self, topic: str, cursor: str, limit: int) -> FilterPage:
        self._require_open()
        if limit < 1:
            raise ValueError("the limit of a page is at least one filter")
        return await self._records.filtered(topic, after_cursor(cursor), limit)

    def filtered_now(self, topic: str, cursor: str, limit: int) -> FilterPage | None:
        return None

    async def subscriptions_of(self, pairs: Sequence[tuple[str, str]]) -> list[list[Subscription]]:
        self._require_open()
        found = await self._records.find(pairs)
        return [subscriptions(pair, found[pair]) for pair in pairs]

    def subscriptions_of_now(self, pairs: Sequence[tuple[str, str]]) -> list[list[Subscription]] | None:
        return None

    async def subscribed(self, client: str, topics: Sequence[str]) -> list[bool]:
        self._require_open()
        # The answer comes from the records, which decide about delivery. The client's list of topics can be outdated
        # after a crash.
        found = await self._records.find([(client, topic) for topic in topics])
        return [bool(found[client, topic]) for topic in topics]

    def subscribed_now(self, client: str, topics: Sequence[str]) -> list[bool] | None:
        return None

    async def topics(self, client: str, cursor: str | None, limit: int) -> tuple[list[str], str | None]:
        self._require_open()
        if limit < 1:
            raise ValueError("the limit of a page is at least one topic")
        # Read one topic more than requested, to know whether there is a next page. So only the first page can be empty.
        page = await self._records.topics(client, after_cursor(cursor), limit + 1)
        if len(page) <= limit:
            return page, None
        return page[:limit], place_of(page[limit - 1]).hex()

    async def all_subscriptions(self) -> AsyncIterator[list[TopicPage]]:
        self._require_open()
        async with aclosing(self._records.everything()) as pages:
            async for page in pages:
                yield page

    async def expiring(self, slot: int, cursor: str | None, limit: int) -> tuple[list[Subscription], str | None]:
        self._require_open()
        return await self._ends.page(slot, cursor, limit)

    async def expiring_slots(self) -> list[int] | None:
        return None

    async def end(self, batch: Sequence[End]) -> list[list[Subscription]]:
        self._require_open()
        return await self._ends.end(batch)

    async def tidy(self, kept_s: float) -> int:
        # The next write of a client's location drops the client's old ended subscriptions. Locations are never removed,
        # see docs/riak.md.
        self._locations.kept_s = kept_s
        return 0

    # There is no journal of retained messages. If an endpoint needs one, it gets an error.

    async def keep(
        self,
        retained: Sequence[RetainedMessage],
        forgotten: Sequence[tuple[int, int]],
        floors: Sequence[tuple[int, int]],
        whole: Sequence[int] = (),
    ) -> None:
        raise StoreError(NO_JOURNAL)

    async def retained(
        self, slots: Sequence[int], cursor: str | None, limit: int
    ) -> tuple[list[RetainedMessage], list[tuple[int, int]], str | None]:
        raise StoreError(NO_JOURNAL)

    async def retained_top(self) -> int:
        raise StoreError(NO_JOURNAL)

    async def reach(self, epochs: Sequence[str], stamp: int) -> tuple[list[tuple[str, int]], int]:
        raise StoreError(NO_JOURNAL)

    def _require_open(self) -> None:
        if not self._is_open:
            raise StoreUnavailable("the store is not open")

    # Locations.

    async def listen(self, clients: Sequence[str], incarnation: str) -> list[tuple[Location, Ended | None]]:
        return await self._locations.listen(clients, incarnation)

    async def unlisten(self, batch: Sequence[tuple[str, Location]]) -> None:
        await self._locations.unlisten(batch)

    async def locations(self, clients: Sequence[str]) -> list[Location | None]:
        return await self._locations.locations(clients)

    def locations_now(self, clients: Sequence[str]) -> list[Location | None] | None:
        return None

    async def ended(self, clients: Sequence[str]) -> list[Ended | None]:
        return await self._locations.ended(clients)

    # Hashes, for ``lookup`` routing only. They are best effort, so there is no second read after a not-found, and
    # versions do not merge.

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
            known[key] = True  # if the batch has the hash again, it counts as seen
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

    # The cluster's settings, which are in the layout object. If its versions contradict each other, an operator has to
    # decide, so this module does not write a merged version back.

    async def settings(self, first: Settings | None = None) -> Settings | None:
        found = (await self._layout()).settings
        if found is not None or first is None:
            return found
        await self._record(first, is_first=True)
        return (await self._layout()).settings  # another process may have recorded settings at the same time

    async def set_settings(self, settings: Settings) -> None:
        await self._record(settings, is_first=False)

    async def _layout(self) -> Layout:
        layout = await self._objects.read_only(Layout, self._buckets.layout)
        if not layout.partitions_per_slot:
            raise StoreMisconfigured(GONE)
        return layout

    async def _record(self, settings: Settings, *, is_first: bool) -> None:
        packed(settings)  # raises for invalid settings
        await self._objects.change(
            Layout, self._buckets.layout, lambda layout: layout.record(settings, is_first=is_first)
        )

    # Revoked tokens, which are in a separate object.

    async def revoke(self, batch: Sequence[Revocation]) -> None:
        now = self._wall_clock()
        await self._objects.change(Revoked, self._buckets.revocations, lambda revoked: revoked.revoke(batch, now))

    async def revocations(self) -> list[Revocation]:
        found = (await self._objects.read(Revoked, self._buckets.revocations)).revocations
        if not found:
            await self._layout()  # every endpoint calls this regularly, so it notices if the store is gone
        return found


def _expiry(value: bytes) -> float:
    """Return when a stored hash expires, as a Unix time in seconds. An unreadable value counts as expired."""
    try:
        version, expires = ormsgpack.unpackb(value)
    except (ormsgpack.MsgpackDecodeError, TypeError, ValueError):
        return 0.0
    return float(expires) if version == VERSION else 0.0
