"""Waiting that is written once, for callers with an event loop and for callers without.

Owns: how long to pause between two looks at what can only be looked at. Must never: wait without an end.

What waits is a generator. It looks, yields how many seconds to pause, looks again, and returns what it has found.
``blocking`` runs it where nothing else has to go on meanwhile, ``awaited`` on an event loop.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Generator, Iterator
from typing import TypeVar

T = TypeVar("T")

#: Seconds to pause before the next look, again and again; returns what was waited for.
Steps = Generator[float, None, T]

#: The first pause, in seconds: a process that was killed is gone as soon.
PAUSE_S_MIN = 0.001
#: The longest pause, in seconds: a start takes a second, and fifty looks in it cost nothing.
PAUSE_S_MAX = 0.02


def pauses(within_s: float) -> Iterator[float]:
    """Pauses that take so many seconds together, each twice the one before up to ``PAUSE_S_MAX``. Whoever looks before
    each of them looks at once, and once more when the time is over."""
    deadline = time.monotonic() + within_s
    pause_s = PAUSE_S_MIN
    while (left_s := deadline - time.monotonic()) > 0:
        yield min(pause_s, left_s)
        pause_s = min(2 * pause_s, PAUSE_S_MAX)
    yield 0.0


def blocking(steps: Steps[T]) -> T:
    """Run them in this thread."""
    try:
        while True:
            time.sleep(next(steps))
    except StopIteration as end:
        found: T = end.value
        return found
    finally:
        steps.close()  # when a signal has interrupted the pause: what has begun is brought to its end


async def awaited(steps: Steps[T]) -> T:
    """Run them beside everything else on this event loop."""
    try:
        while True:  # noqa: ASYNC110 - of what another process does, nothing tells this loop
            await asyncio.sleep(next(steps))
    except StopIteration as end:
        found: T = end.value
        return found
    finally:
        steps.close()  # when the caller was cancelled
