"""The sequential pass, which computes every message's clock from the rows of a run, in chronological order.

Owns: what each publishing connection knows at each moment, and when to forget parts of this knowledge. Must never: look
ahead, or order two rows by anything except their place in the given sequence. Time and memory grow linearly with the
number of rows, and with the sizes of the clocks.

A message has a place, which is an axis and a number on this axis. Each publishing connection is an axis. A client that
knows a connection's n-th message also knows all earlier messages of that connection. So a clock, which has a number for
each axis, holds all dependencies of a message (Fidge, Mattern). Two kinds of messages break this rule, and every
message of these kinds gets its own axis. A message of the first kind has several reports that could be its original. It
depends only on the common dependencies of these reports. A message of the second kind has no dependencies.

A clock is sparse, because it omits messages that no connection can still get too late. Each message can arrive too late
until its `until_ns`. The caller computes `until_ns` from the whole run (bench.spark.happened).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

Message = tuple[int, int]
"""Topic and sequence number."""

Entry = tuple[int, int]
"""The number of known messages of an axis, and the time (ns) until which one of these messages can still come too late.
Both values grow along an axis."""

Clock = Mapping[int, Entry]

NEVER = -(1 << 63)
"""The `until_ns` of messages that cannot arrive too late."""

SWEEP_MIN = 10_000
"""A sweep forgets items that are no longer needed. It starts whenever the number of kept items has doubled, but only
with at least this number of items. So a sweep takes less time than adding the items took."""

_NONE: dict[int, Entry] = {}


class Clocked(NamedTuple):
    """A message's place, and the clock of its dependencies."""

    axis: int
    number: int
    clock: Clock


class _Known:
    """A message that a connection may still learn about, with its dependencies."""

    __slots__ = ("axis", "clock", "entry", "until_ns")

    def __init__(self, axis: int, entry: Entry, clock: Clock) -> None:
        self.axis, self.entry, self.clock = axis, entry, clock
        self.until_ns = max((until_ns for _, until_ns in clock.values()), default=NEVER)
        self.until_ns = max(self.until_ns, entry[1])


class _Open:
    """A message with several possible originals. `left` is the number of originals that are still to come."""

    __slots__ = ("axis", "clock", "left")

    def __init__(self, axis: int, left: int) -> None:
        self.axis, self.left = axis, left
        self.clock: Clock | None = None


class Clocks:
    """The clocks of one run. `sent` and `received` take its rows, in order. The counts include only messages that have
    a clock."""

    def __init__(self) -> None:
        self.messages = 0
        self.entries = 0
        self.entries_max = 0
        self._axes = 0
        self._own: dict[int, tuple[int, Entry]] = {}
        """For each connection, its axis and the entry of its latest message."""
        self._knows: dict[int, dict[int, Entry]] = {}
        self._heard: dict[int, list[tuple[int, _Known]]] = {}
        """For each connection, the messages received since it last sent one, each with the time of its receipt."""
        self._known: dict[Message, _Known] = {}
        self._open: dict[Message, _Open] = {}
        self._kept = 0
        self._kept_max = SWEEP_MIN

    def received(self, at_ns: int, connection: int, message: Message) -> None:
        """Record that a connection received its first copy of a message. A call before the message's last original has
        no effect."""
        known = self._known.get(message)
        if known is not None:
            self._heard.setdefault(connection, []).append((at_ns, known))
            self._keep(at_ns)

    def sent(
        self,
        at_ns: int,
        intended_ns: int,
        connection: int,
        message: Message,
        originals: int,
        depends: bool,
        until_ns: int,
    ) -> Clocked | None:
        """Record a report.

        Args:
            at_ns: The time of the report's row.
            intended_ns: The write of the report began at this time or later.
            connection: The sender.
            message: The reported message.
            originals: The number of reports that could be the message's original, including this one, or 0 if this
                report is a duplicate.
            depends: False for a message without dependencies.
            until_ns: The time until which the message can arrive too late.

        Returns:
            The message's clock, if this is its last original.
        """
        clock = {axis: entry for axis, entry in self._learnt(connection, intended_ns).items() if entry[1] >= at_ns}
        if not originals:
            known = self._known.get(message)
            if known is not None:
                _learn(clock, known)
            self._knows[connection] = clock
            return None
        self._knows[connection] = dict(clock)
        if not depends:
            clock = _NONE
        if originals > 1 or not depends:
            return self._alone(at_ns, connection, message, originals, clock, until_ns)
        axis, (number, latest_ns) = self._own.get(connection) or (self._axis(), (0, NEVER))
        entry = number + 1, max(latest_ns, until_ns)
        self._own[connection] = axis, entry
        return self._clocked(at_ns, connection, message, _Known(axis, entry, clock))

    def _alone(
        self, at_ns: int, connection: int, message: Message, originals: int, clock: Clock, until_ns: int
    ) -> Clocked | None:
        """Record an original of a message with its own axis."""
        whole = self._open.get(message)
        if whole is None:
            whole = self._open[message] = _Open(self._axis(), originals)
        whole.left -= 1
        whole.clock = clock if whole.clock is None else _common(whole.clock, clock)
        entry = 1, until_ns
        if whole.left:
            # The sender knows this message and its dependencies, because the clocks of all originals have these
            # dependencies.
            if until_ns >= at_ns:
                self._knows[connection][whole.axis] = entry
            return None
        del self._open[message]
        return self._clocked(at_ns, connection, message, _Known(whole.axis, entry, whole.clock))

    def _clocked(self, at_ns: int, connection: int, message: Message, known: _Known) -> Clocked:
        if known.until_ns >= at_ns:
            self._known[message] = known
            self._keep(at_ns)
            if known.entry[1] >= at_ns:
                self._knows[connection][known.axis] = known.entry
        self.messages += 1
        self.entries += len(known.clock)
        self.entries_max = max(self.entries_max, len(known.clock))
        return Clocked(known.axis, known.entry[0], known.clock)

    def _learnt(self, connection: int, intended_ns: int) -> dict[int, Entry]:
        """Return the connection's knowledge when it began to send."""
        knows = self._knows.setdefault(connection, {})
        heard = self._heard.get(connection)
        if heard:
            taken = 0
            for at_ns, known in heard:
                if at_ns > intended_ns:
                    break
                _learn(knows, known)
                taken += 1
            del heard[:taken]
        return knows

    def _axis(self) -> int:
        self._axes += 1
        return self._axes

    def _keep(self, now_ns: int) -> None:
        self._kept += 1
        if self._kept < self._kept_max:
            return
        self._known = {message: known for message, known in self._known.items() if known.until_ns >= now_ns}
        heard = {
            connection: [each for each in heard if each[1].until_ns >= now_ns]
            for connection, heard in self._heard.items()
        }
        self._heard = {connection: left for connection, left in heard.items() if left}
        self._kept = len(self._known) + sum(map(len, self._heard.values()))
        self._kept_max = max(SWEEP_MIN, 2 * self._kept)


def _learn(knows: dict[int, Entry], known: _Known) -> None:
    had = knows.get(known.axis)
    if had is not None and had >= known.entry:
        return  # then `knows` also has the message's dependencies
    knows[known.axis] = known.entry
    for axis, entry in known.clock.items():
        had = knows.get(axis)
        if had is None or had < entry:
            knows[axis] = entry


def _common(one: Clock, other: Clock) -> Clock:
    """Return the knowledge that both clocks share."""
    return {axis: min(entry, other[axis]) for axis, entry in one.items() if axis in other}
