"""An event stream in a real browser: the page of docs/http.md, while endpoints are killed under it."""

from __future__ import annotations

import asyncio
import functools
import http.server
import json
import os
import re
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import WebSocketException

from ingeborg.protocol.pages import PageError, fetch, samples
from tests.broker.http.talking import post, talk
from tests.broker.running import children, plain, serving
from tests.cluster.processes import eventually

from .devtools import browsing

pytestmark = pytest.mark.cluster

ROOT = Path(__file__).resolve().parents[2]
MESSAGES = 60


def documented(url: str) -> str:
    """Return the documented page. It notes a gap, and does not load itself again."""
    page = (ROOT / "docs" / "http.md").read_text(encoding="utf-8")
    found = re.search(r"```html\n(.*?)```", page, re.DOTALL)
    assert found is not None
    html = found[1].replace("http://127.0.0.1:9000/", url)
    assert html != found[1]
    gap = html.replace("location.reload()", "(window.gaps ??= []).push(window.event.data)")
    assert gap != html
    return f"<!doctype html><meta charset=utf-8>{gap}"


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[str]:
    """Serve the directory over HTTP from this machine, and return its URL."""
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=tmp_path / "site")
    handler.log_message = lambda *_: None  # type: ignore[attr-defined]
    (tmp_path / "site").mkdir()
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}/"
        server.shutdown()
        thread.join()


async def publish(url: str, number: int) -> None:
    """Publish the message, again and again until an endpoint has accepted it."""
    message = {"client_id": "backend", "topic": "order/42", "payload": number, "keep_s": 600}
    async with asyncio.timeout(60):
        while True:
            try:
                async with talk(url) as backend:
                    answer = await backend.ask(post("/publish", message, f"Idempotency-Key: m{number}"))
                    if answer.status == 200:
                        return
            except (OSError, asyncio.IncompleteReadError):
                pass  # the endpoint was killed
            await asyncio.sleep(0.1)


async def is_whole(url: str) -> bool:
    """Are three endpoints up, and has every slot a replica?"""
    try:
        async with plain(url) as client:
            said = await client.ask({"command": "endpoints", "client_id": "ops"})
        urls = [one["url"] for one in said["endpoints"] if one["up"]]
        found = [samples((await fetch(one, "/metrics")).text) for one in urls]
    except (OSError, TimeoutError, PageError, WebSocketException):
        return False  # an endpoint was killed
    without = [one.value for page in found for one in page if one.name == "ingeborg_slots_without_replica"]
    return without == [0, 0, 0]


async def test_a_page_misses_nothing_while_endpoints_are_killed(tmp_path: Path, directory: str) -> None:
    options = ("--endpoints", "3", "--share-port", "--replication", "on", "--history", "memory")
    async with serving(tmp_path, *options) as (process, url), browsing() as page:
        (tmp_path / "site" / "page.html").write_text(documented(url.replace("ws", "http", 1)), encoding="utf-8")
        await page.open(f"{directory}page.html")
        await page.until("stream.readyState === EventSource.OPEN")
        for number in range(MESSAGES):
            if number in (MESSAGES // 3, 2 * MESSAGES // 3):
                # Without replicas, a crash loses messages.
                await eventually(functools.partial(is_whole, url), "every slot has a replica")
                os.kill(children(process.pid)[0], signal.SIGKILL)  # the supervisor starts another one
            await publish(url, number)
        wanted = [f"order/42: {number}" for number in range(MESSAGES)]
        shown: Any = "[...document.getElementById('news').childNodes].map(node => node.textContent)"
        await page.until(f"{json.dumps(wanted)}.every(line => {shown}.includes(line))")
        assert await page.run("return window.gaps ?? []") == []
        assert set(await page.run(f"return {shown}")) == set(wanted)
