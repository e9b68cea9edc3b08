"""Compiles the core where that is possible, and refuses a checkout without links, of which the package would be empty.

Everything else about the package is in pyproject.toml; what is compiled, in ingeborg/form.py. Where nothing can be
compiled the sources are installed, which run as well, and more slowly: without a C compiler or Python's headers, on
another Python than CPython, with INGEBORG_PURE=1. `ingeborg --version` says which form is installed.
"""

from __future__ import annotations

import importlib.util
import sys
import tempfile
from pathlib import Path
from typing import Any

from setuptools import Distribution, Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.errors import BaseError

HERE = Path(__file__).resolve().parent

#: Of the C compiler.
OPTIMIZE = "3"

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
    if importlib.util.find_spec("mypyc") is None:
        return "mypyc is not installed (it comes with mypy)"
    return _no_compiler()


def _no_compiler() -> str:
    with tempfile.TemporaryDirectory() as folder:
        probe = Path(folder, "probe.c")
        probe.write_text("#include <Python.h>\nPyMODINIT_FUNC PyInit_probe(void) { return NULL; }\n", encoding="ascii")
        attempt = build_ext(Distribution({"ext_modules": [Extension("probe", [str(probe)])]}))
        attempt.build_lib = attempt.build_temp = folder
        attempt.ensure_finalized()
        try:
            attempt.run()
        except (BaseError, OSError) as error:
            return f"there is no C compiler, or it lacks Python's headers ({error})"
    return ""


OBSTACLE = obstacle()


class Package(Distribution):
    """Its extension modules are made when they are built, and not each time this file is asked for a name."""

    def has_ext_modules(self) -> bool:
        """Whether they are."""
        return not OBSTACLE


class Compile(build_ext):
    """mypyc, then the C compiler: half a minute each. What has been made of these sources is not made again."""

    def run(self) -> None:
        """See ``setuptools.Command``."""
        if OBSTACLE:
            print(f"not compiled, the sources will run as they are: {OBSTACLE}", file=sys.stderr)
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
        self.distribution.ext_modules = mypycify(files, group_name=form.UNIT, opt_level=OPTIMIZE, debug_level="1")
        compile_c = build_ext(self.distribution)  # anew, for this one's options were final before there was a module
        compile_c.inplace, compile_c.build_lib, compile_c.build_temp = self.inplace, self.build_lib, self.build_temp
        compile_c.ensure_finalized()
        compile_c.run()
        self.extensions = compile_c.extensions
        record.write_text(made_of + "\n", encoding="ascii")


setup(distclass=Package, cmdclass={"build_ext": Compile})
