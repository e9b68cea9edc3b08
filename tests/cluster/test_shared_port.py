"""`ingeborg serve --share-port` as real processes: one stands still, dies or restarts, and the others serve every
client that connects, without delay. ADR 27.

Clients here connect, do the opening handshake and leave, one after the other from several places at once. The tests
wait for a number of clients, not for a time: their speed depends on the machine.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import psutil
import pytest
from websockets.exceptions import InvalidStatus

from ingeborg.bench.starting import Said, awaited, claim, ready
from ingeborg.broker.shell.accepting import SLACK
from ingeborg.protocol.pages import fetch, samples

from ..broker.running import HANDSHAKE, PATIENCE_S, Process, children, ingeborg, plain, round_trip
from .processes import eventually

pytestmark = pytest.mark.cluster

ENDPOINTS = 4
#: A client's time limit.
CONNECT_S = 10.0
#: Clients that connect at the same time.
AT_ONCE = 8

REQUEST = HANDSHAKE.format(path="/").encode()


class Broker(NamedTuple):
    """A supervisor whose endpoints are ready. ``inside``: their internal addresses, by name."""

    process: Process
    url: str
    inside: dict[str, str]

    def pid(self, name: str) -> int:
        """Return the process of that endpoint."""
        wanted = f"INGEBORG_NAME={name}".encode()
        for pid in children(self.process.pid):
            if wanted in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                return pid
        raise AssertionError(f"no process has the name {name}")

    async def connections(self) -> dict[str, int]:
        """Return each endpoint's."""
        found = {}
        for name, url in self.inside.items():
            page = await fetch(url, "/metrics", timeout_s=CONNECT_S)
            found[name] = next(int(each.value) for each in samples(page.text) if each.name == "ingeborg_connections")
        return found

    async def says(self, text: str) -> None:
        """Wait until the log has it."""

        async def said() -> bool:
            return text in self.process.said()

        await eventually(said, text)


@asynccontextmanager
async def sharing(
    directory: Path, *options: str, endpoints: int = ENDPOINTS, internal: str = "127.0.0.1:0", most: int = 1_000
) -> AsyncIterator[Broker]:
    store = f"lmdb:{directory / 'store'}"
    given = ["--port", "0", "--share-port", "--endpoints", str(endpoints), "--name", "e", "--store", store]
    given += ["--internal-address", internal] if internal else []
    # A finished test goes on at once, without waiting for clients to be sent away.
    variables = {"INGEBORG_DRAIN_TIME": "0.2", "INGEBORG_MAX_CONNECTIONS_PER_ADDRESS": str(most)}
    async with ingeborg(directory, "serve", *given, *options, variables=variables) as process:
        said = [await awaited(ready(process.child, PATIENCE_S)) for _ in range(endpoints)]
        urls = {each.url for each in said}
        assert len(urls) == 1
        yield Broker(process, f"{urls.pop()}/", {each.name: each.internal for each in said})
        assert "Traceback" not in process.said()


class Knock(NamedTuple):
    """A try to connect. ``error``: the outcome if no answer came."""

    number: int
    error: str


class Stream:
    """Clients that come until ``stop``, ``AT_ONCE`` at a time; one that gets no answer tries again."""

    def __init__(self, url: str) -> None:
        self.port = int(url.rstrip("/").rpartition(":")[2])
        self.begun = 0
        self.answered: set[int] = set()  # at the first try
        self.failed: list[Knock] = []  # first tries
        self.lost: list[Knock] = []  # second ones
        self._news = asyncio.Event()
        self._over = False

    async def _knock(self) -> str:
        writer = None
        try:
            async with asyncio.timeout(CONNECT_S):
                reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
                writer.write(REQUEST)
                head = await reader.readuntil(b"\r\n\r\n")
            return "" if head.startswith(b"HTTP/1.1 101 ") else head.decode().partition("\r\n")[0]
        except (OSError, asyncio.IncompleteReadError) as error:
            return repr(error)
        finally:
            if writer is not None:
                writer.transport.abort()

    async def clients(self) -> None:
        """Run one client after the other."""
        while not self._over:
            number = self.begun
            self.begun += 1
            error = await self._knock()
            if not error:
                self.answered.add(number)
            else:
                self.failed.append(Knock(number, error))
                if again := await self._knock():
                    self.lost.append(Knock(number, again))
            self._news.set()
            await asyncio.sleep(0.005)

    def stop(self) -> None:
        """Send no more clients."""
        self._over = True

    async def until(self, condition: Callable[[], bool], what: str) -> None:
        """Poll whenever a client has come and gone."""
        async with asyncio.timeout(PATIENCE_S):
            while not condition():
                assert not self.lost, (what, self.lost)
                self._news.clear()
                await self._news.wait()

    async def more(self, count: int) -> int:
        """Wait until this many clients that begin from now on got answers; return the number of the first one."""
        first = self.begun
        await self.until(lambda: sum(number >= first for number in self.answered) >= count, f"{count} answers")
        return first


@asynccontextmanager
async def streaming(url: str) -> AsyncIterator[Stream]:
    """Check that in the end all have finished, and none was refused twice."""
    stream = Stream(url)
    async with asyncio.TaskGroup() as group:
        for _ in range(AT_ONCE):
            group.create_task(stream.clients())
        try:
            yield stream
        finally:
            stream.stop()
    assert not stream.lost


