"""Whole runs over real sockets against a broker of a hundred lines that can be told to be bad."""

from __future__ import annotations

import asyncio
import csv
import json
import os
import re
import signal
import sys
from collections import Counter, defaultdict
from pathlib import Path

import pytest

from loadgen import cli

from .plain_broker import PlainBroker

SMALL = [
    *("--clients", "20", "--stations", "5", "--song-s", "0.4", "--duration", "1.5"),
    *("--spread-ms", "50", "--idle-wishes", "3"),
]


async def generate(broker: PlainBroker, out: Path, *arguments: str) -> tuple[int, str]:
    """The program as a person starts it; its exit code and what it said."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "loadgen.cli", *arguments, "--url", broker.url, "--out", str(out)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said, _ = await asyncio.wait_for(process.communicate(), 30)
    return process.returncode, said.decode()


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file, strict=True))


def table_of(said: str) -> dict[str, str]:
    return dict(re.findall(r"^(\S+(?: \S+)*) {2,}(\S.*)$", said, re.MULTILINE))


@pytest.fixture
async def broker():
    async with PlainBroker() as broker:
        yield broker


async def test_a_run_delivers_everything_and_logs_it(broker, tmp_path):
    code, said = await generate(broker, tmp_path / "log", "radio", *SMALL, "--check")
    assert code == 0, said
    log = tmp_path / "log"
    events = rows_of(log / "events-000-0000.csv")
    by_kind = defaultdict(list)
    for event in events:
        by_kind[event["kind"]].append(event)
    assert not by_kind["error"]

    # Each news, by the log alone: its deliveries are as many distinct connections, each once.
    received = Counter((event["topic"], event["seq"], event["connection"]) for event in by_kind["received"])
    assert max(received.values()) == 1
    per_news = Counter((topic, seq) for topic, seq, _ in received)
    assert {(event["topic"], event["seq"]): int(event["value"]) for event in by_kind["news"]} == per_news
    first = Counter((event["topic"], event["seq"]) for event in by_kind["sent"] if event["value"] == "1")
    assert first == dict.fromkeys(per_news, 1)
    intended = {(event["topic"], event["seq"]): event["intended_ns"] for event in by_kind["news"]}
    for event in by_kind["received"]:
        assert event["intended_ns"] == intended[event["topic"], event["seq"]]
        assert int(event["value"]) == int(event["at_ns"]) - int(event["intended_ns"])
    for event in by_kind["sent"]:
        assert int(event["at_ns"]) >= int(event["intended_ns"])
    assert {event["phase"] for event in events} == {"run"}

    phases = rows_of(log / "phases.csv")
    assert [(row["phase"], row["measured"]) for row in phases] == [
        ("connect", "0"),
        ("subscribe", "0"),
        ("run", "1"),
        ("drain", "0"),
        ("unsubscribe", "0"),
    ]
    facts = json.loads((log / "run.json").read_text())
    assert (facts["complete"], facts["workload"], facts["seed"]) == (True, "radio", 1)
    assert str(tmp_path) not in (log / "run.json").read_text()
    assert {row["source"] for row in rows_of(log / "machine.csv")} == {"generator", "host", "plain"}
    counters = rows_of(log / "counters.csv")
    assert Counter(row["phase"] for row in counters if row["name"].startswith("process_cpu")) == {
        row["phase"]: 2 for row in phases
    }

    table = table_of(said)
    assert table["lost"] == "0"
    assert int(table["duplicates dropped"]) == broker.dropped == len(by_kind["sent"]) - len(by_kind["news"])
    assert "s left" in said
    assert not any(broker.subscribers.values()), "the run left subscriptions behind"


async def test_the_same_seed_sends_the_same_again_and_the_broker_takes_it_for_new(broker, tmp_path):
    logs = []
    for name in ("one", "two"):
        code, said = await generate(broker, tmp_path / name, "radio", *SMALL, "--check")
        assert code == 0, said
        events = rows_of(tmp_path / name / "events-000-0000.csv")
        logs.append(
            Counter((row["kind"], row["connection"], row["topic"], row["seq"], row["detail"]) for row in events)
        )
    assert logs[0] == logs[1]


async def test_losses_repetitions_and_strays_are_seen(broker, tmp_path):
    broker.lose_every, broker.repeat_every, broker.stray_every, broker.misdeliver_every = 5, 7, 11, 13
    code, said = await generate(broker, tmp_path / "log", "radio", *SMALL, "--drain", "0.3", "--check")
    assert code == 1
    table = table_of(said)
    sent = broker.sent
    lost = sent // 5
    twice = sent // 7 - sent // 35
    strays = sent // 11 - sent // 55
    assert (int(table["lost"]), int(table["delivered twice"])) == (lost, twice)
    assert broker.misdelivered > 0
    assert table["errors"] == f"misdelivered {broker.misdelivered}, unexpected message {strays}"
    assert "check failed" in said
    assert "had not come after 0.3 s" in said
    assert json.loads((tmp_path / "log" / "run.json").read_text())["complete"] is True


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_a_signal_keeps_what_was_measured_and_marks_the_run_incomplete(broker, tmp_path, number):
    log = tmp_path / "log"
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "loadgen.cli", "radio", *SMALL, "--duration", "60"),
        *("--url", broker.url, "--out", str(log)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    async with asyncio.timeout(30):
        while b"run " not in await process.stdout.readline():
            pass
        process.send_signal(number)
        said = (await process.stdout.read()).decode()
        assert await process.wait() == 1, said
    assert "marked incomplete" in said
    assert json.loads((log / "run.json").read_text())["complete"] is False
    kinds = Counter(row["kind"] for row in rows_of(log / "events-000-0000.csv"))
    assert kinds["news"] > 0
    # Nothing is lost by cutting: no news is announced whose reports were not sent any more.
    assert table_of(said)["lost"] == "0"


async def test_a_replay_sends_the_text_unchanged_and_says_what_it_skipped(broker, tmp_path):
    file = tmp_path / "log.csv"
    names = ["rÃƒÂ©gresser", "a\u2028b", "bad\x07"]
    lines = [f"s{number % 2},{number},{names[number % 3]},t{number},1" for number in range(30)]
    file.write_text("station,offset_s,artist,track,duration_s\n" + "\n".join(lines) + "\n")
    few = ["--clients", "10", "--listens", "2", "--duration", "1", "--speed", "30", "--spread-ms", "10"]
    code, said = await generate(broker, tmp_path / "log", "replay", str(file), *few, "--check")
    assert code == 0, said
    assert "skipped 10 rows: Key 'topic' has the control character U+0007" in said
    topics = {topic for topic, _ in broker.seen}
    assert topics
    assert topics <= {f"{names[number % 3]} - t{number}" for number in range(30) if number % 3 < 2}


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        ("radio --url ws://127.0.0.1:9", 1, "ws://127.0.0.1:9: "),
        ("radio --url 127.0.0.1:9", 1, "not a ws:// or http:// URL"),
        ("radio --url ws://127.0.0.1:9 --wishes 300", 2, "--wishes"),
        ("replay absent.csv --url ws://127.0.0.1:9", 2, "absent.csv: No such file"),
    ],
)
def test_wrong_options_are_named_and_nothing_is_made(tmp_path, capsys, arguments, code, text):
    assert cli.main([*arguments.split(), "--out", str(tmp_path / "log")]) == code
    assert text in capsys.readouterr().err
    assert os.listdir(tmp_path) == []


def test_usage_errors_are_argparse_ones(capsys):
    with pytest.raises(SystemExit, match="2"):
        cli.main(["radio", "--url", "ws://127.0.0.1:9", "--out", "x", "--duration", "0"])
    assert "above 0" in capsys.readouterr().err


async def test_a_directory_in_use_is_refused(broker, tmp_path):
    (tmp_path / "mine").write_text("x")
    code, said = await generate(broker, tmp_path, "radio", *SMALL)
    assert code == 2
    assert "not empty" in said
