"""The http sink: the contract over a conforming service, and answers of other services."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import pytest_asyncio
from aiohttp import web

from ingeborg.autoscaler.sinks.base import Place, RefusedError, Sink, SinkError
from ingeborg.autoscaler.sinks.http import HttpSink
from ingeborg.autoscaler.sinks.lines import Line
from ingeborg.bench.starting import claim

from .contract import SinkContract
from .service import Service
from .stages import PATIENCE_S, PLACE, TAKEN, Hold, batch, lines
from .test_files import FilesStage


class HttpStage:
    """A service with each sink as a client. A fault of the service's disk affects every client."""

    def __init__(self, root: Path) -> None:
        self._files = FilesStage(root)
        self._behind = self._files.sink()
        self.service = Service(self._behind)
        self.url = ""
        self._sinks: list[HttpSink] = []

    def sink(self) -> HttpSink:
        sink = HttpSink(self.url, None, PATIENCE_S)
        self._sinks.append(sink)
        return sink

    def hold(self, sink: Sink) -> Hold:
        return self._files.hold(self._behind)

    def fail(self, sink: Sink) -> None:
        self._files.fail(self._behind)

    def lose(self, sink: Sink) -> None:
        self._files.lose(self._behind)

    def kept(self, place: Place) -> list[Line]:
        return self._files.kept(place)

    async def close(self) -> None:
        for sink in self._sinks:
            await sink.close()
        await self._files.close()


@pytest_asyncio.fixture
async def stage(tmp_path: Path) -> AsyncIterator[HttpStage]:
    made = HttpStage(tmp_path)
    async with made.service.running() as url:
        made.url = url
        yield made
        await made.close()


class TestContract(SinkContract):
    """The contract of every sink."""


# Requests


async def test_requests_are_as_the_contract_says(stage: HttpStage) -> None:
    sink = stage.sink()
    await sink.open(PLACE)
    await sink.append(PLACE, batch(4, 9, 2))
    assert stage.service.requests == [
        ("/in/open", {}, "application/json"),
        (
            "/in/append",
            dict(
                *[zip(Place._fields, ("clicks", "web", "3", "7", "m-1"), strict=True)],
                first="4",
                last="8",
                records="3",
            ),
            "application/x-ndjson",
        ),
    ]


async def test_a_token_is_sent_with_each_request_and_told_to_nobody(tmp_path: Path) -> None:
    service = Service(FilesStage(tmp_path).sink(), "secret")
    async with service.running() as url:
        knows, does_not = HttpSink(url + "/", "secret"), HttpSink(url, "wrong")
        await knows.open(PLACE)
        await knows.append(PLACE, batch(0, 1))
        with pytest.raises(SinkError, match="answered 401 Unauthorized: who are you\\?; see token_file") as error:
            await does_not.open(PLACE)
        assert "wrong" not in str(error.value)
        await knows.close()
        await does_not.close()


@pytest.mark.parametrize("cut", [1, 2])
async def test_a_connection_that_ends_without_an_answer_is_tried_once_more(stage: HttpStage, cut: int) -> None:
    sink = stage.sink()
    await sink.open(PLACE)
    stage.service.cut = cut
    if cut == 1:
        await sink.append(PLACE, batch(0, 2))
    else:
        with pytest.raises(SinkError, match="check that the service runs"):
            await sink.append(PLACE, batch(0, 2))
        await sink.append(PLACE, batch(0, 2))
    await sink.append(PLACE, batch(2, 3))
    assert stage.kept(PLACE) == lines(PLACE, batch(0, 3))


# Services that do not conform


@asynccontextmanager
async def answering(answer: Callable[[web.Request], Awaitable[web.StreamResponse]]) -> AsyncIterator[HttpSink]:
    """Return a sink whose service gives this answer to everything."""
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(application, shutdown_timeout=1.0)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    sink = HttpSink(f"http://me:hidden@127.0.0.1:{runner.addresses[0][1]}/in", None, PATIENCE_S)
    try:
        yield sink
    finally:
        await sink.close()
        await runner.cleanup()


