"""Records in Riak, through the project's own driver of its Protocol Buffers interface.

Owns: the bucket of the records, and the number of concurrent requests. Must never: delete anything. A broker's driver
cannot delete objects, so each run has a separate bucket, whose records stay.

A record is an object of the same bucket type as a broker's subscriptions (docs/riak.md). Its quorums are the same as
the broker's: a write waits until the object is on two machines, and a read asks two machines.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Sequence
from typing import Final

from ingeborg.bench.caching.live.database import DatabaseError, Items, whole
from ingeborg.bench.errors import UsageError
from ingeborg.broker.store.base import StoreError
from ingeborg.broker.store.riak.checks import check_nodes
from ingeborg.broker.store.riak.counters import zeroed
from ingeborg.broker.store.riak.flow import each
from ingeborg.broker.store.riak.objects import Address, Objects
from ingeborg.broker.store.riak.pool import Pool

BUCKET_TYPE: Final = b"ingeborg"
NODE_CONFIRMS: Final = 2

TIMEOUT_S: Final = 4.0
ATTEMPT_TIMEOUT_S: Final = 1.5
CONNECTIONS_PER_NODE: Final = 8
"""These limits are the broker's."""


def nodes_of(text: str) -> list[tuple[str, int]]:
    """Parse ``HOST:PORT,…``. Raises ``UsageError``."""
    nodes = []
    for node in text.split(","):
        host, _, port = node.rpartition(":")
        if not host or not port.isascii() or not port.isdigit() or not 1 <= int(port) <= 65_535:
            raise UsageError(f"--store riak:{text}: {node!r} must be HOST:PORT, such as 10.0.0.7:8087")
        nodes.append((host.strip("[]"), int(port)))
    return nodes


async def reach(text: str) -> None:
    """Check that one of these nodes answers. Raises ``BenchError``."""
    riak = Riak(nodes_of(text))
    try:
        await riak.open()
    finally:
        await riak.close()


class Riak:
    """Riak on the nodes of one cluster. A node is the ``(host, port)`` of its Protocol Buffers interface."""

    def __init__(self, nodes: Sequence[tuple[str, int]]) -> None:
        self._bucket = f"bench-caching-{secrets.token_hex(8)}".encode()
        counters = zeroed()
        self._pool = Pool(
            nodes,
            counters,
            timeout_s=TIMEOUT_S,
            attempt_timeout_s=ATTEMPT_TIMEOUT_S,
            connections_per_node=CONNECTIONS_PER_NODE,
        )
        self._objects = Objects(
            self._pool,
            counters,
            bucket_type=BUCKET_TYPE,
            node_confirms=NODE_CONFIRMS,
            server_timeout_s=ATTEMPT_TIMEOUT_S * 0.9,
        )
        # Requests of all polls wait here and not in the pool, because in the pool their time-outs would already run.
        self._room = asyncio.Semaphore(self._pool.capacity)

    async def open(self) -> None:
        """Check that one node answers."""
        try:
            await check_nodes(self._pool)
        except StoreError as error:
            raise DatabaseError(str(error)) from error

    async def write(self, items: Items) -> None:
        """Write an object for each record, with one request at a time on each connection."""

        async def put(item: tuple[int, bytes]) -> None:
            number, payload = item
            async with self._room:
                await self._objects.put(self._address(number), payload, None)

        try:
            await each(items, put, self._pool.capacity)
        except StoreError as error:
            raise DatabaseError(f"Riak cannot be written: {error}") from error

    def read(self, numbers: Sequence[int]) -> Awaitable[list[bytes]]:
        """Read the records, with one request at a time on each connection."""
        return self._read(numbers)

    async def _read(self, numbers: Sequence[int]) -> list[bytes]:
        found: list[bytes | None] = [None] * len(numbers)

        async def get(at: int) -> None:
            async with self._room:
                values = (await self._objects.get(self._address(numbers[at]))).values
            found[at] = values[0] if values else None

        try:
            await each(range(len(numbers)), get, self._pool.capacity)
        except StoreError as error:
            raise DatabaseError(f"Riak cannot be read: {error}") from error
        return whole(numbers, found)

    def _address(self, number: int) -> Address:
        return Address(self._bucket, b"%d" % number)

    async def close(self) -> None:
        """Release the connections."""
        self._pool.close()
        await self._objects.close()
