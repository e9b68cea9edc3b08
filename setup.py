"""Compiles the core where that is possible, and refuses a checkout without links, of which the package would be empty.

Everything else about the package is in pyproject.toml; what is compiled, in ingeborg/form.py. Where nothing can be
compiled the sources are installed, which run as well, and more slowly: without a C compiler or Python's headers, on
another Python than CPython, with INGEBORG_PURE=1. `ingeborg --version` says which form is installed, and why it is the
interpreted one: pip shows nothing of what a build prints.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import sys
import sysconfig
import tempfile
import tomllib
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from setuptools import Distribution, Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py
from setuptools.errors import BaseError, CCompilerError, CompileError

HERE = Path(__file__).resolve().parent

#: Of the C compiler. With debugging information (mypyc's own choice is "1") the unit is 5 MB instead of 3. It would say
#: which lines of the C file were compiled, and nobody keeps that file. `perf` and `gdb` show functions without it.
OPTIMIZE, DEBUG = "3", "0"

#: Of an attempt to compile. What a compiler's failure is a kind of depends on the release of setuptools.
FAILURES = (BaseError, CCompilerError, OSError)

broken = [str(path) for path in Path("ingeborg").iterdir() if path.is_file() and not path.suffix]
if broken:
    raise SystemExit(
        f"{', '.join(sorted(broken))}: a file each, and has to be a symbolic link. Check the repository out again with "
        "links: git config core.symlinks true; git checkout -- ingeborg"
    )

_spec = importlib.util.spec_from_file_location("form", HERE / "ingeborg" / "form.py")
assert _spec is not None
assert _spec.loader is not None
form: Any = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(form)


def obstacle() -> str:
    """Why nothing can be compiled here. Empty: it can."""
    if form.pure():
        return f"{form.VARIABLE} is set"
    if "editable_wheel" in sys.argv or "develop" in sys.argv:
        return "an editable installation runs the sources (make compiled compiles them)"
    if sys.implementation.name != "cpython":
        return f"mypyc does not compile for {sys.implementation.name}"
    return _not_installed() or _no_compiler()


def _not_installed() -> str:
    """What pip puts into the environment of a build. A build without isolation has what somebody has installed."""
    project = tomllib.loads((HERE / "pyproject.toml").read_text(encoding="utf-8"))
    for requirement in project["build-system"]["requires"]:
        name = re.split(r"[^A-Za-z0-9._-]", requirement, maxsplit=1)[0]
        try:
            version(name)
        except PackageNotFoundError:
            return f"{name} is not installed"
    return ""


def _no_compiler() -> str:
    with tempfile.TemporaryDirectory() as folder:
        probe = Path(folder, "probe.c")
        probe.write_text("#include <Python.h>\nPyMODINIT_FUNC PyInit_probe(void) { return NULL; }\n", encoding="ascii")
        attempt = build_ext(Distribution({"ext_modules": [Extension("probe", [str(probe)])]}))
        attempt.build_lib = attempt.build_temp = folder
        attempt.ensure_finalized()
        try:
            attempt.run()
        except FAILURES as error:
            print(error, file=sys.stderr)
            name = (os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc").split()[0]
            if shutil.which(name) is None:
                return f"there is no C compiler: {name} is not found"
            return f"the C compiler {name} does not compile with Python's headers, which may be missing"
    return ""


OBSTACLE = obstacle()


class Package(Distribution):
    """Its extension modules are made when they are built, and not each time this file is asked for a name."""

    def has_ext_modules(self) -> bool:
        """Whether they are."""
        return not OBSTACLE


def say_obstacle() -> None:
    """To whoever sees what a build prints."""
    print(f"not compiled, the sources will run as they are: {OBSTACLE}", file=sys.stderr)


class Sources(build_py):
    """Where nothing is compiled, the reason goes into the package, beside the sources."""

    def run(self) -> None:
        """See ``setuptools.Command``."""
        super().run()
        if OBSTACLE and not self.editable_mode:
            say_obstacle()
            Path(self.build_lib, "ingeborg", form.REASON).write_text(OBSTACLE + "\n", encoding="utf-8")


class Compile(build_ext):
    """mypyc, then the C compiler, for a minute. What has been made of these sources is not made again."""

    def run(self) -> None:
        """See ``setuptools.Command``."""
        if OBSTACLE:
            say_obstacle()
            return
        package = HERE / "ingeborg" if self.inplace else Path(self.build_lib, "ingeborg").absolute()
        record = package / form.RECORD
        made_of = form.fingerprint()
        if self.inplace and record.is_file() and record.read_text(encoding="ascii").strip() == made_of:
            return
        for stale in form.built(package) if package.is_dir() else ():
            stale.unlink()
        package.mkdir(parents=True, exist_ok=True)
        record.write_text(form.UNFINISHED + "\n", encoding="ascii")
        from mypyc.build import mypycify

        files = [f"ingeborg/{source}" for source in form.sources()]
        self.distribution.ext_modules = mypycify(files, group_name=form.UNIT, opt_level=OPTIMIZE, debug_level=DEBUG)
        for extension in self.distribution.ext_modules:
            # What a compiler that mypyc has not been tried with warns of is no reason to fail.
            if "-Werror" in extension.extra_compile_args:
                extension.extra_compile_args.append("-Wno-error")
        compile_c = build_ext(self.distribution)  # anew, for this one's options were final before there was a module
        compile_c.inplace, compile_c.build_lib, compile_c.build_temp = self.inplace, self.build_lib, self.build_temp
        compile_c.ensure_finalized()
        try:
            compile_c.run()
        except FAILURES as error:  # as where the memory was not enough
            raise CompileError(f"{error}; with {form.VARIABLE}=1 nothing is compiled, and the sources run") from error
        self.extensions = compile_c.extensions
        record.write_text(made_of + "\n", encoding="ascii")


setup(distclass=Package, cmdclass={"build_py": Sources, "build_ext": Compile})
