"""The duties of every adapter, against its real server: one suite, subclassed once per system.

Owns: the behaviour that `loadgen/backends/base.py` promises. Must never: know a system. A subclass names its system:

    class TestNats(Contract):
        system = "nats"

No test waits with a clock for "nothing comes": a fence, published afterwards by the same connection, arrives first.
A system that keeps order only within a topic sets ``linger_s`` instead.

Tests share a server, which delivers what a test wrote during a pause once it goes on: such a test publishes on its own
topic.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import ClassVar
from urllib.parse import urlsplit

import pytest

from ingeborg.loadgen.backends import SYSTEMS, open_backend
from ingeborg.loadgen.backends.base import Backend, BackendError, Connection
from tests.cluster.processes import free_port
from tests.loadgen.generator import Generator

from .conftest import PATIENCE_S, Server, Servers

#: Topics with a special meaning in other systems, and topics that are easily confused.
NASTY = [
    "a", "A", "a ", " a", " ", "a.b", "a..b", ".a", "a.", ".", "a/b", "/a", "a/", "/", "a//b", "*", ">", "+", "#",
    "a.*", "a.>", "a/+", "a/#", "a.#", "**", "?", "[a]", "[ab]", "a?", "\\*", "$", "$SYS", "$SYS/broker/version",
    "$SYS.ACCOUNT", "$share/g/a", "$queue/a", "_INBOX.a", "__consumer_offsets", "amq.topic", "%", "%20", "%2E", "%2e",
    "a%2Eb", "_", "__", "-", "a_b", "a-b", "a:b", "a,b", ";", "'", '"', "{a}", "~", "..", "...", "/" * 300, "." * 1024,
    " " * 1024, "é", "e\N{COMBINING ACUTE ACCENT}", "\N{NO-BREAK SPACE}", "\N{IDEOGRAPHIC SPACE}",
    "\N{LINE SEPARATOR}", "\N{ZERO WIDTH NO-BREAK SPACE}a", "\ufdd0", "\uffff", "\U0001fffe", "\U0010ffff",
    "東京", "👩‍🎤" * 93, "x" * 1024, "x" * 1023 + "y",
]  # fmt: skip


class Member:
    """A connection, and everything that it received, in order."""

    def __init__(self) -> None:
        self.received: list[tuple[str, str]] = []
        self.errors: list[str] = []
        self.connection: Connection
        self._news = asyncio.Event()

    def on_message(self, topic: str, payload: str) -> None:
        self.received.append((topic, payload))
        self._news.set()

    def on_error(self, code: str) -> None:
        self.errors.append(code)
        self._news.set()

    async def until(self, condition: Callable[[], object]) -> None:
        """Wait until the condition is true after a message came."""
        try:
            async with asyncio.timeout(PATIENCE_S):
                while not condition():
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            pytest.fail(f"after {PATIENCE_S:g} s: {len(self.received)} messages, errors {Counter(self.errors)}")

    async def has(self, count: int) -> None:
        await self.until(lambda: len(self.received) >= count)

    async def fence(self, linger_s: float) -> None:
        """Wait until every earlier publish of this connection has come back, if it ever will. The fence leaves nothing
        in ``received``."""
        fence = f"the fence of {id(self)}"
        await self.connection.subscribe([fence])
        await self.connection.publish([(fence, "")])
        await self.until(lambda: (fence, "") in self.received)
        await self.connection.unsubscribe([fence])
        self.received.remove((fence, ""))
        if linger_s:
            await asyncio.sleep(linger_s)


class Contract:
    """Subclass, name ``Test…``."""

    system: ClassVar[str]
    #: The server's name in `bench rivals`, if it is another one.
    rival: ClassVar[str] = ""
    #: How long to wait for messages that must not come, in seconds, if a fence proves nothing.
    linger_s: ClassVar[float] = 0.0
    #: Constants of the adapter's module, in seconds: for connecting, and for a call that makes no progress.
    connect_timeout: ClassVar[str] = "_CONNECT_TIMEOUT_S"
    progress_timeout: ClassVar[str] = "_PROGRESS_TIMEOUT_S"

    @pytest.fixture
    def shared(self, servers: Callable[[str], Servers]) -> Server:
        """Return the server that tests share. No test may kill it."""
        return servers(self.system)(self.rival or self.system)

    @pytest.fixture
    def url(self, shared: Server) -> str:
        """Return that server's URL."""
        return shared.url

    @pytest.fixture
    def mortal(self, servers: Callable[[str], Servers]) -> Iterator[Server]:
        """Yield a server that the test may kill: the shared one, whose tests are over."""
        server = servers(self.system).mortal(self.rival or self.system)
        yield server
        server.kill()

    @pytest.fixture
    def pausable(self, shared: Server) -> Iterator[Server]:
        """Yield the shared server; it goes on when the test has paused it, and closed its connections."""
        yield shared
        shared.resume()

    @pytest.fixture
    async def join(self) -> AsyncIterator[Callable[[str], Awaitable[Member]]]:
        """Yield a function that connects to a URL; all connections are closed at the end."""
        backends: dict[str, Backend] = {}
        members: list[Member] = []

        async def connect(url: str) -> Member:
            if url not in backends:
                backends[url] = open_backend(self.system, [url], f"contract-{free_port()}")
            member = Member()
            member.connection = await backends[url].connect(len(members), member.on_message, member.on_error)
            members.append(member)
            return member

        yield connect
        async with asyncio.timeout(PATIENCE_S):
            await asyncio.gather(*(member.connection.close() for member in members))
            await asyncio.gather(*(backend.close() for backend in backends.values()))

    def set_timeout(self, monkeypatch: pytest.MonkeyPatch, name: str, seconds: float) -> None:
        """Set a time-out in the adapter's module; it has to be there."""
        open_backend(self.system, [self.nowhere()], "contract")
        package, _, _ = SYSTEMS[self.system].factory.partition(":")
        monkeypatch.setattr(sys.modules[f"ingeborg.loadgen.backends.{package}"], name, seconds)

    def nowhere(self) -> str:
        """Return a URL without a listener."""
        return f"{SYSTEMS[self.system].schemes[0]}://127.0.0.1:{free_port()}"

    async def test_own_and_others_publishes_come_once(self, url: str, join: Callable[[str], Awaitable[Member]]) -> None:
        one, other = await join(url), await join(url)
        await one.connection.subscribe(["news", "weather"])
        await other.connection.subscribe(["news"])
        await one.connection.publish([("news", "from one"), ("weather", "sunny"), ("unheard", "lost")])
        await other.connection.publish([("news", "from the other")])
        await one.has(3)
        await other.has(2)
        await asyncio.gather(one.fence(self.linger_s), other.fence(self.linger_s))
        assert Counter(one.received) == Counter(
            [("news", "from one"), ("weather", "sunny"), ("news", "from the other")]
        )
        assert Counter(other.received) == Counter([("news", "from one"), ("news", "from the other")])
        assert one.errors == other.errors == []

    async def test_order_holds_for_each_topic_and_publisher(
        self, url: str, join: Callable[[str], Awaitable[Member]]
    ) -> None:
        publishers = [await join(url) for _ in range(3)]
        subscribers = [await join(url) for _ in range(2)]
        topics = ["first in line", "second in line"]
        for subscriber in subscribers:
            await subscriber.connection.subscribe(topics)

        async def publish(number: int) -> None:
            for first in range(0, 300, 30):
                await publishers[number].connection.publish(
                    [(topic, f"{number} {n}") for n in range(first, first + 30) for topic in topics]
                )

        await asyncio.gather(*map(publish, range(3)))
        for subscriber in subscribers:
            await subscriber.has(3 * 300 * 2)
            for number in range(3):
                for topic in topics:
                    told = [p for t, p in subscriber.received if t == topic and p.startswith(f"{number} ")]
                    assert told == [f"{number} {n}" for n in range(300)]

    async def test_no_topic_is_a_pattern_or_another_one(
        self, url: str, join: Callable[[str], Awaitable[Member]]
    ) -> None:
        assert all(len(topic.encode()) <= 1024 for topic in NASTY)
        assert len(set(NASTY)) == len(NASTY)
        alone = {topic: await join(url) for topic in NASTY}
        everything = await join(url)
        await asyncio.gather(*(member.connection.subscribe([topic]) for topic, member in alone.items()))
        await everything.connection.subscribe(NASTY)
        await everything.connection.publish([(topic, f"of {topic}") for topic in NASTY])
        await everything.has(len(NASTY))
        await everything.fence(self.linger_s)
        assert sorted(everything.received) == sorted((topic, f"of {topic}") for topic in NASTY)

        async def has_its_own(topic: str, member: Member) -> None:
            await member.has(1)
            await member.fence(0)
            assert member.received == [(topic, f"of {topic}")]

        async with asyncio.TaskGroup() as group:
            for topic, member in alone.items():
                group.create_task(has_its_own(topic, member))

    async def test_a_payload_comes_as_it_was_sent(self, url: str, join: Callable[[str], Awaitable[Member]]) -> None:
        payloads = [
            "", " ", "0", "null", '"quoted"', "it's", "a\\b", "\r\n", "PUB x 1\r\ny\r\n", "\0", "\x7f", "tab\t",
            "é 東京 👩‍🎤 \U0010ffff", "%20", "x" * 4096, "👩" * 1024,
        ]  # fmt: skip
        member = await join(url)
        await member.connection.subscribe(["payloads"])
        await member.connection.publish([("payloads", payload) for payload in payloads])
        await member.has(len(payloads))
        assert [payload for _, payload in member.received] == payloads

    async def test_unsubscribing_ends_delivery(self, url: str, join: Callable[[str], Awaitable[Member]]) -> None:
        member, other = await join(url), await join(url)
        await member.connection.subscribe(["going", "staying"])
        await other.connection.subscribe(["going"])
        await member.connection.unsubscribe(["going"])
        await member.connection.publish([("going", "1"), ("staying", "2")])
        await member.has(1)
        await other.has(1)
        await member.fence(self.linger_s)
        assert member.received == [("staying", "2")]
        assert other.received == [("going", "1")]

        await member.connection.subscribe(["going"])
        await member.connection.publish([("going", "3")])
        await member.has(2)
        assert member.received == [("staying", "2"), ("going", "3")]

    async def test_subscribed_means_from_now_on(self, url: str, join: Callable[[str], Awaitable[Member]]) -> None:
        subscriber, publisher = await join(url), await join(url)
        topics = [f"from now on {n}" for n in range(50)]
        for topic in topics:
            await subscriber.connection.subscribe([topic])
            await publisher.connection.publish([(topic, "")])
        await subscriber.has(len(topics))
        assert [topic for topic, _ in subscriber.received] == topics

    async def test_many_topics_at_once(self, url: str, join: Callable[[str], Awaitable[Member]]) -> None:
        topics = [f"one of many {n}" for n in range(5000)]
        member = await join(url)
        await member.connection.subscribe(topics)
        await member.connection.publish([(topic, topic) for topic in topics])
        await member.has(len(topics))
        assert sorted(member.received) == sorted((topic, topic) for topic in topics)

        await member.connection.unsubscribe(topics)
        await member.connection.publish([(topic, topic) for topic in topics[:100]])
        await member.fence(self.linger_s)
        assert len(member.received) == len(topics)

    async def test_many_messages_at_once(self, url: str, join: Callable[[str], Awaitable[Member]]) -> None:
        publisher, subscriber = await join(url), await join(url)
        await subscriber.connection.subscribe(["flood"])
        await publisher.connection.publish([("flood", f"{n:0200}") for n in range(2000)])
        await subscriber.has(2000)
        assert subscriber.received == [("flood", f"{n:0200}") for n in range(2000)]
        assert publisher.errors == subscriber.errors == []

    async def test_nothing_to_do_is_done(self, url: str, join: Callable[[str], Awaitable[Member]]) -> None:
        member = await join(url)
        await member.connection.subscribe([])
        await member.connection.unsubscribe([])
        await member.connection.publish([])
        await member.fence(self.linger_s)
        assert member.received == []

    async def test_a_server_that_is_not_there(self, join: Callable[[str], Awaitable[Member]]) -> None:
        url = self.nowhere()
        with pytest.raises(BackendError) as caught:
            await join(url)
        assert caught.value.code == "connect"
        assert urlsplit(url).netloc in str(caught.value)
        assert "start" in str(caught.value)

    async def test_a_server_that_says_nothing(
        self, join: Callable[[str], Awaitable[Member]], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.set_timeout(monkeypatch, self.connect_timeout, 0.3)
        with socket.create_server(("127.0.0.1", 0)) as listener:
            url = f"{SYSTEMS[self.system].schemes[0]}://127.0.0.1:{listener.getsockname()[1]}"
            with pytest.raises(BackendError) as caught:
                async with asyncio.timeout(PATIENCE_S):
                    await join(url)
        assert caught.value.code in ("connect", "timeout")
        assert urlsplit(url).netloc in str(caught.value)

    @pytest.mark.slow
    async def test_a_server_that_dies_is_told_and_a_run_on_it_has_failed(
        self, mortal: Server, join: Callable[[str], Awaitable[Member]], tmp_path: Path
    ) -> None:
        member = await join(mortal.url)
        await member.connection.subscribe(["topic"])
        async with self.running(mortal, tmp_path / "log") as generator:
            mortal.kill()
            await member.until(lambda: member.errors)
            assert member.errors == ["connection_lost"]
            for call in (
                member.connection.subscribe(["other"]),
                member.connection.publish([("topic", "payload")]),
                member.connection.unsubscribe(["topic"]),
            ):
                async with asyncio.timeout(PATIENCE_S):
                    with pytest.raises(BackendError) as caught:
                        await call
                assert caught.value.code == "connection_lost"
            assert member.errors == ["connection_lost"]
            await self.fails(generator)

    @pytest.mark.slow
    async def test_a_run_whose_server_hangs_has_failed(self, pausable: Server, tmp_path: Path) -> None:
        async with self.running(pausable, tmp_path / "log") as generator:
            pausable.pause()
            await self.fails(generator)

    @contextlib.asynccontextmanager
    async def running(self, server: Server, log: Path) -> AsyncIterator[Generator]:
        """Start a run that has delivered something, and would take ten minutes."""
        few = ("--connections", "4", "--topics", "20", "--fanout", "2", "--rate", "200", "--duration-s", "600")
        arguments = ("traffic", "--system", self.system, *few, "--stall-s", "4")
        async with Generator(server.url, log, *arguments) as generator:
            await generator.says("^run .*  out [1-9]")
            yield generator

    async def fails(self, generator: Generator) -> None:
        """Check that the run reports the failure while it waits, and at its end."""
        await generator.says("nothing was delivered for .* is the server there?")
        code, last = await generator.ended()
        assert code == 1, generator.said
        assert last.startswith("loadgen: failed: run: nothing was delivered for")
        assert "deliveries are missing" in last
        assert generator.facts["complete"] is False
        assert str(generator.facts["failed"]) in last

    @pytest.mark.parametrize("count", [1, 8000])  # 8 MB, 24 MB if % is encoded: more than fits into the sockets
    async def test_a_server_that_stops_answering(
        self, count: int, pausable: Server, join: Callable[[str], Awaitable[Member]], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        member = await join(pausable.url)
        self.set_timeout(monkeypatch, self.progress_timeout, 0.3)
        pausable.pause()
        async with asyncio.timeout(PATIENCE_S):
            with pytest.raises(BackendError) as caught:
                await member.connection.subscribe(["%" * 1000 + str(n) for n in range(count)])
        assert caught.value.code == "timeout"
        async with asyncio.timeout(PATIENCE_S):
            await member.connection.close()

    async def test_a_server_that_takes_no_more(
        self, pausable: Server, join: Callable[[str], Awaitable[Member]], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        member = await join(pausable.url)
        self.set_timeout(monkeypatch, self.progress_timeout, 0.3)
        pausable.pause()

        async def flood() -> None:
            batch = [("taken no more", "x" * 4096)] * 256
            for _ in range(256):  # 256 MiB: more than sockets and any buffer may hold
                await member.connection.publish(batch)

        async with asyncio.timeout(PATIENCE_S):
            with pytest.raises(BackendError) as caught:
                await flood()
        assert caught.value.code in ("timeout", "connection_lost")

    async def test_closing_twice_and_calling_afterwards(self, url: str) -> None:
        backend = open_backend(self.system, [url], "contract")
        member = Member()
        connection = await backend.connect(0, member.on_message, member.on_error)
        await connection.subscribe(["topic"])
        async with asyncio.timeout(PATIENCE_S):
            await connection.close()
            await connection.close()
            for call in (connection.publish([("topic", "")]), connection.subscribe(["other"])):
                with pytest.raises(BackendError) as caught:
                    await call
                assert caught.value.code == "closed"
            await backend.close()
            await backend.close()
        assert member.received == []
        assert member.errors == []

    async def test_closing_while_a_call_waits(self, pausable: Server, join: Callable[[str], Awaitable[Member]]) -> None:
        member = await join(pausable.url)
        pausable.pause()
        call = asyncio.ensure_future(member.connection.subscribe(["topic"]))
        await asyncio.sleep(0)
        async with asyncio.timeout(PATIENCE_S):
            await member.connection.close()
            with contextlib.suppress(BackendError):
                await call
        assert member.errors == []

    async def test_counters_are_numbers_and_one_that_is_gone_is_left_out(self, url: str) -> None:
        backend = open_backend(self.system, [url, self.nowhere()], "contract")
        async with asyncio.timeout(PATIENCE_S):
            for counters in await backend.counters():
                assert counters.values
                assert all(isinstance(value, float) for value in counters.values.values())
            await backend.close()
