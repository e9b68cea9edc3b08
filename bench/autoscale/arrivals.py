"""Where members hand on what they read: an HTTP endpoint that notes what came when.

Owns: the rows of a run, and how far each partition has come. Must never: judge them.

It is a sink for this project's members, by the contract of ``autoscaler.sinks.http``, and takes whole batches
of the other groups' members. A record counts when it is handed on for the first time.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, BinaryIO

import orjson
from aiohttp import web

#: Of a request: a batch as JSON lines.
_BODY_BYTES_MAX = 64 << 20


def unix_ms() -> int:
    """Now."""
    return time.time_ns() // 1_000_000


class Arrivals:
    """``rows``: a file that gets a line of JSON for each part of a batch. ``reads_lines``: whether the times of records
    are wanted; if not, a batch counts by its query alone."""

    def __init__(self, rows: BinaryIO, partitions: int, *, reads_lines: bool = True) -> None:
        self._rows = rows
        self._reads_lines = reads_lines
        self._epochs: dict[tuple[str, int], int] = {}
        self.next = [0] * partitions
        #: By member, of the other groups.
        self.owned: dict[str, int] = {}
        self.changed_s = time.monotonic()
        self.records = self.again = self.refused = 0
        #: Of what came last of each partition, seconds.
        self.late_s = [0.0] * partitions

    def note(self, member: str, partition: int, pairs: list[tuple[int, int]]) -> None:
        """Offsets, and the times when they were to be written; in the order of offsets."""
        at_ms = unix_ms()
        new = [time_ms for offset, time_ms in pairs if offset >= self.next[partition]]
        self.again += len(pairs) - len(new)
        self.records += len(new)
        self.next[partition] = max(self.next[partition], pairs[-1][0] + 1)
        if new:
            self.late_s[partition] = (at_ms - new[-1]) / 1e3
            self._write({"at": at_ms, "member": member, "partition": partition, "times": new})

    def waiting(self, at_ms: int, partition: int, times: list[int]) -> None:
        """The next records, which have not come until the run's end: they were at least so late. Those that come while
        it ends are not counted again."""
        if times:
            self.next[partition] += len(times)
            self._write({"at": at_ms, "member": "", "partition": partition, "times": times, "waiting": True})

    def _write(self, row: dict[str, Any]) -> None:
        self._rows.write(orjson.dumps(row) + b"\n")

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
            self._write({"at": unix_ms(), "topic": query["topic"], "records": int(query["records"])})
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
        """Of the endpoint."""
        paths: dict[str, Callable[[web.Request], Any]] = {
            "/open": self._open,
            "/append": self._append,
            "/batch": self._batch,
            "/owned": self._owns,
        }
        return [web.post(path, handler) for path, handler in paths.items()]


@asynccontextmanager
async def listening(arrivals: Arrivals) -> AsyncIterator[int]:
    """The endpoint on loopback, until the end of the block. Its value: the port."""
    application = web.Application(client_max_size=_BODY_BYTES_MAX)
    application.add_routes(arrivals.routes())
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()
