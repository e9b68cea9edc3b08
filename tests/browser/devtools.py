"""A page of a real browser: headless Chromium, driven over its DevTools protocol on a loopback port of its choosing.

Owns: the browser's start, its end in every case, and the page's complaints and requests. Must never: reach beyond this
machine.
"""

from __future__ import annotations

import asyncio
import atexit
import json
import re
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

from websockets.asyncio.client import ClientConnection, connect

from ingeborg.bench.starting import Child, awaited, blocking
from tests import wants

#: A cold start of Chromium takes seconds on a busy machine.
PATIENCE_S = 60

FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--remote-debugging-port=0"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage"),
)

#: Waits in the page for an expression to become true, and returns its value.
UNTIL = """
async function until(look, what, patience_ms) {
    const end = performance.now() + patience_ms;
    for (;;) {
        const value = look();
        if (value) return value;
        if (performance.now() > end) throw new Error(`not so: ${what}; the page says: ${document.body.innerText}`);
        await new Promise(resolve => setTimeout(resolve, 20));
    }
}
"""


class Page:
    """A page. ``complaints``: messages, exceptions and refusals; ``requests``: URLs, including those of WebSockets;
    ``sent``: messages over these, and each sets ``frame_sent``."""

    def __init__(self, devtools: ClientConnection) -> None:
        self._devtools = devtools
        self._number = 0
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._loaded = asyncio.Event()
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self.sent: list[str] = []
        self.frame_sent = asyncio.Event()

    async def read(self) -> None:
        """Read the browser's events until it is gone."""
        async for text in self._devtools:
            message = json.loads(text)
            parameters = message.get("params", {})
            match message.get("method"):
                case None:
                    answer = self._answers.pop(message["id"])
                    if not answer.done():
                        answer.set_result(message)
                case "Log.entryAdded" | "Runtime.exceptionThrown" | "Runtime.consoleAPICalled":
                    self.complaints.append(json.dumps(parameters))
                case "Audits.issueAdded" if parameters["issue"]["code"] == "ContentSecurityPolicyIssue":
                    self.complaints.append(json.dumps(parameters))
                case "Network.requestWillBeSent":
                    self.requests.append(parameters["request"]["url"])
                case "Network.webSocketCreated":
                    self.requests.append(parameters["url"])
                case "Network.webSocketFrameSent":
                    self.sent.append(parameters["response"]["payloadData"])
                    self.frame_sent.set()
                case "Page.loadEventFired":
                    self._loaded.set()

    async def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command of the DevTools protocol; return its result."""
        self._number += 1
        answer = self._answers[self._number] = asyncio.get_running_loop().create_future()
        await self._devtools.send(json.dumps({"id": self._number, "method": method, "params": parameters}))
        async with asyncio.timeout(PATIENCE_S):
            message = await answer
        assert "error" not in message, message
        result: dict[str, Any] = message["result"]
        return result

    async def run(self, body: str) -> Any:
        """Run the text as the body of an async function in the page; return its result, which must be JSON."""
        answer = await self.call(
            "Runtime.evaluate",
            expression=f"(async () => {{ {UNTIL} {body} }})()",
            awaitPromise=True,
            returnByValue=True,
        )
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    async def until(self, expression: str, patience_s: float = 20.0) -> Any:
        """Wait until the expression is true in the page; return its value."""
        what = json.dumps(expression)
        return await self.run(f"return await until(() => ({expression}), {what}, {patience_s * 1e3});")

    async def open(self, url: str) -> None:
        """Load a page, and record its requests and complaints from now on."""
        for domain in ("Log", "Runtime", "Network", "Page", "Audits"):
            await self.call(f"{domain}.enable")
        self._loaded.clear()
        await self.call("Page.navigate", url=url)
        async with asyncio.timeout(PATIENCE_S):
            await self._loaded.wait()

    async def size(self, width: int, height: int = 900) -> None:
        """Set the size in CSS pixels; a narrow one is a phone's."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        await self.call("Emulation.setDeviceMetricsOverride", **size)

    async def media(self, **features: str) -> None:
        """Set the visitor's preferences: ``prefers_color_scheme="dark"``."""
        asked = [{"name": name.replace("_", "-"), "value": value} for name, value in features.items()]
        await self.call("Emulation.setEmulatedMedia", features=asked)

    async def press(self, key: str, shift: bool = False) -> None:
        """Press and release a key of the keyboard: Tab, Enter, Escape, Space."""
        code, text = {"Tab": (9, ""), "Enter": (13, "\r"), "Escape": (27, ""), "Space": (32, " ")}[key]
        name = " " if key == "Space" else key
        common = {"key": name, "code": key, "windowsVirtualKeyCode": code, "modifiers": 8 if shift else 0}
        await self.call("Input.dispatchKeyEvent", type="keyDown" if text else "rawKeyDown", text=text, **common)
        await self.call("Input.dispatchKeyEvent", type="keyUp", **common)

    async def type(self, text: str) -> None:
        """Type text into the focused element."""
        await self.call("Input.insertText", text=text)


