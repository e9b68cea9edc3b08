"""What the controller wants done, and what it looks like.

Owns: the words between the controller and what carries out its orders or shows it. Must never: decide.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from .model import Message, Queue


class Tell(NamedTuple):
    """A message for the member with this number; 0: among those for the controller, where one that joins reads it."""

    number: int
    message: Message


@dataclass(frozen=True)
class Scale:
    """An order for the scaler: so many are to run, and these are to end where that is fewer."""

    count: int
    leaving: tuple[str, ...]


class Resign(NamedTuple):
    """This controller has nothing to say any more. ``why``: for people."""

    why: str


class Note(NamedTuple):
    """Something to tell people. ``event``: its name, for programs; ``words``: for people; ``is_trouble``: somebody has
    to do something about it; ``seconds``: how long it took, where that is known."""

    event: str
    words: str
    is_trouble: bool = False
    seconds: float | None = None


Effect = Tell | Scale | Resign | Note


class Notes:
    """Notes that come up while something else is done, and effects in their order."""

    def __init__(self) -> None:
        self._effects: list[Effect] = []

    def add(self, effect: Effect) -> None:
        """One more."""
        self._effects.append(effect)

    def note(self, event: str, words: str, seconds: float | None = None) -> None:
        """Something has happened."""
        self._effects.append(Note(event, words, seconds=seconds))

    def trouble(self, event: str, words: str) -> None:
        """Something has happened, and somebody has to do something about it."""
        self._effects.append(Note(event, words, True))

    def take(self) -> list[Effect]:
        """All since the last call."""
        effects, self._effects = self._effects, []
        return effects


class Share(NamedTuple):
    """A queue that a member owns, as it is looked at. ``bytes_per_s``: its size; ``state``: see ``owners``;
    ``problem``: why it is not read, or ``""``."""

    queue: Queue
    bytes_per_s: float
    state: str
    problem: str


class Bar(NamedTuple):
    """A member as it is looked at. ``load``: the sizes of what it owns, bytes a second; ``rate``: what it says that it
    reads. ``shares``: the greatest first."""

    number: int
    name: str
    capacity: float
    load: float
    rate: float
    is_ready: bool
    is_leaving: bool
    shares: tuple[Share, ...]


class Picture(NamedTuple):
    """The group as it is looked at. ``running``: what the scaler says, if it does. ``stock``: bytes not read yet."""

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
