"""The servers that ours is measured against, started for the measurement and stopped after it.

Owns: the interface for `bench compare` and its like. Must never: know a workload.

::

    with peers.running("rabbitmq", state=Path("runs/peers")) as server:
        ...  # server.url, server.version, server.pids; server.alive()
"""

from bench.peers.errors import NotInstalledError, PeerError
from bench.peers.lifecycle import STATE, Server, down, find, running, up
from bench.peers.servers import ALIASES, PEERS

__all__ = ["ALIASES", "PEERS", "STATE", "NotInstalledError", "PeerError", "Server", "down", "find", "running", "up"]
