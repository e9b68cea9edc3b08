"""The trace that both cores replay, and the figures from callgrind's files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ingeborg.bench.drift import core, trace
from ingeborg.bench.drift.trace import Segment
from ingeborg.bench.errors import BenchError
from ingeborg.bench.micro import replay
from ingeborg.broker.core.model import Endpoint

SEGMENTS = [Segment("", 0, 2, []), Segment("listen", 10, 10, []), Segment("subscribe", 5, 5, [])]


def files(folder: Path, *totals: int) -> Path:
    """Write callgrind's files: one for the time before the first segment, and one for each segment."""
    for number, total in enumerate((1, *totals), 1):
        Path(folder, f"out.{number}").write_text(f"events: Ir\nfn=(1) CPyDef_a___b\n0 {total}\ntotals: {total}\n")
    return folder / "out"


def said(folder: Path, *frames: int) -> Path:
    path = folder / "said"
    path.write_text(json.dumps(frames) + "\n")
    return path


def test_each_segment_is_a_figure_but_those_that_make_ready(tmp_path: Path) -> None:
    found = core.counted(SEGMENTS, files(tmp_path, 70, 1_000, 200), said(tmp_path, 2, 10, 5), "here")
    assert [(each.name, each.each, each.own) for each in found] == [
        ("listen", 100, {"CPyDef_a___b": 100}),
        ("subscribe", 40, {"CPyDef_a___b": 40}),
    ]


def test_a_core_that_did_something_else_is_not_compared(tmp_path: Path) -> None:
    with pytest.raises(BenchError, match=r"sent \[2, 9, 5\] frames to clients"):
        core.counted(SEGMENTS, files(tmp_path, 70, 1_000, 200), said(tmp_path, 2, 9, 5), "here")


def test_doors_that_have_other_names_are_said(tmp_path: Path) -> None:
    with pytest.raises(BenchError, match="do its doors have other names"):
        core.counted(SEGMENTS, files(tmp_path, 0, 0, 0), said(tmp_path, 2, 10, 5), "here")


def test_the_trace_is_the_same_every_time_and_no_two_figures_have_one_name() -> None:
    assert trace.text() == trace.text()
    names = [segment.name for segment in trace.segments() if segment.name]
    assert len(set(names)) == len(names) == 7


def test_the_router_of_this_tree_replays_the_trace() -> None:
    played = replay.Replay(trace.CONNECTIONS)
    for segment in trace.segments():
        before = played.frames
        for connection, frames in segment.chunks[:200]:
            played.chunk(connection, [frame.encode() for frame in frames])
        if len(segment.chunks) <= 200:
            assert played.frames - before == segment.frames, segment.name


def test_a_store_that_is_asked_for_what_it_does_not_have_says_so() -> None:
    store = replay.Store(Endpoint("a", "0", "ws://127.0.0.1:1", 0))
    with pytest.raises(replay.CannotReplay, match="asks the store for something"):
        store.answer("something", ())


def test_the_doors_of_a_core_are_found_in_what_was_compiled(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    (tree / "ingeborg").mkdir(parents=True)
    (tree / "broker" / "core").mkdir(parents=True)
    with pytest.raises(BenchError, match="tree has no compiled router"):
        core.doors(tree)
    (tree / "ingeborg" / "compiled.so").write_bytes(b"\0CPyPy_router___Router___tick\0CPyDef_router___Router___tick\0")
    (tree / "broker" / "core" / "turns.so").write_bytes(
        b"\0CPyPy_core___turns___Turns___flush\0CPyPy_a___Part___tick\0"
    )
    assert core.doors(tree) == ["CPyPy_core___turns___Turns___flush", "CPyPy_router___Router___tick"]
