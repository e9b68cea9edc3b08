"""The command line, as real processes: starting, ending, refusing to start, and the clients against a real endpoint."""

from __future__ import annotations

import asyncio
import re
import signal
import socket
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import orjson
import pytest

from ingeborg import form
from ingeborg.bench.starting import environment
from ingeborg.broker.command import cli
from ingeborg.broker.command.config import ServeOptions
from ingeborg.broker.command.serve import SECRET_BYTES_MIN, advertised, alone_at_url, read_secret
from ingeborg.protocol.pages import fetch

from ..running import PATIENCE_S, alive, children, ingeborg, plain, round_trip, serving

pytestmark = pytest.mark.cluster


# -- Spelling

COMMANDS = ["serve", "sub", "pub", "import", "export", "cluster", "token", "status", "doctor"]


@pytest.mark.parametrize("command", COMMANDS)
def test_help_is_there_for_every_command(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main([command, "--help"])
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith(f"usage: ingeborg {command} ")


def test_help_of_serve_names_every_option_that_is_typed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["serve", "--help"])
    named = set(re.findall(r"^  (--[a-z-]+)", capsys.readouterr().out, re.MULTILINE))
    assert named == {
        *(
            "--host",
            "--port",
            "--store",
            "--endpoints",
            "--name",
            "--advertise",
            "--routing",
            "--dedup-ttl",
            "--grace",
            "--presence",
            "--replication",
            "--share-port",
            "--history",
            "--history-bytes",
            "--history-size",
            "--history-topics",
            "--busy-target",
        ),
        *(
            "--peer-secret-file",
            "--tls-cert",
            "--tls-key",
            "--auth-keys",
            "--auth-url",
            "--auth-headers",
            "--auth-timeout",
            "--insecure",
            "--allowed-origins",
            "--trusted-proxies",
            "--config",
        ),
        *("--internal-address", "--log-format", "--log-level"),
        *("--riak-user", "--riak-password-file", "--riak-ca-file", "--riak-cert-file", "--riak-key-file"),
    }


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "required: COMMAND"),
        (["listen"], "invalid choice: 'listen'"),
        (["serve", "--prot", "1"], "unrecognized arguments: --prot 1"),
        (["sub", "topic"], "required: --client-id"),
        (["sub", "--client-id", "c", "--count", "0", "t"], "has to be at least 1"),
        (["sub", "--client-id", "c", "--count", "x", "t"], "has to be a whole number, not 'x'"),
        (["pub", "--client-id", "c", "topic"], "required: PAYLOAD"),
        (["cluster", "replication", "on"], "invalid choice: 'replication' (choose from 'set')"),
        (["cluster", "set", "replication"], "required: VALUE"),
        (["pub", "--client-id", "c", "--url", "foo", "t", "1"], "not a ws:// or wss:// URL, such as ws://127"),
        (["sub", "--client-id", "c", "--url", "http://h/", "t"], "not a ws:// or wss:// URL"),
        (
            ["sub", "--client-id", "c", "--url", "ws://ann:b@h/", "t"],
            "a URL must not contain a user name, a password or an access",
        ),
    ],
)
def test_wrong_usage_is_said(arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(arguments)
    assert ended.value.code == 2
    assert says in capsys.readouterr().err


def test_the_url_peers_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "machine")
    for options, url in (
        (ServeOptions(), "ws://127.0.0.1:9000"),
        (ServeOptions(host="0.0.0.0"), "ws://machine:9000"),
        (ServeOptions(host="::"), "ws://machine:9000"),
        (ServeOptions(host="::1"), "ws://[::1]:9000"),
        (ServeOptions(host="0.0.0.0", advertise="ws://elsewhere:80/"), "ws://elsewhere:80"),
    ):
        assert advertised(options, 9000) == url


