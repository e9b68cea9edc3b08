"""The HTTP endpoint to which members send the records that they have read. The endpoint records each arrival.

Owns: the rows of a run, and the progress of each partition. Must never: evaluate the rows.

For this project's members, the endpoint is a sink with the interface of ``autoscaler.sinks.http``. From members of
Kafka's own groups, it accepts whole batches. A record counts only when it arrives for the first time.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import orjson
from aiohttp import web

#: Maximum size of a request, which is a batch as JSON lines.
_BODY_BYTES_MAX = 64 << 20


def unix_ms() -> int:
    """Return the current Unix time in milliseconds."""
    return time.time_ns() // 1_000_000


class Arrivals:
    """The endpoint's state. ``rows`` has an object for each part of a batch. ``reads_lines`` says whether to read the
    records of a batch with their times, or only the parameters of the request."""

    def __init__(self, partitions: int, *, reads_lines: bool = True) -> None:
        self.rows: list[dict[str, Any]] = []
        self._reads_lines = reads_lines
        self._epochs: dict[tuple[str, int], int] = {}
        self.next = [0] * partitions
        #: The number of partitions that each member of Kafka's own groups owns, by the member's name.
        self.owned: dict[str, int] = {}
        self.changed_s = time.monotonic()
        self.records = self.again = self.refused = 0

    def note(self, member: str, partition: int, pairs: list[tuple[int, int]]) -> None:
        """Write down the arrival of records. ``pairs`` are their offsets and due times, in the order of offsets."""
        at_ms = unix_ms()
        new = [time_ms for offset, time_ms in pairs if offset >= self.next[partition]]
        self.again += len(pairs) - len(new)
        self.records += len(new)
        self.next[partition] = max(self.next[partition], pairs[-1][0] + 1)
        if new:
            self.rows.append({"at": at_ms, "member": member, "partition": partition, "times": new})

    def waiting(self, at_ms: int, partition: int, times: list[int]) -> None:
        """Write down each of the partition's records that had not arrived at the run's end, with its latency so far. If
        such a record arrives while the run stops, it does not count again."""
        if times:
            self.next[partition] += len(times)
            self.rows.append({"at": at_ms, "member": "", "partition": partition, "times": times, "waiting": True})

    # Requests

    async def _open(self, request: web.Request) -> web.Response:
        place = orjson.loads(await request.read())
        key = (place["topic"], place["partition"])
        refusal = self._refusal(key, place["epoch"])
        if refusal is not None:
            return refusal
        if not self._reads_lines:
            return web.json_response({"next": None})
        return web.json_response({"next": self.next[place["partition"]]})

    def _refusal(self, key: tuple[str, int], epoch: int) -> web.Response | None:
        newest = self._epochs.get(key, 0)
        if epoch < newest:
            self.refused += 1
            return web.json_response({"epoch": newest}, status=409)
        self._epochs[key] = epoch
        return None

    async def _append(self, request: web.Request) -> web.Response:
        query = request.query
        body = await request.read()
        refusal = self._refusal((query["topic"], int(query["partition"])), int(query["epoch"]))
        if refusal is not None:
            return refusal
        if not self._reads_lines:
            self.records += int(query["records"])
            self.rows.append({"at": unix_ms(), "topic": query["topic"], "records": int(query["records"])})
            return web.Response()
        lines = [orjson.loads(line) for line in body.splitlines()]
        self.note(query["member"], int(query["partition"]), [(line["offset"], line["time_ms"]) for line in lines])
        return web.Response()

    async def _batch(self, request: web.Request) -> web.Response:
        document = orjson.loads(await request.read())
        for partition, pairs in document["rows"]:
            self.note(document["member"], partition, pairs)
        return web.Response()

    async def _owns(self, request: web.Request) -> web.Response:
        document = orjson.loads(await request.read())
        self.owned[document["member"]] = document["partitions"]
        self.changed_s = time.monotonic()
        return web.Response()

    def routes(self) -> list[web.RouteDef]:
        """Return the endpoint's routes."""
        paths: dict[str, Callable[[web.Request], Any]] = {
            "/open": self._open,
            "/append": self._append,
            "/batch": self._batch,
            "/owned": self._owns,
        }
        return [web.post(path, handler) for path, handler in paths.items()]


@asynccontextmanager
async def listening(arrivals: Arrivals) -> AsyncIterator[int]:
    """Serve the endpoint on loopback until the block ends. Yields the port."""
    application = web.Application(client_max_size=_BODY_BYTES_MAX)
    application.add_routes(arrivals.routes())
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()
