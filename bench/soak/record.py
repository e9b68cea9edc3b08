"""The raw record of a soak. It has every publish, answer and delivery, and the times at which each endpoint and
connection was up.

Owns: the files of the record, and the format of their lines. Must never: judge.

All times are microseconds since the run began, on one clock. ``messages.csv.gz`` has a line for each message, written
when nothing more is expected for the message. ``late.csv`` has the deliveries to slow clients that happen after the
message's line was written.
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

#: Level of the compression. Compression takes almost none of the generator's time. The record of half an hour has about
#: 100 MB.
_LEVEL = 1


class Attempt(NamedTuple):
    """One publish of a message to the endpoint with the number ``endpoint``. ``outcome`` is one of the outcomes above,
    or an error code."""

    endpoint: int
    sent_us: int
    answered_us: int
    outcome: str


class Delivery(NamedTuple):
    """A delivery to the client with the number ``client``. ``life`` is the number of the client's connection, from
    0."""

    client: int
    life: int
    at_us: int


@dataclass
class Message:
    """One message. ``due_us`` is its intended send time."""

    number: int
    topic: int
    due_us: int
    attempts: list[Attempt] = field(default_factory=list)
    deliveries: list[Delivery] = field(default_factory=list)

    def line(self) -> str:
        """Return the message as a line of text."""
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
    """One connection of a client. ``listening_us`` is the time at which its ``listen`` was confirmed, and ``newest_us``
    is the latest due time among its deliveries. ``how`` says how the connection ended: ``moved`` (the client closed
    it), ``end`` (the run ended), ``lost``, or the endpoint's close code."""

    client: int
    number: int
    endpoint: int
    listening_us: int = -1
    end_us: int = -1
    how: str = ""
    newest_us: int = -1

    def ended(self, now_us: int, how: str) -> None:
        """Note the end of the connection. Only the first call counts."""
        if self.end_us < 0:
            self.end_us, self.how = now_us, how

    def lost(self, now_us: int, code: int | None) -> None:
        """Note the loss of the connection. ``code`` is the code in the close frame, or ``None`` if there was no close
        frame."""
        self.ended(now_us, "lost" if code is None else str(code))


@dataclass
class Kill:
    """A kill of an endpoint. ``ready_us`` is the time at which the endpoint served again, or -1 if it did not return in
    this run."""

    endpoint: int
    killed_us: int
    ready_us: int = -1


@dataclass
class Sample:
    """Anonymous memory, and CPU time used so far, of the generator (endpoint -1) or of an endpoint's process. ``life``
    is the number of earlier starts of the endpoint."""

    at_us: int
    endpoint: int
    life: int
    anon_bytes: int
    cpu_s: float


class Folder:
    """The folder of the record."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __truediv__(self, name: str) -> Path:
        return self.path / name

    def messages(self) -> Iterator[Message]:
        """Yield every message, in the order in which they were settled."""
        with gzip.open(self / "messages.csv.gz", "rt", encoding="ascii") as lines:
            yield from map(_message, lines)

    def late(self) -> dict[int, list[Delivery]]:
        """Return, by message, the deliveries that arrived after the message's line was written."""
        found: dict[int, list[Delivery]] = {}
        for line in (self / "late.csv").read_text(encoding="ascii").splitlines():
            number, *rest = map(int, line.split(","))
            found.setdefault(number, []).append(Delivery(*rest))
        return found

    def save(self, name: str, value: Any) -> None:
        """Write a JSON document."""
        (self / name).write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")

    def load(self, name: str) -> Any:
        """Read a JSON document."""
        return json.loads((self / name).read_text(encoding="utf-8"))

    def save_rows(self, name: str, rows: Iterable[Any]) -> None:
        """Write rows of one of the classes above."""
        self.save(name, [asdict(row) for row in rows])

    def load_rows(self, name: str, kind: Any) -> list[Any]:
        """Read the rows of a file as objects of the class ``kind``."""
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
        """Write a delivery that arrived after the line of its message was written."""
        self._late.write(f"{message},{delivery.client},{delivery.life},{delivery.at_us}\n")

    def close(self) -> None:
        """Complete the files."""
        self._messages.close()
        self._late.close()