def test_the_secret_is_made_once_and_is_nobody_elses(tmp_path: Path) -> None:
    options = ServeOptions(store=f"lmdb:{tmp_path / 'new' / 'store'}")
    secret = read_secret(options)
    assert len(secret) >= 2 * SECRET_BYTES_MIN
    assert read_secret(options) == secret
    files = list((tmp_path / "new" / "store").iterdir())
    assert [file.name for file in files] == ["peer-secret"]
    assert stat.S_IMODE(files[0].stat().st_mode) == 0o600
    given = tmp_path / "given"
    given.write_text("  a secret of sixteen bytes\n", encoding="utf-8")
    assert read_secret(ServeOptions(peer_secret_file=str(given))) == b"a secret of sixteen bytes"


# -- Refusing to start


def failing(*arguments: str, variables: dict[str, str] | None = None) -> tuple[int, str]:
    """Run `ingeborg serve`, which has to end without a signal; return the exit code and its output."""
    done = subprocess.run(
        [sys.executable, "-m", "ingeborg.broker.command.cli", "serve", *arguments],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        env=environment(variables),
    )
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    return done.returncode, done.stderr


def test_bad_options_are_said_in_one_line(tmp_path: Path) -> None:
    assert failing("--port", "x") == (2, "ingeborg serve: command line: --port has to be a whole number, not 'x'\n")
    code, said = failing(variables={"INGEBORG_ROUTING": "maybe"})
    assert (code, said) == (2, "ingeborg serve: routing 'maybe': has to be home or lookup\n")
    code, said = failing("--config", str(tmp_path / "absent.toml"))
    assert (code, said.count("\n")) == (2, 1)
    code, said = failing(variables={"INGEBORG_CONFIG": str(tmp_path / "absent.toml")})
    assert (code, "absent.toml" in said) == (2, True)


def test_a_port_in_use_is_said(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        code, said = failing("--port", str(port), "--store", f"lmdb:{tmp_path}")
    assert code == 2
    holds = f"ss -ltnp 'sport = :{port}'"
    assert said == (
        f"ingeborg serve: cannot listen on 127.0.0.1:{port}: Address already in use; "
        f"give another --port, or end the program that holds it ({holds})\n"
    )


def test_a_host_that_is_not_ours_is_said(tmp_path: Path) -> None:
    code, said = failing("--host", "192.0.2.1", "--port", "0", "--store", f"lmdb:{tmp_path}")
    assert (code, "192.0.2.1" in said) == (2, True)
    code, said = failing("--host", "no host", "--port", "0", "--store", f"lmdb:{tmp_path}")
    assert (code, "host 'no host'" in said) == (2, True)


def test_an_unusable_store_is_said(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("not a directory", encoding="utf-8")
    code, said = failing("--port", "0", "--store", f"lmdb:{file}")
    assert (code, str(file) in said) == (2, True)
    garbage = tmp_path / "garbage"
    for lane in ("durable", "soft"):
        (garbage / lane).mkdir(parents=True)
        (garbage / lane / "data.mdb").write_bytes(b"not LMDB" * 10_000)
    code, said = failing("--port", "0", "--store", f"lmdb:{garbage}")
    assert code == 1
    assert f"cannot use the store lmdb:{garbage}: " in said


def test_a_useless_secret_is_said(tmp_path: Path) -> None:
    short = tmp_path / "short"
    short.write_text("short", encoding="utf-8")
    code, said = failing("--port", "0", "--store", f"lmdb:{tmp_path}", "--peer-secret-file", str(short))
    least = f"ingeborg serve: peer-secret-file {short}: has to hold at least 16 bytes (openssl rand -hex 32)\n"
    assert (code, said) == (2, least)
    code, said = failing("--port", "0", "--store", f"lmdb:{tmp_path}", "--peer-secret-file", str(tmp_path / "none"))
    assert (code, "No such file" in said) == (2, True)


# -- Starting and ending


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["sigterm", "ctrl-c"])
async def test_it_says_where_it_is_and_ends_cleanly(tmp_path: Path, number: signal.Signals) -> None:
    async with serving(tmp_path, "--name", "the-endpoint") as (process, url):
        assert re.fullmatch(r"ws://127\.0\.0\.1:\d+/", url)
        await round_trip(url)
        processes = children(process.pid)
        assert processes  # the store's writers
        async with plain(url) as connection:
            ended = asyncio.create_task(process.end(number))
            assert (await connection.closed())[0] == 1001
            assert await ended == 0
        assert not [pid for pid in processes if alive(pid)]
        for trouble in ("Traceback", "could not", "did not answer the close"):
            assert trouble not in process.said()


async def test_options_come_from_all_sources_into_a_real_endpoint(tmp_path: Path) -> None:
    file = tmp_path / "options.toml"
    file.write_text('name = "from-the-file"\nrouting = "lookup"\nmax-payload-bytes = 10\n', encoding="utf-8")
    variables = {"INGEBORG_CONFIG": str(file), "INGEBORG_STORE": f"lmdb:{tmp_path}/store", "INGEBORG_NAME": "x"}
    async with ingeborg(tmp_path, "serve", "--port", "0", "--name", "typed", variables=variables) as process:
        url = await process.ready_url()
        page = await fetch(url, "/metrics")
        assert re.search(r'^ingeborg_info{.*name="typed",.*routing="lookup"', page.text, re.MULTILINE)
        async with plain(url) as connection:
            reply = await connection.ask({"command": "publish", "client_id": 1, "topic": "t", "payload": "x" * 9})
            assert reply["error"] == "too_large"


@pytest.mark.parametrize(("second", "code"), [(signal.SIGINT, 1), (signal.SIGTERM, 0)], ids=["ctrl-c", "sigterm"])
async def test_only_a_second_ctrl_c_ends_it_at_once(tmp_path: Path, second: signal.Signals, code: int) -> None:
    async with serving(tmp_path) as (process, url):
        # A client that never answers the closing handshake keeps an orderly end waiting.
        reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rstrip("/").rpartition(":")[2]))
        try:
            writer.write(
                b"GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
            )
            await reader.readuntil(b"\r\n\r\n")
            process.child.signal(signal.SIGTERM)
            for _ in range(10):  # while the drain lasts, and not until Python itself ends
                if process.child.runs:
                    process.child.signal(second)
                    await asyncio.sleep(0.07)
            assert await process.ended() == code
            assert ("second order to end" in process.said()) is (code == 1)
        finally:
            writer.close()


