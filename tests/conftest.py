"""pytest's summary of all tests, and the fixtures of tests that end connections: their transport and their log.

Owns: the last line of the summary, the fixtures ``transport`` and ``logged``, the marks of one transport, the settings
of the garbage collector, the lifetime of the run's folder in memory. Must never: start an endpoint.
"""

from __future__ import annotations

import gc
import inspect
import logging
import re
import signal
import tempfile
from collections.abc import Generator, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from _pytest.terminal import TerminalReporter

from ingeborg import form
from tests import memory, proof, slices, wants
from tests.broker import running
from tests.broker.transports import Authority

#: An endpoint logs this after the machine has not let it run for some seconds; no test depends on that.
_STALLED = r"not ready: the store does not answer"

_FOLDER = pytest.StashKey[memory.Folder]()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(terminalreporter: TerminalReporter) -> Generator[None, None, None]:
    """Print the line before pytest's last one: the needs of skipped tests, and how to meet them."""
    yield
    skipped = [report.longrepr for report in terminalreporter.stats.get("skipped", [])]
    if line := wants.summary(str(place[2] if isinstance(place, tuple) else place) for place in skipped):
        terminalreporter.write_line(line)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With ``--dist loadfile``, as in `make test`, start long tests first (``tests/order.py``)."""
    if config.getvalue("dist") != "loadfile":
        return None
    from tests.order import LongestFirst  # here, since it needs pytest-xdist

    return LongestFirst(config, log)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Give each process of pytest-xdist the seeds that this one has drawn."""
    proof.pytest_configure_node(node)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options that make a run fail if it tests another form of the code, or leaves a slice out."""
    parser.addoption("--form", choices=["compiled", "interpreted"], help="fail unless this form of the code is tested")
    slices.pytest_addoption(parser)
    proof.pytest_addoption(parser)


def pytest_report_header() -> list[str]:
    """Return the form of the code under test, its seeds, and the place of temporary files."""
    place = f"ingeborg: {form.name()}, temporary files in {tempfile.gettempdir()}"
    return [place, proof.pytest_report_header()]


def pytest_configure(config: pytest.Config) -> None:
    """Check the form of the code, and define the marks of tests for one transport in a module that has both."""
    # A background process of a shell ignores SIGINT. So would the processes that the tests start and end with it.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    wanted = config.getoption("--form")
    if wanted not in (None, form.name()):
        raise pytest.UsageError(f"--form {wanted}, but this run would test {form.name()} code")
    slices.pytest_configure(config)
    proof.pytest_configure(config)
    # Processes of pytest-xdist use the folder of the one that started them.
    if config.getoption("basetemp") is None and (folder := memory.take()) is not None:
        config.stash[_FOLDER] = folder
    config.addinivalue_line("markers", "over_tcp: runs over TCP only, since TLS would show nothing more and take long")
    config.addinivalue_line("markers", "over_tls: runs over TLS only, since it tests TLS itself")
    config.addinivalue_line("markers", "above_sockets: does not depend on the transport; make prove runs it over TLS")


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Keep the files of a failed run until the next run."""
    if exitstatus == pytest.ExitCode.TESTS_FAILED and _FOLDER in session.config.stash:
        del session.config.stash[_FOLDER]


def pytest_unconfigure(config: pytest.Config) -> None:
    """Free the memory."""
    if (folder := config.stash.get(_FOLDER, None)) is not None:
        folder.remove()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect a test's runs over a transport that it does not need. A test without an event loop has no connections
    and runs once. Deselect also the tests that only `make prove` runs."""
    needless = set()
    for item in items:
        if not isinstance(item, pytest.Function) or not hasattr(item, "callspec"):
            continue
        over = item.callspec.params.get("transport")
        alone = item.get_closest_marker("over_tcp") or not inspect.iscoroutinefunction(item.function)
        if over == "tls" and item.get_closest_marker("above_sockets"):
            item.add_marker(pytest.mark.prove)
        if (over == "tls" and alone) or (over == "tcp" and item.get_closest_marker("over_tls")):
            needless.add(item)
    if needless:
        config.hook.pytest_deselected(items=list(needless))
        items[:] = [item for item in items if item not in needless]
    proof.pytest_collection_modifyitems(config, items)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Disable the garbage collector, which would scan ten thousand tests again and again while pytest makes them. Later
    it ignores them."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.collect()
        gc.freeze()


@pytest.fixture(scope="session")
def session_authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """Return the authority that all tests over TLS trust."""
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module", params=["tcp", "tls"])
def transport(request: pytest.FixtureRequest, session_authority: Authority) -> Iterator[str]:
    """Run the tests once over each. ``tests.broker.running`` starts endpoints and connects accordingly."""
    with running.over_tls(session_authority) if request.param == "tls" else nullcontext():
        yield request.param


class Logged(logging.Handler):
    """Log lines about problems, from this process and from those that it has started."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))
        self._lines: list[str] = []
        self._expected: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the line."""
        self._lines.append(self.format(record))

    def expect(self, *patterns: str) -> None:
        """Allow lines that match one of these patterns until the test ends."""
        self._expected += patterns

    def unexpected(self) -> list[str]:
        """Return all other lines since the last call."""
        lines, self._lines = self._lines, []
        expected, self._expected = self._expected, []
        said: list[Path] = [path for path in running.started if path.exists()]
        running.started.clear()
        for path in said:
            lines += [line for line in path.read_text(encoding="utf-8").splitlines() if running.COMPLAINT.search(line)]
        return [line for line in lines if not any(re.search(pattern, line) for pattern in (*expected, _STALLED))]


@pytest.fixture(scope="module")
def module_log() -> Iterator[Logged]:
    """Collect lines from before a module's endpoints start until after they have ended."""
    logged = Logged()
    running.started.clear()
    logging.getLogger().addHandler(logged)
    yield logged
    logging.getLogger().removeHandler(logged)
    assert logged.unexpected() == []


@pytest.fixture
def logged(module_log: Logged) -> Iterator[Logged]:
    """Fail a test if an unexpected line of level WARNING or above, or a traceback, appears meanwhile: from endpoints,
    from the loop (an exception of a callback), or from real processes."""
    yield module_log
    assert module_log.unexpected() == []
