"""Judges sentences and goals from handmade rows, with one figure changed at a time."""

from __future__ import annotations

from typing import Any

import pytest

from ingeborg.bench.overlay import claims
from ingeborg.bench.overlay.cells import Cells
from ingeborg.bench.overlay.experiments import ALL, DOCUMENT, Cell, thesis, timers

NODES = 10_000


def row(cell: Cell, **changes: Any) -> dict[str, Any]:
    """Return a row that agrees with the document: several senders are slower, and only PRC-broadcast sends more than a
    tree."""
    several = cell.senders != 1
    slow = {"cptcast": 3.0, "plumtree": 2.0}.get(cell.protocol, 1.0) if several else 1.0
    queueing = 1.0 if several else 1.0 + 20 / cell.interval_ms
    heavy = 1.2 if cell.protocol == "prc" and cell.payload_bytes >= 1_000_000 else 1.0
    redundancy = 4.0 if cell.protocol == "prc" else 0.5 if several and cell.protocol in DOCUMENT else 0.0
    phase = {
        "messages": 100,
        "least": 1.0,
        "mean_ms": 20.0 * slow * queueing * heavy,
        "redundancy": redundancy,
        "last_hop": 23.0,
    }
    kept = {**cell.facts(), "violations": 0, "entry_bytes": 8.0, "memory_bytes": 30_000, "phases": {"run": phase}}
    kept["kinds"] = {"gossip": (1_000_000, 1, 1), "graft": (500_000, 1, 1)}
    for name, value in changes.items():
        (phase if name in phase else kept)[name] = value
    return kept


def made(protocol: str = "", senders: int | None = None, **changes: Any) -> Cells:
    """Return all cells, with changes for one protocol."""
    return Cells(
        [
            row(cell, **changes) if cell.protocol == protocol and senders in (None, cell.senders) else row(cell)
            for cell in thesis(NODES, 1)
        ]
    )


def verdicts(cells: Cells) -> dict[str, str]:
    return {claim.text.partition("(")[0].strip(): claim.verdict for claim in claims.judged(cells, NODES)}


def test_what_is_as_the_document_says_holds() -> None:
    found = verdicts(made())
    assert len(found) == 11
    assert set(found.values()) == {claims.HOLDS}


@pytest.mark.parametrize(
    ("protocol", "senders", "changes", "begins", "verdict"),
    [
        ("prc", None, {"least": 0.9999}, "All experiments", claims.FAILS),
        ("cptcast", ALL, {"violations": 1}, "PRC-broadcast and CPTCast preserve", claims.FAILS),
        ("prc", None, {"redundancy": 3.0}, "PRC-broadcast has a nearly constant", claims.FAILS),
        ("plumtree", 1, {"redundancy": 0.2}, "With a single sender the RMR", claims.FAILS),
        ("plumtree", ALL, {"redundancy": 1.5}, "With several senders the RMR is notable", claims.FAILS),
        ("cptcast", 1, {"mean_ms": 90.0}, "With a single sender, Plumtree and CPTCast", claims.FAILS),
        ("cptcast", 1, {"mean_ms": 90.0}, "With a single sender, causality", claims.FAILS),
        ("prc", None, {"mean_ms": 26.0}, "At 1 MB", claims.FAILS),
        ("prc", None, {"mean_ms": 28.4}, "At 1 MB", claims.EQUAL),
        ("cptcast", ALL, {"mean_ms": 40.0}, "With several senders CPTCast", claims.EQUAL),
        ("plumtree", ALL, {"mean_ms": 10.0}, "With several senders Plumtree", claims.FAILS),
    ],
)
def test_a_sentence_that_is_not_so_does_not_hold(
    protocol: str, senders: int | None, changes: dict[str, float], begins: str, verdict: str
) -> None:
    found = verdicts(made(protocol, senders, **changes))
    (judged,) = (value for text, value in found.items() if text.startswith(begins))
    assert judged == verdict


def test_with_several_seeds_figures_are_means_and_what_depends_on_the_seed_is_within_noise() -> None:
    slower = {"plumtree": 60.0, "cptcast": 100.0}
    rows = [row(cell) for cell in thesis(NODES, 1)]
    others = [
        row(cell, mean_ms=slower.get(cell.protocol, 20.0)) if cell.senders == ALL else row(cell)
        for cell in thesis(NODES, 2)
    ]
    cells = Cells(rows + others)
    assert set(verdicts(cells).values()) == {claims.HOLDS}
    assert cells.mean_ms(NODES, "plumtree", ALL, 1_000, 20) == (40.0 + 60.0) / 2
    for other in others:
        if other["senders"] == ALL and other["protocol"] == "cptcast":
            other["phases"]["run"]["mean_ms"] = 50.0
    found = verdicts(Cells(rows + others))
    assert [text for text, verdict in found.items() if verdict != claims.HOLDS] == [
        "With several senders CPTCast has by far the highest latency, at every payload"
    ]
    assert set(found.values()) == {claims.HOLDS, claims.EQUAL}


def test_each_sentence_says_why_and_with_which_timers() -> None:
    rows = [row(cell) for cell in thesis(NODES, 1)]
    found = claims.judged(Cells(rows), NODES)
    assert all(claim.why for claim in found)
    assert any("plumtree 0.500, cptcast 0.500" in claim.why for claim in found)
    assert not any("With other timers" in claim.why for claim in found)
    tried = [row(cell, mean_ms=20.0 if cell.protocol == "cptcast" else 40.0) for cell in timers(NODES, 1)]
    assert any("With other timers: × 0.50 to 0.50." in claim.why for claim in claims.judged(Cells(rows + tried), NODES))


def test_without_the_documents_cells_nothing_is_judged() -> None:
    assert claims.judged(Cells([row(Cell("thesis", "grove", NODES))]), NODES) == []
    few = [row(Cell("thesis", protocol, NODES)) for protocol in DOCUMENT]
    assert len(claims.judged(Cells(few), NODES)) == 7


def test_goals_are_met_or_missed_for_each_number_of_senders() -> None:
    assert all(met is not False for goal in claims.goals(made(), NODES) for _, met in goal.found)
    missed = {
        goal.text
        for goal in claims.goals(
            made("grove", 20, redundancy=0.02, mean_ms=60.0, last_hop=30.0, violations=1, least=0.9), NODES
        )
        if [met for _, met in goal.found][:3] == [True, False, True]
    }
    assert missed == {
        "reliability",
        "out of order",
        "RMR",
        "mean latency, relative to a flood",
        "last hop, relative to a flood",
    }
    assert claims.goals(Cells([row(Cell("thesis", "grove", NODES))]), NODES) == []


def test_with_all_nodes_as_senders_only_reliability_and_order_are_goals() -> None:
    found = claims.goals(made("grove", ALL, redundancy=3.0, mean_ms=99.0, violations=2), NODES)
    assert {goal.text for goal in found if goal.found[-1][1] is False} == {"out of order"}


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