async def test_subscriptions_survive_kill_9(tmp_path: Path) -> None:
    async with serving(tmp_path) as (process, url), plain(url) as connection:
        await connection.ask({"command": "subscribe", "client_id": "c", "topic": ["t1", "t2"]})
        assert await process.end(signal.SIGKILL) == -9
    async with serving(tmp_path) as (_, url), plain(url) as connection:
        page = await connection.ask({"command": "subscriptions", "client_id": "c"})
        assert set(page["topic"]) == {"t1", "t2"}


# -- sub, pub and status


async def test_sub_and_pub_against_a_real_endpoint(tmp_path: Path) -> None:
    async with serving(tmp_path) as (_, url):
        at = ["--url", url, "--client-id"]
        (tmp_path / "topics").write_text("Höhe\n", encoding="utf-8")
        topics = ["t", "--topics-file", str(tmp_path / "topics")]
        async with ingeborg(tmp_path, "sub", *at, "s", *topics, "--count", "6") as sub:
            async with asyncio.timeout(PATIENCE_S):
                while "listening" not in sub.said():  # noqa: ASYNC110 - said by another process, to a file
                    await asyncio.sleep(0.02)
            async with ingeborg(tmp_path, "pub", *at, "p", "t", '{"a": [1, null]}') as pub:
                assert await pub.ended() == 0
            async with ingeborg(tmp_path, "pub", *at, "p", "Höhe", "no {JSON}", "--ack") as pub:
                assert orjson.loads(await pub.line(".")) == {"result": "success", "duplicate": False}
                assert await pub.ended() == 0
            async with ingeborg(tmp_path, "pub", *at, "p", "t", "-", "--ack", stdin=subprocess.PIPE) as pub:
                pub.child.stdin.write(b'7\n\n"7"\r\nseven\n7\n1.5')
                pub.child.stdin.close()
                assert await pub.ended() == 0
                said = [orjson.loads(line)["duplicate"] for line in pub.child.rest()]
                assert said == [False, False, False, True, False]
            heard = [orjson.loads(await sub.line(".")) for _ in range(6)]
            assert [(message["key"], message["broadcast"]) for message in heard] == [
                ("t", {"a": [1, None]}),
                ("Höhe", "no {JSON}"),
                ("t", 7),
                ("t", "7"),
                ("t", "seven"),
                ("t", 1.5),
            ]
            assert await sub.ended() == 0


