"""A server that dies, hangs or restarts during the measurement: never a success, and reported while it happens.

Real endpoints, killed and stopped; and the broker of a hundred lines, which loses messages on request.
"""

from __future__ import annotations

import re
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.cluster.processes import EndpointProcess

from ..generator import Generator
from ..plain_broker import PlainBroker

LONG = ("--duration-s", "600")
AIR = ("--clients", "20", "--spread-ms", "50", "--idle-wishes", "3")
#: Far below the default, so that the tests wait less; far above the delay of a living server on a busy machine.
STALL = ("--stall-s", "4")


@pytest.fixture
async def endpoint(tmp_path: Path) -> AsyncIterator[EndpointProcess]:
    options = ["--store", f"lmdb:{tmp_path / 'store'}"]
    endpoint = EndpointProcess("alone", options, tmp_path, {})
    await endpoint.start()
    try:
        yield endpoint
    finally:
        await endpoint.end()


@pytest.fixture
async def broker() -> AsyncIterator[PlainBroker]:
    async with PlainBroker() as broker:
        yield broker


WORKLOADS = {
    "radio": ("radio", *AIR, *LONG, "--song-s", "1"),
    "traffic": ("traffic", *LONG, "--rate", "300", "--processes", "2"),
    "search": ("traffic", "--start-rate", "100", "--most-rate", "200", "--measure-s", "600"),
    "topics": ("topics", "--first", "64", "--messages", "100000000"),
}


@pytest.mark.cluster
@pytest.mark.slow
@pytest.mark.parametrize(
    ("workload", "number"),
    [
        ("radio", signal.SIGKILL),
        ("traffic", signal.SIGSTOP),
        ("search", signal.SIGSTOP),
        ("topics", signal.SIGKILL),
        pytest.param("search", signal.SIGKILL, marks=pytest.mark.prove),
        pytest.param("topics", signal.SIGSTOP, marks=pytest.mark.prove),
    ],
)
async def test_a_server_that_dies_or_hangs_in_mid_run_is_a_failed_run(
    endpoint: EndpointProcess, tmp_path: Path, workload: str, number: signal.Signals
) -> None:
    async with Generator(endpoint.url, tmp_path / "log", *WORKLOADS[workload], *STALL) as generator:
        await generator.says(r"^(run|sustained\S*|half\S*|search\S*) .*  out [1-9]")
        endpoint.signal(number)
        if workload != "topics" or number == signal.SIGSTOP:
            line = await generator.says("nothing was delivered for")  # while it lasts, and long before the run's end
            assert "is the server there? (the run fails after" in line
        code, last = await generator.ended()
    assert code == 1, generator.said
    assert last.startswith("loadgen: failed: ")
    assert "deliveries are missing" in last
    assert "marked incomplete" in last
    assert generator.facts["complete"] is False
    failed = str(generator.facts["failed"])
    assert failed in last
    if number == signal.SIGKILL:
        assert "connections lost" in generator.said
    else:
        assert "nothing was delivered for" in failed


@pytest.mark.cluster
@pytest.mark.slow
async def test_a_recorded_log_is_held_to_the_same(endpoint: EndpointProcess, tmp_path: Path) -> None:
    file = tmp_path / "log.csv"
    rows = [f"s{second % 5},{second},a{second % 7},t,1" for second in range(3600)]
    file.write_text("station,offset_s,artist,track,duration_s\n" + "\n".join(rows) + "\n")
    replay = ("replay", str(file), *AIR, "--duration-s", "600", "--speed", "6", "--stations", "5")
    async with Generator(endpoint.url, tmp_path / "log", *replay, *STALL) as generator:
        await generator.says("^run .*  out [1-9]")
        endpoint.signal(signal.SIGSTOP)
        code, last = await generator.ended()
    assert code == 1
    assert "failed: run: nothing was delivered for" in last


@pytest.mark.cluster
@pytest.mark.slow
async def test_a_server_that_hangs_shortly_before_the_end_is_seen_in_the_drain(
    endpoint: EndpointProcess, tmp_path: Path
) -> None:
    few = ("traffic", "--rate", "300", "--duration-s", "4", "--drain-s", "1")
    async with Generator(endpoint.url, tmp_path / "log", *few, *STALL) as generator:
        await generator.says("^run .*  out [1-9]")
        endpoint.signal(signal.SIGSTOP)
        code, last = await generator.ended()
    assert code == 1
    assert re.search("failed: (run|drain): nothing was delivered for", last)


@pytest.mark.cluster
@pytest.mark.slow
async def test_a_server_that_is_started_again_is_no_plain_success(endpoint: EndpointProcess, tmp_path: Path) -> None:
    back = ("radio", *AIR, "--song-s", "1", "--duration-s", "15", "--stall-s", "60")
    async with Generator(endpoint.url, tmp_path / "log", *back) as generator:
        await generator.says("^run .*  out [1-9]")
        await endpoint.kill(writers=True)
        await generator.says("connections lost: ")
        await endpoint.start()
        code, last = await generator.ended()
    assert code == 3, generator.said
    assert re.search(r"done, with losses; [\d,]+ of [\d,]+ deliveries were lost; connections lost: 2\d", last)
    assert generator.facts["complete"] is True


async def test_a_system_that_loses_half_at_a_fixed_rate_is_not_dead_and_its_losses_are_named(
    broker: PlainBroker, tmp_path: Path
) -> None:
    broker.lose_every = 2
    slow = ("traffic", "--topics", "5", "--fanout", "1", "--rate", "5", "--duration-s", "4", "--duplicates", "0")
    async with Generator(broker.url, tmp_path / "log", *slow, "--drain-s", "1", "--stall-s", "3") as generator:
        code, last = await generator.ended()
    assert (code, last) == (3, "loadgen: done, with losses; 11 of 23 deliveries were lost")
    assert generator.facts["complete"] is True
    assert "failed" not in generator.facts


async def test_a_system_that_loses_while_the_limit_is_looked_for_is_not_dead_either(
    broker: PlainBroker, tmp_path: Path
) -> None:
    broker.lose_every = 2
    search = ("traffic", "--start-rate", "50", "--most-rate", "50", "--step-s", "1", "--measure-s", "1")
    async with Generator(broker.url, tmp_path / "log", *search, "--p99-ms", "5000", *STALL) as generator:
        await broker.received_some(40)
        broker.lose_every = 0
        code, last = await generator.ended()
    assert (code, last) == (0, "")
    assert "nothing was delivered" not in generator.said
    assert re.search(r"^done; [\d,]+ were lost in steps that look for the limit$", generator.said, re.MULTILINE)


async def test_connections_that_are_lost_and_come_back_are_named_though_nothing_was_lost(
    broker: PlainBroker, tmp_path: Path
) -> None:
    """The loss falls between two messages: one at the beginning, and none before the connections are back."""
    slow = ("traffic", "--topics", "5", "--connections", "5", "--rate", "0.25", "--duration-s", "4")
    async with Generator(broker.url, tmp_path / "log", *slow, "--drain-s", "1") as generator:
        await generator.says("^run .* p50 [0-9]")
        for connection in set(broker.listening.values()):
            await connection.close(1012)
        code, last = await generator.ended()
    assert code == 3, generator.said
    assert last == "loadgen: done, with losses; connections lost: 5"
