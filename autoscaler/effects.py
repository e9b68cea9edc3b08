"""The effects that the controller returns, and its picture of the group for display.

Owns: the types that the controller passes to the code that carries out its orders or displays its state. Must never:
decide anything.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from .model import Message, Queue


class Tell(NamedTuple):
    """A message for the member with this number. If the number is 0, the message goes into the controller's own
    partition, where joining members read it."""

    number: int
    message: Message


@dataclass(frozen=True)
class Scale:
    """An order for the scaler to run ``count`` members. If more members run now, the scaler ends members in
    ``leaving``."""

    count: int
    leaving: tuple[str, ...]


class Resign(NamedTuple):
    """This controller gives up its role. ``why``: text for people."""

    why: str


class Note(NamedTuple):
    """A note about an event. ``event``: the event's name, for programs. ``words``: the text for people. ``is_trouble``:
    whether an operator must act. ``seconds``: how long the event took, if known."""

    event: str
    words: str
    is_trouble: bool = False
    seconds: float | None = None


Effect = Tell | Scale | Resign | Note


class Notes:
    """Collects notes and other effects in the order in which they are added."""

    def __init__(self) -> None:
        self._effects: list[Effect] = []

    def add(self, effect: Effect) -> None:
        """Add an effect."""
        self._effects.append(effect)

    def note(self, event: str, words: str, seconds: float | None = None) -> None:
        """Add a note about an event."""
        self._effects.append(Note(event, words, seconds=seconds))

    def trouble(self, event: str, words: str) -> None:
        """Add a note about an event that an operator must act on."""
        self._effects.append(Note(event, words, True))

    def take(self) -> list[Effect]:
        """Return all effects since the last call."""
        effects, self._effects = self._effects, []
        return effects


class Share(NamedTuple):
    """A queue that a member owns, for display. ``bytes_per_s``: the queue's size. ``state``: see ``owners``.
    ``problem``: the reason why the member does not read the queue, or ``""``."""

    queue: Queue
    bytes_per_s: float
    state: str
    problem: str


class Bar(NamedTuple):
    """A member, for display. ``load``: the total load of its queues, in bytes per second. ``rate``: the bytes per
    second that the member says it reads. ``shares``: its queues, the largest first."""

    number: int
    name: str
    capacity: float
    load: float
    rate: float
    is_ready: bool
    is_leaving: bool
    shares: tuple[Share, ...]


class Picture(NamedTuple):
    """The group, for display. ``running``: the number of members that the scaler reports, or ``None`` if it has
    reported nothing. ``stock``: the bytes that the group has not read yet."""

    state: str
    term: int
    wanted: int
    running: int | None
    bars: tuple[Bar, ...]
    queues: int
    unowned: int
    moving: int
    bytes_per_s: float
    stock: float
    hot: tuple[Queue, ...]
    missing: tuple[str, ...]
    is_capped: bool
    is_stale: bool
