"""The store on a Riak cluster: ``RiakStore`` in ``store.py``. Below it are ``objects.py`` (siblings, quorums),
``pool.py`` (nodes, retries), ``node.py`` and ``connecting.py`` (connections, TLS) and ``wire.py`` (bytes).
``layout.py`` has the layout."""

from .connecting import Connecting, Credentials, Secured
from .store import RiakStore

__all__ = ["Connecting", "Credentials", "RiakStore", "Secured"]
