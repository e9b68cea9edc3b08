"""Standard streams that are full, closed, gone, or of an encoding that lacks some characters."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import orjson
import pytest

from ingeborg.protocol.client import Client
from tests.broker.running import serving

SHELL = """
import sys
from ingeborg import scripts
sys.argv = sys.argv[1:]
sys.exit({"ingeborg": scripts.endpoint, "loadgen": scripts.loadgen, "bench": scripts.bench}[sys.argv[0]]())
"""


def ended(redirection: str, *arguments: str, **variables: str) -> subprocess.CompletedProcess[bytes]:
    """Start the program as a shell does, with the redirection after it."""
    command = [sys.executable, "-c", SHELL, *arguments]
    return subprocess.run(
        ["bash", "-c", f'set -o pipefail; "$@" {redirection}', "bash", *command],
        capture_output=True,
        env=os.environ | variables,
        timeout=60,
        check=False,
    )


FULL, CLOSED = b"No space left on device", b"Bad file descriptor"


@pytest.mark.parametrize(
    ("program", "redirection", "why"),
    [
        (("ingeborg", "serve", "--help"), "> /dev/full", FULL),
        (("ingeborg", "serve", "--help"), ">&-", CLOSED),
        (("ingeborg", "doctor"), "| true", b""),
        (("loadgen", "--help"), "> /dev/full", FULL),
        (("bench", "--help"), ">&-", CLOSED),
    ],
)
def test_output_that_cannot_be_written_is_one_line_and_exit_code_1(
    tmp_path: Path, program: tuple[str, ...], redirection: str, why: bytes
) -> None:
    options = ("--store", f"lmdb:{tmp_path}") if "doctor" in program else ()
    done = ended(redirection, *program, *options)
    line = b"%b: cannot write to standard output: %b\n" % (program[0].encode(), why) if why else b""
    assert (done.returncode, done.stderr) == (1, line)


def test_a_closed_or_full_standard_error_changes_no_exit_code() -> None:
    for redirection in ("2>&-", "2> /dev/full"):
        assert (
            ended(redirection, "ingeborg", "pub", "--client-id", "c", "--url", "ws://127.0.0.1:9", "t", "1").returncode
            == 1
        )


def test_no_token_is_said_whatever_it_was_given_for(tmp_path: Path) -> None:
    token = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhIn0.c2VjcmV0"
    pub = ("ingeborg", "pub", "--client-id", "c", "--url", "ws://127.0.0.1:9", "t", "1")
    for arguments in (
        (*pub, "--token-file", token),
        ("ingeborg", "status", "--token", token),
        ("ingeborg", "serve", "--advertise", "ws://ann:hidden@host:1", "--store", f"lmdb:{tmp_path}"),
        ("loadgen", "radio", "--url", "nats://ann:hid/den@host", "--out", str(tmp_path / "run")),
    ):
        done = ended("", *arguments)
        assert done.returncode == 2
        assert token.encode() not in done.stdout + done.stderr
        assert b"hid" not in done.stdout + done.stderr


def test_standard_input_that_is_closed_is_said(tmp_path: Path) -> None:
    done = ended("<&-", "ingeborg", "import", "-", "--store", f"lmdb:{tmp_path}")
    assert (done.returncode, done.stderr) == (1, b"ingeborg import: cannot read the lines: Bad file descriptor\n")


def test_what_a_command_of_the_store_prints_is_out_or_the_exit_code_says_that_it_is_not(tmp_path: Path) -> None:
    (tmp_path / "lines").write_text('{"client_id":"a","topic":"t"}\n')
    line = b"ingeborg: cannot write to standard output: No space left on device\n"
    done = ended("> /dev/full", "ingeborg", "import", str(tmp_path / "lines"), "--store", f"lmdb:{tmp_path / 'store'}")
    assert (done.returncode, done.stderr.splitlines(keepends=True)[-1]) == (1, line)
    done = ended("> /dev/full", "ingeborg", "cluster", "--json", "--store", f"lmdb:{tmp_path / 'store'}")
    assert (done.returncode, done.stderr.splitlines(keepends=True)[-1]) == (1, line)


async def test_what_the_output_s_encoding_has_not_is_escaped_as_in_json(tmp_path: Path) -> None:
    async with serving(tmp_path, "--history", "memory") as (_, url):
        text = "é ☃ \U0001f9d1"
        async with Client(url, "p") as client:
            await client.publish("t", text, ack=True, keep_s=60)
        for encoding in ("latin-1", "ascii"):
            history = ("ingeborg", "history", "--url", url, "--client-id", "c", "t")
            done = await asyncio.to_thread(ended, "", *history, PYTHONIOENCODING=encoding)
            assert (done.returncode, done.stderr) == (0, b"")
            assert orjson.loads(done.stdout.decode(encoding))["broadcast"] == text
        done = await asyncio.to_thread(ended, "<&-", "ingeborg", "pub", "--url", url, "--client-id", "c", "t", "-")
        assert (done.returncode, done.stderr.count(b"\n")) == (2, 1)
    assert ended("", "ingeborg", "serve", "--help", PYTHONIOENCODING="ascii").returncode == 0
