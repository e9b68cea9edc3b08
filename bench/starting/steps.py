"""Polling, with the same code for callers with and without an event loop.

Owns: the pauses between two checks of a state whose changes cause no event. Must never: wait without a limit.

A wait is a generator. It checks, yields the seconds to pause, checks again, and returns its result. ``blocking`` runs
it in a thread, which it blocks, and ``awaited`` runs it on an event loop.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Generator, Iterator
from typing import TypeVar

T = TypeVar("T")

#: A wait. It yields the seconds to pause before each further check, and returns the result.
Steps = Generator[float, None, T]

#: The first pause, in seconds. A killed process is gone within this time.
PAUSE_S_MIN = 0.001
#: The longest pause, in seconds. A start takes a second, and fifty checks in a second cost almost nothing.
PAUSE_S_MAX = 0.02


def pauses(within_s: float) -> Iterator[float]:
    """Yield pauses that add up to this time. Each is twice as long as the previous pause, up to ``PAUSE_S_MAX``. A
    caller that checks before each pause also checks at the beginning and when the time is over."""
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
        steps.close()  # runs the cleanup of the steps if a signal interrupted the pause


async def awaited(steps: Steps[T]) -> T:
    """Run the steps concurrently on this event loop."""
    try:
        while True:  # noqa: ASYNC110 - no event reports another process's state to this loop
            await asyncio.sleep(next(steps))
    except StopIteration as end:
        found: T = end.value
        return found
    finally:
        steps.close()  # runs the cleanup of the steps if the caller was cancelled
