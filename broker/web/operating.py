"""The figures that an endpoint gives operators over the protocol, in reply to `endpoints` (SPEC section 2.4).

Owns: the choice of these figures. Must never: change anything. (``metrics`` has all figures, for Prometheus.)
"""

from __future__ import annotations

import functools
import os
import resource
import time
from typing import Any

from ..core.bounds.rules import BANDS
from ..shell.status import Status


def figures(status: Status) -> dict[str, Any]:
    """Return the endpoint's state, and its counts since its start."""
    router = status.router
    counters = router.counters
    counters.observe()
    counts = counters.counts
    holding = router.layers.bounds.holding
    usage = resource.getrusage(resource.RUSAGE_SELF)
    reasons = status.not_ready()
    return {
        "ready": not reasons,
        "reasons": reasons,
        "uptime_s": round(time.time() - status.started_unix_s, 3),
        "figures": {
            "connections": len(router.sessions.connections),
            "clients": len(router.hub.bindings),
            "publishes_received": counts["publishes_received"],
            "messages_delivered": counts["messages_delivered"],
            "duplicates_dropped": counts["duplicates_dropped"],
            "drops": sum(counters.drops.values()),
            "errors": sum(counters.errors.values()),
            "publishes_in_flight": router.inflight.messages,
            "rss_bytes": resident_bytes(),
            "cpu_s": round(usage.ru_utime + usage.ru_stime, 3),
            "delivery_buckets": counters.delivery_times.buckets(),
            "bounds_clients": holding.clients,
            "bounds_level": holding.level,
            "bounds_held": holding.held,
            "bounds_exceeded": sum(holding.exceeded),
            **{f"bounds_conflated_{band}": count for band, count in zip(BANDS, holding.conflated, strict=True)},
        },
    }


@functools.cache
def _statm() -> int:
    """Return the descriptor of ``/proc/self/statm``. The file is opened only once, because all descriptors may be in
    use later, when the figure matters."""
    return os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)


def resident_bytes() -> int:
    """Return the resident memory of this process."""
    return int(os.pread(_statm(), 256, 0).split()[1]) * resource.getpagesize()
