"""A service that keeps the contract of ``sinks/http.py``, with the files sink behind it.

Owns: a double of an operator's service. Must never: be kinder to a member than the contract.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import orjson
from aiohttp import web

from ingeborg.autoscaler.sinks.base import Place, Record, RefusedError, SinkError
from ingeborg.autoscaler.sinks.files import FilesSink
from ingeborg.autoscaler.sinks.lines import decoded

BODY_BYTES_MAX = 1 << 24


class Service:
    """The service. ``sink``: destination of batches. ``token``: required in requests. ``cut``: this many connections
    are closed instead of answered. ``requests``: path, query and type of each, in order."""

    def __init__(self, sink: FilesSink, token: str | None = None) -> None:
        self._sink = sink
        self._token = token
        self.cut = 0
        self.requests: list[tuple[str, dict[str, str], str]] = []
        self.application = web.Application(client_max_size=BODY_BYTES_MAX)
        self.application.router.add_post("/in/open", self._answering(self._open))
        self.application.router.add_post("/in/append", self._answering(self._append))

    @asynccontextmanager
    async def running(self) -> AsyncIterator[str]:
        """Return the service's URL."""
        runner = web.AppRunner(self.application, shutdown_timeout=1.0)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        try:
            port = runner.addresses[0][1]
            yield f"http://127.0.0.1:{port}/in"
        finally:
            await runner.cleanup()

    def _answering(
        self, answer: Callable[[web.Request], Awaitable[web.Response]]
    ) -> Callable[[web.Request], Awaitable[web.Response]]:
        async def answered(request: web.Request) -> web.Response:
            self.requests.append((request.path, dict(request.query), request.content_type))
            if self._token is not None and request.headers.get("Authorization") != f"Bearer {self._token}":
                return web.Response(status=401, text="who are you?")
            try:
                response = await answer(request)
            except RefusedError as error:
                response = web.json_response({"epoch": error.epoch}, status=409)
            except SinkError as error:
                response = web.Response(status=503, text=str(error))
            except (KeyError, TypeError, ValueError) as error:
                response = web.Response(status=400, text=f"{type(error).__name__}: {error}")
            if self.cut:
                self.cut -= 1
                assert request.transport is not None
                request.transport.abort()
            return response

        return answered

    async def _open(self, request: web.Request) -> web.Response:
        if request.content_type != "application/json":
            raise ValueError("not the type of open")
        found = orjson.loads(await request.read())
        if found.keys() != set(Place._fields):
            raise ValueError("not the fields of open")
        return web.json_response({"next": await self._sink.open(Place(**found))})

    async def _append(self, request: web.Request) -> web.Response:
        if request.content_type != "application/x-ndjson" or request.content_length is None:
            raise ValueError("not the type of append, or no length")
        query = request.query
        place = Place(query["table"], query["topic"], int(query["partition"]), int(query["epoch"]), query["member"])
        found = [decoded(line) for line in (await request.read()).split(b"\n")[:-1]]
        said = (int(query["first"]), int(query["last"]), int(query["records"]))
        if said != (found[0].offset, found[-1].offset, len(found)):
            raise ValueError("the query is not of these lines")
        if any(Place(place.table, line.topic, line.partition, line.epoch, line.member) != place for line in found):
            raise ValueError("lines of another place")
        await self._sink.append(place, [Record(line.offset, line.time_ms, line.key, line.value) for line in found])
        return web.Response()
