"""Where sinks are looked at: disks that a test watches, holds and breaks, and what a stage of the contract has.

Owns: the doubles that the tests of the sinks share. Must never: know what a sink does with a step.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

from ingeborg.autoscaler.sinks.base import Place, Record, Sink
from ingeborg.autoscaler.sinks.disk import Disk
from ingeborg.autoscaler.sinks.lines import Line

#: Nothing a test waits for takes longer; on a busy machine it takes long enough.
PATIENCE_S = 60.0

PLACE = Place("clicks", "web", 3, 7, "m-1")
TAKEN = PLACE._replace(epoch=8, member="m-2")


def batch(first: int, end: int, step: int = 1) -> list[Record]:
    """Records with these offsets."""
    return [Record(offset, 1_000 + offset, b"%d" % offset, b"value %d" % offset) for offset in range(first, end, step)]


def lines(place: Place, records: Sequence[Record]) -> list[Line]:
    """What is kept of the records."""
    return [
        Line(place.topic, place.partition, each.offset, place.epoch, place.member, each.time_ms, each.key, each.value)
        for each in records
    ]


class WatchedDisk(Disk):
    """``at`` is called before each step, with its name and a path; it may wait, or raise."""

    def __init__(self, at: Callable[[str, Path], None] | None = None) -> None:
        self.at = at or (lambda step, path: None)

    def folder(self, path: Path) -> None:
        self.at("folder", path)
        super().folder(path)

    def names(self, folder: Path) -> Iterator[str]:
        self.at("names", folder)
        return super().names(folder)

    def draft(self, folder: Path, data: bytes) -> Path:
        self.at("draft", folder)
        return super().draft(folder, data)

    def publish(self, draft: Path, path: Path) -> bool:
        self.at("publish", path)
        return super().publish(draft, path)

    def remove(self, path: Path) -> None:
        self.at("remove", path)
        super().remove(path)

    def sync(self, folder: Path) -> None:
        self.at("sync", folder)
        super().sync(folder)

    def old(self, folder: Path, before_s: float) -> list[Path]:
        self.at("old", folder)
        return super().old(folder, before_s)

    def text(self, path: Path) -> str:
        self.at("text", path)
        return super().text(path)

    def last_line(self, path: Path) -> bytes | None:
        self.at("last_line", path)
        return super().last_line(path)

    def add_line(self, path: Path, line: bytes) -> None:
        self.at("add_line", path)
        super().add_line(path, line)


class Hold:
    """A thread that stops where it is told to, as one whose process was stopped."""

    def __init__(self) -> None:
        self._reached = threading.Event()
        self._released = threading.Event()

    def stop(self) -> None:
        """In the thread: wait until it is released."""
        self._reached.set()
        assert self._released.wait(PATIENCE_S), "nobody has released it"

    async def reached(self) -> None:
        """Wait until the thread has stopped."""
        assert await asyncio.to_thread(self._reached.wait, PATIENCE_S), "no thread came here"

    def release(self) -> None:
        """The thread goes on."""
        self._released.set()


class Once:
    """Something to do before the next step of this name, once."""

    def __init__(self, disk: WatchedDisk, step: str, act: Callable[[], None]) -> None:
        self._disk, self._step, self._act = disk, step, act
        disk.at = self._at

    def _at(self, step: str, path: Path) -> None:
        if step == self._step:
            self._disk.at = lambda step, path: None
            self._act()


class Stage(Protocol):
    """One storage, and sinks that write to it as those of several members do."""

    def sink(self) -> Sink:
        """Another member's."""

    def hold(self, sink: Sink) -> Hold:
        """The sink's next ``append`` stops where only one step is missing until its batch is kept."""

    def fail(self, sink: Sink) -> None:
        """The sink's next ``append`` keeps nothing, and raises ``SinkError``."""

    def lose(self, sink: Sink) -> None:
        """The sink's next ``append`` keeps the batch, and raises ``SinkError`` all the same."""

    def kept(self, place: Place) -> list[Line]:
        """All that is kept of the partition, in order."""
