"""Processes for measurements and tests. They are started, watched until they are ready, and reliably ended.

Owns: the only way to start an endpoint as a process. Must never: depend on the purpose of an endpoint.

::

    with started("the endpoint", serve("--port", "0", "--store", f"lmdb:{folder}/store"), folder / "log") as endpoint:
        ...  # endpoint.url, endpoint.child.pid, endpoint.child.said()

    endpoint = Endpoint("a", ["--store", f"lmdb:{folder}/store"], folder) # has the same name and port in all its lives
    await endpoint.start()

With `steps`, the same code serves callers with and without an event loop. `child` handles any process, `ports` holds
the ports of endpoints, and `endpoints` handles `ingeborg serve`.
"""

from ingeborg.bench.starting.child import Child, ChildError, ending, spawn
from ingeborg.bench.starting.endpoints import (
    Endpoint,
    Said,
    Started,
    end_all,
    environment,
    python,
    ready,
    serve,
    started,
)
from ingeborg.bench.starting.ports import Ports, claim
from ingeborg.bench.starting.steps import awaited, blocking

__all__ = [
    "Child",
    "ChildError",
    "Endpoint",
    "Ports",
    "Said",
    "Started",
    "awaited",
    "blocking",
    "claim",
    "end_all",
    "ending",
    "environment",
    "python",
    "ready",
    "serve",
    "spawn",
    "started",
]
