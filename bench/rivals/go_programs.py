"""Rivals that are built with Go where they are first asked for: Centrifuge, and the NATS of today.

Owns: which there are, the cache of built programs, and how Go fills it. Must never: name a module proxy (Go's default,
or the user's settings, decide), install a Go, or leave half a program where a whole one is expected.

- **Centrifuge** is a library and has no program: `centrifuge/` has a small main around it.
- **NATS** is built as its makers' own main package is, out of the module that `nats/go.mod` pins: it reads the same
  `nats.conf` as a server that the system installs, and not a line of ours is in what is measured. So that folder has no
  Go file; its `tool` line is what has Go keep a main package of another module among what is required.
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

#: Where the makers' own archive puts Go, and a user's PATH need not look.
GO_PATH = "/usr/local/go/bin"
#: Some 60 MB of modules from a slow mirror. The build alone takes two minutes of a busy core where nothing is cached.
BUILD_S = 600.0


@dataclass(frozen=True)
class GoProgram:
    """``title``: for people; ``module``: whose release it is; ``package``: what is built, as Go names it; ``sources``:
    the folder of all that it is made from, where the sums pin every module."""

    name: str
    title: str
    module: str
    package: str
    sources: Path

    def release(self) -> str:
        """Of the module, as go.mod pins it."""
        return self._in_go_mod(rf"^(?:require )?\s*{re.escape(self.module)} v(\S+)")

    def go_release(self) -> str:
        """The oldest Go that builds it."""
        return self._in_go_mod(r"^go (\d+\.\d+)")

    def path(self, cache: Path = CACHE) -> Path:
        """Where the program is, once it is built. Other sources have another place."""
        made_from = hashlib.sha256()
        for file in sorted(self.sources.iterdir()):
            if file.suffix in (".go", ".mod", ".sum"):  # an editor may keep something of its own there
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
#: All of them.
PROGRAMS = (CENTRIFUGE, NATS)


def ensure(program: GoProgram, cache: Path = CACHE) -> Path:
    """The program, by Go if it is not there yet (some minutes, with network). ``NotInstalledError`` without Go,
    ``RivalError`` with the end of what Go said."""
    built = program.path(cache)
    if built.is_file():
        return built
    go = shutil.which("go") or shutil.which("go", path=GO_PATH)
    if go is None:
        raise NotInstalledError(
            f"{program.title} is built with Go {program.go_release()} or newer, and there is no go: apt-get install "
            "golang-go, or where that is older, the release of Go's makers"
        )
    print(f"{program.name}: building {program.release()} with Go as {built}: some minutes", file=sys.stderr, flush=True)
    try:
        built.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f"{program.name}-", dir=built.parent) as scratch:
            partial = Path(scratch, "program")
            _build(program, go, partial, Path(scratch, "go.log"))
            partial.replace(built)  # whole or not at all
    except OSError as error:
        raise RivalError(
            f"cannot keep {program.title}'s program as {error.filename or built}: {error.strerror}"
        ) from error
    return built


def _build(program: GoProgram, go: str, target: Path, log: Path) -> None:
    # Pinned: go.mod and go.sum are only read. No version control is asked, for a checkout may be another user's.
    command = [go, "build", "-mod=readonly", "-trimpath", "-buildvcs=false", "-o", str(target), program.package]
    # Neither a workspace of the user's around this folder nor a C compiler has a part in it, and a Go that is too old
    # says so, and fetches no newer one.
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
