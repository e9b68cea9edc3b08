"""The autoscaler's `/metrics`, in Prometheus' text format 0.0.4.

Owns: names, units and help texts. Must never: count anything, because the controller's parts do that.

If KEDA runs the members, its Prometheus scaler reads ``ingeborg_autoscale_wanted_members``.
"""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from ..controller import MANAGING, SYNCHRONIZING, WATCHING, Controller

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

PREFIX = "ingeborg_autoscale_"


class Metrics:
    """The metrics of one controller. ``group``: the name of the controller's group."""

    def __init__(self, group: str, controller: Controller) -> None:
        self._group = group
        self._controller = controller
        self._registry = CollectorRegistry(auto_describe=False)
        ProcessCollector(namespace="ingeborg", registry=self._registry)
        self._registry.register(self)

    def text(self) -> bytes:
        """Return the current metrics as text."""
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        """Yield the metric families for the library."""
        controller, picture = self._controller, self._controller.picture()
        gauges = {
            "ready_members": ("Members that may own queues", sum(bar.is_ready for bar in picture.bars)),
            "leaving_members": ("Members that should end", sum(bar.is_leaving for bar in picture.bars)),
            "queues": ("Existing queues", picture.queues),
            "unowned_queues": ("Queues without an owner", picture.unowned),
            "moving_queues": ("Queues between two owners", picture.moving),
            "hot_queues": ("Queues whose size exceeds a member's capacity", len(picture.hot)),
            "missing_topics": ("Topics of the group that do not exist", len(picture.missing)),
            "written_bytes_per_second": ("Bytes per second written into all queues, as measured", picture.bytes_per_s),
            "stock_bytes": ("Unread bytes in all queues", picture.stock),
            "capped": ("1 while the group needs more members than members_max", int(picture.is_capped)),
            "stale": ("1 while measurements are missing", int(picture.is_stale)),
            "term": ("The controller's term", picture.term),
        }
        if picture.state != SYNCHRONIZING:  # a scaler that reads the number now would end working members
            gauges["wanted_members"] = ("Members that the group needs, from members_min to members_max", picture.wanted)
        if picture.running is not None:
            gauges["running_members"] = ("Members that the scaler runs", picture.running)
        for name, (help, value) in gauges.items():
            yield self._family(GaugeMetricFamily, name, help, value)
        counters = {
            "decisions": ("How often the controller packed the queues", controller.sentinel.decisions),
            "moves": ("Queues that a decision gave to another member", controller.sentinel.moves),
            "forced_moves": ("Queues taken from a member that did not release them in time", controller.owners.forced),
            "repeated_orders": ("Orders to members that the controller sent again", controller.owners.repeats),
            "lost_members": ("Members that stopped reporting", controller.lost),
            "scaler_failures": ("Calls to the scaler that failed", controller.staff.failures),
            "absences": ("How often ordered members did not start in time", controller.staff.absences),
            "stale_messages": ("Messages that arrived too late to matter", controller.stale),
        }
        for name, (help, value) in counters.items():
            yield self._family(CounterMetricFamily, name, help, value)
        states = GaugeMetricFamily(
            PREFIX + "state", "1 for the controller's current state, else 0", labels=["group", "state"]
        )
        for state in (SYNCHRONIZING, WATCHING, MANAGING):
            states.add_metric([self._group, state], int(picture.state == state))
        yield states
        load = GaugeMetricFamily(
            PREFIX + "member_load_ratio", "A member's load, divided by its capacity", labels=["group", "member"]
        )
        for bar in picture.bars:
            load.add_metric([self._group, str(bar.number)], bar.load / bar.capacity)
        yield load

    def _family(
        self, kind: type[GaugeMetricFamily] | type[CounterMetricFamily], name: str, help: str, value: float
    ) -> Metric:
        family = kind(PREFIX + name, help, labels=["group"])
        family.add_metric([self._group], value)
        return family
