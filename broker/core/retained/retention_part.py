"""The part of the endpoint that calls the log and the journal at ticks and at the end of a turn, and reports their
metrics.

Owns: the order of these calls. Must never: keep any state itself.
"""

from __future__ import annotations

from ..cluster.replicas import Replicas
from ..desk import Desk
from ..metrics import Metric, counters_by, gauge
from ..part import Part
from .journal import Journal
from .log import Log
from .retention import Retention
from .state import History


class RetentionPart(Part):
    """Makes the log drop expired entries, replicates the entries that the journal has read, and makes the journal
    write. This part comes before ``replicas`` in the list of parts, because ``replicas`` sends the replicas."""

    def __init__(
        self, desk: Desk, log: Log, retention: Retention, journal: Journal, state: History, replicas: Replicas
    ) -> None:
        self._desk = desk
        self._log = log
        self._retention = retention
        self._journal = journal
        self._state = state
        self._replicas = replicas

    def metrics(self) -> list[Metric]:
        """See ``Part``."""
        return [
            self._desk.counted("messages_retained", "Messages retained by this endpoint, as home"),
            self._desk.counted(
                "messages_not_retained",
                "Messages that this endpoint, as home, dispatched but had no room to retain (history-bytes)",
            ),
            gauge("history_bytes", "Bytes of retained messages at this endpoint, as home or replica", self._log.bytes),
            gauge("history_entries", "Retained messages at this endpoint, as home or replica", self._log.entries),
            gauge("history_topics", "Topics of the retained messages at this endpoint", self._log.topics),
            counters_by(
                "history_forgotten",
                "Retained messages that this endpoint, as home, has dropped, by reason",
                "why",
                self._log.forgotten,
            ),
        ]

    def tick(self) -> None:
        """Drop the expired entries of some topics."""
        if self._log.topics:
            self._log.sweep(self._desk.now)

    def flush(self) -> None:
        """End the turn. Replicate the entries read from the journal, and write new entries to the journal."""
        if self._journal.has_read:
            read, self._journal.has_read = self._journal.has_read, []
            if self._replicas.watching:
                for slot, key in read:
                    self._replicas.changed(self._state, slot, key)
        self._journal.write()

    def lapsed(self) -> None:
        """Record that other endpoints can now act for this endpoint's slots."""
        self._retention.lapsed()
