"""Stamps: the order in which homes accept retained messages, as far as one message can have caused another. SPEC
section 8.10.

Owns: one endpoint's logical clock (Lamport, "Time, clocks, and the ordering of events in a distributed system", CACM
1978), and the stamps of messages that have not ended. Must never: read a real clock; the caller gives it the time when
it has to leap.

A home gives each retained message a stamp that is greater than any stamp that it has given or learned of. Its
*watermark* is the greatest number up to which all its messages have ended, and up to which it gives no further stamp.
"""

from __future__ import annotations

from typing import Final

#: Maximum number of stamps, and of positions up to them, that a home could have given before it died without telling
#: any peer.
#:  The next home of its slots continues after them: at 20,000/s that is a quarter of an hour.
UNHEARD_OF: Final = 1 << 24

#: More stamps than any cluster gives in a millisecond, so stamps stay behind the time of a leap.
STAMPS_PER_MS: Final = 1 << 14

#: No stamp reaches this value: a request could not hold the stamps after it.
STAMPS_END: Final = 1 << 62


class Clock:
    """One endpoint's clock."""

    def __init__(self) -> None:
        self.value = 0  # the greatest stamp that it has given or learned of
        # stamps whose messages have not ended, in the order in which they were given, which is ascending
        self._open: dict[int, None] = {}

    def stamp(self) -> int:
        """Return a new stamp. Its message is ``open`` until ``close``."""
        self.value += 1
        self._open[self.value] = None
        return self.value

    def close(self, stamp: int) -> None:
        """End a stamp's message here: it was dispatched, or this endpoint will not dispatch it."""
        self._open.pop(stamp, None)

    def see(self, stamp: int) -> None:
        """Learn another endpoint's stamp."""
        if stamp > self.value:
            self.value = stamp

    def step(self) -> int:
        """Return a number greater than any watermark that an endpoint can have announced by now."""
        self.value += 1
        return self.value

    def leap(self, unix_s: float) -> int:
        """Return such a number for an endpoint that has learned nothing yet, or without which others may have continued
        and died since. So the number also follows the time: an endpoint that leaps later gets further."""
        self.value = max(self.value + UNHEARD_OF, int(unix_s * 1000) * STAMPS_PER_MS)
        return self.value

    @property
    def watermark(self) -> int:
        """See the module's text."""
        for stamp in self._open:
            return stamp - 1
        return self.value
