"""Fails a run of some slices of the tests unless each slice has run a test: a folder that lost its tests is no success.

Owns: the criterion, and the verdict at the end. Must never: decide which tests run.

pytest refuses an absent path. It does not report a path whose tests are all skipped, all deselected, or misnamed, if
other paths have tests.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest
from _pytest.terminal import TerminalReporter

#: Options with which a developer chooses single tests, and not whole slices.
CHOICES = ("keyword", "markexpr", "lf", "collectonly")


def slices_of(config: pytest.Config) -> list[str]:
    """Return the paths on pytest's command line, in the form in which node ids begin."""
    here = config.invocation_params.dir
    paths = [Path(os.path.normpath(here / argument.partition("::")[0])) for argument in config.args]
    return [os.path.relpath(path, config.rootpath).replace(os.sep, "/") for path in paths]


def lacking(slices: Sequence[str], ran: set[str]) -> list[str]:
    """Return the slices without a file among ``ran``, the files of which a test ran."""
    return [each for each in slices if each != "." and not any(f"{file}/".startswith(f"{each}/") for file in ran)]


class Slices:
    """The plugin. With pytest-xdist it runs in the controller, which gets the reports of all processes."""

    def __init__(self, config: pytest.Config) -> None:
        self._slices = slices_of(config)
        self._ran: set[str] = set()
        self._lacking: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note the file of a test that has run. A failed test has run, and a skipped one has not."""
        if report.when == "call" and not report.skipped:
            self._ran.add(report.nodeid.partition("::")[0])

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Turn a success into a failure if a slice is missing. An interrupted run had no time for all slices."""
        if exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
            self._lacking = lacking(self._slices, self._ran)
            if self._lacking:
                session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: TerminalReporter) -> None:
        """Name the missing slices."""
        if self._lacking:
            terminalreporter.write_sep("=", f"--slices: no test ran of {', '.join(self._lacking)}", red=True, bold=True)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option. ``tests/conftest.py`` calls this and the next function, or pytest if this is its own plugin."""
    parser.addoption(
        "--slices",
        action="store_true",
        help="fail unless a test of each path that was given has run; ignored with -k, -m or --lf",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Register the plugin unless the developer chose tests. With pytest-xdist the controller does."""
    chosen = any(config.getoption(choice, None) for choice in CHOICES)
    if config.getoption("--slices") and not chosen and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Slices(config))
