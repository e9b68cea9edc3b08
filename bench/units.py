"""Units of a plan: each runs once and is kept separately, so that an interrupted run continues where it stopped.

Owns: keeping results of different plans, or of different sources, apart; that every kept file is complete; the
processes that run units. Must never: know what a unit is.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import json
import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

import orjson

from ingeborg.bench.errors import BenchError, UsageError

PLAN: Final = "plan.json"
"""The file of a result that names its plan and its sources."""

SAY_S: Final = 10.0
"""Seconds between two lines that report how many units are done."""

Job = TypeVar("Job")


def add_processes(command: argparse.ArgumentParser, what: str) -> None:
    """Add ``--processes`` to a command that runs several ``what`` at once."""
    cores = os.process_cpu_count() if hasattr(os, "process_cpu_count") else len(os.sched_getaffinity(0))
    command.add_argument(
        "--processes",
        type=int,
        default=cores,
        metavar="N",
        help=f"run this many {what} at once (default: as many as there are cores, %(default)s)",
    )


def check_processes(count: int) -> None:
    """Check the number of processes. Raises ``BenchError``: it is too low."""
    if count < 1:
        raise UsageError("--processes has to be 1 or more")


def fingerprint(folders: Iterable[Path], without: Collection[str] = ()) -> str:
    """Return a hash of the Python sources below these folders, without files and folders of the names ``without``."""
    digest = hashlib.blake2b(digest_size=8)
    for folder in folders:
        for path in sorted(folder.rglob("*.py")):
            name = path.relative_to(folder)
            if not any(part in without for part in name.parts):
                digest.update(name.as_posix().encode() + path.read_bytes())
    return digest.hexdigest()


def hold(out: Path, wanted: dict[str, Any]) -> None:
    """Make a folder for the results of a plan. Raises ``BenchError``: it holds those from another plan."""
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
        raise BenchError(f"{path} is no plan ({error}): give another --out") from error


@contextmanager
def alone(out: Path) -> Iterator[None]:
    """Keep other processes from running units into this folder, which exists, until the end of the block. Raises
    ``BenchError``: another one does."""
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
    """Write a line of JSON for each row, into a file that appears complete or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}")
    part.write_bytes(b"".join(orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE) for row in rows))
    part.replace(path)


def run(
    work: Callable[[Job], object], jobs: Sequence[Job], processes: int, *, fresh: bool = False
) -> Iterator[tuple[int, float]]:
    """Run the units in separate processes. After each, yield how many are done, and after how many seconds. ``work``: a
    function that can be named in another process. ``fresh``: a process for each, so that memory is given back.

    An interrupt reaches this process only, which ends the others."""
    if not jobs:
        return
    begun = time.monotonic()
    context = multiprocessing.get_context("spawn")
    with context.Pool(
        min(processes, len(jobs)),
        signal.signal,
        (signal.SIGINT, signal.SIG_IGN),
        maxtasksperchild=1 if fresh else None,
    ) as pool:
        for done, _ in enumerate(pool.imap_unordered(work, jobs), 1):
            yield done, time.monotonic() - begun


def run_streams(work: Callable[[Job], object], due: Sequence[Job], planned: int, processes: int) -> None:
    """``run`` for units that are streams; print the progress."""
    print(f"{planned} streams, {planned - len(due)} done before", flush=True)
    said_s = spent_s = 0.0
    for done, spent_s in run(work, due, processes):
        if spent_s - said_s >= SAY_S:
            said_s = spent_s
            print(f"  {done} of {len(due)} after {spent_s:.0f} s", flush=True)
    if due:
        print(f"{len(due)} streams in {spent_s:.0f} s", flush=True)
