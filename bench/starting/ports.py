"""Ports that an endpoint keeps over all its lives: nobody takes one while the endpoint is down.

Owns: the sockets that hold them. Must never: listen, or hold a port longer than its owner lives.

A probe that finds a port free and lets go of it has found nothing: another program may take the port before the
endpoint does. So the port stays bound, by a socket that does not listen. On Linux a server that sets SO_REUSEADDR may
listen there all the same, as an endpoint does. The kernel hands the port to nobody else, neither to one who asks for
any port nor for an outgoing connection. A program that asks for this very port without SO_REUSEADDR is refused.
"""

from __future__ import annotations

import random
import socket
import sys
import weakref
from contextlib import ExitStack
from typing import Self

from ingeborg.bench.errors import BenchError

#: Below the ports that systems hand out by themselves: where the port cannot be held, that leaves fewer to meet.
PORT_MIN, PORT_MAX = 10_000, 30_000
#: A hundred places without a gap among 20,000 ports: the machine is to be looked at, not the hundred-and-first.
TRIES = 100


class Ports:
    """Consecutive ports on loopback. They are held until ``close``, the end of the ``with`` block, or the end of this
    object. Elsewhere than on Linux they are only known to have been free."""

    def __init__(self, first: int, sockets: list[socket.socket]) -> None:
        self.first = first
        held = ExitStack()
        for each in sockets:
            held.enter_context(each)
        self._held = weakref.finalize(self, held.close)
        if sys.platform != "linux":
            self._held()  # there a second socket may not bind the port, whatever both have set

    def close(self) -> None:
        """Let go of them. Idempotent."""
        self._held()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def claim(count: int = 1) -> Ports:
    """So many ports in a row that nobody has. ``BenchError`` if there are none.

    Where they are is up to chance, and to no seed: two runs at one time do not look in the same places.
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
    """Bind it as if it were to be the only one there, and let a server share the port afterwards."""
    try:
        sock.bind(("127.0.0.1", port))
    except OSError:
        return False
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    return True
