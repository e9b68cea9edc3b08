"""A recovery on its way: the homes are asked, and what they answer is sent by its stamps. SPEC section 8.10, ADR 36.

Owns: what each home has answered, and what of it has been sent. Must never: know why somebody recovers, or send what a
position before it covers already.

A failure on the way begins the round anew, from where it had got to: an endpoint that has died, a slot that has moved.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any, Final

from ingeborg.protocol.hashes import SLOTS, slot_of
from ingeborg.protocol.messages import mid_of, named_notification
from ingeborg.protocol.wire import encode

from ..cluster.membership import Membership
from ..connections.hub import Connection
from ..desk import Desk
from ..filters.pattern import conjunctions, matches
from ..links.calls import Call
from ..links.requests import FetchRequest, KeptRow, MissedPage, MissedRequest
from ..metrics import Metric
from ..model import Subscription
from ..outgoing.sending import Sending
from ..part import Part
from ..retained.marks import Marks
from .follower import Round, Source
from .missed import Missed

#: A client with more topics is looked for in what was retained, and not by its topics.
TOPICS_MAX: Final = 2_000

#: What is sent of a recovery in one slice: some 1 ms.
ROWS_PER_SLICE: Final = 200

#: And bytes of payloads, or one message.
BYTES_PER_SLICE: Final = 128 << 10

#: Rounds that are begun in one tick: a store call each.
ROUNDS_PER_TICK: Final = 500

#: A failed round is begun anew after so many seconds, more each time, and at the most.
AGAIN_S: Final = 0.1
AGAIN_MAX_S: Final = 2.0

#: Topics in one frame of a gap.
GAP_NAMES_MAX: Final = 1_000

ALL_SLOTS: Final = b"\xff" * (SLOTS // 8)


class Rounds(Part):
    """One endpoint's. ``missed``: what it answers as a home."""

    def __init__(
        self,
        desk: Desk,
        members: Membership,
        marks: Marks,
        missed: Missed,
        sending: Sending,
    ) -> None:
        self._desk = desk
        self._members = members
        self._me = members.me.incarnation
        self._marks = marks
        self._missed = missed
        self._sending = sending
        self._again: list[Round] = []  # that are begun anew
        #: Rounds that are over, and whether each is whole: ``Recovering`` takes them.
        self.over: list[tuple[Round, bool]] = []

    def metrics(self) -> list[Metric]:
        """See ``Part``."""
        return [
            self._desk.counted(
                "messages_sent_again",
                "Retained messages sent by this endpoint to clients that recover, or ask for the latest",
            ),
            self._desk.counted("recoveries", "Times a client of this endpoint began to recover what it has missed"),
            self._desk.counted(
                "gaps_told",
                "Times a client of this endpoint was told that retained messages may be lacking",
            ),
        ]

    def start(self, round: Round) -> None:
        """Find out what its client has subscribed to, and ask the homes."""
        follower = round.follower
        round.sources = {}
        round.covered = bytearray(SLOTS // 8)
        # Before it is known what the client has subscribed to: what it subscribes to behind that is no part of this.
        round.mark = self._marks.stable
        round.names = []
        round.parked = False
        if not self._members.joined or (follower.is_unknown and not self._marks.known):
            self._try_again(round)  # it does not act, or has no position to end the recovery with
            return
        if round.wanted is not None:
            round.topics = round.wanted
            self._ask(round)
            return
        self._desk.counts["recoveries"] += round.tries == 0
        round.since = max(round.since, follower.since)
        round.gap_topics, round.gap_slots = [], []
        round.patterns = {}
        self._desk.store("topics", (follower.client, None, TOPICS_MAX), self._topics, round)

    def _topics(self, round: Round, result: Any, error: Exception | None) -> None:
        if round.is_over:
            return
        if error is not None:
            self._try_again(round)
            return
        topics: list[str] = result[0]
        round.topics = topics if result[1] is None else None
        self._ask(round)

    def _ask(self, round: Round) -> None:
        members = self._members
        if not members.joined:
            self._try_again(round)
            return
        homes: dict[str, list[str] | None]
        if round.topics is None:
            homes = dict.fromkeys([self._me, *members.view()])
        else:
            by_home: dict[str, list[str]] = {}
            for topic in round.topics:
                by_home.setdefault(members.table[slot_of(topic)], []).append(topic)
            homes = dict(by_home)
        if not homes:
            self._go_on(round)
            return
        round.asked = len(homes)
        tries = round.tries
        for home, topics in homes.items():
            question = MissedRequest(round.follower.client, round.since, topics, round.latest)
            if home == self._me:
                self._missed.ask(question, self._told, (round, home, tries))
            else:
                self._desk.ask(home, question, self, (round, home, tries))

    def answered(self, call: Call, value: Any) -> None:
        """A home has said what there is."""
        self._told(call.context, value)

    def failed(self, call: Call, code: str, info: Any) -> None:
        """It could not, or did not answer in time."""
        self._told(call.context, None)

    def lost(self, call: Call) -> str | None:
        """It is gone, or not the home any more."""
        self._told(call.context, None)
        return None

    def _told(self, context: Any, answer: MissedPage | None) -> None:
        round: Round = context[0]
        home: str = context[1]
        if round.is_over or context[2] != round.tries:
            return  # of a try before this one
        if answer is None:
            self._try_again(round)
            return
        number, rows = answer.number, deque(answer.rows)
        round.gap_topics += answer.gap_topics
        source = round.sources.get(home)
        if source is not None:
            source.asked = False
            source.number, source.page = number, len(rows)
            source.rows.extend(rows)
        else:
            round.sources[home] = Source(rows, number)
            round.gap_slots += answer.gap_slots
            for index, bits in enumerate(answer.covered or ()):
                round.covered[index] |= bits
            round.mark = min(answer.mark, round.mark)
            round.asked -= 1
            if round.asked:
                return
            if round.topics is None and bytes(round.covered) != ALL_SLOTS:
                self._try_again(round)  # a slot was on its way from one to the other
                return
            self._go_on(round)
            return
        self.wake(round)

    def begin_later(self, round: Round) -> None:
        """There are many, or this endpoint does not act just now: it is begun with one of the next ticks."""
        round.after = self._desk.now
        self._again.append(round)

    def _try_again(self, round: Round) -> None:
        round.tries += 1
        if round.job is not None and round.parked:
            round.parked = False
            self._desk.job(round.job)
        round.job = None
        if not round.follower.is_here or (round.until and self._desk.now >= round.until):
            self.over.append((round, False))
            return
        round.after = self._desk.now + min(AGAIN_S * round.tries, AGAIN_MAX_S)
        self._again.append(round)

    def _go_on(self, round: Round) -> None:
        """All homes have answered."""
        round.job = self._send(round, round.tries)
        self._desk.job(round.job)

    def _send(self, round: Round, tries: int) -> Iterator[bool]:
        follower = round.follower
        connection = follower.connection
        if follower.gap_any and follower.stays:
            follower.gap_any = False
            self._desk.counts["gaps_told"] += 1
            self._tell(connection, {"gap": None})
        while True:
            if round.is_over or round.tries != tries:
                return
            if not follower.is_here or (round.until and self._desk.now >= round.until):
                self.over.append((round, False))
                return
            self._tell_gaps(round)
            is_full = self._is_full(connection)
            if is_full or not self._have_rows(round):
                if round.tries != tries:
                    return
                round.parked = connection.outbox.blocked or not is_full
                yield round.parked
                continue
            rows = round.next_rows(ROWS_PER_SLICE, min(BYTES_PER_SLICE, connection.outbox.bytes_max // 4))
            if not rows:
                break
            self._know_patterns(round, rows)
            while round.names:
                round.parked = True
                yield True
                if round.is_over or round.tries != tries:
                    return
            self._push_rows(round, rows)
            yield False
        self.over.append((round, True))

    @staticmethod
    def _is_full(connection: Connection) -> bool:
        outbox = connection.outbox
        return outbox.blocked or outbox.size + connection.unsent > outbox.bytes_max // 4

    def _have_rows(self, round: Round) -> bool:
        """Is the next row of each home known? Of which little is left is asked for more."""
        ready = True
        for home, source in round.sources.items():
            while home == self._me and source.number > 0 and not source.rows:
                answer = self._missed.fetch("", source.number)
                if answer is None:
                    self._try_again(round)
                    return False
                source.number = answer.number
                source.rows.extend(answer.rows)
                round.gap_topics += answer.gap_topics
            if source.number > 0 and not source.asked and home != self._me and 2 * len(source.rows) <= source.page:
                source.asked = True
                self._desk.ask(home, FetchRequest(source.number), self, (round, home, round.tries))
            ready = ready and (bool(source.rows) or source.number <= 0)
        return ready

    def _know_patterns(self, round: Round, rows: list[KeptRow]) -> None:
        """At which of their topics has the client filters? The store is asked about ``names``."""
        if round.wanted is not None:
            return
        names = [topic for topic in dict.fromkeys(row[0] for row in rows) if topic not in round.patterns]
        if names:
            round.names = names
            client = round.follower.client
            pairs = [(client, topic) for topic in names]
            self._desk.store("subscriptions_of", (pairs,), self._held_read, (round, round.tries))

    def _held_read(self, context: Any, result: Any, error: Exception | None) -> None:
        round: Round = context[0]
        if round.is_over or context[1] != round.tries:
            return
        if error is not None:
            self._try_again(round)
            return
        subscriptions: list[list[Subscription]] = result
        for topic, held in zip(round.names, subscriptions, strict=True):
            filters = [one.filter for one in held if one.filter is not None]
            if len(filters) < len(held):
                round.patterns[topic] = None  # one is for all messages
            else:
                round.patterns[topic] = [pattern for text in filters for pattern in conjunctions(text)]
        round.names = []
        self.wake(round)

    def _push_rows(self, round: Round, rows: list[KeptRow]) -> None:
        follower = round.follower
        connection, push = follower.connection, self._sending.push
        codec = connection.codec
        for topic, payload, origin, number, stamp in rows:
            pattern = round.patterns.get(topic)
            if pattern is not None and not matches(pattern, payload):
                continue
            name = (origin, number)
            if round.wanted is not None:
                if name in round.pushed:
                    continue  # by a try before this one
                round.pushed.add(name)
            if round.wanted is not None or stamp > follower.settled:
                follower.sent.add(name)
            frame = codec.frame(named_notification(topic, payload, mid_of(origin, number), kept=True))
            push(connection, frame, True)
            self._desk.counts["messages_sent_again"] += 1
        if round.wanted is None and len(follower.rounds) == 1:  # else what a `subscribe` has asked for waits behind it
            # Two homes may give the same stamp, so the last row's counts only if no home can bring another row with it.
            # A home's rows that are accepted later have greater stamps than its mark.
            last = rows[-1][4]
            reached = min(last if round.brings_after(last) else last - 1, round.mark)
            if reached > follower.since:
                follower.since = follower.told = reached
                self._tell(connection, {"position": self._marks.position_at(reached)})

    def _tell_gaps(self, round: Round) -> None:
        topics, slots = list(dict.fromkeys(round.gap_topics)), round.gap_slots
        if not topics and not slots:
            return
        round.gap_topics, round.gap_slots = [], []
        if round.follower.is_unknown and round.wanted is None:
            return  # its client has been told that any message may be lacking
        round.has_gap = True
        connection = round.follower.connection
        self._desk.counts["gaps_told"] += 1
        for start in range(0, len(topics), GAP_NAMES_MAX):
            self._tell(connection, {"gap": {"topics": topics[start : start + GAP_NAMES_MAX]}})
        if slots:
            self._tell(connection, {"gap": {"slots": slots}})

    def _tell(self, connection: Connection, word: dict[str, Any]) -> None:
        self._sending.push(connection, connection.codec.frame(encode(word)), True)

    def wake(self, round: Round) -> None:
        """What it waits for may have come."""
        if round.parked and round.job is not None and not round.names:
            round.parked = False
            self._desk.job(round.job)

    def cancel(self, round: Round) -> None:
        """Nobody wants it any more."""
        round.is_over = True
        round.names = []
        self.wake(round)

    def tick(self) -> None:
        """Begin anew what has failed."""
        if self._again:
            again, self._again = self._again, []
            left = ROUNDS_PER_TICK
            for round in again:
                if round.is_over:
                    continue
                if not round.follower.is_here:
                    self.over.append((round, False))
                elif round.after <= self._desk.now and left and self._members.joined:
                    left -= 1
                    self.start(round)
                else:
                    self._again.append(round)
