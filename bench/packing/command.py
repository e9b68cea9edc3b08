"""`bench packing`: repeats the document's evaluation of its algorithms, and evaluates ours.

Owns: the command's arguments, the processes that run the plan, and the progress output.
"""

from __future__ import annotations

import argparse
import json
import lzma
from pathlib import Path

from ingeborg.autoscaler import groups
from ingeborg.bench import units
from ingeborg.bench.errors import BenchError, UsageError
from ingeborg.bench.packing import cases, work
from ingeborg.bench.packing.cases import SEEDS, Unit

SEEDS_MAX = 1_000
DIGEST, TIMES = "packing.json.xz", "times.json"
PAGE, SUMMARY = "report.html", "summary.md"

NOT_IN_ROWS = (
    *("command.py", "job.py", "page.py", "scores.py", "found.py", "claims.py", "late_claims.py", "published.py"),
)
"""Source files that cannot change the rows, because they only read them."""


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command."""
    command = commands.add_parser(
        "packing",
        help="evaluate the algorithms that pack consumer groups",
        description="Evaluate every packing algorithm over streams of measurements, as the document (arXiv 2402.06085) "
        "does, digest the results with Spark, and write one page. Finished units in DIR do not run again. The same "
        f"seeds give the same {DIGEST}. A run takes ten minutes on two cores.",
    )
    command.add_argument(
        "--out", required=True, metavar="DIR", help="directory for rows, digest and page (created if missing)"
    )
    command.add_argument(
        "--seeds", type=int, default=SEEDS, metavar="N", help="streams of each kind (default: %(default)s)"
    )
    units.add_processes(command, "streams")
    command.add_argument(
        "--optimum",
        metavar="PYTHON",
        help="also search for the optimum, with the OR-tools of this interpreter (make optimum prepares one)",
    )
    command.add_argument(
        "--again", action="store_true", help=f"only rebuild the page from the {DIGEST} and {TIMES} in DIR"
    )
    command.set_defaults(command=_packing)


def _packing(options: argparse.Namespace) -> int:
    if not 1 <= options.seeds <= SEEDS_MAX:
        raise UsageError(f"--seeds has to be from 1 to {SEEDS_MAX}")
    units.check_processes(options.processes)
    out = Path(options.out)
    if not options.again:
        without_solver = [part.name for part in cases.PARTS if part.name != cases.OPTIMUM]
        plan = cases.units(options.seeds, () if options.optimum else without_solver)
        work.check(plan, options.optimum)
        units.hold(out, {"seeds": options.seeds, "optimum": options.optimum is not None, "sources": sources()})
        with units.alone(out):
            due = [(unit, out, options.optimum) for unit in plan if not work.kept(unit, out)]
            units.run_streams(_one, due, len(plan), options.processes)
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
    """Return a fingerprint of the source files that determine the rows: those of the algorithms and of the plan."""
    return units.fingerprint((Path(groups.__path__[0]), Path(__file__).parent), NOT_IN_ROWS)


def _one(job: tuple[Unit, Path, str | None]) -> None:
    work.run(*job)
