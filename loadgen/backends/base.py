"""What a run needs of a system under load; one module beside this one per system.

Owns: the interface and its errors. Must never: know a system.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

#: ``(topic, payload)``; called as soon as the message is there, so it has to be quick.
OnMessage = Callable[[str, Any], None]
#: ``(code)``: something failed that no call waits for.
OnError = Callable[[str], None]


class BackendError(Exception):
    """A call failed. ``code``: as it goes into the log, from the system's own words."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code


class Counters(NamedTuple):
    """One server at one instant. ``at_ns``: monotonic; ``values``: by the server's own names."""

    at_ns: int
    source: str
    values: dict[str, float]
    cpu_s: float | None
    rss_bytes: int | None


class Connection(Protocol):
    """One client of the run, connected and receiving."""

    async def subscribe(self, topics: Sequence[str]) -> None:
        """Done when the system has confirmed all of them. ``BackendError``."""

    async def unsubscribe(self, topics: Sequence[str]) -> None:
        """Likewise."""

    async def publish(self, topic: str, payload: Any) -> None:
        """Done when it is written. ``BackendError``; what fails later is told to ``on_error``."""

    async def close(self) -> None:
        """Idempotent; raises nothing of the connection's."""


class Backend(Protocol):
    """A system under load."""

    name: str

    async def connect(self, number: int, on_message: OnMessage, on_error: OnError) -> Connection:
        """Client ``number`` of the run, from 0. ``BackendError``."""

    async def counters(self) -> list[Counters]:
        """Of every server that tells them; an empty list where none does. Bounded in time; raises nothing."""
