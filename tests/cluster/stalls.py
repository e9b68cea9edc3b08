"""Measures how late this machine is, so that time bounds can be the product's own plus that.

Owns: a thread that sleeps a little, repeatedly, and how much longer than that it slept.
"""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Self

from .processes import EndpointProcess

#: Interval between two looks at the clock, in seconds; and a delay that is negligible.
SLEEP_S, USUAL_S = 0.05, 0.01

#: Tries of a test before the machine's stalls fail it.
TRIES = 3


class Stalls:
    """Use as ``with Stalls() as stalls``. ``seconds``: late in total so far; ``longest_s``: at once."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.longest_s = 0.0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        asleep_at = time.monotonic()
        while not self._over.wait(SLEEP_S):
            late_s = time.monotonic() - asleep_at - SLEEP_S
            asleep_at += SLEEP_S + late_s
            if late_s > USUAL_S:
                self.seconds += late_s
                self.longest_s = max(self.longest_s, late_s)


class Lateness(Stalls):
    """The lateness of this process and of these endpoints, which have to live through it."""

    def __init__(self, *endpoints: EndpointProcess) -> None:
        super().__init__()
        self._endpoints = endpoints
        self._before: list[float] = []

    async def begin(self) -> Self:
        """Leave out the endpoints' lateness so far."""
        self._before = await self._lags()
        return self

    async def so_far(self) -> float:
        """Return this process's lateness, and the most of one endpoint, in seconds."""
        grown = [after - before for after, before in zip(await self._lags(), self._before, strict=True)]
        return self.seconds + max(grown)

    async def _lags(self) -> list[float]:
        return [(await endpoint.metrics())["loop_lag_seconds_sum"] for endpoint in self._endpoints]


def again_after_a_stall(
    longest_s: float,
) -> Callable[[Callable[[Path], Awaitable[None]]], Callable[[Path], Awaitable[None]]]:
    """Repeat a test that a stall of this many seconds makes fail by design, for example because a lease lapses.

    A failed try without such a stall counts as failed. Each try has its own directory.
    """

    def decorate(test: Callable[[Path], Awaitable[None]]) -> Callable[[Path], Awaitable[None]]:
        @functools.wraps(test)
        async def tried(tmp_path: Path) -> None:
            for number in range(TRIES):
                directory = tmp_path / f"try-{number}"
                directory.mkdir()
                with Stalls() as stalls:
                    try:
                        await test(directory)
                        return
                    except Exception:
                        if stalls.longest_s < longest_s or number == TRIES - 1:
                            raise
                print(f"this machine stalled for {stalls.longest_s:.1f} s: once more")

        return tried

    return decorate
