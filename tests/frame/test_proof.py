"""`--proof`: the seeds that a run takes, and the tests that it leaves out."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests import proof
from tests.proof import SHARES, Proof, draw

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = 100

TESTS = """
import pytest
from tests import proof
def test_seeds(): print("took", *proof.seeds(100, 20, 2))
@pytest.mark.prove
def test_long(): print("ran all")
"""


def run(directory: Path, *arguments: str) -> tuple[int, str]:
    """Run pytest. Returns its exit status and output."""
    (directory / "test_some.py").write_text(TESTS)
    command = [sys.executable, "-m", "pytest", "-p", "tests.conftest", "-c", "/dev/null", "--rootdir", str(directory)]
    command += ["-rP", *arguments, str(directory)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("count", [1, 3, SHARES, 12, 100])
def test_the_shares_have_every_seed_between_them_and_none_is_empty(count: int) -> None:
    shares = [set(draw(Proof("share", share), 100, count, 2)) for share in range(SHARES)]
    assert all(shares)
    assert set.union(*shares) == set(range(100, 100 + count))
    if count >= SHARES:
        assert sum(map(len, shares)) == count
        assert max(map(len, shares)) - min(map(len, shares)) <= 1


def test_a_change_takes_the_first_few_and_make_prove_takes_all() -> None:
    assert list(draw(Proof(), 100, 20, 2)) == [100, 101]
    assert list(draw(Proof("all"), 100, 20, 2)) == list(range(100, 120))
    assert list(draw(Proof(), 100, 2, 5)) == [100, 101]


def test_floors_are_for_the_seeds_that_are_taken() -> None:
    assert draw(Proof("all"), 100, 20, 2).enough(1000) == 500
    assert draw(Proof(), 100, 20, 2).enough(1000) == 25
    assert draw(Proof("share", 3), 100, 20, 2).enough(1000) == 0


@pytest.mark.parametrize("processes", ["0", "2"])
def test_a_share_is_drawn_from_the_commit_and_said(processes: str, tmp_path: Path) -> None:
    status, text = run(tmp_path, "-n", processes, "--proof", "share", "--commit", "1a2b3c4d5e")
    share = 0x1A2B3C4D % SHARES
    assert status == 0, text
    assert f"seeds: share {share} of {SHARES}, by commit 1a2b3c4d; --proof share --share {share} repeats it" in text
    assert " ".join(map(str, range(100 + share, 120, SHARES))) in text
    assert "1 passed" in text
    assert "ran all" not in text
    assert run(tmp_path, "-n", processes, "--proof", "share", "--share", "6")[1].count("took 106 114") == 1


def test_without_an_option_a_few_seeds_are_taken(tmp_path: Path) -> None:
    status, text = run(tmp_path)
    assert status == 0, text
    assert "took 100 101\n" in text
    assert "1 passed, 1 deselected" in text
    assert "seeds: a few of each test; make prove takes all" in text


def test_what_only_make_prove_runs_is_run_with_all_seeds(tmp_path: Path) -> None:
    status, text = run(tmp_path, "--proof", "all")
    assert status == 0, text
    assert " ".join(map(str, range(100, 120))) in text
    assert "ran all" in text
    assert "2 passed" in text


def test_a_tree_without_git_takes_the_first_share_and_says_so(tmp_path: Path) -> None:
    assert proof.head(tmp_path) == ""
    share, origin = proof.drawn("")
    assert Proof("share", share, origin).header().startswith(f"seeds: share 0 of {SHARES}, git knows no commit here; ")


def test_what_is_no_commit_is_refused(tmp_path: Path) -> None:
    status, text = run(tmp_path, "--proof", "share", "--commit", "main")
    assert status == pytest.ExitCode.USAGE_ERROR
    assert "--commit main: " in text
