"""`ingeborg.bench.budgets` with many clients, in small: the storm, the idle clients, and the processes of clients."""

from __future__ import annotations

import asyncio
import contextlib
import resource
from collections import Counter
from pathlib import Path

import psutil
import pytest

from ingeborg.bench.budgets import clients, idle, light, storm
from ingeborg.bench.budgets.storm_clients import own_list
from ingeborg.bench.errors import BenchError
from tests import wants

URLS = ["ws://a/", "ws://b/", "ws://c/", "ws://d/"]


# -- processes of clients


@pytest.mark.parametrize("count", [1, 7, clients.CLIENTS_MAX, clients.CLIENTS_MAX + 1, 100_000])
def test_every_client_is_in_one_process_and_none_has_too_many(count: int) -> None:
    shares = clients.shares(count)
    assert [number for share in shares for number in range(*share)] == list(range(count))
    assert all(stop - first <= clients.CLIENTS_MAX for first, stop in shares)


def test_every_process_has_as_many_clients_of_each_endpoint() -> None:
    for share in clients.shares(40_000):
        assert set(Counter(number % 4 for number in range(*share)).values()) == {2500}


@pytest.mark.parametrize(
    ("limits", "becomes"),
    [
        ((5000, 20_000), None),
        ((1024, 20_000), (5000, 20_000)),
        ((1024, resource.RLIM_INFINITY), (5000, resource.RLIM_INFINITY)),
        ((resource.RLIM_INFINITY, resource.RLIM_INFINITY), None),
    ],
)
def test_the_limit_of_open_files_is_raised_where_it_is_too_low(
    monkeypatch: pytest.MonkeyPatch, limits: tuple[int, int], becomes: tuple[int, int] | None
) -> None:
    seen: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: limits)
    monkeypatch.setattr(resource, "setrlimit", lambda _, wanted: seen.append(wanted))
    clients.allow_files(5000)
    assert seen == ([] if becomes is None else [becomes])


def test_more_files_than_the_system_allows_are_refused_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, 4999))
    with pytest.raises(BenchError, match=r"may open 4,999 files \(ulimit -Hn\), but 5,000 are needed"):
        clients.allow_files(5000)


async def test_a_process_that_fails_says_so() -> None:
    nobody = [{"urls": ["ws://127.0.0.1:1/"], "numbers": [0, 5]}]
    async with clients.started_clients("ingeborg.bench.budgets.storm_clients", nobody) as (process,):
        with pytest.raises(BenchError, match=r"storm_clients 0: ws://127\.0\.0\.1:1/: "):
            await process.told(20)
        with pytest.raises(BenchError, match="storm_clients 0: ended"):
            await process.told(20)


async def test_a_process_that_is_silent_is_not_waited_for_without_end_and_is_gone_afterwards() -> None:
    nobody = [{"urls": ["ws://127.0.0.1:1/"], "numbers": [0, 5]}]
    async with clients.started_clients("ingeborg.bench.budgets.idle_clients", nobody) as (process,):
        with pytest.raises(BenchError, match=r"idle_clients 0: no answer within 0\.1 s"):
            await process.told(0.1)
        assert _ours("ingeborg.bench.budgets.idle_clients")
    assert not _ours("ingeborg.bench.budgets.idle_clients")


def _ours(module: str) -> list[psutil.Process]:
    found = []
    for child in psutil.Process().children():
        # A child of another test may be ending just now: its command line is gone.
        with contextlib.suppress(psutil.NoSuchProcess):
            if module in child.cmdline():
                found.append(child)
    return found


# -- storm


@pytest.mark.parametrize("dead", URLS)
def test_the_clients_of_a_dead_endpoint_go_to_all_others_evenly(dead: str) -> None:
    lists = [own_list(URLS, number) for number in range(120)]
    assert all(sorted(mine) == URLS for mine in lists)
    assert Counter(mine[0] for mine in lists) == dict.fromkeys(URLS, 30)
    second = Counter(mine[1] for mine in lists if mine[0] == dead)
    assert second == dict.fromkeys(set(URLS) - {dead}, 10)


def test_one_endpoint_has_no_others() -> None:
    assert own_list(["ws://a/"], 5) == ["ws://a/"]


def found(got_s: list[float], others_lost: int = 0) -> storm.Found:
    return storm.Found(3, got_s, got_s, [2, 1], lost_again=0, others=6, others_lost=others_lost, repeated=0, refused=0)


@pytest.mark.parametrize(
    ("seen", "measured", "met"),
    [
        (found([1.0, 2.0, 30.0]), ["3 of 3 in 30.0 s", "0 of 6"], [True, True]),
        (found([1.0, 2.0, 30.1]), ["3 of 3 in 30.1 s", "0 of 6"], [False, True]),
        (found([1.0, 2.0]), ["2 of 3 in 2.0 s", "0 of 6"], [False, True]),
        (found([]), ["none of 3", "0 of 6"], [False, True]),
        (found([1.0, 2.0, 3.0], others_lost=1), ["3 of 3 in 3.0 s", "1 of 6"], [True, False]),
    ],
)
def test_all_have_to_be_back_in_time_and_nobody_else_disturbed(
    seen: storm.Found, measured: list[str], met: list[bool]
) -> None:
    checks = storm.checks(seen)
    assert [check.measured for check in checks] == measured
    assert [check.met for check in checks] == met


