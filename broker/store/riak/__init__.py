"""The store on a Riak cluster, ``RiakStore`` in ``store.py``. It uses ``objects.py`` (siblings, quorums), which uses
``pool.py`` (nodes, retries), ``node.py`` and ``connecting.py`` (connections, TLS), and ``wire.py`` (protocol).
``layout.py`` defines the contents of all objects."""

from .connecting import Connecting, Credentials, Secured
from .store import RiakStore

__all__ = ["Connecting", "Credentials", "RiakStore", "Secured"]
