"""The NATS adapter, against nats-server."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from urllib.parse import unquote

import pytest

from ingeborg.loadgen.backends.base import BackendError
from ingeborg.loadgen.backends.nats import Nats, subject
from tests import wants
from tests.cluster.processes import free_port

from ..overtaking import of_one_publisher
from .conftest import PATIENCE_S, started
from .contract import NASTY, Contract, Member

_PERMISSIONS = """
listen: 127.0.0.1:{port}
authorization {{
  users: [{{user: guest, password: guest, permissions: {{subscribe: "open", publish: "open"}}}}]
}}
"""


def test_a_subject_is_one_token_and_goes_back() -> None:
    for topic in NASTY:
        assert not set(subject(topic)) & set(".*> $")
        assert unquote(subject(topic)) == topic
    assert len({subject(topic) for topic in NASTY}) == len(NASTY)
    assert subject("Björk - Jóga") == "Björk%20-%20Jóga"


class TestNats(Contract):
    system = "nats"

    async def test_of_one_publisher_nothing_overtakes(self, url: str, tmp_path: Path) -> None:
        assert await of_one_publisher(tmp_path / "log", self.system, url) == {}

    @pytest.fixture
    def strict(self, tmp_path: Path) -> Iterator[str]:
        """Start a server where a guest may use only one subject."""
        path, port = wants.tool("nats-server"), free_port()
        config = tmp_path / "nats.conf"
        config.write_text(_PERMISSIONS.format(port=port))
        with started([path, "-c", str(config)], port, f"nats://guest:guest@127.0.0.1:{port}", tmp_path) as url:
            yield url

    async def test_what_the_server_refuses_is_told(self, strict: str, join: Callable[[str], Awaitable[Member]]) -> None:
        member = await join(strict)
        await member.connection.subscribe(["open"])
        with pytest.raises(BackendError) as caught:
            await member.connection.subscribe(["shut"])
        assert caught.value.code == "permissions violation"
        member.errors.clear()
        await member.connection.publish([("shut", "1"), ("open", "2"), ("shut", "3")])
        await member.has(1)
        await member.until(lambda: len(member.errors) == 2)
        assert member.received == [("open", "2")]
        assert member.errors == ["permissions violation"] * 2

    async def test_a_password_that_is_wrong(self, strict: str, join: Callable[[str], Awaitable[Member]]) -> None:
        with pytest.raises(BackendError) as caught:  # with the server's text, if that arrives before its reset
            await join(strict.replace("guest:guest", "guest:guess"))
        assert caught.value.code == "connect"
        assert "guess" not in str(caught.value)

    async def test_counters_grow(
        self, url: str, join: Callable[[str], Awaitable[Member]], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.set_timeout(monkeypatch, "_COUNTERS_TIMEOUT_S", PATIENCE_S)
        backend = Nats([url], "counters")
        (before,) = await backend.counters()
        member = await join(url)
        await member.connection.subscribe(["counted"])
        await member.connection.publish([("counted", "x")] * 10)
        await member.has(10)
        (after,) = await backend.counters()
        assert after.source == before.source
        assert after.at_ns > before.at_ns
        assert after.values["in_msgs_total"] - before.values["in_msgs_total"] >= 10
        assert after.values["out_msgs_total"] - before.values["out_msgs_total"] >= 10
        assert after.values["slow_consumers_total"] == 0

    async def test_counters_need_the_monitoring_page(self, url: str) -> None:
        assert await Nats([url.partition("?")[0]], "counters").counters() == []


class TestNatsCurrent(Contract):
    system = "nats"
    rival = "nats-current"

    async def test_it_tells_the_same_counters(self, url: str) -> None:
        (told,) = await Nats([url], "counters").counters()
        assert told.values["subscriptions"] >= 0
