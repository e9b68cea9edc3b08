"""The `bench` command: start rivals, digest and check run logs, make the report, print the summary.

Owns: arguments, exit codes, and the errors that the user sees. The exit codes are 0 (done), 1 (failed), 2 (wrong usage
or a missing extra) and 130 (interrupted). A missed goal is reported, but is not a failure. A finding of `check` is a
failure. Only the command that needs Spark loads it. A library that is not installed disables only the command that
needs it.
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from ingeborg import streams
from ingeborg.bench import report
from ingeborg.bench.check import command as check
from ingeborg.bench.digest import files, forms, kept
from ingeborg.bench.digest.document import Json
from ingeborg.bench.errors import BenchError, ExtraMissing, UsageError
from ingeborg.bench.text import statements, summary

SPARK_LOG = "spark.log"

DRIVER_MEMORY = "4g"
"""Enough for ten million events on two cores (docs/digest.md). Java uses only as much of this memory as it needs."""

NOTES_MAX = 20
"""Maximum number of notes on runs to print. With a hundred notes about a missing machine.csv, users would overlook the
first note."""

_EPILOG = """\
examples:
  bench digest runs/2026-03-01 --out digest          figures of one run, or of all runs below a directory
  bench summary digest                               the tables, in the terminal
  bench report digest --out report.html              the page (with summary.md next to it)
  bench convert digest --out digest.parquet          the digest as one small file, to keep it, or back
  bench check causal runs/2026-03-01                 did anything arrive before the message it depends on?
  bench compare bench/matrices/thesis.toml --out c   several systems under several workloads, in one report
  bench rivals up rabbitmq nats                       real servers on loopback, to run loadgen against
Each command has its own --help.
"""

_DIGEST = f"the folder that `bench digest` wrote, or a file {kept.NAME}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command, and return its exit code."""
    options = _parser().parse_args(arguments)
    # Handle SIGTERM like Ctrl-C, so that a command stops the servers and the generator that it has started.
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        return int(options.command(options))
    except BenchError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 2 if isinstance(error, UsageError) else 1
    except KeyboardInterrupt as interrupt:
        print(": ".join(["bench: interrupted", *map(str, interrupt.args)]), file=sys.stderr)
        return 130
    finally:
        signal.signal(signal.SIGTERM, before)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="bench",
        description="Compute figures and a report from the logs that loadgen writes; start rivals to compare with.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)

    command = commands.add_parser(
        "digest",
        help="compute the figures of runs (needs Java 17 or newer)",
        description="Compute latency percentiles, rates, costs, losses and goals of runs with PySpark. Writes "
        "digest.json, its tables as CSV, and spark.log (Spark's own log) to DIR. Does not compute a run again if DIR "
        "already has its figures and the run has not changed.",
    )
    command.add_argument(
        "runs",
        nargs="+",
        metavar="RUN",
        help="directory of one run, or of many runs at any depth; any path that Spark can read",
    )
    command.add_argument("--out", required=True, metavar="DIR", help="where to write the digest; created if missing")
    command.add_argument("--fresh", action="store_true", help="also recompute the runs whose figures DIR already has")
    _add_spark(command)
    command.set_defaults(
        command=lambda options: digest(
            options.runs,
            Path(options.out),
            fresh=options.fresh,
            master=options.master,
            driver_memory=options.driver_memory,
        )
    )

    command = commands.add_parser(
        "report",
        help="write the report of a digest: one HTML page",
        description="Write one self-contained HTML page, and summary.md next to it. The page shows which goals were "
        "met, ratios between systems, plots over topics and over time, and how everything was measured.",
    )
    command.add_argument("digest", metavar="DIGEST", help=_DIGEST)
    command.add_argument("--out", required=True, metavar="FILE.html", help="where to write the page")
    command.set_defaults(command=lambda options: write_report(Path(options.digest), Path(options.out)))

    command = commands.add_parser(
        "summary",
        help="print the tables of a digest",
        description="Print the comparison of systems. For a single run, print p50, p99, message rates in and out, "
        "dropped duplicates, losses, and its goals.",
    )
    command.add_argument("digest", metavar="DIGEST", help=_DIGEST)
    command.set_defaults(command=_summary)

    command = commands.add_parser(
        "convert",
        help="write a digest as one file, or as a folder of CSV files",
        description="Write a digest in its other form. One form is a compressed file (Parquet), which has a fourteenth "
        "of "
        f"the size. The other is the folder of {files.DOCUMENT} and CSV files that `bench digest` writes. Both hold "
        "the same values.",
    )
    command.add_argument("digest", metavar="DIGEST", help=_DIGEST)
    command.add_argument(
        "--out",
        required=True,
        type=Path,
        metavar=f"FILE{kept.SUFFIX}|DIR",
        help=f"where to write: to a file if the name ends in {kept.SUFFIX}, otherwise to a folder",
    )
    command.add_argument(
        "--short",
        action="store_true",
        help="round values to the digits that a page shows, as `bench compare` does; the result is a quarter smaller",
    )
    command.set_defaults(command=_convert)

    check.add(commands, _add_spark)
    try:
        from ingeborg.bench.autoscale.experiment import Autoscale
        from ingeborg.bench.caching.experiment import Caching
        from ingeborg.bench.compare import command as compare
        from ingeborg.bench.drift import command as drift
        from ingeborg.bench.dyconits.experiment import Dyconits
        from ingeborg.bench.experiments import runner
        from ingeborg.bench.overlay.experiment import Overlay
        from ingeborg.bench.packing.experiment import Packing
        from ingeborg.bench.rivals import commands as rivals
    except ModuleNotFoundError as error:
        for name in ("compare", "drift", "autoscale", "overlay", "packing", "caching", "dyconits", "rivals"):
            _add_absent(commands, name, error)
    else:
        compare.add(commands, digest, write_report)
        drift.add(commands)
        for experiment in (Autoscale(), Overlay(), Packing(), Caching(), Dyconits()):
            runner.add(commands, experiment)
        rivals.add(commands)
    return parser


