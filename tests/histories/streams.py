"""Event streams in a history: pages that leave and come back with the id of their last event, and the promises to them.
SPEC sections 1.8 and 8.10.

Owns: the pages' connections, and the check of what they received. Must never: ask the endpoints for anything but
streams, or decide which gaps have a cause (``model`` knows the faults).
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from urllib.parse import urlencode, urlsplit

from ingeborg.bench.oracle.verdict import Violation

from ..broker.http.talking import EventSource, head
from ..simulator.reader import Gap, Publication
from .bed import Bed
from .lines import CONNECT_S
from .model import History
from .record import Event, Recorder

#: A page stays at an endpoint, and then stays away, for up to these times in seconds.
STAYS_S, AWAY_S = 3.0, 3.0

#: Maximum number of commands by which an endpoint opens a stream. The client does not see their errors.
COMMANDS_MAX = 5

#: Wait after a stream has failed, in seconds. Browsers wait for 2 s.
AGAIN_S = 0.1


class Page:
    """A page with an event stream to some topics. Its draws say how long it stays, and where it comes back."""

    def __init__(
        self,
        bed: Bed,
        recorder: Recorder,
        numbers: Iterator[int],
        name: str,
        topics: Sequence[str],
        draws: Iterable[float],
    ) -> None:
        self.name = name
        self.topics = topics
        self._bed = bed
        self._recorder = recorder
        self._numbers = numbers
        self._draws = itertools.cycle(draws)
        self._last = ""  # the id of the last event
        self._last_at: float | None = None  # when that id came, if it has a position
        self._got: set[str] = set()
        self._news = asyncio.Event()
        self._is_ending = False
        self._leave = asyncio.Event()

    async def keep(self) -> None:
        """Open one stream after the other."""
        names = sorted(self._bed.endpoints)
        while True:
            endpoint = self._bed.endpoints[names[int(next(self._draws) * len(names))]]
            stays_s, away_s = STAYS_S * next(self._draws), AWAY_S * next(self._draws) ** 3
            self._leave.clear()
            stream = asyncio.create_task(self._stream(endpoint.name, endpoint.life, endpoint.url))
            leave = asyncio.create_task(self._leave.wait())
            try:
                await asyncio.wait(
                    (stream, leave),
                    timeout=None if self._is_ending else stays_s,
                    return_when=asyncio.FIRST_COMPLETED,
                )
            finally:
                leave.cancel()
                stream.cancel()
                await asyncio.gather(stream, return_exceptions=True)
            await asyncio.sleep(AGAIN_S if self._is_ending else AGAIN_S + away_s)

    def come_back(self) -> None:
        """Leave, come back a last time, and stay."""
        self._is_ending = True
        self._leave.set()

    async def has(self, payloads: set[str]) -> None:
        """Wait until the page has received these."""
        while not payloads <= self._got:
            self._news.clear()
            await self._news.wait()

    async def _stream(self, name: str, life: str, url: str) -> None:
        stream = next(self._numbers)
        where = urlsplit(url)
        about = {"client": self.name, "endpoint": name, "life": life, "topics": list(self.topics)}
        self._recorder.add("streamed", stream=stream, phase="asked", since=self._last_at, **about)
        fields = [("client_id", self.name), *(("topic", topic) for topic in self.topics)]
        again = (f"Last-Event-ID: {self._last}",) if self._last else ()
        try:
            async with asyncio.timeout(CONNECT_S):
                reader, writer = await asyncio.open_connection(where.hostname, where.port)
        except (OSError, TimeoutError):
            return
        try:
            writer.write(head("GET", f"/events?{urlencode(fields)}", *again))
            status = int((await reader.readuntil(b"\r\n\r\n")).split()[1])
            self._recorder.add("streamed", stream=stream, phase="answered", status=status)
            source = EventSource(reader, self._last, self._moved)
            while status == 200:
                event = await source.event()
                self._recorder.add("event", stream=stream, kind=event.kind, data=event.data)
                if event.kind == "message":
                    self._got.add(event.data["broadcast"])
                    self._news.set()
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            self._recorder.add("streamed", stream=stream, phase="ended")
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    def _moved(self, last: str) -> None:
        if not self._last:
            self._recorder.add("streamed", phase="begun", client=self.name)
        self._last = last
        self._last_at = self._recorder.now() if last.partition("/")[2] else None


@dataclass
class Streamed:
    """The outcome. ``messages``: received, with repetitions; ``back``: streams that continued from a position;
    ``owed``: pairs of a page and a message that it had to have."""

    violations: list[Violation] = field(default_factory=list)
    messages: int = 0
    back: int = 0
    gaps: int = 0
    owed: int = 0


@dataclass
class Seen:
    """What one page has seen. ``begun_at``: when its first stream began."""

    topics: frozenset[str]
    begun_at: float = float("inf")
    got: set[str] = field(default_factory=set)
    gaps: list[Gap] = field(default_factory=list)


def heard_on(history: History, life: str) -> list[list[Event]]:
    """Return the messages of each stream to that life of an endpoint."""
    streams: dict[int, list[Event]] = {}
    for event in history.events:
        if event["what"] == "streamed" and event.get("life") == life:
            streams[event["stream"]] = []
        elif event["what"] == "event" and event["stream"] in streams and event["kind"] == "message":
            streams[event["stream"]].append({"at": event["at"], **event["data"]})
    return list(streams.values())


def check_streams(history: History, publications: Iterable[Publication], epoch: float) -> Streamed:
    """Check that each page got every retained message since its first stream began, or learnt of a gap, and that each
    gap has a cause. ``epoch``: how much later the publications' clock begins than the record's."""
    found = Streamed()
    pages: dict[str, Seen] = {}
    streams: dict[int, Event] = {}
    leaving: set[str] = set()  # the lives of endpoints that shut down, and may refuse streams

    def violate(text: str, at: float, name: str, payload: str | None = None) -> None:
        found.violations.append(Violation(None, "8.10", text, at, frozenset({name}), payload=payload))

    for event in history.events:
        if event["what"] == "streamed" and event["phase"] == "asked":
            streams[event["stream"]] = event
            pages.setdefault(event["client"], Seen(frozenset(event["topics"])))
            found.back += event["since"] is not None
        elif event["what"] == "streamed" and event["phase"] == "begun":
            pages[event["client"]].begun_at = event["at"]
        elif event["what"] == "streamed" and event["phase"] == "answered" and event["status"] != 200:
            asked = streams[event["stream"]]
            if event["status"] != 503 or asked["life"] not in leaving:
                violate(f"a stream is refused: {event}", event["at"], asked["client"])
        elif event["what"] == "life" and event["phase"] == "stopping":
            leaving.add(event["life"])
        elif event["what"] == "event":
            asked = streams[event["stream"]]
            name, data = asked["client"], event["data"]
            page = pages[name]
            if event["kind"] == "message":
                found.messages += 1
                page.got.add(data["broadcast"])
            elif event["kind"] == "gap":
                told = data or {}
                gap = Gap(event["at"], frozenset(told.get("topics", ())), frozenset(told.get("slots", ())))
                page.gaps.append(gap)
                if asked["since"] is not None and not history.may_lack(asked["since"], event["at"]):
                    violate(f"{name} is told a gap, and nothing was lost: {event}", event["at"], name)
            else:
                violate(f"a stream is ended: {event}", event["at"], name)
    known = list(publications)
    for name, page in pages.items():
        found.gaps += len(page.gaps)
        for text in page.got - {one.payload for one in known}:
            violate(f"{name} got {text}, which nobody published", 0.0, name)
        for one in known:
            if one.topic not in page.topics or not one.keep_s:
                continue
            for sent in one.accepted(page.begun_at + epoch, False):
                found.owed += 1
                is_told = any(gap.at + epoch > sent.at and gap.names(one.topic) for gap in page.gaps)
                if one.payload not in page.got and not is_told:
                    text = f"{name} never got {one.payload} of {one.topic!r}, and was told of no gap"
                    violate(text, sent.at - epoch, name, one.payload)
    return found
