"""The loop around the core. The driver passes events and the time to the core, ends turns, carries out effects, calls
the store, and ticks.

Owns: when a turn ends, and that every effect reaches the part that carries it out. Must never: make decisions, or
access a socket.

A *turn* covers all events of one pass of the loop. Every event calls ``turn()``, but only the first call schedules the
end of the turn. So the driver carries out the effects of all these events with one write per connection, one frame per
link, and one call to the store for all sets, locations or listens.
"""

from __future__ import annotations

import asyncio
import logging
import math
import sys
import time
from collections.abc import Callable
from typing import Any, TypeVar

from ..core.connections.hub import Connection
from ..core.effects import Act, StoreCall
from ..core.histogram import Histogram
from ..core.model import Load, StoreError, StoreLost, Superseded, TooManyFilters, TooManyRevocations
from ..core.router import Router
from ..store.base import Store
from .logs import Sparing

log = logging.getLogger("ingeborg.endpoint")

#: Interval between two ticks of the core, in seconds: the precision of time-outs.
TICK_S = 0.1

#: Interval between two log lines that say why a store operation fails, in seconds.
SAY_S = 30.0

#: Errors that are not failures of the store. Either the caller gets the error, or the endpoint reports it and ends.
_TOLD = (ValueError, TooManyFilters, TooManyRevocations, StoreLost, Superseded)

A = TypeVar("A", bound=Act)


