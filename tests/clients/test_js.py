"""The JavaScript client: its own tests by Node's runner, its types by tsc, and itself in a real browser.

Its tests in ``clients/js/test`` start endpoints of this tree. Skips without Node 20, npm or Chromium.
"""

from __future__ import annotations

import asyncio
import functools
import http.server
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ingeborg.broker.access.tokens import make_token, new_keys
from tests import wants
from tests.broker.running import serving
from tests.broker.transports import Authority, Pair
from tests.browser.devtools import Page
from tests.clients import vectors
from tests.cluster.processes import cluster_of

pytestmark = pytest.mark.cluster

ROOT = Path(__file__).resolve().parents[2]
HOME = ROOT / "clients" / "js"

#: A file of tests takes half a minute on a machine under load.
NODE_S_MAX = 110
INSTALL_S_MAX = 60


@pytest.fixture(scope="module")
def node() -> str:
    """Node's program, of version 20 or newer."""
    found = wants.tool("node")
    said = subprocess.run([found, "--version"], capture_output=True, text=True, timeout=30).stdout
    version = re.match(r"v(\d+)\.", said)
    if version is None or int(version[1]) < 20:
        wants.skip("Node.js 20 or newer", f"this is {said.strip()}: https://nodejs.org")
    return found


def run(*command: str | Path, cwd: Path = HOME, **environment: str) -> str:
    """Run it to its end; return its output. In any case, it and the processes that it started are gone."""
    process = subprocess.Popen(
        command,
        cwd=cwd,
        env={**os.environ, "NO_COLOR": "1", "INGEBORG_PYTHON": sys.executable, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        said, _ = process.communicate(timeout=NODE_S_MAX)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGTERM)  # which ends its endpoints
        said, _ = process.communicate(timeout=10)
        pytest.fail(f"not within {NODE_S_MAX} s: {said[-4000:]}")
    assert process.returncode == 0, said[-8000:]
    return said


def test_the_vectors_are_what_the_python_client_says() -> None:
    committed = vectors.FILE.read_text(encoding="utf-8")
    assert committed == vectors.text(), "run `python -m tests.clients.vectors`"


@pytest.mark.parametrize("name", sorted(path.name for path in HOME.glob("test/*.test.js")))
def test_in_node(node: str, name: str, tmp_path: Path) -> None:
    authority = Authority(tmp_path)  # for wss:
    authority.issue(1, Pair(tmp_path / "chain.pem", tmp_path / "key.pem"))
    said = run(node, "--test", "--test-reporter=tap", f"test/{name}", INGEBORG_TLS=str(tmp_path))
    count = re.search(r"^# pass (\d+)$", said, re.MULTILINE)
    assert count is not None
    assert int(count[1]) > 0
    assert "Warning" not in re.sub(r".*ExperimentalWarning: The MockTimers API.*", "", said)


@pytest.fixture(scope="module")
def tsc() -> list[str | Path]:
    """The compiler, installed once into an ignored folder of the checkout."""
    npm = shutil.which("npm")
    if npm is None:
        wants.skip("npm", "https://nodejs.org has it")
    folder = ROOT / "build" / "clients-js"
    program = folder / "node_modules" / ".bin" / "tsc"
    lock = HOME / "package-lock.json"
    if not program.exists() or (folder / lock.name).read_bytes() != lock.read_bytes():
        folder.mkdir(parents=True, exist_ok=True)
        for name in ("package.json", lock.name):
            shutil.copy(HOME / name, folder)
        command = [npm, "ci", "--no-audit", "--no-fund", "--ignore-scripts"]
        try:
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=INSTALL_S_MAX)
        except subprocess.TimeoutExpired:
            wants.skip("TypeScript", f"npm did not install it within {INSTALL_S_MAX} s")
        if done.returncode != 0:
            wants.skip("TypeScript", f"npm cannot install it: {done.stderr.strip()[-200:]}")
    return [program, "--typeRoots", folder / "node_modules" / "@types"]


def test_the_types_are_right_and_made_from_the_sources(node: str, tsc: list[str | Path], tmp_path: Path) -> None:
    run(*tsc, "--project", "tsconfig.json", "--outDir", tmp_path)
    made = {path.name: path.read_text(encoding="utf-8") for path in tmp_path.iterdir()}
    committed = {path.name: path.read_text(encoding="utf-8") for path in (HOME / "types").iterdir()}
    assert committed == made, "run `npm run types` in clients/js"
    options = (
        "--ignoreConfig",
        "--noEmit",
        "--strict",
        "--target",
        "es2022",
        "--module",
        "nodenext",
        "--types",
        "node",
    )
    run(*tsc, *options, "test/types.ts")


