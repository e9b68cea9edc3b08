"""Sends positions to recovering clients, both periodically and soon after each message to them. SPEC section 2.7.

Owns: the sessions that still need a position. Must never: send a position to a client while a message for this client
is held back.
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
from ..retained.watermarks import Watermarks
from .replay_session import ReplaySession

#: The time between two positions on an idle connection, in seconds.
IDLE_S: Final = 20.0

#: The largest number of sessions that get a position in one slice.
SESSIONS_PER_SLICE: Final = 500


class Positions(Part):
    """Sends positions to one endpoint's clients."""

    def __init__(self, desk: Desk, watermarks: Watermarks, sending: Sending) -> None:
        self._desk = desk
        self._watermarks = watermarks
        self._sending = sending
        self._owed: dict[ReplaySession, None] = {}
        self._telling = False
        self._idle_at = desk.now + IDLE_S
        self.replay_sessions: dict[Connection, ReplaySession] = {}

    def of(self, session: ReplaySession) -> str:
        """Return the position of a session that holds no more messages, and count the position as sent."""
        watermark = self._watermarks.cluster_watermark if self._watermarks.known else 0
        session.since = max(session.since, min(watermark, session.floor))
        session.told = session.since
        return self._watermarks.position_at(session.since)

    def forget(self, session: ReplaySession) -> None:
        """Send the session no more positions."""
        self._owed.pop(session, None)

    def owe(self, session: ReplaySession) -> None:
        """Record that a message was sent to the session. The session gets a position as soon as a position covers this
        message."""
        session.owed = 2
        self._owed[session] = None

    def advance(self) -> None:
        """Send positions after the cluster's watermark has grown. Each session that got messages since its last
        position gets a new position."""
        self._watermarks.advances = False
        if self._owed and not self._telling:
            self._telling = True
            self._desk.job(self._tell_positions(list(self._owed)))

    def _tell_positions(self, sessions: Sequence[ReplaySession]) -> Iterator[bool]:
        watermark = -1
        frames: dict[Codec, bytes] = {}
        for start in range(0, len(sessions), SESSIONS_PER_SLICE):
            if watermark != self._watermarks.cluster_watermark:
                watermark = self._watermarks.cluster_watermark
                frames.clear()
            for session in sessions[start : start + SESSIONS_PER_SLICE]:
                if session.holds or not session.is_here or not self._watermarks.known:
                    continue
                session.owed -= 1
                if session.owed <= 0:
                    self._owed.pop(session, None)
                reached = min(watermark, session.floor)
                if reached < watermark:
                    self._owed[session] = None  # it needs another position, which covers the messages held now
                if reached > session.told:
                    session.told = reached
                    codec = session.connection.codec
                    frame = self._frame(codec, frames) if reached == watermark else self._frame_at(codec, reached)
                    self._sending.push(session.connection, frame, True)
            yield False
        self._telling = False

    def _frame(self, codec: Codec, frames: dict[Codec, bytes]) -> bytes:
        """Return the frame of the current position for this codec. ``frames`` caches the frames made so far."""
        frame = frames.get(codec)
        if frame is None:
            frame = frames[codec] = codec.frame(encode({"position": self._watermarks.position}))
        return frame

    def _frame_at(self, codec: Codec, stamp: int) -> bytes:
        return codec.frame(encode({"position": self._watermarks.position_at(stamp)}))

    def tick(self) -> None:
        """Send positions to idle connections."""
        if self._desk.now >= self._idle_at:
            self._idle_at = self._desk.now + IDLE_S
            if self.replay_sessions and not self._telling and self._watermarks.known:
                self._telling = True
                self._desk.job(self._tell_positions(list(self.replay_sessions.values())))
