"""Judges sentences and goals from handmade rows, with one figure changed at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from ingeborg.bench.overlay import claims
from ingeborg.bench.overlay.cases import ALL, DOCUMENT, TREES, Cell, plan
from ingeborg.bench.overlay.cells import Cells, View
from ingeborg.bench.overlay.sentences import SENTENCES
from ingeborg.bench.text.blocks import DEPENDS, FAILS, HOLDS, NOISE, PARTLY
from ingeborg.bench.text.blocks import Cell as Shown

NODES = 1_000
PARTS = ("document", "between", "more", "grove", "timers", "crash", "churn")

Where = Callable[[Cell], bool]


def row(cell: Cell, **changes: Any) -> dict[str, Any]:
    """Return a row that agrees with the document: several senders are slower, and only PRC-broadcast sends more than a
    tree."""
    tree_of_all = cell.senders == ALL and cell.protocol in TREES
    heavy = cell.payload_bytes >= 1_000_000
    mean = 20.0 * {"cptcast": 4.0, "plumtree": 3.0}[cell.protocol] if tree_of_all else 20.0
    if not tree_of_all:
        mean *= (1 + (10 if heavy else 2) / cell.interval_ms) * (1.2 if heavy and cell.protocol == "prc" else 1)
    redundancy = 3.0 if cell.protocol == "prc" else 0.0
    if tree_of_all and (cell.protocol == "cptcast" or heavy):
        redundancy = 0.5
    phase = {
        "messages": 100,
        "least": 1.0,
        "reliability": 1.0,
        "mean_ms": mean,
        "redundancy": redundancy,
        "last_hop": 23.0,
        "control_bytes": 50.0,
    }
    phases = {"run": phase}
    if cell.faulty:
        phases |= {"during": phase | {"control_bytes": 60.0}, "after": dict(phase)}
    kept = {
        **cell.facts(),
        "violations": 0,
        "doubles": 5 if cell.faulty and cell.protocol == "flood" else 0,
        "entry_bytes": 8.0,
        "memory_bytes": 30_000,
        "phases": phases,
        "kinds": {"graft": (500_000 if tree_of_all else 0, 1, 1)},
    }
    for name, value in changes.items():
        if name in kept:
            kept[name] = value
        else:
            for each in phases.values():
                each[name] = value
    return kept


def made(where: Where = lambda _: False, seeds: Sequence[int] = (1,), **changes: Any) -> Cells:
    """Return all cells, with changes to some."""
    cells = plan(PARTS, NODES, seeds)
    return Cells([row(cell, **(changes if where(cell) else {})) for cell in cells])


def verdicts(cells: Cells) -> dict[str, str]:
    return {claim.text: claim.verdict for claim in claims.judged(cells, [NODES])}


def only(verdict: str, cells: Cells) -> list[str]:
    """Return the first words of the sentences with this verdict."""
    return [text for text, found in verdicts(cells).items() if found == verdict]


def test_what_is_as_the_document_says_holds() -> None:
    found = verdicts(made())
    assert list(found) == [each.text for each in SENTENCES]
    assert {text for text, verdict in found.items() if verdict != HOLDS} == set()


def of(protocol: str, senders: int | None = None, **fields: Any) -> Where:
    def where(cell: Cell) -> bool:
        return (
            cell.protocol == protocol
            and senders in (None, cell.senders)
            and all(getattr(cell, name) == value for name, value in fields.items())
        )

    return where


@pytest.mark.parametrize(
    ("where", "changes", "begins"),
    [
        (of("prc"), {"least": 0.9999}, "All experiments"),
        (of("cptcast", ALL), {"violations": 1}, "PRC-broadcast and CPTCast preserve"),
        (of("flood", experiment="churn"), {"doubles": 0}, "A flood is causal"),
        (of("flood", experiment="thesis"), {"violations": 1}, "A flood is causal"),
        (of("prc", ALL), {"mean_ms": 90.0}, "PRC-broadcast behaves similarly"),
        (of("prc", 1), {"redundancy": 4.0}, "PRC-broadcast has a nearly constant"),
        (of("plumtree", 1), {"redundancy": 0.2}, "With a single sender, the RMR"),
        (of("plumtree", 1), {"kinds": {"graft": (9, 9, 9)}}, "With a single sender the tree keeps"),
        (of("cptcast", 1), {"mean_ms": 90.0}, "With a single sender, Plumtree and CPTCast"),
        (of("cptcast", 1), {"mean_ms": 90.0}, "With a single sender, causality"),
        (of("prc", 1, payload_bytes=500_000), {"mean_ms": 90.0}, "Below 1 MB"),
        (of("prc", 1, payload_bytes=1_000_000), {"mean_ms": 15.0}, "At 1 MB"),
        (of("prc", 1, payload_bytes=1_000_000), {"mean_ms": 24.0}, "A shorter interval"),
        (of("cptcast", 20), {"mean_ms": 90.0}, "If messages are large"),
        (of("cptcast", experiment="long"), {"mean_ms": 40.0}, "The number of messages"),
        (of("plumtree", ALL), {"kinds": {"graft": (0, 0, 0)}}, "With several senders the tree changes"),
        (of("cptcast", ALL), {"mean_ms": 15.0}, "With several senders the performance"),
        (of("plumtree", ALL, payload_bytes=1_000_000), {"mean_ms": 15.0}, "Plumtree with several senders is slower"),
        (of("cptcast", ALL), {"mean_ms": 62.0}, "With several senders CPTCast is considerably"),
        (of("prc", 1, payload_bytes=500_000), {"mean_ms": 90.0}, "CPTCast with several senders has the highest"),
        (of("plumtree", ALL, interval_ms=20), {"mean_ms": 120.0}, "The interval has less effect"),
        (of("plumtree", ALL), {"redundancy": 1.5}, "With several senders the RMR is less"),
        (of("plumtree", ALL), {"redundancy": 0.4}, "With several senders CPTCast is notably"),
        (of("cptcast", ALL), {"redundancy": 0.0}, "With several senders CPTCast is notably"),
        (of("plumtree", ALL, interval_ms=20), {"redundancy": 0.9}, "The interval does not significantly"),
        (of("cptcast", ALL), {"mean_ms": 10.0}, "If messages are small"),
        (of("cptcast", ALL), {"redundancy": 2.9}, "With large messages"),
        (of("cptcast", experiment="crash", share=0.5), {"reliability": 0.9}, "CPTCast is expected"),
        (of("cptcast", experiment="crash"), {"control_bytes": 50.0}, "Fault recovery"),
        (of("plumtree", experiment="cut"), {"reliability": 0.9}, "Plumtree provides"),
    ],
)
def test_a_sentence_that_is_not_so_does_not_hold(where: Where, changes: dict[str, Any], begins: str) -> None:
    assert begins in {text[: len(begins)] for text in only(FAILS, made(where, **changes))}


def test_every_sentence_is_among_those_that_can_fail() -> None:
    (mark,) = test_a_sentence_that_is_not_so_does_not_hold.pytestmark
    for sentence in SENTENCES:
        assert any(sentence.text.startswith(begins) for *_, begins in mark.args[1]), sentence.text


@pytest.mark.parametrize(
    ("mean_ms", "verdict"),
    [(18.0, FAILS), (20.0, NOISE), (21.4, NOISE), (25.0, HOLDS), (35.0, PARTLY)],
)
def test_slightly_slower_has_two_limits(mean_ms: float, verdict: str) -> None:
    # The tree takes 30 ms at 20 ms, and 20.7 ms at 300 ms.
    cells = made(of("prc", 1, payload_bytes=1_000_000, interval_ms=300), mean_ms=mean_ms)
    (found,) = (value for text, value in verdicts(cells).items() if text.startswith("At 1 MB"))
    assert found == verdict


def test_a_sentence_depends_if_the_start_or_the_timer_decides() -> None:
    expected = "With several senders CPTCast is considerably slower than Plumtree."
    for where in (
        of("cptcast", ALL, warm=True),
        of("cptcast", ALL, timeout1_ms=25),
        of("cptcast", ALL, timeout1_ms=250),
    ):
        cells = made(where, mean_ms=61.0)
        assert expected in only(DEPENDS, cells)
        (claim,) = (claim for claim in claims.judged(cells, [NODES]) if claim.text == expected)
        assert claim.why.startswith("The document gives neither TIMEOUT1 nor the start, and the verdict depends on")
        assert {one.verdict for one in claim.verdicts} == {HOLDS, FAILS}
        readings = [one.reading.partition("1,000 nodes, seed 1, ")[2] for one in claim.verdicts]
        assert readings[0].startswith("cold start, TIMEOUT1 250 ms, all loads")
        assert any(reading.startswith("warm start, TIMEOUT1 250 ms, all loads") for reading in readings)
    assert claim.verdicts[0].found.startswith("× 1.02 (1 KB), ")
    assert readings[1:3] == [
        "cold start, TIMEOUT1 250 ms, two loads",
        "cold start, TIMEOUT1 150, 100, 50, 25, 10 ms, two loads",
    ]
    assert claim.verdicts[2].found.startswith("at 150 ms: × 1.33 (1 KB)")


def test_a_claim_names_the_cells_that_it_rests_on() -> None:
    cells = plan(["document"], NODES, [1, 2, 3]) + plan(["timers"], NODES, [1]) + plan(["crash"], NODES, [2])
    judged = claims.judged(Cells([row(cell) for cell in cells]), [NODES])
    found = {claim.text[:20]: [one.reading for one in claim.verdicts] for claim in judged}
    assert found["At 1 MB, PRC-broadca"] == ["1,000 nodes, seeds 1, 2, 3"]
    assert found["CPTCast is expected "] == ["1,000 nodes, seed 2"]
    said = (
        "1,000 nodes, seeds 1, 2, 3, {} start, TIMEOUT1 250 ms, all loads; other values of TIMEOUT1 make no difference"
    )
    assert found["With several senders"] == [said.format("cold"), said.format("warm")]
    assert {claim.where for claim in judged} >= {"section 4.3", "sections 4.3.1, 4.3.3"}


def test_a_sentence_is_judged_by_the_documents_number_of_nodes_if_there_are_cells() -> None:
    cells = plan(["document"], 10_000, [1]) + plan(["document", "crash"], NODES, [1])
    judged = claims.judged(Cells([row(cell) for cell in cells]), [10_000, NODES])
    found = {claim.text[:20]: claim.verdicts[0].reading for claim in judged}
    assert found["At 1 MB, PRC-broadca"] == "10,000 nodes, seed 1"
    assert found["CPTCast is expected "] == "1,000 nodes, seed 1"


def test_figures_are_means_over_seeds_and_what_depends_on_the_seed_is_within_noise() -> None:
    expected = "With several senders CPTCast is considerably slower than Plumtree."
    assert only(HOLDS, made(of("plumtree", ALL, seed=2), (1, 2), mean_ms=70.0)) == [each.text for each in SENTENCES]
    cells = made(of("plumtree", ALL, seed=2), (1, 2), mean_ms=79.0)
    assert {text[:40] for text in only(NOISE, cells)} == {expected[:40], "CPTCast with several senders has the hig"}
    assert cells.grid(View(NODES)).figure("plumtree", ALL, 1_000, 20, "mean_ms") == (60.0 + 79.0) / 2


def test_figures_that_are_compared_come_from_the_same_seeds() -> None:
    cells = plan(["document"], NODES, [1, 2]) + plan(["between"], NODES, [1])
    rows = [row(cell, mean_ms=10.0 if cell.seed == 1 else 30.0) for cell in cells]
    grid = Cells([each for each in rows if (each["protocol"], each["seed"]) != ("prc", 2)]).grid(View(NODES))
    assert grid.by_interval("cptcast", 1, 1_000) == {20: 20.0, 300: 20.0}
    assert grid.by_interval("prc", 1, 1_000) == {20: 10.0, 50: 10.0, 100: 10.0, 300: 10.0}
    assert set(grid.ratios(("cptcast", 1), ("prc", 1)).values()) == {1.0}


@pytest.mark.parametrize("part", PARTS)
def test_a_part_alone_judges_what_it_can(part: str) -> None:
    judged = claims.judged(Cells([row(cell) for cell in plan([part], NODES, [1])]), [NODES])
    assert {claim.verdict for claim in judged} <= {HOLDS}
    assert (
        len(judged) == {"document": 22, "between": 22, "more": 2, "grove": 0, "timers": 5, "crash": 4, "churn": 1}[part]
    )


@pytest.mark.parametrize(
    "missing",
    [
        of("plumtree", ALL, payload_bytes=500_000),
        of("cptcast", 1, payload_bytes=1_000_000),
        of("prc", 1, payload_bytes=1_000),
        of("cptcast", ALL, interval_ms=20),
    ],
)
def test_cells_that_did_not_run_are_left_out(missing: Where) -> None:
    cells = [cell for cell in plan(PARTS, NODES, (1,)) if not missing(cell)]
    found = claims.judged(Cells([row(cell) for cell in cells]), [NODES])
    assert {claim.verdict for claim in found} == {HOLDS}
    assert len(SENTENCES) - 6 <= len(found) <= len(SENTENCES)


def test_rows_from_before_the_start_was_a_fact_are_cold() -> None:
    rows = [row(cell) for cell in plan(["document"], NODES, [1]) if not cell.warm]
    for each in rows:
        each.pop("start", None)
    judged = claims.judged(Cells(rows), [NODES])
    assert len(judged) == 22
    assert all("warm" not in one.reading for claim in judged for one in claim.verdicts)


def test_without_the_documents_cells_nothing_is_judged() -> None:
    assert claims.judged(Cells([row(Cell("thesis", "grove", NODES))]), [NODES]) == []
    few = [row(Cell("thesis", protocol, NODES)) for protocol in DOCUMENT]
    assert claims.judged(Cells(few), [10_000]) == []
    assert len(claims.judged(Cells(few), [NODES])) >= 5


def marks(cells: Cells) -> dict[str, list[str]]:
    """Return the marks of each goal's figures."""
    return {
        str(text): [cell.mark for cell in found if isinstance(cell, Shown)]
        for text, _, *found in claims.goals(cells, NODES)
    }


