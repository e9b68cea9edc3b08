"""The raw record of a soak: everything that was published, answered and received, and who was there when.

Owns: the files of a folder, and the text of their lines. Must never: judge.

All times are microseconds since the run began, on one clock. ``messages.csv.gz`` has a line for each message, written
when nothing more is expected of it; what a slow client gets later than that is in ``late.csv``.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

#: What became of a publish, beside the error codes of the protocol (SPEC section 5).
NEW, DUPLICATE, LOST, UNANSWERED = "new", "duplicate", "connection_lost", "unanswered"

#: Compression that costs the generator next to nothing; the record of half an hour is some 100 MB.
_LEVEL = 1


class Attempt(NamedTuple):
    """One publish of a message, at an endpoint (by number). ``outcome``: one of the above, or an error code."""

    endpoint: int
    sent_us: int
    answered_us: int
    outcome: str


class Delivery(NamedTuple):
    """To a client (by number), on which of its connections (the first is 0)."""

    client: int
    life: int
    at_us: int


@dataclass
class Message:
    """One payload. ``due_us``: when it was meant to be sent."""

    number: int
    topic: int
    due_us: int
    attempts: list[Attempt] = field(default_factory=list)
    deliveries: list[Delivery] = field(default_factory=list)

    def line(self) -> str:
        """As text."""
        attempts = " ".join(f"{a.endpoint}/{a.sent_us}/{a.answered_us}/{a.outcome}" for a in self.attempts)
        deliveries = " ".join(f"{d.client}/{d.life}/{d.at_us}" for d in self.deliveries)
        return f"{self.number},{self.topic},{self.due_us},{attempts},{deliveries}\n"


def _message(line: str) -> Message:
    number, topic, due_us, attempts, deliveries = line.rstrip("\n").split(",")
    message = Message(int(number), int(topic), int(due_us))
    for text in attempts.split():
        endpoint, sent, answered, outcome = text.split("/")
        message.attempts.append(Attempt(int(endpoint), int(sent), int(answered), outcome))
    message.deliveries = [Delivery(*map(int, text.split("/"))) for text in deliveries.split()]
    return message


@dataclass
class Life:
    """One connection of a client. ``listening_us``: when its ``listen`` was confirmed; ``newest_us``: the latest of the
    due times of what it was sent; ``how`` it ended: ``moved`` (by the client), ``end`` (of the run), ``lost``, or the
    endpoint's close code."""

    client: int
    number: int
    endpoint: int
    listening_us: int = -1
    end_us: int = -1
    how: str = ""
    newest_us: int = -1

    def ended(self, now_us: int, how: str) -> None:
        """It is over, if it was not already: what ended it first is what did."""
        if self.end_us < 0:
            self.end_us, self.how = now_us, how

    def lost(self, now_us: int, code: int | None) -> None:
        """Its connection is gone; ``None``: without a close frame."""
        self.ended(now_us, "lost" if code is None else str(code))


@dataclass
class Kill:
    """Of an endpoint: ``ready_us``: when its next life served; -1: not any more in this run."""

    endpoint: int
    killed_us: int
    ready_us: int = -1


@dataclass
class Sample:
    """Of an endpoint's process (``life``: how often it had been started before) or of the generator (endpoint -1):
    anonymous memory, and CPU time so far."""

    at_us: int
    endpoint: int
    life: int
    anon_bytes: int
    cpu_s: float


class Folder:
    """Where the record is."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __truediv__(self, name: str) -> Path:
        return self.path / name

    def messages(self) -> Iterator[Message]:
        """All of them, one by one, in the order they were settled in."""
        with gzip.open(self / "messages.csv.gz", "rt", encoding="ascii") as lines:
            yield from map(_message, lines)

    def late(self) -> dict[int, list[Delivery]]:
        """Deliveries that came when their message's line was written: by message."""
        found: dict[int, list[Delivery]] = {}
        for line in (self / "late.csv").read_text(encoding="ascii").splitlines():
            number, *rest = map(int, line.split(","))
            found.setdefault(number, []).append(Delivery(*rest))
        return found

    def save(self, name: str, value: Any) -> None:
        """A document."""
        (self / name).write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")

    def load(self, name: str) -> Any:
        """A document."""
        return json.loads((self / name).read_text(encoding="utf-8"))

    def save_rows(self, name: str, rows: Iterable[Any]) -> None:
        """Rows of one of the classes above."""
        self.save(name, [asdict(row) for row in rows])

    def load_rows(self, name: str, kind: Any) -> list[Any]:
        """The same again."""
        return [kind(**row) for row in self.load(name)]


class Writer:
    """Of the two files that grow while it runs."""

    def __init__(self, folder: Folder) -> None:
        folder.path.mkdir(parents=True, exist_ok=False)
        self._messages = gzip.open(  # noqa: SIM115
            folder / "messages.csv.gz", "wt", compresslevel=_LEVEL, encoding="ascii"
        )
        self._late = (folder / "late.csv").open("w", encoding="ascii")

    def settled(self, messages: Iterable[Message]) -> None:
        """Nothing more is expected of them."""
        self._messages.write("".join(message.line() for message in messages))

    def late(self, message: int, delivery: Delivery) -> None:
        """It came all the same."""
        self._late.write(f"{message},{delivery.client},{delivery.life},{delivery.at_us}\n")

    def close(self) -> None:
        """The files are whole."""
        self._messages.close()
        self._late.close()
