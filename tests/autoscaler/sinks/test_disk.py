"""The steps of a disk: each is done completely or not."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from unittest import mock

import pytest

from ingeborg.autoscaler.sinks.disk import Disk

DISK = "ingeborg.autoscaler.sinks.disk.os"


def test_a_draft_has_its_content_and_a_name_that_begins_with_a_dot(tmp_path: Path) -> None:
    one, other = (Disk().draft(tmp_path, b"content") for _ in range(2))
    assert one != other
    assert one.name.startswith(".")
    assert one.read_bytes() == b"content"


@pytest.mark.parametrize("call", ["fsync", "fdopen"])
def test_a_draft_that_cannot_be_written_leaves_nothing(tmp_path: Path, call: str) -> None:
    no_room = OSError(errno.ENOSPC, "No space left on device")
    with mock.patch(f"{DISK}.{call}", side_effect=no_room), pytest.raises(OSError, match="No space"):
        Disk().draft(tmp_path, b"content")
    assert list(tmp_path.iterdir()) == []


def test_a_name_is_given_once(tmp_path: Path) -> None:
    disk = Disk()
    one, other = disk.draft(tmp_path, b"one"), disk.draft(tmp_path, b"other")
    name = tmp_path / "name"
    assert disk.publish(one, name)
    assert not disk.publish(other, name)
    disk.sync(tmp_path)
    disk.remove(one)
    disk.remove(one)
    assert name.read_bytes() == b"one"


def test_a_network_file_system_that_sends_a_request_again_has_done_it(tmp_path: Path) -> None:
    disk = Disk()
    draft, name = disk.draft(tmp_path, b"one"), tmp_path / "name"
    link = os.link

    def twice(source: Path, target: Path) -> None:
        link(source, target)
        link(source, target)

    with mock.patch(f"{DISK}.link", twice):
        assert disk.publish(draft, name)


def test_a_draft_that_is_gone_is_told_from_a_name_that_is_taken(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        Disk().publish(tmp_path / ".gone", tmp_path / "name")


def test_a_folder_may_be_there_and_its_parent_has_to_be(tmp_path: Path) -> None:
    for _ in range(2):
        Disk().folder(tmp_path / "inner")
    assert (tmp_path / "inner").is_dir()
    with pytest.raises(FileNotFoundError):
        Disk().folder(tmp_path / "not" / "there")


def test_old_files_are_drafts_that_nobody_has_written_to_since(tmp_path: Path) -> None:
    for name, time_s in ((".old", 1_000), (".new", 3_000), ("entry", 1_000)):
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (time_s, time_s))
    assert Disk().old(tmp_path, 2_000) == [tmp_path / ".old"]
    assert set(Disk().names(tmp_path)) == {".old", ".new", "entry"}


@pytest.mark.parametrize("length", [0, 1, 65_534, 65_535, 65_536, 65_537, 300_000])
@pytest.mark.parametrize("before", [b"", b"first\n", b"x" * 200_000 + b"\n"])
def test_the_last_line_is_found_however_long_it_is(tmp_path: Path, before: bytes, length: int) -> None:
    path = tmp_path / "lines"
    path.write_bytes(before + b"y" * length + b"\n")
    assert Disk().last_line(path) == b"y" * length


def test_an_empty_file_has_an_empty_last_line_and_a_missing_one_has_none(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    assert Disk().last_line(tmp_path / "empty") == b""
    assert Disk().last_line(tmp_path / "missing") is None


def test_lines_are_added_in_one_call_each(tmp_path: Path) -> None:
    disk, path = Disk(), tmp_path / "lines"
    disk.add_line(path, b"one\n")
    disk.add_line(path, b"two\n")
    assert path.read_bytes() == b"one\ntwo\n"
    with mock.patch(f"{DISK}.write", return_value=2), pytest.raises(OSError, match="No space"):
        disk.add_line(path, b"three\n")
