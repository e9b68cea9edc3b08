"""The optimum is exactly what the solver has proven."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingeborg.autoscaler.groups.instance import Instance, lower_bound
from ingeborg.autoscaler.groups.packing import DOCUMENT, pack
from ingeborg.bench.errors import BenchError
from ingeborg.bench.packing import optimum
from ingeborg.bench.packing.optimum import Solver
from tests import wants
from tests.autoscaler.groups.drawn import fewest_bins

ROOT = Path(__file__).resolve().parents[3]


def test_the_optimum_is_found_between_the_bound_and_a_packing(exact: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(optimum, "PROGRAM", exact)
    with Solver(sys.executable) as solver:
        assert solver.fewest([6.0, 5.0, 4.0, 3.0, 2.0], 10.0, 2, 4) == 2
        assert solver.fewest([6.0, 6.0, 6.0, 4.0], 10.0, 2, 4) == 3
        assert solver.fewest([6.0, 6.0], 10.0, 2, 2) == 2  # needs no question
        assert solver.fewest([1.0] * 13, 10.0, 1, 2) is None  # unknown does not mean no


def test_a_solver_that_cannot_answer_or_answers_nonsense_fails_the_check(
    tmp_path: Path, exact: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(optimum, "PROGRAM", exact)
    optimum.check(sys.executable)
    with pytest.raises(BenchError, match=r"nothing-here does not start .*make optimum"):
        optimum.check(str(tmp_path / "nothing-here"))
    null = "for _ in open(0): print('null', flush=True)"
    for text, words in (("import no_such_solver", "the solver has ended"), (null, "says that one")):
        program = tmp_path / "program.py"
        program.write_text(text, encoding="utf-8")
        monkeypatch.setattr(optimum, "PROGRAM", program)
        with pytest.raises(BenchError, match=rf"{words}.*make optimum"):
            optimum.check(sys.executable)


# With the real solver, if `make optimum` has run


@pytest.fixture(scope="module")
def python() -> str:
    path = ROOT / "build" / "optimum" / "bin" / "python"
    if not os.access(path, os.X_OK):
        wants.skip("OR-tools", "make optimum installs it")
    return str(path)


def test_the_solver_is_right(python: str) -> None:
    @settings(max_examples=25)
    @given(st.lists(st.integers(0, 24), max_size=8), st.sampled_from([10, 16]))
    def beside_all_ways(sizes: list[int], capacity: int) -> None:
        instance = Instance([float(size) for size in sizes], None, float(capacity))
        best = min(len(set(pack(algorithm, instance))) for algorithm in DOCUMENT.values())
        with_size = [float(size) for size in sizes if size]
        assert solver.fewest(instance.sizes, instance.capacity, min(best, lower_bound(instance)), best) == max(
            fewest_bins(with_size, float(capacity)), bool(sizes)
        )

    with Solver(python) as solver:
        beside_all_ways()
