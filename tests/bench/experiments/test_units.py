"""The common part of the commands that run a plan unit by unit."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from ingeborg.bench.errors import BenchError
from ingeborg.bench.experiments import units


def note(path: Path) -> None:
    """Write down the process that runs this."""
    path.write_text(f"{os.getpid()}")


def fail(number: int) -> None:
    raise BenchError("it fails")


def test_a_folder_holds_the_results_of_one_plan(tmp_path: Path) -> None:
    out = tmp_path / "new" / "out"
    units.hold(out, {"seeds": 3, "sources": "a"})
    units.hold(out, {"seeds": 3, "sources": "a"})
    assert json.loads((out / units.PLAN).read_text()) == {"seeds": 3, "sources": "a"}
    with pytest.raises(BenchError, match=r"another plan \(other sources\): give another --out"):
        units.hold(out, {"seeds": 3, "sources": "b"})


@pytest.mark.parametrize("text", ["", "[]", "{", "\xff"])
def test_what_is_no_plan_is_said(tmp_path: Path, text: str) -> None:
    (tmp_path / units.PLAN).write_text(text, encoding="latin-1")
    with pytest.raises(BenchError, match=r"plan.json is not a plan .*: give another --out"):
        units.hold(tmp_path, {"seeds": 3})


def test_a_place_where_there_can_be_no_folder_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(BenchError, match=r"^--out .*file/out: Not a directory$"):
        units.hold(tmp_path / "file" / "out", {"seeds": 3})
    with pytest.raises(BenchError, match=r"^--out .*file: File exists$"):
        units.hold(tmp_path / "file", {"seeds": 3})


def test_a_fingerprint_is_of_all_sources_but_those_that_do_not_count(tmp_path: Path) -> None:
    for name in ("one.py", "sub/two.py", "view/three.py", "page.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    without = ("page.py", "view")
    before = units.fingerprint([tmp_path], without)
    for name in ("view/three.py", "page.py", "other.txt"):
        (tmp_path / name).write_text("changed")
    assert units.fingerprint([tmp_path], without) == before
    (tmp_path / "sub" / "two.py").write_text("changed")
    assert units.fingerprint([tmp_path], without) != before
    assert units.fingerprint([tmp_path]) != units.fingerprint([tmp_path], without)


def test_a_folder_is_for_one_at_a_time(tmp_path: Path) -> None:
    said = r"another bench writes into .*: wait for it, or give another --out"
    with units.alone(tmp_path), pytest.raises(BenchError, match=said), units.alone(tmp_path):
        pass
    with units.alone(tmp_path):
        pass


def test_rows_are_kept_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "rows" / "one.jsonl"
    units.keep(path, [{"a": 1}, [2]])
    assert path.read_bytes() == b'{"a":1}\n[2]\n'
    with pytest.raises(ZeroDivisionError):
        units.keep(path, (1 // number for number in (1, 0)))
    assert path.read_bytes() == b'{"a":1}\n[2]\n'
    assert list(path.parent.iterdir()) == [path]
