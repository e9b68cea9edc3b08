"""What an endpoint knows of itself, for those who ask: ready or not, and what it counts beside the core.

Owns: the counts of the shell, and the word on readiness. Must never: change anything in the core.
"""

from __future__ import annotations

import time
from collections import Counter

from ..access.callback import Callback
from ..core.histogram import Histogram
from ..core.router import Router
from ..store.base import Store
from .reading import Reader

#: A ready endpoint's last sign of life in the store is no older than this, in seconds.
STORE_FRESH_S = 3.0


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
        history = self.router.history
        return history.on and not history.marks.known

    @property
    def knows_nothing_of_tokens(self) -> bool:
        """It wants them, and has yet to find out which have been revoked."""
        return self.wants_tokens and not self.router.revoking.knows

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
