"""Each test gets the shared browser in its initial state."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator

import pytest

from .devtools import browsing

KEPT = "return [localStorage.length, sessionStorage.length, document.cookie, (await caches.keys()).length];"


class Empty(http.server.BaseHTTPRequestHandler):
    """Return an empty page."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(b"<!doctype html><title>empty</title><link rel=icon href=data:,>")

    def log_message(self, *_: object) -> None:
        """Nothing."""


@pytest.fixture
def url() -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Empty) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}/"
        server.shutdown()
        thread.join()


async def test_nothing_is_left_of_the_page_before(url: str) -> None:
    for _ in range(2):
        async with browsing() as page:
            assert await page.run("return origin;") == "null"
            await page.open(url)
            assert await page.run(KEPT) == [0, 0, "", 0]
            assert (page.complaints, page.requests[:1], page.sent) == ([], [url], [])
            assert await page.run("return [innerWidth > 600, matchMedia('(prefers-color-scheme: dark)').matches];") == [
                True,
                False,
            ]
            await page.size(390)
            await page.media(prefers_color_scheme="dark")
            kept = await page.run(
                "localStorage.a = sessionStorage.a = 1; document.cookie = 'a=1'; await caches.open('a');"
                f"console.warn('noted'); setInterval(() => console.warn('late'), 1); {KEPT}"
            )
            assert kept == [1, 1, "a=1", 1]
            assert page.complaints


async def test_a_page_that_fails_ends_the_browser_and_the_next_one_gets_another() -> None:
    with pytest.raises(ZeroDivisionError):
        async with browsing():
            _ = 1 / 0
    async with browsing() as page:
        assert await page.run("return location.href;") == "about:blank"
