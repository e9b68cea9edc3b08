"""The interface of an overlay node: the border between a protocol and the program that runs it.

Owns: the events that a protocol receives, and the desk that it calls. Must never: know a clock, a socket, a simulator
or another protocol.

A protocol is pure: it receives one event after another, and asks its desk for all actions. A link to a neighbour has
two ends, carries messages in order, and loses none until it is down; then messages under way may or may not have
arrived. The membership (``views``) chooses the neighbours; a broadcast protocol hears about each.
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
    """The only source of chance, drawn from a generator that the runner has seeded."""

    def random(self) -> float:
        """Draw a number from 0 to below 1, uniformly."""
        raise NotImplementedError

    def choice(self, some: Sequence[One]) -> One:
        """Draw one of these.

        Args:
            some: At least one item.

        Returns:
            The drawn item.
        """
        raise NotImplementedError

    def sample(self, some: Sequence[One], count: int) -> list[One]:
        """Draw distinct items.

        Args:
            some: At least ``count`` items.
            count: The number of items to draw.

        Returns:
            The items drawn.
        """
        raise NotImplementedError


@mypyc_attr(allow_interpreted_subclasses=True)
class Desk:
    """The calls that a node can make. ``now``: seconds from an arbitrary zero."""

    def __init__(self, random: Chance) -> None:
        self.now = 0.0
        self.random = random

    def send(self, peer: Peer, wire: Wire, control_bytes: int, payload_bytes: int = 0) -> None:
        """Send a message over the link to a neighbour. Without a link, nothing is sent.

        Args:
            peer: The neighbour.
            wire: The message.
            control_bytes: Bytes that the protocol adds on the wire.
            payload_bytes: Bytes of the payload; 0 without one.
        """
        raise NotImplementedError

    def after(self, seconds: float, what: Any) -> None:
        """Call ``Node.due(what)`` after this many seconds. The call cannot be cancelled."""
        raise NotImplementedError

    def deliver(self, root: Peer, number: int, hops: int) -> None:
        """Give a message to the application.

        Args:
            root: The node that broadcast it.
            number: Its number at the root, from 1.
            hops: Links that its payload has crossed.
        """
        raise NotImplementedError

    def dial(self, peer: Peer) -> None:
        """Open a link. ``Node.up`` or ``Node.unreachable`` follows."""
        raise NotImplementedError

    def hang_up(self, peer: Peer) -> None:
        """End the link. Only the other end gets ``Node.down``."""
        raise NotImplementedError

    def contacts(self) -> list[Peer]:
        """Return some live nodes from a registry, for a node that knows none. The reads are counted."""
        raise NotImplementedError


@mypyc_attr(allow_interpreted_subclasses=True)
class Node:
    """One node of a protocol. Every method is optional; by default it does nothing."""

    def broadcast(self, payload_bytes: int) -> None:
        """Broadcast a message of the application, and deliver it here at once.

        Its number is this root's next one, from 1.

        Args:
            payload_bytes: Bytes of its payload.
        """

    def up(self, peer: Peer, dialled: bool) -> None:
        """Use the open link to the peer. ``dialled``: this end opened it."""

    def down(self, peer: Peer) -> None:
        """Drop the link: the peer has crashed, hung up, or is cut off."""

    def unreachable(self, peer: Peer) -> None:
        """Handle a failed dial."""

    def received(self, peer: Peer, wire: Wire, payload_bytes: int) -> None:
        """Handle a message from the link.

        Args:
            peer: The neighbour at the other end.
            wire: The message.
            payload_bytes: Bytes of its payload; 0 without one.
        """

    def due(self, what: Any) -> None:
        """Handle a timer. ``what``: the argument of ``Desk.after``."""