def _add_spark(command: argparse.ArgumentParser) -> None:
    command.add_argument("--master", default="local[*]", help="Spark master (default: %(default)s)")
    command.add_argument(
        "--driver-memory",
        default=DRIVER_MEMORY,
        metavar="SIZE",
        help="maximum memory for Spark (default: %(default)s)",
    )


def _add_absent(
    commands: argparse._SubParsersAction[argparse.ArgumentParser], name: str, error: ModuleNotFoundError
) -> None:
    """Add a command that only reports that its libraries are not installed. The other commands work."""
    command = commands.add_parser(name, help=f"not installed ({error})")
    command.add_argument("rest", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)

    def absent(_: argparse.Namespace) -> int:
        raise ExtraMissing(f"bench {name} is not installed ({error}): pip install 'ingeborg[bench]'")

    command.set_defaults(command=absent)


def digest(
    runs: Sequence[str],
    out: Path,
    *,
    fresh: bool = False,
    master: str = "local[*]",
    driver_memory: str = DRIVER_MEMORY,
) -> int:
    """Digest the runs in and below these paths into `out`, and print what was done. Raises BenchError."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BenchError(f"cannot make the directory {out}: {error.strerror}") from error
    try:
        from ingeborg.bench.spark import inventory, job, session
    except ModuleNotFoundError as error:
        raise ExtraMissing(f"PySpark is not installed ({error}): pip install 'ingeborg[bench]'") from error
    size_bytes = inventory.local_bytes(runs)
    with session.local_session(master, driver_memory, out / SPARK_LOG, size_bytes=size_bytes) as spark:
        try:
            document = job.digest(spark, runs, out, fresh=fresh)
        except session.SPARK_ERRORS as error:
            raise BenchError(f"Spark failed: {inventory.reason(error)} (the rest is in {out / SPARK_LOG})") from error
    digested = document["runs"]
    lines = sum(run["log"]["lines"] for run in digested)
    print(f"Digested {len(digested)} run{'s' * (len(digested) != 1)} ({lines:,} log lines) into {out}")
    say_notes(digested)
    return 0


def say_notes(runs: Sequence[Json]) -> None:
    """Print the notes that a reader must know before relying on the figures. Each note is a line."""
    notes = [f"  {run['run']}: {note}" for run in runs for note in statements.notes(run)]
    for note in notes[:NOTES_MAX]:
        print(summary.plain(note))
    if len(notes) > NOTES_MAX:
        print(f"  and {len(notes) - NOTES_MAX:,} more notes, which are on the page")


def write_report(source: Path, page: Path) -> int:
    """Write the page of the digest at `source`, with summary.md next to it. Raises BenchError."""
    document, tables = forms.read(source)
    try:
        page.parent.mkdir(parents=True, exist_ok=True)
        with files.whole(page) as html, files.whole(page.with_name("summary.md")) as markdown:
            html.write_text(report.page(document, tables), encoding="utf-8")
            markdown.write_text(summary.markdown(document), encoding="utf-8")
    except OSError as error:
        raise BenchError(f"cannot write {page}: {error.strerror}") from error
    print(f"Report: {page}")
    return 0


def _summary(options: argparse.Namespace) -> int:
    print(summary.terminal(forms.read_document(Path(options.digest))))
    return 0


def _convert(options: argparse.Namespace) -> int:
    forms.convert(Path(options.digest), options.out, short=options.short)
    print(f"Digest: {options.out}")
    return 0


if __name__ == "__main__":
    sys.exit(streams.run("bench", main))
