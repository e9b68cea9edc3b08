"""What is taken for a log, what is left out and counted, and what is refused by file and line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.errors import BenchError
from tests.bench import synthetic
from tests.bench.synthetic import START_NS, S

pytestmark = pytest.mark.spark


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A good run of two processes, with three news and two deliveries."""
    s = synthetic
    first = [s.news("run", 1, seq, seq * S, 1) for seq in (1, 2, 3)]
    second = [s.received("run", 1, 1, seq, seq * S, seq * S + 5) for seq in (1, 2)]
    phases = [("run", START_NS, START_NS + 5 * S, 1)]
    return s.Run(s.facts("run-1"), [first, second], phases).write(tmp_path / "run")


def append(path: Path, text: str) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write(text)


def read(spark, *paths: Path):
    from bench.spark import logs

    return logs.read(spark, [str(path) for path in paths])


def test_a_good_run(spark, run):
    found = read(spark, run)
    [log] = found.runs
    assert (log.run, log.files, log.lines, log.torn, log.empty) == ("run-1", 4, 9, [], [])
    assert found.events.count() == 5
    assert found.phases.count() == 1
    assert found.machine.count() == 0


@pytest.mark.parametrize("tail", ["received,run,1,1,3,50000", f"received,run,1,1,3,{START_NS},{START_NS + 12},12,"])
def test_a_torn_last_line_is_skipped_and_counted_even_if_it_parses(spark, run, tail):
    append(run / "events-001-0000.csv", tail)
    found = read(spark, run)
    assert found.runs[0].torn == ["events-001-0000.csv"]
    assert found.events.count() == 5


def test_parts_without_a_whole_header_are_skipped_and_counted(spark, run):
    (run / "events-001-0001.csv").write_text("")
    (run / "events-002-0000.csv").write_text("kind,phase,conn")
    (run / "machine.csv").write_text("")
    found = read(spark, run)
    assert sorted(found.runs[0].empty) == ["events-001-0001.csv", "events-002-0000.csv", "machine.csv"]
    assert found.events.count() == 5


def test_what_a_writer_leaves_that_died_in_the_middle_of_each_file(spark, run):
    for name, tail in (("machine.csv", "12"), ("counters.csv", "12,run")):
        header = synthetic.MACHINE_HEADER if name == "machine.csv" else synthetic.COUNTER_HEADER
        (run / name).write_text(f"{header}\n{tail}")
    append(run / "phases.csv", "drain,5,9")
    found = read(spark, run)
    assert sorted(found.runs[0].torn) == ["counters.csv", "machine.csv", "phases.csv"]
    assert found.phases.count() == 1


def _break(run: Path, how: str) -> None:
    part = run / "events-001-0000.csv"
    lines = part.read_text().splitlines()
    if how == "bad line in the middle":
        part.write_text("\n".join([*lines[:2], "received,run,1,1,x,5,5,0,", "garbage", *lines[2:]]) + "\n")
    elif how == "bad last line with its line end":
        append(part, "received,run\n")
    elif how == "foreign file":
        part.write_bytes(b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR" * 20)
    elif how == "other line ends":
        part.write_bytes(part.read_bytes().replace(b"\n", b"\r\n"))
    elif how == "joined parts":
        append(part, part.read_text())
    elif how == "missing part":
        part.rename(run / "events-001-0002.csv")
    elif how == "no phases":
        (run / "phases.csv").unlink()
    elif how == "no run.json":
        (run / "run.json").unlink()
    elif how == "torn run.json":
        (run / "run.json").write_text('{"schema": 1,\n"run"')
    elif how == "empty run.json":
        (run / "run.json").write_text("")
    elif how == "newer schema":
        (run / "run.json").write_text(json.dumps(synthetic.facts(schema=2)))
    elif how == "wrong type":
        (run / "run.json").write_text(json.dumps(synthetic.facts(started_ns="now")))
    elif how == "no events":
        for number in (0, 1):
            (run / f"events-00{number}-0000.csv").write_text(synthetic.EVENT_HEADER + "\n")
    elif how == "only empty parts":
        for number in (0, 1):
            (run / f"events-00{number}-0000.csv").write_text("")
    elif how == "huge run.json":
        (run / "run.json").write_text(" " * (1 << 20) + "{}")


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("bad line in the middle", ["events-001-0000.csv, line 3", "received,run,1,1,x", "1 more bad line"]),
        ("bad last line with its line end", ["events-001-0000.csv, line 4", "received,run"]),
        ("foreign file", ["events-001-0000.csv, line 1", "header"]),
        ("other line ends", ["events-001-0000.csv, line 1", "\\r"]),
        ("joined parts", ["events-001-0000.csv", "header comes 2 times"]),
        ("missing part", ["events-001-0000.csv is missing"]),
        ("no phases", ["phases.csv is missing"]),
        ("no run.json", ["is not a run", "run.json"]),
        ("torn run.json", ["run.json, line 2", "not JSON"]),
        ("empty run.json", ["run.json is empty"]),
        ("newer schema", ["run.json", "schema version 2"]),
        ("wrong type", ["run.json", "'started_ns' must be an integer"]),
        ("no events", ["not one event"]),
        ("only empty parts", ["not one event"]),
        ("huge run.json", ["run.json", "bytes"]),
    ],
)
def test_what_cannot_be_believed_is_refused_by_name(spark, run, how, said):
    _break(run, how)
    with pytest.raises(BenchError) as raised:
        read(spark, run)
    for part in [str(run), *said]:
        assert part in str(raised.value), str(raised.value)
    assert "\n" not in str(raised.value)


def test_paths_that_are_no_runs(spark, run, tmp_path):
    (tmp_path / "empty").mkdir()
    for path, said in (
        (tmp_path / "absent", "absent"),
        (tmp_path / "empty", "empty is not a run"),
        (run / "run.json", "is a file"),
    ):
        with pytest.raises(BenchError, match=said):
            read(spark, run, path)
    twin = tmp_path / "twin"
    twin.mkdir()
    for file in run.iterdir():
        (twin / file.name).write_bytes(file.read_bytes())
    with pytest.raises(BenchError, match="are both run 'run-1'"):
        read(spark, run, twin)
