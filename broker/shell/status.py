"""An endpoint's report about itself: whether it is ready, and what it counts in addition to the core.

Owns: the shell's counts, the list of all metrics, and the verdict on readiness. Must never: change anything in the
core.
"""

from __future__ import annotations

import time
from collections import Counter

from ingeborg import form

from ..access.callback import Callback
from ..core.histogram import Histogram
from ..core.metrics import Metric, counter, counters, counters_by, gauge, gauges, histogram
from ..core.router import Router
from ..core.settings import words
from ..store.base import Store
from ..version import VERSION
from . import logs
from .reading import Reader

#: An endpoint is not ready if its last heartbeat in the store is older than this, in seconds.
STORE_FRESH_S = 3.0


#: The counters in the core that count events of the sockets and of the loop, with their help texts.
_COUNTED = {
    "connections_accepted": "Connections accepted",
    "connections_refused": "Connections refused because of a missing or revoked token, auth-url, a page of another "
    "origin, too many connections of an address, no free file, or a request that the endpoint cannot answer",
    "accepts_failed": "Clients refused because no file descriptor was free, or because accepting them failed",
    "dials_failed": "Failed attempts to connect to peers",
    "turns_failed": "Events whose handling failed. Each is a bug in the endpoint, and the log has the details",
}


class Status:
    """The status of one endpoint."""

    def __init__(
        self, router: Router, store: Store, store_name: str, routing: str, reader: Reader, loop_lag: Histogram
    ) -> None:
        self.router = router
        self.store = store
        self.store_name = store_name
        self.routing = routing
        self.reader = reader
        self.loop_lag = loop_lag
        self.closes: Counter[str] = Counter()  # finished WebSockets of clients, by close code
        self.http_requests: Counter[tuple[str, str]] = Counter()  # requests with commands, by path and status
        self.started_unix_s = time.time()
        self.internal = False  # whether it has an internal address
        self.callback: Callback | None = None  # the server that decides whether clients can connect
        self.wants_tokens = False  # whether clients need a token
        self.leaving = False
        self.has_begun = False  # whether it was ever ready

    @property
    def awaits_position(self) -> bool:
        """Whether the endpoint retains messages, but does not know a position for recovery yet."""
        retained = self.router.retained
        return retained.on and not retained.watermarks.known

    @property
    def knows_nothing_of_tokens(self) -> bool:
        """Whether clients need tokens, but the endpoint does not know yet which tokens are revoked."""
        return self.wants_tokens and not self.router.clients.revoking.knows

    def metrics(self) -> list[Metric]:
        """Return all metrics of this endpoint, those of the core and those of the shell around it."""
        router = self.router
        found = [self._about(), *router.metrics(), *self._of_sockets(), *self.reader.metrics()]
        operations = getattr(self.store, "counters", None)
        if operations:
            found.append(counters_by("store", "Events in the store driver", "what", operations))
        if self.callback is not None:
            found += self.callback.metrics()
        return [
            *found,
            gauge("ready", "1 while /readyz answers 200", not self.not_ready()),
            histogram("loop_lag", "Delay of the loop's ticks, which are due every 100 ms", self.loop_lag),
            counter(
                "log_lines_dropped",
                "Log lines dropped because the log's reader was stalled or gone",
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
        closed = "Closed WebSockets of clients, by close code"
        answered = "Requests for commands over HTTP, by path and status. The path is none if the request was malformed"
        requests = ((labels, float(count)) for labels, count in self.http_requests.items())
        return [
            *found,
            counters_by("connections_closed", closed, "code", self.closes),
            counters("http_requests", answered, ("path", "status"), requests),
        ]

    def not_ready(self) -> list[str]:
        """Return the reasons why this endpoint should not get new clients. The list is empty if there are none."""
        reasons = []
        joining = self.router.joining
        if self.leaving:
            reasons.append("shutting down")
        elif joining.name_awaited:
            name = self.router.me.name
            reasons.append(f"another endpoint had the name {name} until recently, and may still be running")
        elif not self.router.members.joined:
            reasons.append("not all other endpoints have let this one in yet")
        if not joining.name_awaited and not self.router.members.store_fresh(time.monotonic(), STORE_FRESH_S):
            reasons.append("the store does not answer")
        if self.knows_nothing_of_tokens and not self.leaving and self.router.members.joined:
            reasons.append("the store has not said yet which tokens have been revoked")
        if self.awaits_position and not self.has_begun:
            reasons.append("the endpoints have not agreed on a position for recovery yet")
        return reasons
