"""`ingeborg autoscale FILE`: its options and exit codes.

Owns: the options' names and help texts, and the set-up of logging, which the autoscaler leaves to its caller. Must
never: import the autoscaler's packages before the command runs.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

DONE, FAILED, USAGE, RESIGNED = 0, 1, 2, 3
PARTS = ("all", "controller", "monitor", "member")

TEXT = "scale a Kafka consumer group by the write rates of its partitions"

_EXIT_CODES = """\
exit codes:
  0  a signal stopped it, and it shut down cleanly
  1  it failed; standard error has the reason
  2  wrong usage, or a mistake in the file
  3  a newer controller of this group has started
"""


def add(commands: Any) -> None:
    """Add the command."""
    options = commands.add_parser(
        "autoscale",
        help=TEXT,
        description=f"{TEXT[0].upper()}{TEXT[1:]} (docs/autoscaling.md). FILE names the group and the scaler that "
        "runs its members.",
        epilog=_EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        argument_default=argparse.SUPPRESS,
    )
    options.add_argument("file", type=Path, metavar="FILE.toml", help="the group's file")
    options.add_argument(
        "--part",
        choices=PARTS,
        default="all",
        help="what to run: the controller and the monitor in one process (all), only one of these two, or one member "
        "(default: all)",
    )
    options.add_argument(
        "--name",
        default="",
        metavar="NAME",
        help="the member's name, as its scaler spells it (default: INGEBORG_MEMBER_NAME, or host name and process id)",
    )
    options.add_argument(
        "--dry-run", action="store_true", default=False, help="print what the autoscaler would do, without doing it"
    )
    options.add_argument("--watch", action="store_true", default=False, help="show members as bars on the terminal")
    options.add_argument(
        "--journal", type=Path, default=None, metavar="FILE", help="append events to this file, each as a line of JSON"
    )
    options.add_argument("--log-format", choices=("text", "json"), default="text", help="log format (default: text)")
    options.add_argument(
        "--log-level",
        choices=("debug", "info", "warning", "error"),
        default="info",
        help="lowest level that is logged (default: info)",
    )


def run(arguments: dict[str, Any]) -> int:
    """Run the autoscaler, and return the exit code."""
    try:
        from ingeborg.autoscaler import run as autoscaler

        from ..shell import logs
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("ingeborg."):
            raise
        install = "pip install 'ingeborg[server,autoscale]'"
        print(f"ingeborg autoscale: {error.name} is not installed: {install}", file=sys.stderr)
        return USAGE
    if (arguments["dry_run"] or arguments["watch"]) and arguments["part"] not in ("all", "controller"):
        print("ingeborg autoscale: --dry-run and --watch work with the controller only", file=sys.stderr)
        return USAGE
    logs.set_up(arguments.pop("log_format"), arguments.pop("log_level"))
    return autoscaler.main(**arguments)
