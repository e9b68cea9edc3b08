"""Real servers for the adapters' tests: started on free ports in temporary directories, stopped whatever happens.

Owns: how each server is started for a test (small and alone, not fast: the best settings are `bench/peers/`'s), and
when it is ready. Must never: touch a server that it did not start.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import NoReturn

import pytest
import uvloop

#: A small server is up in well under a second; a machine that is busy with the rest of the tests takes its time.
PATIENCE_S = 30.0
#: Debian puts servers where a user's PATH need not look.
_PATH = os.pathsep.join((os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"))


def pytest_asyncio_loop_factories(config: pytest.Config, item: pytest.Item) -> dict[str, Callable[[], uvloop.Loop]]:
    """The tests run on the loop that the generator runs on."""
    return {"uvloop": uvloop.new_event_loop}


class Server:
    """A running server. ``url``: as for ``--url``; ``process``: of this test session."""

    def __init__(self, url: str, process: subprocess.Popen[bytes]) -> None:
        self.url = url
        self.process = process

    def kill(self) -> None:
        """As if the machine had lost it: no farewell. Idempotent."""
        self.process.kill()
        self.process.wait(PATIENCE_S)

    def pause(self) -> None:
        """It keeps its connections and answers nothing more; only ``kill`` ends that."""
        self.process.send_signal(signal.SIGSTOP)


Start = Callable[[Path], AbstractContextManager[Server]]


def program(name: str, package: str) -> str:
    """Its path; skips the test where it is not installed."""
    path = shutil.which(name, path=_PATH)
    if path is None:
        pytest.skip(f"{name} is not installed (Debian package {package})")
    return path


def free_port() -> int:
    """A TCP port of loopback that nothing listens on now."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


@contextmanager
def started(arguments: list[str], port: int, url: str, directory: Path) -> Iterator[Server]:
    """The process, once it accepts connections on ``port``; killed at the end. Its output goes to ``server.log``."""
    with (directory / "server.log").open("wb") as log:
        process = subprocess.Popen(
            arguments, cwd=directory, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
        )
    server = Server(url, process)
    try:
        _wait_until_it_accepts(server, port, directory / "server.log")
        yield server
    finally:
        server.kill()


def _wait_until_it_accepts(server: Server, port: int, log: Path) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while True:
        if server.process.poll() is not None:
            _fail(f"it ended with status {server.process.returncode}", log)
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1.0).close()
        except OSError:
            if time.monotonic() > deadline:
                _fail(f"nothing listens on port {port} after {PATIENCE_S:g} s", log)
            time.sleep(0.02)
        else:
            return


def _fail(what: str, log: Path) -> NoReturn:
    pytest.fail(f"the server did not start: {what}; it wrote:\n{log.read_text(errors='replace')[-2000:]}")


@contextmanager
def start_nats(directory: Path) -> Iterator[Server]:
    """nats-server, with its monitoring page."""
    path, port, monitor = program("nats-server", "nats-server"), free_port(), free_port()
    arguments = [path, "--addr", "127.0.0.1", "--port", str(port), "--http_port", str(monitor)]
    with started(arguments, port, f"nats://127.0.0.1:{port}?monitor={monitor}", directory) as server:
        yield server


@contextmanager
def start_redis(directory: Path) -> Iterator[Server]:
    """redis-server, which writes nothing to disk."""
    path, port = program("redis-server", "redis-server"), free_port()
    arguments = [path, "--bind", "127.0.0.1", "--port", str(port), "--save", "", "--appendonly", "no"]
    with started(arguments, port, f"redis://127.0.0.1:{port}", directory) as server:
        yield server


@contextmanager
def start_mosquitto(directory: Path) -> Iterator[Server]:
    """mosquitto, which drops nothing that a slow client has not read yet, and tells its counters each second."""
    path, port = program("mosquitto", "mosquitto"), free_port()
    config = directory / "mosquitto.conf"
    config.write_text(
        f"listener {port} 127.0.0.1\nallow_anonymous true\nset_tcp_nodelay true\nmax_queued_messages 0\nsys_interval 1"
    )
    with started([path, "-c", str(config)], port, f"mqtt://127.0.0.1:{port}", directory) as server:
        yield server


#: How to start a server of one's own, by the system's name. The slow ones have fixtures in their own test modules.
START: dict[str, Start] = {"nats": start_nats, "redis": start_redis, "mqtt": start_mosquitto}


@pytest.fixture(scope="session")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Server]]:
    """The session's server of a system, started when it is first asked for. Nobody may kill it."""
    running: dict[str, Server] = {}
    with ExitStack() as stack:

        def server(system: str) -> Server:
            if system not in running:
                running[system] = stack.enter_context(START[system](tmp_path_factory.mktemp(system)))
            return running[system]

        yield server
