"""Compiled or interpreted: a process runs the chosen form, and never a build of other sources."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest

from ingeborg import form

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = 60
SAY = "import ingeborg.protocol.wire as wire; print(wire.__file__)"


class Tree:
    """A copy of the sources. A text file stands for the extension module of `wire`: Python loads it, and fails."""

    def __init__(self, root: Path) -> None:
        self.package = root / "ingeborg"
        shutil.copytree(ROOT / "ingeborg", self.package, symlinks=True, ignore=shutil.ignore_patterns("*.so", "*.txt"))
        for top in ("autoscaler", "broker", "protocol"):
            shutil.copytree(ROOT / top, root / top, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
        self.project = root / "pyproject.toml"
        self.project.touch()
        self.source = root / "protocol" / "wire.py"
        self.extension = self.source.with_name("wire" + EXTENSION_SUFFIXES[0])
        self.record = self.package / form.RECORD

    def build(self) -> None:
        self.extension.write_text("no machine code")
        self.record.write_text(form.fingerprint(self.package) + "\n")

    def run(self, *arguments: str, pure: str | None = None) -> subprocess.CompletedProcess[str]:
        environment = {name: value for name, value in os.environ.items() if name != form.VARIABLE}
        if pure is not None:
            environment[form.VARIABLE] = pure
        return subprocess.run(
            [sys.executable, *arguments],
            cwd=self.package.parent,
            env=environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


def test_every_module_that_decides_is_compiled() -> None:
    found = set(form.sources())
    assert {"broker/core/router.py", "broker/core/messages/home.py", "protocol/wire.py"} <= found
    pure = [path for top in ("broker/core", "autoscaler/groups") for path in (ROOT / top).rglob("*.py")]
    wanted = {path.relative_to(ROOT).as_posix() for path in pure if path.name != "__init__.py"}
    assert wanted - found == set(form.EXCEPT)


def test_what_is_not_compiled_of_the_core_are_records_of_msgspec() -> None:
    for name in form.EXCEPT:
        assert "(Struct" in (ROOT / name).read_text(encoding="utf-8")


def test_the_fingerprint_is_of_every_byte_and_every_name(tree: Tree) -> None:
    first = form.fingerprint(tree.package)
    assert first == form.fingerprint()
    tree.source.write_text(tree.source.read_text() + "#")
    second = form.fingerprint(tree.package)
    tree.source.with_name("topics.py").unlink()
    assert len({first, second, form.fingerprint(tree.package)}) == 3


def test_what_is_not_compiled_is_interpreted(tree: Tree) -> None:
    done = tree.run("-c", SAY)
    assert done.stdout.strip() == str(tree.package / "protocol" / "wire.py"), done.stderr


@pytest.mark.parametrize("pure", [None, "", "0"])
def test_what_is_compiled_is_run(tree: Tree, pure: str | None) -> None:
    tree.build()
    done = tree.run("-c", SAY, pure=pure)
    assert done.returncode == 1
    assert tree.extension.name in done.stderr.splitlines()[-1]  # Python has tried to load it


def test_the_sources_are_run_where_that_is_asked_for(tree: Tree) -> None:
    tree.build()
    done = tree.run("-c", f"{SAY}; from ingeborg import form; print(form.name())", pure="1")
    assert done.stdout.split() == [str(tree.package / "protocol" / "wire.py"), "interpreted"], done.stderr


def test_a_build_of_other_sources_is_refused_in_a_checkout_and_says_what_to_do(tree: Tree) -> None:
    tree.build()
    tree.source.write_text(tree.source.read_text() + "\n")
    done = tree.run("-c", "import ingeborg")
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last.startswith("ImportError: the extension modules were compiled from other sources")
    assert "make compiled" in last
    assert tree.run("-c", "import ingeborg", pure="1").returncode == 0
    tree.record.write_text(form.UNFINISHED + "\n")
    assert tree.run("-c", "import ingeborg").returncode == 1  # cut short
    tree.project.unlink()  # an installed package is consistent, so no process checks it
    assert tree.run("-c", "import ingeborg").returncode == 0


def test_a_build_is_removed_with_its_record(tree: Tree) -> None:
    tree.build()
    others = {path for path in tree.package.parent.rglob("*") if path not in (tree.extension, tree.record)}
    assert tree.run(str(tree.package / "form.py")).returncode == 0
    left = {path for path in tree.package.parent.rglob("*") if "__pycache__" not in path.parts}
    assert left == {path for path in others if "__pycache__" not in path.parts}