async def test_they_are_at_one_port_and_each_has_an_internal_address(tmp_path: Path) -> None:
    with claim(ENDPOINTS + 1) as ports:
        options = ["--port", str(ports.first)]
        async with sharing(tmp_path, *options, internal="") as broker:
            assert broker.url == f"ws://127.0.0.1:{ports.first}/"
            inside = {f"e-{n + 1}": f"ws://127.0.0.1:{ports.first + n + 1}" for n in range(ENDPOINTS)}
            assert broker.inside == inside
            await round_trip(broker.url)
            assert (await fetch(broker.url, "/readyz")).status == 200
            page = await fetch(broker.url, "/metrics")
            assert (page.status, "internal address" in page.text) == (404, True)
            for url in inside.values():
                assert (await fetch(url, "/readyz")).status == 200
                with pytest.raises(InvalidStatus, match="404"):
                    async with plain(f"{url}/"):
                        pass
            assert await broker.process.end() == 0


async def test_connections_are_spread_evenly(tmp_path: Path) -> None:
    async with sharing(tmp_path) as broker, AsyncExitStack() as stack:
        async with asyncio.TaskGroup() as group:
            turns = asyncio.Semaphore(AT_ONCE)

            async def come() -> None:
                async with turns:
                    await stack.enter_async_context(plain(broker.url))

            for _ in range(1_000):
                group.create_task(come())
        counts = await broker.connections()
        assert sum(counts.values()) == 1_000
        assert all(150 <= count <= 350 for count in counts.values()), counts


async def test_one_that_stands_still_keeps_nobody_waiting(tmp_path: Path) -> None:
    async with sharing(tmp_path) as broker, streaming(broker.url) as stream:
        await stream.more(50)
        pid = broker.pid("e-2")
        os.kill(pid, signal.SIGSTOP)
        first = await stream.more(300)
        os.kill(pid, signal.SIGCONT)
        # The other processes served the clients that came while it stood still.
        assert all(knock.number < first for knock in stream.failed), stream.failed
        await stream.more(50)
        assert all(knock.number < first for knock in stream.failed), stream.failed

        async def ready_again() -> bool:
            return (await fetch(broker.inside["e-2"], "/readyz", timeout_s=CONNECT_S)).status == 200

        await eventually(ready_again, "e-2 takes part again")


async def test_one_that_is_killed_keeps_nobody_waiting(tmp_path: Path) -> None:
    async with sharing(tmp_path) as broker, streaming(broker.url) as stream:
        await stream.more(50)
        victim = psutil.Process(broker.pid("e-3"))
        victim.kill()

        async def dead() -> bool:
            return not victim.is_running() or victim.status() == psutil.STATUS_ZOMBIE

        await eventually(dead, "the death of e-3")
        first = await stream.more(200)
        assert all(knock.number < first for knock in stream.failed), stream.failed
        again = await awaited(ready(broker.process.child, PATIENCE_S))
        assert again.name == "e-3"
        await stream.more(50)
        assert all(knock.number < first for knock in stream.failed), stream.failed


@pytest.mark.parametrize("endpoints", [1, pytest.param(3, marks=pytest.mark.prove)])
async def test_a_rolling_restart_refuses_no_connection(tmp_path: Path, endpoints: int) -> None:
    async with sharing(tmp_path, endpoints=endpoints) as broker, streaming(broker.url) as stream:
        await stream.more(50)
        names = sorted(broker.inside)
        before = {name: broker.pid(name) for name in names}
        broker.process.child.signal(signal.SIGHUP)
        await broker.says("all endpoints are restarted")
        await stream.more(50)
        assert stream.failed == []
        said = broker.process.said()
        assert re.findall(r"restarting endpoint (\S+)", said) == names
        assert re.findall(r"endpoint (\S+) has restarted and is ready", said) == names
        assert "starting it again" not in said
        assert all(broker.pid(name) != before[name] for name in names)


async def test_the_limit_of_an_address_is_that_of_all_of_them_and_a_dead_one_s_count_is_free(tmp_path: Path) -> None:
    most = 4 * SLACK
    forwarded = {"additional_headers": {"X-Forwarded-For": "203.0.113.7"}}
    async with sharing(tmp_path, "--trusted-proxies", "127.0.0.0/8", most=most) as broker, AsyncExitStack() as stack:
        for _ in range(most):
            await stack.enter_async_context(plain(broker.url, **forwarded))
        for _ in range(10):  # at any process
            with pytest.raises(InvalidStatus, match="429"):
                await stack.enter_async_context(plain(broker.url, **forwarded))
        await round_trip(broker.url)  # from this machine: any number
        counts = await broker.connections()
        assert sum(counts.values()) == most
        name, freed = max(counts.items(), key=lambda item: item[1])
        assert 0 < freed < most
        os.kill(broker.pid(name), signal.SIGKILL)
        again: Said = await awaited(ready(broker.process.child, PATIENCE_S))
        assert again.name == name
        for _ in range(freed):
            await stack.enter_async_context(plain(broker.url, **forwarded))
        with pytest.raises(InvalidStatus, match="429"):
            await stack.enter_async_context(plain(broker.url, **forwarded))
