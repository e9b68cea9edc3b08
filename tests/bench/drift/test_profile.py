"""The reader of callgrind's files, and the functions' names as in the sources."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from ingeborg.bench.drift import counted, profile
from ingeborg.bench.errors import BenchError
from tests import wants

FILE = """\
# callgrind format
version: 1
creator: callgrind-3.19.0
cmd:  python s.py
part: 1
desc: Trigger: dump

positions: line
events: Ir
summary: 1000


ob=(2) /usr/lib/libc.so.6
fl=(11) ./malloc.c
fn=(32) malloc@@GLIBC_2.2.5
368 200
+2 34
cob=(1) /opt/compiled__mypyc.so
cfi=(23) ???
cfn=(158) CPyDef_dedup___Dedup_____init__
calls=40 739
0 176

ob=(1)
fn=(158)
0 100
-4 11
fi=(24) other.c
* 5
fe=(11)
cfn=(158)
calls=2 0
+3 7

fn=(159) CPyPy_router___Router___tick.cold
0 3
cob=(2)
cfn=(32)
calls=1 368
0 9

fn=(160) CPyPy_router___Router___tick'2
0 4

ob=(3) /usr/lib/libfoo.so.1
fn=(161) 0x00000000049367a8
0 40
cob=(4) ???
cfn=(162) 0x0000000004936000
calls=1 0
0 1

totals: 397
"""


def read(text: str) -> profile.Profile:
    return profile.read(text.splitlines(keepends=True))


def test_what_a_function_takes_is_its_own_lines_and_no_call() -> None:
    found = read(FILE)
    assert found.own == {
        "malloc": 234,
        "CPyDef_dedup___Dedup_____init__": 116,
        "CPyPy_router___Router___tick": 7,
        "(somewhere in libfoo.so.1)": 40,
    }
    assert found.total == 397


def test_calls_are_counted_with_what_they_cost() -> None:
    found = read(FILE)
    assert found.calls["CPyDef_dedup___Dedup_____init__"] == 42
    assert found.within["CPyDef_dedup___Dedup_____init__"] == 183
    assert found.calls["malloc"] == 1
    assert found.within["malloc"] == 9


def test_calls_are_found_by_the_name_of_a_function() -> None:
    found = read(FILE)
    assert found.called(re.compile(r"CPyDef_.*__init__")) == 42
    assert found.called(re.compile(r"__init__")) == 0


def test_a_file_that_was_cut_short_is_refused() -> None:
    with pytest.raises(BenchError, match="incomplete"):
        read(FILE.partition("totals:")[0])


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("CPyDef_dedup___Dedup___duplicate", "dedup.Dedup.duplicate"),
        ("CPyDef_dedup___Dedup_____init__", "dedup.Dedup.__init__"),
        ("CPyDef_home___Home____answer", "home.Home._answer"),
        ("CPyDef_wire___decode", "wire.decode"),
        ("CPyPy_router___Router___frames", "router.Router.frames (entry)"),
        ("_PyEval_EvalFrameDefault", "_PyEval_EvalFrameDefault"),
    ],
)
def test_names_are_those_of_the_sources(name: str, words: str) -> None:
    assert profile.readable(name) == words


def test_a_program_is_counted_the_same_twice(tmp_path: Path) -> None:
    wants.tool("valgrind")
    program = shutil.which("true")
    assert program is not None
    found = []
    for number in range(2):
        out = tmp_path / f"callgrind-{number}"
        command = [*counted.valgrind(), f"--callgrind-out-file={out}", program]
        subprocess.run(command, check=True, capture_output=True, timeout=60, env={"PATH": "/usr/bin:/bin"})
        found.append(counted.read(out))
    assert found[0].total == found[1].total > 10_000
    assert found[0].own == found[1].own


def test_a_file_that_is_not_there_is_said() -> None:
    with pytest.raises(BenchError, match="has not written"):
        counted.read(Path("no", "such", "file"))
