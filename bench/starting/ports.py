"""Ports that an endpoint keeps over all its lives. No other program can take such a port while the endpoint is down.

Owns: the sockets that hold the ports. Must never: listen, or hold a port longer than its owner lives.

It is not enough to find a free port and release it: another program may take the port before the endpoint does. So a
socket that does not listen keeps the port bound. On Linux a server that sets SO_REUSEADDR, as an endpoint does, may
still listen there. The kernel does not assign the port to a program that requests any free port, or to an outgoing
connection. A program that requests exactly this port without SO_REUSEADDR gets an error.
"""

from __future__ import annotations

import random
import socket
import sys
import weakref
from contextlib import ExitStack
from typing import Self

from ingeborg.bench.errors import BenchError

#: The range of the ports. It is below the ports that systems assign automatically, which makes conflicts rarer on
#: systems where a port cannot be held.
PORT_MIN, PORT_MAX = 10_000, 30_000
#: Number of attempts to find free ports. If a hundred attempts among 20,000 ports fail, the machine has a problem.
TRIES = 100


class Ports:
    """Consecutive ports on loopback, held until ``close``, the end of the ``with`` block, or the end of this object. On
    systems other than Linux, the ports are not held. They were only free when they were claimed."""

    def __init__(self, first: int, sockets: list[socket.socket]) -> None:
        self.first = first
        held = ExitStack()
        for each in sockets:
            held.enter_context(each)
        self._held = weakref.finalize(self, held.close)
        if sys.platform != "linux":
            self._held()  # on these systems no other socket can bind the port, with any option

    def close(self) -> None:
        """Release the ports. A second call does nothing."""
        self._held()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def claim(count: int = 1) -> Ports:
    """Claim this number of consecutive free ports. Raises ``BenchError`` if it finds none.

    The first port is random, without a seed, so that two simultaneous runs do not try the same ports.
    """
    for _ in range(TRIES):
        first = random.SystemRandom().randrange(PORT_MIN, PORT_MAX - count)
        with ExitStack() as bound:
            sockets = [bound.enter_context(socket.socket()) for _ in range(count)]
            if all(_bind(each, first + number) for number, each in enumerate(sockets)):
                bound.pop_all()
                return Ports(first, sockets)
    raise BenchError(f"no {count} free ports in a row found between {PORT_MIN} and {PORT_MAX} on 127.0.0.1")


def _bind(sock: socket.socket, port: int) -> bool:
    """Bind the socket exclusively for a moment, to check that the port is free, and then let a server share the
    port."""
    try:
        sock.bind(("127.0.0.1", port))
    except OSError:
        return False
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    return True
