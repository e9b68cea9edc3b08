"""The calls to the store that have no result yet.

Owns: their numbers, their time-outs, and their durations. Must never: know what a call asks for.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Any, Final

from ingeborg.protocol.errors import ProtocolError

from .effects import StoreCall
from .histogram import Histogram
from .model import TooManyFilters

#: A store call without an answer after this many seconds counts as failed. The stores' own time-outs are shorter.
STORE_TIMEOUT_S: Final = 5.5

StoreDone = Callable[[Any, Any, Exception | None], None]
"""The callback that a part passes with a store call. The callback gets (context, result, error)."""


FAILED: Final = "The store could not carry out the command: try again later. The endpoint's log has the reason"
"""The error text for clients. It omits the reason, which can name the operator's paths and machines."""


def unavailable(error: Exception) -> ProtocolError:
    """Return the error for a client whose command the store could not carry out. ``error``: the store's error. If it is
    already an error for clients, return it unchanged."""
    return error if isinstance(error, ProtocolError) else ProtocolError("store_unavailable", FAILED)


class StoreCalls:
    """One endpoint's store calls. ``counts``: the counter to which it adds ``store_errors``."""

    def __init__(self, counts: Counter[str]) -> None:
        self._counts = counts
        self._number = 0
        self._calls: dict[int, tuple[float, str, StoreDone, Any]] = {}
        self.made: list[StoreCall] = []  # the calls made in this turn
        self.results: Counter[tuple[str, str]] = Counter()  # indexed by operation and result
        self.times: defaultdict[str, Histogram] = defaultdict(Histogram)  # indexed by operation

    def __len__(self) -> int:
        """Return the number of calls that have no result yet."""
        return len(self._calls)

    def make(self, operation: str, arguments: tuple[Any, ...], done: StoreDone, context: Any, now: float) -> None:
        """Make a call at the end of the turn. ``done`` gets the outcome."""
        self._number += 1
        self._calls[self._number] = (now + STORE_TIMEOUT_S, operation, done, context)
        self.made.append(StoreCall(self._number, operation, arguments))

    def take(self) -> list[StoreCall]:
        """Return the calls of this turn, and start a new list."""
        made, self.made = self.made, []
        return made

    def ended(self, number: int, result: Any, error: Exception | None, now: float) -> None:
        """Pass a call's outcome to its callback, unless the outcome comes after the call's time-out."""
        call = self._calls.pop(number, None)
        if call is None:
            return
        deadline, operation, done, context = call
        # The store has not failed if the caller passed a bad cursor, or if a client has too many filters.
        failed = error is not None and not isinstance(error, ValueError | TooManyFilters)
        if failed:
            self._counts["store_errors"] += 1
        self.results[(operation, "error" if failed else "success")] += 1
        self.times[operation].observe(now - (deadline - STORE_TIMEOUT_S))
        done(context, result, error)

    def tick(self, now: float) -> None:
        """Fail the overdue calls."""
        while self._calls:
            number, (deadline, *_) = next(iter(self._calls.items()))
            if deadline > now:
                break
            self.ended(number, None, TimeoutError("the store did not answer in time"), now)
