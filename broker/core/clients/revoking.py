"""Revoking tokens: handles the command `revoke`, tells every peer, and closes the connections with revoked tokens. SPEC
section 2.4.

Owns: the revocations that this endpoint knows, and the revokes in progress. Must never: report success before the store
and every peer that serves clients have the revocation, or serve clients with tokens while this endpoint may lack a
revocation that already applies at other endpoints.

This part keeps these rules as follows. The store has a revocation before any peer learns it. Every endpoint in the view
learns the revocation, unless the endpoint is dead. An endpoint's lease always lapses before the others consider the
endpoint dead. After its lease has lapsed, an endpoint begins no commands and sends no messages for clients with tokens.
It serves them again after all others have accepted it and it has then read the revocations from the store. So even an
endpoint that the others could not notify knows the revocation before it serves clients again. Similarly, an endpoint
that has just started accepts clients with tokens only after it has read the revocations.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any, Final

from ingeborg.protocol.errors import TOKEN_REVOKED, ProtocolError
from ingeborg.protocol.messages import Command, success

from ..cluster.membership import Membership
from ..connections.grants import Grant
from ..connections.hub import Connection, Reply
from ..desk import Desk
from ..effects import Knows
from ..limits import SIZES, Sizes
from ..links.calls import TIMEOUT_S, Call
from ..links.requests import Request, RevokedRequest
from ..metrics import Metric, gauge
from ..model import JTI, SUB, Revocation, TooManyRevocations
from ..outgoing.replies import Replies
from ..outgoing.sending import Sending
from ..part import CommandSpec, Part, RequestHandler
from ..stores import unavailable
from .revocations import KEPT_S, Revocations
from .sessions import Sessions

#: How long to remember a revocation by default, and at most, in seconds. The default is longer than most tokens live,
#: and the maximum is longer than any token should live.
REMEMBERED_S: Final = 30 * 86_400
REMEMBERED_MAX_S: Final = 400 * 86_400

#: Seconds between two reads of the stored revocations. The reads find any revocation that the endpoint has missed.
READ_S: Final = 10.0

#: Seconds from a failed read to the next one, if the endpoint lacks the revocations and therefore accepts no client
#: with a token.
AGAIN_S: Final = 0.5

#: Maximum number of revokes that can wait for the store. The endpoint refuses further revokes. It writes all revokes
#: that arrived during a write together in the next write.
WAITING_MAX: Final = 1_000


class Revoke:
    """A `revoke` in progress."""

    __slots__ = ("connection", "deadline", "id", "reply", "revocation")

    def __init__(
        self, connection: Connection, reply: Reply, number: Any, revocation: Revocation, deadline: float
    ) -> None:
        self.connection = connection
        self.reply = reply
        self.id = number
        self.revocation = revocation
        self.deadline = deadline


class Word:
    """Revocations on their way to the peers."""

    __slots__ = ("deadline", "error", "open", "revokes")

    def __init__(self, revokes: list[Revoke], deadline: float) -> None:
        self.revokes = revokes
        self.deadline = deadline
        self.open = 1
        self.error: ProtocolError | None = None


class Revoking(Part):
    """Handles the revocation of tokens at one endpoint."""

    def __init__(
        self,
        desk: Desk,
        members: Membership,
        sessions: Sessions,
        sending: Sending,
        replies: Replies,
        sizes: Sizes = SIZES,
    ) -> None:
        self._desk = desk
        self._members = members
        self._sessions = sessions
        self._sending = sending
        self._replies = replies
        self._looked_at_per_slice = sizes.looked_at_per_slice
        self._revoked_per_slice = sizes.revoked_per_slice
        #: Whether this endpoint knows all revocations that apply. It accepts and serves clients with tokens only if it
        #: knows all.
        self.knows = False
        self.known = Revocations()
        self._is_current = False  # it has read all stored revocations after all others had accepted it
        self._round = 0  # how many times this endpoint has joined
        self._holds_back = False
        self._waiting: deque[Revoke] = deque()
        self._writes = 0  # the number of writes in progress
        self._parked: deque[Word] = deque()  # these wait until this endpoint has joined
        self._read_at = desk.now
        self._reading = False
        # ``_news`` counts additions that revoke more tokens; ``_seen`` is its value at the last check of all
        # connections
        self._news = self._seen = 0
        self._looking = False

    def metrics(self) -> list[Metric]:
        """See ``Part``."""
        return [
            self._desk.counted("connections_revoked", "Connections closed because their token has been revoked"),
            self._desk.counted("revoked_refused", "Connections refused because their token has been revoked"),
            gauge("revocations", "Revoked tokens and subjects that this endpoint remembers", len(self.known)),
        ]

    def commands(self) -> dict[str, CommandSpec]:
        """See ``Part``."""
        return {"revoke": CommandSpec(self.revoke, after_close=True)}

    def requests(self) -> dict[type[Request], RequestHandler]:
        """See ``Part``."""
        return {RevokedRequest: self.told}

    def refuses(self, grant: Grant) -> bool:
        """Return whether the token of a connecting client has been revoked. If so, count the refusal."""
        named = self.known.names(grant)
        if named:
            self._desk.counts["revoked_refused"] += 1
        return named

    # The command

    def revoke(self, connection: Connection, command: Command) -> None:
        """Handle an operator's ``revoke``, of a token or of a subject's tokens."""
        reply = self._replies.expect(connection)
        try:
            revocation = self._revocation(connection, command)
            if len(self._waiting) >= WAITING_MAX:
                raise ProtocolError(
                    "store_unavailable", f"{WAITING_MAX:,} other revocations wait for the store; try again later"
                )
        except ProtocolError as error:
            self._replies.refuse(connection, reply, command.id, error)
            return
        self._waiting.append(Revoke(connection, reply, command.id, revocation, self._desk.now + TIMEOUT_S))
        self._write_waiting()

    def _revocation(self, connection: Connection, command: Command) -> Revocation:
        """Return the command's revocation. Raise ``ProtocolError`` if the command must be refused."""
        if connection.grant is None:
            raise ProtocolError("forbidden", "This endpoint requires no tokens, so there is nothing to revoke")
        assert command.revoked is not None, "the check of a revoke sets it"
        jti, subject, expires_at = command.revoked
        now = self._desk.unix_s
        if expires_at is None:
            expires_at = now + REMEMBERED_S
        if expires_at > now + REMEMBERED_MAX_S + KEPT_S:  # KEPT_S allows for clocks that differ
            days = REMEMBERED_MAX_S // 86_400
            raise ProtocolError("bad_state", f"Key 'expires_at' can be at most {days} days from now")
        if expires_at + KEPT_S <= now:
            text = "Key 'expires_at' is in the past: a token that has expired needs no revocation"
            raise ProtocolError("bad_state", text)
        # Round the time up to the end of its second.
        until = int(expires_at) + (expires_at != int(expires_at))
        if jti is not None:
            return Revocation(JTI, jti, 0, until)
        assert subject is not None, "a revoke has a jti or a subject"
        return Revocation(SUB, subject, int(now), until)

    def _write_waiting(self) -> None:
        if self._waiting and not self._writes and self._members.joined:
            revokes = list(self._waiting)
            self._waiting.clear()
            self._write(revokes)

    def _write(self, revokes: list[Revoke]) -> None:
        self._writes += 1
        self._desk.store("revoke", ([revoke.revocation for revoke in revokes],), self._written, revokes)

    def _written(self, revokes: list[Revoke], result: Any, error: Exception | None) -> None:
        self._writes -= 1
        if isinstance(error, TooManyRevocations) and len(revokes) > 1:
            for revoke in revokes:  # write them one by one, so that only the revokes beyond the limit fail
                self._write([revoke])
        elif error is not None:
            is_full = isinstance(error, TooManyRevocations)
            self._refuse(revokes, ProtocolError("bad_state", str(error)) if is_full else unavailable(error))
        else:
            self._learn([revoke.revocation for revoke in revokes])
            word = Word(revokes, self._desk.now + TIMEOUT_S)
            if self._members.joined:
                self._tell(word)
            else:
                self._parked.append(word)
        self._write_waiting()

    def _refuse(self, revokes: list[Revoke], error: ProtocolError) -> None:
        for revoke in revokes:
            self._replies.refuse(revoke.connection, revoke.reply, revoke.id, error)

    # Telling the peers

    def _tell(self, word: Word) -> None:
        request = RevokedRequest([revoke.revocation for revoke in word.revokes])
        peers = self._members.view()
        word.open += len(peers)
        self._desk.cast(peers, request, self, word)
        self._close(word)

    def told(self, peer: str, number: int, request: RevokedRequest) -> None:
        """Learn revocations that a peer has recorded."""
        self._learn([Revocation(*revocation) for revocation in request.revocations])
        self._desk.answer(peer, number)

    def answered(self, call: Call, value: Any) -> None:
        """Handle a peer's answer that it knows the revocations."""
        self._close(call.context)

    def failed(self, call: Call, code: str, info: Any) -> None:
        """Fail the revokes, because a peer that is alive may lack the revocations."""
        call.context.error = ProtocolError(code, info)
        self._close(call.context)

    def lost(self, call: Call) -> str | None:
        """Stop waiting for a dead peer. It reads the stored revocations before it serves clients again."""
        self._close(call.context)
        return None

    def _close(self, word: Word) -> None:
        word.open -= 1
        if word.open:
            return
        if word.error is not None:
            self._refuse(word.revokes, word.error)
            return
        for revoke in word.revokes:
            claim, _, issued_until, expires_at = revoke.revocation
            fields = {"issued_until": issued_until} if claim == SUB else {}
            data = success(revoke.id, expires_at=expires_at, **fields)
            self._replies.reply(revoke.connection, revoke.reply, data)

    # The store's record

    def _read(self) -> None:
        self._reading = True
        self._read_at = self._desk.now + READ_S
        self._desk.store("revocations", (), self._listed, self._round)

    def _listed(self, round: int, result: Any, error: Exception | None) -> None:
        self._reading = False
        if error is not None:
            self._read_at = self._desk.now + (AGAIN_S if not self._is_current else READ_S)
            return
        self._learn(result)
        if round == self._round and self._members.joined:
            self._is_current = True
            self._settle()

    def tick(self) -> None:
        """Read the stored revocations when the next read is due. Give up revokes that have waited for too long."""
        now = self._desk.now
        if now >= self._read_at and not self._reading and self._members.joined:
            self.known.forget(self._desk.unix_s)
            self._read()
        self._write_waiting()
        while self._waiting and self._waiting[0].deadline <= now:
            self._refuse([self._waiting.popleft()], self._why_not())
        while self._parked and self._parked[0].deadline <= now:
            self._refuse(self._parked.popleft().revokes, _NOT_JOINED)

    def _why_not(self) -> ProtocolError:
        """Return the error for revokes that could not be written in time."""
        if not self._members.joined:
            return _NOT_JOINED
        return ProtocolError("store_unavailable", "The store has not answered in time")

    def joined(self) -> None:
        """Read the stored revocations. All other endpoints have accepted this endpoint, and tell it new revocations
        from now on. The store has all earlier revocations."""
        self._round += 1
        self._read()
        while self._parked:
            self._tell(self._parked.popleft())
        self._write_waiting()

    def lapsed(self) -> None:
        """Stop serving clients with tokens. Others can now consider this endpoint dead, and revoke tokens without
        telling it."""
        self._is_current = False
        if self.knows and not self._members.leaving:
            self.knows = False
            self._holds_back = True
            self._sending.hold_back()
            self._sessions.hold_back()

    def _settle(self) -> None:
        """Serve again if this endpoint knows all revocations and has found all connections with revoked tokens."""
        if not self._is_current or self._seen != self._news or self.knows:
            return
        self.knows = True
        self._desk.emit(Knows())
        if self._holds_back:
            self._holds_back = False
            self._sessions.serve_again()
            self._desk.job(self._sending.send_again())

    # Connections with revoked tokens

    def _learn(self, revocations: list[Revocation]) -> None:
        if not self.known.add(revocations, self._desk.unix_s):
            return
        self._news += 1
        if not self._looking:
            self._looking = True
            self._desk.job(self._look())

    def _look(self) -> Iterator[bool]:
        """First stop all commands and messages of connections with revoked tokens, which is quick. Then close these
        connections. If more tokens are revoked meanwhile, stop the connections with these tokens before closing other
        connections."""
        named: list[Connection] = []
        while self._seen != self._news or named:
            if self._seen != self._news:
                yield from self._look_at_all(named)
                self._settle()
                continue
            for connection in named[-self._revoked_per_slice :]:
                if not connection.closed:
                    self._sending.close(connection, TOKEN_REVOKED)
            del named[-self._revoked_per_slice :]
            yield False
        self._looking = False

    def _look_at_all(self, named: list[Connection]) -> Iterator[bool]:
        news, connections, known = self._news, self._sessions.connections, self.known
        numbers = list(connections)
        for start in range(0, len(numbers), self._looked_at_per_slice):
            for number in numbers[start : start + self._looked_at_per_slice]:
                connection = connections.get(number)
                if connection is None or connection.grant is None or connection.revoked:
                    continue
                if known.names(connection.grant):
                    self._desk.counts["connections_revoked"] += 1
                    self._sessions.revoke(connection)
                    named.append(connection)
            yield False
        self._seen = news


_NOT_JOINED: Final = ProtocolError("peer_unavailable", "This endpoint has not joined the others yet")
