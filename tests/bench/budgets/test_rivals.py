"""`ingeborg.bench.budgets.rivals` and `echo`: the judgements, the output, and the load in Centrifuge's protocol, on the
test's own server and on the real one if it has been built."""

from __future__ import annotations

import contextlib
import functools
import re
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import orjson
import psutil
import pytest
from websockets.asyncio.server import ServerConnection, serve

from ingeborg.bench.budgets import __main__ as budgets
from ingeborg.bench.budgets import carried, cost, echo, light, rivals
from ingeborg.bench.budgets.model import Check
from ingeborg.bench.budgets.rivals import Costs, Rate
from ingeborg.bench.errors import BenchError
from ingeborg.bench.rivals import go_programs
from tests import wants
from tests.cluster.processes import eventually

# -- the command


@pytest.mark.parametrize(("words", "parts"), [([], ["echo", "cost", "topics", "traffic"]), (["topics"], ["topics"])])
def test_the_parts_named_are_measured_or_all_of_them(
    monkeypatch: pytest.MonkeyPatch, words: list[str], parts: list[str]
) -> None:
    measured: list[str] = []

    def measure(part: str) -> list[Check]:
        measured.append(part)
        return []

    for name in rivals.PARTS:
        monkeypatch.setitem(rivals.PARTS, name, functools.partial(measure, name))
    monkeypatch.setattr(sys, "argv", ["rivals", *words])
    rivals.main()
    assert measured == parts


# -- judgements


def test_a_publish_may_cost_four_fifths_of_centrifuges_to_few_and_nine_tenths_to_many() -> None:
    found = rivals.cost_checks(
        {
            1: Costs(8.0, 8.1, 10.0),
            5: Costs(8.1, 8.0, 10.0),
            20: Costs(9.0, 9.1, 10.0),
            100: Costs(9.1, 9.0, 10.0),
        }
    )
    assert [check.figure for check in found] == [
        *(f"CPU per publish to {fanout}, without this broker's replies" for fanout in (1, 5, 20, 100)),
        *(f"CPU per publish to {fanout}, with replies from both" for fanout in (1, 5, 20, 100)),
    ]
    assert [check.met for check in found] == [True, False, True, False, False, True, False, True]
    assert [check.goal for check in found[:3:2]] == [
        "at most 0.8 times Centrifuge's",
        "at most 0.9 times Centrifuge's",
    ]
    assert found[5].measured == "8.0 us, 0.80 times 10.0 us"


@pytest.mark.parametrize(
    ("ours", "met"),
    [
        (Rate(100.0, 10.0, 0), [True, True, True, True]),
        (Rate(99.0, 10.0, 0), [False, True, True, True]),
        (Rate(95.0, 10.0, 0), [False, False, True, True]),
        (Rate(83.0, 10.0, 0), [False, False, False, True]),
        (Rate(200.0, 10.0, 1), [False, False, False, True]),
    ],
)
def test_the_rate_has_to_be_redis_and_a_fifth_more_than_nats_and_nothing_lost(ours: Rate, met: list[bool]) -> None:
    found = rivals.rate_checks(
        {
            ("ingeborg", 2048): ours,
            ("ingeborg, lines", 2048): Rate(300.0, 5.0, 0),
            ("redis", 2048): Rate(100.0, None, 0),
            ("nats", 2048): Rate(80.0, 2.0, 3),
            ("nats-current", 2048): Rate(70.0, 1.5, 0),
        }
    )
    assert [check.met for check in found] == met
    assert [check.figure for check in found] == [
        "2,048 topics end to end, against Redis",
        "2,048 topics end to end, against the machine's NATS",
        f"2,048 topics end to end, against NATS {go_programs.NATS.release()}",
        "2,048 topics end to end, several messages in a frame",
    ]
    assert found[3].measured.startswith("300/s at 5.0 us, ")
    if ours.lost:
        assert found[1].measured == "200/s at 10.0 us, lost 1, 2.50 times 80/s at 2.0 us, lost 3"


def a_run(system: str, topics: int, per_s: float, server_us: float | None, lost: int = 0) -> rivals.Json:
    phase = {"kind": "run", "end_to_end_per_s": per_s, "cpu_us_per_delivered": {"server": server_us}}
    return {
        "facts": {"system": system.removesuffix("-current"), "variant": system, "config": {"topics": topics}},
        "phases": [{"kind": "subscribe"}, phase],
        "measured": {"lost": lost},
    }


def test_rates_are_medians_by_system_and_number_of_topics_and_losses_are_added_up() -> None:
    runs = [a_run("redis", 8, per_s, us, lost) for per_s, us, lost in ((10.0, 3.0, 1), (30.0, 1.0, 2), (20.0, 2.0, 0))]
    others = [a_run("redis", 16, 7.0, None), a_run("nats", 8, 5.0, 4.0), a_run("nats-current", 8, 6.0, 3.0)]
    assert rivals.rates([*runs, *others]) == {
        ("redis", 8): (20.0, 2.0, 3),
        ("redis", 16): (7.0, None, 0),
        ("nats", 8): (5.0, 4.0, 0),
        ("nats-current", 8): (6.0, 3.0, 0),
    }


def test_lines_that_lose_something_are_told() -> None:
    rate = Rate(100.0, 10.0, 0)
    found = {(name, 8): rate for name in ("ingeborg", *rivals.RATE_RATIO)} | {(carried.LINES, 8): rate._replace(lost=1)}
    assert [check.met for check in rivals.rate_checks(found)] == [True, False, False, False]


# -- Centrifuge's protocol


