"""Checks the clients that recover, and their retained messages, by a record: SPEC sections 2.3, 2.7 and 8.10.

Owns: passing the record to the simulator's oracle of recoveries (``tests.simulator.reader``), and the rules about this
record: which gaps have a cause, and what `history` has to know. Must never: decide itself what a returning client had
to get.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from ingeborg.bench.oracle.verdict import Violation

from ..simulator.reader import EPOCH, Line, Position, Publication, Reader, Sent, Wish, holes, verdict
from .allowances import LATE_S
from .model import History
from .plan import ALL
from .record import Event
from .streams import Streamed, check_streams


@dataclass
class Recovered:
    """The outcome. ``saved``: positions received; ``back``: recoveries from one of these; ``owed``: pairs of a reader
    and a retained message that it had to have at its end; ``asked``: messages that had to be in a `history`."""

    violations: list[Violation] = field(default_factory=list)
    saved: int = 0
    back: int = 0
    gaps: int = 0
    owed: int = 0
    asked: int = 0


@dataclass
class Place:
    """A reader's connection while the record passes by. ``back``: the position of its next ``listen``; ``line``: since
    the last one; ``began``: when that left; ``listens``, ``wishes``: by the ids of their commands."""

    reader: Reader[Place]
    closed_at: float | None = None
    back: Position | None = None
    line: Line[Place] | None = None
    began: float = 0.0
    listens: dict[int, tuple[float, Line[Place]]] = field(default_factory=dict)
    wishes: dict[int, list[Wish[Place]]] = field(default_factory=dict)


class Telling:
    """Goes through a record, event by event. ``found``: the outcome."""

    def __init__(self, history: History) -> None:
        self.found = Recovered()
        self._record = history
        self._readers = {name: Reader[Place](name) for name in sorted(history.readers)}
        self._places: dict[int, Place] = {}
        self._positions: dict[int, Position] = {}  # by their numbers in the record
        self._commands: dict[tuple[int, int], Event] = {}  # publishes, and `history` requests
        self._sends: dict[tuple[int, int], Sent] = {}
        self._publications: dict[Any, Publication] = {}  # by payload
        self._whole: dict[tuple[int, str], list[dict[str, Any]]] = {}  # all of a topic, as a connection got it
        self._had: set[str] = set()

    def tell(self) -> Recovered:
        """Go through the whole record."""
        for event in self._record.events:
            reader = getattr(self, "_on_" + event["what"], None)
            if reader is not None:
                reader(event)
        last = self._record.events[-1] if self._record.events else {"at": 0.0}
        publications = self._publications.values()
        for reader in self._readers.values():
            self.found.saved += len(reader.told)
            self.found.gaps += len(reader.gaps)
            self.found.owed += sum(
                bool(one.keep_s) and one.topic in reader.since and any(sent.is_accepted(False) for sent in one.sends)
                for one in publications
            )
            self._violate(verdict([reader], publications, self._partial), last["at"], reader)
        return self.found

    @property
    def publications(self) -> Iterable[Publication]:
        """The published messages."""
        return self._publications.values()

    @property
    def _partial(self) -> bool:
        """Were some of the arrivals retained messages?"""
        return not (self._record.crashes or self._record.lapses)

    def _violate(
        self, texts: Iterable[str], at: float, reader: Reader[Place] | None = None, section: str = "8.10"
    ) -> None:
        about = frozenset() if reader is None else frozenset({reader.name})
        for text in texts:
            if text not in self._had:  # a missing message is missing at the end of each later recovery
                self._had.add(text)
                payload = next((one for one in self._publications if f" {one} " in f"{text} "), None)
                self.found.violations.append(Violation(None, section, text, at, about, payload=payload))

    def _lacks_for_nothing(self, begin: float, event: Event, reader: Reader[Place], what: str) -> None:
        """Without a crash there is no gap. ``begin``: since when there could be a cause."""
        if not self._record.may_lack(begin - EPOCH, event["at"]):
            self._violate([f"{reader.name}, {what} is told a gap, and nothing was lost: {event}"], event["at"], reader)

    # Event by event

    def _on_opened(self, event: Event) -> None:
        if (reader := self._readers.get(event["client"])) is not None:
            self._places[event["connection"]] = Place(reader)

    def _on_closed(self, event: Event) -> None:
        place = self._places.get(event["connection"])
        if place is not None and place.closed_at is None:
            place.closed_at = _time(event)

    def _on_back(self, event: Event) -> None:
        self._places[event["connection"]].back = self._positions[event["number"]]

    def _on_sent(self, event: Event) -> None:
        name, place = (event["connection"], event["id"]), self._places.get(event["connection"])
        if event["command"] in ("publish", "broadcast"):
            payload = event["payload"]
            if payload not in self._publications:
                about = (event.get("topic") or "", event.get("keep_s", 0), event.get("dedup", True))
                self._publications[payload] = Publication(payload, *about)
            self._commands[name] = event
            self._sends[name] = Sent(_time(event), self._record.connections[name[0]].client)
            self._publications[payload].sends.append(self._sends[name])
        elif event["command"] == "history":
            self._commands[name] = event
        elif place is None:
            return
        elif event["command"] == "listen":
            if "recover" in event:
                place.listens[event["id"]] = _time(event), Line(place, place.back or True, True)
                if place.line is None:
                    self._begin(place, event["id"])  # messages before the reply belong to it as well
        elif event["command"] in ("subscribe", "unsubscribe") and place.line is not None:
            asks = "last" in event or "since" in event
            reached = None
            if "since" in event:
                reached = min(one.at for one in place.reader.told if one.text == event["since"])
            topics = [event["topic"]] if isinstance(event["topic"], str) else event["topic"]
            for topic in topics:
                added = event["command"] == "subscribe"
                wish = Wish(place.line, topic, added, asks, reached, _time(event) + LATE_S)
                place.wishes.setdefault(event["id"], []).append(wish)
                place.reader.wishes(wish)

    def _begin(self, place: Place, listen: int) -> None:
        place.began, place.line = place.listens[listen]
        place.reader.lines.append(place.line)

    def _on_reply(self, event: Event) -> None:
        name, place = (event["connection"], event.get("id", 0)), self._places.get(event["connection"])
        if (sent := self._sends.get(name)) is not None:
            sent.reply, sent.replied_at = event, _time(event)
            if self._commands[name]["command"] == "publish":
                self._is_kept_or_not(self._commands[name], event)
        elif name in self._commands:
            self._look_in(self._commands[name], event)
        elif place is not None and name[1] in place.listens:
            if event.get("result") == "success":
                _, line = place.listens[name[1]]
                if place.line is not line:
                    self._begin(place, name[1])  # from its position on everything comes once more
                place.reader.listened(line, event, _time(event))
        elif place is not None:
            for wish in place.wishes.get(name[1], ()):
                place.reader.answered(wish, event, _time(event))
                if wish.reached is not None and event.get("recovered") is False:
                    self._lacks_for_nothing(wish.reached, event, place.reader, f"subscribing to {wish.topic},")

    def _on_heard(self, event: Event) -> None:
        place = self._places.get(event["connection"])
        if place is not None and place.line is not None:
            if "mid" in event:
                message = {"key": event["key"] or "", "broadcast": event["payload"], "mid": event["mid"]}
                place.reader.took(place.line, message)
            else:
                self._violate(
                    [f"{place.reader.name} got {event['payload']} without its mid"], event["at"], place.reader
                )

    def _on_told(self, event: Event) -> None:
        place = self._places.get(event["connection"])
        if place is None or place.line is None:
            return  # see ``model``
        reader, line = place.reader, place.line
        word: dict[str, Any] = {key: event[key] for key in ("position", "gap", "recovered") if key in event}
        reader.heard(line, word, _time(event))
        if "gap" in word:
            begin = place.began if line.start is None else line.start.at
            self._lacks_for_nothing(begin, event, reader, f"back with {line.recover},")
        elif "position" in word:
            self._positions[event["number"]] = reader.told[-1]
            if line.start is not None and "recovered" in word:
                self.found.back += 1
                of = self._publications.values()
                self._violate(holes(reader, line, of, self._partial, place.began), event["at"], reader)

    # Retained messages

    def _is_kept_or_not(self, command: Event, reply: Event) -> None:
        """Section 2.3: a new message that is to be retained is, and its publisher learns it."""
        expected = not reply.get("duplicate") if "keep_s" in command else None
        if reply.get("result") == "success" and reply.get("kept") is not expected:
            text = f"{command['payload']} is published, and its publisher told {reply}; kept should be {expected}"
            self._violate([text], reply["at"], section="2.3")

    def _look_in(self, command: Event, reply: Event) -> None:
        """Section 2.7: messages confirmed as retained before a `history` request are in its reply."""
        if reply.get("result") != "success":
            return
        asked_at = _time(command)
        there = Counter(one["broadcast"] for one in reply["publications"])
        for payload, number in there.items():
            publication = self._publications.get(payload)
            if publication is None or publication.topic != command["topic"] or number > len(publication.sends):
                text = f"history of {command['topic']} has {payload} {number} times, which was not published so often"
                self._violate([text], reply["at"], section="2.7")
        name = (command["connection"], command["topic"])
        if "since" in command:
            self._page(self._whole[name], command, reply)
        if command.get("last") != ALL:
            return
        self._whole[name] = reply["publications"]
        for publication in self._publications.values():
            if publication.topic != command["topic"]:
                continue
            kept = [
                sent
                for sent in publication.sends
                if sent.reply.get("kept") is True
                and sent.replied_at < asked_at
                and not self._record.may_lack(sent.at - EPOCH, reply["at"])
            ]
            self.found.asked += bool(kept)
            if there[publication.payload] < len(kept):
                text = f"history of {command['topic']} lacks {publication.payload} which was confirmed to be kept"
                self._violate([text], reply["at"], section="2.7")

    def _page(self, whole: list[dict[str, Any]], command: Event, reply: Event) -> None:
        """Section 2.7: the page continues after that message, as the whole history did a moment before."""
        mids = [one["mid"] for one in whole]
        behind = whole[mids.index(command["since"]) + 1 :]
        is_right = reply["publications"] == behind[: command["limit"]]
        more = len(behind) > command["limit"]
        if not self._record.may_lack(command["at"], reply["at"]) and (is_right, reply["recovered"], reply["more"]) != (
            True,
            True,
            more,
        ):
            text = f"history of {command['topic']} since {command['since']} is {reply}, and not {behind}"
            self._violate([text], reply["at"], section="2.7")


def _time(event: Event) -> float:
    """Convert it to the oracle's form."""
    return float(event["at"]) + EPOCH


def check_readers(history: History) -> tuple[Recovered, Streamed]:
    """Check all rules about clients that recover, and about event streams."""
    telling = Telling(history)
    return telling.tell(), check_streams(history, telling.publications, EPOCH)
