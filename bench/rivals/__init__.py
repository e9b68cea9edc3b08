"""The rivals: servers of other projects that we measure for comparison. They start for a measurement and stop after it.

Owns: the interface for `bench compare` and similar callers. Must never: depend on a workload.

::

    with rivals.running("rabbitmq", state=Path("runs/rivals")) as server:
        ...  # server.url, server.version, server.pids; server.alive()
"""

from ingeborg.bench.rivals.errors import NotInstalledError, RivalError
from ingeborg.bench.rivals.lifecycle import STATE, Server, down, find, running, up
from ingeborg.bench.rivals.servers import ALIASES, RIVALS

__all__ = ["ALIASES", "RIVALS", "STATE", "NotInstalledError", "RivalError", "Server", "down", "find", "running", "up"]
