"""ARCHITECTURE.md agrees with the files: its generated parts are up to date, and the things it names exist."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from tests.frame.architecture import PAGE, ROOT, made

PACKAGES = ("protocol", "broker", "autoscaler", "loadgen", "bench", "tests")


@cache
def page() -> str:
    return PAGE.read_text(encoding="utf-8")


@cache
def sources() -> dict[str, Path]:
    """Return the sources by path below the root."""
    found = [
        path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py")) if "ingeborg/" not in str(path)
    ]
    return {path.relative_to(ROOT).as_posix(): path for path in found if not path.is_symlink()}


def named(pattern: str) -> list[str]:
    return sorted(set(re.findall(pattern, page())))


def test_what_is_made_of_the_files_is_up_to_date() -> None:
    assert made(page()) == page(), "run `.venv/bin/python -m tests.frame.architecture`"


@pytest.mark.parametrize("path", named(r"`([\w/.]+\.py)`"))
def test_each_file_that_it_names_is_there(path: str) -> None:
    assert any(known == path or known.endswith(f"/{path}") for known in sources()), f"there is no {path}"


@cache
def members() -> dict[str, set[str]]:
    """Return the names of each class's methods and attributes, including those of its base classes."""
    found: dict[str, set[str]] = {}
    bases: dict[str, list[str]] = {}
    for name, path in sources().items():
        if name.startswith(("broker/", "protocol/", "tests/")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.ClassDef):
                    names = found.setdefault(node.name, set())
                    bases[node.name] = [base.id for base in node.bases if isinstance(base, ast.Name)]
                    for inside in ast.walk(node):
                        if isinstance(inside, ast.FunctionDef):
                            names.add(inside.name)
                        elif isinstance(inside, ast.Attribute):
                            names.add(inside.attr)
                        elif isinstance(inside, ast.AnnAssign) and isinstance(inside.target, ast.Name):
                            names.add(inside.target.id)
    for name, made_of in bases.items():
        for base in made_of:
            found[name] |= found.get(base, set())
    return found


@pytest.mark.parametrize("member", named(r"`([A-Z]\w+\.\w+)`"))
def test_each_method_that_it_names_is_there(member: str) -> None:
    kind, _, name = member.partition(".")
    if kind != "ADR" and name not in ("md", "py"):
        assert name in members().get(kind, set()), f"there is no {member}"