async def test_sub_with_bounds_gets_the_latest_and_its_window_opens_again(tmp_path: Path) -> None:
    rules = [{"topic": "t", "interval_ms": 1000, "deliver": "latest"}, {"prefix": ""}]
    options = ["--count", "12", "--window", "2", "--bounds", orjson.dumps(rules).decode()]
    async with (
        serving(tmp_path) as (_, url),
        plain(url) as connection,
        ingeborg(tmp_path, "sub", "--url", url, "--client-id", "s", "t", "u", *options) as sub,
    ):
        async with asyncio.timeout(PATIENCE_S):
            while "listening" not in sub.said():  # noqa: ASYNC110 - said by another process, to a file
                await asyncio.sleep(0.02)
        publish = {"command": "publish", "client_id": "p", "dedup": False}
        await connection.send(*({**publish, "topic": "t", "payload": number} for number in range(6)))
        await connection.send(*({**publish, "topic": "u", "payload": number} for number in range(10)))
        heard = [orjson.loads(await sub.line(".")) for _ in range(12)]
        assert await sub.ended() == 0
    assert [message["broadcast"] for message in heard if message["key"] == "u"] == list(range(10))
    first, last = (message for message in heard if message["key"] == "t")
    assert first == {"key": "t", "broadcast": 0}
    assert last == {"key": "t", "broadcast": 5, "skipped": 4}


async def test_what_sub_subscribes_to_until_disconnect_ends_when_it_has_gone(tmp_path: Path) -> None:
    async with serving(tmp_path, "--grace", "1") as (_, url), plain(url) as connection:
        arguments = ["--url", url, "--client-id", "s", "t", "--until", "disconnect", "--ttl-s", "600"]
        arguments += ["--filter", '{"price": [1]}']
        listed = {"command": "subscriptions", "client_id": "s"}
        async with ingeborg(tmp_path, "sub", *arguments) as sub:
            async with asyncio.timeout(PATIENCE_S):
                while "topics subscribed to" not in sub.said():  # noqa: ASYNC110 - said by another process, to a file
                    await asyncio.sleep(0.02)
            [found] = (await connection.ask(listed))["subscriptions"]["t"]
            assert (found["filter"], found["until"]) == ({"price": [1]}, "disconnect")
            assert found["ends_at"] > 0
            assert await sub.end(signal.SIGINT) == 130
        async with asyncio.timeout(PATIENCE_S):
            while (await connection.ask(listed))["topic"]:  # noqa: ASYNC110 - another process removes them
                await asyncio.sleep(0.1)


async def test_status_shows_the_endpoint(tmp_path: Path) -> None:
    async with serving(tmp_path, "--name", "the-endpoint") as (_, url), plain(url) as connection:
        await connection.ask({"command": "listen", "client_id": "c"})
        async with ingeborg(tmp_path, "status", "--url", url) as status:
            assert (
                await status.line("routing") == f"routing home, store lmdb, {form.name()}, replication off, history off"
            )
            titles, row = await status.line("."), await status.line(".")
            shown = dict(zip(re.split(r"  +", titles), re.split(r"  +", row), strict=True))
            assert (shown["endpoint"], shown["state"], shown["clients"]) == ("the-endpoint", "ready", "1")
            assert await status.ended() == 0


async def test_clients_say_that_nobody_is_there(tmp_path: Path) -> None:
    for arguments in (["status"], ["pub", "--client-id", "c", "t", "1"]):
        async with ingeborg(tmp_path, arguments[0], "--url", "ws://127.0.0.1:9/", *arguments[1:]) as process:
            assert await process.ended() == 1
            assert "127.0.0.1" in process.said()
            assert "Traceback" not in process.said()


