"""The plan has the document's cells, each once, and each with its own name and cost."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ingeborg.bench.overlay.cases import (
    ALL,
    DOCUMENT,
    NODES,
    PARTS,
    PAYLOADS,
    PRINTED_NODES,
    PROTOCOLS,
    REPEATS,
    SEEDS,
    SMALL,
    TREES,
    Cell,
    plan,
    units,
)


def test_the_documents_grid_has_80_cells_of_which_40_have_an_interval_that_it_names() -> None:
    cells = [cell for cell in plan(["document", "between"], NODES, [1]) if not cell.warm]
    assert len(cells) == 80
    assert {cell.protocol for cell in cells} == set(DOCUMENT)
    assert {cell.broadcasts for cell in cells} == {100}
    assert {cell.senders for cell in cells if cell.protocol == "prc"} == {1}
    assert {cell.senders for cell in cells if cell.protocol in TREES} == {1, ALL}
    for part, intervals in (("document", {20, 300}), ("between", {50, 100})):
        cold = [cell for cell in plan([part], NODES, [1]) if not cell.warm]
        assert len(cold) == 40
        assert {cell.interval_ms for cell in cold} == intervals
        assert {cell.payload_bytes for cell in cold} == set(PAYLOADS)


@pytest.mark.parametrize("part", ["document", "between", "timers"])
def test_every_cell_in_which_all_nodes_send_over_a_tree_is_cold_and_warm(part: str) -> None:
    cells = [cell for cell in plan([part], NODES, [1]) if cell.senders == ALL and cell.protocol in TREES]
    cold = {cell for cell in cells if not cell.warm}
    assert {replace(cell, warm=True) for cell in cold} == {cell for cell in cells if cell.warm} != set()
    assert {cell.first for cell in cold} == {0}
    assert {cell.facts()["start"] for cell in cold} == {"cold"}
    assert {(cell.first, cell.facts()["start"]) for cell in cells if cell.warm} == {(1, "warm")}


def test_the_facts_of_other_cells_have_no_start() -> None:
    facts = Cell("thesis", "plumtree", 100, 20).facts()
    assert list(facts) == [
        *("cell", "experiment", "protocol", "nodes", "senders", "payload_bytes", "interval_ms", "broadcasts"),
        *("share", "seed", "timeout1_ms"),
    ]
    assert facts["cell"] == "thesis-plumtree-n100-s20-1KB-20ms-seed1"


@pytest.mark.parametrize("part", [part.name for part in PARTS if part.name != REPEATS])
@pytest.mark.parametrize("nodes", [12, 60, 1_000, 10_000])
def test_every_cell_has_a_name_and_a_cost(part: str, nodes: int) -> None:
    cells = plan([part], nodes, [1, 2])
    assert len({cell.name for cell in cells}) == len(cells) > 0
    assert {cell.nodes for cell in cells} == {min(nodes, PRINTED_NODES) if part == "printed" else nodes}
    assert all(cell.senders <= nodes for cell in cells)
    assert all(cell.cost > 0 for cell in cells)
    assert {cell.seed for cell in cells} == {1, 2}


def test_the_cost_grows_with_what_a_cell_has_to_do() -> None:
    cell = Cell("thesis", "cptcast", 1_000)
    for greater in (
        replace(cell, nodes=10_000),
        replace(cell, broadcasts=400),
        replace(cell, payload_bytes=1_000_000),
        replace(cell, senders=100),
        replace(cell, experiment="churn", share=0.01),
    ):
        assert greater.cost > 1.25 * cell.cost


def test_under_faults_cptcast_is_seen_in_small_worlds_only() -> None:
    for nodes, seen in ((1_000, True), (1_001, False)):
        assert any(cell.protocol == "cptcast" for cell in plan(["churn"], nodes, [1])) is seen


DEFAULT = [part.name for part in PARTS if part.is_default]


def test_the_default_units_have_every_protocol_and_the_documents_size_with_every_seed() -> None:
    made = units(DEFAULT, 3)
    cells = [unit.work for unit in made]
    assert len({unit.name for unit in made}) == len(made)
    assert [unit.cost for unit in made] == sorted((unit.cost for unit in made), reverse=True)
    assert set(plan(["document"], NODES, [1, 2, 3])) | set(plan(["document", "timers"], SMALL, [1, 2, 3])) <= set(cells)
    assert {cell.protocol for cell in cells} == set(PROTOCOLS)
    assert {cell.nodes for cell in cells} == {NODES, SMALL, PRINTED_NODES}


def test_the_repeats_are_the_other_seeds_of_the_parts_that_run_once() -> None:
    once = {cell for cell in (unit.work for unit in units(["timers", "crash", "churn"], 3)) if cell.seed > 1}
    assert {(cell.experiment, cell.nodes) for cell in once} == {("timers", SMALL)}
    repeats = {unit.work for unit in units([REPEATS], 3)}
    assert {cell.seed for cell in repeats} == {2, 3}
    assert set(plan(["timers", "grove"], NODES, [2, 3]) + plan(["crash", "churn"], SMALL, [2, 3])) == repeats
    assert {unit.work for unit in units([part.name for part in PARTS], 3)} >= repeats
    assert units([REPEATS], 1) == []


def test_all_worlds_can_have_another_number_of_nodes() -> None:
    for nodes in (300, SMALL):
        cells = [unit.work for unit in units(DEFAULT, 2, nodes)]
        assert {cell.nodes for cell in cells} == {nodes, PRINTED_NODES}
        assert {cell.seed for cell in cells if cell.experiment == "crash"} == {1, 2}


def test_the_default_units_take_less_than_an_hour_of_two_cores() -> None:
    assert 40 < sum(unit.cost for unit in units(DEFAULT, SEEDS)) / 2 / 60 < 60
