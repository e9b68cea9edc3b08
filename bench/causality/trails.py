"""Find out why a message depends on another message: the connections and messages between the two.

Owns: the search. It starts at the first message, and reads rows in the order of time. The clocks are made from the same
rows. The clocks show that a message depends on another message, but not why. The search finds the reason, but only for
the few violations that a page shows.
"""

from __future__ import annotations

from typing import NamedTuple

from ingeborg.bench.causality.clocks import Message


class Link(NamedTuple):
    """A step of a trail. `connection` sent `message` at `at_ns`, after it had received `cause` at `cause_ns`. If
    `cause_ns` is None, the connection had sent `cause` itself. The first message of a trail has no cause."""

    message: Message
    connection: int
    at_ns: int
    cause: Message | None
    cause_ns: int | None


class Trail:
    """The search for the chain from one message to another. First call `received` and `sent` with the run's rows, as
    for `Clocks`, from the first original of `first` to the last original of `last`. Then `links` returns the chain."""

    def __init__(self, first: Message, last: Message) -> None:
        self._first, self._last = first, last
        self._reached: dict[Message, Link] = {}
        """The first message, and the messages whose originals all depend on the first message. A message is added when
        its last original comes."""
        self._left: dict[Message, int] = {}
        """For each message, the number of originals that are still to come. The number is also 0 if an original did not
        depend on the first message."""
        self._heard: dict[int, tuple[int, Message]] = {}
        """For each connection, the time and the message of its first receipt of a message in `_reached`."""
        self._knows: dict[int, tuple[Message, int | None]] = {}
        """For each connection that sent a message in `_reached`, or that sent anything after it had received such a
        message: that message, and the time of its receipt. The time is None if the connection itself sent the
        message."""

    def received(self, at_ns: int, connection: int, message: Message) -> None:
        if self._is_whole(message):
            self._heard.setdefault(connection, (at_ns, message))

    def sent(
        self, at_ns: int, intended_ns: int, connection: int, message: Message, originals: int, depends: bool
    ) -> None:
        heard = self._heard.get(connection)
        if heard is not None and heard[0] <= intended_ns:
            self._knows.setdefault(connection, (heard[1], heard[0]))
        if not originals:
            if self._is_whole(message):
                self._knows.setdefault(connection, (message, None))
            return
        is_first = message == self._first
        cause, cause_ns = (None, None) if is_first else self._knows.get(connection, (None, None))
        is_after = is_first or (depends and cause is not None)
        left = self._left.get(message, originals)
        self._left[message] = left - 1 if is_after and left else 0
        if is_after and (left == 1 or is_first):
            self._reached.setdefault(message, Link(message, connection, at_ns, cause, cause_ns))
            self._knows.setdefault(connection, (message, None))

    def _is_whole(self, message: Message) -> bool:
        return message in self._reached and not self._left[message]

    @property
    def links(self) -> list[Link]:
        """Return the steps from the first message to the last message, or an empty list if there is no chain."""
        found: list[Link] = []
        message: Message | None = self._last
        while message is not None and message in self._reached:
            found.append(self._reached[message])
            message = found[-1].cause
        return found[::-1]
