"""Accepting: which process takes a connection of a shared port (ADR 27), that no client waits forever, and how clients
fare when files run out."""

from __future__ import annotations

import asyncio
import errno
import heapq
import itertools
import os
import random
import secrets
import socket
import ssl
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from hypothesis import given
from hypothesis import strategies as st

from ingeborg.broker.command.serve import listen
from ingeborg.broker.core.model import Endpoint
from ingeborg.broker.shell import accepting, status_table
from ingeborg.broker.shell.accepting import AT_ONCE, HANDSHAKES_S, PAUSES_MAX, SLACK, Accepting, Share
from ingeborg.broker.shell.server import EndpointServer
from ingeborg.broker.shell.status_table import Other, State, StatusTable
from ingeborg.broker.store.embedded.store import EmbeddedStore
from ingeborg.protocol.pages import fetch
from tests import wants
from tests.cluster.processes import eventually
from tests.conftest import Logged

from ..running import PATIENCE_S, SECRET, UNHURRIED, Running, certificate, plain, raw, round_trip, running, scheme

# -- The decision alone

counts = st.integers(0, 10_000)


@given(st.lists(st.tuples(counts, st.lists(st.builds(Other, counts, counts), max_size=8)), min_size=1, max_size=30))
def test_it_takes_some_or_waits_for_some_milliseconds_at_the_most(
    turns: list[tuple[int, list[Other]]],
) -> None:
    share = Share()
    pauses = 0
    for mine, others in turns:
        taken = share.turn(mine, others)
        assert 0 <= taken <= AT_ONCE
        mean = (mine + sum(other.connections for other in others)) / (1 + len(others))
        if mine <= int(mean) or not others:
            assert taken > 0
        pauses = 0 if taken else pauses + 1
        assert pauses <= PAUSES_MAX


@given(counts, st.lists(counts, min_size=1, max_size=8))
def test_one_that_has_more_than_its_share_waits_once_where_no_other_takes_any(mine: int, others: list[int]) -> None:
    share = Share()
    stand_still = [Other(connections, connections) for connections in others]
    assert share.turn(mine, stand_still) or share.turn(mine, stand_still) >= 1


@given(st.lists(st.tuples(counts, st.lists(counts, min_size=1, max_size=8)), min_size=1, max_size=30))
def test_one_without_files_leaves_what_waits_to_others_as_long_as_they_come(turns: list[tuple[int, list[int]]]) -> None:
    """And then takes it, so that clients get an answer and do not hang."""
    share = Share()
    for mine, connections in turns:
        share.turn(mine, [])
        others = [Other(count, count) for count in connections]
        pauses = 0
        while not (taken := share.turn(mine, others, is_full=True)):
            pauses += 1
            others = [Other(other.connections + 1, other.taken + 1) for other in others]
        assert (taken, pauses) == (AT_ONCE, PAUSES_MAX)
        assert share.turn(mine, others, is_full=True) == 0
        assert share.turn(mine, others, is_full=True) == AT_ONCE  # the others have taken none meanwhile


