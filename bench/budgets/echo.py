"""The current speed of this machine, measured with a bare `websockets` echo: the factor that scales absolute goals.

    python -m ingeborg.bench.budgets.echo

A server in its own process sends every message back; the interpreter that runs this also runs the server. It has one
connection, which keeps enough messages under way that the server is never idle. Ten seconds.

Owns: the load, and the figures of the machine on which the goals were set. Must never: run this broker's code on the
server's side, since the factor must not depend on it.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from statistics import median
from typing import NamedTuple

import psutil
import uvloop

from ingeborg.bench.errors import BenchError
from ingeborg.protocol.outgoing import OutgoingSocket

from .light import TIMEOUT_S, ask, cpu_s, dial, started
from .model import Check, show

#: As long as a notification of the other budgets.
MESSAGE = b"x" * 230
#: Messages under way; when half are back, the client writes as many again at once.
WINDOW = 64
#: A turn takes some seconds, and one of several can be disturbed.
TURNS, TURN_S = 5, 1.5
#: Round trips of a turn, one at a time.
TRIPS = 300


class Echo(NamedTuple):
    """``per_s``: messages that came back per second with many under way, and ``cpu_us``, the server's CPU for each, in
    microseconds; ``trip_us``: one round trip alone.

    On a slow machine all three are worse. If other programs use the machine, the first and the last are worse, and the
    CPU hardly is.
    """

    per_s: float
    cpu_us: float
    trip_us: float

    @property
    def factor(self) -> float:
        """This machine's speed relative to the reference: 0.5 is half as fast. Goals that are rates are multiplied by
        it."""
        return self.per_s / REFERENCE.per_s


#: The result of `python -m ingeborg.bench.budgets.echo` on that day, on two idle cores: the middle of three runs.
REFERENCE_DATE = "2026-11-23"
REFERENCE = Echo(per_s=66_700.0, cpu_us=14.9, trip_us=108.0)


class _Stream:
    """Many messages under way on one connection."""

    def __init__(self, socket: OutgoingSocket, server: psutil.Process) -> None:
        self._socket, self._server = socket, server
        self._back = self._unsent = 0
        self._deadline_s = 0.0
        self._over = asyncio.Event()

    async def turn(self, seconds: float) -> tuple[float, float]:
        """Return messages that came back per second, and the server's microseconds of CPU for each."""
        self._back = self._unsent = 0
        self._over.clear()
        before_s, start_s = cpu_s(self._server), time.monotonic()
        self._deadline_s = start_s + seconds
        self._socket.on_message = self._came
        self._socket.write(*[MESSAGE] * WINDOW)
        try:
            async with asyncio.timeout(seconds + TIMEOUT_S):
                await self._over.wait()
        except TimeoutError:
            raise BenchError(f"the echo stopped after {self._back:,} messages") from None
        took_s, used_s = time.monotonic() - start_s, cpu_s(self._server) - before_s
        return self._back / took_s, used_s / self._back * 1e6

    def _came(self, _: OutgoingSocket, data: bytes) -> None:
        self._back += 1
        self._unsent += 1
        if self._unsent == WINDOW // 2:
            if time.monotonic() < self._deadline_s:
                self._unsent = 0
                self._socket.write(*[MESSAGE] * (WINDOW // 2))
        elif self._unsent == WINDOW:
            self._over.set()  # nothing is under way anymore


async def _trip_us(socket: OutgoingSocket) -> float:
    found = []
    for _ in range(TRIPS):
        before_ns = time.perf_counter_ns()
        await ask(socket, MESSAGE)
        found.append(time.perf_counter_ns() - before_ns)
    return median(found) / 1e3


async def turns_at(url: str, server: psutil.Process, turn_s: float = TURN_S) -> Echo:
    """Return medians of ``TURNS`` turns at a running echo: ``server`` is its process."""
    socket = await dial(url + "/echo")
    try:
        stream = _Stream(socket, server)
        turns = [(*await stream.turn(turn_s), await _trip_us(socket)) for _ in range(TURNS)]
    finally:
        socket.transport.close()
    return Echo(*map(median, zip(*turns, strict=True)))


async def _measure(turn_s: float) -> Echo:
    with started("ingeborg.bench.budgets.bare") as (url, server):
        return await turns_at(url, server, turn_s)


def measure(turn_s: float = TURN_S) -> Echo:
    """Return medians of ``TURNS`` turns. Not to be called on an event loop."""
    return uvloop.run(_measure(turn_s))


def factor() -> float:
    """Return the present speed of this machine, relative to the reference: see ``Echo.factor``."""
    return measure().factor


def check(found: Echo) -> Check:
    """Report the figures next to the reference's. A machine has no goal."""
    words = f"factor {found.factor:.2f}: {_words(found)}; on {REFERENCE_DATE}: {_words(REFERENCE)}"
    return Check("this machine, measured with a bare websockets echo", "reported", words, True)


def _words(echo: Echo) -> str:
    return f"{echo.per_s:,.0f}/s at {echo.cpu_us:.1f} us, one alone {echo.trip_us:.0f} us"


def main() -> None:
    """The command."""
    argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0]).parse_args()
    show([check(measure())])


if __name__ == "__main__":
    main()
