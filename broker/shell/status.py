"""What an endpoint knows of itself, for those who ask: ready or not, and what it counts beside the core.

Owns: the counts of the shell, the list of all metrics, and the word on readiness. Must never: change anything in the
core.
"""

from __future__ import annotations

import time
from collections import Counter

from ingeborg import form

from ..access.callback import Callback
from ..core.histogram import Histogram
from ..core.metrics import Metric, counter, counters_by, gauge, gauges, histogram
from ..core.router import Router
from ..core.settings import words
from ..store.base import Store
from ..version import VERSION
from . import logs
from .reading import Reader

#: A ready endpoint's last sign of life in the store is no older than this, in seconds.
STORE_FRESH_S = 3.0


#: What the sockets and the loop count in the core's counters.
_COUNTED = {
    "connections_accepted": "Connections accepted",
    "connections_refused": "Connections refused: no token, a revoked one, auth-url, a page of another origin, too many "
    "of an address, no open file for them, or no HTTP request that can be answered",
    "accepts_failed": "Clients not let in because clients have all open files that they get, and times that the system "
    "could give no connection",
    "dials_failed": "Connections to peers that could not be made",
    "turns_failed": "Events whose handling failed; each is a fault of the endpoint and logged",
}


class Status:
    """One endpoint's."""

    def __init__(
        self, router: Router, store: Store, store_name: str, routing: str, reader: Reader, loop_lag: Histogram
    ) -> None:
        self.router = router
        self.store = store
        self.store_name = store_name
        self.routing = routing
        self.reader = reader
        self.loop_lag = loop_lag
        self.closes: Counter[str] = Counter()  # clients' connections that are over, by close code
        self.started_unix_s = time.time()
        self.internal = False  # it has an internal address
        self.callback: Callback | None = None  # whom it asks whether clients may connect
        self.wants_tokens = False  # it lets nobody in without
        self.leaving = False
        self.has_begun = False  # it has been ready

    @property
    def awaits_position(self) -> bool:
        """Messages are kept, and positions cannot be told yet."""
        retained = self.router.retained
        return retained.on and not retained.watermarks.known

    @property
    def knows_nothing_of_tokens(self) -> bool:
        """It wants them, and has yet to find out which have been revoked."""
        return self.wants_tokens and not self.router.clients.revoking.knows

    def metrics(self) -> list[Metric]:
        """All that this endpoint counts and measures: the core, and the shell around it."""
        router = self.router
        found = [self._about(), *router.metrics(), *self._of_sockets(), *self.reader.metrics()]
        operations = getattr(self.store, "counters", None)
        if operations:
            found.append(counters_by("store", "What the store driver counts", "what", operations))
        if self.callback is not None:
            found += self.callback.metrics()
        return [
            *found,
            gauge("ready", "1 while /readyz says so", not self.not_ready()),
            histogram("loop_lag", "How late the loop's ticks of 100 ms come", self.loop_lag),
            counter(
                "log_lines_dropped",
                "Lines of the log that were dropped: whoever reads it stood still, or has gone",
                logs.lines_dropped(),
            ),
        ]

    def _about(self) -> Metric:
        me, settings = self.router.me, words(self.router.members.introduction.settings)
        labels = ("name", "incarnation", "routing", "store", "version", "form", *settings)
        about = (me.name, me.incarnation, self.routing, self.store_name, VERSION, form.name(), *settings.values())
        return gauges("info", "This endpoint", labels, [(about, 1.0)])

    def _of_sockets(self) -> list[Metric]:
        counts = self.router.counters.counts
        found = [counter(name, help, counts[name]) for name, help in _COUNTED.items()]
        closed = "Connections of clients that are over, by close code"
        return [*found, counters_by("connections_closed", closed, "code", self.closes)]

    def not_ready(self) -> list[str]:
        """Why this endpoint should not be given new clients; nothing: it should."""
        reasons = []
        joining = self.router.joining
        if self.leaving:
            reasons.append("shutting down")
        elif joining.name_awaited:
            name = self.router.me.name
            reasons.append(f"another endpoint has had the name {name} until lately, and may still live")
        elif not self.router.members.joined:
            reasons.append("not all other endpoints have let this one in yet")
        if not joining.name_awaited and not self.router.members.store_fresh(time.monotonic(), STORE_FRESH_S):
            reasons.append("the store does not answer")
        if self.knows_nothing_of_tokens and not self.leaving and self.router.members.joined:
            reasons.append("the store has not said yet which tokens have been revoked")
        if self.awaits_position and not self.has_begun:
            reasons.append("the endpoints have not agreed on a position for recovery yet")
        return reasons
