"""The places of the nodes in a simulated overlay: two sites, their hosts, and the capacity of a host's network
interface.

Owns: table 4.1 of the document as numbers, and our assumptions about latencies, which the document does not give. Must
never: depend on a protocol, or on the time.

The document ran 5,000 nodes at Nancy and 5,000 at Rennes, 50 on each of 100 hosts (section 4.2.2). A smaller world has
fewer hosts with the same number of nodes on each, so that a broadcast loads every interface in the same way.
"""

from __future__ import annotations

from typing import Final, NamedTuple

NODES_PER_HOST: Final = 50

NANCY_BITS_PER_S: Final = 2 * 25_000_000_000
RENNES_BITS_PER_S: Final = 2 * 10_000_000_000
"""Both ports of an interface are used at the same time. (Eight hosts at Rennes have another interface of 1 Gbps, which
is left out here.)"""

WITHIN_SITE_NS: Final = 300_000
BETWEEN_SITES_NS: Final = 12_500_000
"""Minimum one-way latencies. Both values are assumptions, for a switched network within a site and a national backbone
between the two sites."""

JITTER_NS: Final = 2_000_000
"""Each message's latency has a random addition, which is uniform up to this maximum. It represents queues in switches,
and the 50 processes of a host that wait for its 18 or 16 cores."""


class Spot(NamedTuple):
    """The place of a node. ``host``: the number of the host, counted over both sites."""

    site: int
    host: int


class Interface:
    """A host's network interface. Messages pass the interface one after the other, separately in each direction. Times
    are in ns."""

    __slots__ = ("in_free_ns", "ns_per_byte", "out_free_ns")

    def __init__(self, bits_per_s: int) -> None:
        self.ns_per_byte = 8e9 / bits_per_s
        self.out_free_ns = 0.0
        self.in_free_ns = 0.0


class Sites:
    """The hosts of a world with this number of nodes. Nodes added later reuse the places of the first nodes, in
    order."""

    def __init__(self, nodes: int) -> None:
        self._nodes = nodes
        self._nancy = (nodes + 1) // 2
        hosts_nancy = -(-self._nancy // NODES_PER_HOST)
        hosts_rennes = -(-(nodes - self._nancy) // NODES_PER_HOST)
        self._first_rennes = hosts_nancy
        self.interfaces = [Interface(NANCY_BITS_PER_S) for _ in range(hosts_nancy)]
        self.interfaces += [Interface(RENNES_BITS_PER_S) for _ in range(hosts_rennes)]

    def spot(self, node: int) -> Spot:
        """Return the place of this node."""
        place = node % self._nodes
        if place < self._nancy:
            return Spot(0, place // NODES_PER_HOST)
        return Spot(1, self._first_rennes + (place - self._nancy) // NODES_PER_HOST)


def latency_ns(one: Spot, other: Spot) -> int:
    """Return the latency between two nodes, without jitter. It is the same within a host as within a site. Within a
    host, the path through the kernel is short, but the wait for a core is not."""
    return WITHIN_SITE_NS if one.site == other.site else BETWEEN_SITES_NS
