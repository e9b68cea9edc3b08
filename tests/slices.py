"""That a run of some slices of the tests has run a test of each: a folder that lost its tests is no success.

Owns: what counts as having run, and the verdict at the end. Must never: decide which tests run.

pytest refuses a path that is not there. It says nothing of a path whose tests are all skipped, all deselected, or have
names that it does not look for, while there are tests elsewhere.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest
from _pytest.terminal import TerminalReporter

#: Whoever chooses tests by these means them, and no slice as a whole.
CHOICES = ("keyword", "markexpr", "lf", "collectonly")


def slices_of(config: pytest.Config) -> list[str]:
    """The paths that pytest was told to run, as node ids begin."""
    here = config.invocation_params.dir
    paths = [Path(os.path.normpath(here / argument.partition("::")[0])) for argument in config.args]
    return [os.path.relpath(path, config.rootpath).replace(os.sep, "/") for path in paths]


def lacking(slices: Sequence[str], ran: set[str]) -> list[str]:
    """Those of the slices of which no file is among those of which a test ran."""
    return [each for each in slices if each != "." and not any(f"{file}/".startswith(f"{each}/") for file in ran)]


class Slices:
    """The plugin. With pytest-xdist it is the controller's, which hears of what ran in any process."""

    def __init__(self, config: pytest.Config) -> None:
        self._slices = slices_of(config)
        self._ran: set[str] = set()
        self._lacking: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A test that was skipped has not run; one that failed has."""
        if report.when == "call" and not report.skipped:
            self._ran.add(report.nodeid.partition("::")[0])

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Makes a success a failure. A run that was interrupted, or ended early, has had no time for all slices."""
        if exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
            self._lacking = lacking(self._slices, self._ran)
            if self._lacking:
                session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: TerminalReporter) -> None:
        """Says so, and of which."""
        if self._lacking:
            terminalreporter.write_sep("=", f"--slices: no test ran of {', '.join(self._lacking)}", red=True, bold=True)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Called by ``tests/conftest.py``, as what follows; or by pytest, where this is a plugin of its own."""
    parser.addoption(
        "--slices",
        action="store_true",
        help="fail unless a test of each path that was given has run; not where tests are chosen by -k, -m or --lf",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Have a run fail where a slice ran no test, unless somebody chose tests. With pytest-xdist the controller does."""
    chosen = any(config.getoption(choice, None) for choice in CHOICES)
    if config.getoption("--slices") and not chosen and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Slices(config))
