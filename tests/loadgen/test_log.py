"""What is written of a run: lines, parts, run.json; and the tally that sums it up at once."""

from __future__ import annotations

import csv
import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadgen import recorder, rundir
from loadgen.progress import Progress, summary
from loadgen.recorder import Recorder
from loadgen.rundir import RunDirectory
from loadgen.tally import Latencies, Tally


def rows_of(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(recorder.HEADER + text, newline=""), strict=True))


def test_every_kind_has_the_columns_of_the_schema():
    record = Recorder()
    record.news("run", 3, 1, 100, 5)
    record.sent("run", 7, 3, 1, 100, 110, True)
    record.received("run", 8, 3, 1, 100, 90)  # before it was meant to be sent: not clipped
    record.error("drain", 9, 200, "a,b")
    assert len(record) == 4
    news, sent, received, error = rows_of(record.take())
    assert list(news.values()) == ["news", "run", "", "3", "1", "100", "100", "5", ""]
    assert list(sent.values()) == ["sent", "run", "7", "3", "1", "100", "110", "1", ""]
    assert list(received.values()) == ["received", "run", "8", "3", "1", "100", "90", "-10", ""]
    assert list(error.values()) == ["error", "drain", "9", "", "", "", "200", "0", "a,b"]
    assert (len(record), record.take()) == (0, "")


@given(st.text())
def test_an_error_is_one_line_and_comes_back(code):
    record = Recorder()
    record.error("run", 1, 2, code)
    text = record.take()
    assert text.count("\n") == 1
    assert "\r" not in text
    (row,) = rows_of(text)
    assert row["detail"].split() == code.split()


def test_events_go_to_a_new_part_before_it_is_too_long(tmp_path, monkeypatch):
    monkeypatch.setattr(rundir, "PART_LINES_MAX", 10)
    directory = RunDirectory(tmp_path / "run", {"schema": 1})
    for first in range(0, 24, 6):
        directory.events("".join(f"{line}\n" for line in range(first, first + 6)), 6)
    directory.close(complete=True)
    parts = sorted((tmp_path / "run").glob("events-*.csv"))
    assert [part.name for part in parts] == [f"events-000-000{number}.csv" for number in range(4)]
    assert all(part.read_text().startswith(recorder.HEADER) for part in parts)
    lines = [line for part in parts for line in part.read_text().splitlines()[1:]]
    assert lines == [str(line) for line in range(24)]


def test_a_run_is_incomplete_until_it_is_closed_complete(tmp_path):
    directory = RunDirectory(tmp_path / "run", {"schema": 1, "run": "r"})
    file = tmp_path / "run" / "run.json"
    assert json.loads(file.read_text()) == {"schema": 1, "run": "r", "complete": False}
    directory.phase("run", 1, 2, True)
    directory.machine(5, "generator", (0.5, 100, None, None, 1, 2))
    directory.counters(6, "run", "e,1", {'drops{reason="a",b="c"}': 3.0})
    # Readable before it is closed: what a crash would leave.
    assert (tmp_path / "run" / "phases.csv").read_text().splitlines()[1:] == ["run,1,2,1"]
    assert (tmp_path / "run" / "machine.csv").read_text().splitlines()[1:] == ["5,generator,0.5,100,,,1,2"]
    with (tmp_path / "run" / "counters.csv").open(newline="") as counters:
        assert list(csv.reader(counters))[1] == ["6", "run", "e,1", 'drops{reason="a",b="c"}', "3.0"]
    directory.close(complete=True)
    assert json.loads(file.read_text())["complete"] is True


def test_a_directory_with_something_in_it_is_left_alone(tmp_path):
    (tmp_path / "mine").write_text("x")
    with pytest.raises(FileExistsError, match="not empty"):
        RunDirectory(tmp_path, {})
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


@given(st.lists(st.integers(-(10**9), 10**11), min_size=1), st.sampled_from([1, 50, 99, 100]))
def test_percentiles_are_within_their_bucket(values, percent):
    latencies = Latencies()
    for value in values:
        latencies.add(value)
    exact_ns = max(sorted(values)[max(-(-len(values) * percent // 100) - 1, 0)], 0)
    found_ns = latencies.percentile_ms(percent) * 1e6
    assert exact_ns <= found_ns + 1
    assert found_ns <= exact_ns * (1 + 1 / 16) + 2048


def test_the_tally_tells_deliveries_duplicates_and_reorderings():
    tally = Tally(connections=10)
    assert tally.latencies.percentile_ms(50) is None
    tally.add_news(2)
    tally.add_news(2)
    for connection, news, seq in [(1, 0, 1), (2, 1, 2), (2, 0, 1), (2, 0, 1)]:
        tally.add_received(connection, news, 5, seq, 1000)
    assert (tally.received, tally.delivered, tally.duplicates, tally.reordered, tally.lost) == (4, 3, 1, 1, 1)
    tally.errors["internal"] += 3
    table = dict(line.split("  ", 1) for line in summary(tally, [("x", "y")]).splitlines())
    assert {name: value.strip() for name, value in table.items()}["lost"] == "1"
    assert "internal 3" in summary(tally, [])


def test_progress_is_rewritten_on_a_terminal_and_a_line_each_elsewhere():
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    for out in (Terminal(), io.StringIO()):
        progress = Progress(out)
        progress.line("run", 12.3, Tally(1), 10, 2000)
        progress.line("run", 11.3, Tally(1), 10, 2000)
        progress.say("done")
        text = out.getvalue()
        assert "12 s left" in text
        assert "2,000/s" in text
        assert text.endswith("\ndone\n")
        assert text.count("\n") == (2 if out.isatty() else 3)
