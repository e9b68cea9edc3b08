"""What a run needs of a system under load (thesis figure 6.1: one interface, an adapter per system).

Owns: the interface and its errors. Must never: know a system.

Topics and payloads are text: topics as `protocol/topics.py` allows them (any Unicode but control characters, up to
1,024 bytes, spaces and dots and wildcards of other systems included), payloads up to some kilobytes. An adapter whose
system allows less as a topic encodes it, one to one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

#: ``(topic, payload)``; called as soon as the message is there, in the loop's thread, so it has to be quick.
OnMessage = Callable[[str, str], None]
#: ``(code)``: something failed that no call waits for (a lost connection, a refused publish).
OnError = Callable[[str], None]


class BackendError(Exception):
    """A call failed. ``code``: short and stable, for the log (``timeout``, ``connect``, ``connection_lost``,
    ``closed``, or from the system's own words); the text says what failed, and to a person what to do."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code


class Counters(NamedTuple):
    """One server's own counters at one instant. ``at_ns``: monotonic; ``values``: by the server's own names. ``form``:
    of its code, as it says itself; empty for a system whose code has one form only."""

    at_ns: int
    source: str
    values: dict[str, float]
    form: str = ""


class Connection(Protocol):
    """One client of the run, connected and receiving. Calls of one connection do not overlap, but for ``close``."""

    async def subscribe(self, topics: Sequence[str]) -> None:
        """Done when the system has confirmed all of them: a message published from now on is received. Topics are
        distinct, and new to this connection. In as few round trips as the system's client allows. ``BackendError``."""

    async def unsubscribe(self, topics: Sequence[str]) -> None:
        """Likewise; the topics are subscribed to."""

    async def publish(self, messages: Sequence[tuple[str, str]]) -> None:
        """Send ``(topic, payload)`` pairs in this order, as fire and forget as the system's documentation recommends
        for speed. Done when the client library has handed them to the socket, or to a bounded buffer of its own that
        it is flushing: waiting here is how a system that takes no more makes itself felt. ``BackendError`` if none of
        them or an unknown part was sent; what fails later is told to ``on_error``, once per message if that is known.
        """

    async def close(self) -> None:
        """Idempotent, bounded in time; raises nothing of the connection's; calls no callback afterwards."""


class Backend(Protocol):
    """A system under load, as one process of the generator sees it."""

    #: The system drops a payload that comes again (thesis 1.3.4).
    deduplicates: bool

    async def connect(self, number: int, on_message: OnMessage, on_error: OnError) -> Connection:
        """Client ``number`` of the run, from 0. Each connection receives a message once per publish of a topic that it
        subscribed to, its own publishes included. ``BackendError``."""

    async def counters(self) -> list[Counters]:
        """Of every server that tells them; an empty list where none does. Bounded in time; raises nothing."""

    async def close(self) -> None:
        """After all connections: whatever the backend shares between them, and what it left in the system (queues,
        exchanges, topics). Idempotent, bounded in time, raises nothing."""


class Spread:
    """What the adapters of most other systems have in common: clients are spread over ``urls`` round-robin, each with a
    connection of its own. Between them nothing is shared, and nothing of theirs outlives it."""

    deduplicates = False

    def __init__(self, urls: Sequence[str], run: str) -> None:
        self._urls = list(urls)
        self._run = run

    def place(self, number: int) -> tuple[str, str]:
        """Of the run's client of that number: the URL of its server, and its name there."""
        return self._urls[number % len(self._urls)], f"{self._run}-{number}"

    async def close(self) -> None:
        """See ``Backend``."""
