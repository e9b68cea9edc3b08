"""`bench compare`: run a matrix, digest its logs, write one report.

Owns its arguments, the order of the three steps, and the files that are kept so that the report can be made again. Exit
codes are as in `ingeborg.bench.cli`. A failed cell is a result, but a comparison without any result has failed.
"""

from __future__ import annotations

import argparse
import dataclasses
import shutil
from collections.abc import Callable
from pathlib import Path

from ingeborg.bench.compare import matrix, run
from ingeborg.bench.compare.run import LOGS, RECORD, Comparison
from ingeborg.bench.digest import forms, kept
from ingeborg.bench.errors import BenchError, UsageError

REPETITIONS_MAX = 100

DIGEST = "digest"
"""The digest's folder, which is inside the folder of logs. `--resume` takes finished figures from it."""

_EPILOG = """\
DIR gets the files worth keeping: the matrix and its workload files, comparison.json (how each cell ended),
digest.parquet (figures of all runs) and report.html with summary.md. `bench report DIR/digest.parquet --out FILE.html`
makes the report again from digest.parquet alone. logs/ has all raw logs, and logs/digest/ the figures as CSV; both are
large. Interrupted by Ctrl-C? Run the same command with --resume.
"""


def add(
    commands: argparse._SubParsersAction[argparse.ArgumentParser],
    digest: Callable[[list[str], Path], int],
    report: Callable[[Path, Path], int],
) -> None:
    """Add the command. ``digest`` and ``report`` are the functions of the commands with these names."""
    command = commands.add_parser(
        "compare",
        help="run several systems under several workloads, and report them side by side",
        description="Start each system of a matrix in turn, run each workload against it, stop it; then digest all "
        "runs and write one report.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.add_argument("matrix", type=Path, metavar="MATRIX.toml", help="systems and workloads (see bench/matrices/)")
    command.add_argument("--out", type=Path, required=True, metavar="DIR", help="where to write all files")
    command.add_argument(
        "--only", action="append", metavar="NAME", help="run only this system or workload; can be repeated"
    )
    command.add_argument(
        "--repeat",
        type=int,
        default=1,
        metavar="N",
        help="number of rounds over the whole matrix (default: %(default)s)",
    )
    command.add_argument("--last", type=int, metavar="N", help="maximum number of topics in every topics workload")
    command.add_argument("--resume", action="store_true", help="continue the comparison in DIR")
    command.set_defaults(command=lambda options: _compare(options, digest, report))


def _compare(
    options: argparse.Namespace, digest: Callable[[list[str], Path], int], report: Callable[[Path, Path], int]
) -> int:
    if not 1 <= options.repeat <= REPETITIONS_MAX:
        raise UsageError(f"--repeat has to be from 1 to {REPETITIONS_MAX}")
    kept.require()  # checked now, and not after half an hour of measuring
    chosen = _chosen(matrix.read(options.matrix), options.only, options.last)
    run.check(chosen)  # also checked before a server starts
    out: Path = options.out
    if not options.resume and out.exists() and any(out.iterdir()):
        raise BenchError(f"{out} is not empty: to continue the comparison in it, add --resume")
    try:
        out.mkdir(parents=True, exist_ok=True)
        shutil.copy(options.matrix, out / "matrix.toml")
        for workload in chosen.workloads:
            shutil.copy(workload.file, out / workload.file.name)
    except OSError as error:
        raise BenchError(f"cannot write to {out}: {error}") from error
    comparison = Comparison(chosen, out, lambda text: print(text, flush=True), repetitions=options.repeat)
    if options.resume:
        comparison.resume()
    comparison.run()
    logs = comparison.logs
    if not logs:
        raise BenchError(f"no run has produced anything: {out / RECORD} says why")
    folder, file = out / LOGS / DIGEST, out / kept.NAME
    status = digest([str(path) for path in logs], folder)
    if status:
        return status
    forms.convert(folder, file, short=True)
    return report(file, out / "report.html")


def _chosen(whole: matrix.Matrix, only: list[str] | None, last: int | None) -> matrix.Matrix:
    """Return the part of the matrix that the options select."""
    workloads, systems = whole.workloads, whole.systems
    if only:
        known = {item.name for item in workloads} | {item.name for item in systems}
        unknown = [name for name in only if name not in known]
        if unknown:
            raise UsageError(f"--only {unknown[0]} is unknown; known names: {', '.join(sorted(known))}")
        workloads = [item for item in workloads if item.name in only] or workloads
        systems = [item for item in systems if item.name in only] or systems
    if last is not None:
        workloads = [
            dataclasses.replace(item, options={**item.options, "last": last}) if item.kind == "topics" else item
            for item in workloads
        ]
    return matrix.Matrix(workloads, systems)