class World:
    """Processes that accept from one queue, in virtual time: each comes after its own delay."""

    def __init__(self, processes: int, seed: int, delay_s: Callable[[random.Random, int], float]) -> None:
        self.drawn = random.Random(seed)
        self.delay_s = delay_s
        self.now = 0.0
        self.queue: deque[float] = deque()  # when each came
        self.waited: list[float] = []
        self.held = [0] * processes
        self.taken = [0] * processes
        self.shares = [Share() for _ in range(processes)]
        self.armed = [True] * processes
        self.due: set[int] = set()  # processes on their way
        self.stands = [False] * processes
        self.known_to_stand: set[int] = set()
        self.events: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()

    def at(self, when: float, do: Callable[[], None]) -> None:
        heapq.heappush(self.events, (when, next(self._numbers), do))

    def run(self) -> None:
        while self.events:
            self.now, _, do = heapq.heappop(self.events)
            do()

    def comes(self) -> None:
        self.queue.append(self.now)
        self.wake()

    def wake(self) -> None:
        for process in range(len(self.held)):
            if self.armed[process] and not self.stands[process] and process not in self.due:
                self.due.add(process)
                self.at(self.now + self.delay_s(self.drawn, process), lambda process=process: self.turn(process))  # type: ignore[misc]

    def turn(self, process: int) -> None:
        self.due.discard(process)
        if self.stands[process]:
            return
        others = [
            Other(self.held[other], self.taken[other])
            for other in range(len(self.held))
            if other != process and other not in self.known_to_stand
        ]
        most = self.shares[process].turn(self.held[process], others)
        if not most:
            self.armed[process] = False
            self.at(self.now + self.shares[process].pause_s, lambda: self.turn_again(process))
            return
        self.armed[process] = True
        for _ in range(min(most, len(self.queue))):
            self.waited.append(self.now - self.queue.popleft())
            self.held[process] += 1
            self.taken[process] += 1
        if self.queue:
            self.wake()

    def turn_again(self, process: int) -> None:
        if self.queue:
            self.turn(process)
        else:
            self.shares[process].all_taken()
            self.armed[process] = True

    def stops(self, process: int) -> None:
        self.stands[process] = True
        self.at(self.now + status_table.FRESH_S, lambda: self.known_to_stand.add(process))


def ordinary(drawn: random.Random, _: int) -> float:
    return drawn.expovariate(1 / 0.001)


def one_is_quick(drawn: random.Random, process: int) -> float:
    """The first one always comes before the others, as one that has nothing else to do."""
    return 0.00005 if process == 0 else drawn.expovariate(1 / 0.002)


@pytest.mark.parametrize(("delay_s", "most"), [(ordinary, 4), (one_is_quick, SLACK)])
@pytest.mark.parametrize("seed", range(5))
def test_few_connections_are_spread_evenly_too(
    delay_s: Callable[[random.Random, int], float], most: int, seed: int
) -> None:
    """Twenty connections, each of which can carry a thousand messages a second."""
    world = World(2, seed, delay_s)
    for number in range(20):
        world.at(number / 1_000, world.comes)
    world.run()
    assert len(world.waited) == 20
    assert max(world.held) - min(world.held) <= most
    assert max(world.waited) < 0.2


@pytest.mark.parametrize("delay_s", [ordinary, one_is_quick])
@pytest.mark.parametrize("rate", [100, 1_000, 20_000])
@pytest.mark.parametrize("seed", range(3))
def test_connections_are_spread_evenly_whoever_comes_first(
    delay_s: Callable[[random.Random, int], float], rate: int, seed: int
) -> None:
    world = World(4, seed, delay_s)
    for number in range(4_000):
        world.at(number / rate, world.comes)
    world.run()
    assert len(world.waited) == 4_000
    assert max(world.held) - min(world.held) <= 2 * (SLACK + AT_ONCE)
    assert max(world.waited) < 0.2


@pytest.mark.parametrize("seed", range(3))
def test_processes_that_came_later_catch_up(seed: int) -> None:
    world = World(4, seed, one_is_quick)
    world.held[0] = 3_000
    for number in range(3_000):
        world.at(number / 1_000, world.comes)
    world.run()
    assert world.taken[0] < 300
    assert max(world.waited) < 0.1


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("fewest", [True, False])
def test_nobody_waits_for_one_that_stands_still(seed: int, fewest: bool) -> None:
    """Even if it has the fewest, so that all others leave new connections to it until they know."""
    world = World(4, seed, ordinary)
    world.held[3] = 0 if fewest else 500
    world.held[:3] = [500] * 3
    world.at(0.5, lambda: world.stops(3))
    for number in range(3_000):
        world.at(number / 1_000, world.comes)
    world.run()
    assert len(world.waited) == 3_000
    assert max(world.waited) < 0.1


# -- With sockets

with_sockets = pytest.mark.usefixtures("transport", "logged")


async def until(condition: Callable[[], bool]) -> None:
    """Poll until it is true."""

    async def true() -> bool:
        return condition()

    await eventually(true, "what is waited for")


