"""``ingeborg sub``, ``pub`` and ``status`` against scripted endpoints: output, errors, exit codes."""

from __future__ import annotations

import asyncio
import codecs
import io
import ssl
import tomllib
from collections.abc import AsyncIterator, Iterable
from http import HTTPStatus
from pathlib import Path
from typing import Any

import orjson
import pytest
from websockets.asyncio.server import ServerConnection, serve
from websockets.http11 import Request, Response

from ingeborg import form
from ingeborg.broker.access.tokens import Keys
from ingeborg.broker.command import cli, commands
from ingeborg.protocol.credentials import read_token
from ingeborg.protocol.hashes import slot_of
from tests.broker.transports import Authority
from tests.protocol.scripted import ScriptedEndpoint, free_url, succeed


@pytest.fixture
async def endpoint() -> AsyncIterator[ScriptedEndpoint]:
    async with ScriptedEndpoint() as endpoint:
        yield endpoint


# -- sub


async def test_sub_subscribes_listens_prints_lines_and_ends_after_count(
    endpoint: ScriptedEndpoint, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def notify_listeners(
        endpoint: ScriptedEndpoint, connection: ServerConnection, command: dict[str, Any]
    ) -> None:
        await succeed(endpoint, connection, command)
        if command["command"] == "listen":
            await endpoint.notify("höhe", {"n": 1})
            await endpoint.notify(None, "to all")
            await endpoint.notify("höhe", "too many")

    endpoint.script = notify_listeners
    file = tmp_path / "topics"
    file.write_bytes("höhe\r\n\nnext\u2028line\n".encode())
    assert await commands.sub(endpoint.url, "c", ["one"], str(file), count=2) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [orjson.loads(line) for line in lines] == [
        {"key": "höhe", "broadcast": {"n": 1}},
        {"key": None, "broadcast": "to all"},
    ]
    first, second = endpoint.frames.get_nowait(), endpoint.frames.get_nowait()
    assert (first["command"], first["topic"]) == ("subscribe", ["one", "höhe", "next\u2028line"])
    assert (second["command"], second["client_id"]) == ("listen", "c")


async def test_sub_flushes_every_line(endpoint: ScriptedEndpoint) -> None:
    class Pipe(io.StringIO):
        flushed = 0

        def flush(self) -> None:
            Pipe.flushed += 1

    async def notify_listeners(
        endpoint: ScriptedEndpoint, connection: ServerConnection, command: dict[str, Any]
    ) -> None:
        await succeed(endpoint, connection, command)
        if command["command"] == "listen":
            for number in range(3):
                await endpoint.notify("t", number)

    endpoint.script = notify_listeners
    assert await commands.sub(endpoint.url, "c", ["t"], count=3, out=Pipe()) == 0
    assert Pipe.flushed == 3


async def test_sub_reports_what_failed(
    endpoint: ScriptedEndpoint, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await commands.sub(free_url(), "c", ["t"]) == 1
    assert "127.0.0.1:9" in capsys.readouterr().err
    assert await commands.sub(endpoint.url, "c", ["bad\ttopic"]) == 1
    assert "U+0009" in capsys.readouterr().err
    assert await commands.sub(endpoint.url, "x" * 200, ["t"]) == 1
    assert "client_id" in capsys.readouterr().err
    assert await commands.sub(endpoint.url, "c", [], str(tmp_path / "absent")) == 2
    assert "absent" in capsys.readouterr().err


async def test_sub_ends_when_another_listen_replaces_it(
    endpoint: ScriptedEndpoint, capsys: pytest.CaptureFixture[str]
) -> None:
    async def replace(endpoint: ScriptedEndpoint, connection: ServerConnection, command: dict[str, Any]) -> None:
        await succeed(endpoint, connection, command)
        if command["command"] == "listen":
            await connection.close(4001, "replaced")

    endpoint.script = replace
    assert await commands.sub(endpoint.url, "c", ["t"]) == 1
    assert "4001" in capsys.readouterr().err


async def test_sub_says_until_when_listens_first_and_tells_what_has_ended(
    endpoint: ScriptedEndpoint, capsys: pytest.CaptureFixture[str]
) -> None:
    async def end(endpoint: ScriptedEndpoint, connection: ServerConnection, command: dict[str, Any]) -> None:
        if command["command"] == "listen":
            named: list[dict[str, Any]] = [{"topic": f"t{number}"} for number in range(12)]
            named[0] |= {"filter": {"a": [1]}}
            await endpoint.reply(connection, command, result="success", ended=named, ended_count=1_500)
        else:
            await endpoint.reply(connection, command, result="success", grace_s=60.0)
            await endpoint.notify("t", 1)

    endpoint.script = end
    how = commands.How(until="disconnect", ttl_s=5)
    assert await commands.sub(endpoint.url, "c", ["t"], count=1, how=how) == 0
    said = capsys.readouterr().err
    assert (
        '1500 subscriptions have ended, and are not renewed: t0 {"a":[1]}, t1, t2, t3, t4, t5, t6, t7, t8, t9, …'
        in said
    )
    first, second = endpoint.frames.get_nowait(), endpoint.frames.get_nowait()
    assert first["command"] == "listen"
    assert (second["command"], second["until"], second["ttl_s"]) == ("subscribe", "disconnect", 5)


async def test_sub_takes_a_filter_from_its_option_or_from_a_file(
    endpoint: ScriptedEndpoint, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def notify(endpoint: ScriptedEndpoint, connection: ServerConnection, command: dict[str, Any]) -> None:
        await succeed(endpoint, connection, command)
        await endpoint.notify("t", 1)

    endpoint.script = notify
    filter = {"discount": [{"numeric": [">=", 30]}], "restaurant": ["Domino’s"]}
    text = orjson.dumps(filter).decode()
    (tmp_path / "filter.json").write_text(text + "\n", encoding="utf-8")
    for given, replace in ((text, False), (f"@{tmp_path / 'filter.json'}", True)):
        how = commands.How(filter=given, replace=replace)
        assert await commands.sub(endpoint.url, "c", ["t", "u"], count=1, how=how) == 0
        asked = await endpoint.next("subscribe")
        assert (asked["topic"], asked["filter"], asked.get("replace", False)) == (["t", "u"], filter, replace)
    capsys.readouterr()


@pytest.mark.parametrize(
    ("how", "words"),
    [
        (commands.How(filter="price > 5"), "--filter: Not valid JSON"),
        (commands.How(filter="[1]"), 'such as {"discount": [{"numeric": [">=", 30]}]}'),
        (commands.How(filter='{"a": [1], "a": [2]}'), 'The key "a" is given twice'),
        (commands.How(filter='{"price": [{"numeric": [">"]}]}'), "--filter: price[0].numeric: has to be a list"),
        (commands.How(filter="@nowhere.json"), "--filter @nowhere.json: No such file or directory"),
    ],
)
async def test_sub_with_a_bad_filter_is_wrong_usage(
    endpoint: ScriptedEndpoint, capsys: pytest.CaptureFixture[str], how: commands.How, words: str
) -> None:
    assert await commands.sub(endpoint.url, "c", ["t"], how=how) == 2
    said = capsys.readouterr().err
    assert said.startswith("ingeborg sub: ")
    assert words in said
    assert endpoint.frames.empty()


@pytest.mark.parametrize(("bounds", "sent"), [("wall", "wall"), (' [{"prefix": ""}]', [{"prefix": ""}])])
async def test_sub_says_its_bounds_and_prints_how_many_were_skipped(
    endpoint: ScriptedEndpoint, capsys: pytest.CaptureFixture[str], bounds: str, sent: object
) -> None:
    async def skip(endpoint: ScriptedEndpoint, connection: ServerConnection, command: dict[str, Any]) -> None:
        await succeed(endpoint, connection, command)
        if command["command"] == "listen":
            await endpoint.notify("t", 1)
            await endpoint.send(connection, {"key": "t", "broadcast": 9, "skipped": 7})

    endpoint.script = skip
    assert await commands.sub(endpoint.url, "c", ["t"], count=2, bounds=bounds, window=50) == 0
    listen = await endpoint.next("listen")
    assert (listen["bounds"], listen["window"]) == (sent, 50)
    assert [orjson.loads(line) for line in capsys.readouterr().out.splitlines()] == [
        {"key": "t", "broadcast": 1},
        {"key": "t", "broadcast": 9, "skipped": 7},
    ]


@pytest.mark.parametrize(
    ("bounds", "words"),
    [
        ("wal", "--bounds: there is no preset 'wal'; there are live, screen, wall, or give a list of rules"),
        ('{"prefix": ""}', "--bounds: it has to be one of live, screen, wall, or a list of rules"),
        ('[{"prefix": ""]', "--bounds: Not valid JSON"),
        ('[{"staleness_ms": 5}]', "--bounds: rule 1 has to have either 'topic' or 'prefix'"),
        ('[{"topic": ""}]', "--bounds: "),
    ],
)
async def test_sub_with_bad_bounds_is_wrong_usage(
    endpoint: ScriptedEndpoint, capsys: pytest.CaptureFixture[str], bounds: str, words: str
) -> None:
    assert await commands.sub(endpoint.url, "c", ["t"], bounds=bounds) == 2
    said = capsys.readouterr().err
    assert said.startswith("ingeborg sub: ")
    assert words in said
    assert endpoint.frames.empty()


def test_the_command_line_says_how_to_subscribe(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[commands.How] = []

    async def sub(*arguments: object, how: commands.How, **options: object) -> int:
        given.append(how)
        return 0

    monkeypatch.setattr(commands, "sub", sub)
    for arguments in ([], ["--until", "disconnect", "--ttl-s", "7"], ["--filter", "{}", "--replace", "--ttl-s", "7"]):
        assert cli.main(["sub", "--client-id", "c", "t", *arguments]) == 0
    assert given == [commands.FOR_GOOD, commands.How("disconnect", 7), commands.How(None, 7, "{}", True)]


# -- pub


@pytest.mark.parametrize(
    ("text", "payload"), [('{"a": 1}', {"a": 1}), ("7", 7), ("plain text", "plain text"), ('"7"', "7"), ("", "")]
)
async def test_pub_publishes_json_or_else_the_text(
    endpoint: ScriptedEndpoint, capsys: pytest.CaptureFixture[str], text: str, payload: object
) -> None:
    assert await commands.pub(endpoint.url, "c", "t", text) == 0
    assert (await endpoint.next("publish"))["payload"] == payload
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    "text",
    [
        "18446744073709551616",
        "1" * 5000,
        '{"id": 18446744073709551616}',
        "-9223372036854775809",
        '{"a":1,"a":2}',
        '{"b":{"a":1,"\\u0061":2}}',
        "1e999",
        '"\\ud83d"',
        "[" * 300 + "]" * 300,
    ],
)
async def test_pub_refuses_json_that_would_arrive_as_something_else(
    endpoint: ScriptedEndpoint, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    assert await commands.pub(endpoint.url, "c", "t", "-", lines=io.BytesIO(f"1\n{text}\n2\n".encode())) == 1
    assert capsys.readouterr().err.startswith("ingeborg pub: line 2: bad_json: ")
    assert await commands.pub(endpoint.url, "c", "t", text) == 1
    assert (await endpoint.next("publish"))["payload"] == 1
    assert endpoint.frames.empty()


@pytest.mark.parametrize("text", ["007", "NaN", "-Infinity", "[1,]", " ", "[info] ready", '1,"b":2', "{"])
async def test_pub_takes_what_is_no_json_for_text(endpoint: ScriptedEndpoint, text: str) -> None:
    assert await commands.pub(endpoint.url, "c", "t", text) == 0
    assert (await endpoint.next("publish"))["payload"] == text


async def test_a_byte_order_mark_is_no_part_of_what_a_file_holds(
    endpoint: ScriptedEndpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark = codecs.BOM_UTF8
    assert await commands.pub(endpoint.url, "c", "t", "-", lines=io.BytesIO(mark + b'{"a":1}\r\n2\n')) == 0
    assert [(await endpoint.next("publish"))["payload"] for _ in range(2)] == [{"a": 1}, 2]
    for name, text in {"topics": b"one\r\ntwo", "filter": b'{"a":[1]}'}.items():
        (tmp_path / name).write_bytes(mark + text)
    (tmp_path / "token").write_bytes(mark + b" a.b.c \r\n")
    monkeypatch.setenv("INGEBORG_TOKEN", "\ufeffd.e.f\n")
    assert [read_token(file) for file in (str(tmp_path / "token"), None)] == ["a.b.c", "d.e.f"]
    how = commands.How(filter=f"@{tmp_path / 'filter'}")
    endpoint.script = notify_and_succeed
    assert await commands.sub(endpoint.url, "c", [], str(tmp_path / "topics"), count=1, how=how) == 0
    subscribe = await endpoint.next("subscribe")
    assert (subscribe["topic"], subscribe["filter"]) == (["one", "two"], {"a": [1]})


async def notify_and_succeed(endpoint: ScriptedEndpoint, connection: ServerConnection, command: dict[str, Any]) -> None:
    await succeed(endpoint, connection, command)
    if command["command"] == "listen":
        await endpoint.notify("one", 1)


@pytest.mark.parametrize(("given", "sent"), [("true", None), ("false", False), ("order 7", "order 7")])
async def test_pub_says_what_a_payload_may_be_a_duplicate_of(
    endpoint: ScriptedEndpoint, given: str, sent: object
) -> None:
    assert await commands.pub(endpoint.url, "c", "t", "paid", dedup=given) == 0
    assert (await endpoint.next("publish")).get("dedup") == sent


async def test_pub_gives_each_line_a_key_of_its_own(endpoint: ScriptedEndpoint) -> None:
    lines = io.BytesIO(b"paid\non hold\npaid\n")
    assert await commands.pub(endpoint.url, "c", "t", "-", dedup="retry", lines=lines) == 0
    keys = {(await endpoint.next("publish"))["dedup"] for _ in range(3)}
    assert len(keys) == 3
    assert "retry" not in keys


async def test_pub_reads_lines_and_prints_acknowledgements(
    endpoint: ScriptedEndpoint, capsys: pytest.CaptureFixture[str]
) -> None:
    async def alternate(endpoint: ScriptedEndpoint, connection: ServerConnection, command: dict[str, Any]) -> None:
        await endpoint.reply(connection, command, result="success", duplicate=command["payload"] == 2)

    endpoint.script = alternate
    assert await commands.pub(endpoint.url, "c", "t", "-", ack=True, lines=io.BytesIO(b"1\r\n\n2\nlast")) == 0
    assert [orjson.loads(line)["duplicate"] for line in capsys.readouterr().out.splitlines()] == [False, True, False]
    assert [(await endpoint.next("publish"))["payload"] for _ in range(3)] == [1, 2, "last"]


async def test_pub_fails_with_the_number_of_the_bad_line(
    endpoint: ScriptedEndpoint, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await commands.pub(endpoint.url, "c", "t", "-", lines=io.BytesIO(b"1\n\n\xff\xfe\n3\n")) == 1
    assert "line 3: " in capsys.readouterr().err
    monkeypatch.setattr(commands, "FRAME_BYTES_MAX", 10)
    assert await commands.pub(endpoint.url, "c", "t", "-", lines=io.BytesIO(b"1\n" + b"x" * 50)) == 1
    assert "line 2: a payload of more than 10 bytes" in capsys.readouterr().err


async def test_pub_reports_a_refusal_even_without_ack(
    endpoint: ScriptedEndpoint, capsys: pytest.CaptureFixture[str]
) -> None:
    async def refuse(endpoint: ScriptedEndpoint, connection: ServerConnection, command: dict[str, Any]) -> None:
        await endpoint.reply(connection, command, error="partial", info="2 of 3", command="publish")

    endpoint.script = refuse
    assert await commands.pub(endpoint.url, "c", "t", "x") == 1
    assert "partial: 2 of 3" in capsys.readouterr().err
    assert await commands.pub(free_url(), "c", "t", "x") == 1


async def test_pub_says_how_long_it_is_kept(endpoint: ScriptedEndpoint, capsys: pytest.CaptureFixture[str]) -> None:
    assert await commands.pub(endpoint.url, "c", "t", "x", keep_s=60) == 0
    assert (await endpoint.next("publish"))["keep_s"] == 60
    assert await commands.pub(endpoint.url, "c", "t", "x", keep_s=86_401) == 1
    assert "Key 'keep_s' has to be an integer from 1 to 86400" in capsys.readouterr().err


async def test_pub_says_what_it_is_about(endpoint: ScriptedEndpoint, capsys: pytest.CaptureFixture[str]) -> None:
    assert await commands.pub(endpoint.url, "c", "t", "x", item="left", weight=2.5) == 0
    published = await endpoint.next("publish")
    assert (published["item"], published["weight"]) == ("left", 2.5)
    assert await commands.pub(endpoint.url, "c", "t", "x", weight=-1) == 1
    assert "Key 'weight' has to be a number from 0 to 1000000" in capsys.readouterr().err


# -- missed messages


def kept(number: int) -> dict[str, Any]:
    return {"key": "t", "broadcast": number, "mid": f"e.{number}", "kept": True}


async def recover(endpoint: ScriptedEndpoint, connection: ServerConnection, command: dict[str, Any]) -> None:
    """An endpoint that has retained three messages, all missed, and is then silent."""
    if command["command"] != "listen":
        await succeed(endpoint, connection, command)
        return
    recovering = command["recover"] is not True
    await endpoint.reply(connection, command, result="success", recovering=recovering)
    if not recovering:
        await endpoint.send(connection, {"position": "p0"})
    elif command["recover"] == "of another cluster":
        await endpoint.send(connection, {"gap": None})
    else:
        await endpoint.send(connection, {"gap": {"topics": ["t"]}})
        await endpoint.send(connection, {"gap": {"slots": [slot_of("u"), slot_of("nobody's")]}})
    for number in (1, 2, 3):
        await endpoint.send(connection, kept(number))


async def test_sub_goes_on_where_it_has_ended(
    endpoint: ScriptedEndpoint, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    endpoint.script = recover
    file = tmp_path / "c.position"
    for number in (1, 2, 3):  # with the same position each time: the endpoint gives no other
        assert await commands.sub(endpoint.url, "c", ["t", "u"], count=1, recover=str(file)) == 0
        said = capsys.readouterr()
        assert [orjson.loads(line) for line in said.out.splitlines()] == [kept(number)]
        listen, subscribe = endpoint.frames.get_nowait(), endpoint.frames.get_nowait()
        assert (listen["command"], listen["recover"]) == ("listen", True if number == 1 else "p0")
        assert subscribe["command"] == "subscribe"
        assert orjson.loads(file.read_bytes()) == {
            "position": "p0",
            "mids": [f"e.{each + 1}" for each in range(number)],
        }
    lacking = [line for line in said.err.splitlines() if "missing" in line]
    assert lacking == [
        "ingeborg sub: messages may be missing here (of t): read the current state again",
        "ingeborg sub: messages may be missing here (of u; any topic in 2 of 4096 slots): read the current state again",
    ]


async def test_sub_with_a_position_of_another_cluster_says_so(
    endpoint: ScriptedEndpoint, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    endpoint.script = recover
    file = tmp_path / "position"
    file.write_text('{"position":"of another cluster"}')
    assert await commands.sub(endpoint.url, "c", ["t"], count=1, recover=str(file)) == 0
    assert "messages may be missing here (of any topic): read the current state again" in capsys.readouterr().err


async def test_sub_reports_a_position_that_it_cannot_use_or_save(
    endpoint: ScriptedEndpoint, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "position"
    file.write_text("p0")
    assert await commands.sub(endpoint.url, "c", ["t"], recover=str(file)) == 2
    assert f"ingeborg sub: --recover: {file} holds no position" in capsys.readouterr().err
    assert await commands.sub(endpoint.url, "c", ["t"], recover=str(tmp_path / "nowhere" / "position")) == 2
    assert "position cannot be used: No such file or directory" in capsys.readouterr().err
    assert endpoint.frames.empty()
    folder = tmp_path / "folder"
    folder.mkdir()

    async def remove(endpoint: ScriptedEndpoint, connection: ServerConnection, command: dict[str, Any]) -> None:
        if command["command"] == "listen":
            folder.rmdir()
        await recover(endpoint, connection, command)

    endpoint.script = remove
    assert await commands.sub(endpoint.url, "c", ["t"], count=1, recover=str(folder / "position")) == 1
    assert "next time, the last lines may be printed again" in capsys.readouterr().err


async def test_sub_where_nothing_is_kept_fails(endpoint: ScriptedEndpoint, capsys: pytest.CaptureFixture[str]) -> None:
    async def refuse(endpoint: ScriptedEndpoint, connection: ServerConnection, command: dict[str, Any]) -> None:
        await endpoint.reply(connection, command, error="bad_state", info="nothing is kept here")

    endpoint.script = refuse
    assert await commands.sub(endpoint.url, "c", ["t"], recover="position") == 1
    assert await commands.sub(endpoint.url, "c", ["t"], last=3) == 1
    assert await commands.history(endpoint.url, "c", "t") == 1
    assert capsys.readouterr().err.count("bad_state: nothing is kept here") == 3


async def test_sub_prints_the_latest_first_however_many_they_are(
    endpoint: ScriptedEndpoint, capsys: pytest.CaptureFixture[str]
) -> None:
    many = 40_000  # more than wait for an iterator: the reply comes only if the command prints them meanwhile

    async def send(endpoint: ScriptedEndpoint, connection: ServerConnection, command: dict[str, Any]) -> None:
        if "last" in command:
            for number in range(many):
                await endpoint.send(connection, {**kept(number), "broadcast": "x" * 200})
        await succeed(endpoint, connection, command)
        if "last" in command:
            await endpoint.notify("t", "live")

    endpoint.script = send
    how = commands.How(filter='{"a": [1]}')
    assert await commands.sub(endpoint.url, "c", ["t"], count=many + 1, how=how, last=1000) == 0
    said = capsys.readouterr()
    assert len(said.out.splitlines()) == many + 1
    assert orjson.loads(said.out.splitlines()[-1]) == {"key": "t", "broadcast": "live"}
    listen, subscribe = endpoint.frames.get_nowait(), endpoint.frames.get_nowait()
    assert ("recover" in listen, subscribe["last"], subscribe["topic"]) == (False, 1000, ["t"])
    assert endpoint.frames.empty()


class Kept:
    """Return an endpoint's history of a topic: messages 1 to ``count``, in pages of two."""

    def __init__(self, count: int, forgotten: int = 0) -> None:
        self.count, self.forgotten = count, forgotten

    async def __call__(self, endpoint: ScriptedEndpoint, connection: ServerConnection, command: dict[str, Any]) -> None:
        after = int(command["since"].partition(".")[2]) if "since" in command else self.count - command["last"]
        found = range(max(after, self.forgotten) + 1, self.count + 1)[: min(command["limit"], 2)]
        rows = [{"broadcast": number, "mid": f"e.{number}"} for number in found]
        await endpoint.reply(
            connection,
            command,
            result="success",
            publications=rows,
            mid=rows[-1]["mid"] if rows else None,
            more=bool(rows) and found[-1] < self.count,
            recovered=after >= self.forgotten,
        )


@pytest.mark.parametrize(
    ("options", "printed", "code"),
    [
        ({}, range(3, 8), 0),
        ({"last": 3}, range(5, 8), 0),
        ({"since": "e.4"}, range(5, 8), 0),
        ({"since": "e.7"}, (), 0),
        ({"since": "e.1"}, range(3, 8), 1),
    ],
)
async def test_history_prints_all_pages_and_says_whether_that_is_all(
    endpoint: ScriptedEndpoint,
    capsys: pytest.CaptureFixture[str],
    options: dict[str, Any],
    printed: Iterable[int],
    code: int,
) -> None:
    endpoint.script = Kept(7, forgotten=2)
    assert await commands.history(endpoint.url, "c", "t", **options) == code
    said = capsys.readouterr()
    assert [orjson.loads(line) for line in said.out.splitlines()] == [kept(number) for number in printed]
    assert ("read the current state again" in said.err) is (code == 1)


async def test_history_takes_a_filter_and_reports_what_failed(
    endpoint: ScriptedEndpoint, capsys: pytest.CaptureFixture[str]
) -> None:
    endpoint.script = Kept(1)
    assert await commands.history(endpoint.url, "c", "t", last=1, filter='{"a": [1.0]}') == 0
    assert (await endpoint.next("history"))["filter"] == {"a": [1]}
    assert await commands.history(endpoint.url, "c", "t", filter='{"a": 1}') == 2
    assert await commands.history(endpoint.url, "c", "t", filter="a > 1") == 2
    assert await commands.history(endpoint.url, "c", "t", last=1001) == 1
    assert await commands.history(endpoint.url, "c", "") == 1
    assert await commands.history(free_url(), "c", "t") == 1
    assert endpoint.frames.empty()
    assert [line[:17] for line in capsys.readouterr().err.splitlines()] == ["ingeborg history:"] * 5


def test_the_command_line_says_what_is_wanted_of_what_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[dict[str, Any]] = []

    async def noted(*arguments: object, **options: object) -> int:
        given.append(options)
        return 0

    for name in ("sub", "pub", "history"):
        monkeypatch.setattr(commands, name, noted)
    client = ["--client-id", "c"]
    assert cli.main(["sub", *client, "t", "--recover", "file", "--last", "3", "--bounds", "wall", "--window", "9"]) == 0
    assert cli.main(["pub", *client, "t", "x", "--keep-s", "60", "--item", "left", "--weight", "2.5"]) == 0
    assert cli.main(["history", *client, "t", "--since", "e.1", "--filter", "{}"]) == 0
    assert [(options.get("recover"), options.get("last"), options.get("keep_s")) for options in given] == [
        ("file", 3, None),
        (None, None, 60),
        (None, None, None),
    ]
    assert (given[0]["bounds"], given[0]["window"], given[1]["item"], given[1]["weight"]) == ("wall", 9, "left", 2.5)
    assert (given[2]["topic"], given[2]["since"], given[2]["filter"]) == ("t", "e.1", "{}")
    with pytest.raises(SystemExit) as ended:
        cli.main(["history", *client, "t", "--last", "1", "--since", "e.1"])
    assert ended.value.code == 2


# -- status


async def _never(connection: ServerConnection) -> None:
    """Answer every request without a connection."""


class Pages:
    """Return an endpoint's HTTP pages; each scrape of the metrics moves the counters on by ``step``."""

    def __init__(self, name: str, step: int, ready: bool = True) -> None:
        self.name, self.step, self.ready = name, step, ready
        self.peers: dict[str, tuple[str, int]] = {}
        self.count = 0

    async def __aenter__(self) -> Pages:
        self.server = await serve(_never, "127.0.0.1", 0, process_request=self.answer)
        self.url = f"ws://127.0.0.1:{self.server.sockets[0].getsockname()[1]}/"
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.server.close()
        await self.server.wait_closed()

    def answer(self, connection: ServerConnection, request: Request) -> Response:
        if request.path == "/readyz":
            status = HTTPStatus.OK if self.ready else HTTPStatus.SERVICE_UNAVAILABLE
            return connection.respond(status, "ok\n" if self.ready else "the store\ndoes not answer\n")
        self.count += self.step
        peers = "".join(
            f'ingeborg_peer_up{{name="{name}",url="{url}"}} {up}\n' for name, (url, up) in self.peers.items()
        )
        return connection.respond(
            HTTPStatus.OK,
            f'ingeborg_info{{name="{self.name}",routing="home",store="lmdb",form="compiled"}} 1\n{peers}'
            "# TYPE ingeborg_errors_total counter\n"
            f"ingeborg_clients 3\ningeborg_publishes_received_total {self.count}\n"
            f'ingeborg_drops_total{{reason="a"}} 2\ningeborg_drops_total{{reason="b"}} 3\n'
            f"process_resident_memory_bytes 5.2e+07\n",
        )


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "_RATE_INTERVAL_S", 0.02)


async def test_status_shows_a_row_per_endpoint_with_rates(quick: None, capsys: pytest.CaptureFixture[str]) -> None:
    async with Pages("e-1", 500) as one, Pages("e-2", 0, ready=False) as two:
        one.peers = {"e-2": (two.url, 0), "e-3": (free_url(), 1)}
        assert await commands.status(one.url) == 0
    head, titles, first, second, third = capsys.readouterr().out.splitlines()
    assert head == "routing home, store lmdb, compiled"
    assert titles.split()[:3] == ["endpoint", "url", "state"]
    cells = first.split()
    assert cells[:4] == ["e-1", one.url, "ready", "3"]
    assert int(cells[5]) > 0  # publishes a second
    assert cells[8] == "5"  # drops of both reasons
    assert cells[-1] == "52"
    assert "not ready: the store does not answer, link down" in second
    assert third.split()[2] == "unreachable"


async def test_status_as_json_has_the_same_with_null_for_what_is_not_known(
    quick: None, capsys: pytest.CaptureFixture[str]
) -> None:
    async with Pages("e-1", 500) as one:
        one.peers = {"e-3": (free_url(), 1)}
        assert await commands.status(one.url, as_json=True) == 0
    cluster = orjson.loads(capsys.readouterr().out)
    assert (cluster["routing"], cluster["store"], cluster["form"]) == ("home", "lmdb", "compiled")
    here, away = cluster["endpoints"]
    assert (here["name"], here["url"], here["state"], here["clients"], here["drops"]) == ("e-1", one.url, "ready", 3, 5)
    assert here["publishes_per_s"] > 0
    assert here["resident_bytes"] == 52_000_000
    assert here["deliveries_per_s"] is None
    assert here["errors"] == 0
    assert (away["name"], away["state"], away["clients"]) == ("e-3", "unreachable", None)


async def test_status_fails_when_nothing_answers_or_it_is_no_endpoint_or_not_ready(
    quick: None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await commands.status(free_url()) == 1
    assert await commands.status("nonsense") == 1
    assert "not a ws:// or http:// URL" in capsys.readouterr().err
    async with await asyncio.start_server(_no_endpoint, "127.0.0.1", 0) as server:
        assert await commands.status(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}") == 1
    assert "is this an endpoint?" in capsys.readouterr().err
    async with Pages("e-1", 1, ready=False) as pages:
        assert await commands.status(pages.url) == 1


async def test_status_says_what_is_wrong_with_the_way_there(
    quick: None, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def said(url: str) -> str:
        assert await commands.status(url) == 1
        captured = capsys.readouterr()
        assert captured.out == ""
        return captured.err

    assert "nothing listens there (connection refused): is the endpoint up" in await said(free_url())
    assert "such as ws://127.0.0.1:9000" in await said("nonsense")
    authority = Authority(tmp_path)
    pair = authority.issue(1)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.chain, pair.key)
    async with await asyncio.start_server(_no_endpoint, "127.0.0.1", 0, ssl=context) as server:
        at = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        untrusted = await said(f"wss://{at}")
        assert "its certificate is not trusted here: " in untrusted
        assert "SSL_CERT_FILE" in untrusted
        monkeypatch.setenv("SSL_CERT_FILE", str(authority.file))
        assert "is this an endpoint?" in await said(f"wss://{at}")
        assert "mismatch" in await said(f"wss://localhost:{at.partition(':')[2]}")
        assert "wss://" in await said(f"ws://{at}")
    async with await asyncio.start_server(_bad_request, "127.0.0.1", 0) as server:
        assert "does not speak TLS" in await said(f"wss://127.0.0.1:{server.sockets[0].getsockname()[1]}")


def test_a_token_for_presence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keys = str(tmp_path / "keys.json")
    permitting = ["--presence", "hall", "--presence-prefix", "room/"]
    assert cli.main(["token", keys, "ann", "--new-keys", *permitting]) == 0
    grant = Keys(keys).grant(capsys.readouterr().out.strip())
    assert grant.presence == ("room/",)
    assert grant.presence_topics == {"hall"}


def test_a_token_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keys = str(tmp_path / "keys.json")
    assert cli.main(["token", keys, "ann", "--new-keys", "--json"]) == 0
    assert orjson.loads(capsys.readouterr().out)["token"].count(".") == 2


def test_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["--version"])
    assert ended.value.code == 0
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"]
    assert capsys.readouterr().out == f"ingeborg {project['version']}, {form.name()}\n"


async def _bad_request(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read(1)
    writer.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
    await writer.drain()
    writer.close()


async def _no_endpoint(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\na 1\n")
    await writer.drain()
    writer.close()