async def test_ctrl_c_ends_sub(tmp_path: Path) -> None:
    async with serving(tmp_path) as (_, url), ingeborg(tmp_path, "sub", "--url", url, "--client-id", "c", "t") as sub:
        async with asyncio.timeout(PATIENCE_S):
            while "listening" not in sub.said():  # noqa: ASYNC110 - said by another process, to a file
                await asyncio.sleep(0.02)
        assert await sub.end(signal.SIGINT) == 130
        assert "Traceback" not in sub.said()


@pytest.mark.parametrize(
    ("variables", "toml", "says"),
    [
        ({"INGEBORG_MAP_SIZE_BYTES": "99999999999999999999"}, "", "INGEBORG_MAP_SIZE_BYTES has to be a whole number"),
        ({}, "map-size-bytes = 99999999999999999999", "map-size-bytes has to be a whole number"),
        ({}, f"map-size-bytes = {2**62}", "has to be from 1048576 (1 MiB) to 35184372088832 (32 TiB)"),
        ({}, "drain-time = 1" + "0" * 400, "drain-time has to be a number"),
        ({}, "port = [9000]", "port has to be a whole number, not [9000]"),
        ({}, "port = 0x" + "f" * 5_000, "port has to be a whole number, not a number with thousands of digits"),
        ({}, "port = " + "[" * 2_000, "it has to be TOML"),
        ({}, 'auth-keys = "a\\u0000b"', "auth-keys must not contain control characters"),
        ({}, 'tls-key = "a\\nb"', "tls-key must not contain control characters"),
        ({"INGEBORG_HOST": "a..b"}, "", "host 'a..b': "),
        ({"INGEBORG_STORE": "lmdb:~no-such-user/x"}, "", "store '~no-such-user/x': no home directory is known"),
        ({"INGEBORG_AUTH_KEYS": "~no-such-user/x"}, "", "auth-keys '~no-such-user/x': no home directory is known"),
        *(
            ({"INGEBORG_SUPERVISOR_FD": fd}, "", f"INGEBORG_SUPERVISOR_FD {fd!r}: has to be a pipe; only a supervisor")
            for fd in ("77", "abc", "-1", "9" * 30, "0")
        ),
        ({"INGEBORG_PORT_FD": "0"}, "", "INGEBORG_SUPERVISOR_FD '': has to be a pipe; only a supervisor"),
    ],
    ids=lambda value: str(value)[:40],
)
async def test_a_value_that_cannot_be_is_one_line_and_exit_code_2(
    tmp_path: Path, variables: dict[str, str], toml: str, says: str
) -> None:
    file = tmp_path / "options.toml"
    file.write_text(f"{toml}\n", encoding="utf-8")
    base = {"INGEBORG_STORE": f"lmdb:{tmp_path / 'store'}"}
    async with ingeborg(tmp_path, "serve", "--config", str(file), variables=base | variables) as process:
        assert await process.ended() == 2
        said = process.said()
        assert said.startswith("ingeborg serve: ")
        assert says in said
        assert said.count("\n") == 1


@pytest.mark.parametrize(
    ("options", "alone"),
    [
        ({}, True),
        ({"host": "0.0.0.0"}, True),
        ({"advertise": "ws://broker.example:9000"}, False),
        ({"store": "riak:a:1"}, False),  # another machine can have the same loopback address
        ({"store": "riak:a:1", "host": "0.0.0.0"}, False),  # its URL has the host's name
        ({"store": "riak:a:1", "host": "broker.example"}, False),
        ({"store": "riak:a:1", "host": "10.0.0.5"}, True),
        ({"store": "riak:a:1", "host": "10.0.0.5", "advertise": "ws://10.0.0.5:9000"}, False),
        ({"store": "riak:a:1", "host": "0.0.0.0", "internal_address": "10.0.0.5:9100"}, True),
        ({"store": "riak:a:1", "internal_address": "[fd00::5]:9100"}, True),
        ({"store": "riak:a:1", "host": "10.0.0.5", "internal_address": "[::1]:9100"}, False),
    ],
)
def test_when_nobody_else_can_be_at_our_url(options: dict[str, Any], alone: bool) -> None:
    assert alone_at_url(ServeOptions(**{"store": "lmdb:x", **options})) is alone
