"""An echo server on this project's own socket layer. It prints its URL when it is ready. SIGTERM ends it.

Owns: an echo with the endpoint's framing (`protocol/sockets.py`, `protocol/frames.py`), but without the rest of the
endpoint. Must never: do anything with a message except send it back.
"""

from __future__ import annotations

import asyncio

import uvloop
from websockets.http11 import Request, Response
from websockets.server import ServerProtocol

from ingeborg.protocol.frames import text_frame
from ingeborg.protocol.sockets import Socket, as_protocol


class Echo(Socket):
    """One connection. Like an endpoint, it sends the output of a turn of the loop in a single write."""

    def __init__(self) -> None:
        super().__init__(ServerProtocol())
        self._due: list[bytes] = []

    def handshake(self, event: Request | Response) -> None:
        """Admit every client."""
        assert isinstance(event, Request)
        self.ws.send_response(self.ws.accept(event))
        self.send_protocol()
        self.settled()

    def messages_come(self, messages: list[bytes]) -> None:
        """Collect the messages to send back at the end of the turn."""
        self._due += [text_frame(message) for message in messages]

    def chunk_ends(self) -> None:
        """End the turn, and send the collected messages in one write."""
        if self._due:
            self.transport.write(b"".join(self._due))
            self._due.clear()


async def _main() -> None:
    server = await asyncio.get_running_loop().create_server(lambda: as_protocol(Echo()), "127.0.0.1", 0)
    print(f"ready at ws://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(_main())
