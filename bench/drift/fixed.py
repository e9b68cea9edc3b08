"""Run a module as `python -m` does, but with a clock that can be slowed down, and without any randomness.

    python fixed.py SEED MODULE [ARGUMENT …]

Valgrind makes a program about fifty times slower. Under valgrind, an endpoint with a normal clock would spend far more
of its time in ticks and other timers. The endpoint divides some work into slices of a millisecond, and would handle
fewer messages per slice. Also, the number of ticks and slices in a run would depend on the machine's speed. So this
process has a slow clock, for `time.monotonic` and for uvloop's timers. One second of that clock takes ``AT_REST`` real
seconds, or ``AT_WORK`` real seconds between a SIGUSR1 and a SIGUSR2. The cyclic garbage collector is off, because
otherwise the clock would determine when it runs. An endpoint normally draws a random name at each start. Here, the name
is derived from SEED.

`bench drift` starts the endpoints of both trees with this file. Therefore the file imports nothing from the project.
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

#: Real seconds per second of the clock while nothing is counted. With this number, ticks run when they are due, even on
#: a busy machine.
AT_REST = 4.0
#: Real seconds per second of the clock while messages are counted. With this number, a tick hardly ever runs during
#: that time. (Ticks are due every tenth of a second of the clock.)
AT_WORK = 1_000.0


class Clock:
    """A monotonic clock in seconds. ``read`` replaces `time.monotonic`. When the speed changes, the clock sets all
    ``timers`` again."""

    def __init__(self) -> None:
        self.timers: dict[Timer, None] = {}
        self.slowness = AT_REST
        self._real = time.monotonic
        self._began = self._since = self._real()

    def read(self) -> float:
        """Return the present time of the clock."""
        return self._began + (self._real() - self._since) / self.slowness

    def turn(self, slowness: float) -> None:
        """Change the clock's speed. From now on, one second on the clock takes ``slowness`` real seconds."""
        self._began, self._since = self.read(), self._real()
        self.slowness = slowness
        for timer in list(self.timers):
            timer.set()


clock = Clock()


class Timer:
    """A timer that follows ``clock``, with the interface of ``asyncio.TimerHandle``."""

    def __init__(
        self, loop: Loop, when: float, callback: Callable[..., object], args: tuple[Any, ...], context: Context | None
    ) -> None:
        self._loop, self._when, self._callback, self._args, self._context = loop, when, callback, args, context
        self._handle: Any = None
        self.set()

    def set(self) -> None:
        """Set the timer, or set it again, according to the present speed of the clock."""
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
    """An event loop whose timers follow ``clock``. The inherited ``call_at`` uses ``time`` and ``call_later``."""

    def time(self) -> float:
        """Return the present time of the clock."""
        return clock.read()

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> Timer:
        """See ``asyncio.AbstractEventLoop``."""
        return Timer(self, clock.read() + delay, callback, args, context)

    def call_really_later(self, delay: float, callback: Callable[[], object], context: Context | None) -> Any:
        """Call back after ``delay`` seconds of real time."""
        return super().call_later(delay, callback, context=context)


def _nothing(generation: int = 2) -> int:
    return 0


def main() -> None:
    """Remove all randomness, and run the module."""
    gc.disable()
    gc.collect = _nothing  # an endpoint also calls this function itself
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