def test_goals_are_met_or_missed_for_each_number_of_senders() -> None:
    assert {mark for each in marks(made()).values() for mark in each} == {"good", ""}
    worse: dict[str, Any] = {"redundancy": 0.02, "mean_ms": 60.0, "last_hop": 30.0, "violations": 1, "least": 0.9}
    missed = [
        text for text, each in marks(made(of("grove", 20), **worse)).items() if each[:3] == ["good", "bad", "good"]
    ]
    relative = ["mean latency, relative to a flood", "last hop, relative to a flood"]
    assert missed == ["reliability", "out of order", "RMR", *relative]
    assert claims.goals(Cells([row(Cell("thesis", "grove", NODES))]), NODES) == []


def test_with_all_nodes_as_senders_only_reliability_and_order_are_goals() -> None:
    found = marks(made(of("grove", ALL), redundancy=3.0, mean_ms=99.0, violations=2))
    assert {text: each[-1] for text, each in found.items() if each[-1]} == {
        "reliability": "good",
        "out of order": "bad",
    }


def fault(**changes: Any) -> dict[str, Any]:
    found = {
        "phases": {name: {"least": 1.0, "reliability": 1.0} for name in ("run", "during")},
        "violations": 0,
        "isolated": 0,
        "settled_s": 1.5,
        "redundancy": 0.1,
    }
    return found | changes


def test_under_faults_grove_has_goals_of_its_own() -> None:
    assert claims.survived(fault())
    assert claims.endured(fault())
    lost = {"run": {"least": 0.99, "reliability": 0.9998}}
    for changes in ({"phases": lost}, {"violations": 1}, {"isolated": 1}, {"settled_s": 5.1}):
        assert not claims.survived(fault(**changes))
    for changes in ({"phases": lost}, {"violations": 1}, {"redundancy": 0.31}):
        assert not claims.endured(fault(**changes))
