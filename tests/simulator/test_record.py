"""A history's record: the same for the same seed, in every process, and in both forms of the code."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from ingeborg import form
from tests import wants
from tests.proof import seeds

from .history import History
from .record import WAYS, Recorder, record

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = 500

#: Each form runs them in a process of its own. The interpreted form takes a minute for all; an ordinary run has two per
#: way.
SEEDS, FEW = 600, 2 * len(WAYS)


def lines(seeds: Sequence[int], **variables: str) -> list[str]:
    # Sets of strings have the same order in both processes: a home goes through its subscribers in that order.
    environment = {**os.environ, "PYTHONHASHSEED": "0", **variables}
    done = subprocess.run(
        [sys.executable, "-m", "tests.simulator.record", *map(str, seeds)],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.splitlines()


def test_a_record_is_the_same_in_every_process() -> None:
    first, second = (lines(range(90_000, 90_000 + len(WAYS))) for _ in range(2))
    assert first == second
    assert len({line.rpartition(" ")[2] for line in first}) == len(first)


def test_one_byte_of_one_frame_changes_it() -> None:
    histories, recorders = [History(8) for _ in range(2)], [Recorder(), Recorder()]
    histories[0].world.on_effects = recorders[0].turn
    spoilt: list[bytes] = []

    def spoil(node: object, effects: object) -> None:
        for _, frames in effects.write:  # type: ignore[attr-defined]
            if not spoilt:
                spoilt.append(frames[0])
                frames[0] = frames[0][:-1] + b"]"
                recorders[1].turn(node, effects)  # type: ignore[arg-type]
                frames[0] = spoilt[0]
                return
        recorders[1].turn(node, effects)  # type: ignore[arg-type]

    histories[1].world.on_effects = spoil
    for history in histories:
        history.run()
    assert spoilt
    assert recorders[0].turns == recorders[1].turns
    assert recorders[0].text() != recorders[1].text()


@pytest.mark.timeout(2 * PATIENCE_S)
def test_both_forms_decide_the_same_to_the_byte() -> None:
    wants.compiled()
    drawn = seeds(0, SEEDS, FEW)
    interpreted, compiled = (lines(drawn, **{form.VARIABLE: pure}) for pure in "10")
    assert (interpreted[0], compiled[0]) == ("interpreted", "compiled")
    assert len(compiled) == 1 + len(drawn)
    assert [pair for pair in zip(interpreted[1:], compiled[1:], strict=True) if pair[0] != pair[1]] == []


def test_a_seed_is_run_in_its_way() -> None:
    seed = 90_003
    assert record(seed).startswith(f"{seed} way {seed % len(WAYS)}: ")
