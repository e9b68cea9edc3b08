"""Run a module as `python -m` does, but with a clock that can be slowed down, and without any randomness.

    python fixed.py SEED MODULE [ARGUMENT …]

Valgrind makes a program some fifty times as slow. An endpoint would spend far more of its time in ticks and other
timers than it ever does without it. Slices of a millisecond would end after fewer messages. And the machine's speed
would decide how much of either falls into a run. So this process has a slow clock, for `time.monotonic` and for
uvloop's timers: one second takes ``AT_REST`` seconds, and ``AT_WORK`` between a SIGUSR1 and a SIGUSR2. The clock would
also decide when the collector of cycles runs, so it never runs. An endpoint draws its name for this life at random;
here it comes from SEED.

`bench drift` starts the endpoints of two trees by this one file, so it imports nothing of ours.
"""

from __future__ import annotations

import gc
import random
import runpy
import secrets
import signal
import sys
import time
from collections.abc import Callable
from contextvars import Context
from typing import Any

import uvloop

#: Ticks come when they are due, also on a busy machine.
AT_REST = 4.0
#: A tick, due after a tenth of a second, hardly ever comes while messages are counted.
AT_WORK = 1_000.0


class Clock:
    """Monotonic seconds. ``read`` takes the place of `time.monotonic`. A change of speed sets all ``timers`` again."""

    def __init__(self) -> None:
        self.timers: dict[Timer, None] = {}
        self.slowness = AT_REST
        self._real = time.monotonic
        self._began = self._since = self._real()

    def read(self) -> float:
        """Now."""
        return self._began + (self._real() - self._since) / self.slowness

    def turn(self, slowness: float) -> None:
        """Slow the clock: from now on, one second of it takes ``slowness`` real seconds."""
        self._began, self._since = self.read(), self._real()
        self.slowness = slowness
        for timer in list(self.timers):
            timer.set()


clock = Clock()


class Timer:
    """A timer by that clock, as ``asyncio.TimerHandle``."""

    def __init__(
        self, loop: Loop, when: float, callback: Callable[..., object], args: tuple[Any, ...], context: Context | None
    ) -> None:
        self._loop, self._when, self._callback, self._args, self._context = loop, when, callback, args, context
        self._handle: Any = None
        self.set()

    def set(self) -> None:
        """Set it, or set it again, by the present speed of the clock."""
        if self._handle is not None:
            self._handle.cancel()
        clock.timers[self] = None
        delay = max(self._when - clock.read(), 0.0) * clock.slowness
        self._handle = self._loop.call_really_later(delay, self._due, self._context)

    def _due(self) -> None:
        clock.timers.pop(self, None)
        self._callback(*self._args)

    def cancel(self) -> None:
        """See ``asyncio.TimerHandle``."""
        clock.timers.pop(self, None)
        self._handle.cancel()

    def cancelled(self) -> bool:
        """See ``asyncio.TimerHandle``."""
        return bool(self._handle.cancelled())

    def when(self) -> float:
        """See ``asyncio.TimerHandle``."""
        return self._when


class Loop(uvloop.Loop):
    """A loop whose timers go by that clock. Its ``call_at`` uses these two."""

    def time(self) -> float:
        """Now."""
        return clock.read()

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> Timer:
        """See ``asyncio.AbstractEventLoop``."""
        return Timer(self, clock.read() + delay, callback, args, context)

    def call_really_later(self, delay: float, callback: Callable[[], object], context: Context | None) -> Any:
        """By the machine's own clock."""
        return super().call_later(delay, callback, context=context)


def _nothing(generation: int = 2) -> int:
    return 0


def main() -> None:
    """Remove all randomness, and run the module."""
    gc.disable()
    gc.collect = _nothing  # an endpoint chooses its own times
    draw = random.Random(sys.argv[1])
    secrets.token_hex = lambda nbytes=32: draw.randbytes(nbytes or 32).hex()
    time.monotonic = clock.read
    uvloop.new_event_loop = Loop
    signal.signal(signal.SIGUSR1, lambda number, frame: clock.turn(AT_WORK))
    signal.signal(signal.SIGUSR2, lambda number, frame: clock.turn(AT_REST))
    sys.argv = sys.argv[2:]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
