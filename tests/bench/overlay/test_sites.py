"""The places of nodes: table 4.1, and smaller worlds with equally full hosts."""

from __future__ import annotations

import pytest

from ingeborg.bench.overlay.sites import BETWEEN_SITES_NS, NODES_PER_HOST, WITHIN_SITE_NS, Sites, latency_ns


def test_ten_thousand_nodes_are_on_two_hundred_hosts_of_two_sites() -> None:
    sites = Sites(10_000)
    spots = [sites.spot(node) for node in range(10_000)]
    assert len(sites.interfaces) == 200
    assert {spot.host for spot in spots if spot.site == 0} == set(range(100))
    assert {spot.host for spot in spots if spot.site == 1} == set(range(100, 200))
    assert all(sum(spot.host == host for spot in spots) == NODES_PER_HOST for host in (0, 99, 100, 199))
    nancy, rennes = sites.interfaces[0], sites.interfaces[100]
    # The times of 1 MB at 50 and at 20 Gbps.
    assert 1e6 * nancy.ns_per_byte == pytest.approx(160_000)
    assert 1e6 * rennes.ns_per_byte == pytest.approx(400_000)


@pytest.mark.parametrize("nodes", [2, 12, 101, 1_000])
def test_a_smaller_world_has_both_sites_and_no_host_with_more_nodes(nodes: int) -> None:
    sites = Sites(nodes)
    spots = [sites.spot(node) for node in range(nodes)]
    assert {spot.site for spot in spots} == {0, 1}
    assert {spot.host for spot in spots} == set(range(len(sites.interfaces)))
    assert max(sum(spot.host == host for spot in spots) for host in range(len(sites.interfaces))) <= NODES_PER_HOST


def test_a_late_node_takes_a_place_again() -> None:
    sites = Sites(100)
    assert [sites.spot(node) for node in (100, 175, 1_000)] == [sites.spot(node) for node in (0, 75, 0)]


def test_latency_is_of_the_way_between_sites() -> None:
    sites = Sites(200)
    one, same, other = (sites.spot(node) for node in (0, 99, 100))
    assert latency_ns(one, same) == WITHIN_SITE_NS
    assert latency_ns(one, other) == latency_ns(other, one) == BETWEEN_SITES_NS
