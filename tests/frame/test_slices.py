"""`--form` and `--slices`: a run that tests another form, or leaves a slice out, fails and says so."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from ingeborg import form
from tests.slices import lacking

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = 100

#: Five folders of tests, by their outcomes.
TESTS = {
    "passes": "def test_it(): pass",
    "fails": "def test_it(): raise AssertionError('so')",
    "skips": "from tests import wants\ndef test_it(): wants.skip('a moon', 'look up')",
    "gone": "def check_it(): pass",
    "more": "from tests import wants\ndef test_it(): pass\ndef test_other(): wants.skip('a moon', 'look up')",
}


#: Runs pytest once for each list of arguments on standard input: starting it takes a second, and running it far less.
RUNNER = """
import contextlib, io, json, sys, pytest
results = []
for arguments in json.load(sys.stdin):
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        status = int(pytest.main(arguments))
    results.append((status, said.getvalue()))
json.dump(results, sys.stdout)
"""


def arguments_of(directory: Path, arguments: tuple[str, ...], plugin: str) -> list[str]:
    """pytest's arguments, with folders of ``TESTS`` by their names. ``plugin``: `tests/conftest.py` or one of its
    parts."""
    for name, text in TESTS.items():
        (directory / name).mkdir(exist_ok=True)
        (directory / name / f"test_{name}.py").write_text(text + "\n")
    slices = [str(directory / argument) if argument in TESTS else argument for argument in arguments]
    return ["-p", plugin, "-c", "/dev/null", "--rootdir", str(directory), *slices]


def run(directory: Path, *arguments: str, plugin: str = "tests.slices") -> tuple[int, str]:
    """pytest's exit status and output."""
    command = [sys.executable, "-m", "pytest", *arguments_of(directory, arguments, plugin)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S)
    return done.returncode, done.stdout + done.stderr


CASES: list[tuple[tuple[str, ...], int, str]] = [
    (("--slices", "passes", "more"), 0, ""),
    (("--slices", "passes", "skips"), 1, "no test ran of skips"),
    (("--slices", "gone"), 1, "no test ran of gone"),
    (("--slices", "passes", "more", "--deselect", "more/test_more.py"), 1, "no test ran of more"),
    # A slice whose tests fail has run.
    (("--slices", "passes", "fails"), 1, ""),
    # These are a developer's choice.
    (("--slices", "passes", "more", "-k", "test_passes"), 0, ""),
    (("--slices", "passes", "gone", "-m", "not slow"), 0, ""),
    (("--slices", "passes", "skips", "--collect-only"), 0, ""),
    # Without --slices a run need not cover them.
    (("passes", "skips"), 0, ""),
]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, ...], tuple[int, str]]:
    """Run pytest in each case, one after the other in one process. Returns the results."""
    directory = tmp_path_factory.mktemp("cases")
    cases = [arguments for arguments, _, _ in CASES]
    asked = json.dumps([arguments_of(directory, arguments, "tests.slices") for arguments in cases])
    command = [sys.executable, "-c", RUNNER]
    done = subprocess.run(command, cwd=ROOT, input=asked, capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stderr
    results = [(status, text) for status, text in json.loads(done.stdout)]
    return dict(zip(cases, results, strict=True))


@pytest.mark.parametrize(("arguments", "status", "said"), CASES)
def test_a_slice_of_which_no_test_ran_is_no_success(
    found: dict[tuple[str, ...], tuple[int, str]], arguments: tuple[str, ...], status: int, said: str
) -> None:
    code, text = found[arguments]
    assert code == status, text
    assert ("--slices: " in text) is bool(said), text
    assert said in text


def test_in_processes_of_pytest_s_a_slice_that_ran_is_a_success(tmp_path: Path) -> None:
    code, text = run(tmp_path, "--slices", "-n", "1", "passes", "more")
    assert code == 0, text
    assert "--slices: " not in text


def test_a_slice_that_is_not_there_is_refused(tmp_path: Path) -> None:
    found, text = run(tmp_path, "--slices", "passes", str(tmp_path / "renamed"), plugin="tests.conftest")
    assert found == pytest.ExitCode.USAGE_ERROR
    assert "renamed" in text


def test_another_form_than_the_one_that_was_asked_for_is_refused(tmp_path: Path) -> None:
    other = "interpreted" if form.compiled() else "compiled"
    found, text = run(tmp_path, "--form", other, "-n", "1", "passes", plugin="tests.conftest")
    assert found == pytest.ExitCode.USAGE_ERROR
    assert f"--form {other}, but this run would test {form.name()} code" in text
    # All options together, as in `make test-compiled`.
    found, text = run(
        tmp_path, "--form", form.name(), "--slices", "-n", "1", "passes", "skips", "gone", plugin="tests.conftest"
    )
    assert found == 1, text
    assert "no test ran of skips, gone" in text


def test_what_is_below_a_slice_is_of_it_and_what_begins_like_it_is_not() -> None:
    assert lacking(["a", "b/c.py", "d"], {"a/b/test_x.py", "b/c.py", "dd/test_y.py"}) == ["d"]
    assert lacking(["."], set()) == []
