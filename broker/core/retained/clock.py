"""Stamps of retained messages. The stamps order the messages. A message has a greater stamp than every message that can
have caused it. SPEC section 8.10.

Owns: one endpoint's logical clock (Lamport, "Time, clocks, and the ordering of events in a distributed system", CACM
1978), and the stamps of messages that have not ended. Must never: read a real clock. The caller of ``leap`` passes the
time.

A home gives each retained message a stamp that is greater than all stamps that it has given or seen before. A home's
*watermark* is a stamp. All messages of the home with stamps up to the watermark have ended, and the home will never
again give a stamp up to the watermark.
"""

from __future__ import annotations

from typing import Final

#: The largest number of stamps that a home can have given, but not announced to any peer, before it died. The home may
#: have sent these stamps to clients in positions. The next home of its slots continues after all these stamps. At
#: 20,000 stamps/s they last for a quarter of an hour.
UNHEARD_OF: Final = 1 << 24

#: More stamps than any cluster gives in a millisecond. Stamps therefore stay below the value that ``leap`` computes
#: from the time.
STAMPS_PER_MS: Final = 1 << 14

#: All stamps are below this value, because a request could not hold greater values.
STAMPS_END: Final = 1 << 62


class Clock:
    """One endpoint's clock."""

    def __init__(self) -> None:
        self.value = 0  # the greatest stamp that this endpoint has given or seen
        # The stamps whose messages have not ended, in ascending order.
        self._open: dict[int, None] = {}

    def stamp(self) -> int:
        """Return a new stamp. It counts as open until its message ends (``close``)."""
        self.value += 1
        self._open[self.value] = None
        return self.value

    def close(self, stamp: int) -> None:
        """Record that a stamp's message has ended, because it was dispatched or this endpoint will not dispatch it."""
        self._open.pop(stamp, None)

    def see(self, stamp: int) -> None:
        """Advance the clock to another endpoint's stamp."""
        if stamp > self.value:
            self.value = stamp

    def step(self) -> int:
        """Advance the clock by one, and return its value. The new value is greater than any watermark that an endpoint
        can have announced so far."""
        self.value += 1
        return self.value

    def leap(self, unix_s: float) -> int:
        """Advance the clock like ``step``, for an endpoint that has not seen other endpoints' stamps. The endpoint may
        be new, or other endpoints may have continued without it and have died since then. The result also depends on
        the time, so an endpoint that leaps later gets a greater value."""
        self.value = max(self.value + UNHEARD_OF, int(unix_s * 1000) * STAMPS_PER_MS)
        return self.value

    @property
    def watermark(self) -> int:
        """Return this home's watermark, as the module's docstring defines it."""
        for stamp in self._open:
            return stamp - 1
        return self.value