class Shared:
    """A shared port from which this process accepts besides an endpoint's own, and the status table."""

    def __init__(self, endpoint: Running, made: StatusTable) -> None:
        self.endpoint = endpoint
        self.status_table = made
        self.sock = listen("127.0.0.1", 0)
        self.url = f"{scheme()}://127.0.0.1:{self.sock.getsockname()[1]}/"
        tls: dict[str, Any] = {}
        if (shown := certificate()) is not None:
            tls = {"ssl": shown.context, "ssl_handshake_timeout": 5, "ssl_shutdown_timeout": 5}
        self.counts = endpoint.server.router.counters.counts
        self.accepting = Accepting(self.sock, endpoint.server.clients, tls, self.counts, entry=made.entry(0))

    def held(self) -> int:
        """The number of connections, from the others' view."""
        self.status_table.entry(0).show(State.ACCEPTING, time.monotonic())
        [other] = self.status_table.entry(1).others()
        return other.connections

    async def until_held(self, count: int) -> None:
        await until(lambda: self.held() == count)


@pytest_asyncio.fixture
async def shared(tmp_path: Path) -> AsyncIterator[Shared]:
    made = status_table.make(2, 1000)
    for number in range(2):
        made.begin(number)
    async with running(tmp_path) as endpoint:
        shared = Shared(endpoint, made)
        yield shared
        shared.accepting.close()
    made.close()


@with_sockets
async def test_what_comes_waits_while_it_is_not_ready(shared: Shared) -> None:
    waiting = asyncio.create_task(round_trip(shared.url))
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(asyncio.shield(waiting), 0.2)
    assert shared.held() == 0
    shared.accepting.follow(True)
    await waiting
    shared.accepting.follow(False)
    shared.accepting.follow(False)
    waiting = asyncio.create_task(round_trip(shared.url))
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(asyncio.shield(waiting), 0.2)
    shared.accepting.follow(True)
    await waiting


@with_sockets
async def test_the_others_see_how_many_connections_it_has(shared: Shared) -> None:
    shared.accepting.follow(True)
    async with plain(shared.url), plain(shared.url):
        assert shared.held() == 2
        async with plain(shared.url):
            assert shared.held() == 3
        await shared.until_held(2)
    await shared.until_held(0)


@pytest.mark.over_tls
@with_sockets
async def test_one_that_does_not_get_through_tls_is_not_counted(shared: Shared) -> None:
    shared.accepting.follow(True)
    port = shared.sock.getsockname()[1]
    distrustful = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    with pytest.raises(ssl.SSLError):
        await asyncio.open_connection("127.0.0.1", port, ssl=distrustful, server_hostname="x")
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    await shared.until_held(1)
    writer.close()
    await shared.until_held(0)


@with_sockets
async def test_handshakes_under_way_end_before_it_does(shared: Shared) -> None:
    shared.accepting.follow(True)
    async with raw(shared.url) as late:
        await shared.until_held(1)
        ending = asyncio.create_task(shared.accepting.end())
        await asyncio.sleep(0)
        assert not ending.done()
        waiting = asyncio.create_task(round_trip(shared.url))  # it accepts nobody else
        assert (await late.upgrade()).startswith(b"HTTP/1.1 101 ")
        await ending
        assert shared.held() == 1
        waiting.cancel()


@pytest.mark.over_tcp
@with_sockets
async def test_one_that_says_nothing_holds_up_the_end_for_a_second(shared: Shared) -> None:
    shared.accepting.follow(True)
    async with raw(shared.url), plain(shared.url):
        await shared.until_held(2)
        began = time.monotonic()
        await shared.accepting.end()
        assert time.monotonic() - began >= HANDSHAKES_S * 0.99


@with_sockets
async def test_it_takes_what_others_with_fewer_connections_do_not_come_for(shared: Shared) -> None:
    """The other one shows that it accepts, and never comes."""
    shared.accepting.follow(True)
    for _ in range(3 * SLACK):
        shared.status_table.entry(1).show(State.ACCEPTING, time.monotonic())
        await round_trip(shared.url)
    keep = [await asyncio.open_connection("127.0.0.1", shared.sock.getsockname()[1]) for _ in range(3 * SLACK)]
    shared.status_table.entry(1).show(State.ACCEPTING, time.monotonic())
    await shared.until_held(len(keep))
    for _, writer in keep:
        writer.transport.abort()


