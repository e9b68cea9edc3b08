"""Threads that advance step by step on command: a test can write down and repeat interleavings.

Owns: the baton, which one thread has at a time. Must never: choose the next thread.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any, TypeVar

from .stages import PATIENCE_S, WatchedDisk

T = TypeVar("T")


class KilledError(BaseException):
    """The thread's process was killed at this step."""


class Call:
    """The steps of one thread. It begins stopped."""

    def __init__(self) -> None:
        self._stopped = threading.Semaphore(0)
        self._released = threading.Semaphore(0)
        self._is_killed = False
        self.is_over = False

    def step(self) -> None:
        """Stop the thread here until it is released. Raises ``KilledError`` after a kill, at every later step as
        well."""
        if not self._is_killed:
            self._stopped.release()
            assert self._released.acquire(timeout=PATIENCE_S), "nobody has released it"
        if self._is_killed:
            raise KilledError

    def end(self) -> None:
        """Report from the thread that it has no more steps."""
        self.is_over = True
        self._stopped.release()

    def arrive(self) -> None:
        """Wait until the thread stops or ends."""
        assert self._stopped.acquire(timeout=PATIENCE_S), "the thread does not stop"

    def go(self, steps: int = 1_000_000) -> None:
        """Let the thread run this many steps, or the remaining ones."""
        while steps > 0 and not self.is_over:
            steps -= 1
            self._released.release()
            self.arrive()

    def kill(self) -> None:
        """Kill the thread: it does nothing more."""
        self._is_killed = True
        self.go()


class SteppedThreads(Executor):
    """Runs each call in its own thread. ``begun``: the calls, the newest last. ``disk``: the disk whose steps with
    these names count."""

    def __init__(self, steps: Collection[str]) -> None:
        self.begun: list[Call] = []
        self._steps = steps
        self._own = threading.local()
        self.disk = WatchedDisk(self._step)

    def _step(self, step: str, path: Path) -> None:
        if step in self._steps:
            self._own.call.step()

    def submit(self, work: Callable[..., T], /, *arguments: Any, **named: Any) -> Future[T]:
        """Begin a call, and wait for its first stop."""
        future: Future[T] = Future()
        future.set_running_or_notify_cancel()
        call = Call()

        def run() -> None:
            self._own.call = call
            try:
                future.set_result(work(*arguments, **named))
            except BaseException as error:
                future.set_exception(error)
            call.end()

        threading.Thread(target=run, daemon=True).start()
        self.begun.append(call)
        call.arrive()
        return future
