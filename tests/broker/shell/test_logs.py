"""Log lines: for people and for machines, with the ids of what they are about, and without secrets."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from ingeborg.broker.access.tokens import new_keys
from ingeborg.broker.shell.logs import ID_CHARS_MAX, PER_WRITE, SELDOM_S, Seldom, TextFormatter, request_id

from ..running import ingeborg, plain, raw, serving


@pytest.mark.parametrize(
    ("frame", "found"),
    [
        (b'{"id": 7}', 7),
        (b'{"id": "a"}', "a"),
        (b'{"id": "' + b"x" * 1000 + b'"}', "x" * ID_CHARS_MAX),
        (b'{"id": [1]}', None),
        (b'{"id": null}', None),
        (b"{}", None),
        (b"[1]", None),
        (b"not json", None),
        (b"\xff", None),
    ],
)
def test_the_id_of_a_request_is_found_where_there_is_one(frame: bytes, found: object) -> None:
    assert request_id(frame) == found


def test_a_line_for_people_ends_with_the_ids() -> None:
    record = logging.makeLogRecord({"msg": "refused", "levelname": "DEBUG", "connection": 7, "request": 'a"\nb'})
    assert TextFormatter("%(levelname)s %(message)s").format(record) == 'DEBUG refused connection=7 request="a\\"\\nb"'


def test_what_the_loop_says_of_each_write_is_logged_now_and_then() -> None:
    now = 5.0
    seldom = Seldom(lambda: now)

    def logged(text: str) -> str | None:
        record = logging.makeLogRecord({"msg": text, "levelno": logging.WARNING})
        return record.getMessage() if seldom.filter(record) else None

    for text in PER_WRITE:
        assert [logged(text) for _ in range(100)] == [text, *[None] * 99]
    assert [logged("something else") for _ in range(3)] == ["something else"] * 3
    now += SELDOM_S
    assert [logged(PER_WRITE[0]) for _ in range(2)] == [f"{PER_WRITE[0]} (99 times more in the last 30 s)", None]


async def said(directory: Path, form: str) -> str:
    """What an endpoint logs of a connection, a bad command and its end."""
    options = ("--log-format", form, "--port", "0", "--name", "e-1", "--store", f"lmdb:{directory / 'store'}")
    async with ingeborg(directory, "serve", *options, variables={"INGEBORG_LOG_LEVEL": "debug"}) as process:
        url = await process.ready_url()
        async with plain(url + "?access_token=not-for-logs") as client:
            await client.ask({"command": "publish", "client_id": "anna", "topic": "", "payload": "private", "id": 7})
        assert await process.end() == 0
        return process.said()


async def test_json_lines_are_one_object_each(tmp_path: Path) -> None:
    text = await said(tmp_path, "json")
    lines = [json.loads(line) for line in text.splitlines()]
    assert all({"time", "level", "logger", "message"} <= line.keys() for line in lines)
    mine = [line for line in lines if line["logger"] == "ingeborg.endpoint"]
    assert {line["endpoint"] for line in mine} == {"e-1"}
    refused = next(line for line in mine if line["message"].startswith("refused"))
    assert (refused["connection"], refused["request"]) == (1, 7)
    assert (refused["command"], refused["code"], refused["level"]) == ("publish", "bad_topic", "DEBUG")
    closed = next(line for line in mine if line["message"] == "closed")
    assert (closed["connection"], closed["code"]) == (1, "1000")
    assert "not-for-logs" not in text
    assert "private" not in text


async def test_lines_for_people_say_the_same(tmp_path: Path) -> None:
    text = await said(tmp_path, "text")
    line = next(line for line in text.splitlines() if "refused" in line)
    assert 'connection=1 request=7 command="publish" code="bad_topic"' in line
    assert "not-for-logs" not in text
    assert "private" not in text


async def test_no_request_brings_its_token_into_a_log(tmp_path: Path) -> None:
    """However it fails, and at the most talkative level."""
    new_keys(tmp_path / "keys")
    options = ("--auth-keys", str(tmp_path / "keys"), "--log-level", "debug")
    secret = "not-for-logs"
    upgrade = "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
    heads = [
        f"GET /{path}?access_token={secret} HTTP/1.1\r\nHost: x\r\n{headers}\r\n"
        for path in ("", "_peer", "console/access", "healthz")
        for headers in (
            "",
            upgrade,
            upgrade + "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n",
            "Sec-WebSocket-Key: x\r\n",
        )
    ]
    heads += [
        f"GET /?access_token={secret} HTTP/3\r\n\r\n",
        f"GET /?access_token={secret}\r\n\r\n",
        f"GET /?access_token={secret}é HTTP/1.1\r\n\r\n",
        f"GET /?access_token={secret}{'x' * 10_000} HTTP/1.1\r\n\r\n",
        f"GET / HTTP/1.1\r\nAuthorization: Bearer {secret}\r\nbad header {secret}\r\n\r\n",
        f"GET / HTTP/1.1\r\nAuthorization: Bearer {secret}\r\nAuthorization: Bearer {secret}\r\n\r\n",
        f"GET / HTTP/1.1\r\nAuthorization: Basic {secret}\r\nOrigin: http://{secret}\r\n\r\n",
        f"GET / HTTP/1.1\r\n{upgrade}Sec-WebSocket-Key: {secret}\r\n\r\n",
    ]
    async with serving(tmp_path, *options) as (process, url):
        for head in heads:
            async with raw(url) as connection:
                connection.writer.write(head.encode())
                connection.writer.write_eof()
                await connection.rest()
        assert await process.end() == 0
        assert secret not in process.said()
        assert "Traceback" not in process.said()
