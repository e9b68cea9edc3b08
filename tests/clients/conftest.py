"""A page of a real browser, for the clients that run in one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.browser.devtools import Page, browsing


@pytest.fixture
async def page(tmp_path: Path) -> AsyncIterator[Page]:
    """Empty."""
    async with browsing(tmp_path / "browser") as page:
        yield page
