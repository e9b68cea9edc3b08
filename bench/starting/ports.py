"""Ports that an endpoint keeps over all its lives: no other program takes one while the endpoint is down.

Owns: the sockets that hold them. Must never: listen, or hold a port longer than its owner lives.

A probe that finds a port free and releases it proves nothing: another program may take the port before the endpoint
does. So the port stays bound, by a socket that does not listen. On Linux a server that sets SO_REUSEADDR, as an
endpoint does, may still listen there. The kernel gives the port to no other program, neither to one that requests any
port nor to an outgoing connection. A program that requests this very port without SO_REUSEADDR is refused.
"""

from __future__ import annotations

import random
import socket
import sys
import weakref
from contextlib import ExitStack
from typing import Self

from ingeborg.bench.errors import BenchError

#: Below the ports that systems assign automatically: where a port cannot be held, that makes conflicts rarer.
PORT_MIN, PORT_MAX = 10_000, 30_000
#: A hundred tries without a gap among 20,000 ports point to a problem of the machine.
TRIES = 100


class Ports:
    """Consecutive ports on loopback, held until ``close``, the end of the ``with`` block, or the end of this object. On
    systems other than Linux they were only free at some time."""

    def __init__(self, first: int, sockets: list[socket.socket]) -> None:
        self.first = first
        held = ExitStack()
        for each in sockets:
            held.enter_context(each)
        self._held = weakref.finalize(self, held.close)
        if sys.platform != "linux":
            self._held()  # on these systems no other socket can bind the port, with any option

    def close(self) -> None:
        """Release them. Idempotent."""
        self._held()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def claim(count: int = 1) -> Ports:
    """Claim this number of consecutive free ports. ``BenchError`` if there are none.

    Their place is random, without a seed: two runs at one time do not look in the same places.
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
    """Bind it exclusively for a moment, to see that it is free; then let a server share the port."""
    try:
        sock.bind(("127.0.0.1", port))
    except OSError:
        return False
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    return True
