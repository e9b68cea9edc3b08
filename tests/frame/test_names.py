"""One import name: Python loads every module of ours as ``ingeborg.…``, and none twice.

A module under two names has two copies of each class: an ``except`` for one does not catch the other's error.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

from tests.frame.arrows import NAME, OURS, short_imports
from tests.frame.test_files import project_files

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = 60


def python(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Python with these arguments in a folder."""
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=PATIENCE_S)


def test_nothing_is_imported_by_its_short_name() -> None:
    found = []
    for path in project_files():
        if path.suffix == ".py":
            imports = short_imports(path.read_text(encoding="utf-8"))
            found += [f"{path.relative_to(ROOT)}:{line}: {module}" for line, module in imports]
    assert found == []


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("import broker", ["broker"]),
        ("def f():\n    from protocol.client import Client", ["protocol.client"]),
        ("if TYPE_CHECKING:\n    import bench.report as page", ["bench.report"]),
        ("x = 1; import os, \\\n    re, \\\n    loadgen.cli", ["loadgen.cli"]),
        ("import\tbroker", ["broker"]),
        ("import ingeborg.broker\nfrom ingeborg import protocol\nfrom .broker import x\nfrom tests import wants", []),
    ],
)
def test_a_short_name_is_found_wherever_it_stands(source: str, found: list[str]) -> None:
    assert [module for _, module in short_imports(source)] == found


@pytest.mark.parametrize("top", sorted(OURS))
def test_a_package_refuses_to_be_loaded_by_its_short_name(top: str) -> None:
    """The repository's root is on the path wherever Python is started there."""
    done = python(ROOT, "-c", f"import {NAME}.{top}; import {top}")
    assert done.returncode == 1
    assert done.stderr.endswith(f"ImportError: {top}: import it as {NAME}.{top}\n"), done.stderr


def test_no_module_of_this_process_is_there_twice() -> None:
    names = defaultdict(set)
    ours = set(project_files())
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        # The repository may contain an environment, whose packages are not ours.
        if file and Path(os.path.realpath(file)) in ours:
            names[os.path.realpath(file)].add(name)
    assert names, "this test's own module is one"
    assert [each for each in names.values() if len(each - {"__main__", "__mp_main__"}) > 1] == []


def test_the_name_has_a_link_to_each_folder_and_nothing_else_of_them() -> None:
    links = {path.name: os.readlink(path) for path in (ROOT / NAME).iterdir() if path.is_symlink()}
    assert links == {top: f"../{top}" for top in OURS}
    assert {path.name for path in (ROOT / NAME).glob("*.py")} == {"__init__.py", "form.py", "scripts.py", "streams.py"}


def without_links(folder: Path) -> None:
    """Make the checkout of a git that may not make links."""
    (folder / NAME).mkdir()
    for name in ("__init__.py", "scripts.py", "py.typed"):
        shutil.copy(ROOT / NAME / name, folder / NAME)
    shutil.copy(ROOT / "setup.py", folder)
    for top in OURS:
        (folder / NAME / top).write_text(f"../{top}")


def test_a_checkout_without_links_says_so_when_it_is_imported(tmp_path: Path) -> None:
    without_links(tmp_path)
    done = python(tmp_path, "-I", "-S", "-c", f"import sys; sys.path.insert(0, '.'); import {NAME}.broker.cli")
    assert done.returncode == 1
    assert f"{NAME}/protocol is a file and has to be a symbolic link" in done.stderr


def test_a_checkout_without_links_says_so_when_it_is_built(tmp_path: Path) -> None:
    without_links(tmp_path)
    done = python(tmp_path, "setup.py", "--version")
    assert done.returncode == 1
    assert (
        "ingeborg/broker, ingeborg/loadgen, ingeborg/protocol: each is a file and has to be a symbolic link"
        in done.stderr
    )
