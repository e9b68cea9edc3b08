"""Attempts at a recovery. An attempt asks the homes for retained messages and sends them to the client in the order of
their stamps. SPEC section 8.10, ADR 36.

Owns: the answers of each home, and how much of each answer the attempt has sent. Must never: know why a client
recovers, or send messages that an earlier position covers.

If an endpoint dies or a slot moves, the attempt restarts where it stopped.
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
from ..links.requests import FetchRequest, HistoryPage, HistoryRequest, KeptRow
from ..metrics import Metric
from ..model import Subscription
from ..outgoing.sending import Sending
from ..part import Part
from ..retained.watermarks import Watermarks
from .history_server import HistoryServer
from .replay_session import Attempt, Source

#: For a client with more topics than this, homes search all retained messages instead of looking up its topics.
TOPICS_MAX: Final = 2_000

#: The largest number of rows that a recovery sends in one slice. Sending them takes about 1 ms.
ROWS_PER_SLICE: Final = 200

#: The largest number of payload bytes that a recovery sends in one slice. A single longer message may exceed it.
BYTES_PER_SLICE: Final = 128 << 10

#: The largest number of attempts that begin in one tick. Each attempt costs a call to the store.
ATTEMPTS_PER_TICK: Final = 500

#: A failed attempt restarts after ``AGAIN_S`` seconds multiplied by the number of its restarts, but after at most
#: ``AGAIN_MAX_S``.
AGAIN_S: Final = 0.1
AGAIN_MAX_S: Final = 2.0

#: The largest number of topics in one frame that reports a gap.
GAP_NAMES_MAX: Final = 1_000

ALL_SLOTS: Final = b"\xff" * (SLOTS // 8)


class Attempts(Part):
    """One endpoint's attempts. ``history_server`` answers for the slots whose home is this endpoint."""

    def __init__(
        self,
        desk: Desk,
        members: Membership,
        watermarks: Watermarks,
        history_server: HistoryServer,
        sending: Sending,
    ) -> None:
        self._desk = desk
        self._members = members
        self._me = members.me.incarnation
        self._watermarks = watermarks
        self._history_server = history_server
        self._sending = sending
        self._again: list[Attempt] = []  # attempts that a later tick starts
        #: Attempts that have ended, each with a flag that says whether it has completed. ``Replaying`` empties this
        #: list.
        self.over: list[tuple[Attempt, bool]] = []

    def metrics(self) -> list[Metric]:
        """See ``Part``."""
        return [
            self._desk.counted(
                "messages_sent_again",
                "Retained messages sent to clients of this endpoint that recover, or subscribe with last or since",
            ),
            self._desk.counted("recoveries", "Recoveries that this endpoint has begun for its clients"),
            self._desk.counted(
                "gaps_told",
                "Notices to clients of this endpoint that retained messages may be missing",
            ),
        ]

    def start(self, attempt: Attempt) -> None:
        """Read the client's subscriptions, and ask the homes."""
        session = attempt.session
        attempt.sources = {}
        attempt.covered = bytearray(SLOTS // 8)
        # Read the watermark before the client's subscriptions, because this attempt does not cover later subscriptions.
        attempt.watermark = self._watermarks.cluster_watermark
        attempt.names = []
        attempt.parked = False
        if not self._members.joined or (session.is_unknown and not self._watermarks.known):
            self._retry(attempt)  # this endpoint has not joined, or knows no position yet
            return
        if attempt.wanted is not None:
            attempt.topics = attempt.wanted
            self._ask(attempt)
            return
        self._desk.counts["recoveries"] += attempt.retries == 0
        attempt.since = max(attempt.since, session.since)
        attempt.gap_topics, attempt.gap_slots = [], []
        attempt.patterns = {}
        self._desk.store("topics", (session.client, None, TOPICS_MAX), self._topics, attempt)

    def _topics(self, attempt: Attempt, result: Any, error: Exception | None) -> None:
        if attempt.is_over:
            return
        if error is not None:
            self._retry(attempt)
            return
        topics: list[str] = result[0]
        attempt.topics = topics if result[1] is None else None
        self._ask(attempt)

    def _ask(self, attempt: Attempt) -> None:
        members = self._members
        if not members.joined:
            self._retry(attempt)
            return
        homes: dict[str, list[str] | None]
        if attempt.topics is None:
            homes = dict.fromkeys([self._me, *members.view()])
        else:
            by_home: dict[str, list[str]] = {}
            for topic in attempt.topics:
                by_home.setdefault(members.table[slot_of(topic)], []).append(topic)
            homes = dict(by_home)
        if not homes:
            self._go_on(attempt)
            return
        attempt.asked = len(homes)
        retries = attempt.retries
        for home, topics in homes.items():
            question = HistoryRequest(attempt.session.client, attempt.since, topics, attempt.latest)
            if home == self._me:
                self._history_server.ask(question, self._told, (attempt, home, retries))
            else:
                self._desk.ask(home, question, self, (attempt, home, retries))

    def answered(self, call: Call, value: Any) -> None:
        """Handle a home's answer."""
        self._told(call.context, value)

    def failed(self, call: Call, code: str, info: Any) -> None:
        """Restart the attempt, because the home reported an error or did not answer in time."""
        self._told(call.context, None)

    def lost(self, call: Call) -> str | None:
        """Restart the attempt, because the endpoint that got the question is gone or is no longer the home."""
        self._told(call.context, None)
        return None

    def _told(self, context: Any, answer: HistoryPage | None) -> None:
        attempt: Attempt = context[0]
        home: str = context[1]
        if not attempt.still(context[2]):
            return  # the question was sent before a restart
        if answer is None:
            self._retry(attempt)
            return
        number, rows = answer.number, deque(answer.rows)
        attempt.gap_topics += answer.gap_topics
        source = attempt.sources.get(home)
        if source is not None:
            source.asked = False
            source.number, source.page = number, len(rows)
            source.rows.extend(rows)
        else:
            attempt.sources[home] = Source(rows, number)
            attempt.gap_slots += answer.gap_slots
            for index, bits in enumerate(answer.covered or ()):
                attempt.covered[index] |= bits
            attempt.watermark = min(answer.watermark, attempt.watermark)
            attempt.asked -= 1
            if attempt.asked:
                return
            if attempt.topics is None and bytes(attempt.covered) != ALL_SLOTS:
                self._retry(attempt)  # a slot was moving from one home to another
                return
            self._go_on(attempt)
            return
        self.wake(attempt)

    def begin_later(self, attempt: Attempt) -> None:
        """Start the attempt in one of the next ticks. Use this when many attempts start at the same time, or when this
        endpoint does not currently act."""
        attempt.after = self._desk.now
        self._again.append(attempt)

    def _retry(self, attempt: Attempt) -> None:
        attempt.retries += 1
        if attempt.job is not None and attempt.parked:
            attempt.parked = False
            self._desk.job(attempt.job)
        attempt.job = None
        if not attempt.session.is_here or (attempt.until and self._desk.now >= attempt.until):
            self.over.append((attempt, False))
            return
        attempt.after = self._desk.now + min(AGAIN_S * attempt.retries, AGAIN_MAX_S)
        self._again.append(attempt)

    def _go_on(self, attempt: Attempt) -> None:
        """Begin sending, because all homes have answered."""
        attempt.job = self._send(attempt, attempt.retries)
        self._desk.job(attempt.job)

    def _send(self, attempt: Attempt, retries: int) -> Iterator[bool]:
        session = attempt.session
        connection = session.connection
        if session.gap_any and session.stays:
            session.gap_any = False
            self._desk.counts["gaps_told"] += 1
            self._tell(connection, {"gap": None})
        while True:
            if not attempt.still(retries):
                return
            if not session.is_here or (attempt.until and self._desk.now >= attempt.until):
                self.over.append((attempt, False))
                return
            self._tell_gaps(attempt)
            is_full = self._is_full(connection)
            if is_full or not self._have_rows(attempt):
                if attempt.retries != retries:
                    return
                attempt.parked = connection.outbox.blocked or not is_full
                yield attempt.parked
                continue
            rows = attempt.next_rows(ROWS_PER_SLICE, min(BYTES_PER_SLICE, connection.outbox.bytes_max // 4))
            if not rows:
                break
            self._know_patterns(attempt, rows)
            while attempt.names:
                attempt.parked = True
                yield True
                if not attempt.still(retries):
                    return
            self._push_rows(attempt, rows)
            yield False
        self.over.append((attempt, True))

    @staticmethod
    def _is_full(connection: Connection) -> bool:
        outbox = connection.outbox
        return outbox.blocked or outbox.size + connection.unsent > outbox.bytes_max // 4

    def _have_rows(self, attempt: Attempt) -> bool:
        """Return whether the attempt knows the next row of each home. Request the next page from a home if few of its
        rows are left."""
        ready = True
        for home, source in attempt.sources.items():
            while home == self._me and source.number > 0 and not source.rows:
                answer = self._history_server.fetch("", source.number)
                if answer is None:
                    self._retry(attempt)
                    return False
                source.number = answer.number
                source.rows.extend(answer.rows)
                attempt.gap_topics += answer.gap_topics
            if source.number > 0 and not source.asked and home != self._me and 2 * len(source.rows) <= source.page:
                source.asked = True
                self._desk.ask(home, FetchRequest(source.number), self, (attempt, home, attempt.retries))
            ready = ready and (bool(source.rows) or source.number <= 0)
        return ready

    def _know_patterns(self, attempt: Attempt, rows: list[KeptRow]) -> None:
        """Read the client's filters for the topics of these rows from the store, unless the attempt already knows them.
        ``attempt.names`` lists the topics of the call to the store."""
        if attempt.wanted is not None:
            return
        names = [topic for topic in dict.fromkeys(row[0] for row in rows) if topic not in attempt.patterns]
        if names:
            attempt.names = names
            client = attempt.session.client
            pairs = [(client, topic) for topic in names]
            self._desk.store("subscriptions_of", (pairs,), self._held_read, (attempt, attempt.retries))

    def _held_read(self, context: Any, result: Any, error: Exception | None) -> None:
        attempt: Attempt = context[0]
        if not attempt.still(context[1]):
            return
        if error is not None:
            self._retry(attempt)
            return
        subscriptions: list[list[Subscription]] = result
        for topic, held in zip(attempt.names, subscriptions, strict=True):
            filters = [one.filter for one in held if one.filter is not None]
            if len(filters) < len(held):
                attempt.patterns[topic] = None  # one subscription has no filter, and takes all messages
            else:
                attempt.patterns[topic] = [pattern for text in filters for pattern in conjunctions(text)]
        attempt.names = []
        self.wake(attempt)

    def _push_rows(self, attempt: Attempt, rows: list[KeptRow]) -> None:
        session = attempt.session
        connection, push = session.connection, self._sending.push
        codec = connection.codec
        pushed = 0
        for topic, payload, origin, number, stamp in rows:
            pattern = attempt.patterns.get(topic)
            if pattern is not None and not matches(pattern, payload):
                continue
            name = (origin, number)
            if attempt.wanted is not None:
                if name in attempt.pushed:
                    continue  # it was sent before a restart
                attempt.pushed.add(name)
            if attempt.wanted is not None or stamp > session.settled:
                session.sent.add(name)
            frame = codec.frame(named_notification(topic, payload, mid_of(origin, number), kept=True))
            push(connection, frame, True)
            pushed += 1
        self._desk.counts["messages_sent_again"] += pushed
        if connection.receiver is not None:
            connection.receiver.passed(pushed)
        if attempt.wanted is None and len(session.attempts) == 1:  # no other attempt waits for this one to end
            # Two homes can give the same stamp. The position may therefore include the last row's stamp only if no home
            # can still send another row with that stamp. Messages that a home accepts later get stamps greater than its
            # watermark.
            last = rows[-1][4]
            reached = min(last if attempt.brings_after(last) else last - 1, attempt.watermark)
            if reached > session.since:
                session.since = session.told = reached
                self._tell(connection, {"position": self._watermarks.position_at(reached)})

    def _tell_gaps(self, attempt: Attempt) -> None:
        topics, slots = list(dict.fromkeys(attempt.gap_topics)), attempt.gap_slots
        if not topics and not slots:
            return
        attempt.gap_topics, attempt.gap_slots = [], []
        if attempt.session.is_unknown and attempt.wanted is None:
            return  # its client already knows that any message may be missing
        attempt.has_gap = True
        connection = attempt.session.connection
        self._desk.counts["gaps_told"] += 1
        for start in range(0, len(topics), GAP_NAMES_MAX):
            self._tell(connection, {"gap": {"topics": topics[start : start + GAP_NAMES_MAX]}})
        if slots:
            self._tell(connection, {"gap": {"slots": slots}})

    def _tell(self, connection: Connection, word: dict[str, Any]) -> None:
        self._sending.push(connection, connection.codec.frame(encode(word)), True)

    def wake(self, attempt: Attempt) -> None:
        """Continue the attempt, because the rows, filters or room in the outbox for which it waits may be available
        now."""
        if attempt.parked and attempt.job is not None and not attempt.names:
            attempt.parked = False
            self._desk.job(attempt.job)

    def cancel(self, attempt: Attempt) -> None:
        """Cancel the attempt."""
        attempt.is_over = True
        attempt.names = []
        self.wake(attempt)

    def tick(self) -> None:
        """Start the attempts that are due."""
        if self._again:
            again, self._again = self._again, []
            left = ATTEMPTS_PER_TICK
            for attempt in again:
                if attempt.is_over:
                    continue
                if not attempt.session.is_here:
                    self.over.append((attempt, False))
                elif attempt.after <= self._desk.now and left and self._members.joined:
                    left -= 1
                    self.start(attempt)
                else:
                    self._again.append(attempt)
