"""Real servers for the adapters' tests: those of `bench rivals`, in temporary directories, reliably stopped.

Owns: skipping a test whose server is missing, and servers with a test's own settings. Must never: touch a server that
it did not start.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from unittest import mock

import psutil
import pytest
import uvloop

from ingeborg.bench import rivals
from ingeborg.bench.rivals import processes
from ingeborg.bench.rivals import servers as plans
from ingeborg.bench.starting import Child, blocking
from ingeborg.bench.starting.steps import Steps, pauses
from tests import wants

#: A small server is up in well under a second; a machine that is busy with the other tests takes longer.
PATIENCE_S = 60.0

#: Java servers run for only some seconds here: until they are up, the second compiler takes half of the CPU time.
BRIEF = {"JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1"}


def pytest_asyncio_loop_factories(config: pytest.Config, item: pytest.Item) -> dict[str, Callable[[], uvloop.Loop]]:
    """Run the tests on the loop that the generator uses."""
    return {"uvloop": uvloop.new_event_loop}


class Server:
    """A running server. ``url``: as for ``--url``; ``identity``: its process."""

    def __init__(self, url: str, identity: processes.Identity) -> None:
        self.url = url
        self._identity = identity

    def kill(self) -> None:
        """Kill it as if the machine had lost it, without a close. Idempotent."""
        if (process := processes.find(self._identity)) is not None:
            process.kill()
            process.wait(PATIENCE_S)

    def pause(self) -> None:
        """Let it keep its connections and answer nothing more, until ``resume``."""
        process = processes.find(self._identity)
        assert process is not None
        process.suspend()
        # One thread takes the signal and stops the others: on a busy machine these run on for a while.
        deadline = time.monotonic() + PATIENCE_S
        while any(psutil.Process(thread.id).status() != psutil.STATUS_STOPPED for thread in process.threads()):
            assert time.monotonic() < deadline, f"{process} does not stop"
            time.sleep(0.001)

    def resume(self) -> None:
        """Let it go on."""
        process = processes.find(self._identity)
        assert process is not None
        process.resume()


@contextmanager
def started(arguments: list[str], port: int, url: str, directory: Path) -> Iterator[str]:
    """Start a server with a test's own settings; yield its URL once it accepts connections on ``port``; kill it at the
    end."""
    server = Child("the server", arguments, directory / "server.log", directory=directory)
    try:
        blocking(_accepts(server, port))
        yield url
    finally:
        blocking(server.end())


def _accepts(server: Child, port: int) -> Steps[None]:
    for pause_s in pauses(PATIENCE_S):
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1.0).close()
            return
        except OSError:
            if not server.runs:
                break
        yield pause_s
    pytest.fail(f"the server did not start; it wrote:{server.tail()}")


@contextmanager
def start(system: str, directory: Path) -> Iterator[Server]:
    """The server that `bench rivals up` would start, with the measured settings except ``BRIEF``. Skips if it is not
    installed; for Kafka, if its jars have not been fetched before."""
    wants.server(system)
    brief = plans._environment() | BRIEF
    with ExitStack() as stack:
        with mock.patch.object(plans, "_environment", return_value=brief):
            running = stack.enter_context(rivals.running(system, state=directory))
        server = Server(running.url, running.processes[0])
        try:
            yield server
        finally:
            server.kill()  # a paused server would not end otherwise, and an orderly end would save nothing


class Servers:
    """Servers that tests share, by system: each starts on first use."""

    def __init__(self, stack: ExitStack, directory: Callable[[str], Path]) -> None:
        self._stack, self._directory = stack, directory
        self._running: dict[str, Server] = {}

    def __call__(self, system: str) -> Server:
        """Return the shared server. No test may kill it; a test may pause it, if it lets it go on."""
        if system not in self._running:
            self._running[system] = self._stack.enter_context(start(system, self._directory(system)))
        return self._running[system]

    def mortal(self, system: str) -> Server:
        """Give the server away: the next caller gets another one."""
        server = self(system)
        del self._running[system]
        return server


#: Kafka takes ten seconds of a core to start and to stop. All tests that need it share one, across folders
#: (``tests/order.py`` puts them into one process).
_KAFKA = pytest.StashKey[Servers]()


def session_kafka(config: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Servers:
    """Kafka's servers, for the whole session."""
    if _KAFKA not in config.stash:
        stack = ExitStack()
        config.add_cleanup(stack.close)
        config.stash[_KAFKA] = Servers(stack, tmp_path_factory.mktemp)
    return config.stash[_KAFKA]


@pytest.fixture(scope="module")
def servers(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[str], Servers]]:
    """The servers of a system: one set for each module, except for Kafka."""
    with ExitStack() as stack:
        own = Servers(stack, tmp_path_factory.mktemp)
        yield lambda system: session_kafka(request.config, tmp_path_factory) if system == "kafka" else own


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Order tests so that in each module those that kill a server come last: they kill the one that others shared."""
    here = [place for place, item in enumerate(items) if item.path.parent == Path(__file__).parent]
    modules = list(dict.fromkeys(items[place].path for place in here))
    last = sorted(
        (items[place] for place in here),
        key=lambda item: (modules.index(item.path), "mortal" in getattr(item, "fixturenames", ())),
    )
    for place, item in zip(here, last, strict=True):
        items[place] = item