class NoFiles:
    """A listening socket of a process that has no file left."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self.failures = 0
        self.error = errno.EMFILE

    def accept(self) -> Any:
        if self.failures:
            self.failures -= 1
            raise OSError(self.error, os.strerror(self.error))
        return self._sock.accept()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sock, name)


@pytest.mark.over_tcp
@with_sockets
async def test_without_files_it_leaves_what_waits_to_others_and_tries_again(
    shared: Shared, logged: Logged, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accepting, "FULL_S", 0.05)
    logged.expect("cannot accept: (Too many open files|Invalid argument); trying again")
    none_left = NoFiles(shared.sock)
    shared.accepting._sock = none_left  # type: ignore[assignment]
    none_left.failures = 3
    shared.accepting.follow(True)
    await round_trip(shared.url)
    assert shared.counts["accepts_failed"] == 3
    none_left.error, none_left.failures = errno.ECONNABORTED, 1  # its client has left meanwhile
    await round_trip(shared.url)
    assert shared.counts["accepts_failed"] == 3
    none_left.error, none_left.failures = errno.EINVAL, 1  # an unforeseen error counts as well
    await round_trip(shared.url)
    assert shared.counts["accepts_failed"] == 4


@pytest.mark.over_tcp
@with_sockets
async def test_not_ready_while_it_pauses_it_does_not_come_back_by_itself(shared: Shared, logged: Logged) -> None:
    logged.expect("cannot accept")
    none_left = NoFiles(shared.sock)
    shared.accepting._sock = none_left  # type: ignore[assignment]
    none_left.failures = 1
    shared.accepting.follow(True)
    waiting = asyncio.create_task(round_trip(shared.url))
    await until(lambda: shared.counts["accepts_failed"] == 1)
    shared.accepting.follow(False)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(asyncio.shield(waiting), 3 * accepting.FULL_S)
    shared.accepting.follow(True)
    await waiting


# -- When files run out


class Files:
    """The number of descriptors that this process believes it can have."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        wants.interpreted()
        self.most = 1 << 20
        self._gaps: list[int] = []
        monkeypatch.setattr(accepting, "files_max", lambda: self.most)
        monkeypatch.setattr(accepting, "SPARE_FILES", 2 * (SPARE + OWN))
        monkeypatch.setattr(accepting, "SPARE_PART", 1)

    def leave(self, files: int) -> None:
        """Allow this many more from now on. First fill the gaps between the open descriptors, so that the next ones
        have successive numbers."""
        highest = max(map(int, os.listdir("/dev/fd")))
        while (next_one := os.dup(0)) < highest:
            self._gaps.append(next_one)
        os.close(next_one)
        self.most = next_one + files

    def close(self) -> None:
        """Give the gaps back."""
        for descriptor in self._gaps:
            os.close(descriptor)


#: Connections that pages and links can still have, and more than a test opens besides.
SPARE = OWN = 8


@pytest.fixture
def files(monkeypatch: pytest.MonkeyPatch) -> Iterator[Files]:
    made = Files(monkeypatch)
    yield made
    made.close()


NO_FILE = "clients use all open files available to them"


async def refused(url: str) -> str:
    """Return the answer to a WebSocket client."""
    async with raw(url) as late:
        head = (await late.upgrade()).decode()
        assert head.startswith("HTTP/1.1 503 ")
        assert "Retry-After: 5\r\n" in head
        return (await late.rest()).decode()


@with_sockets
@pytest.mark.parametrize("port", ["own", "shared"])
async def test_without_files_clients_are_told_and_pages_and_links_go_on(
    shared: Shared, port: str, files: Files, logged: Logged, caplog: pytest.LogCaptureFixture
) -> None:
    logged.expect(NO_FILE)
    shared.accepting.follow(True)
    url = shared.url if port == "shared" else shared.endpoint.url
    async with plain(url) as connected:
        files.leave(2 * (SPARE + OWN))
        for _ in range(3):
            assert "no open file left for another client: try later" in await refused(url)
        page = await fetch(url, "/healthz")
        assert (page.status, page.text) == (200, "alive\n")
        async with raw(url) as link:
            assert (await link.upgrade("/_peer")).startswith(b"HTTP/1.1 101 ")
        assert await connected.ask({"command": "listen", "client_id": "c"}) == {"result": "success"}
        assert shared.counts["accepts_failed"] == 3
        assert caplog.text.count(NO_FILE) == 1
    files.most = 1 << 20
    await round_trip(url)  # without further action


