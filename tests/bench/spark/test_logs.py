"""Logs that are accepted, parts that are left out and counted, and errors that name file and line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ingeborg.bench.digest.document import Json
from ingeborg.bench.errors import BenchError
from tests.bench import synthetic
from tests.bench.synthetic import START_NS, S

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ingeborg.bench.spark.logs import Logs

pytestmark = pytest.mark.spark


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Write a good run of two processes, with three news and two deliveries."""
    s = synthetic
    first = [s.news("run", 1, seq, seq * S, 1) for seq in (1, 2, 3)]
    second = [s.received("run", 1, 1, seq, seq * S, seq * S + 5) for seq in (1, 2)]
    phases = [s.phase("run", "run", 0, 5 * S, 1)]
    return s.Run(s.facts("run-1"), [first, second], phases).write(tmp_path / "run")


def killed(run: Path) -> None:
    """Make the run an unclosed one, whose writers were killed."""
    (run / "run.json").write_text(json.dumps(synthetic.facts("run-1", complete=False)))


def append(path: Path, text: str) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write(text)


def read(spark: SparkSession, *paths: Path) -> Logs:
    from ingeborg.bench.spark import inventory, logs

    return logs.read(spark, inventory.find(spark, [str(path) for path in paths]))


def test_a_good_run(spark: SparkSession, run: Path) -> None:
    found = read(spark, run)
    [log] = found.runs
    assert (log.run, len(log.files), log.lines, log.deliveries) == ("run-1", 4, 9, 2)
    assert (log.torn, log.empty) == ([], [])
    assert found.events.count() == 5
    assert found.phases.count() == 1
    assert found.machine.count() == 0


@pytest.mark.parametrize("tail", ["received,run,1,1,3,50000", f"received,run,1,1,3,{START_NS},{START_NS + 12},12,"])
def test_a_torn_last_line_is_skipped_and_counted_even_if_it_parses(spark: SparkSession, run: Path, tail: str) -> None:
    killed(run)
    append(run / "events-001-0000.csv", tail)
    found = read(spark, run)
    assert found.runs[0].torn == ["events-001-0000.csv"]
    assert found.events.count() == 5


def test_parts_without_a_whole_header_are_skipped_and_counted(spark: SparkSession, run: Path) -> None:
    killed(run)
    (run / "events-001-0001.csv").write_text("")
    (run / "events-002-0000.csv").write_text("kind,phase,conn")
    (run / "machine.csv").write_text("")
    found = read(spark, run)
    assert sorted(found.runs[0].empty) == ["events-001-0001.csv", "events-002-0000.csv", "machine.csv"]
    assert found.events.count() == 5


def test_what_a_writer_leaves_that_died_in_the_middle_of_each_file(spark: SparkSession, run: Path) -> None:
    killed(run)
    for name, tail in (("machine.csv", "12"), ("counters.csv", "12,run")):
        header = synthetic.MACHINE_HEADER if name == "machine.csv" else synthetic.COUNTER_HEADER
        (run / name).write_text(f"{header}\n{tail}")
    append(run / "phases.csv", "drain,5,9")
    found = read(spark, run)
    assert sorted(found.runs[0].torn) == ["counters.csv", "machine.csv", "phases.csv"]
    assert found.phases.count() == 1