def always(status: int, text: str = "", **headers: str) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    async def answer(request: web.Request) -> web.StreamResponse:
        return web.Response(status=status, text=text, headers=headers)

    return answer


@pytest.mark.parametrize(
    ("status", "text", "words"),
    [
        (500, "out of\n  order", "answered 500 Internal Server Error: out of order$"),
        (503, "", "answered 503 Service Unavailable$"),
        (404, "?", r"see url of \[sink\]: members add the paths"),
        (405, "", "it must accept POST"),
        (413, "too large", r"413 .*: too large; let the service.*batch_bytes of \[member\]"),
        (204, "", "answered 204"),
        (500, "x" * 1_000, "x" * 200 + "$"),
        (409, "", "409 needs"),
        (409, '{"epoch": "9"}', "409 needs"),
        (409, '{"epoch": true}', "409 needs"),
        (409, '{"epoch": 6}', "E at least 7"),
    ],
)
async def test_any_other_answer_is_shown(status: int, text: str, words: str) -> None:
    async with answering(always(status, text)) as sink:
        for call in (sink.open(PLACE), sink.append(PLACE, batch(0, 1))):
            with pytest.raises(SinkError, match=words) as error:
                await call
            assert "hidden" not in str(error.value)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"next": "1"}', '{"next": -1}', '{"next": true}', '{"next": 1.5}'])
async def test_opening_needs_an_offset_or_null(text: str) -> None:
    async with answering(always(200, text)) as sink:
        with pytest.raises(SinkError, match="open needs 200 with"):
            await sink.open(PLACE)


async def test_the_body_of_an_appends_200_is_not_looked_at() -> None:
    async with answering(always(200, "<html>fine</html>")) as sink:
        await sink.append(PLACE, batch(0, 1))


async def test_409_names_the_newer_epoch() -> None:
    async with answering(always(409, '{"epoch": 8}')) as sink:
        for call in (sink.open(PLACE), sink.append(PLACE, batch(0, 1))):
            with pytest.raises(RefusedError) as refused:
                await call
            assert refused.value.epoch == TAKEN.epoch


async def test_a_redirection_is_not_followed_and_told() -> None:
    async with answering(always(302, "", Location="https://elsewhere.example/in/open")) as sink:
        with pytest.raises(
            SinkError, match=r"302 Found.*redirects to https://elsewhere.example/in/open, which members"
        ):
            await sink.open(PLACE)


async def test_an_answer_without_an_end_is_cut() -> None:
    async def endless(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(status=500)
        await response.prepare(request)
        try:
            while True:
                await response.write(b"x" * 10_000)
        except ConnectionError:
            return response

    async with answering(endless) as sink:
        with pytest.raises(SinkError, match="answered 500 Internal Server Error: xxx"):
            await sink.open(PLACE)


async def test_a_service_that_does_not_answer_is_given_up() -> None:
    silent = asyncio.Event()

    async def answer(request: web.Request) -> web.StreamResponse:
        await silent.wait()
        return web.Response()

    async with answering(answer) as sink:
        sink._timeout_s = 0.05
        try:
            with pytest.raises(SinkError, match=r"has not answered in 0.05 s: check the service"):
                await sink.open(PLACE)
        finally:
            silent.set()


async def test_a_service_that_is_not_there_is_told() -> None:
    with claim() as ports:
        sink = HttpSink(f"http://127.0.0.1:{ports.first}/in")
        with pytest.raises(
            SinkError, match=r"Cannot connect .*; check that the service runs, and check url of \[sink\]"
        ):
            await sink.open(PLACE)
        await sink.close()


async def test_a_sink_that_was_never_used_can_be_closed() -> None:
    await HttpSink("http://127.0.0.1:1").close()
