"""Everything that has to run for a cell of a comparison: the system, and the Redis of the deduplication layer.

Owns: starting and stopping this broker as a user would (`ingeborg serve`), and asking `bench.peers` for the others.
Must never: leave a process behind, or know a workload.
"""

from __future__ import annotations

import contextlib
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from bench import peers
from bench.errors import BenchError
from bench.matrix import System

#: An empty store and one endpoint take a second or two; several on a busy machine some more.
_READY_S_MAX = 60.0
#: `serve` itself ends its endpoints after 15 s.
_STOP_S_MAX = 30.0
_POLL_S = 0.1
#: Below those that systems hand out by themselves.
_PORT_MIN, _PORT_MAX = 20_000, 30_000
_PORT_TRIES = 100
_READY = re.compile(r"ready at (ws://[^/\s]+)")
RIAK_VARIABLE = "INGEBORG_TEST_RIAK"


class Skipped(BenchError):
    """The system cannot be run here; the text says what is missing."""


class Running(NamedTuple):
    """``urls``: of the system; ``version``: as it says itself, if it does; ``dedup_url``: of the layer's Redis."""

    urls: list[str]
    version: str
    dedup_url: str | None


@contextlib.contextmanager
def running(
    system: System, state: Path, *, layer: bool, prepare: Callable[[str], None] = lambda store: None
) -> Iterator[Running]:
    """The system, started on an empty store, until the block ends. ``prepare``: given this broker's store (as `--store`
    takes it), before its start. ``Skipped``, ``BenchError``."""
    with contextlib.ExitStack() as stack:
        dedup_url = None
        if layer:
            dedup_url = stack.enter_context(_peer("redis", state / "layer")).url
        if system.system == "ingeborg":
            yield Running(stack.enter_context(_broker(system, state / "ingeborg", prepare)), "", dedup_url)
            return
        server = stack.enter_context(_peer(system.system, state))
        yield Running([server.url], server.version, dedup_url)


@contextlib.contextmanager
def _peer(name: str, state: Path) -> Iterator[peers.Server]:
    try:
        with peers.running(name, state=state) as server:
            yield server
    except peers.NotInstalledError as error:
        raise Skipped(str(error)) from error


@contextlib.contextmanager
def _broker(system: System, state: Path, prepare: Callable[[str], None]) -> Iterator[list[str]]:
    riak = os.environ.get(RIAK_VARIABLE)
    if system.store == "riak" and not riak:
        raise Skipped(f"{RIAK_VARIABLE}=HOST:PORT[,HOST:PORT…] does not name a Riak cluster")
    shutil.rmtree(state, ignore_errors=True)
    state.mkdir(parents=True)
    store = f"riak:{riak}" if system.store == "riak" else f"lmdb:{state / 'store'}"
    prepare(store)
    port = first_port(_endpoints(system.serve))
    command = [sys.executable, "-m", "broker.cli", "serve", "--host", "127.0.0.1", "--port", str(port)]
    command += ["--store", store]
    # The measurement is the same for everybody, whatever they have set for endpoints of their own.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("INGEBORG_")}
    log = state / "serve.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*command, *system.serve],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,  # Ctrl-C is for the generator; the broker ends when it has
        )
    try:
        yield _urls(process, log, _endpoints(system.serve))
    finally:
        _stop(process)


def _endpoints(arguments: tuple[str, ...]) -> int:
    return int(arguments[arguments.index("--endpoints") + 1]) if "--endpoints" in arguments else 1


def first_port(count: int) -> int:
    """Of so many in a row on loopback that nothing listens on; 0, for any, is enough for one."""
    if count == 1:
        return 0
    for _ in range(_PORT_TRIES):
        first = random.randrange(_PORT_MIN, _PORT_MAX - count)
        if all(map(_is_free, range(first, first + count))):
            return first
    raise BenchError(f"no {count} free ports in a row found between {_PORT_MIN} and {_PORT_MAX} on 127.0.0.1")


def _is_free(port: int) -> bool:
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def _urls(process: subprocess.Popen[bytes], log: Path, wanted: int) -> list[str]:
    deadline = time.monotonic() + _READY_S_MAX
    while True:
        text = log.read_text(encoding="utf-8", errors="replace")
        urls = sorted(set(_READY.findall(text)))
        if len(urls) >= wanted:
            return urls
        if process.poll() is not None or time.monotonic() > deadline:
            raise BenchError(f"this broker did not start; the end of its log: {text[-2000:]}")
        time.sleep(_POLL_S)


def _stop(process: subprocess.Popen[bytes]) -> None:
    """As an operator would; what is left of its group after that is killed."""
    if process.poll() is None:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_STOP_S_MAX)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
