"""What pytest says of all tests together; and what tests that end connections share: the transport they run over, and a
look at what was logged meanwhile.

Owns: the last line of the summary, the fixtures ``transport`` and ``logged``, the marks of one transport, what the
collector of cycles looks at, how long the run's folder in memory lasts. Must never: start an endpoint.
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

#: What an endpoint says of itself when the machine has not let it run for some seconds; no test depends on that.
_STALLED = r"not ready: the store does not answer"

_FOLDER = pytest.StashKey[memory.Folder]()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(terminalreporter: TerminalReporter) -> Generator[None, None, None]:
    """The last line before pytest's own last one: what was skipped, and how to come by what was wanting."""
    yield
    skipped = [report.longrepr for report in terminalreporter.stats.get("skipped", [])]
    if line := wants.summary(str(place[2] if isinstance(place, tuple) else place) for place in skipped):
        terminalreporter.write_line(line)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With ``--dist loadfile``, as `make test` has it, what takes long comes first (``tests/order.py``)."""
    if config.getvalue("dist") != "loadfile":
        return None
    from tests.order import LongestFirst  # needs pytest-xdist, and so not for whoever does without

    return LongestFirst(config, log)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Each process of pytest-xdist's takes the seeds that this one has drawn."""
    proof.pytest_configure_node(node)


def pytest_addoption(parser: pytest.Parser) -> None:
    """A run that is to test a form of the code, and some slices of the tests, tests no other, and leaves none out."""
    parser.addoption("--form", choices=["compiled", "interpreted"], help="fail unless this form of the code is tested")
    slices.pytest_addoption(parser)
    proof.pytest_addoption(parser)


def pytest_report_header() -> list[str]:
    """Which form of the code is tested, with which seeds, and where its files are."""
    place = f"ingeborg: {form.name()}, temporary files in {tempfile.gettempdir()}"
    return [place, proof.pytest_report_header()]


def pytest_configure(config: pytest.Config) -> None:
    """The form that was asked for; marks of tests that are run over one transport where their module is over both."""
    # What a shell runs in the background ignores SIGINT, and so would all that the tests start, and are to end by it.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    wanted = config.getoption("--form")
    if wanted not in (None, form.name()):
        raise pytest.UsageError(f"--form {wanted}, and the code that would be tested is {form.name()}")
    slices.pytest_configure(config)
    proof.pytest_configure(config)
    # Processes of pytest-xdist have the folder of the one that started them.
    if config.getoption("basetemp") is None and (folder := memory.take()) is not None:
        config.stash[_FOLDER] = folder
    config.addinivalue_line("markers", "over_tcp: over TLS it would show nothing more, and take long")
    config.addinivalue_line("markers", "over_tls: it is about TLS itself")
    config.addinivalue_line("markers", "above_sockets: what it shows is the same over TLS, which make prove looks at")


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """What a failed run has written stays until the next run."""
    if exitstatus == pytest.ExitCode.TESTS_FAILED and _FOLDER in session.config.stash:
        del session.config.stash[_FOLDER]


def pytest_unconfigure(config: pytest.Config) -> None:
    """Give the memory back."""
    if (folder := config.stash.get(_FOLDER, None)) is not None:
        folder.remove()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Without the other transport's; and once each where no event loop runs it: it has no connections. Nor what only
    `make prove` runs."""
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
    """Without the collector of cycles, which would look at ten thousand tests again and again while they are made; and
    in no test does it look at them afterwards."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.collect()
        gc.freeze()


@pytest.fixture(scope="session")
def session_authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """What all tests over TLS trust."""
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module", params=["tcp", "tls"])
def transport(request: pytest.FixtureRequest, session_authority: Authority) -> Iterator[str]:
    """The tests run once over each; ``tests.broker.running`` starts endpoints and connects accordingly."""
    with running.over_tls(session_authority) if request.param == "tls" else nullcontext():
        yield request.param


class Logged(logging.Handler):
    """Lines of this process and of those that it has started that say that something is wrong."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))
        self._lines: list[str] = []
        self._expected: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep it."""
        self._lines.append(self.format(record))

    def expect(self, *patterns: str) -> None:
        """Lines that match one of these may be logged until the test ends."""
        self._expected += patterns

    def unexpected(self) -> list[str]:
        """All others since this was last asked."""
        lines, self._lines = self._lines, []
        expected, self._expected = self._expected, []
        said: list[Path] = [path for path in running.started if path.exists()]
        running.started.clear()
        for path in said:
            lines += [line for line in path.read_text(encoding="utf-8").splitlines() if running.COMPLAINT.search(line)]
        return [line for line in lines if not any(re.search(pattern, line) for pattern in (*expected, _STALLED))]


@pytest.fixture(scope="module")
def module_log() -> Iterator[Logged]:
    """Looks from before a module's endpoints start until after they have ended."""
    logged = Logged()
    running.started.clear()
    logging.getLogger().addHandler(logged)
    yield logged
    logging.getLogger().removeHandler(logged)
    assert logged.unexpected() == []


@pytest.fixture
def logged(module_log: Logged) -> Iterator[Logged]:
    """Fails a test during which a line of level WARNING or above, or a traceback, was logged that it did not expect:
    of the endpoints, of the loop (what a callback raised), of real processes."""
    yield module_log
    assert module_log.unexpected() == []
