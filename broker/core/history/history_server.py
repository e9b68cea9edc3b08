"""What clients have missed, at the home of the topics: asked by the endpoints where they listen. SPEC section 8.10,
ADR 36.

Owns: the answers under way, and what of them has not been fetched yet. Must never: say that something is whole which it
does not know to be, or answer for a slot that is another's.

An endpoint asks in one of two ways. Of a client with few subscriptions it knows the topics: they are looked up in the
log. Of one with very many the home goes through what has been retained since, and asks the store which of these topics
the client has subscribed to. So an answer costs the smaller of the two: what the client has, or what there was.
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

#: Bytes of payloads in one page of an answer, and messages.
PAGE_BYTES: Final = 128 << 10
PAGE_MESSAGES: Final = 1_000

#: An answer to a single question (`history`) has no further pages.
ONCE_BYTES: Final = 1 << 20

#: Topics that are asked for in one question to the store, and looked at in one slice.
TOPICS_PER_READ: Final = 256
TOPICS_PER_SLICE: Final = 4_000

#: Who fetches nothing for so long, in seconds, wants nothing more.
FETCHED_S: Final = 15.0

#: Answers of which something is left to be fetched.
OPEN_MAX: Final = 20_000

#: And what is left in all of them, some 60 bytes each.
LEFT_MAX: Final = 5_000_000

#: Of more topics with a gap the slots are named.
GAPS_MAX: Final = 4_096

#: Entries that are looked up in one slice: some 2 ms.
ENTRIES_PER_SLICE: Final = 4_000

#: Who waits is told so after so many seconds, and again.
TELL_S: Final = 2.0

Found = deque[tuple[int, Entry]]
"""Entries by their stamps when they were found: one that is dispatched again has another one since."""

Told = Callable[[Any, HistoryPage | None], None]
"""Told (context, answer; ``None``: this endpoint is not the home, or cannot say just now)."""


class Open:
    """An answer of which something is left. ``log``: ``None``, or to be told what of it has been sent."""

    __slots__ = ("entries", "expiry", "log")

    def __init__(self, entries: Found, expiry: float, log: Log | None) -> None:
        self.entries = entries
        self.expiry = expiry
        self.log = log


class Search:
    """A question that goes through what has been retained. ``read``: what the store has said of the topics of which it
    was asked last, once it has."""

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
        self.asked = 0  # topics
        self.error = False
        self.tell_at = 0.0


class HistoryServer(Part):
    """One home's part."""

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
        """``routes`` may know who has subscribed."""
        self._desk = desk
        self._me = me
        self._homes = homes
        self._log = log
        self._clock = clock
        self._journal = journal
        self._open: dict[tuple[str, int], Open] = {}
        self._numbers = 0
        self._left = 0  # entries in them
        self._acts = False  # what belongs to the slots has arrived
        self._routes = routes

    def joined(self) -> None:
        """This endpoint acts, and has what it is to have of its slots."""
        self._acts = True

    def lapsed(self) -> None:
        """Others may act."""
        self._acts = False

    def requests(self) -> dict[type[Request], RequestHandler]:
        """What endpoints ask."""
        return {HistoryRequest: self.history_requested, FetchRequest: self.fetch_requested}

    def history_requested(self, peer: str, number: int, request: HistoryRequest) -> None:
        """An endpoint asks for a client of its own."""
        self._ask(Search(request, peer, number, None, None))

    def fetch_requested(self, peer: str, number: int, request: FetchRequest) -> None:
        """It wants the next page."""
        answer = self.fetch(peer, request.number)
        if answer is None:
            self._desk.decline(peer, number, "internal", "nothing is left of that answer")
        else:
            self._desk.answer(peer, number, answer)

    def ask(self, question: HistoryRequest, told: Told, context: Any) -> None:
        """This endpoint asks itself."""
        self._ask(Search(question, "", 0, told, context))

    def fetch(self, peer: str, number: int) -> HistoryPage | None:
        """The next page; ``None``: it is not there any more."""
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
        """Let go of what nobody fetches."""
        for key in [key for key, left in self._open.items() if left.expiry <= self._desk.now]:
            self._close(key)

    def _close(self, key: tuple[str, int]) -> None:
        self._left -= len(self._open.pop(key).entries)

    # Answering

    def _ask(self, search: Search) -> None:
        topics = search.question.topics
        if topics is not None:
            job = self._look_up(search, topics)
            if not next(job, True):  # most are done with the first slice
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
        """Of a few topics."""
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
                # So many, or as many as there are: nobody is owed those before them.
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
        """All that has been retained since, of all slots here."""
        log, question = self._log, search.question
        since, now = question.since, self._desk.now
        watermark = self._clock.watermark  # before: what is accepted meanwhile goes to where the client listens
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
            self._tell(search, None)  # some may have gone meanwhile, and their entries with them
            return
        # Last: what a topic has forgotten may have been moved to its slot's floor meanwhile.
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
        log = None if question.limit or question.latest else self._log  # these were not owed to anybody
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
    """The first of these, taken out, as they are sent: one at least, if there is one; and the topics of those that have
    been forgotten meanwhile. ``None``: this endpoint is not their home any more. ``log``: is told which they are."""
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
