"""What one endpoint counts of itself, since its start.

Owns: the counters that several parts add to, and when a latency that they gather becomes part of a histogram. Must
never: decide by a count. (``ingeborg.broker.web.metrics`` gives them their help texts.)
"""

from __future__ import annotations

from collections import Counter, defaultdict

from .histogram import Histogram


class Counters:
    """Counted since the start; ``/metrics`` shows ``counts`` as ``ingeborg_<name>_total``."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.drops: Counter[str] = Counter()  # by reason
        self.errors: Counter[str] = Counter()  # by code
        self.commands: defaultdict[str, dict[str, int]] = defaultdict(dict)  # kind -> result -> how many
        self.publish_times = Histogram()  # from a client's publish to its outcome
        self.delivery_times = Histogram()  # from a message's receipt here to its write to a subscriber's socket
        #: Of this turn: when messages were received that have been put into outboxes, and into how many.
        self.put: list[tuple[float, int]] = []
        #: Since the last ``observe``: how long publishes took that had to wait for something, and how many had not.
        self.settled_s: list[float] = []
        self.settled_at_once = 0
        self._written: list[tuple[float, list[tuple[float, int]]]] = []  # since then: when, and what

    def written(self, now: float) -> None:
        """What was put into outboxes in the last turn has been written to the sockets."""
        if self.put:
            self._written.append((now, self.put))
            self.put = []

    def observe(self) -> None:
        """Put the times since the last call into the histograms; as they happen that would cost more."""
        settled_s, self.settled_s = self.settled_s, []
        for seconds in settled_s:
            self.publish_times.observe(seconds)
        at_once, self.settled_at_once = self.settled_at_once, 0
        self.publish_times.observe(0.0, at_once)
        written, self._written = self._written, []
        for at, messages in written:
            self.delivery_times.observe_since(at, messages)
