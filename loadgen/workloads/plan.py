"""The messages that a run is going to send, their receivers, and how a message identifies itself.

Owns: the interface between a workload and its driver, and the text of a payload. Must never: know a clock, a system or
a process. A plan depends only on its seed: every process of the generator draws the whole plan and performs its own
part, so that they agree on topics, sequence numbers and repetitions without speaking to each other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol, runtime_checkable


class Send(NamedTuple):
    """One publish. Times in ns from the segment's beginning.

    ``topic``, ``seq``: the ``seq``-th message (from 1) of that topic number in this run; ``news_ns``: when any client
    is meant to send the message for the first time; ``first``: whether this is that publish. ``size``: the payload's
    least bytes; ``content``: its other text, the same in every publish of the message. ``causal``: it replies to a
    message that its connection has received, and so has to arrive after that one everywhere. ``item``, ``weight``: as
    a publish has them (SPEC section 2.8); the same in every publish of the message.
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
    """A workload drawn from its seed. ``topics``: names by number; ``notes``: facts that a person needs beforehand."""

    topics: Sequence[str]
    connections: int
    notes: Sequence[str]

    def subscriptions(self, connection: int) -> list[str]:
        """Return all topics that it subscribes to, by name."""

    def receives(self, connection: int) -> frozenset[int]:
        """Return the numbers of its topics that are published to."""

    def expected(self, topic: int) -> int:
        """Return how many connections get a message of that topic."""

    def publisher(self, topic: int, seq: int, by_ns: int) -> int | None:
        """Return the only connection that was meant to publish that message until ``by_ns``, in ns from the beginning
        of the segment drawn last; ``None`` if several were. The plan has to be drawn up to that time. Messages of one
        publisher and topic have an order."""

    def sends(
        self, rate_per_s: float | None, duration_s: float, process: int = 0, processes: int = 1
    ) -> Iterator[Send]:
        """Draw the next segment, by intended time: of every connection, at that total rate. ``None``: the plan's own
        times. Segments continue each other's sequence numbers, so a run draws all its segments in the same order. It
        may leave out what connections send that are not of the remainder ``process`` by ``processes``."""


@runtime_checkable
class Replying(Protocol):
    """The other half of a plan whose connections send because of what they receive: a closed loop, which gets its
    times as arguments. Times in ns from the segment's beginning."""

    def heard(self, connection: int, content: str, at_ns: int) -> None:
        """Take a message with that content, received for the first time. ``ValueError``: no message of this plan."""

    def due(self, now_ns: int) -> list[Send]:
        """Return the sends due by now that it did not return before, in the order of the intended times."""

    def next_ns(self) -> int | None:
        """Return when something will be due; ``None``: not before it hears something."""

    def pending(self) -> int:
        """Return how many sends will be due if it hears nothing more."""

    def forget(self) -> list[int]:
        """Drop all pending sends; return their connections."""


class Heading(NamedTuple):
    """The heading of a received payload. ``intended_ns``: on the generator's clock."""

    topic: int
    seq: int
    intended_ns: int


def payload(tag: str, topic: int, seq: int, intended_ns: int, content: str, size: int) -> str:
    """Return the text of a message, filled up to ``size`` bytes. Every publish of a message has the same text: that
    makes it a duplicate. ``tag``: the run's, without spaces."""
    return f"{tag} {topic} {seq} {intended_ns} {content}".ljust(size, ".")


def content(text: str) -> str:
    """Return the rest of a message whose heading was read, with its filling."""
    return text.split(" ", 4)[4]


def heading(tag: str, text: str) -> Heading | None:
    """Return the heading of a message of this run; ``None`` for any other text."""
    parts = text.split(" ", 4)
    if len(parts) != 5 or parts[0] != tag:
        return None
    try:
        return Heading(int(parts[1]), int(parts[2]), int(parts[3]))
    except ValueError:
        return None
