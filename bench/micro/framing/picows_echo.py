"""An echo server on picows. Its interpreter must have picows and uvloop. It prints its URL when it is ready. SIGTERM
ends it.

    PYTHON picows_echo.py [each | joined]

With `each` it sends every message back separately, as in the documentation of picows. With `joined` it returns all
messages from one read of the socket in a single write, as an endpoint does. For `joined`, it makes the frame headers of
RFC 6455 itself, because picows has no function for joining frames.

Owns: the fastest echo that picows allows. Must never: import anything from this project, because the interpreter need
not have it.
"""

from __future__ import annotations

import sys
from typing import Any

import picows  # type: ignore[import-not-found]
import uvloop


class Each(picows.WSListener):  # type: ignore[misc]
    """Writes each message separately."""

    def on_ws_frame(self, transport: Any, frame: Any) -> None:
        """Send the message back."""
        transport.send(frame.msg_type, frame.get_payload_as_memoryview())


class Joined(picows.WSListener):  # type: ignore[misc]
    """Writes all messages from one read together."""

    def __init__(self) -> None:
        self._due: list[bytes] = []

    def on_ws_frame(self, transport: Any, frame: Any) -> None:
        """Collect the message. After the last message of a read, send all of them back."""
        payload = frame.get_payload_as_bytes()
        size = len(payload)
        head = bytes((0x81, size)) if size < 126 else b"\x81\x7e" + size.to_bytes(2)
        self._due += (head, payload)
        if frame.last_in_buffer:
            transport.underlying_transport.write(b"".join(self._due))
            self._due.clear()


async def _main(way: str) -> None:
    listener = {"each": Each, "joined": Joined}[way]
    server = await picows.ws_create_server(lambda request: listener(), "127.0.0.1", 0)
    print(f"ready at ws://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(_main(sys.argv[1]))
