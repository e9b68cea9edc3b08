"""The files of a plan's results, and the number of processes that run its units.

Owns: complete result files, and separate folders for the results of different plans or different source code. Must
never: depend on what a unit does.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import json
import os
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import orjson

from ingeborg.bench.errors import BenchError, UsageError

PLAN: Final = "plan.json"
"""The file in a folder of results that names the plan and a hash of the source code."""

SAY_S: Final = 10.0
"""Seconds between two lines that report how many units are done."""


def add_processes(command: argparse.ArgumentParser, what: str) -> None:
    """Add ``--processes`` to a command that runs several ``what`` at the same time."""
    cores = os.process_cpu_count() if hasattr(os, "process_cpu_count") else len(os.sched_getaffinity(0))
    command.add_argument(
        "--processes",
        type=int,
        default=cores,
        metavar="N",
        help=f"run this many {what} at the same time (default: one for each core, %(default)s)",
    )


def check_processes(count: int) -> None:
    """Check the number of processes. Raises ``BenchError`` if it is too low."""
    if count < 1:
        raise UsageError("--processes has to be 1 or more")


def fingerprint(folders: Iterable[Path], without: Collection[str] = ()) -> str:
    """Return a hash of the Python sources below these folders, except files and folders whose names are in
    ``without``."""
    digest = hashlib.blake2b(digest_size=8)
    for folder in folders:
        for path in sorted(folder.rglob("*.py")):
            name = path.relative_to(folder)
            if not any(part in without for part in name.parts):
                digest.update(name.as_posix().encode() + path.read_bytes())
    return digest.hexdigest()


def hold(out: Path, wanted: dict[str, Any]) -> None:
    """Make a folder for the results of a plan. Raises ``BenchError`` if it holds results of another plan."""
    path = out / PLAN
    try:
        if path.is_file():
            found = json.loads(path.read_text(encoding="utf-8"))
            if not isinstance(found, dict):
                raise ValueError("it has to be an object")
            differ = ", ".join(name for name in wanted if found.get(name) != wanted[name])
            if differ:
                raise BenchError(f"{out} holds the results of another plan (other {differ}): give another --out")
            return
        out.mkdir(parents=True, exist_ok=True)
        keep(path, [wanted])
    except OSError as error:
        raise BenchError(f"--out {out}: {error.strerror}") from error
    except ValueError as error:
        raise BenchError(f"{path} is not a plan ({error}): give another --out") from error


@contextmanager
def alone(out: Path) -> Iterator[None]:
    """Keep other processes from writing results into this existing folder until the block ends. Raises ``BenchError``
    if another process already does."""
    folder = os.open(out, os.O_RDONLY)
    try:
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise BenchError(f"another bench writes into {out}: wait for it, or give another --out") from error
        yield
    finally:
        os.close(folder)


def keep(path: Path, rows: Iterable[Any]) -> None:
    """Write a line of JSON for each row into a file. The file appears only when it is complete."""
    write(path, b"".join(orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE) for row in rows))


def write(path: Path, data: bytes) -> None:
    """Write a file. It appears, or replaces the former file, only when it is complete."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}")
    part.write_bytes(data)
    part.replace(path)
