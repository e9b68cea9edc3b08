"""Rules for every file of the project: modules describe themselves, and no file names the machine it was made on."""

from __future__ import annotations

import ast
import re
import subprocess
import tomllib
from itertools import chain
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CODE = ("ingeborg", "protocol", "broker", "autoscaler", "loadgen", "bench", "tests")

#: A package with its version, and a marker where a requirement of ours has one; then the first of its hashes.
PINNED = re.compile(r"[a-z0-9-]+==\S+ (; [^\\\n]+ )?\\\n +--hash=sha256:")

DOCSTRING = re.compile(r'(?:#.*\n|\s)*"""\s*[^"\s]')
"""The beginning of a module with a docstring. Parsing all modules would take four seconds."""

MACHINE_PATH = re.compile(r"(?<![\w.~$}>*/-])/(?:home|Users|root|work|workspaces?)/[\w.]")
"""An absolute path into somebody's folders, which is right on one machine only."""

SCRIPTS = sorted(
    path.relative_to(ROOT).as_posix()
    for path in [*ROOT.glob(".ci/*"), *ROOT.glob("deploy/**/*.sh"), *ROOT.glob("bench/*.sh")]
    if path.is_file() and path.suffix != ".py"
)


def project_files() -> list[Path]:
    """Return the files that are or would be committed; without git (a source archive), the code and the pages."""
    try:
        listed = subprocess.run(
            ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
            cwd=ROOT,
            capture_output=True,
            check=True,
            timeout=30,
        ).stdout.decode()
        paths = [ROOT / name for name in listed.split("\0") if name]
    except (OSError, subprocess.CalledProcessError):
        paths = [path for top in (*CODE, "clients", "docs", "deploy") for path in (ROOT / top).rglob("*")]
        paths += [path for path in ROOT.iterdir() if path.is_file()]
    return [path for path in paths if path.is_file()]


@pytest.mark.parametrize(
    ("source", "opens"),
    [
        ('"""What it owns."""', True),
        ('#!/usr/bin/env python\n# Generated.\n\n"""\nWhat.\n"""\n', True),
        ("import os\n", False),
        ('""""""\n', False),
        ('import os\n"""Too late."""\n', False),
        ("# Only a comment.\n", False),
    ],
)
def test_a_docstring_is_told_from_what_is_none(source: str, opens: bool) -> None:
    assert bool(DOCSTRING.match(source)) is opens is bool(ast.get_docstring(ast.parse(source)))


def test_every_module_opens_with_a_docstring() -> None:
    silent = []
    for top in CODE:
        for path in sorted((ROOT / top).rglob("*.py")):
            source = path.read_text(encoding="utf-8")
            generated = path.name.endswith("_pb2.py")
            empty = path.name == "__init__.py" and not source.strip()
            if not generated and not empty and not DOCSTRING.match(source):
                silent.append(path.relative_to(ROOT).as_posix())
    assert silent == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("see /home/" + "ada/notes", True),
        ("'/Users/" + "ada'", True),
        ("ls /root/" + ".cache", True),
        ("https://example.org/home/" + "page", False),
        ("docs/work/" + "plan.md", False),
        ("~/work/" + "x", False),
        ("/tmp/" + "x, /etc/riak", False),
    ],
)
def test_a_machine_path_is_told_from_other_paths(text: str, found: bool) -> None:
    assert bool(MACHINE_PATH.search(text)) is found


def test_no_file_names_a_path_of_a_machine() -> None:
    here = str(ROOT) + "/"
    named = []
    for path in project_files():
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:  # not text: a picture, an archive
            continue
        named += [
            f"{path.relative_to(ROOT)}:{number}: {line.strip()[:120]}"
            for number, line in enumerate(text.splitlines(), 1)
            if MACHINE_PATH.search(line) or (here in line and ROOT.parent != Path("/"))
        ]
    assert named == []


@pytest.mark.parametrize("name", ["constraints.txt", "deploy/constraints.txt"])
def test_pins_carry_hashes_and_name_no_index(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    assert "://" not in text
    assert not re.search(r"^--", text, re.MULTILINE)
    requirements = re.split(r"\n(?=[a-z])", "\n" + re.sub(r"^ *#.*\n", "", text, flags=re.MULTILINE))[1:]
    assert requirements
    assert [r.split("\n")[0] for r in requirements if not PINNED.match(r)] == []


def pins(name: str) -> set[str]:
    """Return ``package==version`` of each line of a file of pins."""
    return set(re.findall(r"^[a-z0-9-]+==\S+", (ROOT / name).read_text(encoding="utf-8"), re.MULTILINE))


def test_an_endpoint_runs_on_the_versions_the_tests_ran_on() -> None:
    assert pins("deploy/constraints.txt") <= pins("constraints.txt")


def test_a_build_takes_the_versions_the_tests_ran_on_and_the_image_has_their_hashes() -> None:
    """Other releases of mypy may make other C code. setuptools only calls the compiler, so any new release works."""
    tool = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]
    exact = set(tool["ingeborg"]["compile"]["requires"])
    named = {requirement.partition("==")[0] for requirement in exact}
    assert named >= {"msgspec", "mypy", "orjson", "ormsgpack", "websockets"}
    assert exact <= pins("constraints.txt")
    assert exact <= pins("deploy/constraints.txt")


def test_the_page_of_dependencies_lists_each_with_its_pinned_release() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    requirements = [*project["dependencies"], *chain(*project["optional-dependencies"].values())]
    wanted = {re.split(r"[<>=!~;\[ ]", requirement)[0] for requirement in requirements}
    released = dict(
        re.findall(r"^([a-z0-9-]+)==(\S+)", (ROOT / "constraints.txt").read_text(encoding="utf-8"), re.MULTILINE)
    )
    page = (ROOT / "docs" / "dependencies.md").read_text(encoding="utf-8")
    [optimum] = [pin for pin in pins("bench/packing/optimum.txt") if pin.startswith("ortools==")]
    [simulator] = [pin for pin in pins("bench/caching/simulator.txt") if pin.startswith("libcachesim==")]
    assert dict(re.findall(r"^\| (\S+) \| (\d\S+) \|", page, re.MULTILINE)) == {
        name: released[name.replace(".", "-")] for name in wanted
    } | {"ortools": optimum.partition("==")[2], "libcachesim": simulator.partition("==")[2]}


@pytest.mark.parametrize("script", SCRIPTS)
def test_scripts_are_valid_bash(script: str) -> None:
    subprocess.run(["bash", "-n", script], cwd=ROOT, check=True, timeout=10)
