"""The place of a run's temporary files."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests import memory

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def unsaid(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unset the place of temporary files, and make a machine of any size have room."""
    monkeypatch.setattr(tempfile, "tempdir", tempfile.gettempdir())  # the fixture restores this one
    monkeypatch.setenv("TMPDIR", "")
    monkeypatch.delenv("TMPDIR")
    monkeypatch.setattr(memory, "ROOM_BYTES", 1)


def test_files_are_in_the_folder_until_it_is_removed(tmp_path: Path) -> None:
    folder = memory.take(tmp_path)
    assert folder is not None
    assert folder.path.parent == tmp_path
    assert tempfile.gettempdir() == os.environ["TMPDIR"] == str(folder.path)
    with tempfile.NamedTemporaryFile() as file:
        assert Path(file.name).parent == folder.path
    folder.remove()
    assert list(tmp_path.iterdir()) == []


def test_where_there_is_no_room_or_another_place_was_named_files_stay_where_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = tempfile.gettempdir()
    assert memory.take(tmp_path / "nothing") is None
    with monkeypatch.context() as small:
        small.setattr(memory, "ROOM_BYTES", 1 << 60)
        assert memory.take(tmp_path) is None
    with monkeypatch.context() as container:
        free = SimpleNamespace(f_bavail=1 << 40, f_frsize=4096, f_flag=os.ST_NOEXEC)
        container.setattr(os, "statvfs", lambda path: free)
        assert memory.take(tmp_path) is None
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    assert memory.take(tmp_path) is None
    assert tempfile.gettempdir() == before
    assert list(tmp_path.iterdir()) == []


def test_what_a_run_left_goes_with_the_next_one_and_one_that_runs_keeps_its_own(tmp_path: Path) -> None:
    living = memory.Folder(tmp_path)
    left, new, strange = (tmp_path / name for name in (f"{memory.PREFIX}left", f"{memory.PREFIX}new", "strange"))
    target = tmp_path / "target"
    for path in (left / "store", new, strange, target):
        path.mkdir(parents=True)
    link = tmp_path / f"{memory.PREFIX}link"
    link.symlink_to(target)
    for path in (living.path, left, strange, target):
        os.utime(path, (0, 0))
    memory.remove_left(tmp_path)
    assert sorted(tmp_path.iterdir()) == sorted([living.path, new, strange, target, link])
    living.remove()


@pytest.mark.parametrize("passes", [True, False])
def test_a_run_of_pytest_leaves_its_files_only_where_a_test_failed(tmp_path: Path, passes: bool) -> None:
    (tmp_path / "shared").mkdir()
    (tmp_path / "conftest.py").write_text(
        "import pathlib\nfrom tests import memory\nfrom tests.conftest import *\n"
        f"memory.take.__defaults__ = (pathlib.Path({str(tmp_path / 'shared')!r}),)\nmemory.ROOM_BYTES = 1\n"
    )
    (tmp_path / "test_it.py").write_text(
        "import tempfile\ndef test_it(tmp_path):\n"
        f"    assert str(tmp_path).startswith({str(tmp_path / 'shared')!r})\n"
        f"    assert str(tmp_path).startswith(tempfile.gettempdir()) and {passes}\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "1", str(tmp_path)]
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("TMPDIR", "PYTEST"))}
    run = subprocess.run(
        [*command, "-c", os.devnull, f"--rootdir={tmp_path}"],
        cwd=ROOT,
        env=environment | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == (0 if passes else 1), run.stdout + run.stderr
    assert len(list((tmp_path / "shared").iterdir())) == (0 if passes else 1)
