"""Shows the progress of a Spark job on standard error: the step, its finished parts, and the tasks that Spark has done.

Owns: the wording, and the thread that asks Spark for its tasks. Must never: know what a job computes, or fail a job.

`local_session` opens the display, so that every job that runs in it has one. On a terminal, the display is one line
that is rewritten. Otherwise, each step prints a line when it begins, and another line every few seconds. A job names
its steps with `step` and `run`. Without a display, `step` and `run` print nothing. This is so under spark-submit, where
Spark has its own display.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Final, TextIO, TypeVar

from py4j.protocol import Py4JError
from pyspark import StatusTracker
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

LOOK_S: Final = 0.25
"""Seconds between two questions to Spark. An answer takes a few milliseconds."""

LINE_S: Final = 5.0
"""Seconds between two lines of a step, if the output is not a terminal."""

Made = TypeVar("Made")

_displays: list[Display] = []
"""The display of the open session, if there is one."""


class Display:
    """The display of one session. Its thread starts with it and ends with `close`."""

    def __init__(self, out: TextIO, environ: Mapping[str, str] = os.environ) -> None:
        self._out = out
        self._lock = threading.Lock()
        self.tracker: StatusTracker | None = None
        self._bar = _bar(out) if _is_terminal(out, environ) else None
        self._row = self._bar.add_task("", counts="") if self._bar else None
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._look, name="progress", daemon=True)
        self._name, self._parts, self._done = "", 0, 0
        self._began_s = 0.0
        self._said_s: float | None = None
        """When the step's last line was printed."""
        self._stages: dict[int, tuple[int, int]] = {}
        if self._bar:
            self._bar.start()
        self._thread.start()

    def step(self, name: str, parts: int = 0) -> None:
        """Begin a step, which may have several parts."""
        with self._lock:
            self._name, self._parts, self._done, self._stages = name, parts, 0, {}
            self._began_s, self._said_s = time.monotonic(), None

    def part(self) -> None:
        """Count a part of the step as finished."""
        with self._lock:
            self._done += 1

    def close(self) -> None:
        """Remove the line from the terminal, and end the thread."""
        self._closed.set()
        self._thread.join(1.0)
        if self._bar:
            self._bar.stop()

    def _look(self) -> None:
        while not self._closed.wait(LOOK_S):
            if tracker := self.tracker:
                try:
                    self._count(tracker)
                except (Py4JError, ConnectionError):  # Spark ends or has failed; the job itself reports a failure
                    self.tracker = None
            self._show()

    def _count(self, tracker: StatusTracker) -> None:
        stages = self._stages  # a new step replaces the list, so that it does not get the old step's stages
        active = {number: tracker.getStageInfo(number) for number in tracker.getActiveStageIds()}
        for number, stage in active.items():
            if stage is not None:
                stages[number] = stage.numCompletedTasks, stage.numTasks
        for number in stages.keys() - active.keys():
            stages[number] = (stages[number][1],) * 2

    def _show(self) -> None:
        with self._lock:
            if not self._name:
                return
            tasks = [sum(column) for column in zip(*self._stages.values(), strict=True)]
            counts = [f"{self._done} of {self._parts}"] if self._parts else []
            counts += ["{} of {} tasks".format(*tasks)] if tasks else []
            is_new, now = self._said_s is None, time.monotonic()
            if self._bar is not None and self._row is not None:
                if is_new:
                    self._bar.reset(self._row, description=self._name, counts="")
                done, of = (self._done, self._parts) if self._parts else tasks or (0, None)
                self._bar.update(self._row, completed=done, total=of, counts=", ".join(counts))
            elif self._said_s is None or now - self._said_s >= LINE_S:
                counts.append(f"{now - self._began_s:.0f} s")
                print(f"{self._name} …" if is_new else f"{self._name}: {', '.join(counts)}", file=self._out, flush=True)
            else:
                return
            self._said_s = now


@contextmanager
def shown() -> Iterator[None]:
    """Show the progress on standard error during the block."""
    display = Display(sys.stderr)
    _displays.append(display)
    try:
        yield
    finally:
        _displays.remove(display)
        display.close()


def step(name: str, parts: int = 0) -> None:
    """Begin a step of the job."""
    for display in _displays:
        display.step(name, parts)


def watch(tracker: StatusTracker | None) -> None:
    """Count the tasks of this Spark context from now on. With ``None``, count no tasks."""
    for display in _displays:
        display.tracker = tracker


def run(name: str, parts: Sequence[Callable[[], Made]], at_once: int) -> list[Made]:
    """Run the parts of a step in `at_once` threads, and return their results in the order of the parts."""
    step(name, len(parts))

    def one(part: Callable[[], Made]) -> Made:
        made = part()
        for display in _displays:
            display.part()
        return made

    with ThreadPoolExecutor(at_once) as pool:
        return list(pool.map(one, parts))


def _bar(out: TextIO) -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[counts]}"),
        TimeElapsedColumn(),
        console=Console(file=out, force_terminal=True, highlight=False, emoji=False),
        transient=True,
        refresh_per_second=1 / LOOK_S,
        # Other output to the terminal appears above the line. Output to files does not change.
        redirect_stdout=sys.stdout.isatty(),
        redirect_stderr=sys.stderr.isatty(),
    )


def _is_terminal(out: TextIO, environ: Mapping[str, str]) -> bool:
    term = environ.get("TERM", "dumb").lower()
    return out.isatty() and not environ.get("NO_COLOR") and term not in ("dumb", "unknown")
