"""The store on a Riak cluster: ``RiakStore``. The way in is ``store.py``; the way down from it is ``objects.py``
(siblings, quorums), ``pool.py`` (nodes, retries), ``node.py`` and ``connecting.py`` (connections, TLS) and ``wire.py``
(bytes), with the layout in ``layout.py``."""

from .connecting import Connecting, Credentials, Secured
from .store import RiakStore

__all__ = ["Connecting", "Credentials", "RiakStore", "Secured"]
