"""Assembles the parts that write to clients.

Owns: the choice of these parts. Must never: do anything except make these parts.
"""

from __future__ import annotations

from collections.abc import Callable

from ..base import Base
from ..connections.hub import Hub
from ..metrics import Metric, gauge
from .memory import Memory
from .replies import Replies
from .sending import Sending


class Outgoing:
    """One endpoint's outgoing side. ``resident`` returns the memory of this process in bytes. If it is ``None``,
    nothing can measure this memory, and the bound applies to the counted bytes of the connections alone."""

    def __init__(self, base: Base, resident: Callable[[], int] | None) -> None:
        held_bytes = base.limits.held_bytes
        self.hub = Hub()
        self.memory = Memory(held_bytes, resident or (lambda: held_bytes + 1))
        self.sending = Sending(base.desk, self.memory)
        self.replies = Replies(base.desk, self.sending, self.memory, base.counters)

    def metrics(self) -> list[Metric]:
        """Return the metrics of these parts."""
        held = "Bytes that clients' connections hold: incomplete messages, waiting commands, and unsent data"
        return [
            gauge("clients", "Clients that listen at this endpoint", len(self.hub.bindings)),
            gauge("held_bytes", held, self.memory.total),
        ]
