"""The scaler behind a URL: against a service that follows the module's text."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web

from ingeborg.autoscaler.scalers.base import Running, ScalerError
from ingeborg.autoscaler.scalers.http import HttpScaler

from .contract import PATIENCE_S, ScalerContract, World
from .serving import served

GROUP = "orders"
TOKEN = "of-the-bearer"


class Platform(World):
    """A service with members as names in a set. ``says``: replaces its list of members. ``orders``: received orders."""

    def __init__(self) -> None:
        self.url = ""
        self.status = 200
        self.says: Any = None
        self.orders: list[Any] = []
        self._members: set[str] = set()
        self._made = 0
        self._scalers: list[HttpScaler] = []

    async def answer(self, request: web.Request) -> web.Response:
        """Handle a request by the text of ``http.py``."""
        if request.headers.get("Authorization") != f"Bearer {TOKEN}":
            return web.Response(status=401, text="no token, or a wrong one")
        if self.status != 200:
            return web.Response(status=self.status, text="no room")
        if request.method == "GET":
            if self.says is not None:
                return web.Response(body=self.says)
            return web.json_response({"count": len(self._members), "names": sorted(self._members)})
        order = await request.json()
        self.orders.append(order)
        while len(self._members) < order["count"]:
            self._made += 1
            self._members.add(f"member-{self._made}")
        for name in order["leaving"]:
            if len(self._members) > order["count"]:
                self._members.discard(name)
        return web.Response(status=202)

    def scaler(self, token: str | None = TOKEN) -> HttpScaler:
        self._scalers.append(HttpScaler(self.url, token, PATIENCE_S, GROUP))
        return self._scalers[-1]

    async def settle(self) -> None:
        """Do nothing: the service carries out orders at once."""

    async def breaks(self) -> None:
        self.status = 503

    async def close(self) -> None:
        for scaler in self._scalers:
            await scaler.close()


@pytest.fixture
async def world() -> AsyncIterator[Platform]:
    platform = Platform()
    async with served(platform.answer) as url:
        platform.url = f"{url}/groups/orders"
        yield platform
        await platform.close()


class TestHttp(ScalerContract):
    """The contract."""


async def test_an_order_has_what_the_text_says(world: Platform) -> None:
    await world.scaler().scale(3, ["a", "b"])
    assert world.orders == [{"count": 3, "leaving": ["a", "b"], "group": GROUP}]


@pytest.mark.parametrize("names", [b"", b', "names": null'])
async def test_names_need_not_be_known(world: Platform, names: bytes) -> None:
    world.says = b'{"count": 3' + names + b"}"
    assert await world.scaler().running() == Running(3, None)


async def test_rows_that_are_not_known_are_passed_over(world: Platform) -> None:
    world.says = b'{"count": 1, "names": ["a"], "since": 5}'
    assert await world.scaler().running() == Running(1, frozenset({"a"}))


@pytest.mark.parametrize(
    ("says", "why"),
    [
        (b"", "not JSON"),
        (b"3", "must be an object"),
        (b"{}", "count must be"),
        (b'{"count": true}', "count must be"),
        (b'{"count": -1}', "count must be"),
        (b'{"count": 1.0}', "count must be"),
        (b'{"count": 10001}', "from 0 to 10,000"),
        (b'{"count": 1, "names": "a"}', "list of non-empty strings"),
        (b'{"count": 1, "names": [1]}', "list of non-empty strings"),
        (b'{"count": 1, "names": [""]}', "list of non-empty strings"),
        (b'{"count": 1, "names": ["' + b"a" * 254 + b'"]}', "more than 253 characters"),
        (b'{"count": 2, "names": ["a", "a"]}', "each once"),
        (b'{"count": 2, "names": ["a"]}', "2 entries, as count says"),
    ],
)
async def test_an_answer_that_is_wrong_is_told(world: Platform, says: bytes, why: str) -> None:
    world.says = says
    with pytest.raises(ScalerError, match=rf"^GET {world.url}: status 200: .*{why}"):
        await world.scaler().running()


@pytest.mark.parametrize("status", [204, 302, 404, 500])
async def test_another_status_is_told_with_what_was_said(world: Platform, status: int) -> None:
    world.status = status
    scaler = world.scaler()
    with pytest.raises(ScalerError, match=rf"^GET {world.url}: status {status}"):
        await scaler.running()
    if status != 204:
        with pytest.raises(ScalerError, match=rf"^POST {world.url}: status {status}: no room$"):
            await scaler.scale(1, ())


async def test_a_token_is_shown_where_there_is_one(world: Platform) -> None:
    with pytest.raises(ScalerError, match="status 401: no token, or a wrong one"):
        await world.scaler(None).running()
    with pytest.raises(ScalerError, match="status 401"):
        await world.scaler("another").scale(1, ())
