"""The reader is a process that parses the large frames of one endpoint (``core/connections/large.py``).

Owns: the loop of this process. Must never: keep any data of a frame for the next frame, or outlive its endpoint.

Requests arrive over the socket that is the reader's standard input. A request has two lengths of 4 bytes each, the
arguments, and the frame. The reader answers each request with a length of 4 bytes and the outcome, before it reads the
next request. When the endpoint closes its end of the socket, the reader ends.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
from contextlib import suppress

from ..core.connections.large import read_packed
from .machine import dies_first, return_large_memory

#: The reader's nice value. The reader yields to endpoints and clients that need the same core, because a client that
#: sends 16 MiB can wait a little.
NICENESS = 10


def main() -> int:
    """Answer requests until the endpoint closes the connection. Return the exit code."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's Ctrl-C is for the endpoint, which closes this process
    os.nice(NICENESS)
    dies_first()
    return_large_memory()
    with (
        suppress(ConnectionError),  # the endpoint was killed, so nobody needs an answer
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
