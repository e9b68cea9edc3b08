"""Commands over HTTP from programs that nobody here wrote, and through nginx as docs/http.md configures it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import orjson
import pytest

from ingeborg.broker.access.admission import Access
from tests import wants
from tests.cluster.processes import free_port

from ..running import PATIENCE_S, Running, plain, raw, running
from .talking import Talk, head, post

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.usefixtures("transport", "logged"),
    pytest.mark.above_sockets,
    pytest.mark.over_tcp,
]

ROOT = Path(__file__).parents[3]


async def output(*arguments: str) -> str:
    process = await asyncio.create_subprocess_exec(
        *arguments, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    async with asyncio.timeout(PATIENCE_S):
        out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    return out.decode()


async def test_curl(shared: Running, name: str) -> None:
    url = shared.url.replace("ws", "http", 1)
    command = orjson.dumps({"client_id": "shop", "topic": name, "payload": "x" * 3_000}).decode()
    asks = ("-H", "Content-Type: application/json", "-H", "Expect: 100-continue", "-d", command)
    more = ("--silent", "--show-error", "--write-out", " %{http_code} %{num_connects}\n")
    said = await output(wants.tool("curl"), *more, *asks, f"{url}publish", f"{url}publish")
    first, again = said.splitlines()
    assert first.endswith(" 200 1")
    assert '"duplicate":false' in first
    assert again.endswith(" 200 0")  # over the same connection
    assert '"duplicate":true' in again


async def test_fetch_of_node(shared: Running, name: str) -> None:
    script = """
        const [url, topic] = process.argv.slice(1);
        const statuses = [];
        for (const payload of [1, 2, "", 2]) {
            const body = JSON.stringify({ client_id: "node", topic: payload === "" ? "" : topic, payload });
            const answer = await fetch(`${url}publish`, {
                method: "POST", headers: { "Content-Type": "application/json" }, body,
            });
            statuses.push([answer.status, (await answer.json()).duplicate ?? null]);
        }
        console.log(JSON.stringify(statuses));
    """
    url = shared.url.replace("ws", "http", 1)
    said = await output(wants.tool("node"), "--input-type=module", "--eval", script, "--", url, name)
    assert orjson.loads(said) == [[200, False], [200, False], [400, None], [200, True]]


def documented_configuration(listens: int, endpoint: int, directory: Path) -> str:
    page = (ROOT / "docs" / "http.md").read_text(encoding="utf-8")
    found = re.search(r"```nginx\n(.*?)```", page, re.DOTALL)
    assert found is not None
    inner = (
        found[1].replace("127.0.0.1:9000", f"127.0.0.1:{endpoint}").replace("listen 80", f"listen 127.0.0.1:{listens}")
    )
    paths = "".join(f"{kind}_temp_path {directory};\n" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    start = f"daemon off; worker_processes 1; pid {directory}/pid; error_log stderr warn; events {{}}\n"
    return f"{start}http {{\n{paths}access_log off;\n{inner}}}\n"


@asynccontextmanager
async def nginx(directory: Path, endpoint: Running) -> AsyncIterator[str]:
    """Run nginx before the endpoint, and yield its URL."""
    program, port = wants.tool("nginx"), free_port()
    file = directory / "nginx.conf"
    file.write_text(documented_configuration(port, endpoint.port, directory), encoding="utf-8")
    process = await asyncio.create_subprocess_exec(program, "-c", str(file), "-p", str(directory))
    try:
        async with asyncio.timeout(PATIENCE_S):
            while True:
                try:
                    _, writer = await asyncio.open_connection("127.0.0.1", port)
                except ConnectionRefusedError:
                    assert process.returncode is None, "nginx has ended"
                    await asyncio.sleep(0.02)
                else:
                    writer.close()
                    break
        yield f"ws://127.0.0.1:{port}/"
    finally:
        process.terminate()
        await process.wait()


async def test_nginx_as_documented(tmp_path: Path) -> None:
    def message(number: Any) -> bytes:
        return post("/publish", {"client_id": "shop", "topic": "a", "payload": number})

    access = Access(proxies=[ip_network("127.0.0.0/8")])
    async with running(tmp_path, access=access) as endpoint, nginx(tmp_path, endpoint) as url:
        async with raw(url) as first, raw(url) as second:
            for number in range(3):
                for client in (Talk(first), Talk(second)):
                    answer = await client.ask(message(f"{id(client)} {number}"))
                    assert (answer.status, answer.json["duplicate"]) == (200, False)
        async with plain(url) as ann:  # perhaps over a connection that nginx has kept
            await ann.ask({"command": "listen", "client_id": "ann"})
            await ann.ask({"command": "subscribe", "client_id": "ann", "topic": "a"})
            async with raw(url) as connection:
                backend = Talk(connection)
                assert (await backend.ask(message("through nginx"))).status == 200
                assert await ann.hear() == {"key": "a", "broadcast": "through nginx"}
                assert (await backend.ask(head("GET", "/healthz"))).body == b"alive\n"
