"""Polling, written once for callers with an event loop and for callers without.

Owns: the pauses between two checks of a state that sends no event. Must never: wait without an end.

A wait is a generator. It checks, yields the seconds to pause, checks again, and returns its result. ``blocking`` runs
it in a thread that has nothing else to do meanwhile, ``awaited`` on an event loop.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Generator, Iterator
from typing import TypeVar

T = TypeVar("T")

#: Repeatedly yields the seconds to pause before the next check; returns the result of the wait.
Steps = Generator[float, None, T]

#: The first pause, in seconds: a killed process is gone within that time.
PAUSE_S_MIN = 0.001
#: The longest pause, in seconds: a start takes a second, and fifty checks in that time cost nothing.
PAUSE_S_MAX = 0.02


def pauses(within_s: float) -> Iterator[float]:
    """Yield pauses that add up to this time, each twice the one before up to ``PAUSE_S_MAX``. A caller that checks
    before each pause checks at once, and again when the time is over."""
    deadline = time.monotonic() + within_s
    pause_s = PAUSE_S_MIN
    while (left_s := deadline - time.monotonic()) > 0:
        yield min(pause_s, left_s)
        pause_s = min(2 * pause_s, PAUSE_S_MAX)
    yield 0.0


def blocking(steps: Steps[T]) -> T:
    """Run the steps in this thread."""
    try:
        while True:
            time.sleep(next(steps))
    except StopIteration as end:
        found: T = end.value
        return found
    finally:
        steps.close()  # after a signal interrupted the pause: finish what has begun


async def awaited(steps: Steps[T]) -> T:
    """Run the steps concurrently on this event loop."""
    try:
        while True:  # noqa: ASYNC110 - no event reports another process's state to this loop
            await asyncio.sleep(next(steps))
    except StopIteration as end:
        found: T = end.value
        return found
    finally:
        steps.close()  # when the caller was cancelled
