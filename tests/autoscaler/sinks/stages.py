"""Test stages for sinks: disks that a test watches, holds and breaks, and the interface of a contract's stage.

Owns: the shared doubles of the sinks' tests. Must never: know a step's purpose in a sink.
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

#: Longest wait in a test, in seconds; enough even on a busy machine.
PATIENCE_S = 60.0

PLACE = Place("clicks", "web", 3, 7, "m-1")
TAKEN = PLACE._replace(epoch=8, member="m-2")


def batch(first: int, end: int, step: int = 1) -> list[Record]:
    """Return records with these offsets."""
    return [Record(offset, 1_000 + offset, b"%d" % offset, b"value %d" % offset) for offset in range(first, end, step)]


def lines(place: Place, records: Sequence[Record]) -> list[Line]:
    """Return the stored form of the records."""
    return [
        Line(place.topic, place.partition, each.offset, place.epoch, place.member, each.time_ms, each.key, each.value)
        for each in records
    ]


class WatchedDisk(Disk):
    """A disk that calls ``at`` before each step, with its name and a path; ``at`` can wait or raise."""

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
    """Stops a thread at a chosen point, as if its process was stopped."""

    def __init__(self) -> None:
        self._reached = threading.Event()
        self._released = threading.Event()

    def stop(self) -> None:
        """Wait in the thread until it is released."""
        self._reached.set()
        assert self._released.wait(PATIENCE_S), "nobody has released it"

    async def reached(self) -> None:
        """Wait until the thread has stopped."""
        assert await asyncio.to_thread(self._reached.wait, PATIENCE_S), "no thread came here"

    def release(self) -> None:
        """Let the thread continue."""
        self._released.set()


class Once:
    """Runs an action once, before the next step of this name."""

    def __init__(self, disk: WatchedDisk, step: str, act: Callable[[], None]) -> None:
        self._disk, self._step, self._act = disk, step, act
        disk.at = self._at

    def _at(self, step: str, path: Path) -> None:
        if step == self._step:
            self._disk.at = lambda step, path: None
            self._act()


class Stage(Protocol):
    """One storage, and sinks that write to it like those of several members."""

    def sink(self) -> Sink:
        """Return another member's sink."""

    def hold(self, sink: Sink) -> Hold:
        """Stop the sink's next ``append`` one step before its batch is stored."""

    def fail(self, sink: Sink) -> None:
        """Make the sink's next ``append`` store nothing, and raise ``SinkError``."""

    def lose(self, sink: Sink) -> None:
        """Make the sink's next ``append`` store the batch, and still raise ``SinkError``."""

    def kept(self, place: Place) -> list[Line]:
        """Return all stored records of the partition, in order."""
