"""How late this machine is: what a bound in seconds has to forgive, so that it can be the product's own otherwise.

Owns: a thread that sleeps a little, again and again, and how much longer than that it slept.
"""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Self

from .processes import EndpointProcess

#: Between two looks at the clock, in seconds; and by how much more is nothing to speak of.
SLEEP_S, USUAL_S = 0.05, 0.01

#: Tries of a test before a machine that stalls is too much for it.
TRIES = 3


class Stalls:
    """Use as ``with Stalls() as stalls``. ``seconds``: late in all so far; ``longest_s``: at once."""

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
    """Of this process and of these endpoints, which have to live through it."""

    def __init__(self, *endpoints: EndpointProcess) -> None:
        super().__init__()
        self._endpoints = endpoints
        self._before: list[float] = []

    async def begin(self) -> Self:
        """What the endpoints have been late so far does not count."""
        self._before = await self._lags()
        return self

    async def so_far(self) -> float:
        """Seconds: this process's, and the most of one endpoint."""
        grown = [after - before for after, before in zip(await self._lags(), self._before, strict=True)]
        return self.seconds + max(grown)

    async def _lags(self) -> list[float]:
        return [(await endpoint.metrics())["loop_lag_seconds_sum"] for endpoint in self._endpoints]


def again_after_a_stall(
    longest_s: float,
) -> Callable[[Callable[[Path], Awaitable[None]]], Callable[[Path], Awaitable[None]]]:
    """For a test that a stall of so many seconds makes fail by design, as where a lease has to lapse of it.

    A try that fails and had none of that length has failed. Each has a directory of its own.
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
