"""RabbitMQ's adapter against a real RabbitMQ, and its routing keys alone."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import aiormq
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ingeborg.loadgen.backends.base import BackendError
from ingeborg.loadgen.backends.rabbitmq import RabbitMq, routing_key

from ..overtaking import of_one_publisher
from .conftest import PATIENCE_S
from .contract import NASTY, Contract, Member

Join = Callable[[str], Awaitable[Member]]

TOPICS = st.text(st.characters(exclude_categories=["Cc", "Cs"]), min_size=1, max_size=300)


class TestRabbitMq(Contract):
    system = "rabbitmq"

    async def test_of_one_publisher_nothing_overtakes(self, url: str, tmp_path: Path) -> None:
        assert await of_one_publisher(tmp_path / "log", self.system, url) == {}

    async def test_a_user_that_is_refused(self, url: str, join: Join) -> None:
        with pytest.raises(BackendError) as caught:
            await join(url.replace("guest:guest", "guest:wrong"))
        assert caught.value.code == "access_refused"
        assert "wrong" not in str(caught.value)

    async def test_a_client_of_this_number_is_there_already(self, url: str) -> None:
        backend, member = RabbitMq([url], "twice"), Member()
        first = await backend.connect(0, member.on_message, member.on_error)
        with pytest.raises(BackendError) as caught:
            await backend.connect(0, member.on_message, member.on_error)
        assert caught.value.code == "resource_locked"
        await first.close()

    async def test_publishing_ends_where_the_exchange_is_gone(self, url: str) -> None:
        backend, member = RabbitMq([url], "gone"), Member()
        client = await backend.connect(0, member.on_message, member.on_error)
        async with aiormq.connect(url) as other:
            await (await other.channel()).exchange_delete("loadgen.gone")
        await client.publish([("topic", "payload")])
        await member.until(lambda: member.errors)
        assert member.errors == ["not_found"]
        with pytest.raises(BackendError) as caught:
            await client.publish([("topic", "payload")])
        assert caught.value.code == "not_found"
        await client.close()

    async def test_nothing_is_left_on_the_server(self, url: str) -> None:
        backend, member = RabbitMq([url], "clean"), Member()
        clients = [await backend.connect(number, member.on_message, member.on_error) for number in range(3)]
        await clients[0].subscribe(["topic"])
        await clients[0].unsubscribe(["topic"])
        for number, client in enumerate(clients):
            await client.publish([("unheard", "")])  # the exchange lives as long as any client
            assert await exists(url, f"loadgen.clean.{number}")
            await client.close()
        assert not any([await exists(url, f"loadgen.clean.{number}") for number in range(3)])
        assert not await exists(url, exchange="loadgen.clean")


async def exists(url: str, queue: str = "", exchange: str = "") -> bool:
    """Say whether the queue, or exchange, exists. An exclusive one of another connection exists."""
    async with asyncio.timeout(PATIENCE_S), aiormq.connect(url) as connection:
        channel = await connection.channel()
        try:
            if queue:
                await channel.queue_declare(queue, passive=True)
            else:
                await channel.exchange_declare(exchange, passive=True)
        except aiormq.ChannelNotFoundEntity:
            return False
        except aiormq.ChannelLockedResource:
            return True
        return True


@given(st.lists(TOPICS, unique=True, max_size=20))
@example(NASTY)
def test_routing_keys_are_one_word_short_and_one_to_one(topics: list[str]) -> None:
    keys = [routing_key(topic) for topic in topics]
    assert len(set(keys)) == len(topics)
    for key in keys:
        assert 0 < len(key.encode()) <= 255
        assert not set(key) & set(".*#")
        assert key != "%"


def test_what_is_nothing_special_stays_as_it_is() -> None:
    assert routing_key("Sigur Rós - Sæglópur (live) 50+1/2") == "Sigur Rós - Sæglópur (live) 50+1/2"
    assert routing_key("R.E.M. *#%") == "R%2EE%2EM%2E %2A%23%25"
    assert routing_key("é" * 127) == "é" * 127
    assert len(routing_key("é" * 128)) == 34
