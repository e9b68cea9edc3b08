"""Rivals that Go builds on first use: Centrifuge, and the current NATS.

Owns: the list of programs, the cache of built ones, and how Go fills it. Must never: name a module proxy (Go's default,
or the user's settings, decide), install a Go, or leave half a program where a complete one is expected.

- **Centrifuge** is a library and has no program: `centrifuge/` has a small main around it.
- **NATS** is its makers' own main package, built from the module that `nats/go.mod` pins: it reads the same `nats.conf`
  as a server that the system installs, and the measured program has no line of ours. So that folder has no Go file; its
  `tool` line makes Go keep a main package of another module among the requirements.
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

#: The makers' own archive puts Go here, which may be missing from a user's PATH.
GO_PATH = "/usr/local/go/bin"
#: Some 60 MB of modules from a slow mirror. The build alone takes two minutes of a busy core where nothing is cached.
BUILD_S = 600.0


@dataclass(frozen=True)
class GoProgram:
    """``title``: for people; ``module``: the module that gives the release; ``package``: the package to build, as Go
    names it; ``sources``: the folder of all its sources, where the sums pin every module."""

    name: str
    title: str
    module: str
    package: str
    sources: Path

    def release(self) -> str:
        """The module's release, as go.mod pins it."""
        return self._in_go_mod(rf"^(?:require )?\s*{re.escape(self.module)} v(\S+)")

    def go_release(self) -> str:
        """The oldest Go that builds it."""
        return self._in_go_mod(r"^go (\d+\.\d+)")

    def path(self, cache: Path = CACHE) -> Path:
        """Return the path of the program, once it is built. Other sources have another path."""
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
    """Return the program; Go builds it if it is missing (some minutes, with network). ``NotInstalledError`` without Go,
    ``RivalError`` with the end of Go's output."""
    built = program.path(cache)
    if built.is_file():
        return built
    go = shutil.which("go") or shutil.which("go", path=GO_PATH)
    if go is None:
        raise NotInstalledError(
            f"{program.title} is built with Go {program.go_release()} or newer, and there is no go: apt-get install "
            "golang-go or, if that is older, the release of Go's makers"
        )
    print(f"{program.name}: building {program.release()} with Go as {built}: some minutes", file=sys.stderr, flush=True)
    try:
        built.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f"{program.name}-", dir=built.parent) as scratch:
            partial = Path(scratch, "program")
            _build(program, go, partial, Path(scratch, "go.log"))
            partial.replace(built)  # complete or not at all
    except OSError as error:
        raise RivalError(
            f"cannot keep {program.title}'s program as {error.filename or built}: {error.strerror}"
        ) from error
    return built


def _build(program: GoProgram, go: str, target: Path, log: Path) -> None:
    # Pinned: Go only reads go.mod and go.sum. It does not call the version control: the checkout may belong to another
    # user.
    command = [go, "build", "-mod=readonly", "-trimpath", "-buildvcs=false", "-o", str(target), program.package]
    # It ignores a user's workspace around this folder and needs no C compiler. A Go that is too old says so instead of
    # fetching a newer one.
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
