"""The examples as readers run them: real processes, against real endpoints, judged by their output."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest
from websockets.asyncio.server import ServerConnection

from ingeborg.protocol.client import Client
from tests.broker.running import PATIENCE_S, Process, ingeborg, serving, started_by
from tests.protocol.scripted import ScriptedEndpoint

pytestmark = pytest.mark.cluster

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = sorted(path.name for path in (ROOT / "examples").glob("*.py"))
#: ``tests/browser`` opens them.
PAGES = sorted(path.name for path in (ROOT / "examples").glob("*.html"))
LINES_MAX = 120


@asynccontextmanager
async def example(directory: Path, name: str, *arguments: str, **variables: str) -> AsyncIterator[Process]:
    """Run the example as a process with open input; end it at the end if it still runs."""
    command: list[str | Path] = [sys.executable, ROOT / "examples" / name, *arguments]
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    async with started_by(command, directory, {"PYTHONPATH": path, **variables}, stdin=subprocess.PIPE) as running:
        yield running
    assert "Traceback" not in running.said()


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_is_short_and_says_how_to_run_it(name: str) -> None:
    text = (ROOT / "examples" / name).read_text(encoding="utf-8")
    assert len(text.splitlines()) <= LINES_MAX
    assert f"\n    python examples/{name}" in text.split('"""')[1]


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_short_and_says_how_to_open_it(name: str) -> None:
    text = (ROOT / "examples" / name).read_text(encoding="utf-8")
    assert len(text.splitlines()) <= LINES_MAX
    assert max(map(len, text.splitlines())) <= LINES_MAX
    assert f"/examples/{name}" in text.split("-->")[0]


async def test_a_song_of_the_list_is_told_once_wherever_it_is_played(tmp_path: Path) -> None:
    store = f"lmdb:{tmp_path / 'store'}"
    async with (
        ingeborg(tmp_path, "serve", "--port", "0", "--name", "a", "--store", store) as one,
        ingeborg(tmp_path, "serve", "--port", "0", "--name", "b", "--store", store) as two,
    ):
        urls = await one.ready_url(), await two.ready_url()
        async with example(tmp_path, "wish_list.py", "--url", urls[0], "wish", "ann", "ABBA - SOS", "U2 - One") as ann:
            assert await ann.line("waits") == "ann waits for 2 songs"
            for reporter, said in (("bob", "reported"), ("eve", "reported already")):
                at = ["wish_list.py", "--url", urls[1], "play", reporter, "triplej"]
                async with example(tmp_path, *at, "ABBA - SOS") as report:
                    assert await report.line(".") == said
                    assert await report.ended() == 0
            async with example(tmp_path, *at, "U2 - One") as report:
                assert await report.ended() == 0
            assert await ann.line(".") == "ABBA - SOS is on triplej"
            assert await ann.line(".") == "U2 - One is on triplej"
            assert await ann.end(signal.SIGINT) == 0
        async with example(tmp_path, "wish_list.py", "--url", urls[1], "wish", "ann") as ann:
            assert await ann.line("waits") == "ann waits for 2 songs"  # one song from the day before
            async with Client(urls[0], "mallory") as other:
                await other.publish("U2 - One", "not a report", ack=True)
            assert await ann.line(".") == "U2 - One: 'not a report'"


