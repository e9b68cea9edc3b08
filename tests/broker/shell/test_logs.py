"""Log lines: for people and for machines, with the ids of their subjects, and without secrets."""

from __future__ import annotations

import json
import logging
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import pytest

from ingeborg.broker.access.tokens import new_keys
from ingeborg.broker.shell import logs
from ingeborg.broker.shell.logs import (
    ID_CHARS_MAX,
    PER_WRITE,
    SELDOM_S,
    Seldom,
    Sparing,
    TextFormatter,
    lines_dropped,
    request_id,
)
from ingeborg.broker.shell.outlet import HELD_BYTES_MAX

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
    assert [logged(PER_WRITE[0]) for _ in range(2)] == [f"{PER_WRITE[0]} (99 more in the last 30 s)", None]


def test_a_line_of_a_kind_is_due_once_in_so_many_seconds() -> None:
    now = 5.0
    sparing = Sparing(30.0, lambda: now)
    assert [sparing.is_due(kind) for kind in "aab"] == [True, False, True]
    now += 29.9
    assert not sparing.is_due("a")
    now += 0.1
    assert [sparing.is_due("a") for _ in range(2)] == [True, False]


@contextmanager
def logging_to_a_pipe(form: str, level: str) -> Iterator[int]:
    """The read end of the pipe to which this process logs."""
    end, stderr = os.pipe()
    before, had = logging.root.handlers[:], logging.root.level
    with open(stderr, "w") as stream, mock.patch.object(sys, "stderr", stream):
        logging.root.handlers.clear()  # pytest's own, which setting up would close
        logs.set_up(form, level, "e-1")
        try:
            yield end
        finally:
            logging.root.handlers[:] = before
            logging.root.setLevel(had)


@pytest.mark.parametrize("form", ["text", "json"])
def test_nobody_waits_for_who_reads_the_log_and_what_is_dropped_is_counted_and_said(form: str) -> None:
    count, text = 3_000, "x" * 1_000
    assert count * len(text) > 2 * HELD_BYTES_MAX  # more than waits, and than a pipe can have
    with logging_to_a_pipe(form, "debug") as end:
        for number in range(count):
            logging.getLogger("ingeborg.test").debug("%d %s", number, text)
        dropped = lines_dropped()
        logging.root.handlers[0].close()  # its thread ends once everything is written
        with open(end, "rb") as pipe:
            lines = [pipe.readline().decode() for _ in range(count - dropped + 1)]
    assert 0 < dropped < count
    found = [re.search(rf"\b(\d+) {text}\b", line) for line in lines[:-1]]  # whole
    numbers = [int(match[1]) for match in found if match is not None]
    assert len(numbers) == count - dropped
    assert numbers == sorted(set(numbers))
    assert f"{dropped} lines of this log were dropped" in lines[-1]
    assert ("WARNING" in lines[-1], '"endpoint": "e-1"' in lines[-1]) == (True, form == "json")


def test_a_log_whose_reader_has_gone_is_no_reason_to_stop() -> None:
    with logging_to_a_pipe("text", "info") as end:
        os.close(end)
        for number in range(3):
            logging.getLogger("ingeborg.test").info("%d", number)
        logging.root.handlers[0].flush()
        assert lines_dropped() == 3


async def said(directory: Path, form: str) -> str:
    """Return the endpoint's log lines about a connection, a bad command and its end."""
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
    """In every kind of failure, and at the most verbose level."""
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
