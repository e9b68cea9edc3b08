"""What pytest says of all tests together. Must never: decide what is run."""

from __future__ import annotations

from collections.abc import Generator

import pytest
from _pytest.terminal import TerminalReporter

from tests import wants


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(terminalreporter: TerminalReporter) -> Generator[None, None, None]:
    """The last line before pytest's own last one: what was skipped, and how to come by what was wanting."""
    yield
    skipped = [report.longrepr for report in terminalreporter.stats.get("skipped", [])]
    if line := wants.summary(str(place[2] if isinstance(place, tuple) else place) for place in skipped):
        terminalreporter.write_line(line)
