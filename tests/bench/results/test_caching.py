"""The latest kept evaluation of caching has the figures that the docs state."""

from __future__ import annotations

from pathlib import Path

import pytest

from ingeborg.bench.caching import claims, conclusions, goals
from ingeborg.bench.caching.experiment import Caching
from ingeborg.bench.caching.found import MISSED, Found
from ingeborg.bench.experiments.experiment import MEASURED, Results

RESULTS = Path(__file__).resolve().parents[3] / "bench" / "results"
KEPT = Results(max(path.parent for path in RESULTS.glob(f"*/{Caching().document}")))  # the latest
FOUND = Found(KEPT.read(Caching().document), KEPT.read(MEASURED))


def test_all_findings_and_our_own_sentences_are_judged() -> None:
    assert [claim.where for claim in claims.judged(FOUND)] == [
        "motivation",
        *(f"experiment {number}" for number in range(1, 8)),
    ]
    assert len(conclusions.judged(FOUND)) == 4


def test_the_capacities_in_the_docs_are_those_of_the_results() -> None:
    text = (RESULTS.parents[1] / "docs" / "caching.md").read_text(encoding="utf-8")
    strategies = ("all", "threshold", "mean", "buffer", "owed")
    rooms: list[tuple[str, float | None, bool]] = [("unlimited", None, False)]
    rooms += [
        (f"{share:.0%}, {MISSED[again]}", share, again) for again in MISSED for share in FOUND.capacities(again=again)
    ]
    assert len(rooms) == 1 + 2 * 6
    for name, share, again in rooms:
        rows = [FOUND.document(FOUND.most, strategy, share, again=again) for strategy in strategies]
        rates = " | ".join(f"{row['by_read'][0]:.3f}" for row in rows if row is not None)
        assert f"| {name} | {rates} |" in text


@pytest.mark.parametrize("goal", goals.goals(FOUND), ids=lambda goal: goal.text)
def test_goals_are_met(goal: goals.Goal) -> None:
    assert [reading for reading, _, met in goal.found if met is False] == []


def test_owed_is_compared_on_all_streams_and_with_all_rooms() -> None:
    [ahead, *_] = goals.goals(FOUND)
    assert len(ahead.found) == 8
