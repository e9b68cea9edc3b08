"""Kafka's adapter against a real Kafka, and its names alone."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from aiokafka.admin import AIOKafkaAdminClient
from hypothesis import example, given
from hypothesis import strategies as st

from ingeborg.loadgen.backends import kafka as kafka_module
from ingeborg.loadgen.backends.kafka import Kafka, topic_name

from ..overtaking import of_one_publisher
from .conftest import PATIENCE_S
from .contract import NASTY, Contract, Member

Join = Callable[[str], Awaitable[Member]]

TOPICS = st.text(st.characters(exclude_categories=["Cc", "Cs"]), min_size=1, max_size=300)


class TestKafka(Contract):
    system = "kafka"
    #: Order holds within a topic only: a fence in another one proves nothing. A fetch takes a tenth of a second.
    linger_s = 0.3

    @pytest.fixture(autouse=True)
    def impatient(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Shorten waits that only cost time here: fetches that wait on the server, and closing without an answer."""
        monkeypatch.setattr(kafka_module, "_FETCH_WAIT_MS", 10)
        monkeypatch.setattr(kafka_module, "_CLOSE_TIMEOUT_S", 0.5)

    async def test_of_one_publisher_everything_comes(self, url: str, tmp_path: Path) -> None:
        await of_one_publisher(tmp_path / "log", self.system, url)  # it promises no order between topics

    async def test_many_topics_at_once(self, url: str, join: Join) -> None:
        """Fewer topics than elsewhere: Kafka makes files for each, a hundred topics per second on a slow disk. It only
        matters that there are more than the adapter creates at once."""
        names = [f"one of many {n}" for n in range(300)]
        member = await join(url)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(kafka_module, "_TOPIC_BATCH", 100)
            await member.connection.subscribe(names)
        await member.connection.publish([(name, name) for name in names])
        await member.has(len(names))
        assert sorted(member.received) == sorted((name, name) for name in names)

        await member.connection.unsubscribe(names)
        await member.connection.publish([(name, name) for name in names[:100]])
        await member.fence(self.linger_s)
        assert len(member.received) == len(names)

    async def test_changes_of_the_subscriptions_lose_and_repeat_nothing(self, url: str, join: Join) -> None:
        publisher, subscriber = await join(url), await join(url)
        await subscriber.connection.subscribe(["kept"])

        async def publish() -> None:
            for n in range(100):
                await publisher.connection.publish([("kept", f"{n} {m}") for m in range(20)])
                await asyncio.sleep(0.005)  # so that there is always something to read

        publishing = asyncio.ensure_future(publish())
        changes = 0
        while not publishing.done():
            await subscriber.connection.subscribe([f"other {changes}"])
            await subscriber.connection.unsubscribe([f"other {changes}"])
            changes += 1
        await publishing
        await subscriber.has(2000)
        assert subscriber.received == [("kept", f"{n} {m}") for n in range(100) for m in range(20)]
        assert changes > 1

    async def test_nothing_is_left_on_the_server(self, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(kafka_module, "_CLOSE_TIMEOUT_S", PATIENCE_S)  # the server is up, and may be busy
        one, other, member = Kafka([url], "clean"), Kafka([url], "clean"), Member()
        first = await one.connect(0, member.on_message, member.on_error)
        second = await other.connect(1, member.on_message, member.on_error)
        await first.subscribe(["made by one", "of both"])
        await second.subscribe(["of both"])
        await second.publish([("made by the other", "")])
        expected = {topic_name("clean", topic) for topic in ("made by one", "of both", "made by the other")}
        assert await topics(url, "clean_") == expected
        await first.close()
        await one.close()
        await left(url, "clean_", {topic_name("clean", "made by the other")})
        await second.close()
        await other.close()
        await left(url, "clean_", set())


async def left(url: str, prefix: str, expected: set[str]) -> None:
    """Check that only these topics are left, at once or a moment later: the controller confirms the removal of a topic,
    and a busy broker still lists it for some time."""
    deadline = time.monotonic() + PATIENCE_S
    while (there := await topics(url, prefix)) != expected:
        assert time.monotonic() < deadline, there
        await asyncio.sleep(0.1)


async def topics(url: str, prefix: str) -> set[str]:
    admin = AIOKafkaAdminClient(bootstrap_servers=url.removeprefix("kafka://"))
    async with asyncio.timeout(PATIENCE_S):
        await admin.start()
        try:
            return {name for name in await admin.list_topics() if name.startswith(prefix)}
        finally:
            await admin.close()


@given(st.lists(TOPICS, unique=True, max_size=20))
@example(NASTY)
def test_names_are_allowed_and_one_to_one(names: list[str]) -> None:
    encoded = [topic_name("run-1", topic) for topic in names]
    assert len(set(encoded)) == len(names)
    for name in encoded:
        assert re.fullmatch("[A-Za-z0-9_-]{1,249}", name)
        assert name.startswith("run-1_")


def test_names_are_readable() -> None:
    assert topic_name("run", "R.E.M. - Drive") == "run_R_2EE_2EM_2E_20-_20Drive"
    assert topic_name("run", "é") == "run__C3_A9"
    assert topic_name("run", "x" * 245) == "run_" + "x" * 245
    assert len(topic_name("run", "x" * 246)) == 4 + 2 + 32
    assert topic_name("a-b", "c") != topic_name("a", "b-c")
