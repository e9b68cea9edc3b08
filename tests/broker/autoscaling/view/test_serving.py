"""The pages, and what Prometheus is told."""

from __future__ import annotations

import re
import socket
import subprocess

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

from ingeborg.broker.autoscaling.controller import Controller
from ingeborg.broker.autoscaling.settings import GroupSettings
from ingeborg.broker.autoscaling.view.metrics import PREFIX, Metrics
from ingeborg.broker.autoscaling.view.serving import serving
from tests import wants
from tests.broker.autoscaling.world import World

from .pictures import PICTURE


def settled() -> Controller:
    from random import Random

    world = World(20, Random(1))
    world.run(200.0, world.is_settled)
    return world.controller.core


async def test_the_pages() -> None:
    metrics = Metrics("billing", Controller(GroupSettings(), 4, "c"))
    async with serving("127.0.0.1", 0, "billing", metrics, lambda: PICTURE) as url, aiohttp.ClientSession(url) as http:
        async with http.get("/") as page:
            text = await page.text()
            assert page.content_type == "text/html"
            assert "default-src 'none'" in page.headers["Content-Security-Policy"]
            assert not re.search(r"https?://", text)
        async with http.get("/picture.json") as answer:
            found = await answer.json()
            assert answer.headers["Cache-Control"] == "no-store"
        assert [member["state"] for member in found["members"]] == ["ready", "ready", "leaving", "joining"]
        assert found["members"][1]["share"] == 1.25
        assert sum(piece[0] for piece in found["members"][0]["pieces"]) == pytest.approx(0.705, abs=0.01)
        assert len(found["troubles"]) == 5
        async with http.get("/healthz") as answer:
            assert (answer.status, await answer.text()) == (200, "ok\n")
        async with http.get("/metrics") as answer:
            assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        async with http.post("/") as answer:
            assert answer.status == 405


async def test_an_address_that_is_taken_is_an_error() -> None:
    metrics = Metrics("billing", Controller(GroupSettings(), 4, "c"))
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(OSError, match="in use"):
        async with serving("127.0.0.1", taken.getsockname()[1], "billing", metrics, lambda: PICTURE):
            pass


def test_metrics_say_what_is_wanted_and_what_is() -> None:
    text = Metrics("billing", settled()).text().decode()
    found = {
        (sample.name.removeprefix(PREFIX), *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    assert found["wanted_members", "billing"] == found["ready_members", "billing"] == 2
    assert found["running_members", "billing"] == 2
    assert found["queues", "billing"] == 20
    assert found["unowned_queues", "billing"] == 0
    assert found["state", "billing", "watching"] == 1
    assert found["member_load_ratio", "billing", "1"] == pytest.approx(100 / 120)
    assert found["decisions_total", "billing"] >= 1


def test_promtool_finds_no_fault() -> None:
    promtool = wants.tool("promtool")
    text = Metrics("billing", settled()).text()
    done = subprocess.run([promtool, "check", "metrics"], input=text, capture_output=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr.decode() + done.stdout.decode()
