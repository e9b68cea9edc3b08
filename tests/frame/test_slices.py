"""`--form` and `--slices`: a run that tests another form, or leaves a slice out, fails and says so."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ingeborg import form
from tests.slices import lacking

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = 100

#: Five folders of tests, by what comes of theirs.
TESTS = {
    "passes": "def test_it(): pass",
    "fails": "def test_it(): raise AssertionError('so')",
    "skips": "from tests import wants\ndef test_it(): wants.skip('a moon', 'look up')",
    "gone": "def check_it(): pass",
    "more": "from tests import wants\ndef test_it(): pass\ndef test_other(): wants.skip('a moon', 'look up')",
}


def run(directory: Path, *arguments: str, plugin: str = "tests.slices") -> tuple[int, str]:
    """pytest's exit status, and what it said. ``plugin``: all of `tests/conftest.py`, or a part of it."""
    for name, text in TESTS.items():
        (directory / name).mkdir(exist_ok=True)
        (directory / name / f"test_{name}.py").write_text(text + "\n")
    command = [sys.executable, "-m", "pytest", "-p", plugin, "-c", "/dev/null", "--rootdir", str(directory)]
    slices = [str(directory / argument) if argument in TESTS else argument for argument in arguments]
    done = subprocess.run([*command, *slices], cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (("passes", "more"), 0, ""),
        (("passes", "skips"), 1, "no test ran of skips"),
        (("-n", "2", "passes", "more"), 0, ""),
        (("-n", "2", "passes", "skips", "gone"), 1, "no test ran of skips, gone"),
        (("gone",), 1, "no test ran of gone"),
        (("passes", "more", "--deselect", "more/test_more.py"), 1, "no test ran of more"),
        # A slice whose tests fail has run.
        (("passes", "fails"), 1, ""),
        # These are a developer's choice.
        (("passes", "more", "-k", "test_passes"), 0, ""),
        (("passes", "gone", "-m", "not slow"), 0, ""),
        (("passes", "skips", "--collect-only"), 0, ""),
    ],
)
def test_a_slice_of_which_no_test_ran_is_no_success(
    arguments: tuple[str, ...], status: int, said: str, tmp_path: Path
) -> None:
    found, text = run(tmp_path, "--slices", *arguments)
    assert found == status, text
    assert ("--slices: " in text) is bool(said), text
    assert said in text


def test_without_slices_nothing_is_asked_of_them(tmp_path: Path) -> None:
    found, text = run(tmp_path, "passes", "skips")
    assert found == 0, text


def test_a_slice_that_is_not_there_is_refused(tmp_path: Path) -> None:
    found, text = run(tmp_path, "--slices", "passes", str(tmp_path / "renamed"), plugin="tests.conftest")
    assert found == pytest.ExitCode.USAGE_ERROR
    assert "renamed" in text


def test_another_form_than_the_one_that_was_asked_for_is_refused(tmp_path: Path) -> None:
    other = "interpreted" if form.compiled() else "compiled"
    found, text = run(tmp_path, "--form", other, "-n", "2", "passes", plugin="tests.conftest")
    assert found == pytest.ExitCode.USAGE_ERROR
    assert f"--form {other}, and the code that would be tested is {form.name()}" in text
    # All of it together, as `make test-compiled` has it.
    found, text = run(tmp_path, "--form", form.name(), "--slices", "-n", "2", "passes", "gone", plugin="tests.conftest")
    assert found == 1, text
    assert "no test ran of gone" in text


def test_what_is_below_a_slice_is_of_it_and_what_begins_like_it_is_not() -> None:
    assert lacking(["a", "b/c.py", "d"], {"a/b/test_x.py", "b/c.py", "dd/test_y.py"}) == ["d"]
    assert lacking(["."], set()) == []
