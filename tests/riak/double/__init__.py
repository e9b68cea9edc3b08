"""A stand-in for a Riak cluster: the real protocol on real sockets, over a cluster kept in memory.

``RiakDouble`` starts the nodes. ``memory`` is the cluster's state (partition it, heal it, wipe a node, inspect an
object), and ``nodes`` are the ports (make one hang, hang up, refuse). ``test_transcripts.py`` compares it with the
answers of a real Riak 3.2.1, and lists what it does not support: data types, secondary indexes, search, map-reduce.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from .causality import StoredObject
from .cluster import Key, Memory
from .node import Node
from .security import Security

__all__ = ["Key", "Memory", "Node", "RiakDouble", "Security", "StoredObject"]


class RiakDouble:
    """Use as ``async with RiakDouble(nodes=3) as riak``. All its data is gone afterwards."""

    def __init__(self, nodes: int = 3, *, version: str = "3.2.1") -> None:
        self.version = version
        self.security: Security | None = None  # new connections need TLS and a user
        self.memory = Memory(nodes)
        self.nodes = [Node(self, number) for number in range(nodes)]
        self.in_flight = 0
        self.in_flight_max = 0  # most concurrent requests so far
        self._hold_until = 0
        self._enough = asyncio.Event()
        self._watched = 0
        self._busy = asyncio.Event()
        self._serial = 0

    async def __aenter__(self) -> RiakDouble:
        await asyncio.gather(*(node.start() for node in self.nodes))
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.gather(*(node.kill() for node in self.nodes))

    @property
    def addresses(self) -> list[tuple[str, int]]:
        return [("127.0.0.1", node.port) for node in self.nodes]

    def create_broker_types(self) -> None:
        """Create the types that the driver needs, with their default names."""
        self.memory.create_type("ingeborg", node_confirms=2)
        self.memory.create_type("ingeborg_seen", allow_mult=False, last_write_wins=True, backend=b"expiring")

    async def restart(self, number: int) -> None:
        """Bring a killed node back, with its disk; fallbacks hand over its data."""
        await self.nodes[number].start()
        self.memory.hand_off()

    def hold(self, requests: int) -> None:
        """Answer nothing until ``requests`` requests are under way at once; then behave as before."""
        self._hold_until = requests
        self._enough.clear()

    async def busy(self, requests: int) -> None:
        """Wait until ``requests`` requests are under way at once."""
        self._watched = requests
        self._busy.clear()
        if self.in_flight < requests:
            await self._busy.wait()

    def release(self) -> None:
        """Answer all held requests, then behave as before."""
        self._hold_until = 0
        self._enough.set()

    @asynccontextmanager
    async def under_way(self) -> AsyncIterator[None]:
        """Surround every request from its arrival to its answer."""
        self.in_flight += 1
        self.in_flight_max = max(self.in_flight_max, self.in_flight)
        try:
            if self.in_flight >= self._watched:
                self._busy.set()
            if self.in_flight >= self._hold_until:
                self._enough.set()
            await self._enough.wait()
            yield
        finally:
            self.in_flight -= 1

    def new_vtag(self) -> bytes:
        self._serial += 1
        return b"vtag%018d" % self._serial

    def new_key(self) -> bytes:
        self._serial += 1
        return b"key%024d" % self._serial
