"""The wheel installs one name, so that an application may have packages called ``protocol`` and ``bench``.

The tests build the package from a copy of the tree, since a build leaves files behind. They fetch nothing: the new
environment gets the packages that a client needs as links to those of this one.
"""

from __future__ import annotations

import asyncio
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from ingeborg import form
from tests import wants
from tests.broker.running import PATIENCE_S, plain, serving
from tests.cluster.processes import eventually
from tests.frame.arrows import NAME, OURS
from tests.frame.test_files import project_files

ROOT = Path(__file__).resolve().parents[2]
BUILD_S = 120
NEEDED = ("pyproject.toml", "setup.py", "README.md", "LICENSE")
#: The packages that the distribution requires, by the names under which they are imported.
CLIENT = ("jwt", "orjson", "websockets")
#: Files that code reads at run time, by their endings.
DATA = {
    *(".conf", ".config", ".css", ".go", ".html", ".js", ".mod", ".options", ".properties", ".proto", ".sum", ".svg"),
    *(".toml", ".xml"),
}


def copy(tree: Path) -> Path:
    """Copy the files of a build to a new place, without the leftovers of a build."""
    tree.mkdir()
    for name in NEEDED:
        shutil.copy(ROOT / name, tree)
    leave = shutil.ignore_patterns("__pycache__", "results", "*.so", form.RECORD)
    for top in (NAME, *sorted(OURS)):
        shutil.copytree(ROOT / top, tree / top, symlinks=True, ignore=leave)
    return tree


