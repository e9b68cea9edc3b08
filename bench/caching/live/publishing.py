"""When records are published: on a schedule, or as fast as they go.

Owns: the times at which each was meant to be sent and was. Must never: leave out a record that is late, or wait for
the broker on the schedule.
"""

from __future__ import annotations

import asyncio
import time
from array import array
from collections.abc import Sequence
from typing import Final, Protocol

from ingeborg.bench.caching.live.messages import RECORD
from ingeborg.bench.errors import BenchError
from ingeborg.protocol.outgoing import OutgoingSocket

AT_ONCE: Final = 50
"""Records of one write where they go as fast as they can: some kilobytes."""

STEP_S: Final = 0.002
"""Between two looks at what is due. So a record is late by so much, which counts. To send each by itself would take the
publishers half of a core."""

DRAIN_S: Final = 20.0
"""A broker that takes nothing for so long has stopped."""


class Way(Protocol):
    """How records get to the broker."""

    async def send(self, payloads: Sequence[bytes]) -> None:
        """In this order. ``BenchError``."""


class Direct:
    """Over one connection to the broker: all publishers share it, so that records come in the order in which they were
    drawn."""

    def __init__(self, socket: OutgoingSocket) -> None:
        self._socket = socket

    async def send(self, payloads: Sequence[bytes]) -> None:
        """Where the connection is full, when it has room again."""
        if not self._socket.takes_more:
            try:
                await asyncio.wait_for(self._socket.drained(), DRAIN_S)
            except TimeoutError:
                raise BenchError(f"the broker has taken no record for {DRAIN_S:g} s") from None
        self._socket.write(*[RECORD + payload for payload in payloads])


class Publishing:
    """``intended_ns``, ``sent_ns``: of each record that has been sent."""

    def __init__(self, payloads: Sequence[bytes]) -> None:
        self._payloads = payloads
        self.intended_ns, self.sent_ns = array("q"), array("q")

    async def on_schedule(self, way: Way, begin_ns: int, rate_per_s: float) -> None:
        """So many a second, from that time on. All that is due goes in one write."""
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

    async def at_full_speed(self, way: Way) -> None:
        """One write after the other. Each is meant to be when it begins."""
        for at in range(0, len(self._payloads), AT_ONCE):
            some = self._payloads[at : at + AT_ONCE]
            begun_ns = time.monotonic_ns()
            await way.send(some)
            self._note([begun_ns] * len(some), time.monotonic_ns())
            await asyncio.sleep(0)

    def _note(self, intended_ns: Sequence[int], sent_ns: int) -> None:
        self.intended_ns.extend(intended_ns)
        self.sent_ns.extend([sent_ns] * len(intended_ns))
