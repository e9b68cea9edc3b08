"""The reader: a process that reads one endpoint's large frames for it (``core/connections/large.py``).

Owns: the loop of this process. Must never: keep anything from one frame to the next, or outlive its endpoint.

Over the socket that is its standard input come requests: two lengths of 4 bytes, the arguments, the frame. Each is
answered with a length of 4 bytes and the outcome, before the next is read. When the endpoint's end closes, so does it.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
from contextlib import suppress

from ..core.connections.large import read_packed
from .machine import dies_first, return_large_memory

#: The reader yields to endpoints and clients where they want the same core: whoever sends 16 MiB can wait a little.
NICENESS = 10


def main() -> int:
    """Answer until there is nobody to answer. Returns the exit code."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's Ctrl-C is for the endpoint, which closes this one
    os.nice(NICENESS)
    dies_first()
    return_large_memory()
    with (
        suppress(ConnectionError),  # the endpoint was killed: whoever asked is gone too
        socket.socket(fileno=os.dup(sys.stdin.fileno())) as connection,
        connection.makefile("rwb") as stream,
    ):
        while len(lengths := stream.read(8)) == 8:
            arguments = stream.read(int.from_bytes(lengths[:4], "big"))
            size = int.from_bytes(lengths[4:], "big")
            data = stream.read(size)
            if len(data) < size:
                break  # the endpoint was killed while it sent
            answer = read_packed(arguments, data)
            del data
            stream.write(len(answer).to_bytes(4, "big"))
            stream.write(answer)
            stream.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
