"""The plan has the document's cells, each once, and each with its own name."""

from __future__ import annotations

import pytest

from ingeborg.bench.overlay.experiments import ALL, DOCUMENT, EXPERIMENTS, PROTOCOLS, plan, thesis


def test_the_documents_grid_has_144_cells() -> None:
    cells = [cell for cell in thesis(10_000, 1) if cell.protocol in DOCUMENT]
    assert len(cells) == 144
    assert {cell.broadcasts for cell in cells} == {100}
    assert {cell.senders for cell in cells if cell.protocol == "prc"} == {1}
    for protocol in ("cptcast", "plumtree"):
        assert {cell.senders for cell in cells if cell.protocol == protocol} == {1, 20, 100, ALL}


@pytest.mark.parametrize("experiment", sorted(EXPERIMENTS))
@pytest.mark.parametrize("nodes", [12, 60, 1_000, 10_000])
def test_every_cell_has_a_name_of_its_own(experiment: str, nodes: int) -> None:
    cells = plan(experiment, nodes, 1, PROTOCOLS)
    assert len({cell.name for cell in cells}) == len(cells) > 0
    assert all(cell.nodes == nodes and cell.senders <= nodes for cell in cells)
    assert sorted(cells, key=str) == sorted(EXPERIMENTS[experiment](nodes, 1), key=str)


def test_a_plan_may_be_of_some_protocols() -> None:
    assert {cell.protocol for cell in plan("thesis", 100, 1, ["prc", "grove"])} == {"prc", "grove"}


def test_under_faults_cptcast_is_seen_in_small_worlds_only() -> None:
    assert [
        any(cell.protocol == "cptcast" for cell in plan("churn", nodes, 1, PROTOCOLS)) for nodes in (1_000, 1_001)
    ] == [True, False]
