"""The rivals that Go builds on first use, which are Centrifuge and the current NATS.

Owns: the list of programs, the cache of built programs, and how Go fills the cache. Must never: name a module proxy
(Go's default or the user's settings decide), install Go, or leave a partial program where a complete one is expected.

- **Centrifuge** is a library, not a program. The folder `centrifuge/` has a small main program around it.
- **NATS** is the main package of its makers, built from the module that `nats/go.mod` pins. It reads the same
  `nats.conf` as a server that the system installs. None of its code is ours, so the folder `nats/` has no Go file. The
  `tool` line in that folder's go.mod makes Go keep NATS's module among the requirements.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from ingeborg.bench.rivals import fetching
from ingeborg.bench.rivals.errors import NotInstalledError, RivalError
from ingeborg.bench.rivals.kafka_jars import CACHE

#: Folder of a Go that was installed from its makers' archive. It may be missing from a user's PATH.
GO_PATH = "/usr/local/go/bin"
#: Time limit of a build. It may have to fetch about 60 MB of modules from a slow mirror. The build alone takes two
#: minutes of a core if nothing is cached.
BUILD_S = 600.0


@dataclass(frozen=True)
class GoProgram:
    """A program that Go builds. ``title`` is the name for people. ``module`` is the module whose release counts.
    ``package`` is the package to build, as Go names it. ``sources`` is the folder with the sources and with go.sum,
    which pins every module."""

    name: str
    title: str
    module: str
    package: str
    sources: Path

    def release(self) -> str:
        """Return the module's release, as go.mod pins it."""
        return self._in_go_mod(rf"^(?:require )?\s*{re.escape(self.module)} v(\S+)")

    def go_release(self) -> str:
        """Return the oldest release of Go that can build the program."""
        return self._in_go_mod(r"^go (\d+\.\d+)")

    def path(self, cache: Path = CACHE) -> Path:
        """Return the path that the built program has or will have. It depends on the content of the sources."""
        made_from = hashlib.sha256()
        for file in sorted(self.sources.iterdir()):
            if file.suffix in (".go", ".mod", ".sum"):  # an editor may keep its own files there
                made_from.update(file.read_bytes())
        return cache.expanduser().absolute() / f"{self.name}-{self.release()}-{made_from.hexdigest()[:12]}"

    def _in_go_mod(self, pattern: str) -> str:
        found = re.search(pattern, (self.sources / "go.mod").read_text(encoding="utf-8"), re.MULTILINE)
        assert found is not None
        return found[1]


_HERE = Path(__file__).parent

CENTRIFUGE = GoProgram("centrifuge", "Centrifuge", "github.com/centrifugal/centrifuge", ".", _HERE / "centrifuge")
NATS = GoProgram(
    "nats", "NATS", "github.com/nats-io/nats-server/v2", "github.com/nats-io/nats-server/v2", _HERE / "nats"
)
#: Every such program.
PROGRAMS = (CENTRIFUGE, NATS)


def ensure(program: GoProgram, cache: Path = CACHE) -> Path:
    """Return the path of the program. If the program is missing, Go builds it, which takes a few minutes and needs the
    network. Raises ``NotInstalledError`` if there is no Go, and ``RivalError``, with the end of Go's output, if the
    build fails."""
    built = program.path(cache)
    if built.is_file():
        return built
    go = shutil.which("go") or shutil.which("go", path=GO_PATH)
    if go is None:
        raise NotInstalledError(
            f"{program.title} is built with Go {program.go_release()} or newer, and there is no go: apt-get install "
            "golang-go or, if that is too old, install Go from its makers"
        )
    print(
        f"{program.name}: building {program.release()} with Go as {built} (some minutes)", file=sys.stderr, flush=True
    )
    try:
        built.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f"{program.name}-", dir=built.parent) as scratch:
            partial = Path(scratch, "program")
            _build(program, go, partial, Path(scratch, "go.log"))
            partial.replace(built)  # the program appears complete or not at all
    except OSError as error:
        raise RivalError(
            f"cannot keep {program.title}'s program as {error.filename or built}: {error.strerror}"
        ) from error
    return built


def _build(program: GoProgram, go: str, target: Path, log: Path) -> None:
    # Go only reads go.mod and go.sum, which pin all modules. It must not call the version control, because the checkout
    # may belong to another user.
    command = [go, "build", "-mod=readonly", "-trimpath", "-buildvcs=false", "-o", str(target), program.package]
    # Go ignores a workspace of the user around this folder, and needs no C compiler. If Go is too old, it reports this
    # instead of fetching a newer release.
    environment = {**os.environ, "GOWORK": "off", "CGO_ENABLED": "0", "GOTOOLCHAIN": "local"}
    fetching.run(
        command,
        target,
        log,
        what=f"Go did not build {program.title}",
        needs=f"; it needs Go {program.go_release()} or newer, and its modules from the network the first time",
        timeout_s=BUILD_S,
        environment=environment,
        folder=program.sources,
    )