async def test_offers_come_to_whoever_waits_for_such(tmp_path: Path) -> None:
    async with serving(tmp_path) as (_, url):
        waiting = ["offers.py", "--url", url, "wait"]
        async with (
            example(tmp_path, *waiting, "ann", "--restaurant", "Dominos", "--discount", "30", "--forget") as ann,
            example(tmp_path, *waiting, "bob", "--food", "pasta", "--food", "salad") as bob,
        ):
            assert await ann.line("waits") == (
                "ann waits for {'restaurant': ['Dominos'], 'discount': [{'numeric': ['>=', 30.0]}]}"
            )
            await bob.line("waits")
            for restaurant, food, discount in (
                *(("Dominos", "pizza", "29"), ("Vapiano", "pizza", "50"), ("Vapiano", "pasta", "50")),
                *(("Dominos", "pizza", "30"), ("Dominos", "salad", "35.5")),
            ):
                offer = ["offers.py", "--url", url, "offer", restaurant, food, discount]
                async with example(tmp_path, *offer) as offering:
                    assert await offering.line(".") == "offered"
                    assert await offering.ended() == 0
            assert [await ann.line("off"), await ann.line("off")] == [
                "Dominos: pizza, 30.0 % off",
                "Dominos: salad, 35.5 % off",
            ]
            assert [await bob.line("off"), await bob.line("off")] == [
                "Vapiano: pasta, 50.0 % off",
                "Dominos: salad, 35.5 % off",
            ]
            assert await ann.end(signal.SIGINT) == 0
            assert await bob.end(signal.SIGINT) == 0
        for name, filters in (("ann", []), ("bob", [{"food": ["pasta", "salad"], "restaurant": [{"exists": True}]}])):
            async with Client(url, name) as client:
                assert [each.filter async for each in client.subscriptions()] == filters


async def test_news_wait_for_their_reader(tmp_path: Path) -> None:
    async with serving(tmp_path, "--history", "memory") as (_, url):
        news = ["news.py", "--url", url]
        file = tmp_path / "ann.position"
        read = [*news, "read", "ann", "football", "--position", str(file)]

        async def report(text: str) -> None:
            async with example(tmp_path, *news, "report", "football", text) as reporting:
                assert await reporting.line(".") == "reported"
                assert await reporting.ended() == 0

        async with example(tmp_path, *read) as ann:
            assert await ann.line(".") == "ann reads"
            await report("0:0")
            assert await ann.line(".") == "football: 0:0"
            async with asyncio.timeout(PATIENCE_S):
                while not file.exists():  # noqa: ASYNC110 - from then on nothing is missed, and nobody tells
                    await asyncio.sleep(0.05)
            assert await ann.end(signal.SIGINT) == 0
        await report("1:0")
        await report("1:0")  # disallowed by the referee, and scored again
        async with example(tmp_path, *read) as ann:
            assert [await ann.line("football") for _ in range(2)] == ["football: 1:0 (missed)"] * 2
            await report("2:0")
            assert await ann.line("football") == "football: 2:0"
            assert await ann.end(signal.SIGINT) == 0


async def test_a_reader_is_told_what_it_has_missed_and_what_may_be_missing(tmp_path: Path) -> None:
    async def script(endpoint: ScriptedEndpoint, connection: ServerConnection, command: dict[str, Any]) -> None:
        fields = {"recovering": True} if command["command"] == "listen" else {}
        await endpoint.reply(connection, command, result="success", **fields)
        if command["command"] == "subscribe":
            for number, mid in enumerate(("e.1", "e.2", "e.1", "e.3")):
                kept = {"kept": True} if number < 3 else {}
                message = {"key": "football", "broadcast": f"{number}:0", "mid": mid, **kept}
                await endpoint.send(connection, {"gap": {"topics": ["weather"]}} if number == 1 else message)
            await endpoint.send(connection, {"gap": None})
            await endpoint.send(connection, {"position": "p2", "recovered": True})

    file = tmp_path / "ann.position"
    file.write_text('{"position":"p1"}', encoding="utf-8")
    async with ScriptedEndpoint(script) as endpoint:
        news = ["news.py", "--url", endpoint.url]
        async with example(tmp_path, *news, "read", "ann", "football", "--position", str(file)) as ann:
            assert [await ann.line(".") for _ in range(5)] == [
                "ann reads",
                "football: 0:0 (missed)",
                "some reports may be missing: weather",
                "football: 3:0",
                "some reports may be missing: any subject",
            ]
            assert await ann.end(signal.SIGINT) == 0
        assert (await endpoint.next("listen"))["recover"] == "p1"
        assert orjson.loads(file.read_bytes())["position"] == "p2"
        async with example(tmp_path, *news, "report", "football", "4:0") as reporting:
            assert await reporting.line(".") == "reported"
        assert (await endpoint.next("publish"))["keep_s"] == 86_400


