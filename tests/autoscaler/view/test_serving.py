"""The pages: their paths and headers, and the page's data."""

from __future__ import annotations

import re
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import orjson
import pytest

from ingeborg.autoscaler.controller import Controller
from ingeborg.autoscaler.effects import Picture
from ingeborg.autoscaler.settings import GroupSettings
from ingeborg.autoscaler.view import serving as serving_module
from ingeborg.autoscaler.view.metrics import Metrics
from ingeborg.autoscaler.view.serving import document, serving
from tests.broker.running import PATIENCE_S

from .pictures import PICTURE, bar

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    """A client of the pages for a group that looks like ``PICTURE``."""
    metrics = Metrics("billing", Controller(GroupSettings(), 4, "c"))
    limit = aiohttp.ClientTimeout(PATIENCE_S)
    async with (
        serving("127.0.0.1", 0, "billing", metrics, lambda: PICTURE) as url,
        aiohttp.ClientSession(url, timeout=limit) as session,
    ):
        yield session


@pytest.mark.parametrize(
    ("path", "content_type"),
    [
        ("/", "text/html; charset=utf-8"),
        ("/picture.json", "application/json"),
        ("/metrics", "text/plain; version=0.0.4; charset=utf-8"),
        ("/healthz", "text/plain; charset=utf-8"),
    ],
)
async def test_each_path_has_its_type_and_keeps_to_itself(
    http: aiohttp.ClientSession, path: str, content_type: str
) -> None:
    async with http.get(path) as answer:
        assert answer.status == 200
        assert answer.headers["Content-Type"].startswith(content_type)
        assert answer.headers["Cache-Control"] == "no-store"
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert answer.headers["Referrer-Policy"] == "no-referrer"
        policy = answer.headers["Content-Security-Policy"].split("; ")
        assert {"default-src 'none'", "frame-ancestors 'none'", "base-uri 'none'"} <= {*policy}
        assert await answer.read()
    async with http.head(path) as answer:
        assert answer.status == 200
    async with http.post(path) as answer:
        assert answer.status == 405


async def test_another_path_is_not_there(http: aiohttp.ClientSession) -> None:
    async with http.get("/readyz") as answer:
        assert answer.status == 404


async def test_the_page_names_nobody_else(http: aiohttp.ClientSession) -> None:
    async with http.get("/") as page:
        assert not re.search(r"https?:|//[a-z]", await page.text())


async def test_health_is_where_kubernetes_and_an_endpoints_have_it(http: aiohttp.ClientSession) -> None:
    assert "path: /healthz" in (ROOT / "deploy" / "kubernetes" / "autoscaler.yaml").read_text(encoding="utf-8")
    async with http.get("/healthz") as answer:
        assert await answer.text() == "alive\n"


async def test_what_the_page_is_told(http: aiohttp.ClientSession) -> None:
    async with http.get("/picture.json") as answer:
        found = await answer.json()
    assert set(found) == {"group", "state", "heading", "troubles", "wanted", "running", "members"}
    assert (found["group"], found["state"], found["wanted"], found["running"]) == ("billing", "managing", 4, 3)
    assert len(found["troubles"]) == 5
    assert [member["state"] for member in found["members"]] == ["ready", "ready", "leaving", "joining"]
    first, second, *_ = found["members"]
    assert {key: value for key, value in first.items() if key not in ("pieces", "share")} == {
        "number": 1,
        "name": "billing-host-000001",
        "state": "ready",
        "load": "70.5 kB/s",
        "capacity": "100 kB/s",
        "queues": 8,
    }
    assert sum(cells for cells, _, _ in first["pieces"]) == pytest.approx(0.705, abs=0.01)
    assert sum(queues for _, queues, _ in first["pieces"]) == 8
    assert second["share"] == 1.25
    assert second["pieces"] == [[0.9, 1, False], [0.35, 1, True]]


def test_a_group_without_members_is_a_picture_too() -> None:
    empty = PICTURE._replace(bars=(), running=None)
    found = orjson.loads(document("billing", empty))
    assert (found["members"], found["running"]) == ([], None)


def test_a_queue_without_load_is_no_piece() -> None:
    found = orjson.loads(document("billing", PICTURE._replace(bars=(bar(1, 0.0, 0.0),))))
    assert (found["members"][0]["pieces"], found["members"][0]["queues"]) == ([], 2)


async def test_an_address_that_is_taken_is_said_with_what_to_do() -> None:
    metrics = Metrics("billing", Controller(GroupSettings(), 4, "c"))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        words = rf"^\[web\] 127\.0\.0\.1, port {port}: Address already in use; set another address, or port -1"
        with pytest.raises(OSError, match=words):
            async with serving("127.0.0.1", port, "billing", metrics, lambda: PICTURE):
                pass


async def test_an_address_of_another_machine_is_said() -> None:
    metrics = Metrics("billing", Controller(GroupSettings(), 4, "c"))
    with pytest.raises(OSError, match=r"^\[web\] 192\.0\.2\.1, port 0: "):
        async with serving("192.0.2.1", 0, "billing", metrics, lambda: PICTURE):
            pass


async def test_however_many_look_it_is_drawn_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = 1_000.0
    monkeypatch.setattr("ingeborg.autoscaler.view.serving.time.monotonic", lambda: seconds)
    looks: list[int] = []

    def picture() -> Picture:
        looks.append(len(looks))
        return PICTURE._replace(term=len(looks))

    metrics = Metrics("billing", Controller(GroupSettings(), 4, "c"))
    async with serving("127.0.0.1", 0, "billing", metrics, picture) as url, aiohttp.ClientSession(url) as session:
        bodies = set()
        for _ in range(5):
            async with session.get("/picture.json") as answer:
                bodies.add(await answer.read())
        assert (len(looks), len(bodies)) == (1, 1)
        seconds += serving_module.FRESH_S
        async with session.get("/picture.json") as answer:
            assert await answer.read()
        assert len(looks) == 2
