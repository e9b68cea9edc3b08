"""The library's server protocol for a client's WebSocket.

Owns: the differences from the library. Must never: be compiled. A compiled ``parse`` refers to its object even after it
has been closed, so that each closed connection would wait for the garbage collector.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence

from websockets.protocol import Protocol
from websockets.server import ServerProtocol
from websockets.typing import Subprotocol


class WebSocketProtocol(ServerProtocol):
    """The library's server protocol, with two differences. ``HttpConnection`` parses the request. A client that offers
    only unknown subprotocols connects without a subprotocol."""

    def select_subprotocol(self, subprotocols: Sequence[Subprotocol]) -> Subprotocol | None:
        """Choose the first of our subprotocols that the client offers."""
        return next((each for each in self.available_subprotocols or () if each in subprotocols), None)

    def parse(self) -> Generator[None]:
        """Parse frames."""
        yield from Protocol.parse(self)