# -- in a browser


class Files(http.server.SimpleHTTPRequestHandler):
    """Serve the client's sources, and an empty page."""

    def do_GET(self) -> None:
        if self.path != "/":
            super().do_GET()
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(b"<!doctype html><title>client</title>")

    def log_message(self, *_: object) -> None:
        """Log nothing: a page that loads is not news."""


@pytest.fixture
def origin() -> Iterator[str]:
    """Return the origin of a page of this machine."""
    handler = functools.partial(Files, directory=HOME)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


#: Shared by the scripts below. `within` ends a script that would hang, with the script's name for the step.
PRELUDE = """
const { Client } = await import("/src/index.js");
const options = { timeoutMs: 20000, backoffBaseMs: 20, backoffMaxMs: 200 };
const outcome = promise => promise.then(value => value, error => error);
const within = (promise, what) => Promise.race([promise,
    new Promise((_, reject) => setTimeout(() => reject(new Error("not within 30 s: " + what)), 30000))]);
const next = async client => {
    const notes = client.notifications();
    const { value } = await within(notes.next(), "a notification");
    await notes.return();
    return [value.key, value.broadcast];
};
"""


async def run_in(page: Page, origin: str, script: str, **given: Any) -> Any:
    """Run the script in a page of that origin, with the given constants."""
    constants = "".join(f"const {name} = {json.dumps(value)};" for name, value in given.items())
    return await page.run(PRELUDE + constants + script)


@pytest.mark.parametrize("lines", [False, True])
async def test_a_page_uses_all_commands(page: Page, origin: str, tmp_path: Path, lines: bool) -> None:
    await page.open(f"{origin}/")
    async with serving(tmp_path) as (_, url):
        heard = await run_in(
            page,
            origin,
            """
            options.lines = lines;
            const ann = await Client.open(url, "ann", { ...options, listen: true, queueMax: 10 });
            const radio = await Client.open([url], 7, options);
            const heard = [];
            await ann.subscribe(["Höhe ☃", "b"]);
            heard.push(await radio.publish("Höhe ☃", { x: [1.5, "é😀"] }, { ack: true }), await next(ann));
            heard.push(await radio.publish("Höhe ☃", { x: [1.5, "é😀"] }, { ack: true }));
            heard.push(await radio.broadcast("all", { ack: true }), await next(ann));
            await ann.unsubscribe("b");
            const topics = [];
            for await (const { topic } of ann.subscriptions({ limit: 1 })) topics.push(topic);
            heard.push(topics);
            const many = Array.from({ length: 20000 }, (_, number) => "topic " + number);
            await ann.subscribe(many);
            let count = 0;
            for await (const _ of ann.subscriptions({ limit: 5000 })) count++;
            heard.push(count);
            heard.push((await outcome(radio.publish("", 1))).code);
            heard.push((await outcome(radio.subscribe("t", { signal: AbortSignal.abort() }))).name);
            // A slow iteration: the queue is bounded.
            await radio.publishMany(Array.from({ length: 100 }, (_, number) => ["topic 1", number]));
            await radio.publish("topic 1", "last", { ack: true });
            await ann.subscribe("behind them");
            heard.push([ann.queued, ann.dropped], await next(ann));
            // Listening elsewhere.
            const other = await Client.open(url, "ann", { ...options, listen: true });
            const ended = await within(ann.closed, "the first one's end");
            heard.push([ended.name, ended.closeCode]);
            await other.close();
            heard.push(await other.closed, (await outcome(other.subscribe("t"))).name);
            const paused = await outcome(Client.open(url, "bob", { ...options, overflow: "pause" }));
            const ca = await outcome(Client.open(url, "bob", { ...options, ca: "x" }));
            heard.push([paused.name, ca.name]);
            await radio.close();
            return heard;
            """,
            url=url,
            lines=lines,
        )
    assert any("\n" in message for message in page.sent) is lines
    assert heard == [
        *(False, ["Höhe ☃", {"x": [1.5, "é😀"]}], True, False, [None, "all"], ["Höhe ☃"], 20_001),
        *("bad_topic", "AbortError", [10, 91], ["topic 1", 91], ["ClosedForGood", 4001], None, "ClosedForGood"),
        ["TypeError", "TypeError"],
    ]


