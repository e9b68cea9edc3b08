"""The processes that a cell of a comparison needs: the system, and the Redis of the deduplication layer.

Owns: starting and stopping this broker as a user would (`ingeborg serve`), and starting the other systems through
`ingeborg.bench.rivals`. Must never: leave a process behind, or depend on a workload.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

from ingeborg.bench import rivals, starting
from ingeborg.bench.compare.matrix import System
from ingeborg.bench.errors import BenchError
from ingeborg.bench.rivals import releases

#: Time limit for an orderly end, in seconds. `serve` itself kills its endpoints 20 s after the end of their drain-time
#: (5 s).
_STOP_S_MAX = 30.0
RIAK_VARIABLE = "INGEBORG_TEST_RIAK"


class Skipped(BenchError):
    """Raised if the system cannot run here. The message says what is missing."""


class Running(NamedTuple):
    """A running system. ``urls`` are the system's URLs. ``version`` is what the system reports, or empty. ``dedup_url``
    is the URL of the layer's Redis. ``year`` is the release year of ``version``, if it is known. ``inside`` are the
    metrics URLs of this broker's endpoints, if they differ from ``urls``."""

    urls: list[str]
    version: str
    dedup_url: str | None
    year: int | None = None
    inside: Sequence[str] = ()


@contextlib.contextmanager
def running(
    system: System, state: Path, *, layer: bool, prepare: Callable[[str], None] = lambda store: None
) -> Iterator[Running]:
    """Start the system on an empty store, and stop it at the end of the block. ``prepare`` is called before the start,
    with the value of `--store` if the system is this broker. Raises ``Skipped`` or ``BenchError``."""
    with contextlib.ExitStack() as stack:
        dedup_url = None
        if layer:
            dedup_url = stack.enter_context(_rival("redis", state / "layer")).url
        if system.system == "ingeborg":
            broker = stack.enter_context(_broker(system, state / "ingeborg", prepare))
            inside = broker.inside if broker.inside != broker.urls else ()
            # The broker belongs to the same installation as this process, and so has the same version.
            yield Running(broker.urls, version("ingeborg"), dedup_url, inside=inside)
            return
        server = stack.enter_context(_rival(system.system, state))
        year = releases.year(server.name, server.version)
        yield Running([server.url], server.version, dedup_url, year)


@contextlib.contextmanager
def _rival(name: str, state: Path) -> Iterator[rivals.Server]:
    try:
        with rivals.running(name, state=state) as server:
            yield server
    except rivals.NotInstalledError as error:
        raise Skipped(str(error)) from error


@contextlib.contextmanager
def _broker(system: System, state: Path, prepare: Callable[[str], None]) -> Iterator[starting.Started]:
    riak = os.environ.get(RIAK_VARIABLE)
    if system.store == "riak" and not riak:
        raise Skipped(f"{RIAK_VARIABLE} does not name a Riak cluster: set it to HOST:PORT[,HOST:PORT…]")
    shutil.rmtree(state, ignore_errors=True)
    state.mkdir(parents=True)
    store = f"riak:{riak}" if system.store == "riak" else f"lmdb:{state / 'store'}"
    prepare(store)
    endpoints = _endpoints(system.serve)
    # If all endpoints share one port, their internal ports follow that port.
    with starting.claim(endpoints + ("--share-port" in system.serve)) as ports:
        # The broker listens on this machine only. It has its own session, so that Ctrl-C does not reach it, because it
        # must end after the generator.
        command = starting.serve("--host", "127.0.0.1", "--port", str(ports.first), "--store", store, *system.serve)
        log = state / "serve.log"
        with starting.started("this broker", command, log, endpoints=endpoints, patience_s=_STOP_S_MAX) as broker:
            yield broker


def _endpoints(arguments: tuple[str, ...]) -> int:
    return int(arguments[arguments.index("--endpoints") + 1]) if "--endpoints" in arguments else 1
