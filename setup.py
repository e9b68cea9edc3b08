"""Builds the package: either the unchanged sources or, on request, the sources with the core compiled.

`pip install .` installs the sources in seconds. `INGEBORG_COMPILE=1 pip install .` compiles the modules that
ingeborg/form.py lists. `make compiled` compiles the same modules in place. If a build has to compile but cannot, it
prints the reason and fails. Everything else about the package is in pyproject.toml.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import time
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from setuptools import Distribution, setup
from setuptools.command.build_ext import build_ext
from setuptools.errors import BaseError, CCompilerError, CompileError

HERE = Path(__file__).resolve().parent

#: The folder for the C files that mypyc writes, and for the object files that the C compiler makes from them.
BUILD = "build"

#: The C compiler's levels of optimization and of debug information. Debug information would only point to lines of C
#: files that are not kept, and `perf` and `gdb` show function names without it.
OPTIMIZE, DEBUG = "3", "0"

#: The exceptions that a failing compiler can raise. They differ between releases of setuptools.
FAILURES = (BaseError, CCompilerError, OSError)

broken = [str(path) for path in Path("ingeborg").iterdir() if path.is_file() and not path.suffix]
if broken:
    raise SystemExit(
        f"{', '.join(sorted(broken))}: each is a file and has to be a symbolic link. Check the repository out again "
        "with links: git config core.symlinks true; git checkout -- ingeborg"
    )

_spec = importlib.util.spec_from_file_location("form", HERE / "ingeborg" / "form.py")
assert _spec is not None
assert _spec.loader is not None
form: Any = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(form)

#: True if this build compiles, because the environment or the command (`make compiled`) requests it.
COMPILE = os.environ.get(form.COMPILE, "") not in ("", "0") or "build_ext" in sys.argv


def compiling_takes() -> list[str]:
    """Return the packages, with their versions, that are needed to compile."""
    project = tomllib.loads((HERE / "pyproject.toml").read_text(encoding="utf-8"))
    requires: list[str] = project["tool"]["ingeborg"]["compile"]["requires"]
    return requires


def say(text: str) -> None:
    """Print a progress message, which pip shows with `--verbose`."""
    print(text, file=sys.stderr, flush=True)


def cores() -> int:
    """Return the number of processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Package(Distribution):
    """A distribution that knows whether it has extension modules before mypyc has made any."""

    def has_ext_modules(self) -> bool:
        """Return whether this build compiles."""
        return COMPILE


class Pool(build_ext):
    """Compiles the C files of the first extension module in parallel, and then the small modules in parallel."""

    def build_extensions(self) -> None:
        """See ``setuptools.command.build_ext``."""
        self._one_by_one, self.compiler.compile = self.compiler.compile, self._side_by_side
        every = self.extensions
        self.build_extension(every[0])
        say(f"linking {len(every) - 1} modules")
        self.extensions, self.parallel = every[1:], cores()
        super().build_extensions()
        self.extensions = every

    def _side_by_side(self, sources: list[str], *arguments: Any, **options: Any) -> list[str]:
        """Compile the sources in parallel, in place of the compiler's ``compile``, which compiles one file after the
        other. Return the object files."""
        if len(sources) == 1:
            made: list[str] = self._one_by_one(sources, *arguments, **options)
            return made
        begun, objects = time.monotonic(), []
        with ThreadPoolExecutor(cores()) as pool:
            try:
                for made in pool.map(lambda source: self._one_by_one([source], *arguments, **options), sources):
                    objects += made
                    if len(objects) % 20 == 0 or len(objects) == len(sources):
                        say(f"C compiler: {len(objects)} of {len(sources)} files, {time.monotonic() - begun:.0f} s")
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise
        return objects


class Compile(build_ext):
    """Runs mypyc and the C compiler, unless the same sources have been compiled already."""

    def run(self) -> None:
        """See ``setuptools.Command``."""
        package = HERE / "ingeborg" if self.inplace else Path(self.build_lib, "ingeborg").absolute()
        record = package / form.RECORD
        made_of = form.fingerprint()
        if self.inplace and record.is_file() and record.read_text(encoding="ascii").strip() == made_of:
            return
        for stale in form.built(package) if package.is_dir() else ():
            stale.unlink()
        package.mkdir(parents=True, exist_ok=True)
        record.write_text(form.UNFINISHED + "\n", encoding="ascii")
        self.distribution.ext_modules = self._translated()
        compile_c = Pool(self.distribution)  # a new command, whose options are not final yet
        compile_c.inplace, compile_c.build_lib, compile_c.build_temp = self.inplace, self.build_lib, self.build_temp
        compile_c.ensure_finalized()
        try:
            compile_c.run()
        except FAILURES as error:
            raise CompileError(
                "the core cannot be compiled. Compiling needs a C compiler and Python's headers (Debian: gcc, "
                f"libc6-dev, python3-dev), and 400 MB of memory for each processor. A build without {form.COMPILE}=1 "
                f"installs the sources, which run without being compiled. The compiler failed with: {error}"
            ) from error
        self.extensions = compile_c.extensions
        record.write_text(made_of + "\n", encoding="ascii")

    def _translated(self) -> list[Any]:
        """Have mypyc write the C files, and return the extension modules to build from these files."""
        if sys.implementation.name != "cpython":
            raise CompileError(
                f"mypyc compiles only for CPython, but this is {sys.implementation.name}: leave out {form.COMPILE}=1"
            )
        try:
            from mypyc.build import mypycify
        except ImportError as error:
            raise CompileError(
                f"{error}: compiling needs {', '.join(compiling_takes())}. pip installs them unless it gets "
                "--no-build-isolation"
            ) from error
        files = [f"ingeborg/{source}" for source in form.sources()]
        say(f"mypyc: {len(files)} modules")
        modules: list[Any] = mypycify(
            files, group_name=form.UNIT, opt_level=OPTIMIZE, debug_level=DEBUG, multi_file=True, target_dir=BUILD
        )
        headers = Path(BUILD, *form.UNIT.split(".")[:-1])
        for extension in modules:
            # mypyc adds only the folder above its headers to the include path. It also turns warnings into errors, but
            # compilers differ in what they warn about.
            extension.include_dirs = [*extension.include_dirs, str(headers)]
            extension.extra_compile_args = [*extension.extra_compile_args, "-Wno-error"]
        return modules


setup(
    distclass=Package,
    cmdclass={"build_ext": Compile},
    setup_requires=compiling_takes() if COMPILE and "build_ext" not in sys.argv else [],
)
