"""The two forms of the code: compiled by mypyc, or interpreted from the sources.

Owns: the list of compiled modules, the fingerprint of a build, and the form that a process runs. Must never: import one
of our modules, or anything outside the standard library, because `setup.py` runs this module before anything is
installed.

Python imports an extension module in preference to the source in the same folder. So a process would run an old build
although the sources have changed, and a developer who changes a line would see no effect. In a checkout, ``choose``
therefore rejects a build that was made from other sources.
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

#: The compiled modules, as patterns relative to `ingeborg/`. They contain the code that decides and checks, and the
#: code of each turn of an endpoint's event loop.
PATTERNS = (
    "autoscaler/groups/*.py",
    "broker/core/**/*.py",
    "broker/shell/accepting.py",
    "broker/shell/client_socket.py",
    "broker/shell/clients.py",
    "broker/shell/driver.py",
    "broker/shell/event_stream.py",
    "broker/shell/fairness.py",
    "broker/shell/http_connection.py",
    "broker/shell/peer_socket.py",
    "broker/store/embedded/now.py",
    "protocol/bounded.py",
    "protocol/bounds.py",
    "protocol/errors.py",
    "protocol/filters.py",
    "protocol/frames.py",
    "protocol/hashes.py",
    "protocol/lines.py",
    "protocol/messages.py",
    "protocol/sockets.py",
    "protocol/topics.py",
    "protocol/wire.py",
)

#: Exceptions from the patterns: mypyc cannot compile msgspec's records.
EXCEPT = (
    "broker/core/links/frames.py",
    "broker/core/links/requests.py",
)

#: The name of the module that mypyc builds for the single compilation unit, in which functions call each other
#: directly.
UNIT = "ingeborg.compiled"

#: If this variable is 1, a process runs the sources, even if they are compiled.
VARIABLE = "INGEBORG_PURE"

#: If this variable is 1, a build of the package compiles the modules above.
COMPILE = "INGEBORG_COMPILE"

#: The file in this folder that holds the fingerprint of the sources from which the extension modules were built.
RECORD = "compiled.txt"

#: The content of that file during a build. It matches no sources, so an interrupted build counts as a build from other
#: sources.
UNFINISHED = "unfinished"

HERE = Path(__file__).parent


def sources(package: Path = HERE) -> list[str]:
    """Return the compiled modules as sorted paths below ``package``, without any ``__init__.py``."""
    found = {path for pattern in PATTERNS for path in package.glob(pattern) if path.name != "__init__.py"}
    return sorted({path.relative_to(package).as_posix() for path in found}.difference(EXCEPT))


def fingerprint(package: Path = HERE) -> str:
    """Return a hash of the names and contents of these sources."""
    digest = hashlib.blake2b(digest_size=16)
    for name in sources(package):
        data = (package / name).read_bytes()
        digest.update(f"{name} {len(data)}\n".encode())
        digest.update(data)
    return digest.hexdigest()


def pure() -> bool:
    """Return whether the environment requests the interpreted form."""
    return os.environ.get(VARIABLE, "") not in ("", "0")


def compiled() -> bool:
    """Return whether this process runs the compiled form."""
    spec = find_spec("ingeborg.protocol.wire")
    return spec is not None and not str(spec.origin).endswith(tuple(SOURCE_SUFFIXES))


def name() -> str:
    """Return ``compiled`` or ``interpreted``."""
    return "compiled" if compiled() else "interpreted"


def advice() -> str:
    """Return advice for the operator of an interpreted endpoint. The text is empty if the code is compiled."""
    if compiled():
        return ""
    if pure():
        return f"{VARIABLE} is set"
    how = "make compiled" if HERE.with_name("pyproject.toml").is_file() else f"install with {COMPILE}=1"
    return f"the compiled form takes about half the CPU time: {how} (see docs/compiled.md)"


class Interpreted:
    """Finds the sources of our modules, and ignores extension modules."""

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
    """Make all later imports of this process load the chosen form.

    Raises:
        ImportError: if the build in this checkout was made from other sources.
    """
    if pure():
        sys.meta_path.insert(0, Interpreted)
        return
    record = HERE / RECORD
    is_checkout = HERE.with_name("pyproject.toml").is_file()
    if is_checkout and record.is_file() and record.read_text(encoding="ascii").strip() != fingerprint():
        raise ImportError(
            "the extension modules were compiled from other sources than this checkout's: compile them again "
            f"(make compiled), remove them (make interpreted), or run the sources ({VARIABLE}=1)"
        )


def built(package: Path = HERE) -> list[Path]:
    """Return the files of a build that ``make interpreted`` removes: the extension modules and the record."""
    endings = tuple(EXTENSION_SUFFIXES)
    folders = {package, *((package / source).parent for source in sources(package))}
    found = [path for folder in folders for path in folder.iterdir() if path.name.endswith(endings)]
    record = package / RECORD
    return sorted([*found, record] if record.exists() else found)


def main() -> int:
    """Remove a build that was made in place (``python ingeborg/form.py``)."""
    for path in built():
        path.unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main())
