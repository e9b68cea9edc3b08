"""The autoscaler's page in a real browser: its content, at any width, and that it contacts no other server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

import pytest
import pytest_asyncio

from ingeborg.autoscaler.controller import Controller
from ingeborg.autoscaler.effects import Picture
from ingeborg.autoscaler.settings import GroupSettings
from ingeborg.autoscaler.view.metrics import Metrics
from ingeborg.autoscaler.view.serving import serving
from tests.autoscaler.view.pictures import PICTURE, bar

from .devtools import Page, browsing

pytestmark = [pytest.mark.asyncio(loop_scope="module")]

#: A possible name of a member that a page must not run.
HOSTILE = '<img src="x" onerror="window.taken = 1">'
EMPTY = Picture("synchronizing", 1, 0, None, (), 0, 0, 0, 0.0, 0.0, (), (), False, False)


class Shown:
    """The group's state; a test can change it."""

    def __init__(self) -> None:
        self.picture = PICTURE

    @contextmanager
    def as_(self, picture: Picture) -> Iterator[None]:
        """Serve it for a while."""
        before, self.picture = self.picture, picture
        try:
            yield
        finally:
            self.picture = before


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Page]:
    async with browsing() as page:
        yield page


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shown() -> Shown:
    return Shown()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def url(shown: Shown) -> AsyncIterator[str]:
    metrics = Metrics("billing", Controller(GroupSettings(), 4, "c"))
    async with serving("127.0.0.1", 0, "billing", metrics, lambda: shown.picture) as found:
        yield found


@pytest_asyncio.fixture(loop_scope="module")
async def page(browser: Page, url: str) -> AsyncIterator[Page]:
    """Return the group's page, loaded. It has no complaints, and contacts no other server."""
    browser.requests.clear()
    await browser.size(1000)
    await browser.open(url)
    await browser.until("document.querySelectorAll('#members tr').length")
    yield browser
    complaints, browser.complaints = browser.complaints, []
    assert complaints == []
    assert {*browser.requests} == {url, f"{url}picture.json"}


async def test_it_shows_the_group(page: Page) -> None:
    assert await page.run("return document.title") == "billing: 4 members"
    assert "3 of 4 members" in await page.run("return document.getElementById('heading').innerText")
    assert await page.run("return document.querySelectorAll('#troubles li').length") == 5
    states = "[...document.querySelectorAll('#members tr')].map(row => row.cells[0].innerText.split(/\\s+/).join(' '))"
    assert await page.run(f"return {states}") == ["1", "2", "3 leaving", "4 joining"]
    titles = await page.run("return [...document.querySelectorAll('.piece.moving')].map(piece => piece.title)")
    assert titles == ["5 queues, moving", "1 queue, moving"]


@pytest.mark.parametrize("width", [320, 400, 1000, 1600])
async def test_nothing_is_wider_than_the_window(page: Page, width: int) -> None:
    await page.size(width)
    assert await page.run("return document.documentElement.scrollWidth <= innerWidth")
    assert await page.run("return document.querySelector('.track').clientWidth") > 100


async def test_a_bar_is_full_at_the_line(page: Page, shown: Shown) -> None:
    with shown.as_(PICTURE._replace(bars=(bar(1, 100e3), bar(2, 300e3)))):
        await page.until("document.querySelectorAll('#members tr').length === 2")
        parts = await page.run(
            "return [...document.querySelectorAll('.track')].map(track =>"
            " [...track.children].reduce((sum, piece) => sum + piece.getBoundingClientRect().width, 0)"
            " / track.getBoundingClientRect().width)"
        )
    assert parts == pytest.approx([0.8, 1.0], abs=0.01)


async def test_a_name_is_text(page: Page, shown: Shown) -> None:
    with shown.as_(PICTURE._replace(bars=(bar(1, 1.0, problem=HOSTILE)._replace(name=HOSTILE),))):
        await page.until("document.querySelectorAll('#members tr').length === 1")
        assert HOSTILE in await page.run("return document.getElementById('members').innerText")
        assert await page.run("return window.taken === undefined")


async def test_without_members_it_says_so(page: Page, shown: Shown) -> None:
    with shown.as_(EMPTY):
        await page.until("document.getElementById('members').innerText.includes('No members yet')")


async def test_an_autoscaler_that_is_gone_is_said_and_what_it_said_last_stays(browser: Page) -> None:
    metrics = Metrics("billing", Controller(GroupSettings(), 4, "c"))
    async with serving("127.0.0.1", 0, "billing", metrics, lambda: PICTURE) as url:
        await browser.open(url)
        await browser.until("document.querySelectorAll('#members tr').length === 4")
    await browser.until("document.getElementById('heading').innerText.includes('does not answer')")
    assert await browser.run("return document.querySelectorAll('#members tr').length") == 4
    await browser.open("about:blank")
    browser.complaints.clear()  # the browser logs the refused connection