@contextlib.asynccontextmanager
async def centrifuge_alike(pongs: list[object], *, refuse: bool = False) -> AsyncIterator[str]:
    """Start a server that puts two publications into a message, with a ping and other non-publications between them;
    yield its URL."""
    subscribers: list[ServerConnection] = []
    waiting: list[str] = []

    async def handler(connection: ServerConnection) -> None:
        async for message in connection:
            command = orjson.loads(message)
            if "publish" in command and refuse:
                await connection.send(f'{{"id":{command["id"]},"error":{{"code":103,"message":"permission denied"}}}}')
                continue
            if "publish" in command:
                waiting.append(orjson.dumps({"push": {"channel": "topic 2", "pub": command["publish"]}}).decode())
            if len(waiting) == 2:
                message = '\n{}\n{"push":{"channel":"topic 2","join":{"info":{}}}}\n'.join(waiting)
                waiting.clear()
                for each in subscribers:
                    await each.send(message)
            if "subscribe" in command:
                subscribers.append(connection)
            if "id" in command:
                kind = next(name for name in command if name != "id")
                await connection.send(orjson.dumps({"id": command["id"], kind: {}}).decode())
            else:
                pongs.append(command)

    async with serve(handler, "127.0.0.1", 0) as server:
        yield f"ws://127.0.0.1:{next(iter(server.sockets)).getsockname()[1]}"


async def test_only_publications_count_and_pings_are_answered() -> None:
    pongs: list[object] = []
    async with centrifuge_alike(pongs) as url, rivals.CentrifugeLoad(url, psutil.Process(), 2) as load:
        assert await load.cost_us(100, 0.06, ack=True) > 0

        async def answered() -> bool:
            return len(pongs) == 6  # three messages to each of two clients

        await eventually(answered, "a pong for each ping")
    assert pongs == [{}] * 6


async def test_what_does_not_come_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cost, "TIMEOUT_S", 0.2)
    async with centrifuge_alike([]) as url, rivals.CentrifugeLoad(url, psutil.Process(), 2) as load:
        with pytest.raises(BenchError, match=r"2 of 10 deliveries and 0 of 5 replies did not come within 0\.2 s"):
            await load.cost_us(100, 0.05, ack=True)


async def test_a_publish_that_centrifuge_refuses_is_told() -> None:
    async with centrifuge_alike([], refuse=True) as url, rivals.CentrifugeLoad(url, psutil.Process(), 2) as load:
        with pytest.raises(BenchError, match="permission denied"):
            await load.cost_us(100, 0.05, ack=True)


async def test_the_real_centrifuge_delivers_and_replies(tmp_path: Path) -> None:
    program = wants.go_program("centrifuge")
    with rivals.centrifuge(program, tmp_path) as (url, process):
        async with rivals.CentrifugeLoad(url, process, 3) as load:
            assert 0 < await load.cost_us(1000, 0.1, ack=True) < 1e6
        publisher = await light.dial(url)
        assert await light.ask(publisher, b'{"id":1,"connect":{}}') != b""
        # It replies to a publish that nobody gets; its protocol has no way to ask for no reply.
        assert await light.ask(publisher, b'{"id":2,"publish":{"channel":"c","data":"x"}}') == b'{"id":2,"publish":{}}'
        publisher.transport.close()


@pytest.mark.cluster
async def test_this_broker_replies_where_it_is_asked_to(tmp_path: Path) -> None:
    with light.started(
        "ingeborg.broker.command.cli", "serve", "--port", "0", "--store", f"lmdb:{tmp_path}/store"
    ) as server:
        async with cost.Load(*server, 3) as load:
            for ack in (False, True):
                assert 0 < await load.cost_us(1000, 0.1, ack=ack) < 1e6


# -- the machine


def test_the_factor_is_the_rate_by_the_references() -> None:
    half = echo.Echo(echo.REFERENCE.per_s / 2, 20.0, 100.0)
    assert half.factor == pytest.approx(0.5)
    check = echo.check(half)
    assert check.met
    assert check.measured.startswith(f"factor 0.50: {half.per_s:,.0f}/s at 20.0 us, one round trip 100 us; ")
    assert f"; on {echo.REFERENCE_DATE}: {echo.REFERENCE.per_s:,.0f}/s at " in check.measured


def test_an_echo_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(echo, "TURNS", 2)
    monkeypatch.setattr(echo, "TRIPS", 10)
    found = echo.measure(0.1)
    assert found.per_s > 100
    assert 0 < found.cpu_us < 1e4
    assert 1 < found.trip_us < 1e6


# -- when


def guards_run(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr(
        budgets, "BUDGETS", {name: lambda _, name=name: [Check(name, "", "", True)] for name in ("cost", "rivals")}
    )
    monkeypatch.setattr(sys, "argv", ["budgets", *words])
    return budgets.main()


@pytest.mark.parametrize(
    ("words", "run"),
    [
        ([], ["cost"]),
        (["--full"], ["cost", "rivals"]),
        (["--only", "rivals"], ["rivals"]),
        (["--only", "cost", "--full"], ["cost"]),
    ],
)
def test_rivals_are_measured_in_full_or_when_asked_for(
    words: list[str], run: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert guards_run(monkeypatch, *words) == 0
    said = capsys.readouterr().out
    assert re.findall(r"^\| (cost|rivals) ", said, re.MULTILINE) == run
    skipped = "rivals: skipped (FULL=1 includes it; ARGS='--only rivals' runs it alone)\n"
    assert said.startswith(skipped) or skipped in said if not words else "skipped" not in said
