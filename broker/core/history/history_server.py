"""Answers questions about missed messages, at the home of the topics. The questions come from the endpoints where the
recovering clients listen. SPEC section 8.10, ADR 36.

Owns: the answers in progress, and the pages that nobody has fetched yet. Must never: mark an answer as complete if
something may be missing, or answer for another home's slot.

An endpoint asks in one of two ways. If the client has few subscriptions, the endpoint names the topics, and the home
looks them up in the log. If the client has very many subscriptions, the home goes through all messages retained since
the client's position. It then asks the store which of their topics the client has subscribed to. The cost of an answer
therefore depends on the smaller of two numbers: the number of the client's topics, and the number of retained messages.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from ingeborg.protocol.hashes import SLOTS, slot_of

from ..cluster.homes import Homes
from ..cluster.slots import pack_slots
from ..desk import Desk, Job
from ..entries import FORGOTTEN, MOVED, Entry, TopicLog
from ..links.calls import NOT_HOME, WAIT
from ..links.requests import FetchRequest, HistoryPage, HistoryRequest, KeptRow, Request
from ..part import Part, RequestHandler
from ..retained.clock import Clock
from ..retained.journal import Journal
from ..retained.log import Log
from ..topics.routes import Routes

#: The largest numbers of payload bytes and of messages in one page of an answer.
PAGE_BYTES: Final = 128 << 10
PAGE_MESSAGES: Final = 1_000

#: The largest number of payload bytes in the answer to a `history` command, which has a single page.
ONCE_BYTES: Final = 1 << 20

#: The largest numbers of topics in one question to the store, and of topics to check in one slice.
TOPICS_PER_READ: Final = 256
TOPICS_PER_SLICE: Final = 4_000

#: The home drops an answer after this many seconds if nobody fetches its next page.
FETCHED_S: Final = 15.0

#: The largest number of answers that have pages left to fetch.
OPEN_MAX: Final = 20_000

#: The largest number of entries left in all these answers together. Each entry takes about 60 bytes.
LEFT_MAX: Final = 5_000_000

#: If more topics than this have a gap, the answer names their slots instead.
GAPS_MAX: Final = 4_096

#: The largest number of entries to look up in one slice. This takes about 2 ms.
ENTRIES_PER_SLICE: Final = 4_000

#: The interval at which the home tells a peer that its question still has to wait, in seconds.
TELL_S: Final = 2.0

Found = deque[tuple[int, Entry]]
"""Entries, each with the stamp that it had when the search found it. If an entry is dispatched again, its stamp
changes."""

Told = Callable[[Any, HistoryPage | None], None]
"""A callback that gets (context, answer). The answer is ``None`` if this endpoint is not the home or currently cannot
answer."""


class Open:
    """An answer with pages left. ``log`` records which of the answer's entries have been sent. It is ``None`` if nobody
    needs this record."""

    __slots__ = ("entries", "expiry", "log")

    def __init__(self, entries: Found, expiry: float, log: Log | None) -> None:
        self.entries = entries
        self.expiry = expiry
        self.log = log


class Search:
    """A question from a client's endpoint, and the state of this home's search for the answer. ``read`` is the store's
    latest answer about the topics that the client has subscribed to. It is empty until the answer arrives."""

    __slots__ = ("asked", "context", "error", "job", "number", "parked", "peer", "question", "read", "tell_at", "told")

    def __init__(self, question: HistoryRequest, peer: str, number: int, told: Told | None, context: Any) -> None:
        self.question = question
        self.peer = peer
        self.number = number
        self.told = told
        self.context = context
        self.job: Job | None = None
        self.parked = False
        self.read: list[bool] = []
        self.asked = 0  # the number of topics in the latest question to the store
        self.error = False
        self.tell_at = 0.0


class HistoryServer(Part):
    """Answers the questions at one home."""

    def __init__(
        self,
        desk: Desk,
        me: str,
        homes: Homes,
        log: Log,
        clock: Clock,
        journal: Journal,
        routes: Routes,
    ) -> None:
        """``routes`` has cached sets of subscribers, which can save a question to the store."""
        self._desk = desk
        self._me = me
        self._homes = homes
        self._log = log
        self._clock = clock
        self._journal = journal
        self._open: dict[tuple[str, int], Open] = {}
        self._numbers = 0
        self._left = 0  # the number of entries left in all answers
        self._acts = False  # whether this endpoint acts and has the state of its slots
        self._routes = routes

    def joined(self) -> None:
        """Start answering, because this endpoint now acts and has the state of its slots."""
        self._acts = True

    def lapsed(self) -> None:
        """Stop answering, because other endpoints can now act for this endpoint's slots."""
        self._acts = False

    def requests(self) -> dict[type[Request], RequestHandler]:
        """See ``Part``."""
        return {HistoryRequest: self.history_requested, FetchRequest: self.fetch_requested}

    def history_requested(self, peer: str, number: int, request: HistoryRequest) -> None:
        """Handle a question that a peer asks on behalf of one of its clients."""
        self._ask(Search(request, peer, number, None, None))

    def fetch_requested(self, peer: str, number: int, request: FetchRequest) -> None:
        """Handle a peer's request for the next page of an answer."""
        answer = self.fetch(peer, request.number)
        if answer is None:
            self._desk.decline(peer, number, "internal", "that answer has no further page")
        else:
            self._desk.answer(peer, number, answer)

    def ask(self, question: HistoryRequest, told: Told, context: Any) -> None:
        """Answer a question that this endpoint itself asks."""
        self._ask(Search(question, "", 0, told, context))

    def fetch(self, peer: str, number: int) -> HistoryPage | None:
        """Return the next page of an answer, or ``None`` if the answer no longer exists."""
        left = self._open.get((peer, number))
        if left is None:
            return None
        self._left -= len(left.entries)
        page = _page(left.entries, PAGE_MESSAGES, PAGE_BYTES, left.log)
        self._left += len(left.entries)
        if left.entries and page is not None:
            left.expiry = self._desk.now + FETCHED_S
        else:
            self._close((peer, number))
        return None if page is None else HistoryPage(number if left.entries else 0, page[0], page[1], [], None, 0)

    def tick(self) -> None:
        """Drop the answers whose next page nobody has fetched in time."""
        for key in [key for key, left in self._open.items() if left.expiry <= self._desk.now]:
            self._close(key)

    def _close(self, key: tuple[str, int]) -> None:
        self._left -= len(self._open.pop(key).entries)

    # Answering

    def _ask(self, search: Search) -> None:
        topics = search.question.topics
        if topics is not None:
            job = self._look_up(search, topics)
            if not next(job, True):  # most searches end in the first slice
                self._desk.job(job)
        elif self._acts:
            search.tell_at = self._desk.now + TELL_S
            search.job = self._go_through(search)
            self._desk.job(search.job)
        else:
            self._tell(search, None)

    def _is_home(self, slot: int) -> bool:
        return self._homes.table[slot] == self._me and slot not in self._journal.loading

    def _look_up(self, search: Search, topics: Sequence[str]) -> Iterator[bool]:
        """Look up the named topics in the log."""
        log, now, question = self._log, self._desk.now, search.question
        found: list[Entry] = []
        gaps: list[str] = []
        watermark = self._clock.watermark
        slice_at = ENTRIES_PER_SLICE
        version, round = self._homes.version, self._homes.round
        for topic in topics:
            if len(found) >= slice_at:
                slice_at = len(found) + ENTRIES_PER_SLICE
                yield False
                if version != self._homes.version or round != self._homes.round:
                    self._tell(search, None)
                    return
            slot = slot_of(topic)
            if not self._acts or not self._is_home(slot):
                self._tell(search, None)
                return
            since, is_known = question.since, True
            of_topic = log.get(slot, topic)
            if question.name is not None:
                entry = log.find(slot, topic, *question.name)
                is_known = entry is not None
                since = 0 if entry is None else entry.stamp
            if question.latest:
                # The client requested only the latest messages. Missing earlier messages are therefore no gap.
                found += [] if of_topic is None else log.latest(of_topic, question.latest, now)
                whole = True
            elif of_topic is None:
                whole = since >= log.floor(slot)
            else:
                entries, whole = log.since(of_topic, since, now)
                found += entries
                whole = whole and since >= log.floor(slot)
            if not (whole and is_known):
                gaps.append(topic)
        found.sort(key=_stamp)
        self._answer(search, found, gaps, [], None, watermark)

    def _go_through(self, search: Search) -> Iterator[bool]:
        """Go through all messages retained since the question's stamp, in all slots whose home is this endpoint."""
        log, question = self._log, search.question
        since, now = question.since, self._desk.now
        watermark = self._clock.watermark  # read this first, because later messages reach the client directly
        slots = [slot for slot in range(SLOTS) if self._is_home(slot)]
        version, round = self._homes.version, self._homes.round
        changed: list[TopicLog] = []
        seen = 0
        for slot in slots:
            for topic in log.topics_of(slot):
                if topic.last > since:
                    changed.append(topic)
                seen += 1
                if seen % TOPICS_PER_SLICE == 0:
                    yield False
        found: list[Entry] = []
        gaps: list[str] = []
        for start in range(0, len(changed), TOPICS_PER_READ):
            part = changed[start : start + TOPICS_PER_READ]
            there, elsewhere = self._routes.subscribed(question.client, [topic.topic for topic in part])
            subscribed = [part[place] for place in there]
            unknown = [part[place] for place in elsewhere]
            if unknown:
                search.read, search.asked = [], len(unknown)
                names = [topic.topic for topic in unknown]
                self._desk.store("subscribed", (question.client, names), self._read, search)
                while len(search.read) < search.asked:
                    if search.error:
                        self._tell(search, None)
                        return
                    self._have_wait(search)
                    search.parked = True
                    yield True
                subscribed += [topic for topic, is_so in zip(unknown, search.read, strict=True) if is_so]
            for topic in subscribed:
                entries, whole = log.since(topic, since, now)
                found += entries
                if not whole:
                    gaps.append(topic.topic)
            if unknown or start % TOPICS_PER_SLICE < TOPICS_PER_READ:
                yield False
        if version != self._homes.version or round != self._homes.round or not self._acts:
            self._tell(search, None)  # slots and their entries may have moved to other homes meanwhile
            return
        # Read the floors last. The log may meanwhile have moved its record of a topic's forgotten messages to the floor
        # of the topic's slot.
        floors = [slot for slot in slots if log.floor(slot) > since]
        found.sort(key=_stamp)
        self._answer(search, found, gaps, floors, pack_slots(slots), watermark)

    def _read(self, search: Search, result: Any, error: Exception | None) -> None:
        search.error = error is not None
        if error is None:
            search.read = result
        if search.parked and search.job is not None:
            search.parked = False
            self._desk.job(search.job)

    def _have_wait(self, search: Search) -> None:
        if search.peer and self._desk.now >= search.tell_at:
            search.tell_at = self._desk.now + TELL_S
            self._desk.decline(search.peer, search.number, WAIT)

    def _answer(
        self,
        search: Search,
        found: list[Entry],
        gaps: list[str],
        floors: list[int],
        slots: bytes | None,
        watermark: int,
    ) -> None:
        question = search.question
        entries = deque([(entry.stamp, entry) for entry in found])
        log = None if question.limit or question.latest else self._log  # the client did not miss the messages
        page = _page(entries, question.limit or PAGE_MESSAGES, ONCE_BYTES if question.limit else PAGE_BYTES, log)
        if page is None:
            self._tell(search, None)
            return
        number = 0
        if question.limit:
            number = -1 if entries else 0
        elif entries:
            if len(self._open) >= OPEN_MAX or self._left > LEFT_MAX:
                self._desk.drops["recoveries_put_off"] += 1
                self._tell(search, None)
                return
            self._numbers += 1
            number = self._numbers
            self._left += len(entries)
            self._open[search.peer, number] = Open(entries, self._desk.now + FETCHED_S, log)
        gaps = gaps + page[1]
        if len(gaps) > GAPS_MAX:
            floors, gaps = sorted({*floors, *map(slot_of, gaps)}), []
        self._tell(search, HistoryPage(number, page[0], gaps, floors, slots, watermark))

    def _tell(self, search: Search, answer: HistoryPage | None) -> None:
        if search.told is not None:
            search.told(search.context, answer)
        elif answer is None:
            self._desk.decline(search.peer, search.number, NOT_HOME)
        else:
            self._desk.answer(search.peer, search.number, answer)


def _stamp(entry: Entry) -> int:
    return entry.stamp


def _page(entries: Found, messages: int, size: int, log: Log | None) -> tuple[list[KeptRow], list[str]] | None:
    """Remove the first entries, and return them as rows to send. Several rows together have at most ``size`` bytes, but
    a single row may be longer. Also return the topics of entries that the log has forgotten meanwhile. Return ``None``
    if this endpoint is no longer the entries' home. ``log`` records which entries are sent."""
    rows: list[KeptRow] = []
    gaps: list[str] = []
    while entries and len(rows) < messages and size > 0:
        stamp, entry = entries[0]
        if entry.gone == MOVED:
            return None
        if rows and len(entry.payload) > size:
            break
        entries.popleft()
        if not entry.gone:
            rows.append((entry.topic, entry.payload, entry.origin, entry.number, stamp))
            size -= len(entry.payload)
            if log is not None:
                log.served(entry)
        elif entry.gone == FORGOTTEN:
            gaps.append(entry.topic)
    return rows, gaps
