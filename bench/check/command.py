"""`bench check causal`: its arguments, its Spark session and its exit code.

Must never: judge a run, because `bench.spark.causal` does that.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from ingeborg.bench.digest.document import Json
from ingeborg.bench.errors import BenchError, ExtraMissing
from ingeborg.bench.text import causal as text


def add(
    commands: argparse._SubParsersAction[argparse.ArgumentParser],
    add_spark: Callable[[argparse.ArgumentParser], None],
) -> None:
    """Add the command. `add_spark` adds the options of a Spark session."""
    check = commands.add_parser("check", help="check in the logs of runs whether a system keeps its promises")
    checks = check.add_subparsers(title="checks", metavar="CHECK", required=True)
    command = checks.add_parser(
        "causal",
        help="check whether messages arrived before the messages on which they depend",
        description="Find every connection that got a message before another message on which this message depends, "
        "and name both messages and the chain between them. A message depends on all messages that its publisher had "
        "sent or received before, and on the messages on which these depend. Each run is judged separately. The exit "
        "code is 0 if there is no such connection, and 1 if there are some or the check failed.",
    )
    command.add_argument("runs", nargs="+", metavar="RUN", help="directory of a run, or of many runs at any depth")
    command.add_argument(
        "--shown",
        type=text.shown,
        default=text.SHOWN,
        metavar="N",
        help=f"number of violations to show for each run (default: %(default)s), at most {text.SHOWN_MAX} in all",
    )
    command.add_argument("--out", type=Path, metavar="FILE.json", help="also write the verdicts to this file")
    add_spark(command)
    command.set_defaults(command=_causal)


def _causal(options: argparse.Namespace) -> int:
    made = _verdicts(options.runs, options.shown, options.master, options.driver_memory)
    print(text.verdicts(made))
    if options.out is not None:
        try:
            options.out.write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")
        except OSError as error:
            raise BenchError(f"cannot write {options.out}: {error.strerror}") from error
    return int(any(verdict["violations"] for verdict in made))


def _verdicts(runs: Sequence[str], shown: int, master: str, driver_memory: str) -> list[Json]:
    try:
        from ingeborg.bench.spark import causal, inventory, session
    except ModuleNotFoundError as error:
        raise ExtraMissing(f"PySpark or PyArrow is not installed ({error}): pip install 'ingeborg[bench]'") from error
    folder = Path(tempfile.mkdtemp(prefix="bench-check-"))
    log = folder / "spark.log"
    wanted = ""
    try:
        with session.local_session(master, driver_memory, log, size_bytes=inventory.local_bytes(runs)) as spark:
            return causal.check(spark, runs, shown=shown)
    except session.SPARK_ERRORS as error:
        wanted = f"Spark failed: {inventory.reason(error)} (the rest is in {log})"
        raise BenchError(wanted) from error
    except BenchError as error:
        wanted = str(error)
        raise
    finally:
        if str(log) not in wanted:
            shutil.rmtree(folder, ignore_errors=True)
