"""The files of a run: lines, parts, run.json."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import unicodedata
from pathlib import Path
from unittest.mock import ANY

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingeborg.loadgen.log import recorder, rundir
from ingeborg.loadgen.log.recorder import Recorder
from ingeborg.loadgen.log.rundir import EventFiles, RunDirectory


def rows_of(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(recorder.HEADER + text, newline=""), strict=True))


def test_every_kind_has_the_columns_of_the_schema() -> None:
    record = Recorder()
    record.news("run", 3, 1, 100, 5)
    record.sent("run", 7, 3, 1, 100, 110, True)
    record.received("run", 8, 3, 1, 100, 90)  # before it was meant to be sent: not clipped
    record.received("run", 8, 3, 5, 100, 140, 4)
    record.error("drain", 9, 200, "a,b")
    assert len(record) == 5
    news, sent, received, standing, error = rows_of(record.take())
    assert list(news.values()) == ["news", "run", "", "3", "1", "100", "100", "5", ""]
    assert list(sent.values()) == ["sent", "run", "7", "3", "1", "100", "110", "1", ""]
    assert list(received.values()) == ["received", "run", "8", "3", "1", "100", "90", "-10", ""]
    assert list(standing.values()) == ["received", "run", "8", "3", "5", "100", "140", "40", "4"]
    assert list(error.values()) == ["error", "drain", "9", "", "", "", "200", "0", "a,b"]
    assert (len(record), record.take()) == (0, "")


@given(st.text())
def test_an_error_is_one_line_and_comes_back(code: str) -> None:
    record = Recorder()
    record.error("run", 1, 2, code)
    text = record.take()
    assert text.count("\n") == 1
    assert "\r" not in text
    (row,) = rows_of(text)
    allowed = "".join(
        "\ufffd" if unicodedata.category(c) == "Cc" and c < "\x80" and not c.isspace() else c for c in code
    )
    assert row["detail"].split() == allowed.split()


@pytest.mark.parametrize(
    ("code", "detail"), [("a\x00b", "a\ufffdb"), ("a\r\nb\tc", "a  b c"), ("a\ud800b", "a\ufffdb")]
)
def test_what_the_schema_allows_in_no_field_is_replaced(code: str, detail: str) -> None:
    record = Recorder()
    record.error("run", 1, 2, code)
    (row,) = rows_of(record.take())
    assert row["detail"] == detail


def test_events_go_to_a_new_part_before_it_is_too_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rundir, "PART_LINES_MAX", 10)
    files = EventFiles(tmp_path, 7)
    for first in range(0, 24, 6):
        files.write("".join(f"{line}\n" for line in range(first, first + 6)), 6)
    files.close()
    parts = sorted(tmp_path.glob("events-*.csv"))
    assert [part.name for part in parts] == [f"events-007-000{number}.csv" for number in range(4)]
    assert all(part.read_text().startswith(recorder.HEADER) for part in parts)
    lines = [line for part in parts for line in part.read_text().splitlines()[1:]]
    assert lines == [str(line) for line in range(24)]


def test_a_run_is_incomplete_until_it_is_closed_complete(tmp_path: Path) -> None:
    directory = RunDirectory(tmp_path / "run", {"schema": 2, "run": "r"})
    file = tmp_path / "run" / "run.json"
    assert json.loads(file.read_text()) == {"schema": 2, "run": "r", "complete": False}
    directory.phase("connect", "connect", 1, 2, measured=False, amount=20)
    directory.phase("search-01", "search", 2, 3, measured=False, offered_per_s=500.0, detail='p99, "late"')
    directory.machine(5, "generator-0", "generator", (0.5, 100, 90, None, None, 1, 2))
    directory.counters(6, "run", "e,1", {'drops{reason="a",b="c"}': 3.0})
    # It is readable before it is closed, as after a crash.
    assert rows(tmp_path / "run" / "phases.csv") == [
        ["phase", "kind", "start_ns", "end_ns", "measured", "offered_per_s", "amount", "detail"],
        ["connect", "connect", "1", "2", "0", "", "20", ""],
        ["search-01", "search", "2", "3", "0", "500", "", 'p99, "late"'],
    ]
    (sample,) = rows(tmp_path / "run" / "machine.csv")[1:]
    assert sample == ["5", "generator-0", "generator", "0.5", "100", "90", "", "", "1", "2"]
    assert rows(tmp_path / "run" / "counters.csv")[1] == ["6", "run", "e,1", 'drops{reason="a",b="c"}', "3.0"]
    directory.close(complete=True)
    assert json.loads(file.read_text())["complete"] is True


def test_the_forms_of_endpoints_are_facts_at_once_and_each_is_said_once(tmp_path: Path) -> None:
    directory = RunDirectory(tmp_path, {"schema": 2, "form": {"generator": "interpreted"}})
    for endpoint, form in (("a", "compiled"), ("b", "interpreted"), ("a", "compiled"), ("b", "compiled")):
        directory.form(endpoint, form)
    facts = json.loads((tmp_path / "run.json").read_text())
    endpoints = {"a": "compiled", "b": "interpreted, then compiled"}
    assert facts["form"] == {"generator": "interpreted", "endpoints": endpoints}
    directory.close(complete=True)
    assert json.loads((tmp_path / "run.json").read_text())["form"] == facts["form"]


def test_a_run_that_failed_says_why(tmp_path: Path) -> None:
    directory = RunDirectory(tmp_path, {"schema": 2})
    directory.close(complete=False, failed="subscribe: no answer")
    assert json.loads((tmp_path / "run.json").read_text()) == {
        "schema": 2,
        "complete": False,
        "failed": "subscribe: no answer",
        "files": ANY,
    }


def test_a_run_that_could_not_begin_leaves_nothing_but_what_is_not_its_own(tmp_path: Path) -> None:
    directory = RunDirectory(tmp_path / "run", {})
    EventFiles(tmp_path / "run", 0).close()
    directory.discard()
    assert not (tmp_path / "run").exists()
    directory = RunDirectory(tmp_path / "run", {})
    (tmp_path / "run" / "mine").write_text("x")
    directory.discard()
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["mine"]


def test_a_directory_with_something_in_it_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("x")
    with pytest.raises(FileExistsError, match="not empty"):
        RunDirectory(tmp_path, {})
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def rows(path: Path) -> list[list[str]]:
    with path.open(newline="") as file:
        return list(csv.reader(file, strict=True))


def test_a_run_that_is_closed_names_its_files_with_their_checksums(tmp_path: Path) -> None:
    directory = RunDirectory(tmp_path / "run", {"schema": 2})
    events = EventFiles(tmp_path / "run", 3)
    events.write("a line\n", 1)
    events.close()
    directory.close(complete=True)
    files = json.loads((tmp_path / "run" / "run.json").read_text())["files"]
    assert sorted(files) == ["counters.csv", "events-003-0000.csv", "machine.csv", "phases.csv"]
    for name, of_file in files.items():
        content = (tmp_path / "run" / name).read_bytes()
        assert of_file == {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
