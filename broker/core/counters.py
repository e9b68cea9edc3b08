"""The counters of one endpoint, since its start.

Owns: the counters that several parts add to, and the moment at which latencies enter a histogram. Must never: base a
decision on a count. (``ingeborg.broker.web.metrics`` gives them their help texts.)
"""

from __future__ import annotations

from collections import Counter, defaultdict

from .histogram import Histogram


class Counters:
    """Counts since the start of the endpoint. ``/metrics`` shows ``counts`` as ``ingeborg_<name>_total``."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.drops: Counter[str] = Counter()  # indexed by reason
        self.errors: Counter[str] = Counter()  # indexed by code
        self.commands: defaultdict[str, dict[str, int]] = defaultdict(dict)  # kind -> result -> count
        self.publish_times = Histogram()  # from a client's publish to its outcome
        self.delivery_times = Histogram()  # from a message's receipt here to its write to a subscriber's socket
        #: For each message put into outboxes in this turn: the time of its receipt, and the number of outboxes.
        self.put: list[tuple[float, int]] = []
        #: The latencies of publishes that had to wait, since the last ``observe``, and the number of publishes that did
        #: not have to wait.
        self.settled_s: list[float] = []
        self.settled_at_once = 0
        # the turns since the last ``observe``: (time of writing, ``put`` of that turn)
        self._written: list[tuple[float, list[tuple[float, int]]]] = []

    def written(self, now: float) -> None:
        """Record that the last turn's messages have been written to the sockets."""
        if self.put:
            self._written.append((now, self.put))
            self.put = []

    def observe(self) -> None:
        """Move the times since the last call into the histograms. Adding each time to its histogram immediately would
        cost more."""
        settled_s, self.settled_s = self.settled_s, []
        for seconds in settled_s:
            self.publish_times.observe(seconds)
        at_once, self.settled_at_once = self.settled_at_once, 0
        self.publish_times.observe(0.0, at_once)
        written, self._written = self._written, []
        for at, messages in written:
            self.delivery_times.observe_since(at, messages)
