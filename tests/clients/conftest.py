"""A page of a real browser, for the clients that run in one."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.browser.devtools import Page, browsing


@pytest.fixture
async def page() -> AsyncIterator[Page]:
    """Empty."""
    async with browsing() as page:
        yield page
