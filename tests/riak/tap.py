"""Count what passes to a Riak cluster from any sender: requests, objects and bytes by bucket.

    async with tapped() as tap: ...  # nodes at tap.addresses; await tap.tally()

Owns: a process with a port in front of every node of the cluster that ``INGEBORG_TEST_RIAK`` names, or else of the
double. Must never: change or delay what passes.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

from ingeborg.broker.store.riak import riak_pb2 as pb
from ingeborg.broker.store.riak import wire

from .double import RiakDouble

Nodes = list[tuple[str, int]]

_LINE_BYTES_MAX = 1 << 24
_ANSWER_S = 30.0


class Traffic(NamedTuple):
    """Traffic to one bucket: requests, bytes of the values written, the largest of these, and different objects
    written."""

    gets: int = 0
    puts: int = 0
    bytes_written: int = 0
    greatest: int = 0
    objects: int = 0


class Tally(dict[str, Traffic]):
    """Traffic by the bucket's name without its namespace: ``topics``, ``subscribers``, ``clients``, ``locations``, …"""

    def __missing__(self, bucket: str) -> Traffic:
        return Traffic()

    @property
    def requests(self) -> int:
        """Return the number of all requests."""
        return sum(bucket.gets + bucket.puts for bucket in self.values())

    @property
    def bytes_written(self) -> int:
        """Return the bytes of all values."""
        return sum(bucket.bytes_written for bucket in self.values())

    @property
    def greatest(self) -> int:
        """Return the bytes of the largest value written."""
        return max((bucket.greatest for bucket in self.values()), default=0)


class Tap:
    """The starter's handle on the process."""

    def __init__(self, process: asyncio.subprocess.Process, addresses: Nodes) -> None:
        self._process = process
        self.addresses = addresses

    async def tally(self) -> Tally:
        """Return the traffic since the last call."""
        assert self._process.stdin is not None
        self._process.stdin.write(b"tally\n")
        found = await _line(self._process)
        return Tally({bucket: Traffic(*counts) for bucket, counts in found.items()})


@contextlib.asynccontextmanager
async def tapped() -> AsyncIterator[Tap]:
    """Run the tap in front of its cluster until the block ends."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.riak.tap"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=_LINE_BYTES_MAX,
    )
    try:
        yield Tap(process, [(host, port) for host, port in await _line(process)])
    finally:
        assert process.stdin is not None
        process.stdin.close()  # the tap ends when its input closes
        await process.wait()


async def _line(process: asyncio.subprocess.Process) -> Any:  # any JSON
    assert process.stdout is not None
    async with asyncio.timeout(_ANSWER_S):
        return json.loads(await process.stdout.readline())


# -- in the process


class _Counts:
    """Counts of one bucket."""

    def __init__(self) -> None:
        self.gets = self.puts = self.bytes_written = self.greatest = 0
        self.keys: set[bytes] = set()


class _Meter:
    """Counts what has passed."""

    def __init__(self) -> None:
        self._buckets: dict[bytes, _Counts] = {}

    def frame(self, code: int, body: bytes) -> None:
        """Count a request."""
        if code == wire.GET_REQUEST:
            self._of(pb.RpbGetReq.FromString(body).bucket).gets += 1
        elif code == wire.PUT_REQUEST:
            put = pb.RpbPutReq.FromString(body)
            counts = self._of(put.bucket)
            counts.puts += 1
            counts.bytes_written += len(put.content.value)
            counts.greatest = max(counts.greatest, len(put.content.value))
            counts.keys.add(put.key)

    def _of(self, bucket: bytes) -> _Counts:
        return self._buckets.setdefault(bucket, _Counts())

    def take(self) -> dict[str, tuple[int, ...]]:
        """Return all counts in the form of ``Tally``, and reset them."""
        taken, self._buckets = self._buckets, {}
        return {
            bucket.decode().rpartition(".")[2]: Traffic(c.gets, c.puts, c.bytes_written, c.greatest, len(c.keys))
            for bucket, c in taken.items()
        }


class _Port:
    """A port in front of one node."""

    def __init__(self, node: tuple[str, int], meter: _Meter) -> None:
        self._node = node
        self._meter = meter

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection until either side ends it."""
        node_reader, node_writer = await asyncio.open_connection(*self._node)
        ways = [
            asyncio.create_task(self._requests(reader, node_writer)),
            asyncio.create_task(self._answers(node_reader, writer)),
        ]
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        for way in ways:
            way.cancel()
        await asyncio.gather(*ways, return_exceptions=True)
        node_writer.transport.abort()
        writer.transport.abort()

    async def _requests(self, reader: asyncio.StreamReader, node: asyncio.StreamWriter) -> None:
        while True:
            header = await reader.readexactly(wire.HEADER.size)
            code, length = wire.frame_length(header)
            body = await reader.readexactly(length)
            node.write(header + body)
            self._meter.frame(code, body)
            await node.drain()

    async def _answers(self, node: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while chunk := await node.read(1 << 18):
            writer.write(chunk)
            await writer.drain()


async def _main() -> None:
    async with contextlib.AsyncExitStack() as stack:
        if given := os.environ.get("INGEBORG_TEST_RIAK"):
            nodes = [(host, int(port)) for host, _, port in (node.rpartition(":") for node in given.split(","))]
        else:
            double = await stack.enter_async_context(RiakDouble(nodes=3))
            double.create_broker_types()
            nodes = double.addresses
        meter = _Meter()
        servers = [await asyncio.start_server(_Port(node, meter).serve, "127.0.0.1", 0) for node in nodes]
        print(json.dumps([server.sockets[0].getsockname() for server in servers]), flush=True)
        commands = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(commands), sys.stdin)
        while await commands.readline():
            print(json.dumps(meter.take()), flush=True)
    os._exit(0)  # the system closes the connections


if __name__ == "__main__":
    asyncio.run(_main())
