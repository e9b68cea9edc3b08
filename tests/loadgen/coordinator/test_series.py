"""An interrupted topics benchmark continues where it stopped."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ingeborg.loadgen.coordinator.series import SERIES_FILE, Series
from ingeborg.loadgen.coordinator.session import Target
from ingeborg.loadgen.workloads.settings import Topics, WorkloadError

TARGET = Target("nats", ["nats://127.0.0.1:1"])


def numbers(series: Series) -> list[int]:
    return [topics for topics, _ in series.left()]


def test_what_is_done_is_not_done_again_and_what_was_begun_is_removed(tmp_path: Path) -> None:
    series = Series(tmp_path / "s", TARGET, Topics(last=8), resume=False)
    for topics, directory in series.left():
        directory.mkdir()
        (directory / "run.json").write_text("{}")
        if topics == 4:
            break
        series.done(topics, directory)
    again = Series(tmp_path / "s", TARGET, Topics(last=16), resume=True)  # a longer series continues a shorter one
    assert again.id == series.id
    assert numbers(again) == [4, 8, 16]
    assert sorted(path.name for path in (tmp_path / "s").iterdir()) == ["n-00000001", "n-00000002", SERIES_FILE]


def test_a_new_series_takes_nothing_of_an_old_one(tmp_path: Path) -> None:
    Series(tmp_path, TARGET, Topics(), resume=False)
    with pytest.raises(FileExistsError, match="--resume"):
        Series(tmp_path, TARGET, Topics(), resume=False)


@pytest.mark.parametrize(
    ("target", "settings", "what"),
    [
        (Target("redis", ["redis://127.0.0.1:1"]), Topics(), "system"),
        (Target("nats", ["nats://127.0.0.1:1"], "2.10"), Topics(), "variant"),
        (TARGET, Topics(messages=7), "settings"),
    ],
)
def test_a_series_of_something_else_is_not_resumed(tmp_path: Path, target: Target, settings: Topics, what: str) -> None:
    Series(tmp_path, TARGET, Topics(), resume=False)
    with pytest.raises(WorkloadError, match=f"another {what}"):
        Series(tmp_path, target, settings, resume=True)


@pytest.mark.parametrize("text", ["", "[]", json.dumps({"system": "nats"})])
def test_a_file_that_is_no_series_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / SERIES_FILE).write_text(text)
    with pytest.raises(WorkloadError, match="is not a series' file"):
        Series(tmp_path, TARGET, Topics(), resume=True)


def test_resuming_where_nothing_is_begins(tmp_path: Path) -> None:
    assert numbers(Series(tmp_path / "s", TARGET, Topics(last=2), resume=True)) == [1, 2]
