"""Finds how a message came to depend on another: the connections and messages between the two.

Owns the search, forward in time from the first message, through the rows behind the clocks. It serves the few
violations that a page shows: the clocks say that a message depends on another, but not why.
"""

from __future__ import annotations

from typing import NamedTuple

from ingeborg.bench.causality.clocks import Message


class Link(NamedTuple):
    """A step: `connection` sent `message` at `at_ns`, after `cause`, which it had received at `cause_ns`, or (None)
    sent. The first message of a trail has no cause."""

    message: Message
    connection: int
    at_ns: int
    cause: Message | None
    cause_ns: int | None


class Trail:
    """The way from one message to another. It takes the rows of their run from the first original of `first` to the
    last of `last`, as `Clocks` does. Then `links` has the way."""

    def __init__(self, first: Message, last: Message) -> None:
        self._first, self._last = first, last
        self._reached: dict[Message, Link] = {}
        """The first message, and the messages whose originals all depend on it, once the last original has arrived."""
        self._left: dict[Message, int] = {}
        """Message -> originals still to come; also 0 if one did not depend on the first message."""
        self._heard: dict[int, tuple[int, Message]] = {}
        """Connection -> time and message of its first receipt of one of these."""
        self._knows: dict[int, tuple[Message, int | None]] = {}
        """Connection that sent one of these, or sent anything after it received one -> the message, and the time of
        receipt."""

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
        """The steps from the first message to the last; empty without a way."""
        found: list[Link] = []
        message: Message | None = self._last
        while message is not None and message in self._reached:
            found.append(self._reached[message])
            message = found[-1].cause
        return found[::-1]
