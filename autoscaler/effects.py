"""The controller's effects and its picture for display.

Owns: the types between the controller and the code that carries out its orders or displays it. Must never: decide.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from .model import Message, Queue


class Tell(NamedTuple):
    """A message for the member with this number. 0: into the controller's own partition, where a joining member reads
    it."""

    number: int
    message: Message


@dataclass(frozen=True)
class Scale:
    """An order for the scaler: run ``count`` members, and end those in ``leaving`` if that is fewer than now."""

    count: int
    leaving: tuple[str, ...]


class Resign(NamedTuple):
    """This controller gives up its role. ``why``: text for people."""

    why: str


class Note(NamedTuple):
    """A note for people. ``event``: its name, for programs; ``words``: text for people; ``is_trouble``: somebody must
    act; ``seconds``: the duration, if known."""

    event: str
    words: str
    is_trouble: bool = False
    seconds: float | None = None


Effect = Tell | Scale | Resign | Note


class Notes:
    """Collects notes and effects in their order."""

    def __init__(self) -> None:
        self._effects: list[Effect] = []

    def add(self, effect: Effect) -> None:
        """Add an effect."""
        self._effects.append(effect)

    def note(self, event: str, words: str, seconds: float | None = None) -> None:
        """Add a note about an event."""
        self._effects.append(Note(event, words, seconds=seconds))

    def trouble(self, event: str, words: str) -> None:
        """Add a note about an event that needs an operator."""
        self._effects.append(Note(event, words, True))

    def take(self) -> list[Effect]:
        """Return all effects since the last call."""
        effects, self._effects = self._effects, []
        return effects


class Share(NamedTuple):
    """A queue that a member owns, for display. ``bytes_per_s``: its size; ``state``: see ``owners``; ``problem``: why
    the member does not read it, or ``""``."""

    queue: Queue
    bytes_per_s: float
    state: str
    problem: str


class Bar(NamedTuple):
    """A member, for display. ``load``: the total size of its queues, bytes per second; ``rate``: bytes per second that
    it reports reading. ``shares``: the largest first."""

    number: int
    name: str
    capacity: float
    load: float
    rate: float
    is_ready: bool
    is_leaving: bool
    shares: tuple[Share, ...]


class Picture(NamedTuple):
    """The group, for display. ``running``: the scaler's count, if it reports one. ``stock``: bytes not read yet."""

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
