"""The example "Market" in a real browser: a feed, and two screens with different bounds."""

from __future__ import annotations

import functools
import http.server
import os
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.broker.running import serving, started_by

from .devtools import Page, browsing
from .test_missed import Files

pytestmark = pytest.mark.cluster

ROOT = Path(__file__).resolve().parents[2]

#: A screen's figures: updates a second, updates, skipped messages, age on arrival.
FIGURES = """["live", "wall"].map(id => [...document.querySelectorAll(`#${id} dd`)]
    .map(each => parseInt(each.textContent.replaceAll(",", ""))))"""


@pytest.fixture
def origin() -> Iterator[str]:
    """Return the origin of the checkout's pages."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Files, directory=ROOT)) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


@pytest.fixture
async def page() -> AsyncIterator[Page]:
    async with browsing() as page:
        yield page


async def test_a_trader_sees_every_price_and_the_wall_the_newest_once_a_second(
    page: Page, origin: str, tmp_path: Path
) -> None:
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    async with serving(tmp_path) as (_, url):
        feed: list[str | Path] = [sys.executable, ROOT / "examples" / "market.py", "--url", url, "--rate", "500"]
        async with started_by(feed, tmp_path, {"PYTHONPATH": path}) as running:
            assert await running.line("ticks") == "500 ticks a second"
            await page.open(f"{origin}/examples/market.html?url={url}")
            await page.until("document.querySelectorAll('#live .cell').length === 100")
            await page.until("document.querySelectorAll('#wall .cell').length === 100")
            await page.until(f"({FIGURES})[1][2] > 500")
            live, wall = await page.run(f"return {FIGURES};")
            assert live[2] == 0
            assert wall[1] < wall[2], "most prices are replaced before a second is over"
            assert live[1] > wall[1]

            await page.run("""
                const rate = document.getElementById("rate");
                rate.value = 1;
                for (const name of ["input", "change"]) rate.dispatchEvent(new Event(name));
            """)
            assert await running.line("ticks") == "10 ticks a second"
            assert await page.run("return document.getElementById('shown').textContent") == "10 ticks a second"
            await page.until(f"({FIGURES})[0][0] <= 20")
        assert page.complaints == []
