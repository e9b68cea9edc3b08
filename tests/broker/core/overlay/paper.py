"""A desk that only records its calls, for tests of a single node.

Owns: the notes. Must never: do anything.
"""

from __future__ import annotations

from random import Random
from typing import Any

from ingeborg.bench.overlay.chance import Drawn
from ingeborg.broker.core.overlay.node import Desk, Peer, Wire


class Paper(Desk):
    """Records calls. ``sent``: receiver and wire. ``timers``: time and action. ``delivered``: root and number."""

    def __init__(self, seed: int = 1) -> None:
        super().__init__(Drawn(Random(seed)))
        self.sent: list[tuple[Peer, Wire]] = []
        self.bytes: list[tuple[int, int]] = []
        self.timers: list[tuple[float, Any]] = []
        self.delivered: list[tuple[Peer, int]] = []
        self.dialled: list[Peer] = []
        self.hung_up: list[Peer] = []
        self.registry: list[Peer] = []

    def send(self, peer: Peer, wire: Wire, control_bytes: int, payload_bytes: int = 0) -> None:
        self.sent.append((peer, wire))
        self.bytes.append((control_bytes, payload_bytes))

    def after(self, seconds: float, what: Any) -> None:
        self.timers.append((self.now + seconds, what))

    def deliver(self, root: Peer, number: int, hops: int) -> None:
        self.delivered.append((root, number))

    def dial(self, peer: Peer) -> None:
        self.dialled.append(peer)

    def hang_up(self, peer: Peer) -> None:
        self.hung_up.append(peer)

    def contacts(self) -> list[Peer]:
        return self.registry

    def kinds(self, peer: Peer) -> list[int]:
        """Return the kinds of the wires sent to the peer."""
        return [wire[0] for to, wire in self.sent if to == peer]

    def take(self) -> list[tuple[Peer, Wire]]:
        """Return the wires sent since the last look."""
        sent, self.sent = self.sent, []
        return sent

    def due(self, node: Any) -> None:
        """Run the node's due timers."""
        due = sorted((each for each in self.timers if each[0] <= self.now + 1e-9), key=lambda each: each[0])
        self.timers = [each for each in self.timers if each[0] > self.now + 1e-9]
        for _, what in due:
            node.due(what)