def _break(run: Path, how: str) -> None:
    part = run / "events-001-0000.csv"
    first = run / "events-000-0000.csv"
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
        (run / "run.json").write_text('{"schema": 2,\n"run"')
    elif how == "empty run.json":
        (run / "run.json").write_text("")
    elif how == "other schema":
        (run / "run.json").write_text(json.dumps(synthetic.facts(schema=1)))
    elif how == "phase of no kind":
        (run / "phases.csv").write_text(f"{synthetic.PHASE_HEADER}\nrun,party,{START_NS},{START_NS},1,,,\n")
    elif how == "header of version 1":
        (run / "machine.csv").write_text("at_ns,source,cpu_s\n")
    elif how == "process of no role":
        (run / "machine.csv").write_text(f"{synthetic.MACHINE_HEADER}\n{START_NS},a,cook,1.0,1,,,,,\n")
    elif how == "a row where the header belongs":
        part.write_text("\n".join(lines[1:]) + "\n")
    elif how == "wrong type":
        (run / "run.json").write_text(json.dumps(synthetic.facts(started_ns="now")))
    elif how == "beyond all clocks":
        (run / "run.json").write_text(json.dumps(synthetic.facts(started_ns=10**30)))
    elif how == "no date":
        (run / "run.json").write_text(json.dumps(synthetic.facts(started_unix_ms="today")))
    elif how == "a command in words":
        (run / "run.json").write_text(json.dumps(synthetic.facts(command=["loadgen", "radio"])))
    elif how == "a time without a difference":
        append(part, f"error,run,1,,,,{-(1 << 63)},0,code\n")
    elif how == "no events":
        for number in (0, 1):
            (run / f"events-00{number}-0000.csv").write_text(synthetic.EVENT_HEADER + "\n")
    elif how == "only empty parts":
        for number in (0, 1):
            (run / f"events-00{number}-0000.csv").write_text("")
    elif how == "a process is missing":
        first.unlink()
    elif how == "the last process is missing":
        (run / "run.json").write_text(json.dumps(synthetic.facts("run-1", config={"processes": 3})))
    elif how == "a process too many":
        (run / "run.json").write_text(json.dumps(synthetic.facts("run-1", config={"processes": 1})))
    elif how == "torn in a run that ended":
        append(part, "received,run,1,1,3,50000")
    elif how == "torn in a middle part":
        killed(run)
        append(part, "received,run,1,1,3,50000")
        (run / "events-001-0001.csv").write_text(synthetic.EVENT_HEADER + "\n")
    elif how == "empty middle part":
        killed(run)
        (run / "events-001-0001.csv").write_text("")
        (run / "events-001-0002.csv").write_text(synthetic.EVENT_HEADER + "\n")
    elif how == "empty in a run that ended":
        (run / "machine.csv").write_text("")
    elif how == "NUL in detail":
        append(part, f"error,run,1,,,,{START_NS},0,a\0b\n")
    elif how == "a carriage return in one line":
        append(part, f"error,run,1,,,,{START_NS},0,code\r\n")
    elif how == "not UTF-8":
        part.write_bytes(part.read_bytes() + f"error,run,1,,,,{START_NS},0,".encode() + b"\xff\xfe\n")
    elif how == "byte order mark":
        part.write_bytes(b"\xef\xbb\xbf" + part.read_bytes())
    elif how == "UTF-16":
        part.write_bytes(part.read_text().encode("utf-16"))
    elif how == "packed part":
        part.rename(run / "events-001-0000.csv.gz")
    elif how == "copied part":
        (run / "events-001-0000 (copy).csv").write_text(part.read_text())
    elif how == "number written twice":
        (run / "events-001-00000.csv").write_text(part.read_text())
    elif how == "a part of a later run":
        rows = [synthetic.received("run", 1, 1, 1, 3600 * S, 3600 * S + 5)]
        synthetic.write_csv(run / "events-002-0000.csv", synthetic.EVENT_HEADER, rows)
    elif how == "a huge line":
        append(part, "x" * (4 << 20) + "\n")
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
        ("a process is missing", ["events-000-0000.csv is missing", "2 processes", "copy the run again"]),
        ("the last process is missing", ["events-002-0000.csv is missing", "3 processes"]),
        ("a process too many", ["events-001-0000.csv is not of this run", "1 processes"]),
        ("torn in a run that ended", ["events-001-0000.csv, line 4: torn", "copy the run again"]),
        ("torn in a middle part", ["events-001-0000.csv, line 4: torn", "copy the run again"]),
        ("empty middle part", ["events-001-0001.csv is empty"]),
        ("empty in a run that ended", ["machine.csv is empty"]),
        ("NUL in detail", ["events-001-0000.csv, line 4: a control character"]),
        ("a carriage return in one line", ["events-001-0000.csv, line 4: a control character"]),
        ("not UTF-8", ["events-001-0000.csv, line 4: not UTF-8"]),
        ("byte order mark", ["events-001-0000.csv, line 1", "byte order mark"]),
        ("UTF-16", ["events-001-0000.csv, line 1"]),
        ("packed part", ["events-001-0000.csv.gz is not a part", "unpack it"]),
        ("copied part", ["events-001-0000 (copy).csv is not a part"]),
        ("number written twice", ["events-001-00000.csv is not a part"]),
        ("a part of a later run", ["events-002-0000.csv has events from outside the run"]),
        ("a huge line", ["events-001-0000.csv, line 4", "does not fit"]),
        ("no phases", ["phases.csv is missing"]),
        ("no run.json", ["is not a run", "run.json"]),
        ("torn run.json", ["run.json, line 2", "not JSON"]),
        ("empty run.json", ["run.json is empty"]),
        ("other schema", ["run.json", "schema version 1; this digest reads version 2"]),
        ("phase of no kind", ["phases.csv, line 2: unknown kind", "party"]),
        ("header of version 1", ["machine.csv, line 1: the header of machine must be", "'at_ns,source,cpu_s'"]),
        ("process of no role", ["machine.csv, line 2: unknown role", "cook"]),
        ("a row where the header belongs", ["events-001-0000.csv, line 1", "not a data row"]),
        ("wrong type", ["run.json", "'started_ns' must be an integer"]),
        ("beyond all clocks", ["run.json", "'started_ns' must be a time in ns, not 1000"]),
        ("no date", ["run.json", "'started_unix_ms' must be an integer, not 'today'"]),
        ("a command in words", ["run.json", "'command' must be a string, not ['loadgen', 'radio']"]),
        ("a time without a difference", ["events-001-0000.csv, line 4: at_ns is missing, or more than a week"]),
        ("no events", ["there is no event"]),
        ("only empty parts", ["events-000-0000.csv is empty"]),
        ("huge run.json", ["run.json", "bytes"]),
    ],
)
def test_what_cannot_be_believed_is_refused_by_name(spark: SparkSession, run: Path, how: str, said: list[str]) -> None:
    _break(run, how)
    with pytest.raises(BenchError) as raised:
        read(spark, run)
    for part in [str(run), *said]:
        assert part in str(raised.value), str(raised.value)
    assert str(raised.value).isprintable()
    assert len(str(raised.value)) < 1_000