class Chromium:
    """The browser of this process and its only page, which tests use one after the other. A separate browser takes a
    second of a core for each test, and so does a page with a separate context. The browser ends with the process."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="ingeborg-chromium-")
        folder = Path(self._folder.name)
        command = [wants.tool("chromium"), *FLAGS, f"--user-data-dir={folder / 'profile'}", "about:blank"]
        self._child = Child("Chromium", command, folder / "log")
        self.is_used = False
        self._page = ""

    async def page(self) -> str:
        """Return the DevTools URL of its page."""
        if self._page:
            return self._page
        listens = re.compile(r"ws://127\.0\.0\.1:(\d+)/")
        match = listens.search(await awaited(self._child.line(listens, PATIENCE_S)))
        assert match is not None
        async with asyncio.timeout(PATIENCE_S):
            self._page = await _target(int(match[1]))
        return self._page

    async def end(self) -> None:
        """Make sure that it no longer runs."""
        await awaited(self._child.end(PATIENCE_S))
        self._folder.cleanup()

    def end_at_exit(self) -> None:
        """The same without a running loop."""
        blocking(self._child.end(PATIENCE_S))
        self._folder.cleanup()


_running: list[Chromium] = []


@asynccontextmanager
async def browsing(*, alone: bool = False) -> AsyncIterator[Page]:
    """Yield an empty page, in a browser that remembers nothing. ``alone``: in a browser that has never shown a page,
    and that ends with this one. Skips the test without Chromium."""
    browser = Chromium() if alone else _shared()
    is_kept = False
    try:
        async with _driven(await browser.page()) as page:
            yield page
            if not alone:
                await _forget(page)
                is_kept = True
    finally:
        browser.is_used = False
        if not is_kept:
            if browser in _running:
                _running.remove(browser)
                atexit.unregister(browser.end_at_exit)
            await browser.end()


def _shared() -> Chromium:
    if not _running:
        _running.append(Chromium())
        atexit.register(_running[-1].end_at_exit)
    (browser,) = _running
    assert not browser.is_used, "its page is one"
    browser.is_used = True
    return browser


async def _forget(page: Page) -> None:
    """Return to the initial state: close everything that the page opened, and delete everything it stored."""
    await page.open("data:text/html,")  # about:blank would have the origin of the page before
    await page.call("Storage.clearDataForOrigin", origin="*", storageTypes="all")
    for command in ("Network.clearBrowserCookies", "Network.clearBrowserCache", "Log.clear"):
        await page.call(command)
    await page.call("Runtime.discardConsoleEntries")


@asynccontextmanager
async def _driven(url: str) -> AsyncIterator[Page]:
    """Drive the page behind a DevTools URL."""
    async with connect(url, max_size=None, compression=None) as devtools:
        page = Page(devtools)
        reading = asyncio.create_task(page.read())
        try:
            yield page
        finally:
            reading.cancel()
            (ended,) = await asyncio.gather(reading, return_exceptions=True)
            assert ended is None or isinstance(ended, asyncio.CancelledError), ended


class Seen(NamedTuple):
    """The result of a page: the value of the expression, and the page's complaints and requests."""

    value: Any
    complaints: list[str]
    requests: list[str]


async def look(file: Path, width: int, expression: str, dark: bool = False) -> Seen:
    """Load the file at a width in CSS pixels, and evaluate a JavaScript expression in it."""
    async with browsing() as page:
        await page.size(width)
        await page.media(prefers_color_scheme="dark" if dark else "light")
        await page.open(file.as_uri())
        value = await page.run(f"return {expression};")
        return Seen(value, [*page.complaints], [*page.requests])


async def _target(port: int) -> str:
    """Return the DevTools URL of the browser's only page."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET /json HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n\r\n".encode())
    head = await reader.readuntil(b"\r\n\r\n")
    length = re.search(rb"Content-Length: ?(\d+)", head, re.IGNORECASE)
    assert length is not None
    targets = json.loads(await reader.readexactly(int(length[1])))
    writer.close()
    return str(next(target["webSocketDebuggerUrl"] for target in targets if target["type"] == "page"))