@pytest.mark.over_tcp
@with_sockets
async def test_who_takes_the_files_of_pages_and_says_nothing_is_cut_soon(
    shared: Shared, files: Files, logged: Logged, monkeypatch: pytest.MonkeyPatch
) -> None:
    logged.expect(NO_FILE)
    monkeypatch.setattr(accepting, "SPARE_S", 0.1)
    url = shared.endpoint.url
    files.leave(SPARE + OWN + 2)  # the client's end and the endpoint's both belong to this process
    async with raw(url) as silent:
        files.leave(SPARE + OWN + 1)
        async with raw(url) as beyond:
            assert await beyond.rest() == b""  # closed at once: the rest is for the endpoint's own use
        assert shared.counts["accepts_failed"] == 1
        assert await silent.rest() == b""


@pytest.mark.over_tcp
@with_sockets
async def test_a_port_of_its_own_that_cannot_be_accepted_from_is_tried_again(
    shared: Shared, logged: Logged, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accepting, "FULL_S", 0.05)
    logged.expect("cannot accept: Too many open files in system; trying again")
    [own] = shared.endpoint.server._own
    none_left = NoFiles(own._sock)
    none_left.error, none_left.failures = errno.ENFILE, 3
    monkeypatch.setattr(own, "_sock", none_left)
    await round_trip(shared.endpoint.url)
    assert shared.counts["accepts_failed"] == 3


# -- As part of an endpoint


@pytest_asyncio.fixture
async def serving(tmp_path: Path) -> AsyncIterator[tuple[EndpointServer, StatusTable, str]]:
    """An endpoint at a shared port, the status table, and its URL."""
    made = status_table.make(2, 1000)
    for number in range(2):
        made.begin(number)
    sock = listen("127.0.0.1", 0)
    url = f"{scheme()}://127.0.0.1:{sock.getsockname()[1]}"
    server = EndpointServer(
        Endpoint("e", secrets.token_hex(8), url, 0),
        EmbeddedStore(tmp_path, timeout_s=PATIENCE_S),
        secret=SECRET,
        store_name="lmdb",
        certificate=certificate(),
        patience=UNHURRIED,
        drain_s=0.0,
        entry=made.entry(0),
    )
    await server.start(sock, shared=True)
    async with asyncio.timeout(PATIENCE_S):
        await server.ready.wait()
    yield server, made, f"{url}/"
    if not server.status.leaving:
        await server.stop()
    made.close()


@with_sockets
async def test_an_endpoint_accepts_while_it_is_ready(
    serving: tuple[EndpointServer, StatusTable, str], logged: Logged, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, made, url = serving
    assert made.accepts(0, time.monotonic())  # as soon as it reports that it is ready
    await round_trip(url)
    logged.expect("not ready: as the test wants it")
    monkeypatch.setattr(server.status, "not_ready", lambda: ["as the test wants it"])
    await until(lambda: not made.accepts(0, time.monotonic()))
    waiting = asyncio.create_task(round_trip(url))
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(asyncio.shield(waiting), 0.3)
    monkeypatch.undo()
    await waiting


@with_sockets
async def test_an_endpoint_that_leaves_turns_nobody_away_whose_handshake_it_has_begun(
    serving: tuple[EndpointServer, StatusTable, str],
) -> None:
    server, made, url = serving
    async with raw(url) as late:
        await until(lambda: bool(made.entry(1).others()) and made.entry(1).others()[0].connections == 1)
        stopping = asyncio.create_task(server.stop())
        await asyncio.sleep(0)
        assert not made.accepts(0, time.monotonic())
        assert (await late.upgrade()).startswith(b"HTTP/1.1 101 ")
        assert await late.close_code() == 1001
        late.writer.transport.abort()
        await stopping
