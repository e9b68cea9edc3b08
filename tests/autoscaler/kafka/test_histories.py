"""A whole group on a real Kafka: random `histories`, and the example in docs/autoscaling.md."""

from __future__ import annotations

import asyncio
import re
import signal
import sys
from pathlib import Path

import pytest

from ingeborg.autoscaler.scalers.processes import ProcessScaler
from tests.loadgen.backends.conftest import PATIENCE_S, Server

from . import histories
from .histories import ROOT, Group, Outcome

#: Seconds of faults. For more, run ``python -m tests.autoscaler.kafka.histories``.
SECONDS = 12.0
DOCUMENT = ROOT / "docs" / "autoscaling.md"


@pytest.mark.slow
async def test_nothing_is_lost_nor_doubled_whatever_is_killed_and_paused(address: str, tmp_path: Path) -> None:
    outcome = await histories.run(1, address, tmp_path, SECONDS)
    assert outcome.problems == ()
    assert outcome.kept == outcome.produced > 0


@pytest.mark.slow
async def test_while_kafka_stands_still_nothing_is_lost_nor_doubled(
    kafka: Server, address: str, tmp_path: Path
) -> None:
    """Pause Kafka until each program notices, and Kafka itself considers its only server lost."""

    def says(part: str, words: str) -> bool:
        return words in (tmp_path / f"{part}.log").read_text(encoding="utf-8")

    async def stands_still(group: Group) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not histories.in_sink(group):  # noqa: ASYNC110
                await asyncio.sleep(0.1)
        kafka.pause()
        try:
            async with asyncio.timeout(PATIENCE_S):
                for part, words in (("controller", "is Kafka running?"), ("monitor", "cannot measure")):
                    while not says(part, words):  # noqa: ASYNC110
                        await asyncio.sleep(0.1)
        finally:
            kafka.resume()

    outcome = await histories.run(1, address, tmp_path, 0.0, last=stands_still)
    assert outcome.problems == ()
    assert outcome.kept == outcome.produced > 0


def test_what_is_lost_doubled_or_taken_from_two_is_found(tmp_path: Path) -> None:
    group = histories.Group(tmp_path, "g", "t", "nowhere:1")
    folder = group.sink / "t" / "t-0"
    folder.mkdir(parents=True)

    def lines(*found: tuple[int, int, int]) -> str:
        rest = '"topic":"t","partition":0,"member":"m","time_ms":0,"key":null'
        return "".join(f'{{"offset":{at},"epoch":{epoch},"value":"0:{n}:x",{rest}}}\n' for at, epoch, n in found)

    def judged(text: str, produced: int) -> Outcome:
        (folder / "00000000000000000001.jsonl").write_text(text, encoding="utf-8")
        return histories.judged(group, [produced])

    assert judged(lines((0, 1, 0), (1, 1, 1), (2, 5, 2)), 3) == Outcome(3, 3, 1, 0, ())
    assert "1 are missing" in judged(lines((0, 1, 0), (2, 1, 2)), 3).problems[0]
    assert "1 are there twice" in judged(lines((0, 1, 0), (1, 1, 1), (1, 1, 1)), 2).problems[0]
    assert "in order: False" in judged(lines((0, 1, 1), (1, 1, 0)), 2).problems[0]
    assert "two at a time" in judged(lines((0, 5, 0), (1, 1, 1)), 2).problems[0]


@pytest.mark.slow
async def test_the_example_of_the_page(address: str, tmp_path: Path) -> None:
    """Follow the page, except for Kafka's address, a free port and a minute of three seconds."""
    [text] = re.findall(r"<<'END'\n(.+?)END\n", DOCUMENT.read_text(encoding="utf-8"), re.DOTALL)
    text = text.replace("127.0.0.1:9092", address) + "[web]\nport = 0\n"
    (tmp_path / "billing.toml").write_text(text, encoding="utf-8")
    (tmp_path / "sink").mkdir()
    command = [sys.executable, "-m", "ingeborg.broker.command.cli", "autoscale", "billing.toml"]
    environment = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"}
    log = (tmp_path / "log").open("wb")
    scaler = await asyncio.create_subprocess_exec(*command, cwd=tmp_path, env=environment, stdout=log, stderr=log)
    try:
        example = await asyncio.create_subprocess_exec(
            *(sys.executable, str(ROOT / "examples" / "orders.py"), address, "--seconds", "3"),
            cwd=tmp_path,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
        said, _ = await example.communicate()
        assert re.search(r"^([\d,]+) of \1 are in the sink, 0 more than once$", said.decode(), re.MULTILINE), said
        assert example.returncode == 0
        scaler.send_signal(signal.SIGTERM)
        assert await scaler.wait() == 0
    finally:
        if scaler.returncode is None:
            scaler.kill()
            await scaler.wait()
        log.close()
        members = ProcessScaler(["true"], tmp_path / "billing.members", 5.0, "billing")
        running = await members.running()
        assert running.names is not None
        await members.scale(0, sorted(running.names))
        async with asyncio.timeout(60.0):
            while histories.pids(tmp_path / "billing.members"):  # noqa: ASYNC110
                await asyncio.sleep(0.1)
        await members.close()
