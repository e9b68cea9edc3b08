"""The result of a build: the sources or, on request, the compiled form.

pip builds in an environment with the build's requirements and nothing else. These tests make such an environment from
links to the packages of this one, so that they fetch nothing. The builds compile a few modules; `make compiled`
compiles all.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import venv
import zipfile
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

import pytest

from ingeborg import form
from tests import wants
from tests.frame.arrows import read_modules, third_party
from tests.frame.needed import needed
from tests.frame.test_wheel import BUILD_S, ROOT, build, copy, installed, outside

#: Compiled modules with each kind of import: `link` is in the core, and imports msgspec.
FEW = ("broker/core/links/link.py", "protocol/errors.py", "protocol/wire.py")


#: The variable that makes a build compile.
COMPILE = {form.COMPILE: "1"}


def build_requirements(tree: Path, variables: Mapping[str, str]) -> list[str]:
    """Return the build's own answer on further packages that pip installs in addition to `build-system.requires`."""
    code = "from setuptools import build_meta; print(build_meta.get_requires_for_build_wheel())"
    kept = {name: value for name, value in os.environ.items() if name != form.COMPILE}
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tree,
        env={**kept, **variables},
        capture_output=True,
        text=True,
        timeout=BUILD_S,
    )
    assert done.returncode == 0, done.stderr
    requires: list[str] = ast.literal_eval(done.stdout.splitlines()[-1])
    return requires


def environment(folder: Path, packages: set[str]) -> Path:
    """Make an environment with these packages of this one, and no other. Returns its Python."""
    venv.create(folder, with_pip=False, symlinks=True)
    (site,) = folder.glob("lib/python*/site-packages")
    for package in packages:
        files = metadata.files(package)
        assert files is not None
        for top in {file.parts[0] for file in files} - {"..", "__pycache__"}:
            if not (site / top).exists():
                (site / top).symlink_to(Path(str(metadata.distribution(package).locate_file(top))))
    return folder / "bin" / "python"


def said(wheel: Path, folder: Path) -> str:
    """Return the form that the code of a wheel reports, in an environment with a client's packages."""
    interpreter, _ = installed(wheel, folder, ("msgspec", "orjson", "ormsgpack", "websockets"))
    code = "import ingeborg.broker.core.links.link; from ingeborg import form; print(form.name())"
    done = subprocess.run(
        [str(interpreter), "-c", code], cwd=folder, env=outside(), capture_output=True, text=True, timeout=BUILD_S
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Copy the files of a build, with few modules to compile."""
    wants.module("mypy", "dev")
    tree = copy(tmp_path / "tree")
    listing = tree / "ingeborg" / "form.py"
    few = re.sub(r"^PATTERNS = \(.*?^\)", f"PATTERNS = {FEW!r}", listing.read_text(), flags=re.MULTILINE | re.DOTALL)
    listing.write_text(few)
    return tree


def test_a_build_takes_no_compiler_and_no_package_unless_it_is_asked_to_compile(tree: Path, tmp_path: Path) -> None:
    assert build_requirements(tree, {}) == []
    wheel = build(tree, "wheel", tmp_path / "out", interpreter=environment(tmp_path / "built", {"setuptools"}))
    assert wheel.name.endswith("-py3-none-any.whl")
    assert said(wheel, tmp_path / "runs") == "interpreted"


@pytest.mark.prove  # CI compiles everything, in place
def test_what_a_build_asks_for_is_all_that_compiling_takes(tree: Path, tmp_path: Path) -> None:
    wants.compiler()
    packages = needed(
        ["setuptools", *build_requirements(tree, COMPILE)], f"{sys.version_info.major}.{sys.version_info.minor}"
    )
    assert not packages & {"ingeborg", "lmdb", "pytest"}
    made = environment(tmp_path / "built", packages)
    wheel = build(tree, "wheel", tmp_path / "out", interpreter=made, variables=COMPILE)
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    version = f"cp{sys.version_info.major}{sys.version_info.minor}"
    assert re.fullmatch(rf"ingeborg-[0-9.]+-{version}-{version}-\w+\.whl", wheel.name)
    extensions = {name.partition(".")[0] for name in names if name.endswith((".so", ".pyd"))}
    assert extensions - {"ingeborg/compiled__mypyc"} == {f"ingeborg/{name.removesuffix('.py')}" for name in FEW}
    assert said(wheel, tmp_path / "runs") == "compiled"


def test_a_build_that_cannot_compile_says_why_and_fails(tree: Path, tmp_path: Path) -> None:
    compiler = refused(tree, tmp_path / "out", Path(sys.executable), {"CC": "/bin/false"})
    assert "the core cannot be compiled. Compiling needs a C compiler" in compiler
    assert f"A build without {form.COMPILE}=1 installs the sources" in compiler
    bare = environment(tmp_path / "bare", {"setuptools"})
    assert "compiling needs msgspec==" in refused(tree, tmp_path / "out", bare, {})


def refused(tree: Path, out: Path, interpreter: Path, variables: Mapping[str, str]) -> str:
    """Return the error of a build that should compile and fails."""
    with pytest.raises(AssertionError) as failed:
        build(tree, "wheel", out, interpreter=interpreter, variables={**COMPILE, **variables})
    return str(failed.value)


def test_the_build_requires_every_package_that_a_compiled_module_imports() -> None:
    modules, packages = read_modules(ROOT)
    compiled = {name.removesuffix(".py").replace("/", ".") for name in form.sources()}
    imported = {package for package, users in third_party(modules, packages).items() if compiled & set(users)}
    assert imported >= {"msgspec", "orjson", "ormsgpack"}
    assert imported <= {requirement.partition("==")[0] for requirement in build_requirements(ROOT, COMPILE)}
