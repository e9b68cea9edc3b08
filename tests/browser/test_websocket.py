"""A browser's ``WebSocket`` against a real endpoint: what RFC 6455 calls a client, written by somebody else."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import connect

from tests.broker.running import serving

pytestmark = pytest.mark.cluster

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

#: A cold start of Chromium takes seconds on a busy machine.
PATIENCE_S = 60

FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--remote-debugging-port=0"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage"),
)

# A page's script: opens sockets, says what it is told to, and keeps what it hears.
CONNECTION = """
class Connection {
    constructor(url) {
        this.heard = [];
        this.waiting = [];
        this.socket = new WebSocket(url);
        this.opened = new Promise((resolve, reject) => {
            this.socket.onopen = resolve;
            this.socket.onerror = () => reject(new Error("WebSocket error"));
        });
        this.closed = new Promise(resolve => this.socket.onclose = event => resolve([event.code, event.wasClean]));
        this.socket.onmessage = event => {
            this.heard.push(event.data);
            if (this.waiting.length) this.waiting.shift()(this.heard.shift());
        };
    }
    hear() {
        if (this.heard.length && !this.waiting.length) return Promise.resolve(this.heard.shift());
        return new Promise(resolve => this.waiting.push(resolve));
    }
    ask(frame) { this.socket.send(frame); return this.hear(); }
}
"""


class Page:
    """An empty page of a headless Chromium, driven over the DevTools protocol."""

    def __init__(self, devtools: Any) -> None:
        self._devtools = devtools
        self._number = 0

    async def run(self, body: str) -> Any:
        """Run it as the body of an async function in the page; what it returns, which has to be JSON."""
        self._number += 1
        parameters = {
            "expression": f"(async () => {{ {CONNECTION} {body} }})()",
            "awaitPromise": True,
            "returnByValue": True,
        }
        call = {"id": self._number, "method": "Runtime.evaluate", "params": parameters}
        async with asyncio.timeout(PATIENCE_S):
            await self._devtools.send(json.dumps(call))
            while (answer := json.loads(await self._devtools.recv())).get("id") != self._number:
                pass
        assert "exceptionDetails" not in answer["result"], answer["result"]["exceptionDetails"]
        return answer["result"]["result"].get("value")


@pytest.fixture
async def page(tmp_path: Path) -> AsyncIterator[Page]:
    if CHROMIUM is None:
        pytest.skip("Chromium is not installed")
    process = await asyncio.create_subprocess_exec(
        *(CHROMIUM, *FLAGS, f"--user-data-dir={tmp_path / 'profile'}", "about:blank"),
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(PATIENCE_S):
            assert process.stderr is not None
            while (match := re.search(rb"ws://127\.0\.0\.1:(\d+)/", line := await process.stderr.readline())) is None:
                assert line, "Chromium ended before it listened"
            silent = asyncio.create_task(process.stderr.read())  # so that what it says never blocks it
            target = await the_page(int(match[1]))
            async with connect(target, max_size=None, compression=None) as devtools:
                yield Page(devtools)
    finally:
        process.terminate()
        try:
            async with asyncio.timeout(PATIENCE_S):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()
    await silent


async def the_page(port: int) -> str:
    """The DevTools URL of the browser's only page."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET /json HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n\r\n".encode())
    head = await reader.readuntil(b"\r\n\r\n")
    length = re.search(rb"Content-Length: ?(\d+)", head, re.IGNORECASE)
    assert length is not None
    targets = json.loads(await reader.readexactly(int(length[1])))
    writer.close()
    return next(target["webSocketDebuggerUrl"] for target in targets if target["type"] == "page")


async def test_a_browser_speaks_the_frames_of_the_thesis(page: Page, tmp_path: Path) -> None:
    async with serving(tmp_path, "--allowed-origins", "null") as (process, url):  # an empty page's origin
        heard = await page.run(
            f"""
            const subscriber = new Connection("{url}"), publisher = new Connection("{url}");
            await subscriber.opened; await publisher.opened;
            const results = [];
            results.push(await subscriber.ask('{{"command": "listen", "client_id": 1}}'));
            results.push(await subscriber.ask('{{"command": "subscribe", "client_id": 1, "topic": "Some topic"}}'));
            results.push(await subscriber.ask(
                '{{"command": "subscribe", "client_id": 1, "topic": ["Topic 1", "Höhe \\u2603"]}}'));
            results.push(await publisher.ask('{{"command": "subscribe", "client_id": 2}}'));
            publisher.socket.send('{{"command": "publish", "client_id": 1, "topic": "Some topic", ' +
                '"payload": "Payload data", "timestamp": 1431104020907}}');
            results.push(await subscriber.hear());
            // The same command in a binary frame; the answer is text all the same.
            publisher.socket.send(new TextEncoder().encode(
                '{{"command": "publish", "client_id": 1, "topic": "Höhe \\u2603", "payload": {{"a": [1.5, null]}}}}'));
            results.push(await subscriber.hear());
            publisher.socket.close(1000);
            results.push(await publisher.closed);
            return results;
            """
        )
        assert [json.loads(message) for message in heard[:-1]] == [
            {"result": "success"},
            {"result": "success"},
            {"result": "success"},
            {"error": "bad_state", "message": "Error", "info": "Key 'topic' not specified"},
            {"key": "Some topic", "broadcast": "Payload data"},
            {"key": "Höhe \u2603", "broadcast": {"a": [1.5, None]}},
        ]
        assert heard[-1] == [1000, True]

        # Another page of the same client takes over; then the endpoint ends.
        codes = await page.run(
            f"""
            const first = new Connection("{url}"), second = new Connection("{url}");
            await first.opened; await second.opened;
            await first.ask('{{"command": "listen", "client_id": 3}}');
            await second.ask('{{"command": "listen", "client_id": 3}}');
            window.second = second;
            return [await first.closed];
            """
        )
        assert codes == [[4001, True]]
        closed = asyncio.create_task(page.run("return await window.second.closed;"))
        await asyncio.sleep(0)
        assert await process.end() == 0
        assert await closed == [1001, True]


async def test_a_page_whose_origin_is_not_allowed_gets_no_connection(page: Page, tmp_path: Path) -> None:
    async with serving(tmp_path) as (_, url):
        heard = await page.run(
            f"""
            const refused = new Connection("{url}");
            return await refused.opened.then(() => "opened", error => error.message);
            """
        )
    assert heard == "WebSocket error"
