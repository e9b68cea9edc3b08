"""The list of planted faults is complete, and each says what is wrong."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.planted import MovedWarning, files, search

ROOT = Path(__file__).resolve().parents[2]
TESTS = ROOT / "tests"
PATIENCE_S = 200

#: The format of `tests.planted.Planted.line`.
ENTRY = re.compile(r"(?P<file>[^\s:]+)::(?P<test>[^\s\[]+).*\n    (?:(?P<name>\w+): )?(?P<what>.+)")


@pytest.fixture(scope="module")
def listed() -> list[re.Match[str]]:
    """Return the output of ``python -m tests.planted``."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.planted"], cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert done.returncode == 0, done.stderr
    found = list(ENTRY.finditer(done.stdout))
    assert done.stdout.splitlines()[-1] == f"{len(found)} planted faults"
    return found


def plants(source: str) -> Iterator[str]:
    """Return the plants of a source: functions of ``patch`` alone, and classes below such a heading."""
    headings = [number for number, line in enumerate(source.splitlines(), 1) if line.startswith("# Planted faults")]
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef) and len(node.args.args) == 1:
            if ast.unparse(node.args) == "patch: pytest.MonkeyPatch":
                yield node.name
        elif isinstance(node, ast.ClassDef) and headings and node.lineno > headings[0]:
            yield node.name


#: A kind of histories that is below such a heading by coincidence.
NO_FAULTS = {"Unwritable"}


def test_every_fault_that_is_planted_is_in_the_list_with_the_test_that_finds_it(listed: list[re.Match[str]]) -> None:
    planted = {
        (path.relative_to(ROOT).as_posix(), name)
        for path in sorted(TESTS.rglob("test_*.py"))
        if "(patch: " in (source := path.read_text(encoding="utf-8")) or "# Planted faults" in source
        for name in plants(source)
        if name not in NO_FAULTS
    }
    assert len(planted) > 50
    assert planted <= {(entry["file"], entry["name"]) for entry in listed}


def test_a_test_of_that_name_is_in_the_list(listed: list[re.Match[str]]) -> None:
    wanted = {
        (path.relative_to(ROOT).as_posix(), name)
        for path in files()
        for name in re.findall(
            r"^ *(?:async )?def (test_\w*planted\w*)", path.read_text(encoding="utf-8"), re.MULTILINE
        )
        if path != Path(__file__)
    }
    assert len(wanted) >= 9
    assert wanted <= {(entry["file"], entry["test"]) for entry in listed}


def test_each_says_what_is_wrong(listed: list[re.Match[str]]) -> None:
    assert [entry[0] for entry in listed if not re.search(r"\w+ .+[.)]$", entry["what"])] == []


def test_the_known_seed_is_tried_first_and_a_fault_that_has_moved_is_said() -> None:
    tried: list[int] = []

    def found(seed: int) -> bool:
        tried.append(seed)
        return seed == 7

    search("A fault.", 7, range(10), found)
    assert tried == [7]
    tried.clear()
    with pytest.warns(MovedWarning, match=r"seed 3 no longer finds it, but seed 7 does; .*: A fault\."):
        search("A fault.", 3, range(10), found)
    assert tried == [3, 0, 1, 2, 4, 5, 6, 7]
    with pytest.raises(AssertionError, match="not found: A fault"):
        search("A fault.", 3, range(5), found)
