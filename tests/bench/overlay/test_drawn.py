"""The given overlay is symmetrical, connected, of the right degree, and always the same."""

from __future__ import annotations

from random import Random

import pytest

from ingeborg.bench.errors import BenchError
from ingeborg.bench.overlay.drawn import SPARE, degree, overlay, reached


@pytest.mark.parametrize(("nodes", "neighbours"), [(2, 1), (12, 2), (12, 5), (12, 11), (100, 3), (2_000, 5)])
def test_an_overlay_is_symmetrical_connected_and_of_its_degree(nodes: int, neighbours: int) -> None:
    for seed in range(5):
        drawn = overlay(nodes, neighbours, Random(seed))
        assert len(drawn) == nodes
        for one, others in enumerate(drawn):
            assert one not in others
            assert len(set(others)) == len(others)
            assert all(one in drawn[other] for other in others)
            assert neighbours - 1 <= len(others) <= neighbours + SPARE
        assert reached(drawn) == nodes
        assert sum(len(others) == neighbours for others in drawn) >= 0.9 * nodes - 2


def test_the_same_generator_gives_the_same_overlay() -> None:
    assert overlay(500, 5, Random("a")) == overlay(500, 5, Random("a")) != overlay(500, 5, Random("b"))


def test_what_cannot_be_is_refused() -> None:
    for nodes, neighbours in ((5, 5), (5, 0)):
        with pytest.raises(BenchError, match="cannot have"):
            overlay(nodes, neighbours, Random(1))
    with pytest.raises(BenchError, match="no connected overlay"):
        overlay(50, 1, Random(1))


def test_an_active_view_is_as_large_as_the_document_says() -> None:
    assert {nodes: degree(nodes) for nodes in (2, 12, 1_000, 10_000)} == {2: 1, 12: 2, 1_000: 4, 10_000: 5}