def test_a_run_that_did_not_end_well_may_lack_what_it_had_not_come_to(spark: SparkSession, run: Path) -> None:
    for name in ("events-000-0000.csv", "events-001-0000.csv", "phases.csv"):
        (run / name).unlink()
    with pytest.raises(BenchError, match=r"events-\*\.csv is missing"):
        read(spark, run)
    (run / "run.json").write_text(json.dumps(synthetic.facts("run-1", complete=False, failed="no connection")))
    found = read(spark, run)
    assert (found.runs[0].lines, found.events.count(), found.phases.count()) == (0, 0, 0)


def test_the_line_of_an_error_is_found_in_a_file_read_in_blocks(spark: SparkSession, run: Path) -> None:
    good = f"news,run,,1,1,{START_NS},{START_NS},1,\n"
    bad = "news,run,,1,1,bad\n"
    part = run / "events-000-0000.csv"
    part.write_text(f"{synthetic.EVENT_HEADER}\n" + good * 2_000 + bad + good * 3_000 + bad)
    before = spark.conf.get("spark.sql.files.maxPartitionBytes")
    assert before is not None
    spark.conf.set("spark.sql.files.maxPartitionBytes", "20000")
    try:
        with pytest.raises(BenchError, match=r"events-000-0000\.csv, line 2002: .*1 more bad line"):
            read(spark, run)
    finally:
        spark.conf.set("spark.sql.files.maxPartitionBytes", before)


def test_runs_are_found_at_any_depth_and_only_once(spark: SparkSession, run: Path, tmp_path: Path) -> None:
    from ingeborg.bench.spark import inventory

    tree = tmp_path / "tree" / "rate=100" / "[a] {b}"
    tree.mkdir(parents=True)
    inner = run.rename(tree / "run 1")
    other = inner / "digest"  # a digest in a run's directory, with tables of the same names
    other.mkdir()
    (other / "machine.csv").write_text("run,source\n")
    (other / "digest.json").write_text("{}")
    late = synthetic.Run(
        synthetic.facts("run-2", started_unix_ms=1_872_000_000_000),
        [[synthetic.news("run", 1, 1, S, 1)]],
        [synthetic.phase("run", "run", 0, 5 * S, 1)],
    )
    late.write(tmp_path / "tree" / "later")
    paths = [tmp_path / "tree", inner]
    found = inventory.find(spark, [str(path) for path in paths])
    assert [each.run for each in found] == ["run-1", "run-2"]
    assert [each.shown for each in found] == [str(inner), str(tmp_path / "tree" / "later")]
    assert read(spark, *paths).events.count() == 6
    (other / "events-000-0000.csv").write_text("")
    with pytest.raises(BenchError, match=r"digest is not a run: there is no run\.json in it"):
        inventory.find(spark, [str(path) for path in paths])


def test_paths_that_are_no_runs(spark: SparkSession, run: Path, tmp_path: Path) -> None:
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


@pytest.fixture
def named(run: Path) -> Path:
    """Return the good run, as loadgen closes it: run.json names its files."""
    synthetic.name_files(run)
    return run


