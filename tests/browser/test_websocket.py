"""A browser's ``WebSocket`` against a real endpoint: a client of RFC 6455 that other people wrote."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.broker.running import serving

from .devtools import Page, browsing

pytestmark = pytest.mark.cluster

# The script of a page: opens sockets, obeys commands, and records messages.
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


class Script:
    """An empty page, and scripts in it that talk to endpoints."""

    def __init__(self, page: Page) -> None:
        self._page = page

    async def run(self, body: str) -> Any:
        """Run the text as the body of an async function in the page; return its result, which must be JSON."""
        return await self._page.run(CONNECTION + body)


@pytest.fixture
async def page() -> AsyncIterator[Script]:
    async with browsing(alone=True) as page:  # otherwise its origin would not be that of an empty page
        yield Script(page)


async def test_a_browser_speaks_the_frames_of_the_thesis(page: Script, tmp_path: Path) -> None:
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


async def test_a_page_whose_origin_is_not_allowed_gets_no_connection(page: Script, tmp_path: Path) -> None:
    async with serving(tmp_path) as (_, url):
        heard = await page.run(
            f"""
            const refused = new Connection("{url}");
            return await refused.opened.then(() => "opened", error => error.message);
            """
        )
    assert heard == "WebSocket error"
