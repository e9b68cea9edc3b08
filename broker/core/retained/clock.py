"""Stamps: the order in which retained messages are accepted, as far as one may have caused the other. SPEC section
8.10.

Owns: one endpoint's logical clock (Lamport, "Time, clocks, and the ordering of events in a distributed system", CACM
1978), and which stamps it has given to messages that have not ended. Must never: read a real clock; it is told the time
where it has to leap.

A home gives each retained message a stamp that is greater than any that it has given or heard of. Its *watermark* is
the greatest number of which it can say: all my messages with stamps up to it have ended, and I give no such stamp any
more.
"""

from __future__ import annotations

from typing import Final

#: A home that died may have given so many stamps, and positions up to them, that nobody has heard of. One that comes to
#: its slots goes on behind them: at 20,000/s that is a quarter of an hour.
UNHEARD_OF: Final = 1 << 24

#: No cluster gives so many: so stamps stay behind the time of a leap.
STAMPS_PER_MS: Final = 1 << 14

#: A stamp from here on is none: a request could not say one that is given after it.
STAMPS_END: Final = 1 << 62


class Clock:
    """One endpoint's."""

    def __init__(self) -> None:
        self.value = 0  # the greatest stamp that has been given, or heard of
        self._open: dict[int, None] = {}  # stamps whose messages have not ended; in their order, which is that of time

    def stamp(self) -> int:
        """A new one, whose message is ``open`` until ``close``."""
        self.value += 1
        self._open[self.value] = None
        return self.value

    def close(self, stamp: int) -> None:
        """Its message has ended here: dispatched, or not to be by this endpoint."""
        self._open.pop(stamp, None)

    def see(self, stamp: int) -> None:
        """Another endpoint has come so far."""
        if stamp > self.value:
            self.value = stamp

    def step(self) -> int:
        """A number greater than any watermark that anybody may have told by now."""
        self.value += 1
        return self.value

    def leap(self, unix_s: float) -> int:
        """The same where others may have gone on without this endpoint, and have died since, or nobody has told it
        anything yet. So it goes by the time, too: who leaps later comes farther."""
        self.value = max(self.value + UNHEARD_OF, int(unix_s * 1000) * STAMPS_PER_MS)
        return self.value

    @property
    def watermark(self) -> int:
        """See the module's text."""
        for stamp in self._open:
            return stamp - 1
        return self.value
