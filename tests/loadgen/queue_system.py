"""A simulated system under load, of known capacity, for tests of the rate controller.

Owns: a queue with one server in simulated time. Must never: look at a clock.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable

from ingeborg.loadgen.coordinator.controller import Seen, Step

#: Deliveries that each publish causes.
FANOUT = 5
TICK_S = 0.005
#: Every delivery takes this long, even if nobody waits.
BASE_S = 0.001


class System:
    """A queue that serves ``capacity()`` publishes per second, first come first served, by ticks of simulated time.

    The other arguments bend it: ``extra_s(rate)`` is added to every latency, ``lose(rate)`` is the share of publishes
    that vanish, ``sender_per_s`` is the most that the generator can send, ``stalled(now)`` says when it serves nothing,
    ``errors(rate)`` is the share of publishes that fail. With ``total_backlog``, the reported backlog counts what
    earlier steps left (and lost), and the latencies are those of all deliveries in the step; otherwise both cover this
    step's own publishes.
    """

    def __init__(
        self,
        capacity: float | Callable[[System], float],
        *,
        extra_s: Callable[[float], float] = lambda rate: 0.0,
        lose: Callable[[float], float] = lambda rate: 0.0,
        sender_per_s: float = math.inf,
        stalled: Callable[[float], bool] = lambda now: False,
        errors: Callable[[float], float] = lambda rate: 0.0,
        total_backlog: bool = True,
    ) -> None:
        self._capacity = capacity if callable(capacity) else lambda system: capacity
        self._extra_s = extra_s
        self._lose = lose
        self._sender_per_s = sender_per_s
        self._stalled = stalled
        self._errors = errors
        self._total_backlog = total_backlog
        self.now = 0.0
        self.rate = 0.0
        self.waiting = 0
        self._queue: deque[tuple[float, int]] = deque()  # (intended time, publishes)
        self._tokens = 0.0
        self._expected = self._delivered = self._older = 0

    def run(self, step: Step) -> Seen:
        self.rate = step.rate_per_s
        began = self.now
        ticks = round(step.duration_s / TICK_S)
        sent = vanished = expected = 0
        latencies: list[tuple[float, int]] = []
        for tick in range(1, ticks + 1):
            due = math.ceil(step.rate_per_s * tick * TICK_S - 1e-9)
            could = int(self._sender_per_s * tick * TICK_S) if math.isfinite(self._sender_per_s) else due
            count = min(due, could) - sent
            if count:
                intended = began + sent / step.rate_per_s
                sent += count
                expected += count * FANOUT
                lost = int(sent * self._lose(step.rate_per_s)) - vanished
                vanished += lost
                if count > lost:
                    self._queue.append((intended, count - lost))
                    self.waiting += count - lost
            self.now = began + tick * TICK_S
            self._serve(began, latencies)
        delivered = FANOUT * sum(count for _, count in latencies)
        self._expected += expected
        self._delivered += delivered + FANOUT * self._older
        self._older = 0
        latencies.sort()
        lag_s = max(step.rate_per_s * step.duration_s - sent - 1, 0) / step.rate_per_s
        return Seen(
            duration_s=step.duration_s,
            sent=sent,
            expected=expected,
            delivered=delivered,
            p50_ns=_percentile_ns(latencies, 0.50),
            p99_ns=_percentile_ns(latencies, 0.99),
            max_ns=_percentile_ns(latencies, 1.0),
            backlog=self._expected - self._delivered if self._total_backlog else expected - delivered,
            lag_ns=lag_s * 1e9,
            errors=int(sent * self._errors(step.rate_per_s)),
        )

    def _serve(self, began: float, latencies: list[tuple[float, int]]) -> None:
        capacity = self._capacity(self)
        if self._stalled(self.now):
            return
        self._tokens += capacity * TICK_S
        while self._queue and self._tokens >= 1:
            intended, count = self._queue.popleft()
            served = min(count, int(self._tokens))
            self._tokens -= served
            self.waiting -= served
            if served < count:
                self._queue.appendleft((intended, count - served))
            if intended < began - 1e-9 and not self._total_backlog:
                self._older += served
            else:
                latencies.append((self.now - intended + BASE_S + self._extra_s(self.rate), served))
        if not self._queue:
            self._tokens = min(self._tokens, 1.0)  # unused tokens expire


def _percentile_ns(latencies: list[tuple[float, int]], share: float) -> float | None:
    wanted = share * sum(count for _, count in latencies)
    for latency_s, count in latencies:
        wanted -= count
        if wanted <= 1e-9:
            return latency_s * 1e9
    return None
