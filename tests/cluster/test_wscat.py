"""wscat, the npm command-line client, against a real endpoint: a client that knows nothing of this project works.

Skips where there is no npm, or where it cannot install the package.
"""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests import wants

pytestmark = pytest.mark.cluster

WSCAT = "wscat@6.1.0"
CACHE = Path(__file__).resolve().parents[2] / "build" / "wscat-6.1.0"
INSTALL_TIMEOUT_S = 60
ANSWER_TIMEOUT_S = 60


@pytest.fixture(scope="module")
def wscat() -> str:
    """The program, installed once into an ignored folder of the checkout."""
    npm = shutil.which("npm")
    if npm is None:
        wants.skip("npm", "https://nodejs.org has it")
    program = CACHE / "node_modules" / ".bin" / "wscat"
    if not program.exists():
        command = [npm, "install", "--prefix", str(CACHE), "--no-audit", "--no-fund", "--ignore-scripts", WSCAT]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            wants.skip("wscat", f"npm did not install it within {INSTALL_TIMEOUT_S} s")
        if done.returncode != 0:
            wants.skip("wscat", f"npm cannot install it: {done.stderr.strip()[-200:]}")
    return str(program)


async def line_with(stream: asyncio.StreamReader, pattern: str) -> str:
    """The first line that matches; fails when the process ends or is silent before."""
    seen = []
    async with asyncio.timeout(ANSWER_TIMEOUT_S):
        while line := (await stream.readline()).decode():
            if re.search(pattern, line):
                return line
            seen.append(line)
    raise AssertionError(f"ended without a line like {pattern!r}: {''.join(seen)!r}")


async def end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        process.terminate()
    async with asyncio.timeout(ANSWER_TIMEOUT_S):
        await process.wait()


@pytest.fixture
async def url(tmp_path: Path) -> AsyncIterator[str]:
    """Where a real endpoint on an empty store listens."""
    endpoint = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "broker.cli", "serve", "--port", "0", "--store", f"lmdb:{tmp_path}"),
        stdout=asyncio.subprocess.PIPE,
    )
    assert endpoint.stdout is not None
    try:
        ready = await line_with(endpoint.stdout, r"ws://")
        yield re.findall(r"ws://\S+", ready)[0]
    finally:
        await end(endpoint)


class Wscat:
    """One wscat, connected, that has sent its commands and stays open."""

    def __init__(self, program: str, url: str, *commands: object) -> None:
        self._command = [program, "--no-color", "--connect", url, "--wait", "-1"]
        for command in commands:
            self._command += ["--execute", command if isinstance(command, str) else json.dumps(command)]

    async def __aenter__(self) -> Wscat:
        self._process = await asyncio.create_subprocess_exec(
            *self._command, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        await end(self._process)

    async def message(self) -> object:
        """The next message it prints: a line with JSON in it, after wscat's own marks."""
        assert self._process.stdout is not None
        line = await line_with(self._process.stdout, r"\{.*\}")
        return json.loads(line[line.index("{") : line.rindex("}") + 1])


async def test_wscat_subscribes_and_hears_what_another_wscat_publishes(wscat: str, url: str) -> None:
    listen = {"command": "listen", "client_id": 1}
    subscribe = {"command": "subscribe", "client_id": 1, "topic": "Nena - 99 Luftballons"}
    publish = {"command": "publish", "client_id": 2, "topic": "Nena - 99 Luftballons", "payload": {"station": "7"}}
    async with Wscat(wscat, url, listen, subscribe) as subscriber:
        assert await subscriber.message() == {"result": "success"}
        assert await subscriber.message() == {"result": "success"}
        async with Wscat(wscat, url, {**publish, "ack": True}) as publisher:
            assert await publisher.message() == {"result": "success", "duplicate": False}
            assert await subscriber.message() == {"key": "Nena - 99 Luftballons", "broadcast": {"station": "7"}}


async def test_wscat_is_told_what_it_typed_wrong(wscat: str, url: str) -> None:
    async with Wscat(wscat, url, "{not json}", {"command": "subscribe", "client_id": 1}) as client:
        for code in ("bad_json", "bad_state"):
            answer = await client.message()
            assert isinstance(answer, dict)
            assert answer["error"] == code
