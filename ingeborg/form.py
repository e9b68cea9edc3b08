"""The two forms of the code: compiled by mypyc, or interpreted as it stands in the sources.

Owns: which modules are compiled, how one build is told from another, and which form a process runs. Must never: import
anything of ours, or what Python does not come with: `setup.py` runs it before anything is installed.

An extension module that lies beside its source is what Python imports. So a build that is not of the sources beside it
would run old code, and whoever changes a line would look for its effect in vain: in a checkout such a build is refused.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Sequence
from importlib.machinery import EXTENSION_SUFFIXES, SOURCE_SUFFIXES, FileFinder, ModuleSpec, SourceFileLoader
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

#: What is compiled, as patterns below `ingeborg/`: what decides and what checks, and nothing that waits for anybody.
PATTERNS = (
    "autoscaler/groups/*.py",
    "broker/core/**/*.py",
    "broker/store/embedded/now.py",
    "protocol/bounded.py",
    "protocol/errors.py",
    "protocol/filters.py",
    "protocol/frames.py",
    "protocol/lines.py",
    "protocol/hashes.py",
    "protocol/messages.py",
    "protocol/topics.py",
    "protocol/wire.py",
)

#: What of it is not: mypyc compiles no record of msgspec.
EXCEPT = (
    "broker/core/links/frames.py",
    "broker/core/links/requests.py",
)

#: All of it is one unit, in which calls go from function to function; the unit's own module has this name.
UNIT = "ingeborg.compiled"

#: Set to 1: a process runs the sources, though they are compiled.
VARIABLE = "INGEBORG_PURE"

#: Set to 1: a build compiles.
COMPILE = "INGEBORG_COMPILE"

#: Beside this file: the fingerprint of the sources that the extension modules were made of.
RECORD = "compiled.txt"

#: What is in it while they are being made: a build that was cut short is of no sources.
UNFINISHED = "unfinished"

HERE = Path(__file__).parent


def sources(package: Path = HERE) -> list[str]:
    """What is compiled, as paths below ``package``, sorted. The files that make packages of folders are not."""
    found = {path for pattern in PATTERNS for path in package.glob(pattern) if path.name != "__init__.py"}
    return sorted({path.relative_to(package).as_posix() for path in found}.difference(EXCEPT))


def fingerprint(package: Path = HERE) -> str:
    """Of these sources: their names and every byte of them."""
    digest = hashlib.blake2b(digest_size=16)
    for name in sources(package):
        data = (package / name).read_bytes()
        digest.update(f"{name} {len(data)}\n".encode())
        digest.update(data)
    return digest.hexdigest()


def pure() -> bool:
    """Has somebody asked for the interpreted form?"""
    return os.environ.get(VARIABLE, "") not in ("", "0")


def compiled() -> bool:
    """Does this process run the compiled form?"""
    spec = find_spec("ingeborg.protocol.wire")
    return spec is not None and not str(spec.origin).endswith(tuple(SOURCE_SUFFIXES))


def name() -> str:
    """``compiled`` or ``interpreted``."""
    return "compiled" if compiled() else "interpreted"


def advice() -> str:
    """What an operator of an interpreted endpoint can do, and what it is worth. Empty: the code is compiled."""
    if compiled():
        return ""
    if pure():
        return f"{VARIABLE} is set"
    how = "make compiled" if HERE.with_name("pyproject.toml").is_file() else f"install with {COMPILE}=1"
    return f"the compiled form takes about half the CPU time: {how}, docs/compiled.md"


class Interpreted:
    """Finds the sources of our modules, and no extension module."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        """See ``importlib.abc.MetaPathFinder``."""
        if path is not None and name.startswith("ingeborg."):
            for folder in path:
                spec = FileFinder(folder, (SourceFileLoader, SOURCE_SUFFIXES)).find_spec(name)
                if spec is not None and spec.loader is not None:
                    return spec
        return None


def choose() -> None:
    """Have the rest of this process import the form that it is to run. Raises ``ImportError`` where the build is of
    other sources than those beside it."""
    if pure():
        sys.meta_path.insert(0, Interpreted)
        return
    record = HERE / RECORD
    is_checkout = HERE.with_name("pyproject.toml").is_file()
    if is_checkout and record.is_file() and record.read_text(encoding="ascii").strip() != fingerprint():
        raise ImportError(
            "the extension modules here were compiled from other sources than those beside them: compile them again "
            f"(make compiled), remove them (make interpreted), or run the sources ({VARIABLE}=1)"
        )


def built(package: Path = HERE) -> list[Path]:
    """The extension modules of a build, with its record: what ``make interpreted`` removes."""
    endings = tuple(EXTENSION_SUFFIXES)
    folders = {package, *((package / source).parent for source in sources(package))}
    found = [path for folder in folders for path in folder.iterdir() if path.name.endswith(endings)]
    record = package / RECORD
    return sorted([*found, record] if record.exists() else found)


def main() -> int:
    """``python ingeborg/form.py``: removes a build that was made in place."""
    for path in built():
        path.unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main())