class Driver:
    """The driver of one endpoint.

    The driver calls ``each_tick`` with the time every ``TICK_S`` seconds. If the core fails, the driver calls
    ``on_broken``, which ends this process immediately. Without ``on_broken``, the error propagates to the loop.
    """

    def __init__(
        self,
        router: Router,
        store: Store,
        each_tick: Callable[[float], None],
        on_broken: Callable[[], None] | None = None,
    ) -> None:
        self.router = router
        self.loop_lag = Histogram()
        self._store = store
        self._each_tick = each_tick
        self._on_broken = on_broken
        self._acts: dict[type, Callable[[Any], None]] = {}
        self._write: Callable[[list[tuple[Connection, list[bytes]]]], None] = lambda writes: None
        self._send: Callable[[str, list[bytes]], None] = lambda incarnation, frames: None
        #: Operations that the store can sometimes answer without waiting.
        self._now: dict[str, Callable[..., Any]] = {
            "subscribers": store.subscribers_now,
            "locations": store.locations_now,
            "filtered": store.filtered_now,
            "subscribed": store.subscribed_now,
            "subscriptions_of": store.subscriptions_of_now,
        }
        self._saying = Sparing(SAY_S)
        self._store_tasks: set[asyncio.Task[None]] = set()
        self._turn_due = False
        self._stops = False
        self._tick_handle: asyncio.TimerHandle | None = None
        self._tick_due = time.monotonic()
        self._cpu_s = time.process_time()
        self._wake_handle: asyncio.TimerHandle | None = None
        self._wake_at = math.inf  # the time of the planned wake-up
        self._loop = asyncio.get_running_loop()

    def carry_out(self, kind: type[A], do: Callable[[A], None]) -> None:
        """Have ``do`` carry out acts of this kind."""
        self._acts[kind] = do

    def write_with(self, write: Callable[[list[tuple[Connection, list[bytes]]]], None]) -> None:
        """Have this function write to the clients' sockets."""
        self._write = write

    def send_with(self, send: Callable[[str, list[bytes]], None]) -> None:
        """Have this function write to the peers' links."""
        self._send = send

    # Time

    def start(self) -> None:
        """Start ticking."""
        if self._on_broken is not None:
            self._loop.set_exception_handler(self._unhandled)
        self._tick_due = time.monotonic()
        self._tick()

    async def stop(self) -> None:
        """Stop ticking, and give the store a second to finish its pending calls."""
        self._stops = True
        for handle in (self._tick_handle, self._wake_handle):
            if handle is not None:
                handle.cancel()
        if self._store_tasks:
            await asyncio.wait(self._store_tasks, timeout=1.0)

    def _tick(self) -> None:
        now = time.monotonic()
        lag_s = max(now - self._tick_due, 0.0)
        self.loop_lag.observe(lag_s)
        cpu_s, self._cpu_s = self._cpu_s, time.process_time()
        passed_s = lag_s + TICK_S
        self._tick_due = now + TICK_S
        self._tick_handle = self._loop.call_later(TICK_S, self._tick)
        try:
            self.router.tick(now, time.time(), Load((self._cpu_s - cpu_s) / passed_s, lag_s))
        except Exception:
            self.failed("a tick")
        self._each_tick(now)
        self.turn()

    # Turns

    def turn(self) -> None:
        """Schedule the end of the turn, after this pass of the loop, because something has happened."""
        if not self._turn_due:
            self._turn_due = True
            self._loop.call_soon(self._end_turn)

    def _end_turn(self) -> None:
        self._turn_due = False
        try:
            calls = self._asked()
            effects = self.router.flush(time.monotonic())
        except Exception:
            self.failed("the end of a turn")
            return
        for call in (*calls, *effects.store):
            task = self._loop.create_task(self._call_store(call))
            self._store_tasks.add(task)
            task.add_done_callback(self._store_tasks.discard)
        for incarnation, frames in effects.links:
            self._send(incarnation, frames)
        if effects.write:
            self._write(effects.write)
            self.router.written(time.monotonic())
        for act in effects.acts:
            try:
                self._acts[type(act)](act)
            except Exception:  # continue with the other acts: nothing would repeat a lost `PauseOrResume`
                self.failed(f"a {type(act).__name__}")
        if effects.more:
            self._loop.call_soon(self._work)
        if effects.wake_at is not None and effects.wake_at != self._wake_at:
            self._wake_later(effects.wake_at)

    def _wake_later(self, at: float) -> None:
        """End a turn at that time, in monotonic seconds."""
        if self._wake_handle is not None:
            self._wake_handle.cancel()
        self._wake_at = at
        self._wake_handle = self._loop.call_later(max(at - time.monotonic(), 0.0), self._wake)

    def _wake(self) -> None:
        self._wake_handle, self._wake_at = None, math.inf
        self.turn()

    def _asked(self) -> list[StoreCall]:
        """Answer this turn's questions that the store can answer immediately. Return the other store calls, which have
        to wait."""
        router, waiting = self.router, []
        while calls := router.asks(time.monotonic()):
            for call in calls:
                read = self._now.get(call.operation)
                found, failure = None, None
                if read is not None:
                    try:
                        found = read(*call.arguments)
                    except Exception as error:
                        failure = self._store_failure(call, error)
                if found is None and failure is None:
                    waiting.append(call)
                else:
                    router.stored(call.number, found, failure, time.monotonic())
        return waiting

    def _work(self) -> None:
        try:
            self.router.work(time.monotonic())
        except Exception:
            self.failed("a slice of work")
        self.turn()

    async def _call_store(self, call: StoreCall) -> None:
        result: Any = None
        failure: Exception | None = None
        try:
            result = await getattr(self._store, call.operation)(*call.arguments)
        except Exception as error:
            failure = self._store_failure(call, error)
        try:
            self.router.stored(call.number, result, failure, time.monotonic())
        except Exception:
            self.failed(f"the answer to {call.operation}")
        self.turn()

    def _store_failure(self, call: StoreCall, error: Exception) -> Exception:
        """Return the error for the router, and log its reason, because clients do not learn it."""
        if isinstance(error, StoreError) and not isinstance(error, _TOLD):
            if not (error.is_logged or self._stops) and self._saying.is_due(call.operation):
                log.warning("the store failed in %s: %s", call.operation, error)
        elif not isinstance(error, _TOLD):  # a bug of ours
            log.error("the store failed in %s", call.operation, exc_info=error)
        return error

    def failed(self, where: str, **ids: Any) -> None:
        """Handle the current exception, which is a bug of ours. An exception in the core ends the endpoint, because the
        core may hold half a change. After any other exception the endpoint continues; it logs and counts the failure,
        and the event is lost."""
        self.router.counters.counts["turns_failed"] += 1
        error = sys.exception()
        assert error is not None
        if not _is_of_the_core(error):
            log.exception("the handling of %s failed", where, extra=ids)
        elif self._on_broken is None:
            raise error
        else:
            self._end(self._on_broken, error, where, ids)

    def _unhandled(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Handle an error that reached the loop."""
        error = context.get("exception")
        if isinstance(error, Exception) and self._on_broken is not None and _is_of_the_core(error):
            self._end(self._on_broken, error, "an event", {})
        else:
            loop.default_exception_handler(context)

    def _end(self, on_broken: Callable[[], None], error: BaseException, where: str, ids: dict[str, Any]) -> None:
        text = "the core failed at %s, and may hold half a change: ending immediately"
        log.critical(text, where, exc_info=error, extra=ids)
        on_broken()


def _is_of_the_core(error: BaseException) -> bool:
    """Return whether the error has passed through a function of the core."""
    trace = error.__traceback__
    while trace is not None:
        if "/broker/core/" in trace.tb_frame.f_code.co_filename:
            return True
        trace = trace.tb_next
    return False
