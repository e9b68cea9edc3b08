"""What a node of an overlay is, and what it may ask for: the border between a protocol and whoever runs it.

Owns: the events that a protocol is told of, and the desk that it asks. Must never: know a clock, a socket, a simulator
or another protocol.

A protocol is pure: it is told of one event after the other, and asks its desk for what is to be done. A link to a
neighbour has two ends, carries messages in their order, and loses none until it is down; then what was under way on it
may have come or not. The membership (``views``) says which neighbours there are; a broadcast protocol is told of them.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, TypeVar

from ingeborg.protocol.native import mypyc_attr

Peer = Hashable
"""Another node: the simulator's number, an endpoint's incarnation."""

Wire = tuple[Any, ...]
"""A message of a protocol to a neighbour: its kind first, a small whole number."""


One = TypeVar("One")


@mypyc_attr(allow_interpreted_subclasses=True)
class Chance:
    """The only source of chance: who runs a node draws, from a generator that it has seeded."""

    def random(self) -> float:
        """From 0 to below 1, each as likely."""
        raise NotImplementedError

    def choice(self, some: Sequence[One]) -> One:
        """One of these, of which there is one at least."""
        raise NotImplementedError

    def sample(self, some: Sequence[One], count: int) -> list[One]:
        """So many of these, none twice; there are as many at least."""
        raise NotImplementedError


@mypyc_attr(allow_interpreted_subclasses=True)
class Desk:
    """What a node may ask for. ``now``: seconds, of an arbitrary zero."""

    def __init__(self, random: Chance) -> None:
        self.now = 0.0
        self.random = random

    def send(self, peer: Peer, wire: Wire, control_bytes: int, payload_bytes: int = 0) -> None:
        """Over the link to the neighbour. What it takes on the wire is told apart: what the protocol adds, and the
        payload (0: none goes along). To a peer without a link: nothing is sent."""
        raise NotImplementedError

    def after(self, seconds: float, what: Any) -> None:
        """``Node.due`` is called with this once the seconds are over. It cannot be taken back."""
        raise NotImplementedError

    def deliver(self, root: Peer, number: int, hops: int) -> None:
        """Give the root's message of this number to the application. ``hops``: links that its payload has crossed."""
        raise NotImplementedError

    def dial(self, peer: Peer) -> None:
        """Open a link. ``Node.up`` or ``Node.unreachable`` follows."""
        raise NotImplementedError

    def hang_up(self, peer: Peer) -> None:
        """End the link. The other end is told by ``Node.down``; this one is not."""
        raise NotImplementedError

    def contacts(self) -> list[Peer]:
        """Some living nodes, from a registry: for a node that knows no living one. Counted."""
        raise NotImplementedError


@mypyc_attr(allow_interpreted_subclasses=True)
class Node:
    """One node of a protocol. Nothing of this has to be there; what is not does nothing."""

    def broadcast(self, payload_bytes: int) -> None:
        """The application has a message for all; it is delivered here at once. Its number is this root's next one,
        from 1."""

    def up(self, peer: Peer, dialled: bool) -> None:
        """A link to the peer is open; ``dialled``: by this end."""

    def down(self, peer: Peer) -> None:
        """The link is gone: the peer has crashed, hung up, or is cut off."""

    def unreachable(self, peer: Peer) -> None:
        """It could not be dialled."""

    def received(self, peer: Peer, wire: Wire, payload_bytes: int) -> None:
        """A message came over the link."""

    def due(self, what: Any) -> None:
        """What was asked for by ``Desk.after``."""
