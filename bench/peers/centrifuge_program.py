"""Centrifuge as a program: the Go library behind the small main of `centrifuge/`, built where it is first asked for.

Owns: the cache of built programs and how Go fills it. Must never: name a module proxy (Go's default, or the user's
settings, decide), install a Go, or leave half a program where a whole one is expected.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import sys
import tempfile
from pathlib import Path

from ingeborg.bench.peers import fetching
from ingeborg.bench.peers.errors import NotInstalledError, PeerError
from ingeborg.bench.peers.kafka_jars import CACHE

SOURCES = Path(__file__).with_name("centrifuge")
#: What the program is made from, and all of it: the sums pin every module.
FILES = ("go.mod", "go.sum", "main.go")

#: Where the makers' own archive puts Go, and a user's PATH need not look.
GO_PATH = "/usr/local/go/bin"
#: Some 60 MB of modules from a slow mirror. The build alone takes two minutes of a busy core where nothing is cached.
BUILD_S = 600.0


def release() -> str:
    """Of Centrifuge, as go.mod pins it."""
    return _in_go_mod(r"^require github\.com/centrifugal/centrifuge v(\S+)$")


def go_release() -> str:
    """The oldest Go that builds it."""
    return _in_go_mod(r"^go (\d+\.\d+)")


def _in_go_mod(pattern: str) -> str:
    found = re.search(pattern, (SOURCES / "go.mod").read_text(encoding="utf-8"), re.MULTILINE)
    assert found is not None
    return found[1]


def program(cache: Path = CACHE) -> Path:
    """Where the program is, once it is built. Other sources have another place."""
    made_from = hashlib.sha256()
    for name in FILES:
        made_from.update((SOURCES / name).read_bytes())
    return cache.expanduser().absolute() / f"centrifuge-{release()}-{made_from.hexdigest()[:12]}"


def ensure(cache: Path = CACHE) -> Path:
    """The program, by Go if it is not there yet (some minutes, with network). ``NotInstalledError`` without Go,
    ``PeerError`` with the end of what Go said."""
    built = program(cache)
    if built.is_file():
        return built
    go = shutil.which("go") or shutil.which("go", path=GO_PATH)
    if go is None:
        raise NotInstalledError(
            f"Centrifuge is built with Go {go_release()} or newer, and there is no go: apt-get install golang-go, or "
            "where that is older, the release of Go's makers"
        )
    print(f"centrifuge: building {release()} with Go as {built}: some minutes", file=sys.stderr, flush=True)
    try:
        built.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="centrifuge-", dir=built.parent) as scratch:
            partial = Path(scratch, "program")
            _build(go, partial, Path(scratch, "go.log"))
            partial.replace(built)  # whole or not at all
    except OSError as error:
        raise PeerError(f"cannot keep Centrifuge's program as {error.filename or built}: {error.strerror}") from error
    return built


def _build(go: str, target: Path, log: Path) -> None:
    # Pinned: go.mod and go.sum are only read. No version control is asked, for a checkout may be another user's.
    command = [go, "build", "-mod=readonly", "-trimpath", "-buildvcs=false", "-o", str(target), "."]
    # Neither a workspace of the user's around this folder nor a C compiler has a part in it.
    environment = {**os.environ, "GOWORK": "off", "CGO_ENABLED": "0"}
    fetching.run(
        command,
        target,
        log,
        what="Go did not build Centrifuge",
        needs=f"; it needs Go {go_release()} or newer, and its modules from the network the first time",
        timeout_s=BUILD_S,
        environment=environment,
        folder=SOURCES,
    )
