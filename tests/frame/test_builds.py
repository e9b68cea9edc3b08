"""What a build makes: compiled where all that it takes is there, the sources elsewhere, with the reason in the package.

pip builds in an environment that has the requirements of `build-system` and nothing else. Here such an environment is
made of links to the packages of this one, so that nothing is fetched. A few modules are compiled, not all: `make
compiled` compiles all, and takes a minute. mypy reads all that these import.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
import venv
import zipfile
from importlib import metadata
from pathlib import Path

import pytest

from ingeborg import form
from tests import wants
from tests.frame.arrows import read_modules, third_party
from tests.frame.needed import needed
from tests.frame.test_wheel import BUILD_S, ROOT, build, copy, installed, outside

#: Of the modules that are compiled those that have a part of each kind: `link` is of the core, and imports ormsgpack.
FEW = ("broker/core/links/link.py", "protocol/errors.py", "protocol/wire.py")


def build_requirements() -> list[str]:
    """Of `build-system`, in pyproject.toml."""
    requires: list[str] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["build-system"][
        "requires"
    ]
    return requires


def environment(folder: Path, packages: set[str]) -> Path:
    """A new environment with these packages of this one, and no other: its Python."""
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
    """What the code of a wheel says of its form, installed where a client is."""
    interpreter, _ = installed(wheel, folder, ("orjson", "ormsgpack", "websockets"))
    code = "import ingeborg.broker.core.links.link; from ingeborg import form; print(form.description())"
    done = subprocess.run(
        [str(interpreter), "-c", code], cwd=folder, env=outside(), capture_output=True, text=True, timeout=BUILD_S
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """What the package is built from, with few modules to compile."""
    wants.module("mypy", "dev")
    tree = copy(tmp_path / "tree")
    listing = tree / "ingeborg" / "form.py"
    few = re.sub(r"^PATTERNS = \(.*?^\)", f"PATTERNS = {FEW!r}", listing.read_text(), flags=re.MULTILINE | re.DOTALL)
    listing.write_text(few)
    return tree


def test_what_a_build_asks_for_is_all_that_compiling_takes(tree: Path, tmp_path: Path) -> None:
    packages = needed(build_requirements(), f"{sys.version_info.major}.{sys.version_info.minor}")
    assert not packages & {"ingeborg", "lmdb", "pytest"}
    wheel = build(tree, "wheel", tmp_path / "out", interpreter=environment(tmp_path / "built", packages), variables={})
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        reason = archive.read(f"ingeborg/{form.REASON}").decode() if f"ingeborg/{form.REASON}" in names else ""
    if "C compiler" in reason:
        wants.skip("a C compiler with Python's headers", "make compiled wants one too")
    assert reason == ""
    version = f"cp{sys.version_info.major}{sys.version_info.minor}"
    assert re.fullmatch(rf"ingeborg-[0-9.]+-{version}-{version}-\w+\.whl", wheel.name)
    extensions = {name.partition(".")[0] for name in names if name.endswith((".so", ".pyd"))}
    assert extensions - {"ingeborg/compiled__mypyc"} == {f"ingeborg/{name.removesuffix('.py')}" for name in FEW}
    assert said(wheel, tmp_path / "runs") == "compiled"


@pytest.mark.parametrize(
    ("variables", "reason"),
    [
        ({form.VARIABLE: "1"}, "INGEBORG_PURE is set"),
        (
            {"CC": "/bin/false"},
            "the C compiler /bin/false does not compile with Python's headers, which may be missing",
        ),
        ({"CC": "no-such-compiler"}, "there is no C compiler: no-such-compiler is not found"),
    ],
)
def test_where_nothing_can_be_compiled_the_sources_are_built_and_say_why(
    tree: Path, tmp_path: Path, variables: dict[str, str], reason: str
) -> None:
    wheel = build(tree, "wheel", tmp_path / "out", variables=variables)
    assert wheel.name.endswith("-py3-none-any.whl")
    assert said(wheel, tmp_path / "runs") == f"interpreted ({reason})"


def test_an_environment_that_lacks_what_a_build_asks_for_builds_the_sources(tree: Path, tmp_path: Path) -> None:
    project = tree / "pyproject.toml"
    project.write_text(project.read_text().replace('"orjson==', '"a-package-that-nobody-has==', 1))
    wheel = build(tree, "wheel", tmp_path / "out", variables={})
    assert wheel.name.endswith("-py3-none-any.whl")
    assert said(wheel, tmp_path / "runs") == "interpreted (a-package-that-nobody-has is not installed)"


def test_what_compiled_modules_import_is_there_when_they_are_compiled() -> None:
    modules, packages = read_modules(ROOT)
    compiled = {name.removesuffix(".py").replace("/", ".") for name in form.sources()}
    imported = {package for package, users in third_party(modules, packages).items() if compiled & set(users)}
    assert imported >= {"orjson", "ormsgpack"}
    assert imported <= {requirement.partition("==")[0] for requirement in build_requirements()}
