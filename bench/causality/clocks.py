"""The sequential pass: computes every message's clock from the rows of its run in the order of time.

Owns each publishing connection's knowledge at each moment, and when to forget parts. Must never look ahead, or order
two rows by anything but their place in the given sequence. Time and memory are linear in the rows, and in the clocks'
sizes.

A message has a place: an axis and a number on this axis. The axes are the publishing connections. A client that knows a
connection's n-th message knows all before it, so a clock, axis -> number, holds all dependencies of a message (Fidge,
Mattern). Two kinds of messages break this rule, and get their own axis: a message with several reports that could each
be its original (it depends only on the common dependencies of all), and a message without dependencies.

A clock is sparse: it omits messages that no connection can get too late any longer. `until_ns` of each message says
when this is the case. The caller computes it from the whole run (bench.spark.happened).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

Message = tuple[int, int]
"""Topic and sequence number."""

Entry = tuple[int, int]
"""The number of known messages of an axis, and until when (ns) one can still come too late. Both grow along an axis."""

Clock = Mapping[int, Entry]

NEVER = -(1 << 63)
"""The `until_ns` of messages that cannot arrive too late."""

SWEEP_MIN = 10_000
"""A sweep for forgettable items starts each time that the kept items have doubled, from this number on. So a sweep
costs less than adding these items did."""

_NONE: dict[int, Entry] = {}


class Clocked(NamedTuple):
    """A message's place, and the clock of its dependencies."""

    axis: int
    number: int
    clock: Clock


class _Known:
    """A message that a connection may still learn, with its dependencies."""

    __slots__ = ("axis", "clock", "entry", "until_ns")

    def __init__(self, axis: int, entry: Entry, clock: Clock) -> None:
        self.axis, self.entry, self.clock = axis, entry, clock
        self.until_ns = max((until_ns for _, until_ns in clock.values()), default=NEVER)
        self.until_ns = max(self.until_ns, entry[1])


class _Open:
    """A message with several originals; `left` are still to come."""

    __slots__ = ("axis", "clock", "left")

    def __init__(self, axis: int, left: int) -> None:
        self.axis, self.left = axis, left
        self.clock: Clock | None = None


class Clocks:
    """The clocks of one run. `sent` and `received` take its rows, in order. The counts cover the messages with a
    clock."""

    def __init__(self) -> None:
        self.messages = 0
        self.entries = 0
        self.entries_max = 0
        self._axes = 0
        self._own: dict[int, tuple[int, Entry]] = {}
        """Connection -> its axis, and its latest message's entry."""
        self._knows: dict[int, dict[int, Entry]] = {}
        self._heard: dict[int, list[tuple[int, _Known]]] = {}
        """Connection -> its receipts since it last sent, with the times."""
        self._known: dict[Message, _Known] = {}
        self._open: dict[Message, _Open] = {}
        self._kept = 0
        self._kept_max = SWEEP_MIN

    def received(self, at_ns: int, connection: int, message: Message) -> None:
        """Record a connection's first copy. Before the message's last original it has no effect."""
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
            at_ns: The time of its row.
            intended_ns: Its write began then or later.
            connection: The sender.
            message: The reported message.
            originals: How many reports of the message could be its original, including this one; 0: this one is a
                duplicate.
            depends: False for a message without dependencies.
            until_ns: The message can arrive too late until then.

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
            # Its sender knows this message, and its dependencies, since all clocks of its originals have these.
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
        return  # it also has the message's dependencies
    knows[known.axis] = known.entry
    for axis, entry in known.clock.items():
        had = knows.get(axis)
        if had is None or had < entry:
            knows[axis] = entry


def _common(one: Clock, other: Clock) -> Clock:
    """Return the knowledge that both share."""
    return {axis: min(entry, other[axis]) for axis, entry in one.items() if axis in other}
