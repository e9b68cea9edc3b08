"""The messages that a run is going to send, their receivers, and how a message identifies itself.

Owns: the interface between a workload and its driver, and the text of a payload. Must never: read a clock, or depend on
a system or a process. A plan depends only on its settings, which include the seed. Every process of the generator draws
the whole plan and performs its own part. So the processes agree on topics, sequence numbers and repetitions without
communicating.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol, runtime_checkable


class Send(NamedTuple):
    """One publish. All times are in ns from the segment's beginning.

    ``topic`` and ``seq`` identify the message: it is the ``seq``-th message (from 1) of that topic number in this run.
    ``news_ns``: the intended time of the message's first publish by any client; ``first``: whether this publish is the
    first. ``size``: the smallest size of the payload in bytes; ``content``: the payload's text after the heading.
    ``causal``: whether the message replies to a message that its connection has received. The reply then has to arrive
    after that message everywhere. ``item``, ``weight``: the fields of a publish (SPEC section 2.8). All publishes of a
    message have the same size, content, item and weight.
    """

    at_ns: int
    connection: int
    topic: int
    seq: int
    news_ns: int
    first: bool
    size: int
    content: str = ""
    causal: bool = False
    item: str | None = None
    weight: float | None = None


class Plan(Protocol):
    """A workload drawn from its seed. ``topics``: names by number; ``notes``: facts to show before the run starts."""

    topics: Sequence[str]
    connections: int
    notes: Sequence[str]

    def subscriptions(self, connection: int) -> list[str]:
        """Return the names of all topics that the connection subscribes to."""

    def receives(self, connection: int) -> frozenset[int]:
        """Return the numbers of the connection's topics on which messages are published."""

    def expected(self, topic: int) -> int:
        """Return how many connections receive each message of the topic."""

    def publisher(self, topic: int, seq: int, by_ns: int) -> int | None:
        """Return the only connection that the plan lets publish the message until ``by_ns``, or ``None`` if there are
        several. Messages of one publisher on one topic have an order. ``by_ns``: the time in ns since the beginning of
        the segment drawn last, which has to be drawn up to that time."""

    def sends(
        self, rate_per_s: float | None, duration_s: float, process: int = 0, processes: int = 1
    ) -> Iterator[Send]:
        """Draw the next segment: the publishes of all connections, ordered by their intended times. ``rate_per_s``:
        their total rate, or ``None`` if the plan has its own times. Sequence numbers continue from one segment to the
        next, so every process has to draw all segments in the same order. The plan may leave out publishes of
        connections whose number modulo ``processes`` is not ``process``."""


@runtime_checkable
class Replying(Protocol):
    """The additional methods of a plan whose connections reply to the messages that they receive (a closed loop).
    Callers pass the times, in ns from the segment's beginning."""

    def heard(self, connection: int, content: str, at_ns: int) -> None:
        """Handle the content of a message that the connection has received for the first time. Raises ``ValueError`` if
        the plan has no such message."""

    def due(self, now_ns: int) -> list[Send]:
        """Return the sends that have become due since the last call, in the order of their intended times."""

    def next_ns(self) -> int | None:
        """Return when the next send is due, or ``None`` if no send is pending."""

    def pending(self) -> int:
        """Return how many sends are still to come if no connection receives another message."""

    def forget(self) -> list[int]:
        """Drop all pending sends, and return the connection of each."""


class Heading(NamedTuple):
    """The heading of a received payload. ``intended_ns``: the intended time, on the generator's clock."""

    topic: int
    seq: int
    intended_ns: int


def payload(tag: str, topic: int, seq: int, intended_ns: int, content: str, size: int) -> str:
    """Return the text of a message, padded to ``size`` bytes. Every publish of a message has the same text, so all
    publishes after the first are duplicates. ``tag``: identifies the run, and has no spaces."""
    return f"{tag} {topic} {seq} {intended_ns} {content}".ljust(size, ".")


def content(text: str) -> str:
    """Return the text of a message after its heading, including the padding."""
    return text.split(" ", 4)[4]


def heading(tag: str, text: str) -> Heading | None:
    """Return the heading of a message of this run, or ``None`` for any other text."""
    parts = text.split(" ", 4)
    if len(parts) != 5 or parts[0] != tag:
        return None
    try:
        return Heading(int(parts[1]), int(parts[2]), int(parts[3]))
    except ValueError:
        return None
