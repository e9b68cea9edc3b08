"""The page, from small worlds of every kind: figures, claims, faults and the drawing."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from ingeborg.bench.overlay import page, summary
from ingeborg.bench.overlay.drawing import drawing
from ingeborg.bench.overlay.experiments import ALL, Cell, plan
from ingeborg.bench.overlay.run import Run


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    cells = [
        replace(cell, broadcasts=4)
        for cell in plan(["document", "more", "grove"], 20, [1])
        if cell.interval_ms in (20, 300) and cell.senders in (1, 20, ALL) and cell.experiment == "thesis"
    ]
    cells += [replace(cell, broadcasts=4) for cell in plan(["timers"], 20, [1]) if cell.timeout1_ms == 10]
    cells += [replace(cell, broadcasts=4) for cell in plan(["printed"], 20, [1]) if not cell.fault]
    for experiment, share in (("crash", 0.5), ("cut", 0.0), ("churn", 0.01)):
        cells += [Cell(experiment, protocol, 20, 3, broadcasts=60, share=share) for protocol in ("grove", "plumtree")]
    rows = []
    for cell in cells:
        run = Run(cell)
        run.go()
        rows.append(run.row())
    return {"cells": rows, "drawing": drawing(1, 20)}


def test_everything_is_on_the_page(document: dict[str, Any]) -> None:
    text = page.page(document)
    for title in ("Figure 4.2a", "Figure 4.2d", "Figure 4.3", "grove and its goals", "Crashes and cuts", "Churn"):
        assert title in text
    assert "Plumtree and CPTCast with other timers" in text
    assert len(re.findall(r"RMR [0-9.]+, [0-9.]+ GRAFTs", text)) == 2 * 2 * 2 * 2
    assert text.count("<section") == text.count("</section>") >= 14
    assert re.search("20 nodes, [0-9]+ links, and the tree of one root", text)
    assert {badge for badge in ("holds", "does not", "within noise") if f">{badge}<" in text} >= {"holds"}
    identities = re.findall(r'<svg class="wide"[^>]*aria-labelledby="([^"]+)"', text)
    assert len(identities) == len(set(identities)) == 5
    assert page.page(document) == text


def test_a_page_of_one_cell_has_only_what_there_is(document: dict[str, Any]) -> None:
    (row,) = (row for row in document["cells"] if row["protocol"] == "star")
    text = page.page({**document, "cells": [row]})
    assert "All protocols compared" in text
    assert "Figure 4" not in text
    assert "goals" not in text
    assert "Crashes" not in text


def test_the_summary_has_a_row_for_each_phase_with_messages(document: dict[str, Any]) -> None:
    text = summary.markdown(document["cells"])
    assert re.findall("^## (.*)", text, re.MULTILINE) == ["thesis", "timers", "printed", "crash", "cut", "churn"]
    rows = [line for line in text.splitlines() if re.match(r"\| ([a-z]+, 20 nodes.*)? \| [a-z ]+: \d", line)]
    phases = [phase for row in document["cells"] for phase in row["phases"].values() if phase["messages"]]
    assert len(rows) == len(phases)
    for title, table in re.findall(r"^## (.*)\n\n((?:\|.*\n)+)", text, re.MULTILINE):
        assert len({line.count("|") for line in table.splitlines()}) == 1, title
    assert "| grove, 20 nodes, 1 senders, 1 KB, 20 ms" in text
