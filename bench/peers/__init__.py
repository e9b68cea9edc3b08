"""The servers that ours is measured against, started for the measurement and stopped after it.

Owns: the interface for `bench compare` and its like. Must never: know a workload.

::

    with peers.running("rabbitmq", state=Path("runs/peers")) as server:
        ...  # server.url, server.version, server.pids; server.alive()
"""

from ingeborg.bench.peers.errors import NotInstalledError, PeerError
from ingeborg.bench.peers.lifecycle import STATE, Server, down, find, running, up
from ingeborg.bench.peers.servers import ALIASES, PEERS

__all__ = ["ALIASES", "PEERS", "STATE", "NotInstalledError", "PeerError", "Server", "down", "find", "running", "up"]
