"""Nodes for the simulator's own tests: one that records events, and one that floods; and programs with a hash seed."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

from ingeborg.broker.core.overlay.node import Desk, Node, Peer, Wire

CONTROL = 20


def outputs(program: str, *seeds: str) -> set[str]:
    """Return the different outputs of a program with these seeds of Python's hashes."""
    command = [sys.executable, "-c", program]
    return {
        subprocess.run(
            command, env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True, timeout=120
        ).stdout
        for seed in seeds
    }


class Diary(Node):
    """Records each event, and its time."""

    def __init__(self, desk: Desk, me: Peer) -> None:
        self.desk = desk
        self.told: list[tuple[Any, ...]] = []

    def _note(self, *what: Any) -> None:
        self.told.append((round(self.desk.now, 4), *what))

    def what(self) -> list[tuple[Any, ...]]:
        """Return the events without times."""
        return [entry[1:] for entry in self.told]

    def up(self, peer: Peer, dialled: bool) -> None:
        self._note("up", peer, dialled)

    def down(self, peer: Peer) -> None:
        self._note("down", peer)

    def unreachable(self, peer: Peer) -> None:
        self._note("unreachable", peer)

    def received(self, peer: Peer, wire: Wire, payload_bytes: int) -> None:
        self._note("received", peer, wire, payload_bytes)

    def due(self, what: Any) -> None:
        self._note("due", what)


class Flooding(Node):
    """Forwards new messages over all links except the incoming one; it keeps no order."""

    def __init__(self, desk: Desk, me: Peer) -> None:
        self.desk = desk
        self.me = me
        self.peers: dict[Peer, None] = {}
        self.seen: set[tuple[Peer, int]] = set()
        self.number = 0

    def broadcast(self, payload_bytes: int) -> None:
        self.number += 1
        self._new(self.me, (0, self.me, self.number, 0), payload_bytes)

    def up(self, peer: Peer, dialled: bool) -> None:
        self.peers[peer] = None

    def down(self, peer: Peer) -> None:
        self.peers.pop(peer, None)

    def received(self, peer: Peer, wire: Wire, payload_bytes: int) -> None:
        self._new(peer, wire, payload_bytes)

    def _new(self, frm: Peer, wire: Wire, payload_bytes: int) -> None:
        _, root, number, hops = wire
        if (root, number) not in self.seen:
            self.seen.add((root, number))
            self.desk.deliver(root, number, hops)
            for peer in self.peers:
                if peer != frm:
                    self.desk.send(peer, (0, root, number, hops + 1), CONTROL, payload_bytes)
