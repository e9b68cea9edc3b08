"""Publish records, on a schedule or at full speed.

Owns: the intended and the actual time of each record. Must never: leave out a late record, or delay the schedule
because of the broker.
"""

from __future__ import annotations

import asyncio
import time
from array import array
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Protocol

from ingeborg.bench.caching.live.messages import RECORD
from ingeborg.bench.errors import BenchError
from ingeborg.protocol.outgoing import OutgoingSocket

AT_ONCE: Final = 50
"""Number of records in one write at full speed. They have a few kilobytes."""

STEP_S: Final = 0.002
"""The pause between two writes of due records. A record can be late by this time, which counts as a part of its
latency. If each record had its own write, the publishers would need half of a core."""

DRAIN_S: Final = 20.0
"""A broker that accepts no record for this time counts as stopped."""


class Way(Protocol):
    """The way of records to the broker."""

    async def send(self, payloads: Sequence[bytes]) -> None:
        """Send the records in this order. Raises ``BenchError``."""


class Direct:
    """The direct way: all publishers share one connection to the broker, so that records arrive in the order in which
    they were drawn."""

    def __init__(self, socket: OutgoingSocket) -> None:
        self._socket = socket

    async def send(self, payloads: Sequence[bytes]) -> None:
        """Send the records. Wait for room if the connection is full."""
        if not self._socket.takes_more:
            try:
                await asyncio.wait_for(self._socket.drained(), DRAIN_S)
            except TimeoutError:
                raise BenchError(f"the broker has taken no record for {DRAIN_S:g} s") from None
        self._socket.write(*[RECORD + payload for payload in payloads])


class Publishing:
    """Sends records, and keeps the times of each sent record: ``intended_ns`` and ``sent_ns``."""

    def __init__(self, payloads: Sequence[bytes]) -> None:
        self._payloads = payloads
        self.intended_ns, self.sent_ns = array("q"), array("q")

    async def on_schedule(self, way: Way, begin_ns: int, rate_per_s: float) -> None:
        """Send at this rate, from ``begin_ns`` on. Each write has all records that are due."""
        count, now_ns = len(self._payloads), time.monotonic_ns
        intended_ns = [begin_ns + round(number / rate_per_s * 1e9) for number in range(count)]
        at = 0
        while at < count:
            until, now = at, now_ns()
            while until < count and intended_ns[until] <= now:
                until += 1
            if until == at:
                await asyncio.sleep(max(STEP_S, (intended_ns[at] - now) / 1e9))
                continue
            await way.send(self._payloads[at:until])
            self._note(intended_ns[at:until], now_ns())
            at = until

    async def at_full_speed(self, way: Way, of_round: int, delivered: Callable[[int], Awaitable[None]]) -> None:
        """Send rounds of this number of records, each without a pause. ``delivered`` waits until all deliveries of this
        number of records have arrived. Then the next round begins. A record's intended time is the start of its
        write."""
        count = len(self._payloads)
        for first in range(0, count, of_round):
            end = min(first + of_round, count)
            for at in range(first, end, AT_ONCE):
                some = self._payloads[at : min(at + AT_ONCE, end)]
                begun_ns = time.monotonic_ns()
                await way.send(some)
                self._note([begun_ns] * len(some), time.monotonic_ns())
                await asyncio.sleep(0)
            await delivered(end)

    def _note(self, intended_ns: Sequence[int], sent_ns: int) -> None:
        self.intended_ns.extend(intended_ns)
        self.sent_ns.extend([sent_ns] * len(intended_ns))
