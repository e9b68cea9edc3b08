"""The MQTT adapter, against Mosquitto."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from urllib.parse import unquote

import pytest

from ingeborg.loadgen.backends.base import BackendError
from ingeborg.loadgen.backends.mqtt import Mqtt, name
from tests import wants
from tests.cluster.processes import free_port

from .conftest import PATIENCE_S, started
from .contract import NASTY, Contract, Member

_NONCHARACTER = re.compile("[\ufdd0-\ufdef\ufffe\uffff\U0001fffe\U0001ffff\U0010fffe\U0010ffff]")


def test_a_name_is_one_level_and_goes_back() -> None:
    for topic in NASTY:
        assert not set(name(topic)) & set("/+#$")
        assert not _NONCHARACTER.search(name(topic))
        assert unquote(name(topic)) == topic
    assert len({name(topic) for topic in NASTY}) == len(NASTY)
    assert name("AC/DC - T.N.T.") == "AC%2FDC - T.N.T."


async def _packet(reader: asyncio.StreamReader) -> bytes:
    """Return the body of the next packet; all here are shorter than 128 bytes."""
    _, length = await reader.readexactly(2)
    return await reader.readexactly(length)


class TestMqtt(Contract):
    system = "mqtt"

    async def test_a_topic_that_the_server_refuses(self, join: Callable[[str], Awaitable[Member]]) -> None:
        # Mosquitto itself refuses none: this server greets, and grants the first filter but not the second.
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await _packet(reader)
            writer.write(bytes([0x20, 2, 0, 0]))
            packet_id = (await _packet(reader))[:2]
            writer.write(bytes([0x90, 4, *packet_id, 0, 0x80]))
            await reader.read()
            writer.close()

        async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
            member = await join(f"mqtt://127.0.0.1:{server.sockets[0].getsockname()[1]}")
            with pytest.raises(BackendError) as caught:
                await member.connection.subscribe(["open", "shut"])
            assert caught.value.code == "refused"
            await member.connection.close()

    async def test_a_server_that_lets_nobody_in(self, tmp_path: Path, join: Callable[[str], Awaitable[Member]]) -> None:
        path, port = wants.tool("mosquitto"), free_port()
        config = tmp_path / "mosquitto.conf"
        config.write_text(f"listener {port} 127.0.0.1\nallow_anonymous false\n")
        with started([path, "-c", str(config)], port, f"mqtt://me:secret@127.0.0.1:{port}", tmp_path) as url:
            with pytest.raises(BackendError, match="Not authorized") as caught:
                await join(url)
            assert caught.value.code == "connect"
            assert "secret" not in str(caught.value)

    async def test_counters_grow(
        self, url: str, join: Callable[[str], Awaitable[Member]], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.set_timeout(monkeypatch, "_COUNTERS_TIMEOUT_S", PATIENCE_S)
        backend = Mqtt([url], "counters")
        (before,) = await backend.counters()
        member = await join(url)
        await member.connection.subscribe(["counted"])
        await member.connection.publish([("counted", "x")] * 10)
        await member.has(10)
        received = "publish/messages/received_total"
        while True:  # the server publishes them each second; the test's own time-out ends this
            (after,) = await backend.counters()
            if after.values[received] - before.values[received] >= 10:
                break
        assert after.source == before.source
        assert after.at_ns > before.at_ns
        assert after.values["publish/messages/dropped_total"] == 0
