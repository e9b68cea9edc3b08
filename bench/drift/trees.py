"""Copy the sources of a commit and of the working tree, each to its own folder, and compile the copies if needed.

Owns: the copies, and the builds in them. Must never: change the repository, or fetch a missing commit.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tarfile
from io import BytesIO
from pathlib import Path

from ingeborg import form
from ingeborg.bench.errors import BenchError
from ingeborg.bench.starting import environment

#: Time limit for compiling a copy, in seconds. Compiling takes some minutes of one core, and longer on a busy machine.
COMPILE_S_MAX = 3_600.0

#: Number of latest builds to keep. Each build has 5 to 10 MB.
KEPT_MAX = 12
GIT_S_MAX = 60.0

#: An endpoint runs code from the first three folders only. The last two files decide how it is compiled.
RUN = ("broker", "protocol", "ingeborg", "setup.py", "pyproject.toml")

#: The folders and files that are needed to compile and run an endpoint.
NEEDED = (
    *("broker", "protocol", "ingeborg", "autoscaler", "loadgen", "bench"),
    *("setup.py", "pyproject.toml", "README.md", "LICENSE"),
)


def _git(root: Path, *arguments: str) -> bytes:
    try:
        done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, timeout=GIT_S_MAX, check=False)
    except FileNotFoundError:
        raise BenchError("git is not installed, and comparing with a commit needs it") from None
    except subprocess.TimeoutExpired:
        raise BenchError(f"git {arguments[0]} did not end within {GIT_S_MAX:g} s") from None
    if done.returncode:
        raise BenchError(done.stderr.decode(errors="replace").strip() or f"git {arguments[0]} failed")
    return done.stdout


def commit(root: Path, name: str) -> str:
    """Return the hash of the commit with this name. Raises ``BenchError`` if the commit is not in this clone."""
    try:
        return _git(root, "rev-parse", "--verify", "--quiet", f"{name}^{{commit}}").decode().strip()
    except BenchError:
        text = f"there is no commit {name} in {root}"
        if _git(root, "rev-parse", "--is-shallow-repository").strip() == b"true":
            text += ", which is a shallow clone: git fetch --unshallow"
        raise BenchError(text) from None


def of_commit(root: Path, name: str, out: Path) -> None:
    """Copy the sources of a commit into an empty folder."""
    with tarfile.open(fileobj=BytesIO(_git(root, "archive", "--format=tar", name))) as archive:
        archive.extractall(out, filter="tar")


def of_working_tree(root: Path, out: Path) -> None:
    """Copy the present sources, whether committed or not, into an empty folder."""
    leave = shutil.ignore_patterns("__pycache__", "results", "*.so", form.RECORD)
    for name in NEEDED:
        source = root / name
        if source.is_dir():
            shutil.copytree(source, out / name, symlinks=True, ignore=leave)
        else:
            shutil.copy(source, out / name)


def compiled(tree: Path, kept: Path) -> None:
    """Compile a tree in place and keep the build in the folder ``kept``. If that folder already has a build of the same
    sources, use it instead."""
    if not (tree / "ingeborg" / "form.py").is_file():
        raise BenchError(
            f"{tree.name} is older than the compiled form: compare the interpreted forms (--timing --interpreted)"
        )
    package = tree / "ingeborg"
    store = kept / f"{_digest(tree)}-{sys.implementation.cache_tag}"
    if not store.is_dir():
        command = [sys.executable, "setup.py", "--quiet", "build_ext", "--inplace"]
        try:
            done = subprocess.run(
                command, cwd=tree, env=environment(), capture_output=True, timeout=COMPILE_S_MAX, check=False
            )
        except subprocess.TimeoutExpired:
            raise BenchError(f"{tree.name} was not compiled within {COMPILE_S_MAX:g} s") from None
        made = form.built(package)
        if done.returncode or not made:
            raise BenchError(f"{tree.name} cannot be compiled: {done.stderr.decode(errors='replace')[-2000:]}")
        unfinished = store.with_name(store.name + ".new")
        shutil.rmtree(unfinished, ignore_errors=True)
        for path in made:
            place = unfinished / path.relative_to(package)
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, place)
        unfinished.rename(store)
        for old in sorted(kept.iterdir(), key=lambda path: path.stat().st_mtime)[:-KEPT_MAX]:
            shutil.rmtree(old)
        return
    for path in store.rglob("*"):
        if path.is_file():
            shutil.copy(path, package / path.relative_to(store))


def same_code(one: Path, other: Path) -> bool:
    """Return whether an endpoint runs the same code in both trees. Differences in documents, tests and benchmarks are
    ignored."""
    return _code(one) == _code(other)


def _code(tree: Path) -> bytes:
    digest = hashlib.blake2b(digest_size=16)
    for name in RUN:
        top = tree / name
        for path in sorted(top.rglob("*")) if top.is_dir() else [top]:
            if path.is_file() and not path.is_symlink() and path.suffix not in (".md", ".pyc", ".so"):
                data = path.read_bytes()
                digest.update(f"{path.relative_to(tree).as_posix()} {len(data)}\n".encode())
                digest.update(data)
    return digest.digest()


def _digest(tree: Path) -> str:
    """Return a hash of a build's inputs, which are the compiled sources and the compiler's settings."""
    digest = hashlib.blake2b(form.fingerprint(tree / "ingeborg").encode(), digest_size=16)
    for name in ("setup.py", "pyproject.toml", "ingeborg/form.py"):
        digest.update((tree / name).read_bytes())
    return digest.hexdigest()
