"""The interface between a run and the system under load (thesis figure 6.1: one interface, an adapter per system).

Owns: the interface and its errors. Must never: know a system.

Topics and payloads are text. Topics are as `protocol/topics.py` allows them: any Unicode except control characters, up
to 1,024 bytes, including spaces, dots and the wildcards of other systems. Payloads have up to some kilobytes. If a
system allows less in a topic, its adapter encodes topics one to one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

#: ``(topic, payload)``; called in the loop's thread as soon as the message arrives, so it has to be quick.
OnMessage = Callable[[str, str], None]
#: ``(code)``: a failure that no call waits for (a lost connection, a refused publish).
OnError = Callable[[str], None]


class BackendError(Exception):
    """A call failed. The text tells a person what failed and what to do.

    Args:
        code: short and stable, for the log: ``timeout``, ``connect``, ``connection_lost``, ``closed``, or one derived
            from the system's own words.
        text: the message.
    """

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code


class Counters(NamedTuple):
    """One server's own counters at one instant. ``at_ns``: monotonic; ``values``: by the server's own names; ``form``:
    the form of its code, as the server reports it, or empty for a system whose code has only one."""

    at_ns: int
    source: str
    values: dict[str, float]
    form: str = ""


class Connection(Protocol):
    """One client of the run, connected and receiving. Calls on one connection do not overlap, except ``close``."""

    async def subscribe(self, topics: Sequence[str]) -> None:
        """Subscribe, in as few round trips as the system's client allows.

        Args:
            topics: distinct, and new to this connection.

        Returns:
            When the system has confirmed every topic: the client receives any message published from now on.

        Raises:
            BackendError: the system refused a topic, or the connection ended.
        """

    async def unsubscribe(self, topics: Sequence[str]) -> None:
        """Unsubscribe, confirmed as in ``subscribe``.

        Args:
            topics: distinct, and subscribed to.

        Raises:
            BackendError: the call failed, or the connection ended.
        """

    async def publish(self, messages: Sequence[tuple[str, str]]) -> None:
        """Send messages in this order, fire and forget, the way the system's documentation recommends for speed.

        Args:
            messages: ``(topic, payload)`` pairs.

        Returns:
            When the client library has handed them to the socket, or to its own bounded buffer, which it flushes. A
            system that accepts no more makes this call wait.

        Raises:
            BackendError: none of the messages was sent, or an unknown part of them was not. ``on_error`` reports later
            failures, once
                per message if the adapter can tell the messages apart.
        """

    async def close(self) -> None:
        """Close. Idempotent, bounded in time; raises no error of the connection; calls no callback afterwards."""


class Backend(Protocol):
    """A system under load, as one process of the generator sees it."""

    #: Whether the system drops a repeated payload (thesis 1.3.4).
    deduplicates: bool

    async def connect(self, number: int, on_message: OnMessage, on_error: OnError) -> Connection:
        """Open a connection. It receives each publish on a topic that it subscribed to once, including its own
        publishes.

        Args:
            number: the client's number in the run, from 0.
            on_message: gets each message.
            on_error: gets the code of each failure that no call waits for.

        Returns:
            The connection, ready for calls.

        Raises:
            BackendError: there is no connection; the text says why.
        """

    async def counters(self) -> list[Counters]:
        """Return the counters of every server that has any; an empty list if none has. Bounded in time; raises
        nothing."""

    async def close(self) -> None:
        """Close after all connections: release what they share, and remove what the backend left in the system (queues,
        exchanges, topics). Idempotent, bounded in time, raises nothing."""


class Bounded(NamedTuple):
    """The bounds of a client, for a system that has them (SPEC section 2.8).

    ``rules``: as ``listen`` takes them. ``window``: notifications that it leaves unconfirmed; ``None``:
    any number. ``on_message``: gets each message in place of the other one, with the number of others that it stands
    for.
    """

    rules: str | list[dict[str, Any]]
    window: int | None
    on_message: Callable[[str, str, int], None]


class About(NamedTuple):
    """A message that says what it is about. ``item``: the part of its topic's state; ``weight``: what a reader lacks
    without it; ``None``: it does not say."""

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
            on_message: gets each message, unless it is ``bounded``.
            on_error: gets the code of each failure that no call waits for.
            bounded: the client's bounds, if it has any.
        """


class Spread:
    """The common part of most adapters: clients are spread over ``urls`` round-robin, each with its own connection. The
    clients share nothing and leave nothing behind."""

    deduplicates = False

    def __init__(self, urls: Sequence[str], run: str) -> None:
        self._urls = list(urls)
        self._run = run

    def place(self, number: int) -> tuple[str, str]:
        """Return the URL of the server of the client with this number, and the client's name there."""
        return self._urls[number % len(self._urls)], f"{self._run}-{number}"

    async def close(self) -> None:
        """See ``Backend``."""
