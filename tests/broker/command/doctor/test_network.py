"""Ports, names, other endpoints and their clocks: against real sockets and endpoints."""

from __future__ import annotations

import asyncio
import email.utils
import re
import socket
import time
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from websockets.asyncio.server import ServerConnection, serve

from ingeborg.broker.command.config import ServeOptions
from ingeborg.broker.command.doctor import network
from ingeborg.broker.command.doctor.findings import Finding
from ingeborg.broker.command.doctor.network import Skew
from ingeborg.broker.core.model import Endpoint
from ingeborg.broker.store.embedded.store import EmbeddedStore
from ingeborg.broker.version import VERSION
from tests.broker.running import running
from tests.protocol.scripted import free_url

# -- ports


async def at_port(number: int, host: str = "127.0.0.1") -> Finding:
    (finding,) = await network.port(ServeOptions(host=host), number)
    return finding


async def test_a_free_port_one_of_an_endpoint_and_one_of_another_program(tmp_path: Path) -> None:
    async with running(tmp_path) as endpoint:
        held = await at_port(endpoint.port)
        assert (held.level, "an endpoint holds the port" in held.seen) == ("ok", True)
    free = await at_port(endpoint.port)
    assert (free.level, free.seen) == ("ok", "free on 127.0.0.1")

    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    async with await asyncio.start_server(hang_up, "127.0.0.1", 0) as server:
        taken = await at_port(server.sockets[0].getsockname()[1])
        assert (taken.level, "another program" in taken.seen, "ss -ltnp" in taken.todo) == ("error", True, True)


async def test_a_host_that_is_not_of_this_machine_or_of_none() -> None:
    assert "not an address of this machine" in (await at_port(9, "192.0.2.1")).seen
    assert "no host" in (await at_port(9, "no host")).seen


# -- the advertised URL


async def test_the_advertised_url_has_to_lead_to_this_machine_for_others() -> None:
    async def own(host: str, addresses: list[str]) -> Finding:
        (finding,) = await network.own_name(ServeOptions(host=host), lambda _: addresses)
        return finding

    assert (await own("127.0.0.1", ["127.0.0.1"])).level == "ok"
    assert (await own("0.0.0.0", ["192.0.2.7"])).level == "ok"
    finding = await own("0.0.0.0", ["127.0.1.1"])
    assert (finding.level, "--advertise" in finding.todo) == ("warning", True)

    def unknown(_: str) -> list[str]:
        raise socket.gaierror(-2, "Name or service not known")

    (nowhere,) = await network.own_name(ServeOptions(advertise="ws://nowhere.invalid:1"), unknown)
    assert (nowhere.level, "Name or service not known" in nowhere.seen) == ("error", True)


# -- other endpoints


async def _never(connection: ServerConnection) -> None:
    """Answer every request without a connection."""


class Pages:
    """An endpoint with the given pages; its clock is ``ahead_s`` ahead of this one."""

    def __init__(
        self,
        name: str = "there",
        *,
        ready: bool = True,
        version: str = VERSION,
        ahead_s: float = 0.0,
        differing: int = 0,
    ) -> None:
        self.name, self.ready, self.version, self.ahead_s, self.differing = name, ready, version, ahead_s, differing

    async def __aenter__(self) -> Pages:
        self._server = await serve(_never, "127.0.0.1", 0, process_request=self._answer)
        self.url = f"ws://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        await self._server.wait_closed()

    def _answer(self, connection: Any, request: Any) -> Any:
        status = HTTPStatus.OK if self.ready or request.path != "/readyz" else HTTPStatus.SERVICE_UNAVAILABLE
        labels = f'name="{self.name}",version="{self.version}",replication="off",history="store"'
        text = f"ingeborg_info{{{labels}}} 1\ningeborg_settings_differ {self.differing}\n"
        response = connection.respond(status, text if request.path == "/metrics" else "the store\ndoes not answer\n")
        del response.headers["Date"]
        response.headers["Date"] = email.utils.formatdate(time.time() + self.ahead_s, usegmt=True)
        return response

    async def looked_at(self, *, lives: bool = True) -> list[Finding]:
        return await network.peer(Endpoint("there", "i", self.url, 1), lives=lives)