async def test_rooms_are_kept_apart_and_remembered(tmp_path: Path) -> None:
    async with serving(tmp_path) as (_, url):
        chat = ["chat.py", "--url", url]
        async with (
            example(tmp_path, *chat, "ann", "kitchen", "lobby") as ann,
            example(tmp_path, *chat, "bob", "kitchen") as bob,
            example(tmp_path, *chat, "eve", "lobby") as eve,
        ):
            assert await ann.line(".") == "you are in kitchen, lobby"
            await bob.line("you are in")
            await eve.line("you are in")
            bob.type_in("yes", "yes")  # two messages, although they are equal
            assert [await ann.line("."), await ann.line(".")] == ["[kitchen] bob: yes"] * 2
            ann.type_in("hello", "/join garden", "\x1b[2Jsun", "/leave lobby", "/rooms")
            assert await eve.line(".") == "[lobby] ann: hello"
            assert await ann.line(".") == "you are in garden, kitchen"
            eve.type_in("anybody here?", "/join garden", "rain")
            assert await ann.line(".") == "[garden] eve: rain"
            ann.type_in("/join kitchen", "\x1b[2Jtea")
            assert await bob.line(".") == "[kitchen] ann: [2Jtea"
            assert await ann.end(signal.SIGINT) == 0
            bob.child.stdin.close()  # as at the end of `echo … | python examples/chat.py`
            assert await bob.ended() == 0
        async with example(tmp_path, *chat, "ann") as ann:
            assert await ann.line(".") == "you are in garden, kitchen"


async def test_the_dashboard_shows_every_endpoint_and_what_came(tmp_path: Path) -> None:
    store = f"lmdb:{tmp_path / 'store'}"
    async with (
        ingeborg(tmp_path, "serve", "--port", "0", "--name", "a", "--store", store) as one,
        ingeborg(tmp_path, "serve", "--port", "0", "--name", "b", "--store", store) as two,
    ):
        url, other_url = await one.ready_url(), await two.ready_url()
        async with example(tmp_path, "dashboard.py", "--url", url, "songs") as dashboard:
            await dashboard.line(r"^b  +0  ")
            async with Client(other_url, "station") as station:
                await station.publish("songs", {"station": "triplej"}, ack=True)
            assert await dashboard.line("songs") == "songs: {'station': 'triplej'}"
            await two.end(signal.SIGKILL)  # without a goodbye, so it stays listed for some seconds
            await dashboard.line("does not answer")
            assert await dashboard.end(signal.SIGINT) == 0
        async with Client(url, "dashboard") as client:
            assert [each async for each in client.subscriptions()] == []
        async with example(tmp_path, "dashboard.py", "--url", url, "--seconds", "1") as dashboard:
            assert await dashboard.line(r"^a  +1  ")  # itself
            assert await dashboard.ended() == 0


async def test_a_token_comes_from_a_file_or_a_variable(tmp_path: Path) -> None:
    keys = str(tmp_path / "keys.json")
    async with ingeborg(
        tmp_path, "token", keys, "ann", "--new-keys", "--publish-prefix", "", "--subscribe-prefix", ""
    ) as made:
        token = await made.line(".")
    (tmp_path / "token").write_text(token + "\n", encoding="utf-8")
    async with serving(tmp_path, "--auth-keys", keys) as (_, url):
        play = ["wish_list.py", "--url", url, "play", "ann", "triplej", "U2 - One"]
        async with example(tmp_path, *play, INGEBORG_TOKEN=token) as report:
            assert await report.line(".") == "reported"
        chat = ["chat.py", "--url", url, "--token-file", str(tmp_path / "token"), "ann", "lobby"]
        async with example(tmp_path, *chat) as ann:
            assert await ann.line(".") == "you are in lobby"
        async with example(tmp_path, *play) as report:
            assert await report.ended() == 1
            assert "HTTP 401" in report.said()


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("wish_list.py", ["wish", "ann"]),
        ("chat.py", ["ann"]),
        ("dashboard.py", []),
        ("offers.py", ["wait", "ann"]),
        ("market.py", []),
    ],
)
async def test_that_nobody_is_there_is_said(tmp_path: Path, name: str, arguments: list[str]) -> None:
    async with example(tmp_path, name, "--url", "ws://127.0.0.1:9/", *arguments) as process:
        assert await process.ended() == 1
        assert "127.0.0.1" in process.said()
