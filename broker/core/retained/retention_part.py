"""Retained messages as a part of the endpoint: their end of a turn, their sweep, and what is counted of them.

Owns: the order in which a turn ends for them. Must never: keep anything itself.
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
    """Has the log forget what is over, has replicated what the journal has brought, and has the journal write. Its turn
    ends before that of ``replicas``, which send it."""

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
                "Messages that this endpoint as home had no room for (history-bytes): dispatched, not retained",
            ),
            gauge("history_bytes", "Memory of retained messages, as their home and for other homes", self._log.bytes),
            gauge("history_entries", "Retained messages in it", self._log.entries),
            gauge("history_topics", "Their topics", self._log.topics),
            counters_by(
                "history_forgotten",
                "Retained messages that this endpoint has forgotten, as home, by why",
                "why",
                self._log.forgotten,
            ),
        ]

    def tick(self) -> None:
        """Some topics each time."""
        if self._log.topics:
            self._log.sweep(self._desk.now)

    def flush(self) -> None:
        """The turn ends: what has been read goes where the slot's replicas are, too. What is to be retained is
        written."""
        if self._journal.has_read:
            read, self._journal.has_read = self._journal.has_read, []
            if self._replicas.watching:
                for slot, key in read:
                    self._replicas.changed(self._state, slot, key)
        self._journal.write()

    def lapsed(self) -> None:
        """Others may act for this endpoint's slots."""
        self._retention.lapsed()
