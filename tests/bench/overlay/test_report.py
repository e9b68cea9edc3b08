"""The report, from small worlds of every kind: figures, claims, faults and the drawing."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from ingeborg.bench.experiments.experiment import Digest
from ingeborg.bench.overlay import report
from ingeborg.bench.overlay.cases import ALL, Cell, plan
from ingeborg.bench.overlay.drawing import drawing
from ingeborg.bench.overlay.run import Run
from ingeborg.bench.report import html, markdown

NODES = 20
MEASURED = {"events": 3_000, "cpu_seconds": 2.0}


@pytest.fixture(scope="module")
def pure() -> dict[str, Any]:
    cells = [
        replace(cell, broadcasts=4)
        for cell in plan(["document", "more", "grove"], NODES, [1])
        if cell.interval_ms in (20, 300) and cell.senders in (1, 20, ALL) and cell.experiment == "thesis"
    ]
    cells += [replace(cell, broadcasts=4) for cell in plan(["timers"], NODES, [1]) if cell.timeout1_ms == 10]
    cells += [replace(cell, broadcasts=4) for cell in plan(["printed"], NODES, [1]) if not cell.fault]
    for experiment, share in (("crash", 0.5), ("cut", 0.0), ("churn", 0.01)):
        cells += [
            Cell(experiment, protocol, NODES, 3, broadcasts=60, share=share) for protocol in ("grove", "plumtree")
        ]
    rows = []
    for cell in cells:
        run = Run(cell)
        run.go()
        rows.append(run.row())
    return {"cells": rows, "drawing": drawing(20)}


def page(pure: dict[str, Any]) -> str:
    return html.page(report.report(Digest(pure, MEASURED)))


def test_everything_is_on_the_page(pure: dict[str, Any]) -> None:
    text = page(pure)
    for title in ("Figure 4.2a", "Figure 4.2d", "Figure 4.3", "grove and its goals", "as printed", "Faults, 20 nodes"):
        assert title in text
    assert len(re.findall(r"RMR [0-9.]+, [0-9.]+ GRAFTs", text)) == 2 * 2 * 2 * 2
    assert re.search("20 nodes, [0-9]+ links, and the tree of one root", text)
    assert "Paulo Henrique Branco Dias" in text
    assert "1,500 events per second of a core" in text
    identities = re.findall(r'<svg class="wide"[^>]*aria-labelledby="([^"]+)"', text)
    assert len(identities) == len(set(identities)) == 4 * 2 + 1
    assert page(pure) == text


def test_a_page_of_one_cell_has_only_what_there_is(pure: dict[str, Any]) -> None:
    (row,) = (row for row in pure["cells"] if row["protocol"] == "star")
    text = page({**pure, "cells": [row]})
    assert "All protocols compared" in text
    for title in ("Figure 4", "goals", "Faults", "The claims of the document"):
        assert title not in text


def test_a_smaller_world_is_folded_and_names_the_sentences_that_differ(pure: dict[str, Any]) -> None:
    larger = [{**row, "nodes": 10 * NODES} for row in pure["cells"] if row["experiment"] == "thesis"]
    for row in larger:
        if row["protocol"] == "prc":
            row["phases"] = {name: {**phase, "redundancy": 2.0} for name, phase in row["phases"].items()}
    text = markdown.markdown(report.report(Digest({**pure, "cells": [*pure["cells"], *larger]}, {})))
    assert "## Beyond the document, 200 nodes" in text
    assert text.count("Figure 4.3") == 1
    differing = text.partition("### Sentences with another verdict")[2]
    assert re.search(r"\| PRC-broadcast has a nearly constant RMR[^|]*\| holds \| does not hold \|", differing)


def test_the_greatest_rmr_of_a_flood_has_its_reason(pure: dict[str, Any]) -> None:
    (row,) = (row for row in pure["cells"] if (row["experiment"], row["protocol"]) == ("crash", "plumtree"))
    flood = {**row, "protocol": "flood", "redundancy": 22.987, "doubles": 1_234}
    text = page({**pure, "cells": [*pure["cells"], flood]})
    assert "RMR of 22.987 after a crash of 50%, with 1,234 repeated deliveries" in text
    assert "RMR of 22.987" not in page(pure)
