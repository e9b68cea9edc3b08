"""Retained messages as a part of the endpoint: their end of a turn, their sweep, and their metrics.

Owns: the order in which their turn ends. Must never: keep anything itself.
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
    """Has the log drop expired entries, replicates what the journal has read, and has the journal write. Its turn ends
    before that of ``replicas``, which sends the replicas."""

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
            gauge("history_bytes", "Bytes of retained messages, as their home and as a replica", self._log.bytes),
            gauge("history_entries", "Retained messages, as their home and as a replica", self._log.entries),
            gauge("history_topics", "Topics of these messages", self._log.topics),
            counters_by(
                "history_forgotten",
                "Retained messages that this endpoint, as home, has dropped, by reason",
                "why",
                self._log.forgotten,
            ),
        ]

    def tick(self) -> None:
        """Sweep some topics each time."""
        if self._log.topics:
            self._log.sweep(self._desk.now)

    def flush(self) -> None:
        """End the turn: replicate to the slot's replicas what has been read, and write what must be retained."""
        if self._journal.has_read:
            read, self._journal.has_read = self._journal.has_read, []
            if self._replicas.watching:
                for slot, key in read:
                    self._replicas.changed(self._state, slot, key)
        self._journal.write()

    def lapsed(self) -> None:
        """Note that others can act for this endpoint's slots."""
        self._retention.lapsed()
