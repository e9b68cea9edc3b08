"""Others' text does nothing to a terminal, in the output of any command."""

from __future__ import annotations

import io
import json
import logging
from pathlib import Path

import pytest

from ingeborg.broker.command import commands
from ingeborg.broker.command.doctor import command as doctor
from ingeborg.broker.command.doctor.findings import Finding, Level
from ingeborg.broker.shell.logs import TextFormatter
from ingeborg.broker.shell.terminal import indented, printable

from ..command.test_commands import Pages
from ..running import ingeborg, plain, serving

#: It clears the screen, sets the title, begins a sequence in one character, goes back, and turns the direction.
HOSTILE = "\x1b[2J\x1b]0;title\x07 \x9b31m \x08\x7f \u202edrow \u2028"

ACTING = set(HOSTILE) - set("[2J]0;title 31mdrow")


def test_what_acts_on_a_terminal_is_spelled_out_and_all_else_stays() -> None:
    assert printable("höhe \u00a0\u200d\U0001f600") == "höhe \u00a0\u200d\U0001f600"
    assert printable("a\x1b[2J\n") == "a\\u001b[2J\\u000a"
    assert not ACTING & set(printable(HOSTILE))
    assert indented("one\n2026 INFO two\r\x1b[2J") == "one\n    2026 INFO two\\u000d\\u001b[2J"
    # In JSON it is another spelling of the same text.
    assert json.loads(printable(json.dumps(HOSTILE, ensure_ascii=False))) == HOSTILE


def test_a_line_of_a_log_cannot_be_made_up() -> None:
    record = logging.makeLogRecord(
        {"msg": "no link with %s", "args": ("ws://x\n2026-01-01 INFO ingeborg: ready\x1b[2J",)}
    )
    lines = TextFormatter("%(asctime)s %(message)s").format(record).splitlines()
    assert lines[1] == "    2026-01-01 INFO ingeborg: ready\\u001b[2J"


async def test_sub_prints_payloads_that_do_nothing(tmp_path: Path) -> None:
    payload = {HOSTILE: [HOSTILE]}
    async with (
        serving(tmp_path) as (_, url),
        ingeborg(tmp_path, "sub", "--url", url, "--client-id", "c", "--count", "1", "t\u202e") as sub,
        plain(url) as publisher,
    ):
        while "listening" not in sub.said():
            await publisher.ask({"command": "unlisten", "client_id": "p"})
        await publisher.send({"command": "publish", "client_id": "p", "topic": "t\u202e", "payload": payload})
        line = await sub.line("key")
        assert not ACTING & set(line)
        assert json.loads(line) == {"key": "t\u202e", "broadcast": payload}


async def test_status_and_doctor_show_names_that_do_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(commands, "_RATE_INTERVAL_S", 0.02)
    name = HOSTILE.replace("\u2028", "")  # which would end a line for the page's reader
    async with Pages(name, 1) as pages:
        pages.peers = {name + "2": ("ws://" + name, 1)}
        for as_json in (False, True):
            await commands.status(pages.url, as_json=as_json)
            said = capsys.readouterr().out
            assert "title" in said
            assert not ACTING & set(said)
    for as_json in (False, True):
        out = io.StringIO()
        doctor.show([Finding("peers", Level.ERROR, HOSTILE, HOSTILE)], as_json=as_json, out=out)
        assert "title" in out.getvalue()
        assert not ACTING & set(out.getvalue())


async def test_a_secret_in_a_url_is_not_said_back(tmp_path: Path) -> None:
    for url in ("ws://127.0.0.1:9/?a=b&access_token=not.for.logs", "ws://ann:not.for.logs@127.0.0.1:9"):
        for command, *options in (["sub", "--client-id", "c"], ["status"]):
            async with ingeborg(tmp_path, command, "--url", url, *options) as process:
                assert await process.ended() == (2 if command == "sub" else 1)
                assert ("a password or an access_token" if command == "sub" else "127.0.0.1:9") in process.said()
                assert "not.for.logs" not in process.said()
