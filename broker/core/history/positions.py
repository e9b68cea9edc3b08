"""Positions, told to those who recover: soon after they have been sent something, and now and then. SPEC section 2.7.

Owns: who is still to be told. Must never: tell one to a client for which something is held.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from ingeborg.protocol.wire import encode

from ..codec import Codec
from ..connections.hub import Connection
from ..desk import Desk
from ..outgoing.sending import Sending
from ..part import Part
from ..retained.marks import Marks
from .follower import Follower

#: A connection that gets nothing is told its position so often, in seconds.
IDLE_S: Final = 20.0

#: Followers that are told their position in one slice.
FOLLOWERS_PER_SLICE: Final = 500


class Positions(Part):
    """One endpoint's part."""

    def __init__(self, desk: Desk, marks: Marks, sending: Sending) -> None:
        self._desk = desk
        self._marks = marks
        self._sending = sending
        self._owed: dict[Follower, None] = {}
        self._telling = False
        self._idle_at = desk.now + IDLE_S
        self.followers: dict[Connection, Follower] = {}

    def of(self, follower: Follower) -> str:
        """Its position, where nothing is held for it any more. It is taken for told."""
        follower.since = max(follower.since, self._marks.stable if self._marks.known else 0)
        follower.told = follower.since
        return self._marks.position_at(follower.since)

    def forget(self, follower: Follower) -> None:
        """It is told nothing more."""
        self._owed.pop(follower, None)

    def owe(self, follower: Follower) -> None:
        """It has been sent something: it is told its position when that covers it."""
        follower.owed = 2
        self._owed[follower] = None

    def advance(self) -> None:
        """The stable stamp has grown: tell those that have been sent something since they were told last."""
        self._marks.advances = False
        if self._owed and not self._telling:
            self._telling = True
            self._desk.job(self._tell_positions(list(self._owed)))

    def _tell_positions(self, followers: Sequence[Follower]) -> Iterator[bool]:
        stable = -1
        frames: dict[Codec, bytes] = {}
        for start in range(0, len(followers), FOLLOWERS_PER_SLICE):
            if stable != self._marks.stable:
                stable = self._marks.stable
                frames.clear()
            for follower in followers[start : start + FOLLOWERS_PER_SLICE]:
                if follower.holds or not follower.is_here or not self._marks.known:
                    continue
                follower.owed -= 1
                if follower.owed <= 0:
                    self._owed.pop(follower, None)
                if stable > follower.told:
                    follower.told = stable
                    self._sending.push(follower.connection, self._frame(follower.connection.codec, frames), True)
            yield False
        self._telling = False

    def _frame(self, codec: Codec, frames: dict[Codec, bytes]) -> bytes:
        """Return the present position in this codec. ``frames``: those made of it so far."""
        frame = frames.get(codec)
        if frame is None:
            frame = frames[codec] = codec.frame(encode({"position": self._marks.position}))
        return frame

    def tick(self) -> None:
        """Tell those that get nothing."""
        if self._desk.now >= self._idle_at:
            self._idle_at = self._desk.now + IDLE_S
            if self.followers and not self._telling and self._marks.known:
                self._telling = True
                self._desk.job(self._tell_positions(list(self.followers.values())))
