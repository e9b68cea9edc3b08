"""The kept evaluation of caching: its page comes from its digests, and the docs agree with its findings."""

from __future__ import annotations

import json
import lzma
import shutil
from pathlib import Path
from typing import Any

import pytest

from ingeborg.bench import cli
from ingeborg.bench.caching import claims, command, goals
from ingeborg.bench.caching.found import Found

from .test_results import made_again

RESULTS = Path(__file__).resolve().parents[3] / "bench" / "results"
[KEPT] = (path.parent for path in RESULTS.glob(f"*/{command.DIGEST}"))


def read(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(lzma.decompress((KEPT / name).read_bytes()))
    return found


FOUND = Found(read(command.DIGEST), read(command.MEASURED))


def test_it_is_made_again_of_its_digests(tmp_path: Path) -> None:
    for name in (command.DIGEST, command.MEASURED):
        shutil.copy(KEPT / name, tmp_path / name)
    assert cli.main(["caching", "--again", "--out", str(tmp_path)]) == 0
    made_again(KEPT, tmp_path)


def test_all_seven_findings_are_judged() -> None:
    assert [claim.number for claim in claims.judged(FOUND)] == [1, 2, 3, 4, 5, 6, 7]


@pytest.mark.parametrize("goal", goals.goals(FOUND), ids=lambda goal: goal.text)
def test_goals_are_met(goal: goals.Goal) -> None:
    assert [reading for reading, _, met in goal.found if met is False] == []


def test_owed_is_compared_on_all_streams_and_with_all_rooms() -> None:
    [ahead, *_] = goals.goals(FOUND)
    assert len(ahead.found) == 8