def build(
    tree: Path,
    kind: str,
    out: Path,
    *,
    interpreter: Path = Path(sys.executable),
    variables: Mapping[str, str] = MappingProxyType({}),
) -> Path:
    """Build the wheel or the source archive of a tree in an existing environment, and fetch nothing."""
    out.mkdir(exist_ok=True)
    code = f"import sys; from setuptools import build_meta; print(build_meta.build_{kind}(sys.argv[1]))"
    kept = {name: value for name, value in os.environ.items() if name != form.COMPILE}
    done = subprocess.run(
        [str(interpreter), "-c", code, str(out)],
        cwd=tree,
        env={**kept, **variables},
        capture_output=True,
        text=True,
        timeout=BUILD_S,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return out / done.stdout.splitlines()[-1]


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Build the source archive and the wheel."""
    wants.module("setuptools", "dev")
    folder = tmp_path_factory.mktemp("build")
    tree = copy(folder / "tree")
    return build(tree, "sdist", folder / "sdist"), build(tree, "wheel", folder / "wheel")


def contents(wheel: Path) -> dict[str, bytes]:
    """Return each file of a wheel, without its metadata."""
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist() if ".dist-info/" not in name}


def test_one_name_is_installed(archives: tuple[Path, Path]) -> None:
    with zipfile.ZipFile(archives[1]) as archive:
        tops = {name.partition("/")[0] for name in archive.namelist()}
    assert sorted(top for top in tops if not top.endswith(".dist-info")) == [NAME]
    assert len(tops) == 2


def test_every_module_and_all_that_it_reads_is_in_the_wheel(archives: tuple[Path, Path]) -> None:
    wanted = {f"{NAME}/py.typed", f"{NAME}/protocol/SPEC.md"}
    for path in project_files():
        parts = path.relative_to(ROOT).parts
        if parts[0] == NAME and path.suffix == ".py":
            wanted.add("/".join(parts))
        elif parts[0] in OURS and parts[:2] != ("bench", "results") and path.suffix in {".py", ".pyi", *DATA}:
            wanted.add("/".join((NAME, *parts)))
    held = set(contents(archives[1]))
    assert wanted - held == set()
    assert {name for name in held - wanted if not name.endswith("/enabled_plugins")} == set()


def test_a_wheel_of_the_source_archive_is_the_same(archives: tuple[Path, Path], tmp_path: Path) -> None:
    with tarfile.open(archives[0]) as archive:
        assert [member.name for member in archive if member.issym() or member.islnk()] == []
    shutil.unpack_archive(archives[0], tmp_path)
    (tree,) = tmp_path.iterdir()
    assert contents(build(tree, "wheel", tmp_path / "out")) == contents(archives[1])


def installed(wheel: Path, folder: Path, packages: Iterable[str]) -> tuple[Path, Path]:
    """Make an environment with the wheel and these packages of this one. Returns its Python and its package folder."""
    venv.create(folder, with_pip=False, symlinks=True)
    (site,) = folder.glob("lib/python*/site-packages")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    for package in packages:
        found = importlib.util.find_spec(package)
        assert found is not None
        assert found.submodule_search_locations
        (site / package).symlink_to(next(iter(found.submodule_search_locations)))
    return folder / "bin" / "python", site


def outside() -> dict[str, str]:
    """Return this process's environment without variables that lead to this tree, or configure a client."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("INGEBORG_")}
    kept.pop("PYTHONPATH", None)
    return kept


def first_program(url: str) -> tuple[str, str]:
    """Return the program of README.md, with packages of an application; and its topic."""
    page = (ROOT / "README.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert "ws://127.0.0.1:9000" in example
    example = re.sub(r"ws://127\.0\.0\.1:900\d", url.rstrip("/"), example)
    (topic,) = re.findall(r'subscribe\(\["(.*)"\]\)', example)
    return f"import bench, protocol\nprint(bench.MINE, protocol.MINE)\n{example}", topic


def first_note() -> str:
    """Return the output of the program, according to README.md."""
    (line,) = re.findall(r"The program prints `(.*)`", (ROOT / "README.md").read_text(encoding="utf-8"))
    return str(line)


@pytest.mark.cluster
async def test_the_client_of_the_first_page_runs_beside_packages_called_protocol_and_bench(
    archives: tuple[Path, Path], tmp_path: Path
) -> None:
    interpreter, site = installed(archives[1], tmp_path / "environment", CLIENT)
    for name in ("protocol", "bench"):
        (site / name).mkdir()
        (site / name / "__init__.py").write_text(f"MINE = 'my own {name}'\n")

    async with serving(tmp_path) as (_, url), plain(url) as other:
        program, topic = first_program(url)
        (tmp_path / "program.py").write_text(program)
        errors = tmp_path / "errors"
        with errors.open("wb") as file:
            process = await asyncio.create_subprocess_exec(
                *(interpreter, "-u", "program.py"),
                stdout=asyncio.subprocess.PIPE,
                stderr=file,
                cwd=tmp_path,
                env=outside(),
            )
        assert process.stdout is not None
        try:

            async def subscribed() -> bool:
                assert process.returncode is None, errors.read_text()
                asked: dict[str, Any] = {"command": "subscribers", "client_id": "other", "topic": topic}
                return bool((await other.ask(asked))["count"])

            async with asyncio.timeout(PATIENCE_S):
                assert await process.stdout.readline() == b"my own bench my own protocol\n", errors.read_text()
                await eventually(subscribed, f"nobody has subscribed to {topic}")
                assert await process.stdout.readline() == f"{first_note()}\n".encode(), errors.read_text()
                await other.send({"command": "publish", "client_id": "other", "topic": topic, "payload": "it is on"})
                assert await process.stdout.readline() == f"{topic} it is on\n".encode(), errors.read_text()
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()


def ran(interpreter: Path, site: Path, folder: Path, command: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command as pip installs it, to its end."""
    (entries,) = site.glob("*.dist-info/entry_points.txt")
    (script,) = re.findall(rf"^{command} = (\S+)$", entries.read_text(), re.MULTILINE)
    module, _, function = script.partition(":")
    code = f"import sys; from {module} import {function} as main; sys.exit(main())"
    command_line = [str(interpreter), "-c", code, *arguments]
    return subprocess.run(command_line, cwd=folder, env=outside(), capture_output=True, text=True, timeout=BUILD_S)


def test_without_an_extra_a_clients_commands_work_and_the_others_say_what_to_install(
    archives: tuple[Path, Path], tmp_path: Path
) -> None:
    place = (*installed(archives[1], tmp_path / "environment", CLIENT), tmp_path)
    version = ran(*place, "ingeborg", "--version")
    assert (version.returncode, version.stdout.split()[0]) == (0, "ingeborg")
    made = ran(*place, "ingeborg", "token", "keys.json", "me", "--new-keys", "--publish", "a topic")
    assert (made.returncode, made.stdout.count(".")) == (0, 2), made.stderr
    client = ("--url", "ws://127.0.0.1:9", "--client-id", "me")
    for arguments in (
        ("sub", *client, "t"),
        ("pub", *client, "t", "p"),
        ("history", *client, "t"),
        ("status", *client[:2]),
    ):
        done = ran(*place, "ingeborg", *arguments)
        assert done.returncode == 1
        assert "nothing listens there" in done.stderr
    for command, argument, extra in (("ingeborg", "serve", "server"), ("loadgen", "--help", "bench")):
        done = ran(*place, command, argument)
        assert (done.returncode, done.stdout) == (2, "")
        assert re.fullmatch(rf"{command}: \w+ is not installed: pip install 'ingeborg\[{extra}\]'\n", done.stderr)