@pytest.mark.parametrize(
    ("how", "level", "words"),
    [
        ({}, "ok", "ready at"),
        ({"ready": False}, "error", "not ready: the store; does not answer"),
        ({"version": "0.0.9"}, "warning", "version 0.0.9"),
        ({"name": "someone"}, "error", "two endpoints advertise the same URL"),
        (
            {"differing": 2},
            "warning",
            "it has replication off, history store, and 2 other endpoints have other cluster settings",
        ),
        ({"ahead_s": 5.0}, "warning", "its clock differs from this machine's by +"),
        ({"ahead_s": -60.0}, "error", "more than the leeway of"),
        ({"ahead_s": 0.4}, "ok", "its clock differs"),
    ],
)
async def test_another_endpoint(how: dict[str, Any], level: str, words: str) -> None:
    async with Pages(**how) as pages:
        (finding,) = await pages.looked_at()
    assert finding.level == level, finding
    assert words in finding.seen
    assert bool(finding.todo) == (level != "ok")


async def test_another_clock_is_between_the_two_figures_said() -> None:
    async with Pages(ahead_s=5.0) as pages:
        (finding,) = await pages.looked_at()
    least_s, most_s = map(float, re.findall(r"[+-][0-9.]+", finding.seen))
    # The pair depends on where the seconds turn between the checks; each is rounded to a tenth.
    assert least_s - 0.05 <= 5.0 <= most_s + 0.05, finding


async def test_one_that_does_not_answer_lives_or_is_dead() -> None:
    gone = Endpoint("there", "i", free_url(), 1)
    (cut,) = await network.peer(gone, lives=True)
    assert (cut.level, "it is alive" in cut.seen, "curl -v http://127.0.0.1:" in cut.todo) == ("error", True, True)
    (dead,) = await network.peer(gone, lives=False)
    assert (dead.level, "no sign of life" in dead.seen, "connection refused" in dead.seen) == ("warning", True, True)


async def test_the_registry_is_gone_through_without_one_self(tmp_path: Path) -> None:
    reader = EmbeddedStore(tmp_path, read_only=True)
    async with running(tmp_path) as endpoint:
        await reader.open()
        try:
            name = endpoint.server.router.me.name
            (finding,) = await network.others(reader, [])
            assert (finding.check, finding.level) == (f"endpoint {name}", "ok")
            assert (await network.others(reader, [name]))[0].seen == "no other endpoint is registered"
        finally:
            await reader.close()


# -- clocks


@given(
    st.floats(-100, 100),
    st.lists(st.tuples(st.floats(0, 30), st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=6),
)
def test_the_bounds_of_a_clock_hold_whatever_the_way_and_the_second(
    ahead_s: float, looks: list[tuple[float, float, float]]
) -> None:
    skew = Skew()
    for later_s, there_s, back_s in looks:
        asked_at = 1_700_000_000.0 + later_s
        date = email.utils.formatdate(int(asked_at + there_s + ahead_s), usegmt=True)
        skew = skew.narrowed(date, asked_at, asked_at + there_s + back_s)
    slack = 1e-6  # rounding of floats at this size
    assert skew.least_s - slack <= ahead_s <= skew.most_s + slack
    assert skew.at_least_s <= abs(ahead_s) + slack


def test_looks_at_other_times_of_the_second_narrow_the_bounds() -> None:
    skew = Skew()
    for tenth in range(10):
        at = 1_700_000_000 + tenth / 10
        skew = skew.narrowed(email.utils.formatdate(int(at), usegmt=True), at, at)
    assert skew.most_s - skew.least_s < 0.11
    assert Skew().narrowed("nonsense", 1, 2) == Skew()
    assert network.skew_finding("e", Skew(1.0, 0.5)).level == "warning"  # type: ignore[union-attr]
