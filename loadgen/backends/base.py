"""The interface between a run and the system under load (thesis figure 6.1: one interface, an adapter per system).

Owns: the interface and its errors. Must never: depend on a particular system.

Topics and payloads are text. A topic is any text that `protocol/topics.py` allows: Unicode except control characters,
up to 1,024 bytes, including spaces, dots and the wildcards of other systems. A payload has up to a few kilobytes. If a
system does not allow some of these characters, its adapter encodes topics so that different topics keep different
names.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

#: Called with ``(topic, payload)`` in the event loop's thread as soon as a message arrives, so it has to be quick.
OnMessage = Callable[[str, str], None]
#: Called with ``(code)`` on a failure that no call waits for (a lost connection, a refused publish).
OnError = Callable[[str], None]


class BackendError(Exception):
    """Raised if a call failed. The error message tells the user what failed and what to do.

    Args:
        code: short and stable, for the log: ``timeout``, ``connect``, ``connection_lost``, ``closed``, or a code
            derived from the system's own error.
        text: the message.
    """

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code


class Counters(NamedTuple):
    """One server's own counters at one instant. ``at_ns``: the monotonic time; ``values``: the counters by their names
    on the server; ``form``: the form of the code that the server reports. It is empty if the system has only one
    form."""

    at_ns: int
    source: str
    values: dict[str, float]
    form: str = ""


class Connection(Protocol):
    """One client of the run, connected and receiving. Calls on one connection do not overlap, except ``close``."""

    async def subscribe(self, topics: Sequence[str]) -> None:
        """Subscribe, in as few round trips as the system's client allows.

        Args:
            topics: distinct topics to which this connection is not subscribed.

        Returns:
            Nothing. The call ends when the system has confirmed every topic. The client receives every message
            published after that.

        Raises:
            BackendError: the system refused a topic, or the connection ended.
        """

    async def unsubscribe(self, topics: Sequence[str]) -> None:
        """Unsubscribe, and wait for the confirmation like ``subscribe``.

        Args:
            topics: distinct topics to which this connection is subscribed.

        Raises:
            BackendError: the call failed, or the connection ended.
        """

    async def publish(self, messages: Sequence[tuple[str, str]]) -> None:
        """Send messages in this order, fire and forget, in the way that the system's documentation recommends for
        speed.

        Args:
            messages: ``(topic, payload)`` pairs.

        Returns:
            Nothing. The call ends when the client library has passed the messages to the socket, or to its own bounded
            buffer, which it flushes later. While the system accepts no more messages, this call waits.

        Raises:
            BackendError: some or all of the messages were not sent; the number is unknown. Later failures go to
                ``on_error``, one call for each message if the adapter can tell the messages apart.
        """

    async def close(self) -> None:
        """Close the connection. The call is idempotent and bounded in time, and raises no connection error. After it
        returns, no callback is called."""


class Backend(Protocol):
    """A system under load, as one process of the generator sees it."""

    #: Whether the system drops a repeated payload (thesis 1.3.4).
    deduplicates: bool

    async def connect(self, number: int, on_message: OnMessage, on_error: OnError) -> Connection:
        """Open a connection. It receives one copy of each publish on its topics, including its own publishes.

        Args:
            number: the client's number in the run, from 0.
            on_message: gets each message.
            on_error: gets the code of each failure that no call waits for.

        Returns:
            The connection, ready for calls.

        Raises:
            BackendError: the connection could not be made; the error message says why.
        """

    async def counters(self) -> list[Counters]:
        """Return the counters of every server that has any, or an empty list if no server does. The call is
        bounded in time and raises nothing."""

    async def close(self) -> None:
        """Close the backend after all its connections: release the resources that they share, and remove everything
        that the backend made in the system (queues, exchanges, topics). The call is idempotent, is bounded in
        time, and raises nothing."""


class Bounded(NamedTuple):
    """The bounds of a client, for a system that has them (SPEC section 2.8).

    ``rules``: the bounds, in the form that ``listen`` accepts. ``window``: the greatest number of notifications that
    the client leaves unconfirmed, or ``None`` if there is no limit. ``on_message``: gets each message, instead of the
    ``on_message`` of ``connect``. Its third argument is the number of other messages that the message replaces.
    """

    rules: str | list[dict[str, Any]]
    window: int | None
    on_message: Callable[[str, str, int], None]


class About(NamedTuple):
    """A message with an item or a weight. ``item``: the part of the topic's state that the message is about;
    ``weight``: how much a reader misses without the message. A field is ``None`` if the message does not have it."""

    topic: str
    payload: str
    item: str | None
    weight: float | None


class BoundingConnection(Connection, Protocol):
    """A connection to a system whose clients can have bounds."""

    async def publish_about(self, messages: Sequence[About]) -> None:
        """Send messages, as ``publish`` does."""


class BoundingBackend(Backend, Protocol):
    """A system whose clients can have bounds."""

    async def connect(
        self, number: int, on_message: OnMessage, on_error: OnError, bounded: Bounded | None = None
    ) -> BoundingConnection:
        """See ``Backend``.

        Args:
            number: the client's number in the run, from 0.
            on_message: gets each message, unless ``bounded`` is given.
            on_error: gets the code of each failure that no call waits for.
            bounded: the client's bounds, if it has any.
        """


class Spread:
    """The common part of most adapters. It spreads the clients over ``urls`` round-robin, each with its own connection.
    The clients share nothing and leave nothing behind."""

    deduplicates = False

    def __init__(self, urls: Sequence[str], run: str) -> None:
        self._urls = list(urls)
        self._run = run

    def place(self, number: int) -> tuple[str, str]:
        """Return the URL of the server for the client with this number, and the client's name on that server."""
        return self._urls[number % len(self._urls)], f"{self._run}-{number}"

    async def close(self) -> None:
        """See ``Backend``."""
