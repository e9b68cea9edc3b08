"""Measure the current speed of this machine with a bare `websockets` echo. Absolute goals are scaled by this speed.

    python -m ingeborg.bench.budgets.echo

A server in its own process sends every message back. The same Python interpreter runs the server and this program.
There is one connection, with enough messages in transit to keep the server busy all the time. The program takes ten
seconds.

Owns: the load, and the echo figures of the machine on which the goals were set. Must never: run this broker's code in
the server, because the factor must not depend on that code.
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

#: This message is as long as a notification in the other budgets.
MESSAGE = b"x" * 230
#: Number of messages in transit. When half of these messages are back, the client immediately sends the same number
#: again.
WINDOW = 64
#: Number of turns, and seconds of a turn. There are several turns, because other programs can disturb a turn.
TURNS, TURN_S = 5, 1.5
#: Number of round trips of a turn, which happen one after the other.
TRIPS = 300


class Echo(NamedTuple):
    """The result. ``per_s`` is the number of messages that came back per second while many were in transit, and
    ``cpu_us`` is the server's CPU time for each message, in microseconds. ``trip_us`` is the time of a single round
    trip.

    On a slow machine, all three figures are worse. If other programs use the machine, ``per_s`` and ``trip_us`` are
    worse, but ``cpu_us`` hardly changes.
    """

    per_s: float
    cpu_us: float
    trip_us: float

    @property
    def factor(self) -> float:
        """This machine's speed relative to the reference: 0.5 means half the speed. Goals that are rates are multiplied
        by this factor."""
        return self.per_s / REFERENCE.per_s


#: The result of `python -m ingeborg.bench.budgets.echo` on ``REFERENCE_DATE``, on two idle cores. It is the median of
#: three runs.
REFERENCE_DATE = "2026-11-23"
REFERENCE = Echo(per_s=66_700.0, cpu_us=14.9, trip_us=108.0)


class _Stream:
    """A connection with many messages in transit."""

    def __init__(self, socket: OutgoingSocket, server: psutil.Process) -> None:
        self._socket, self._server = socket, server
        self._back = self._unsent = 0
        self._deadline_s = 0.0
        self._over = asyncio.Event()

    async def turn(self, seconds: float) -> tuple[float, float]:
        """Return the number of messages that came back per second, and the server's CPU time for each in
        microseconds."""
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
            self._over.set()  # no message is in transit anymore


async def _trip_us(socket: OutgoingSocket) -> float:
    found = []
    for _ in range(TRIPS):
        before_ns = time.perf_counter_ns()
        await ask(socket, MESSAGE)
        found.append(time.perf_counter_ns() - before_ns)
    return median(found) / 1e3


async def turns_at(url: str, server: psutil.Process, turn_s: float = TURN_S) -> Echo:
    """Return medians of ``TURNS`` turns with a running echo server. ``server`` is its process."""
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
    """Return medians of ``TURNS`` turns. Do not call this on an event loop."""
    return uvloop.run(_measure(turn_s))


def factor() -> float:
    """Return the present speed of this machine, relative to the reference: see ``Echo.factor``."""
    return measure().factor


def check(found: Echo) -> Check:
    """Report the figures next to the figures of the reference. They have no goal, because they are about the
    machine."""
    words = f"factor {found.factor:.2f}: {_words(found)}; on {REFERENCE_DATE}: {_words(REFERENCE)}"
    return Check("this machine, measured with a bare websockets echo", "reported", words, True)


def _words(echo: Echo) -> str:
    return f"{echo.per_s:,.0f}/s at {echo.cpu_us:.1f} us, one round trip {echo.trip_us:.0f} us"


def main() -> None:
    """Run the command."""
    argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0]).parse_args()
    show([check(measure())])


if __name__ == "__main__":
    main()
