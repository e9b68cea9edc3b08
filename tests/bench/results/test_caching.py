"""The kept evaluation of caching has the figures that the docs state."""

from __future__ import annotations

from pathlib import Path

import pytest

from ingeborg.bench.caching import claims, goals
from ingeborg.bench.caching.experiment import Caching
from ingeborg.bench.caching.found import Found
from ingeborg.bench.experiments.experiment import MEASURED, Results

RESULTS = Path(__file__).resolve().parents[3] / "bench" / "results"
[KEPT] = (Results(path.parent) for path in RESULTS.glob(f"*/{Caching().document}"))
FOUND = Found(KEPT.read(Caching().document), KEPT.read(MEASURED))


def test_all_findings_are_judged() -> None:
    assert [claim.where for claim in claims.judged(FOUND)] == [
        "motivation",
        *(f"experiment {number}" for number in range(1, 8)),
    ]


@pytest.mark.parametrize("goal", goals.goals(FOUND), ids=lambda goal: goal.text)
def test_goals_are_met(goal: goals.Goal) -> None:
    assert [reading for reading, _, met in goal.found if met is False] == []


def test_owed_is_compared_on_all_streams_and_with_all_rooms() -> None:
    [ahead, *_] = goals.goals(FOUND)
    assert len(ahead.found) == 8
