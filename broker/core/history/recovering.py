"""Clients that recover: what they have missed, behind it what has come meanwhile, and positions. SPEC section 8.10,
ADR 36.

Owns: the connections of such clients here, and their recoveries. Must never: send a position that covers what has not
been put into the connection's outbox before it, or let go of a message without a word.

A recovery asks all homes, and sends what they answer in the order of the stamps, as fast as the socket takes it. What
comes for the client meanwhile is held, up to half an outbox; beyond, it is let go of, and the recovery goes one round
more, since it is in the homes' logs by then. Each failure on the way begins the round anew, from where it had got to.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

from ingeborg.protocol.wire import encode

from ..connections.hub import Connection, Hub, Receiver
from ..desk import Desk
from ..filters.pattern import conjunctions
from ..links.calls import TIMEOUT_S
from ..message import Message
from ..metrics import Metric, gauge
from ..outgoing.memory import Memory
from ..outgoing.sending import Sending
from ..part import Part
from ..retained.marks import Marks
from .follower import Follower, Round
from .positions import Positions
from .rounds import Rounds

#: A message is retained so long before it is dispatched, in seconds, at the most.
LINGER_S: Final = 2 * TIMEOUT_S

#: A command waits for its retained messages for so long, in seconds.
COMMAND_S: Final = 10.0


class Recovering(Part):
    """One endpoint's part."""

    def __init__(
        self,
        desk: Desk,
        hub: Hub,
        marks: Marks,
        rounds: Rounds,
        positions: Positions,
        sending: Sending,
        memory: Memory,
    ) -> None:
        self._desk = desk
        self._hub = hub
        self._marks = marks
        self._rounds = rounds
        self._sending = sending
        self._memory = memory
        self._positions = positions
        self.followers = positions.followers
        self._lingering: deque[tuple[float, Follower]] = deque()  # that have been sent what may come live, until when
        self._timed: deque[Round] = deque()  # those of commands, in the order in which their time is over

    def metrics(self) -> list[Metric]:
        """See ``Part``."""
        help = "Connections at this endpoint whose clients recover, or wait for retained messages"
        return [gauge("followers", help, len(self.followers))]

    # Messages

    def take(self, follower: Follower, message: Message) -> None:
        """A message for the client of a follower's connection."""
        codec = follower.connection.codec
        frame = message.named_for(codec) if follower.stays else message.frame_for(codec)
        if follower.holds:
            self._hold(follower, message, frame)
            return
        if not follower.stays and (message.origin, message.number) in follower.sent:
            follower.sent.discard((message.origin, message.number))  # it was dispatched when it was retained already
            return
        self._sending.push(follower.connection, frame, True)
        if follower.stays:
            self._positions.owe(follower)

    def _hold(self, follower: Follower, message: Message, frame: bytes) -> None:
        if follower.overflowed and follower.stays:
            self._desk.drops["behind_recovery"] += 1
            return
        follower.held.append((message.origin, message.number, frame))
        follower.held_bytes += len(frame)
        self._memory.wait(follower.connection, len(frame))
        if follower.held_bytes <= follower.connection.outbox.bytes_max // 2:
            return
        if follower.stays:
            # What of it is retained comes with the next round; the rest has no promise.
            self._desk.drops["behind_recovery"] += len(follower.held)
            follower.overflowed = True
            self._let_go(follower)
        else:
            self._push_held(follower)

    def _let_go(self, follower: Follower) -> None:
        self._memory.wait(follower.connection, -follower.held_bytes)
        follower.held.clear()
        follower.held_bytes = 0

    def _push_held(self, follower: Follower) -> None:
        held, sent = list(follower.held), follower.sent
        self._let_go(follower)
        for origin, number, frame in held:
            if (origin, number) in sent:
                sent.discard((origin, number))  # several clients of a connection may get the same one
            else:
                self._sending.push(follower.connection, frame, True)
        if held and follower.stays:
            self._positions.owe(follower)

    # Beginning and end of a follower

    def _follow(self, connection: Connection, client: str, stays: bool) -> Follower:
        follower = self.followers[connection] = Follower(client, connection, stays)
        connection.receiver = Followed(self, follower)
        return follower

    def listens(self, connection: Connection, client: str) -> None:
        """A `listen` with `recover` has begun: what comes for its client waits until it is known to have succeeded."""
        follower = self.followers.get(connection)
        if follower is None or not follower.stays:
            follower = self._follow(connection, client, True)
        if not follower.holds:
            follower.settled = follower.since = max(follower.since, self._marks.stable)
        self._stop(follower)
        follower.waits, follower.missed = True, False

    def listened(self, connection: Connection, client: str, position: str) -> dict[str, Any]:
        """It has succeeded. Returns what its reply says beside."""
        follower = self.followers.get(connection)
        if follower is None or follower.client != client or not follower.waits:
            return {}
        missed = follower.missed
        follower.waits = follower.missed = follower.gap_any = follower.is_unknown = False
        follower.listened = True
        if not position:
            if missed:
                self._begin(Round(follower, follower.since))
                return {"recovering": False}
            # What has come meanwhile goes before the reply, whose position may cover it.
            self._next(follower)
            is_known = self._marks.known and not follower.holds
            return {"recovering": False, **({"position": self._positions.of(follower)} if is_known else {})}
        stamp = self._marks.stamp_of(position)
        if stamp is None:
            follower.gap_any = follower.is_unknown = True  # it is told so, and is sent all there is
            stamp = 0
        follower.since = stamp
        self._begin(Round(follower, stamp))
        return {"recovering": True}

    def not_listened(self, connection: Connection, client: str) -> None:
        """It has failed: what has come for the client goes to it, and no position; unless it recovers here already."""
        follower = self.followers.get(connection)
        if follower is None or follower.client != client or not follower.stays:
            return
        if follower.listened and client in connection.clients:
            follower.waits = False
            self._begin(Round(follower, follower.since))
            return
        self._forget(follower)
        self._push_held(follower)

    def restored(self, follower: Follower) -> None:
        """Its client listens there again, since its `listen` elsewhere has failed."""
        if not follower.stays:
            return
        if follower.waits:
            follower.missed = True
        elif not follower.rounds:
            follower.settled = 0
            self._begin(Round(follower, follower.since))
        else:
            # The homes may have been asked before that came which it has missed.
            self._once_more(follower)

    def unlistens(self, follower: Follower, client: str) -> None:
        """The client listens here no longer."""
        if follower.client == client:
            self._forget(follower)
            self._let_go(follower)

    def closed(self, connection: Connection) -> None:
        """See ``Part``."""
        if (follower := self.followers.get(connection)) is not None:
            self._forget(follower)
            self._let_go(follower)

    def _forget(self, follower: Follower) -> None:
        self._stop(follower)
        follower.ended = True
        if self.followers.get(follower.connection) is follower:
            follower.connection.receiver = None
            self.followers.pop(follower.connection, None)
        self._positions.forget(follower)

    def _stop(self, follower: Follower) -> None:
        rounds = list(follower.rounds)
        follower.rounds.clear()
        follower.overflowed = follower.ends_untold = False
        follower.sent.clear()
        for round in rounds:
            self._rounds.cancel(round)
            if round.done is not None:
                round.done(False, False)

    # What a subscribe asks for

    def hold_for(self, connection: Connection, client: str) -> None:
        """A `subscribe` that asks for retained messages has begun: what comes waits behind these."""
        follower = self.followers.get(connection)
        if follower is None:
            follower = self._follow(connection, client, False)
        elif not follower.holds:
            follower.settled = follower.since = max(follower.since, self._marks.stable)
        follower.rounds.append(Round(follower, 0, [], 0))

    def read_retained(
        self,
        connection: Connection,
        topics: list[str],
        since: str | None,
        latest: int,
        filter: str | None,
        done: Callable[[bool, bool], None],
    ) -> None:
        """It has been written: send what is retained of its topics. ``done``: see ``Round``."""
        follower = self.followers.get(connection)
        if follower is None or not follower.rounds:
            done(False, False)
            return
        stamp = self._marks.stamp_of(since) if since is not None else 0
        round = Round(follower, 0 if stamp is None else stamp, topics, latest, done)
        round.until = self._desk.now + COMMAND_S
        round.patterns = dict.fromkeys(topics, None if filter is None else conjunctions(filter))
        if stamp is None:
            round.gap_topics = list(topics)
        self._timed.append(round)
        if not self._replace(follower, round):
            self._end(round, False)  # a `listen` has come in between, and has ended what was asked for

    def not_subscribed(self, connection: Connection) -> None:
        """It could not be written."""
        follower = self.followers.get(connection)
        if follower is not None and follower.rounds:
            self._replace(follower, None)

    def _replace(self, follower: Follower, by: Round | None) -> bool:
        """The first of the rounds that stand for one of a `subscribe`. False: there is none."""
        index = next((index for index, round in enumerate(follower.rounds) if round.stands_for_one), None)
        if index is None:
            return False
        del follower.rounds[index]
        if by is not None:
            follower.rounds.insert(index, by)
        if index == 0:
            self._next(follower)
        return True

    # Rounds

    def _begin(self, round: Round) -> None:
        follower = round.follower
        follower.rounds.append(round)
        if len(follower.rounds) == 1:
            self._next(follower)

    def _next(self, follower: Follower) -> None:
        """The next round, or none any more."""
        if not follower.rounds and follower.overflowed:
            follower.overflowed = False
            follower.sent.clear()
            follower.rounds.append(Round(follower, follower.since))
        if not follower.rounds:
            self._caught_up(follower)
        elif not follower.rounds[0].stands_for_one:
            self._rounds.start(follower.rounds[0])

    def _caught_up(self, follower: Follower) -> None:
        if follower.stays and not follower.is_here:
            # Its client recovers where it listens now; here this would come without what was before it.
            self._desk.drops["behind_recovery"] += len(follower.held)
            self._let_go(follower)
            return
        self._push_held(follower)
        if not follower.stays:
            if follower.sent and len(follower.connection.clients) == 1:
                # What was retained before it was dispatched comes live, too, and this client cannot tell by a `mid`.
                self._lingering.append((self._desk.now + LINGER_S, follower))
            else:
                self._forget(follower)
            return
        follower.sent.clear()
        self._positions.owe(follower)
        if follower.ends_untold:
            # The last of several may be what a `subscribe` asked for.
            follower.ends_untold = False
            connection = follower.connection
            frame = connection.codec.frame(encode({"position": self._positions.of(follower), "recovered": True}))
            self._sending.push(connection, frame, True)

    def _end(self, round: Round, is_whole: bool) -> None:
        """The round is over."""
        follower = round.follower
        round.is_over = True
        if round.done is not None:
            round.done(is_whole, round.has_gap)
        is_next = bool(follower.rounds) and follower.rounds[0] is round
        if round in follower.rounds:
            follower.rounds.remove(round)
        if follower.ended:
            return
        if is_whole and round.done is None:
            follower.ends_untold = True
            follower.is_unknown = False
            if round.wanted is None:
                follower.since = max(follower.since, round.mark)
        if is_next:
            self._next(follower)

    def drained(self, follower: Follower) -> None:
        """The connection takes more again."""
        if follower.rounds:
            self._rounds.wake(follower.rounds[0])

    def flush(self) -> None:
        """The turn ends: see to those that have missed something, to rounds that are over, and to positions."""
        if self._marks.missing:
            missing, self._marks.missing = self._marks.missing, []
            for clients in missing:
                self.missed_some(clients)
            self._marks.advance()
        while self._rounds.over:
            over, self._rounds.over = self._rounds.over, []
            for round, is_whole in over:
                if not round.is_over:  # what else the turn has brought may have ended it
                    self._end(round, is_whole)
        if self._marks.advances:
            self._positions.advance()

    def tick(self) -> None:
        """End what a command has waited for too long."""
        now = self._desk.now
        while self._lingering and self._lingering[0][0] <= now:
            _, follower = self._lingering.popleft()
            if not follower.ended and not follower.rounds:
                self._forget(follower)
        while self._timed and (self._timed[0].is_over or self._timed[0].until <= now):
            round = self._timed.popleft()
            if not round.is_over:
                self._rounds.cancel(round)
                self._end(round, False)

    def missed_some(self, clients: Sequence[str] | None) -> None:
        """A message may not have come here for these (None: for any): they recover from what they have had for sure."""
        followers: list[Follower] = []
        if clients is None:
            followers = list(self.followers.values())
        else:
            for client in clients:
                binding = self._hub.bindings.get(client)
                follower = None if binding is None else self.followers.get(binding.connection)
                if follower is not None:
                    followers.append(follower)
        self._recover(followers)

    def _recover(self, followers: Sequence[Follower]) -> None:
        stable = self._marks.stable
        for follower in followers:
            if not follower.stays or follower.missed or not follower.is_here:
                continue
            if follower.waits:
                follower.missed, follower.since = True, stable
                continue
            if not follower.rounds:
                follower.settled = follower.since = max(follower.since, stable)
                round = Round(follower, follower.since)
                follower.rounds.append(round)
                self._rounds.begin_later(round)
            else:
                self._once_more(follower)

    @staticmethod
    def _once_more(follower: Follower) -> None:
        """A round behind those on their way, unless there is one that has not been begun."""
        if len(follower.rounds) < 2 or follower.rounds[-1].wanted is not None:
            follower.rounds.append(Round(follower, follower.since))

    def lapsed(self) -> None:
        """Others may act without this endpoint: what comes from here on waits until all is known."""
        self._recover(list(self.followers.values()))


class Followed(Receiver):
    """The receiver of a follower's connection."""

    __slots__ = ("_follower", "_recovering")

    def __init__(self, recovering: Recovering, follower: Follower) -> None:
        self._recovering = recovering
        self._follower = follower

    def take(self, message: Message) -> None:
        """See ``Receiver``."""
        self._recovering.take(self._follower, message)

    def drained(self) -> None:
        """See ``Receiver``."""
        self._recovering.drained(self._follower)

    def gone(self, client: str) -> None:
        """See ``Receiver``."""
        self._recovering.unlistens(self._follower, client)

    def restored(self) -> None:
        """See ``Receiver``."""
        self._recovering.restored(self._follower)
