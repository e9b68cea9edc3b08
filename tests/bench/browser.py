"""A page in a real browser: headless Chromium over its DevTools protocol, on a loopback port of its choosing.

Owns starting it, and ending it whatever happens.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import subprocess
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import websockets

ANSWER_S_MAX = 30

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--remote-debugging-port=0",
)


@dataclass
class Seen:
    """What the browser made of the page: the value of the expression, and everything it complained of or requested."""

    value: Any
    complaints: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)


async def look(chromium: Path, page: Path, profile: Path, width: int, expression: str, dark: bool = False) -> Seen:
    """Load the page at a width in CSS pixels and evaluate a JavaScript expression in it."""
    async with asyncio.timeout(ANSWER_S_MAX):
        with _started(chromium, profile) as process:
            port = await asyncio.to_thread(_port, process)
            targets = await asyncio.to_thread(_targets, port)
            url = next(target["webSocketDebuggerUrl"] for target in targets if target["type"] == "page")
            async with websockets.connect(url, max_size=None, compression=None) as connection:
                return await _visit(connection, page, width, expression, dark)


@contextlib.contextmanager
def _started(chromium: Path, profile: Path) -> Iterator[subprocess.Popen[str]]:
    arguments = [chromium, *FLAGS, f"--user-data-dir={profile}", "about:blank"]
    with subprocess.Popen(arguments, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.terminate()
            process.wait(ANSWER_S_MAX)


def _port(process: subprocess.Popen[str]) -> int:
    for line in process.stderr:
        if match := re.search(r"ws://127\.0\.0\.1:(\d+)/", line):
            return int(match[1])
    raise RuntimeError("Chromium ended before it listened")


def _targets(port: int) -> list[dict[str, Any]]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/json", timeout=ANSWER_S_MAX) as answer:
        return json.load(answer)


async def _visit(connection: Any, page: Path, width: int, expression: str, dark: bool) -> Seen:
    seen = Seen(None)
    number = 0

    async def until(wanted: Any) -> dict[str, Any]:
        while True:
            message = json.loads(await connection.recv())
            method = message.get("method", "")
            if method in ("Log.entryAdded", "Runtime.exceptionThrown", "Runtime.consoleAPICalled"):
                seen.complaints.append(json.dumps(message["params"]))
            if method == "Network.requestWillBeSent":
                seen.requests.append(message["params"]["request"]["url"])
            if wanted in (message.get("id"), method):
                return message.get("result", {})

    async def call(method: str, **parameters: Any) -> dict[str, Any]:
        nonlocal number
        number += 1
        await connection.send(json.dumps({"id": number, "method": method, "params": parameters}))
        return await until(number)

    for domain in ("Log", "Runtime", "Network", "Page"):
        await call(f"{domain}.enable")
    await call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width < 600)
    scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    await call("Emulation.setEmulatedMedia", features=[scheme])
    await call("Page.navigate", url=page.as_uri())
    await until("Page.loadEventFired")
    answer = await call("Runtime.evaluate", expression=f"JSON.stringify({expression})")
    seen.value = json.loads(answer["result"]["value"])
    return seen
