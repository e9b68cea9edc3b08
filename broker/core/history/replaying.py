"""Recoveries. A recovering client gets the messages that it missed, then the messages that arrived meanwhile, and
positions. SPEC section 8.10, ADR 36.

Owns: the connections of recovering clients here, and their recoveries. Must never: send a position before all messages
that it covers are in the connection's outbox, or drop a message silently.

A recovery asks all homes, and sends their answers in the order of the stamps, as fast as the socket accepts them.
Meanwhile it holds back new messages for the client, up to half the size of an outbox. If more messages come, it drops
the held messages and all further messages. Then it makes one more attempt, which finds the dropped messages in the
homes' logs. After a failure, an attempt restarts where it stopped.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

from ingeborg.protocol.wire import encode

from ..connections.hub import Connection, Hub, Receiver, put_first, take_out
from ..desk import Desk
from ..filters.pattern import conjunctions
from ..links.calls import TIMEOUT_S
from ..message import Message
from ..metrics import Metric, gauge
from ..outgoing.memory import Memory
from ..outgoing.sending import Sending
from ..part import Part
from ..retained.watermarks import Watermarks
from .attempts import Attempts
from .positions import Positions
from .replay_session import Attempt, ReplaySession

#: The longest time between the moment when a home retains a message and the moment when it dispatches the message, in
#: seconds.
LINGER_S: Final = 2 * TIMEOUT_S

#: The longest time that a `subscribe` command waits for its retained messages, in seconds.
COMMAND_S: Final = 10.0


class Replaying(Part):
    """Runs the recoveries of one endpoint's clients."""

    def __init__(
        self,
        desk: Desk,
        hub: Hub,
        watermarks: Watermarks,
        attempts: Attempts,
        positions: Positions,
        sending: Sending,
        memory: Memory,
    ) -> None:
        self._desk = desk
        self._hub = hub
        self._watermarks = watermarks
        self._attempts = attempts
        self._sending = sending
        self._memory = memory
        self._positions = positions
        self.replay_sessions = positions.replay_sessions
        self._lingering: deque[tuple[float, ReplaySession]] = (
            deque()
        )  # (until when, session): sessions whose clients got retained messages that may also arrive live
        self._timed: deque[Attempt] = deque()  # the attempts of commands, in the order of their time-outs

    def metrics(self) -> list[Metric]:
        """See ``Part``."""
        help = "Connections of this endpoint whose clients recover, or wait for retained messages"
        return [gauge("replay_sessions", help, len(self.replay_sessions))]

    # Messages

    def take(self, session: ReplaySession, client: str, message: Message) -> None:
        """Handle a new message for the client of a session's connection."""
        codec = session.connection.codec
        if session.holds:
            self._hold(session, message, message.named_for(codec) if session.stays else message.frame_for(codec))
            return
        if not session.stays and (message.origin, message.number) in session.sent:
            session.sent.discard((message.origin, message.number))  # an attempt has sent the message already
            return
        onward = session.onward
        if onward is not None:
            onward.take(client, message, session.stays)
        else:
            frame = message.named_for(codec) if session.stays else message.frame_for(codec)
            self._sending.push(session.connection, frame, True)
        if session.stays:
            self._positions.owe(session)

    def _hold(self, session: ReplaySession, message: Message, frame: bytes) -> None:
        if session.overflowed and session.stays:
            self._desk.drops["behind_recovery"] += 1
            return
        session.held.append((message.origin, message.number, frame))
        session.held_bytes += len(frame)
        self._memory.wait(session.connection, len(frame))
        if session.held_bytes <= session.connection.outbox.bytes_max // 2:
            return
        if session.stays:
            # The next attempt sends the dropped messages that are retained. Messages that are not retained have no
            # guarantee.
            self._desk.drops["behind_recovery"] += len(session.held)
            session.overflowed = True
            self._let_go(session)
        else:
            self._push_held(session)

    def _let_go(self, session: ReplaySession) -> None:
        self._memory.wait(session.connection, -session.held_bytes)
        session.held.clear()
        session.held_bytes = 0

    def _push_held(self, session: ReplaySession) -> None:
        held, sent = list(session.held), session.sent
        pushed = 0
        self._let_go(session)
        for origin, number, frame in held:
            if (origin, number) in sent:
                sent.discard((origin, number))  # skip one copy: more copies may be for the connection's other clients
            else:
                self._sending.push(session.connection, frame, True)
                pushed += 1
        if session.onward is not None:
            session.onward.passed(pushed)
        if held and session.stays:
            self._positions.owe(session)

    # Beginning and end of a session

    def _open_session(self, connection: Connection, client: str, stays: bool) -> ReplaySession:
        session = self.replay_sessions[connection] = ReplaySession(client, connection, stays)
        session.receiver = ReplayReceiver(self, session)
        put_first(connection, session.receiver)
        if session.onward is not None:
            session.onward.release(None)  # first send the messages that bounds hold back
        return session

    def _before_holding(self, session: ReplaySession) -> None:
        """Prepare to hold back messages. First send the messages that the client's bounds hold back."""
        if session.onward is not None:
            session.onward.release(None)
        session.settled = session.since = max(session.since, self._watermarks.cluster_watermark)

    def listens(self, connection: Connection, client: str) -> None:
        """Handle the beginning of a `listen` with `recover`. New messages for its client wait until the `listen` has
        succeeded."""
        session = self.replay_sessions.get(connection)
        if session is None or not session.stays:
            session = self._open_session(connection, client, True)
        if not session.holds:
            self._before_holding(session)
        self._stop(session)
        session.waits, session.missed = True, False

    def listened(self, connection: Connection, client: str, position: str) -> dict[str, Any]:
        """Start the recovery after its `listen` has succeeded. Return further fields for the reply."""
        session = self.replay_sessions.get(connection)
        if session is None or session.client != client or not session.waits:
            return {}
        missed = session.missed
        session.waits = session.missed = session.gap_any = session.is_unknown = False
        session.listened = True
        if not position:
            if missed:
                self._begin(Attempt(session, session.since))
                return {"recovering": False}
            # Messages that have arrived meanwhile are sent before the reply, because the reply's position can cover
            # these messages.
            self._next(session)
            is_known = self._watermarks.known and not session.holds
            return {"recovering": False, **({"position": self._positions.of(session)} if is_known else {})}
        stamp = self._watermarks.stamp_of(position)
        if stamp is None:
            session.gap_any = session.is_unknown = True  # the client gets a notice, and all retained messages
            stamp = 0
        session.since = stamp
        self._begin(Attempt(session, stamp))
        return {"recovering": True}

    def not_listened(self, connection: Connection, client: str) -> None:
        """Undo ``listens`` after the `listen` has failed. Send the held messages without a position, or recover again
        if an earlier `listen` of the client on this connection had succeeded."""
        session = self.replay_sessions.get(connection)
        if session is None or session.client != client or not session.stays:
            return
        if session.listened and client in connection.clients:
            session.waits = False
            self._begin(Attempt(session, session.since))
            return
        self._forget(session)
        self._push_held(session)

    def restored(self, session: ReplaySession) -> None:
        """Recover again, because the client listens here again after its `listen` elsewhere has failed."""
        if not session.stays:
            return
        if session.waits:
            session.missed = True
        elif not session.attempts:
            if session.onward is not None:
                session.onward.release(None)
            session.settled = 0
            self._begin(Attempt(session, session.since))
        else:
            # The homes may have answered before they had the messages that the client missed.
            self._once_more(session)

    def unlistens(self, session: ReplaySession, client: str) -> None:
        """Forget a client that no longer listens here."""
        if session.client == client:
            self._forget(session)
            self._let_go(session)

    def closed(self, connection: Connection) -> None:
        """See ``Part``."""
        if (session := self.replay_sessions.get(connection)) is not None:
            self._forget(session)
            self._let_go(session)

    def _forget(self, session: ReplaySession) -> None:
        self._stop(session)
        session.ended = True
        if self.replay_sessions.get(session.connection) is session:
            if session.receiver is not None:
                take_out(session.connection, session.receiver)
            self.replay_sessions.pop(session.connection, None)
        self._positions.forget(session)

    def _stop(self, session: ReplaySession) -> None:
        attempts = list(session.attempts)
        session.attempts.clear()
        session.overflowed = session.ends_untold = False
        session.sent.clear()
        for attempt in attempts:
            self._attempts.cancel(attempt)
            if attempt.done is not None:
                attempt.done(False, False)

    # Retained messages for a subscribe

    def hold_for(self, connection: Connection, client: str) -> None:
        """Handle the beginning of a `subscribe` that requests retained messages. New messages wait until the retained
        messages have been sent."""
        session = self.replay_sessions.get(connection)
        if session is None:
            session = self._open_session(connection, client, False)
        elif not session.holds:
            self._before_holding(session)
        session.attempts.append(Attempt(session, 0, [], 0))

    def read_retained(
        self,
        connection: Connection,
        topics: list[str],
        since: str | None,
        latest: int,
        filter: str | None,
        done: Callable[[bool, bool], None],
    ) -> None:
        """Send the retained messages that a `subscribe` requested, after the store has written the subscription. For
        ``done`` see ``Attempt``."""
        session = self.replay_sessions.get(connection)
        if session is None or not session.attempts:
            done(False, False)
            return
        stamp = self._watermarks.stamp_of(since) if since is not None else 0
        attempt = Attempt(session, 0 if stamp is None else stamp, topics, latest, done)
        attempt.until = self._desk.now + COMMAND_S
        attempt.patterns = dict.fromkeys(topics, None if filter is None else conjunctions(filter))
        if stamp is None:
            attempt.gap_topics = list(topics)
        self._timed.append(attempt)
        if not self._replace(session, attempt):
            self._end(attempt, False)  # a `listen` has removed the placeholder meanwhile

    def not_subscribed(self, connection: Connection) -> None:
        """Send the messages that waited for a `subscribe`, because the store could not write the subscription."""
        session = self.replay_sessions.get(connection)
        if session is not None and session.attempts:
            self._replace(session, None)

    def _replace(self, session: ReplaySession, by: Attempt | None) -> bool:
        """Replace the first placeholder of a `subscribe` among the attempts, or remove it if ``by`` is ``None``. Return
        false if there is no placeholder."""
        index = next((index for index, attempt in enumerate(session.attempts) if attempt.stands_for_one), None)
        if index is None:
            return False
        del session.attempts[index]
        if by is not None:
            session.attempts.insert(index, by)
        if index == 0:
            self._next(session)
        return True

    # Attempts

    def _begin(self, attempt: Attempt) -> None:
        session = attempt.session
        session.attempts.append(attempt)
        if len(session.attempts) == 1:
            self._next(session)

    def _next(self, session: ReplaySession) -> None:
        """Start the next attempt. If there is none, send the held messages, and from now on pass new messages
        directly."""
        if not session.attempts and session.overflowed:
            session.overflowed = False
            session.sent.clear()
            session.attempts.append(Attempt(session, session.since))
        if not session.attempts:
            self._caught_up(session)
        elif not session.attempts[0].stands_for_one:
            self._attempts.start(session.attempts[0])

    def _caught_up(self, session: ReplaySession) -> None:
        if session.stays and not session.is_here:
            # The client recovers on the connection where it listens now. On this connection it would get these messages
            # without the earlier messages that it missed.
            self._desk.drops["behind_recovery"] += len(session.held)
            self._let_go(session)
            return
        self._push_held(session)
        if not session.stays:
            if session.sent and len(session.connection.clients) == 1:
                # If a retained message was sent before its home dispatched it, it also arrives live. This client gets
                # no `mid` to recognise repeats, so the session stays for a while to remove repeats.
                self._lingering.append((self._desk.now + LINGER_S, session))
            else:
                self._forget(session)
            return
        session.sent.clear()
        self._positions.owe(session)
        if session.ends_untold:
            # The last of several attempts can belong to a `subscribe`, so the recovery may have completed earlier.
            session.ends_untold = False
            connection = session.connection
            frame = connection.codec.frame(encode({"position": self._positions.of(session), "recovered": True}))
            self._sending.push(connection, frame, True)

    def _end(self, attempt: Attempt, is_whole: bool) -> None:
        """End the attempt, and start the next attempt."""
        session = attempt.session
        attempt.is_over = True
        if attempt.done is not None:
            attempt.done(is_whole, attempt.has_gap)
        is_next = bool(session.attempts) and session.attempts[0] is attempt
        if attempt in session.attempts:
            session.attempts.remove(attempt)
        if session.ended:
            return
        if is_whole and attempt.done is None:
            session.ends_untold = True
            session.is_unknown = False
            if attempt.wanted is None:
                session.since = max(session.since, attempt.watermark)
        if is_next:
            self._next(session)

    def drained(self, session: ReplaySession) -> None:
        """Continue sending, because the connection accepts more bytes again."""
        if session.attempts:
            self._attempts.wake(session.attempts[0])

    def flush(self) -> None:
        """End the turn. Handle clients that have missed messages, attempts that have ended, and positions that are
        due."""
        if self._watermarks.missing:
            missing, self._watermarks.missing = self._watermarks.missing, []
            for clients in missing:
                self.missed_some(clients)
            self._watermarks.advance()
        while self._attempts.over:
            over, self._attempts.over = self._attempts.over, []
            for attempt, is_whole in over:
                if not attempt.is_over:  # an earlier event of this turn may have ended it
                    self._end(attempt, is_whole)
        if self._watermarks.advances:
            self._positions.advance()

    def tick(self) -> None:
        """End attempts whose command has waited too long."""
        now = self._desk.now
        while self._lingering and self._lingering[0][0] <= now:
            _, session = self._lingering.popleft()
            if not session.ended and not session.attempts:
                self._forget(session)
        while self._timed and (self._timed[0].is_over or self._timed[0].until <= now):
            attempt = self._timed.popleft()
            if not attempt.is_over:
                self._attempts.cancel(attempt)
                self._end(attempt, False)

    def missed_some(self, clients: Sequence[str] | None) -> None:
        """Recover these clients, or all clients if ``clients`` is ``None``, because a message for them may not have
        arrived here. Each recovery starts at the last stamp up to which its client has certainly received
        everything."""
        sessions: list[ReplaySession] = []
        if clients is None:
            sessions = list(self.replay_sessions.values())
        else:
            for client in clients:
                binding = self._hub.bindings.get(client)
                session = None if binding is None else self.replay_sessions.get(binding.connection)
                if session is not None:
                    sessions.append(session)
        self._recover(sessions)

    def _recover(self, sessions: Sequence[ReplaySession]) -> None:
        watermark = self._watermarks.cluster_watermark
        for session in sessions:
            if not session.stays or session.missed or not session.is_here:
                continue
            if session.waits:
                session.missed, session.since = True, watermark
                continue
            if not session.attempts:
                self._before_holding(session)
                attempt = Attempt(session, session.since)
                session.attempts.append(attempt)
                self._attempts.begin_later(attempt)
            else:
                self._once_more(session)

    @staticmethod
    def _once_more(session: ReplaySession) -> None:
        """Add an attempt after the present attempts, unless the last of several attempts is already for all topics."""
        if len(session.attempts) < 2 or session.attempts[-1].wanted is not None:
            session.attempts.append(Attempt(session, session.since))

    def lapsed(self) -> None:
        """Recover all clients, because other endpoints can now act without this endpoint. New messages wait until the
        clients have all earlier messages."""
        self._recover(list(self.replay_sessions.values()))


class ReplayReceiver(Receiver):
    """The receiver of a session's connection."""

    def __init__(self, replaying: Replaying, session: ReplaySession) -> None:
        super().__init__()
        self._replaying = replaying
        self._session = session

    def take(self, client: str, message: Message, named: bool) -> None:
        """See ``Receiver``."""
        self._replaying.take(self._session, client, message)

    def drained(self) -> None:
        """See ``Receiver``."""
        self._replaying.drained(self._session)
        super().drained()

    def gone(self, client: str) -> None:
        """See ``Receiver``."""
        super().gone(client)
        self._replaying.unlistens(self._session, client)

    def restored(self) -> None:
        """See ``Receiver``."""
        super().restored()
        self._replaying.restored(self._session)
