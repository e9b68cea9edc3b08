"""The Redis adapter, against redis-server."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from redis.asyncio import Redis as RedisClient

from ingeborg.loadgen.backends.base import BackendError
from ingeborg.loadgen.backends.redis import Redis

from .conftest import PATIENCE_S, Server
from .contract import Contract, Member


class TestRedis(Contract):
    system = "redis"

    async def test_what_the_server_refuses_is_told(
        self, mortal: Server, join: Callable[[str], Awaitable[Member]]
    ) -> None:
        async with RedisClient.from_url(mortal.url) as admin:
            await admin.execute_command("ACL", "SETUSER", "guest", "on", ">guest", "+@all", "resetchannels", "&open")  # type: ignore[no-untyped-call]  # redis-py has no types for it
        member = await join(mortal.url.replace("//", "//guest:guest@"))
        await member.connection.subscribe(["open"])
        with pytest.raises(BackendError) as caught:
            await member.connection.subscribe(["open too", "shut"])
        assert caught.value.code == "noperm"
        assert member.errors == []
        await member.connection.publish([("shut", "1"), ("open", "2"), ("shut", "3"), ("open", "4")])
        await member.has(2)
        assert member.received == [("open", "2"), ("open", "4")]
        assert member.errors == ["noperm"] * 2
        await member.connection.unsubscribe(["open"])

    @pytest.mark.parametrize("kind", ["normal", "pubsub"])
    async def test_either_connection_lost_is_a_loss_and_stays_one(
        self, kind: str, mortal: Server, join: Callable[[str], Awaitable[Member]]
    ) -> None:
        member = await join(mortal.url)
        await member.connection.subscribe(["topic"])
        async with RedisClient.from_url(mortal.url) as admin:
            await admin.execute_command("CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes")  # type: ignore[no-untyped-call]  # redis-py has no types for it
        if kind == "pubsub":
            await member.until(lambda: member.errors)
        for _ in range(2):
            with pytest.raises(BackendError) as caught:
                await member.connection.publish([("topic", "payload")])
            assert caught.value.code == "connection_lost"
        assert member.errors == ["connection_lost"]

    async def test_a_publish_that_was_cancelled(self, mortal: Server, join: Callable[[str], Awaitable[Member]]) -> None:
        member = await join(mortal.url)
        await member.connection.subscribe(["topic"])
        for cancelled in range(20):
            call = asyncio.create_task(member.connection.publish([("topic", f"cut {cancelled}")] * 100))
            for _ in range(cancelled):
                await asyncio.sleep(0)
            call.cancel()
            await asyncio.wait([call])
        await member.connection.publish([("topic", "whole")])
        await member.until(lambda: ("topic", "whole") in member.received)
        assert member.errors == []

        mortal.pause()
        call = asyncio.create_task(member.connection.publish([("topic", "x" * 65536)] * 1024))  # more than fits
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(call, 0.2)  # it is still writing
        with pytest.raises(BackendError) as caught:
            async with asyncio.timeout(PATIENCE_S):
                await member.connection.publish([("topic", "payload")])
        assert caught.value.code == "connection_lost"
        assert member.errors == ["connection_lost"]

    async def test_counters_grow(
        self, url: str, join: Callable[[str], Awaitable[Member]], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.set_timeout(monkeypatch, "_COUNTERS_TIMEOUT_S", PATIENCE_S)
        backend = Redis([url], "counters")
        (before,) = await backend.counters()
        member = await join(url)
        await member.connection.subscribe(["counted"])
        await member.connection.publish([("counted", "x")] * 10)
        (after,) = await backend.counters()
        assert after.source == before.source
        assert after.at_ns > before.at_ns
        assert after.values["total_commands_processed_total"] - before.values["total_commands_processed_total"] >= 11
        assert after.values["pubsub_channels"] == before.values["pubsub_channels"] + 1
