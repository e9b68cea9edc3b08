"""The pages state what the stored evaluation of packing has found."""

from __future__ import annotations

import json
import lzma
from pathlib import Path
from typing import Any

import pytest

from ingeborg.bench.packing.cases import ALGORITHMS
from ingeborg.bench.packing.experiment import Packing
from ingeborg.bench.packing.found import Scores

RESULTS = Path(__file__).resolve().parents[3] / "bench" / "results"
[KEPT] = RESULTS.glob(f"*/{Packing().document}")
DOCUMENT: dict[str, Any] = json.loads(lzma.decompress(KEPT.read_bytes()))
SCORES = Scores(DOCUMENT["scores"])

DELTAS = (5.0, 10.0, 15.0, 20.0, 25.0)


@pytest.mark.parametrize(("delta", "printed"), [(5.0, 0.118), (25.0, 0.088)])
def test_mwf_needs_as_many_bins_more_as_the_document_prints(delta: float, printed: float) -> None:
    row = SCORES.of("200", delta, "MWF")
    assert row["seeds"] == 30
    assert row["cbs"][0] == pytest.approx(printed, abs=0.01)


@pytest.mark.parametrize("case", ["32", "200"])
@pytest.mark.parametrize("delta", DELTAS)
@pytest.mark.parametrize("other", ["MWF", "MWFP", "NFD"])
def test_mend_needs_fewer_bins_and_moves_less_for_certain(case: str, delta: float, other: str) -> None:
    row = SCORES.of(case, delta, other)
    for name in ("cbs_more_than_mend", "rscore_more_than_mend"):
        difference, half = row[name]
        assert difference - half > 0.0, (name, row[name])


def test_nothing_is_below_the_optimum() -> None:
    assert DOCUMENT["optimum"] is not None
    below = {row["algorithm"]: row["below"] for row in DOCUMENT["optimum"]["algorithms"]}
    assert below == dict.fromkeys(ALGORITHMS, 0)
