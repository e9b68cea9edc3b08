"""`ingeborg autoscale` at the command line: wrong usage, and the output if Kafka is missing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
FILE = """\
[group]
name = "g"
topics = ["orders"]
members_max = 2
capacity_bytes_per_s = 1000
[kafka]
servers = ["127.0.0.1:1"]
timeout_s = 1
[sink]
kind = "files"
folder = "sink"
[scaler]
kind = "none"
[web]
port = -1
"""


def run(folder: Path, *arguments: str, text: str = FILE, before: str = "") -> subprocess.CompletedProcess[str]:
    """Run it with a file `g.toml`. ``before``: Python that runs first."""
    (folder / "g.toml").write_text(text, encoding="utf-8")
    program = f"{before}\nimport sys; from ingeborg.broker.command import cli; sys.exit(cli.main(sys.argv[1:]))"
    command = [sys.executable, "-c", program, "autoscale", *arguments]
    environment = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=60)


def test_a_mistake_in_the_file_is_said_with_its_row(tmp_path: Path) -> None:
    done = run(tmp_path, "g.toml", text=FILE.replace("members_max", "member_max"))
    assert done.returncode == 2
    wrong = "[group] has no 'member_max'; did you mean members_max?"
    assert done.stderr == f"ingeborg autoscale: {Path('g.toml')}: {wrong}\n"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--part", "member", "--journal", "j"), "--journal needs the controller, which --part member does not run"),
        (("--part", "member", "--name", "x" * 254), "--name has to be 1 to 253 printable characters"),
        (("--part", "member", "--name", "a\nb"), "--name has to be 1 to 253 printable characters"),
    ],
)
def test_an_option_that_cannot_be_is_said(tmp_path: Path, arguments: tuple[str, ...], words: str) -> None:
    done = run(tmp_path, "g.toml", *arguments)
    assert (done.returncode, done.stderr) == (2, f"ingeborg autoscale: {words}\n")


def test_without_its_packages_it_says_which_extra_has_them(tmp_path: Path) -> None:
    done = run(tmp_path, "g.toml", before="import sys; sys.modules['aiokafka'] = None")
    assert done.returncode == 2
    assert "pip install 'ingeborg[server,autoscale]'" in done.stderr


@pytest.mark.parametrize("option", ["--dry-run", "--watch"])
def test_what_only_a_controller_can_do_is_no_members(tmp_path: Path, option: str) -> None:
    done = run(tmp_path, "g.toml", "--part", "member", option)
    assert done.returncode == 2
    assert "work with the controller only" in done.stderr


def test_a_scaler_that_cannot_be_made_is_a_mistake_in_the_file(tmp_path: Path) -> None:
    """Found before any request to Kafka."""
    text = FILE.replace('kind = "none"', 'kind = "http"\nurl = "http://127.0.0.1:1/"\ntoken_file = "nowhere"')
    done = run(tmp_path, "g.toml", text=text)
    assert done.returncode == 2
    assert "token_file" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("arguments", [(), ("--part", "controller"), ("--dry-run",)])
def test_where_kafka_is_not_there_it_is_said(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    done = run(tmp_path, "g.toml", *arguments)
    assert done.returncode == 1
    assert "127.0.0.1:1" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_log_has_the_form_and_the_level_that_are_asked_for(tmp_path: Path) -> None:
    """The command sets up the log, since the autoscaler does not know the broker's."""
    done = run(tmp_path, "g.toml", "--part", "controller", "--log-format", "json", "--log-level", "error")
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    assert {(line["level"], line["logger"]) for line in lines} == {("ERROR", "ingeborg.autoscale")}
