"""The `bench` command: digest run logs, make the report, print the summary.

Owns arguments, exit codes (0 done, 1 failed, 2 wrong usage; missed goals are said, and are no failure) and what the
user sees of errors. Spark is loaded only by the command that needs it.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from bench import digestdir, report, summary
from bench.errors import BenchError

SPARK_LOG = "spark.log"

_EPILOG = """\
examples:
  bench digest runs/2026-03-01 --out digest          figures of one run, by a local Spark
  bench summary digest                               the table, in the terminal
  bench report digest --out report.html              the page (and summary.md beside it)
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code."""
    options = _parser().parse_args(arguments)
    try:
        return int(options.command(options))
    except BenchError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        # The reader (`| head`) has gone: its choice, not a failure. Python must not complain at exit either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        print("bench: interrupted", file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="bench",
        description="Make figures, and a page to read, of the logs that loadgen writes.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)

    command = commands.add_parser(
        "digest",
        help="compute the figures of one or more runs (needs Java 17 or newer)",
        description="Compute latency percentiles, rates, losses and goals of runs with PySpark. Writes digest.json, "
        "its tables as CSV, and spark.log (what Spark said) to DIR.",
    )
    command.add_argument("runs", nargs="+", metavar="RUN", help="directory of a run: any path that Spark can read")
    command.add_argument("--out", required=True, metavar="DIR", help="where the digest goes; made if it is not there")
    command.add_argument("--master", default="local[*]", help="Spark master (default: %(default)s)")
    command.add_argument(
        "--driver-memory", default="2g", metavar="SIZE", help="the most memory Spark may take (default: %(default)s)"
    )
    command.set_defaults(command=_digest)

    command = commands.add_parser(
        "report",
        help="write the report of a digest: one HTML page",
        description="Write one self-contained HTML page, and summary.md beside it.",
    )
    command.add_argument("digest", metavar="DIGEST_DIR", help="what `bench digest` wrote")
    command.add_argument("--out", required=True, metavar="FILE.html", help="where the page goes")
    command.set_defaults(command=_report)

    command = commands.add_parser(
        "summary",
        help="print the summary table of a digest",
        description="Print p50, p99, in, out, duplicates dropped, lost, and the goals of each run.",
    )
    command.add_argument("digest", metavar="DIGEST_DIR", help="what `bench digest` wrote")
    command.set_defaults(command=_summary)
    return parser


def _digest(options: argparse.Namespace) -> int:
    out = Path(options.out)
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BenchError(f"cannot make the directory {out}: {error.strerror}") from error
    try:
        from bench.spark import job, logs, session
    except ModuleNotFoundError as error:
        raise BenchError(f"PySpark is not installed ({error}): pip install 'ingeborg[bench]'") from error
    with session.local_session(options.master, options.driver_memory, out / SPARK_LOG) as spark:
        try:
            document = job.digest(spark, options.runs, out)
        except session.SPARK_ERRORS as error:
            raise BenchError(f"Spark failed: {logs.first_line(error)} (the rest is in {out / SPARK_LOG})") from error
    runs = document["runs"]
    lines = sum(run["log"]["lines"] for run in runs)
    print(f"Digested {len(runs)} run{'s' * (len(runs) != 1)} ({lines:,} log lines) into {out}")
    for run in runs:
        for note in run["notes"]:
            print(f"  {run['run']}: {note}")
    return 0


def _report(options: argparse.Namespace) -> int:
    document, tables = digestdir.read(Path(options.digest))
    page = Path(options.out)
    try:
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(report.page(document, tables), encoding="utf-8")
        page.with_name("summary.md").write_text(summary.markdown(document), encoding="utf-8")
    except OSError as error:
        raise BenchError(f"cannot write {error.filename or page}: {error.strerror}") from error
    print(f"Report: {page}")
    return 0


def _summary(options: argparse.Namespace) -> int:
    print(summary.terminal(digestdir.read_document(Path(options.digest))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
