"""A unit on real processes: its results, and its failures: soon, with a reason, and without a process left over."""

from __future__ import annotations

import asyncio
import resource
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import psutil
import pytest

from ingeborg.bench.caching.live import run, subscribing, work
from ingeborg.bench.caching.live.cases import EITHER, KAFKA, LATENCY, POLLING, RIAK, THROUGHPUT, Case
from ingeborg.bench.caching.live.run import Places, measure
from ingeborg.bench.caching.live.subscribing import Crowd
from ingeborg.bench.errors import BenchError
from ingeborg.bench.starting import Child, awaited, environment
from tests.riak.double import RiakDouble

SMALL = 30
"""Number of subscribers."""


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscribing, "POLL_S", 0.05)


def unit(kind: str = LATENCY, records: int = 200, strategy: str = "mean", **more: Any) -> Case:
    return Case(kind, records, strategy, subscribers=SMALL, **more)


def run_json(directory: Path) -> dict[str, Any]:
    found: dict[str, Any] = orjson.loads((directory / "run.json").read_bytes())
    return found


async def test_the_same_records_are_admitted_whichever_kind_of_run_it_is(tmp_path: Path) -> None:
    units = [unit(), unit(fetches=POLLING), unit(THROUGHPUT), unit(THROUGHPUT, 50, rounds=4), unit(writes=EITHER)]
    rows = [
        await measure(one, tmp_path / str(number), tmp_path / f"{number}-scratch") for number, one in enumerate(units)
    ]
    names = ("reads", "hits", "admitted", "admitted_utility", "bytes_of_records")
    assert all([row[name] for name in names] == [rows[0][name] for name in names] for row in rows)
    assert [row["written"] for row in rows] == [200] * 4 + [200 - rows[0]["admitted"]]
    assert [(row["records"], row["rounds"]) for row in rows] == [(200, 1)] * 3 + [(50, 4), (200, 1)]
    assert rows[3]["records_per_s"] == pytest.approx(200 / rows[3]["seconds"], rel=1e-3)
    assert run_json(tmp_path / "0")["complete"] is True


async def test_records_by_way_of_riak(tmp_path: Path) -> None:
    async with RiakDouble(nodes=3) as double:
        double.create_broker_types()
        nodes = ",".join(f"{host}:{port}" for host, port in double.addresses)
        one = unit(THROUGHPUT, 60, "buffer", database=RIAK)
        row = await measure(one, tmp_path / "log", tmp_path / "scratch", Places(riak=nodes))
        assert row["database_reads"] == row["reads"] - row["hits"] > 0


async def fails(
    directory: Path, begun: Callable[[Crowd, Child], None], one: Case, places: Places = run.NOWHERE
) -> tuple[str, str]:
    """Return the error's message and the log's reason; check that the broker is gone."""
    children: list[psutil.Process] = []

    def note(crowd: Crowd, child: Child) -> None:
        children.append(child.process)
        begun(crowd, child)

    with pytest.raises(BenchError) as error:
        await measure(one, directory / "log", directory / "scratch", places, note)
    assert not any(child.is_running() for child in children)
    found = run_json(directory / "log")
    assert found["complete"] is False
    return str(error.value), found["failed"]


async def test_a_broker_that_dies(tmp_path: Path) -> None:
    def kill(_: Crowd, child: Child) -> None:
        asyncio.get_running_loop().call_later(0.3, child.signal, signal.SIGKILL)

    said, noted = await fails(tmp_path, kill, unit(records=2_000))
    assert "the broker was ended by SIGKILL" in said
    assert "deliveries had arrived" in said
    assert noted.startswith("the broker was ended by SIGKILL")


async def test_a_database_that_fails(tmp_path: Path) -> None:
    def limit(_: Crowd, child: Child) -> None:
        # LMDB's file cannot grow any further.
        child.process.rlimit(resource.RLIMIT_FSIZE, (20_480, 20_480))

    said, _ = await fails(tmp_path, limit, unit(records=2_000))
    assert "the broker ended with exit code 1" in said
    assert "bench: LMDB in" in said
    assert "cannot be written" in said


async def test_a_riak_that_dies(tmp_path: Path) -> None:
    async with RiakDouble(nodes=3) as double:
        double.create_broker_types()
        nodes = ",".join(f"{host}:{port}" for host, port in double.addresses)

        def kill(_: Crowd, __: Child) -> None:
            killing.extend(asyncio.ensure_future(node.kill()) for node in double.nodes)

        killing: list[asyncio.Future[None]] = []
        said, _ = await fails(tmp_path, kill, unit(records=300, database=RIAK), Places(riak=nodes))
    assert "the broker ended with exit code 1" in said
    assert "Riak cannot be" in said


async def test_a_subscriber_that_is_gone(tmp_path: Path) -> None:
    def cut(crowd: Crowd, _: Child) -> None:
        socket = crowd._subscribers[7].socket
        assert socket is not None
        asyncio.get_running_loop().call_later(0.2, socket.abort)

    said, _ = await fails(tmp_path, cut, unit(records=2_000))
    assert "subscriber 7 has lost its connection" in said


async def test_a_broker_that_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "STALL_S", 1.0)

    def stop(_: Crowd, child: Child) -> None:
        asyncio.get_running_loop().call_later(0.1, child.signal, signal.SIGSTOP)

    said, _ = await fails(tmp_path, stop, unit(records=500))
    assert "nothing has arrived for 1 s" in said


@pytest.mark.parametrize(("more", "thing"), [({"via": KAFKA}, "Kafka"), ({"database": RIAK}, "Riak")])
async def test_without_the_server_that_a_unit_wants(more: dict[str, Any], thing: str, tmp_path: Path) -> None:
    with pytest.raises(BenchError, match=f"the unit needs a {thing}"):
        await measure(unit(**more), tmp_path / "log", tmp_path / "scratch")


async def test_a_database_that_cannot_be_opened_ends_the_start(tmp_path: Path) -> None:
    (tmp_path / "scratch" / "store").mkdir(parents=True)
    with pytest.raises(BenchError, match=r"the broker ended with exit code 1(?s:.*)LMDB cannot be opened"):
        await measure(unit(), tmp_path / "log", tmp_path / "scratch")


#: The command with a plan of one long unit.
COMMAND = """
import sys
from ingeborg.bench import cli
from ingeborg.bench.caching.live import cases
cases.PARTS = {"experiment3": lambda seed: [cases.Case(cases.LATENCY, 10_000, "none")]}
sys.exit(cli.main(sys.argv[1:]))
"""


async def test_a_command_that_is_told_to_end_leaves_nothing_behind(tmp_path: Path) -> None:
    name = Case(LATENCY, 10_000, "none").name
    asked = [sys.executable, "-c", COMMAND, "caching", "--out", str(tmp_path / "out"), "--only", "experiment3"]
    child = Child("the command", asked, tmp_path / "said", environment=environment())
    left = tmp_path / "out" / work.UNFINISHED / name
    try:
        async with asyncio.timeout(60.0):
            while not (left / "scratch" / "store").exists():  # noqa: ASYNC110 - of another process
                await asyncio.sleep(0.05)
        brokers = child.process.children()
        assert len(brokers) == 1
        child.signal(signal.SIGTERM)
        assert await awaited(child.ended(20.0)) == 130
    finally:
        await awaited(child.end())
    assert child.said().splitlines()[-1].startswith("bench: interrupted: 0 of 1 units after")
    assert not brokers[0].is_running()
    assert run_json(left / "log")["failed"] == "it was interrupted"
