"""`bench packing`: the document's evaluation of its algorithms, and ours, run again.

Owns: its arguments, the processes that run the plan, and what is said meanwhile.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import lzma
import multiprocessing
import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path

from ingeborg.bench.errors import BenchError
from ingeborg.bench.packing import work
from ingeborg.bench.packing.cases import SEEDS, Unit, units
from ingeborg.broker.core import groups

SEEDS_MAX = 1_000
PLAN = "plan.json"
DIGEST, TIMES = "packing.json.xz", "times.json"
PAGE, SUMMARY = "report.html", "summary.md"

NOT_IN_ROWS = ("command.py", "job.py", "page.py", "scores.py")
"""Sources that only look at rows."""


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command."""
    command = commands.add_parser(
        "packing",
        help="how well do the algorithms pack that scale consumer groups?",
        description="Run every algorithm that packs a group's load over streams of measurements, as the document "
        "(arXiv 2402.06085) evaluates them, digest what they did with Spark, and write one page. What DIR holds "
        f"already is not run again. The same seeds give the same {DIGEST}. Ten minutes of two cores.",
    )
    command.add_argument(
        "--out", required=True, metavar="DIR", help="where rows, digest and page go; made if not there"
    )
    command.add_argument(
        "--seeds", type=int, default=SEEDS, metavar="N", help="streams of a kind (default: %(default)s)"
    )
    command.add_argument(
        "--processes",
        type=int,
        default=os.process_cpu_count() if hasattr(os, "process_cpu_count") else len(os.sched_getaffinity(0)),
        metavar="N",
        help="run so many at once (default: as many as there are cores, %(default)s)",
    )
    command.add_argument(
        "--optimum",
        metavar="PYTHON",
        help="also look for the optimum, with the OR-tools of this interpreter (make optimum prepares one)",
    )
    command.add_argument(
        "--again", action="store_true", help=f"only make the page again, of the {DIGEST} and {TIMES} that DIR holds"
    )
    command.set_defaults(command=_packing)


def _packing(options: argparse.Namespace) -> int:
    if not 1 <= options.seeds <= SEEDS_MAX:
        raise BenchError(f"--seeds has to be from 1 to {SEEDS_MAX}")
    if options.processes < 1:
        raise BenchError("--processes has to be 1 or more")
    out = Path(options.out)
    if not options.again:
        _plan(out, {"seeds": options.seeds, "optimum": options.optimum is not None, "sources": sources()})
        _run(units(options.seeds), out, options.processes, options.optimum)
        _digest(out)
    _pages(out)
    return 0


def _digest(out: Path) -> None:
    from ingeborg.bench.packing import job

    print("digesting …", flush=True)
    found, times = (json.dumps(each, separators=(",", ":")).encode() + b"\n" for each in job.digest(out))
    (out / DIGEST).write_bytes(lzma.compress(found, preset=9))
    (out / TIMES).write_bytes(times)


def _pages(out: Path) -> None:
    from ingeborg.bench.packing import page

    try:
        document = json.loads(lzma.decompress((out / DIGEST).read_bytes()))
        times = json.loads((out / TIMES).read_bytes())
    except (OSError, ValueError, lzma.LZMAError) as error:
        raise BenchError(f"{out} has no {DIGEST} and {TIMES} of bench packing ({error})") from error
    summary = page.summary(document)
    (out / PAGE).write_text(page.page(document, times), encoding="utf-8")
    (out / SUMMARY).write_text(summary, encoding="utf-8")
    print(summary)
    print(out / PAGE)


def sources() -> str:
    """A fingerprint of what decides what is in the rows: the algorithms, and the plan."""
    digest = hashlib.blake2b(digest_size=8)
    for folder in (groups.__path__[0], str(Path(__file__).parent)):
        for path in sorted(Path(folder).glob("*.py")):
            if path.name not in NOT_IN_ROWS:
                digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()


def _plan(out: Path, wanted: dict[str, object]) -> None:
    """Results of another plan, or of other algorithms, are not mixed with this one's."""
    path = out / PLAN
    if path.is_file():
        found = json.loads(path.read_text(encoding="utf-8"))
        differ = ", ".join(name for name in wanted if found.get(name) != wanted[name])
        if differ:
            raise BenchError(f"{out} holds the results of another plan (other {differ}): give another --out")
        return
    out.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(wanted) + "\n", encoding="utf-8")


def _run(plan: Sequence[Unit], out: Path, processes: int, python: str | None) -> None:
    due = [unit for unit in plan if not work.kept(unit, out)]
    print(f"{len(plan)} streams, {len(plan) - len(due)} of them done before", flush=True)
    if not due:
        return
    begun = said = time.monotonic()
    context = multiprocessing.get_context("spawn")
    with context.Pool(min(processes, len(due)), signal.signal, (signal.SIGINT, signal.SIG_IGN)) as pool:
        jobs = [(unit, out, python) for unit in due]
        for done, _ in enumerate(pool.imap_unordered(_one, jobs), 1):
            if time.monotonic() - said >= 10.0:
                said = time.monotonic()
                print(f"  {done} of {len(due)} after {said - begun:.0f} s", flush=True)
    print(f"{len(due)} streams in {time.monotonic() - begun:.0f} s", flush=True)


def _one(job: tuple[Unit, Path, str | None]) -> None:
    work.run(*job)
