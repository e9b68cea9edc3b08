"""The raw record of a soak: every publish, answer and delivery, and when each endpoint and connection was up.

Owns: the files of a folder, and the text of their lines. Must never: judge.

All times are microseconds since the run began, on one clock. ``messages.csv.gz`` has a line for each message, written
when nothing more is expected for it; ``late.csv`` has what a slow client gets later.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

#: Outcomes of a publish, in addition to the error codes of the protocol (SPEC section 5).
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
    """To a client (by number), on which connection (the first is 0)."""

    client: int
    life: int
    at_us: int


@dataclass
class Message:
    """One payload. ``due_us``: its intended send time."""

    number: int
    topic: int
    due_us: int
    attempts: list[Attempt] = field(default_factory=list)
    deliveries: list[Delivery] = field(default_factory=list)

    def line(self) -> str:
        """Return it as text."""
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
    """One connection of a client. ``listening_us``: when its ``listen`` was confirmed; ``newest_us``: the latest due
    time among its deliveries; ``how`` it ended: ``moved`` (by the client), ``end`` (of the run), ``lost``, or the
    endpoint's close code."""

    client: int
    number: int
    endpoint: int
    listening_us: int = -1
    end_us: int = -1
    how: str = ""
    newest_us: int = -1

    def ended(self, now_us: int, how: str) -> None:
        """End it, unless it has already ended: the first cause counts."""
        if self.end_us < 0:
            self.end_us, self.how = now_us, how

    def lost(self, now_us: int, code: int | None) -> None:
        """Its connection is gone; ``None``: without a close frame."""
        self.ended(now_us, "lost" if code is None else str(code))


@dataclass
class Kill:
    """A kill of an endpoint. ``ready_us``: when its next life served; -1: it did not return in this run."""

    endpoint: int
    killed_us: int
    ready_us: int = -1


@dataclass
class Sample:
    """Memory (anonymous) and CPU time so far of the generator (endpoint -1) or of an endpoint's process (``life``: the
    number of earlier starts)."""

    at_us: int
    endpoint: int
    life: int
    anon_bytes: int
    cpu_s: float


class Folder:
    """The place of the record."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __truediv__(self, name: str) -> Path:
        return self.path / name

    def messages(self) -> Iterator[Message]:
        """Yield every message, in the order in which they were settled."""
        with gzip.open(self / "messages.csv.gz", "rt", encoding="ascii") as lines:
            yield from map(_message, lines)

    def late(self) -> dict[int, list[Delivery]]:
        """Return the deliveries that arrived after their message's line was written: by message."""
        found: dict[int, list[Delivery]] = {}
        for line in (self / "late.csv").read_text(encoding="ascii").splitlines():
            number, *rest = map(int, line.split(","))
            found.setdefault(number, []).append(Delivery(*rest))
        return found

    def save(self, name: str, value: Any) -> None:
        """Write a document."""
        (self / name).write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")

    def load(self, name: str) -> Any:
        """Read a document."""
        return json.loads((self / name).read_text(encoding="utf-8"))

    def save_rows(self, name: str, rows: Iterable[Any]) -> None:
        """Write rows of one of the classes above."""
        self.save(name, [asdict(row) for row in rows])

    def load_rows(self, name: str, kind: Any) -> list[Any]:
        """Read them again."""
        return [kind(**row) for row in self.load(name)]


class Writer:
    """Writes the two files that grow during the run."""

    def __init__(self, folder: Folder) -> None:
        folder.path.mkdir(parents=True, exist_ok=False)
        self._messages = gzip.open(  # noqa: SIM115
            folder / "messages.csv.gz", "wt", compresslevel=_LEVEL, encoding="ascii"
        )
        self._late = (folder / "late.csv").open("w", encoding="ascii")

    def settled(self, messages: Iterable[Message]) -> None:
        """Write messages for which nothing more is expected."""
        self._messages.write("".join(message.line() for message in messages))

    def late(self, message: int, delivery: Delivery) -> None:
        """Write a delivery that arrived after all."""
        self._late.write(f"{message},{delivery.client},{delivery.life},{delivery.at_us}\n")

    def close(self) -> None:
        """Complete the files."""
        self._messages.close()
        self._late.close()
