"""The base of every folder of the core: the desk, the state behind it, and the bounds.

Owns: one endpoint's instances of these. Must never: know a part.
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
    """One endpoint's base."""

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
            limits: the bounds on memory; ``None``: the defaults.
            sizes: the batch sizes.
            shape: how to use the store; ``None``: the defaults.
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
        """Return whether nothing is under way: no job, call or message."""
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
            counters("commands", "Commands of clients whose outcome is known", ("command", "result"), commands),
            counters_by("drops", "Everything dropped, by reason", "reason", counters_.drops),
            counters_by("errors", "Error replies, and errors of links, by code", "code", counters_.errors),
            gauge("publishes_in_flight", "Publishes whose outcome is not known yet", self.inflight.messages),
            gauge("publishes_in_flight_bytes", "Bytes of their payloads", self.inflight.bytes),
            desk.counted("not_home", "Requests of peers refused because the slot is not this endpoint's"),
            desk.counted("store_calls", "Calls to the store (batches)"),
            desk.counted("store_errors", "Calls to the store that failed"),
            counters("store_operations", "Calls to the store that have ended", ("operation", "result"), operations),
            Metric(HISTOGRAM, "store", "Calls to the store (batches)", ("operation",), (), times),
            histogram(
                "delivery",
                "From the receipt of a message here to its write to a subscriber's socket",
                counters_.delivery_times,
            ),
            histogram(
                "publish",
                "From a client's publish to its outcome: all endpoints with subscribers have it",
                counters_.publish_times,
            ),
        ]
