"""One request: its limits, and the error texts for the operator."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from aiohttp import web

from ingeborg.autoscaler.scalers import asking
from ingeborg.autoscaler.scalers.asking import Asking
from ingeborg.autoscaler.scalers.base import ScalerError

from .contract import PATIENCE_S
from .serving import served


@pytest.fixture
async def url() -> AsyncIterator[str]:
    async def answer(request: web.Request) -> web.StreamResponse:
        match request.path:
            case "/echo":
                said = {"method": request.method, "kind": request.content_type, "body": (await request.read()).decode()}
                return web.json_response(said)
            case "/slow":
                await asyncio.sleep(PATIENCE_S)
            case "/large":
                return web.Response(body=b"x" * 2_000)
            case "/elsewhere":
                return web.Response(status=302, headers={"Location": "/echo"})
            case "/broken":
                assert request.transport is not None
                request.transport.abort()
            case "/wordy":
                return web.Response(status=500, text="no\n  room " + "x" * 1_000)
        return web.Response(text="<html>")

    async with served(answer) as url:
        yield url


@pytest.fixture
async def ask() -> AsyncIterator[Asking]:
    ask = Asking(PATIENCE_S)
    yield ask
    await ask.close()


async def test_a_body_goes_as_json_unless_it_says_otherwise(ask: Asking, url: str) -> None:
    answer = await ask.ask("POST", f"{url}/echo", {}, {"count": 2})
    assert answer.json() == {"method": "POST", "kind": "application/json", "body": '{"count":2}'}
    answer = await ask.ask("PATCH", f"{url}/echo", {"Content-Type": "application/merge-patch+json"}, {})
    assert answer.json() == {"method": "PATCH", "kind": "application/merge-patch+json", "body": "{}"}
    assert (await ask.ask("GET", f"{url}/echo", {})).json()["body"] == ""


async def test_who_does_not_answer_is_not_waited_for(url: str) -> None:
    ask = Asking(0.05)
    with pytest.raises(ScalerError, match=r"^GET http://127\.0\.0\.1:\d+/slow: no answer within 0\.05 s$"):
        await ask.ask("GET", f"{url}/slow", {})
    await ask.close()


async def test_an_answer_has_a_limit(ask: Asking, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "ANSWER_BYTES_MAX", 1_999)
    with pytest.raises(ScalerError, match="more than 1,999 bytes"):
        await ask.ask("GET", f"{url}/large", {})
    monkeypatch.setattr(asking, "ANSWER_BYTES_MAX", 2_000)
    assert len((await ask.ask("GET", f"{url}/large", {})).body) == 2_000


async def test_a_redirect_is_an_answer(ask: Asking, url: str) -> None:
    assert (await ask.ask("GET", f"{url}/elsewhere", {})).status == 302


async def test_what_cannot_be_reached_is_told(ask: Asking, url: str) -> None:
    with pytest.raises(ScalerError, match=r"^GET http://127\.0\.0\.1:1/: .+"):
        await ask.ask("GET", "http://127.0.0.1:1/", {})
    with pytest.raises(ScalerError, match=r"^GET http://127\.0\.0\.1:\d+/broken: .+"):
        await ask.ask("GET", f"{url}/broken", {})
    for wrong in ("http://[", "nothing", "http://127.0.0.1:99999/"):
        with pytest.raises(ScalerError, match=r"^GET .+: .+"):
            await ask.ask("GET", wrong, {})
    with pytest.raises(ScalerError, match=r"^GET .+: .+"):
        await ask.ask("GET", f"{url}/echo", {"Authorization": "Bearer a\r\nb"})


async def test_an_error_shows_nothing_secret(ask: Asking, url: str) -> None:
    secret = url.replace("://", "://user:password@")
    answer = await ask.ask("GET", f"{secret}/wordy?token=secret", {})
    text = str(answer.error())
    assert text.startswith(f"GET {url}/wordy: status 500: no room xxx")
    assert len(text) == len(f"GET {url}/wordy: status 500: ") + 200
    assert "password" not in text
    assert "secret" not in text


async def test_what_is_no_json_is_told_with_how_it_begins(ask: Asking, url: str) -> None:
    answer = await ask.ask("GET", f"{url}/", {})
    with pytest.raises(ScalerError, match=r"/: status 200: the answer is not JSON: <html>$"):
        answer.json()