def digested(spark: SparkSession, *paths: Path, out: Path) -> Json:
    from ingeborg.bench.spark import job

    out.mkdir(exist_ok=True)
    return job.digest(spark, [str(path) for path in paths], out, fresh=True, say=lambda _: None)


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("a part less", "events-001-0000.csv is missing, though run.json names it"),
        ("a table less", "counters.csv is missing, though run.json names it"),
        ("a part more", "events-002-0000.csv is not one of the files that run.json names"),
        ("a table more", "machine.csv is not one of the files that run.json names"),
        ("a line less", "events-000-0000.csv has 108 bytes, not 198"),
        ("a digit changed", "phases.csv is not what the run wrote"),
        ("two lines swapped", "events-000-0000.csv is not what the run wrote"),
        ("a manifest of nothing", "'files' must name files of a log, each with bytes and sha256, not 'phases.csv'"),
        (
            "a manifest of other files",
            "each with bytes and sha256, not '/etc/passwd'",
        ),
    ],
)
def test_a_run_is_what_its_run_json_names(spark: SparkSession, run: Path, tmp_path: Path, how: str, said: str) -> None:
    (run / "counters.csv").write_text(synthetic.COUNTER_HEADER + "\n")
    synthetic.name_files(run)
    part = run / "events-000-0000.csv"
    lines = part.read_text().splitlines(keepends=True)
    facts = json.loads((run / "run.json").read_text())
    if how == "a part less":
        (run / "events-001-0000.csv").unlink()
    elif how == "a table less":
        (run / "counters.csv").unlink()
    elif how == "a part more":
        (run / "events-002-0000.csv").write_text(synthetic.EVENT_HEADER + "\n")
    elif how == "a table more":
        (run / "machine.csv").write_text(synthetic.MACHINE_HEADER + "\n")
    elif how == "a line less":
        part.write_text("".join(lines[:2]))
    elif how == "a digit changed":
        (run / "phases.csv").write_text((run / "phases.csv").read_text().replace("5005", "5004"))
    elif how == "two lines swapped":
        part.write_text("".join([lines[0], lines[2], lines[1], *lines[3:]]))
    elif how == "a manifest of nothing":
        facts["files"]["phases.csv"] = {"bytes": "many"}
    elif how == "a manifest of other files":
        facts["files"]["/etc/passwd"] = {"bytes": 1, "sha256": ""}
    (run / "run.json").write_text(json.dumps(facts))
    with pytest.raises(BenchError) as raised:
        digested(spark, run, out=tmp_path / "digest")
    assert said in str(raised.value), str(raised.value)
    assert str(run) in str(raised.value)


def test_a_part_that_is_there_twice_is_refused_without_a_manifest_too(
    spark: SparkSession, run: Path, tmp_path: Path
) -> None:
    (run / "events-002-0000.csv").write_bytes((run / "events-001-0000.csv").read_bytes())
    with pytest.raises(BenchError, match=r"events-002-0000\.csv is the same, byte for byte, as events-001-0000\.csv"):
        digested(spark, run, out=tmp_path / "digest")


def test_a_part_that_is_a_link_to_another_is_there_twice(spark: SparkSession, run: Path, tmp_path: Path) -> None:
    (run / "events-002-0000.csv").symlink_to("events-001-0000.csv")
    with pytest.raises(BenchError, match="is the same, byte for byte"):
        digested(spark, run, out=tmp_path / "digest")


def test_a_run_given_twice_by_whatever_name_is_one(spark: SparkSession, named: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(named)
    (named.parent / "loop").mkdir()
    (named.parent / "loop" / "run").symlink_to(named)
    (named.parent / "loop" / "again").symlink_to(named.parent / "loop")
    paths = [named, named, tmp_path / "link", named / ".." / "run", tmp_path / "loop"]
    [found] = read(spark, *paths).runs
    assert (found.run, found.deliveries) == ("run-1", 2)


def test_what_a_killed_process_left_torn_is_named_in_the_manifest_of_a_run_that_failed(
    spark: SparkSession, run: Path
) -> None:
    from ingeborg.bench.spark.inventory import made_of

    (run / "run.json").write_text(json.dumps(synthetic.facts("run-1", complete=False, failed="a process died")))
    append(run / "events-001-0000.csv", "received,run,1,1,3,50000")
    synthetic.name_files(run)
    [found] = read(spark, run).runs
    made_of(found)  # rejects files that differ from what the run wrote
    assert (found.facts["failed"], found.torn) == ("a process died", ["events-001-0000.csv"])