async def test_what_a_page_subscribes_to_ends_with_it_unless_it_says_otherwise(
    page: Page, origin: str, tmp_path: Path
) -> None:
    await page.open(f"{origin}/")
    async with serving(tmp_path) as (_, url):
        heard = await run_in(
            page,
            origin,
            """
            const ann = await Client.open(url, "ann", { ...options, listen: true });
            const filter = { food: ["pizza"], discount: [{ numeric: [">=", 30] }] };
            await ann.subscribe("offers", { filter });
            await ann.subscribe("offers", { filter: { food: ["pasta"] }, until: null });
            await ann.subscribe("for now");
            await ann.subscribe("for good", { until: null });
            for (const [food, discount] of [["pizza", 20], ["salad", 40], ["pizza", 30]]) {
                await ann.publish("offers", { food, discount }, { ack: true });
            }
            const heard = [await next(ann), ann.queued];
            for await (const one of ann.subscriptions()) heard.push(one);
            heard.push((await outcome(ann.subscribe("offers", { filter: { food: [{ like: 1 }] } }))).code);
            const bob = await Client.open(url, "bob", { ...options, until: null });
            await bob.subscribe("for good");
            for await (const one of bob.subscriptions()) heard.push(one);
            return heard;
            """,
            url=url,
        )
    pizza = {"food": ["pizza"], "discount": [{"numeric": [">=", 30]}]}
    assert heard[:2] == [["offers", {"food": "pizza", "discount": 30}], 0]
    assert heard[6:] == ["bad_filter", {"topic": "for good"}]
    found = sorted(heard[2:6], key=lambda one: (one["topic"], "until" in one))
    assert found == [
        *({"topic": "for good"}, {"topic": "for now", "until": "disconnect"}),
        *(
            {"topic": "offers", "filter": {"food": ["pasta"]}},
            {"topic": "offers", "filter": pizza, "until": "disconnect"},
        ),
    ]


async def test_a_page_connects_again_to_another_endpoint_and_to_one_that_came_back(
    page: Page, origin: str, tmp_path: Path
) -> None:
    await page.open(f"{origin}/")
    async with cluster_of("ab", tmp_path) as cluster:
        heard = await run_in(
            page,
            origin,
            """
            window.told = [];
            window.ann = await Client.open(urls, "ann", { ...options, listen: true,
                onConnected: url => told.push(url), onLost: error => told.push(error.name) });
            await ann.subscribe("news");
            window.again = count => new Promise(resolve => {
                const look = () => told.length >= count ? resolve(told) : setTimeout(look, 20);
                look();
            });
            return ann.url;
            """,
            urls=cluster.urls("a"),
        )
        assert heard == cluster["a"].url
        await cluster["a"].kill()
        told = await run_in(
            page,
            origin,
            """
            const told = await within(again(3), "the other endpoint");
            await ann.publish("news", "first", { ack: true });
            return [...told, await next(ann)];
            """,
        )
        assert told == [cluster["a"].url, "ConnectionLost", cluster["b"].url, ["news", "first"]]
        await cluster["a"].start()
        await cluster["b"].kill()
        told = await run_in(
            page,
            origin,
            """
            const told = await within(again(5), "the endpoint that came back");
            await ann.publish("news", "second", { ack: true });
            const heard = [...told.slice(3), await next(ann), ann.reconnects];
            await ann.close();
            return heard;
            """,
        )
        assert told == ["ConnectionLost", cluster["a"].url, ["news", "second"], 2]


async def test_a_page_has_its_token_in_the_query_and_a_fresh_one_when_it_expires(
    page: Page, origin: str, tmp_path: Path
) -> None:
    await page.open(f"{origin}/")
    keys = tmp_path / "keys.json"
    new_keys(keys)

    def token(lifetime_s: float) -> str:
        # Endpoints allow ten seconds of leeway: these have that many fewer.
        clock = functools.partial(float, time.time() - 10)
        return make_token(keys, "ann", subscribe=[""], publish=[""], lifetime_s=lifetime_s, clock=clock)

    async with serving(tmp_path, "--auth-keys", str(keys)) as (_, url):
        refused = await run_in(
            page,
            origin,
            'return (await outcome(Client.open(url, "ann", options))).name;',
            url=url,
        )
        heard = await run_in(
            page,
            origin,
            """
            let lost, connected, times = 0;
            const isLost = new Promise(resolve => lost = resolve);
            const isConnected = new Promise(resolve => connected = resolve);
            const ann = await Client.open(url, "ann", { ...options, listen: true,
                token: async () => tokens[Math.min(times, 1)],
                onLost: error => lost(error.closeCode), onConnected: () => times++ && connected() });
            const code = await within(isLost, "the token's expiry");
            await within(isConnected, "the connection with another token");
            await ann.subscribe("t");
            await ann.publish("t", 1, { ack: true });
            const heard = [code, await next(ann)];
            await ann.close();
            return heard;
            """,
            url=url,
            tokens=[await asyncio.to_thread(token, 4), token(600)],
        )
    assert (refused, heard) == ("ConnectFailed", [4004, ["t", 1]])
