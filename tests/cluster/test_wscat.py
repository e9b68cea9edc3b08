"""wscat, the npm command-line client, against a real endpoint: a client that knows nothing of this project works.

Skips without npm, or if npm cannot install the package.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest

from tests import wants
from tests.broker.running import Process, serving, started_by

pytestmark = pytest.mark.cluster

WSCAT = "wscat@6.1.0"
CACHE = Path(__file__).resolve().parents[2] / "build" / "wscat-6.1.0"
INSTALL_TIMEOUT_S = 60


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


@pytest.fixture
async def url(tmp_path: Path) -> AsyncIterator[str]:
    """The address of a real endpoint on an empty store."""
    async with serving(tmp_path) as (_, url):
        yield url


class Wscat:
    """A connected wscat that has sent its commands and stays open."""

    def __init__(self, process: Process) -> None:
        self._process = process

    async def message(self) -> object:
        """Return the next message that it prints: a line with JSON, after wscat's own marks."""
        line = await self._process.line(r"\{.*\}")
        return json.loads(line[line.index("{") : line.rindex("}") + 1])


Connected = Callable[..., AbstractAsyncContextManager[Wscat]]


@pytest.fixture
def connected(wscat: str, url: str, tmp_path: Path) -> Connected:
    """Start a wscat at each call, with these commands: objects as JSON, text unchanged."""

    @asynccontextmanager
    async def connected(*commands: object) -> AsyncIterator[Wscat]:
        command = [wscat, "--no-color", "--connect", url, "--wait", "-1"]
        for each in commands:
            command += ["--execute", each if isinstance(each, str) else json.dumps(each)]
        async with started_by(command, tmp_path, stdin=subprocess.PIPE) as process:
            yield Wscat(process)

    return connected


async def test_wscat_subscribes_and_hears_what_another_wscat_publishes(connected: Connected) -> None:
    listen = {"command": "listen", "client_id": 1}
    subscribe = {"command": "subscribe", "client_id": 1, "topic": "Nena - 99 Luftballons"}
    publish = {"command": "publish", "client_id": 2, "topic": "Nena - 99 Luftballons", "payload": {"station": "7"}}
    async with connected(listen, subscribe) as subscriber:
        assert await subscriber.message() == {"result": "success"}
        assert await subscriber.message() == {"result": "success"}
        async with connected({**publish, "ack": True}) as publisher:
            assert await publisher.message() == {"result": "success", "duplicate": False}
            assert await subscriber.message() == {"key": "Nena - 99 Luftballons", "broadcast": {"station": "7"}}


async def test_wscat_is_told_what_it_typed_wrong(connected: Connected) -> None:
    async with connected("{not json}", {"command": "subscribe", "client_id": 1}) as client:
        for code in ("bad_json", "bad_state"):
            answer = await client.message()
            assert isinstance(answer, dict)
            assert answer["error"] == code