@pytest.mark.cluster
async def test_a_small_storm() -> None:
    seen = await storm.measure(36, 3)
    assert (seen.victims, seen.others, seen.others_lost, seen.lost_again) == (12, 24, 0, 0)
    assert seen.went_to == [6, 6]
    assert len(seen.back_s) == len(seen.got_s) == 12
    assert 0 < seen.back_s[0] <= seen.got_s[0]
    assert seen.back_s[-1] <= seen.got_s[-1] < storm.GOAL_S


@pytest.mark.cluster
async def test_clients_that_stay_away_are_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storm, "_STORM_S_MAX", 0.0)
    seen = await storm.measure(9, 3)
    assert (seen.victims, seen.back_s, seen.got_s, seen.went_to) == (3, [], [], [0, 0])


# -- idle

STATUS = "VmRSS:\t  300 kB\nRssAnon:\t  200 kB\nRssFile:\t  100 kB\n"
SOCKSTAT = "sockets: used 250\nTCP: inuse 40 orphan 0 tw 3 alloc 45 mem 17\nUDP: inuse 2 mem 5\n"


def test_the_kernels_figures_are_read_by_name() -> None:
    assert idle.kilobytes(STATUS, "RssAnon") == 204_800
    assert idle.kilobytes(STATUS, "VmRSS") == 307_200
    assert idle.kilobytes("SwapPss:  8 kB\nPss:  9 kB\n", "Pss") == 9216
    assert idle.tcp(SOCKSTAT) == (40, 17)
    for wanting in (lambda: idle.kilobytes(STATUS, "Rss"), lambda: idle.tcp("UDP: inuse 2 mem 5\n")):
        with pytest.raises(BenchError, match="this kernel does not report"):
            wanting()


def test_this_process_has_levels() -> None:
    if not Path("/proc/self/smaps_rollup").exists():
        wants.skip("Linux", "the kernel's figures are its own")
    one, two = idle.levels([psutil.Process()]), idle.levels([psutil.Process()] * 2)
    assert one.anon > 1_000_000
    assert two.anon == pytest.approx(2 * one.anon, rel=0.1)
    assert one.pss > one.anon / 2
    assert one.objects > one.buffers >= 0
    assert one.sockets >= 0


def test_objects_of_the_kernel_are_those_in_use() -> None:
    heading = "slabinfo - version: 2.1\n# name <active_objs> <num_objs> <objsize> <objperslab> <pagesperslab> : …\n"
    rows = "TCP  92  143  2368 13 8 : tunables 0 0 0 : slabdata 11 11 0\nfilp 10 840 192 21 1 : tunables 0 0 0 : …\n"
    assert idle.objects_in_use(heading + rows) == 92 * 2368 + 10 * 192


def test_the_kernels_growth_is_that_of_two_ends() -> None:
    before = idle.Levels(1, 2, 3, 4, 5)
    after = idle.Levels(10_000_001, 12_000_002, 8_000_003, 400_004, 2005)
    assert idle.per_client(idle.Found(1000, before, after, 0)) == (10_000, 12_000, 4_000, 200)
    with pytest.raises(BenchError, match="other programs closed their connections meanwhile"):
        idle.per_client(idle.Found(1000, before, after._replace(sockets=1004), 0))


@pytest.mark.parametrize(("each_bytes", "lost", "met"), [(16_000, 0, [True, True]), (16_001, 1, [False, False])])
def test_an_idle_client_may_take_16_kb(each_bytes: int, lost: int, met: list[bool]) -> None:
    grown = idle.Levels(each_bytes * 1000, 18_000_000, 8_000_000, 400_000, 2000)
    checks = idle.checks(idle.Found(1000, idle.Levels(0, 0, 0, 0, 0), grown, lost))
    assert [check.met for check in checks] == met
    assert checks[0].measured == "16.0 kB (PSS 18.0 kB); 4.2 kB more in the kernel"
    assert checks[1].measured == str(lost)


@pytest.mark.cluster
async def test_a_few_idle_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(idle, "_WARM_UP", 10)
    monkeypatch.setattr(idle, "_PER_ENDPOINT", 15)
    seen = await idle.measure(30, 0.1)
    assert (seen.clients, seen.lost) == (20, 0)


@pytest.mark.cluster
@pytest.mark.parametrize("kind", ["websocket", "stream"])
async def test_idle_clients_that_lost_their_connections_are_not_counted(tmp_path: Path, kind: str) -> None:
    with contextlib.ExitStack() as stack:
        serve = ("serve", "--port", "0", "--store", f"lmdb:{tmp_path}/store")
        url, endpoint = stack.enter_context(light.started("ingeborg.broker.command.cli", *serve))
        assignment = {"urls": [url], "numbers": [0, 8], "kind": kind}
        async with clients.started_clients("ingeborg.bench.budgets.idle_clients", [assignment]) as (process,):
            for command, connected in (({"connect": 3}, 3), ({"connect": 100}, 8), ({}, 8)):
                process.tell(command)
                assert await process.told(20) == {"connected": connected}
            endpoint.kill()
            endpoint.wait(10)
            connected = 8
            async with asyncio.timeout(60):
                while connected:  # each answer is a turn of its loop, in which it may see some connections end
                    process.tell({})
                    connected = (await process.told(20))["connected"]
