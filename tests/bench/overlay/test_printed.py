"""Places of the document as printed, judged from handmade rows; and the places of the plan."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

from ingeborg.bench.overlay.cases import PRINTED, Cell, plan
from ingeborg.bench.overlay.cells import Cells
from ingeborg.bench.overlay.printed import END, FAULTS, LOSES, ORDER, PLACES, STATE, TWICE, places
from ingeborg.bench.overlay.protocols.repairs import Repairs

NAMES = [each.name for each in fields(Repairs)]
LEFT = {"unsafe": 10, "buffers": 0, "waiting": 0, "timers": 0, "ids": 4_000}


def row(cell: Cell, **changes: Any) -> dict[str, Any]:
    phases = {"run": {"reliability": changes.pop("reliability", 0.99)}}
    left = LEFT | {name: changes.pop(name) for name in LEFT if name in changes}
    kept = {**cell.facts(), "phases": phases, "violations": 0, "doubles": 0, "end": "ended", "left": left}
    return kept | changes


def test_the_plan_has_every_repair_at_least_once_and_a_repaired_cell_for_each() -> None:
    cells = plan(["printed"], 1_000, [1])
    assert {cell.without for cell in cells} == {"", PRINTED, *NAMES}
    assert list(PLACES) == [*NAMES, PRINTED]
    found = places(Cells([row(cell) for cell in cells]))
    assert len(found) == sum(bool(cell.without) for cell in cells)
    assert [place.name for place in found] == sorted((place.name for place in found), key=list(PLACES).index)
    assert all(place.faults == {} for place in found)


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"reliability": 0.98}, LOSES),
        ({"violations": 1}, ORDER),
        ({"doubles": 1}, TWICE),
        ({"end": "more events than the limit"}, END),
        ({"end": "KeyError"}, END),
        ({"ids": 5_000}, STATE),
        ({"buffers": 1}, STATE),
        ({"reliability": 0.9895, "unsafe": 12, "timers": 9}, None),
    ],
)
def test_a_figure_that_is_worse_as_printed_is_a_fault(changes: dict[str, Any], fault: str | None) -> None:
    cells = [cell for cell in plan(["printed"], 1_000, [1, 2, 3]) if cell.protocol == "prc" and cell.interval_ms == 250]
    rows = [row(cell, **(dict(changes) if cell.without and cell.seed != 2 else {})) for cell in cells]
    (place,) = places(Cells(rows))
    assert place.faults == ({fault: 2} if fault else {})
    assert set(place.faults) <= set(FAULTS)
    assert (place.name, place.protocol, place.seeds) == ("forgets", "prc", 3)
    assert place.world == "200 nodes, 1 KB every 250 ms, 2 % crash and join per second"
    assert place.repaired.startswith(
        "reliability 99.0000 %, 0 out of order, 0 repeated, ended, left: 10 unsafe, 4,000 ids"
    )


def test_without_its_repaired_cell_a_place_is_left_out() -> None:
    assert places(Cells([row(cell) for cell in plan(["printed"], 1_000, [1]) if cell.without])) == []
