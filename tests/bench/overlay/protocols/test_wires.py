"""Kinds of messages, and their sizes."""

from __future__ import annotations

from ingeborg.bench.overlay.protocols import wires
from ingeborg.bench.overlay.protocols.wires import ALPHA, BETA, buffer_bytes, control_bytes

KINDS = [
    *("GOSSIP", "IHAVE", "GRAFT", "PRUNE", "HELLO", "DISCOVERY", "REDISCOVERY"),
    *("ALPHA", "BETA", "PI", "RHO", "B_BETA", "UP"),
]


def test_kinds_are_different_and_below_the_memberships() -> None:
    kinds = [getattr(wires, name) for name in KINDS]
    assert len(set(kinds)) == len(kinds)
    assert all(0 < kind < 100 for kind in kinds)


def test_a_control_message_grows_with_its_paths() -> None:
    mid = ("N1", 1)
    # A kind, two ids of 14 bytes, two addresses of 6, and a length of 2 before each path.
    assert control_bytes((BETA, mid, "N1", "N2", mid, ())) == 1 + 28 + 12 + 2
    assert control_bytes((ALPHA, mid, "N1", "N2", mid, ("N3", "N2"), ("N3",))) == 1 + 28 + 12 + 2 + 12 + 2 + 6


def test_a_buffer_names_every_message_and_its_length() -> None:
    assert buffer_bytes(0) == 15
    assert buffer_bytes(3) == 15 + 3 * 18
