"""The plan has the document's cells, each once, and each with its own name and cost."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ingeborg.bench.errors import UsageError
from ingeborg.bench.overlay.experiments import (
    ALL,
    DOCUMENT,
    NODES,
    PARTS,
    PAYLOADS,
    PLANS,
    PRINTED_NODES,
    PROTOCOLS,
    TREES,
    Cell,
    plan,
    planned,
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


@pytest.mark.parametrize("part", PARTS)
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
        assert greater.cost > 1.3 * cell.cost


def test_a_plan_is_in_the_order_of_display_and_of_some_protocols() -> None:
    cells = plan(["grove", "document"], 100, [1, 2], ["prc", "grove"])
    assert {cell.protocol for cell in cells} == {"prc", "grove"}
    assert [(cell.protocol, cell.seed) for cell in cells] == [("prc", 1)] * 8 + [("prc", 2)] * 8 + [
        ("grove", seed) for seed in (1, 2) for _ in range(4)
    ]


def test_under_faults_cptcast_is_seen_in_small_worlds_only() -> None:
    for nodes, seen in ((1_000, True), (1_001, False)):
        assert any(cell.protocol == "cptcast" for cell in plan(["churn"], nodes, [1])) is seen


@pytest.mark.parametrize("name", PLANS)
def test_a_plan_begins_with_the_documents_size_and_has_three_seeds_where_sentences_are_judged(name: str) -> None:
    cells = planned(name)
    assert cells[0].nodes == NODES
    assert len({cell.name for cell in cells}) == len(cells)
    for cell in plan(["document"], NODES, [1, 2, 3]):
        assert cell in cells
    assert {cell.protocol for cell in cells} == set(PROTOCOLS)


def test_the_default_plan_takes_less_than_an_hour_of_two_cores_with_time_left_for_a_check() -> None:
    assert 40 < sum(cell.cost for cell in planned("default")) / 2 / 60 < 52


@pytest.mark.parametrize(
    ("parts", "nodes", "protocols", "words"),
    [
        (["thesis"], 100, PROTOCOLS, "there is no part thesis: choose from document, between, more"),
        (["grove"], 11, PROTOCOLS, "--nodes must be from 12 to 20000"),
        (["crash"], 100, ["star"], "part crash has no cells with protocol star"),
    ],
)
def test_wrong_arguments_are_refused(parts: list[str], nodes: int, protocols: list[str], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        plan(parts, nodes, [1], protocols)


def test_an_unknown_plan_is_refused() -> None:
    with pytest.raises(UsageError, match="there is no plan half: choose from default, whole"):
        planned("half")
