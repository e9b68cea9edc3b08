"""The base that every folder of the core builds on: the desk, the state behind the desk, and the limits.

Owns: one endpoint's desk, desk state and limits. Must never: know about any part.
"""

from __future__ import annotations

from collections import deque

from .counters import Counters
from .dedup.inflight import InFlight
from .desk import Desk, Job
from .effects import Act
from .limits import SIZES, Limits, Sizes
from .links.calls import Calls
from .metrics import HISTOGRAM, Metric, counters, counters_by, gauge, histogram
from .model import Endpoint, Shape
from .stores import StoreCalls


class Base:
    """The base of one endpoint."""

    def __init__(
        self,
        me: Endpoint,
        now: float,
        unix_s: float = 0.0,
        limits: Limits | None = None,
        sizes: Sizes = SIZES,
        shape: Shape | None = None,
    ) -> None:
        """Make the base.

        Args:
            me: this endpoint, as its peers know it.
            now: monotonic seconds.
            unix_s: Unix time in seconds, at ``now``.
            limits: the limits on memory. ``None`` for the defaults.
            sizes: the batch sizes.
            shape: how to use the store. ``None`` for the defaults.
        """
        self.me = me
        self.limits = limits or Limits()
        self.sizes = sizes
        self.shape = shape or Shape()
        self.counters = Counters()
        self.calls = Calls()
        self.stores = StoreCalls(self.counters.counts)
        self.jobs: deque[Job] = deque()
        self.acts: list[Act] = []
        self.inflight = InFlight(self.limits.inflight_messages, self.limits.inflight_bytes)
        self.desk = Desk(now, self.counters, self.calls, self.stores, self.jobs, self.acts, unix_s)

    @property
    def idle(self) -> bool:
        """Return whether all jobs, calls and messages are finished."""
        return not (self.jobs or self.stores or self.calls or self.inflight.messages)

    def metrics(self) -> list[Metric]:
        """Return the metrics that belong to no single part."""
        counters_, stores, desk = self.counters, self.stores, self.desk
        counters_.observe()
        commands = [
            ((kind, result), float(count))
            for kind, tally in counters_.commands.items()
            for result, count in tally.items()
        ]
        operations = [(names, float(count)) for names, count in stores.results.items()]
        times = tuple(((operation,), times) for operation, times in sorted(stores.times.items()))
        return [
            counters("commands", "Clients' commands that have ended, by outcome", ("command", "result"), commands),
            counters_by("drops", "Everything dropped, by reason", "reason", counters_.drops),
            counters_by("errors", "Error replies, and errors of links, by code", "code", counters_.errors),
            gauge("publishes_in_flight", "Publishes whose outcome is not known yet", self.inflight.messages),
            gauge("publishes_in_flight_bytes", "Payload bytes of publishes in flight", self.inflight.bytes),
            desk.counted("not_home", "Peers' requests refused because this endpoint is not the slot's home"),
            desk.counted("store_calls", "Batched calls to the store"),
            desk.counted("store_errors", "Calls to the store that failed"),
            counters("store_operations", "Calls to the store that have ended", ("operation", "result"), operations),
            Metric(HISTOGRAM, "store", "Durations of the batched calls to the store", ("operation",), (), times),
            histogram(
                "delivery",
                "Time from the receipt of a message by this endpoint to its write to a subscriber's socket",
                counters_.delivery_times,
            ),
            histogram(
                "publish",
                "Time from a client's publish until all endpoints with subscribers have the message. A publish that "
                "had to wait counts only with ack or retention",
                counters_.publish_times,
            ),
        ]
