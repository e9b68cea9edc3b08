"""The example page "What you missed" in a real browser: closed, and opened again."""

from __future__ import annotations

import asyncio
import functools
import http.server
import json
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed

from tests.broker.running import plain, serving

from .devtools import Page, browsing

pytestmark = pytest.mark.cluster

ROOT = Path(__file__).resolve().parents[2]
TOPIC = "chat room village"
HOSTILE = '<img src="x" onerror="window.taken = 1">'

#: The page's content: each line's class and text, without its time.
SHOWN = """[...document.querySelectorAll("#lines li")].map(line => {
    const copy = line.cloneNode(true);
    copy.querySelector("time")?.remove();
    return [line.className.trim(), copy.textContent];
})"""

#: Waits until the page is subscribed.
READY = "!document.querySelector('button').disabled"


class Files(http.server.SimpleHTTPRequestHandler):
    """Serve the checkout, as `python -m http.server` does."""

    def log_message(self, *_: object) -> None:
        """Log nothing: page loads are not interesting."""


@pytest.fixture
def example() -> Iterator[str]:
    """Return the page's URL."""
    handler = functools.partial(Files, directory=ROOT)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}/examples/missed.html"
        server.shutdown()
        thread.join()


@pytest.fixture
async def page() -> AsyncIterator[Page]:
    async with browsing() as page:
        yield page


class Scripted:
    """An endpoint that a test scripts. ``heard``: the commands; ``before``: messages that go before each reply to the
    command; ``replies``: fields of the reply, in addition to success."""

    def __init__(self) -> None:
        self.url = ""
        self.heard: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.before: dict[str, list[dict[str, Any]]] = {}
        self.behind: dict[str, list[dict[str, Any]]] = {}
        self.replies: dict[str, dict[str, Any]] = {}
        self._connection: ServerConnection | None = None

    async def serve(self, connection: ServerConnection) -> None:
        """Serve one connection, to its end."""
        self._connection = connection
        try:
            async for text in connection:
                command = json.loads(text)
                name = command["command"]
                self.heard.put_nowait(command)
                reply = {"id": command.get("id"), **self.replies.get(name, {"result": "success"})}
                await self.say(*self.before.pop(name, ()), reply, *self.behind.pop(name, ()))
        except ConnectionClosed:
            return  # a page that is gone

    async def say(self, *messages: dict[str, Any]) -> None:
        """Send them to the page that connected last."""
        assert self._connection is not None
        for message in messages:
            await self._connection.send(json.dumps(message))

    async def next(self, command: str) -> dict[str, Any]:
        """Return the next such command."""
        async with asyncio.timeout(20):
            while (heard := await self.heard.get())["command"] != command:
                pass
            return heard


@asynccontextmanager
async def scripted() -> AsyncIterator[Scripted]:
    endpoint = Scripted()
    async with serve(endpoint.serve, "127.0.0.1", 0) as server:
        endpoint.url = f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        yield endpoint


def said(number: int, text: str, who: str = "bob", **more: Any) -> dict[str, Any]:
    """Return a notification."""
    return {"key": TOPIC, "broadcast": {"from": who, "text": text, "at": 1e12}, "mid": f"o.{number}", **more}


async def shown(page: Page, *lines: list[str]) -> None:
    """Wait until the page shows exactly these."""
    wanted = json.dumps(list(lines))
    await page.until(f"JSON.stringify({SHOWN}) === JSON.stringify({wanted})")


