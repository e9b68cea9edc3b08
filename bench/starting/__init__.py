"""Processes for measurements and tests: started, watched until they are ready, and reliably ended.

Owns: the one way to start an endpoint as a process. Must never: know the purpose of an endpoint.

::

    with started("the endpoint", serve("--port", "0", "--store", f"lmdb:{folder}/store"), folder / "log") as endpoint:
        ...  # endpoint.url, endpoint.child.pid, endpoint.child.said()

    endpoint = Endpoint("a", ["--store", f"lmdb:{folder}/store"], folder)  # keeps its name and its port over all lives
    await endpoint.start()

With `steps` the same code serves callers with an event loop and callers without. `child` is any process, `ports` are
the ports that endpoints keep, `endpoints` knows `ingeborg serve`.
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
