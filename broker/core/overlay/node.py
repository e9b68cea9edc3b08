"""The interface between an overlay protocol and the program that runs it.

Owns: the events that a protocol receives, and the desk that it calls. Must never: depend on a clock, a socket, a
simulator or a particular protocol.

A protocol does no I/O. It receives one event after another, and calls its desk for all actions. A link connects two
neighbours. The link delivers messages in order, and loses no message until it goes down. After that, messages that were
under way may or may not have arrived. The membership protocol (``views``) chooses the neighbours, and notifies the
broadcast protocol when a neighbour comes or goes.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, TypeVar

from ingeborg.protocol.native import mypyc_attr

Peer = Hashable
"""The name of another node. In the simulator it is a number, and in a cluster an endpoint's incarnation."""

Wire = tuple[Any, ...]
"""A message of a protocol to a neighbour. Its first item is the kind of message, a small integer."""


One = TypeVar("One")


@mypyc_attr(allow_interpreted_subclasses=True)
class Chance:
    """The only source of random numbers. The program that runs the node has seeded its generator."""

    def random(self) -> float:
        """Draw a number from 0 up to but excluding 1, uniformly distributed."""
        raise NotImplementedError

    def choice(self, some: Sequence[One]) -> One:
        """Draw one of the items.

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
    """The calls that a node can make. ``now`` is the time in seconds since an arbitrary moment."""

    def __init__(self, random: Chance) -> None:
        self.now = 0.0
        self.random = random

    def send(self, peer: Peer, wire: Wire, control_bytes: int, payload_bytes: int = 0) -> None:
        """Send a message over the link to a neighbour. If there is no link, do nothing.

        Args:
            peer: The neighbour.
            wire: The message.
            control_bytes: The bytes that the protocol adds on the wire.
            payload_bytes: The size of the payload in bytes, or 0 if there is none.
        """
        raise NotImplementedError

    def after(self, seconds: float, what: Any) -> None:
        """Call ``Node.due(what)`` after this many seconds. The call cannot be cancelled."""
        raise NotImplementedError

    def deliver(self, root: Peer, number: int, hops: int) -> None:
        """Give a message to the application.

        Args:
            root: The node that broadcast it.
            number: The number that the root gave it, beginning with 1.
            hops: The number of links that its payload has crossed.
        """
        raise NotImplementedError

    def dial(self, peer: Peer) -> None:
        """Open a link. ``Node.up`` or ``Node.unreachable`` follows."""
        raise NotImplementedError

    def hang_up(self, peer: Peer) -> None:
        """Close the link. Only the node at the other end gets ``Node.down``."""
        raise NotImplementedError

    def contacts(self) -> list[Peer]:
        """Return some live nodes from a registry, for a node that knows no other node. The simulator counts these
        reads."""
        raise NotImplementedError


@mypyc_attr(allow_interpreted_subclasses=True)
class Node:
    """One node of a protocol. Every method is optional and does nothing by default."""

    def broadcast(self, payload_bytes: int) -> None:
        """Broadcast a message of the application, and deliver it at this node immediately.

        The message gets the next number of this root, beginning with 1.

        Args:
            payload_bytes: The size of its payload in bytes.
        """

    def up(self, peer: Peer, dialled: bool) -> None:
        """Use the new link to the peer. ``dialled`` is true if this end opened the link."""

    def down(self, peer: Peer) -> None:
        """Handle the end of a link, because the peer has crashed, has hung up, or is cut off."""

    def unreachable(self, peer: Peer) -> None:
        """Handle a failed dial."""

    def received(self, peer: Peer, wire: Wire, payload_bytes: int) -> None:
        """Handle a message from the link.

        Args:
            peer: The neighbour at the other end.
            wire: The message.
            payload_bytes: The size of its payload in bytes, or 0 if there is none.
        """

    def due(self, what: Any) -> None:
        """Handle a timer that has expired. ``what`` is the argument of ``Desk.after``."""