async def test_the_page_shows_what_it_missed_as_such_and_where_some_may_be_missing(page: Page, example: str) -> None:
    async with scripted() as endpoint:
        endpoint.replies["listen"] = {"result": "success", "recovering": False, "position": "p1"}
        endpoint.before["subscribe"] = [said(1, "before", kept=True)]
        await page.open(f"{example}?as=ann&url={endpoint.url}")
        first = await endpoint.next("listen")
        assert first["recover"] is True
        asked = await endpoint.next("subscribe")
        assert asked["topic"] == [TOPIC]
        assert asked["last"] == 20
        assert "until" not in asked
        await endpoint.say(said(2, HOSTILE), {"position": "p2"}, said(3, "not covered"))
        old = [["line", "bobbefore"], ["line", f"bob{HOSTILE}"], ["line", "bobnot covered"]]
        before = ["note missed", "Before you came"], ["line missed", "bobbefore"], ["note now", "Now"]
        await shown(page, *before, *old[1:])
        assert await page.run("return localStorage['missed ann position']") == "p2"

        await page.open("about:blank")
        endpoint.replies["listen"] = {"result": "success", "recovering": True}
        endpoint.behind["listen"] = [
            {"gap": {"topics": [TOPIC]}},
            said(3, "not covered", kept=True),
            said(4, "missed", kept=True),
            {"position": "p4", "recovered": True},
        ]
        await page.open(f"{example}?as=ann&url={endpoint.url}")
        again = await endpoint.next("listen")
        assert (again["client_id"], again["recover"]) == (first["client_id"], "p2")
        assert "last" not in await endpoint.next("subscribe")
        missed = ["note missed", "While you were away"], ["line missed", "bobmissed"]
        gap = ["note gap", "Some may be missing here"]
        await shown(page, *old, gap, *missed)
        await endpoint.say(said(5, "yes", who="ann"), {"key": TOPIC, "broadcast": 7, "mid": "o.6"})
        await shown(page, *old, gap, *missed, ["note now", "Now"], ["line mine", "annyes"])
        assert await page.run("return window.taken ?? null") is None

        await page.until(READY)
        await page.run("document.getElementById('text').focus()")
        await page.type("hello")
        await page.press("Enter")
        publish = await endpoint.next("publish")
        assert (publish["topic"], publish["keep_s"], publish["ack"]) == (TOPIC, 86_400, True)
        assert (publish["payload"]["from"], publish["payload"]["text"]) == ("ann", "hello")
    assert page.complaints == []


async def test_the_page_says_when_the_endpoint_keeps_no_messages(page: Page, example: str) -> None:
    async with scripted() as endpoint:
        endpoint.replies["listen"] = {"error": "bad_state", "info": "no history is kept here"}
        await page.open(f"{example}?url={endpoint.url}")
        await page.until("document.getElementById('state').textContent.includes('The endpoint keeps no messages')")
        assert (await endpoint.next("listen"))["recover"] is True
        assert endpoint.heard.empty()


async def publish(url: str, *texts: str) -> None:
    """Publish as bob, with retention for an hour."""
    async with plain(url) as bob:
        for text in texts:
            payload = {"from": "bob", "text": text}
            command = {"command": "publish", "client_id": "bob", "topic": TOPIC, "payload": payload, "keep_s": 3600}
            reply = await bob.ask({**command, "ack": True})
            assert reply["result"] == "success", reply


@pytest.mark.parametrize(
    ("texts", "missed"),
    [
        (("one", "two"), [["line missed", "bobone"], ["line missed", "bobtwo"]]),
        (("one", "two", "three"), [["line missed", "bobtwo"], ["line missed", "bobthree"]]),
    ],
    ids=["all", "some"],
)
async def test_a_real_endpoint_gives_the_page_what_it_missed(
    page: Page, example: str, tmp_path: Path, texts: tuple[str, ...], missed: list[list[str]]
) -> None:
    options = ("--history", "memory", "--history-size", "2")
    async with serving(tmp_path, *options) as (_, url):
        await page.open(f"{example}?as=ann&url={url}")
        await page.until(READY)
        # Chromium can give the next page the storage of a moment before this page's end, so the last position is not
        # the first one.
        await page.until("'missed ann position' in localStorage", patience_s=40)
        before = await page.run("return localStorage['missed ann position']")
        await publish(url, "live")
        await shown(page, ["line", "boblive"])
        # A position comes every second or so during messages, otherwise every 20 s.
        await page.until(f"localStorage['missed ann position'] !== {json.dumps(before)}", patience_s=40)
        await page.open("about:blank")
        await publish(url, *texts)
        await page.open(f"{example}?as=ann&url={url}")
        gap = [["note gap", "Some may be missing here"]] if len(texts) > 2 else []
        await shown(page, ["line", "boblive"], *gap, ["note missed", "While you were away"], *missed)
        await page.until(READY)
        await publish(url, "live again")
        shows_now = f"JSON.stringify({SHOWN}.slice(-2))"
        await page.until(f"{shows_now} === JSON.stringify([['note now', 'Now'], ['line', 'boblive again']])")
