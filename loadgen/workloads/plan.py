"""What a run is going to send, who gets it, and how a message says which one it is.

Owns: the interface between a workload and what drives it, and the text of a payload. Must never: know a clock, a
system or a process. A plan is drawn from its seed alone: every process of the generator draws the whole plan and
performs its own part, so that they agree on topics, sequence numbers and repetitions without speaking to each other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol, runtime_checkable


class Send(NamedTuple):
    """One publish. Times in ns from the segment's beginning.

    ``topic``, ``seq``: the ``seq``-th message (from 1) of that topic number in this run; ``news_ns``: when the message
    is meant to be sent for the first time, by whomever; ``first``: this is that publish. ``size``: bytes that the
    payload has at least; ``content``: what it says besides, the same in every publish of the message. ``causal``: it
    says something to a message that its connection has received, and so has to come after that one everywhere.
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


class Plan(Protocol):
    """A workload drawn from its seed. ``topics``: names by number; ``notes``: what a person should know beforehand."""

    topics: Sequence[str]
    connections: int
    notes: Sequence[str]

    def subscriptions(self, connection: int) -> list[str]:
        """All topics that it subscribes to, by name."""

    def receives(self, connection: int) -> frozenset[int]:
        """The numbers of those of them that are published to."""

    def expected(self, topic: int) -> int:
        """How many connections get a message of that topic."""

    def publisher(self, topic: int, seq: int, by_ns: int) -> int | None:
        """The only connection that was meant to publish that message until ``by_ns``, in ns from the beginning of the
        segment drawn last; ``None`` if several were. Until then the plan has to be drawn. Messages of one publisher
        and topic have an order."""

    def sends(
        self, rate_per_s: float | None, duration_s: float, process: int = 0, processes: int = 1
    ) -> Iterator[Send]:
        """The next segment, by intended time: of every connection, at that rate in all. ``None``: the plan's own times.
        Segments continue each other's sequence numbers, so all of a run's segments are drawn in the same order. What
        connections send that are not of the remainder ``process`` by ``processes`` may be left out."""


@runtime_checkable
class Replying(Protocol):
    """What a plan has besides if its connections send because of what they receive: a closed loop, whose times are
    given to it. Times in ns from the segment's beginning."""

    def heard(self, connection: int, content: str, at_ns: int) -> None:
        """It has received a message with that content, for the first time. ``ValueError``: no message of this plan."""

    def due(self, now_ns: int) -> list[Send]:
        """What is to be sent by now and was not given before, in the order of the intended times."""

    def next_ns(self) -> int | None:
        """When something will be due; ``None``: not before something is heard."""

    def pending(self) -> int:
        """How many sends will be due if nothing more is heard."""

    def forget(self) -> list[int]:
        """Send none of them; their connections."""


class Heading(NamedTuple):
    """What a received payload says of itself. ``intended_ns``: on the generator's clock."""

    topic: int
    seq: int
    intended_ns: int


def payload(tag: str, topic: int, seq: int, intended_ns: int, content: str, size: int) -> str:
    """The text of a message, filled up to ``size`` bytes. Every publish of a message has the same text: that is what
    makes it a duplicate. ``tag``: of the run, without spaces."""
    return f"{tag} {topic} {seq} {intended_ns} {content}".ljust(size, ".")


def content(text: str) -> str:
    """What a message whose heading was read says besides, with what filled it up."""
    return text.split(" ", 4)[4]


def heading(tag: str, text: str) -> Heading | None:
    """Of a message of this run; ``None`` of any other text."""
    parts = text.split(" ", 4)
    if len(parts) != 5 or parts[0] != tag:
        return None
    try:
        return Heading(int(parts[1]), int(parts[2]), int(parts[3]))
    except ValueError:
        return None
