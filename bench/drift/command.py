"""`bench drift` compares the endpoint of a commit with the endpoint of the working tree, by instructions or by time.

Owns: the command's arguments, and the choice of the two trees. Must never: change the repository.
"""

from __future__ import annotations

import argparse
import functools
import tempfile
from pathlib import Path

import uvloop

from ingeborg.bench.drift import counted, counting, report, timing, trees
from ingeborg.bench.drift.ratio import CONFIDENCE, PAIRS_MIN
from ingeborg.bench.errors import BenchError, UsageError

#: The repository. The command needs one, because the measured code comes from the repository and not from an installed
#: package.
ROOT = Path(__file__).resolve().parents[2]
#: The folder in the repository for builds. Each build is in a subfolder that is named after a hash of its sources.
KEPT = Path("build", "drift")

#: The sum of all changes since this commit has a budget (docs/compiled.md). A change that fixes a broken promise may
#: exceed the budget. The commit of such a change states the cost, and becomes the new base.
BASE = "8c933f2a2850406fee45d09b76a79f8f1d3358e0"
#: The commit with the first compiled core, for reports. Its results are in bench/results/2026-11-23-2-cores-compiled.
FIRST = "d6dff7fee0de41c231a7d49aa183610a89ee705a"

#: A single change may increase a figure by at most this share.
BUDGET = 0.01
#: Maximum number of functions to show for a changed figure.
FUNCTIONS = 8


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command."""
    command = commands.add_parser(
        "drift",
        help="find out whether the cost of a message has changed since a commit",
        description="Build an endpoint of a commit and one of the working tree, count the instructions of each "
        "under valgrind, and print both counts with their ratio, and the functions that cause a difference. Other "
        "load on the machine does not matter. With --timing, measure the CPU time of both endpoints alternately, "
        f"and print the {CONFIDENCE:.0%} confidence bounds of the ratio; this takes half an hour, and needs an idle "
        "machine. The exit code is 1 if a figure exceeds the budget.",
    )
    command.add_argument(
        "--base",
        default=BASE,
        metavar="COMMIT",
        help=f"compare with this commit (default: {BASE[:12]}, the base for all later work; {FIRST[:7]} has the "
        "first compiled core)",
    )
    command.add_argument(
        "--budget",
        type=float,
        metavar="PART",
        help=f"the share by which a figure may grow (default: {BUDGET:g}, or {timing.BUDGET:g} with --timing)",
    )
    command.add_argument(
        "--functions",
        type=int,
        default=FUNCTIONS,
        metavar="N",
        help="show up to N functions of a figure that has changed (default: %(default)s)",
    )
    command.add_argument(
        "--twice",
        action="store_true",
        help="count both trees even if they run the same code, to see how much two counts of one build differ",
    )
    command.add_argument(
        "--core", action="store_true", help="count only the core, without starting endpoints; this takes a minute"
    )
    command.add_argument("--timing", action="store_true", help="measure CPU times instead of counting instructions")
    command.add_argument(
        "--pairs",
        type=int,
        default=timing.PAIRS,
        metavar="N",
        help="with --timing: number of turns of each endpoint (default: %(default)s)",
    )
    command.add_argument(
        "--seconds",
        type=float,
        default=timing.SECONDS,
        metavar="S",
        help="with --timing: seconds of publishing in a turn, for each of four numbers of subscribers "
        "(default: %(default)g)",
    )
    command.add_argument(
        "--interpreted",
        action="store_true",
        help="with --timing: compare the interpreted forms instead of the compiled ones",
    )
    command.set_defaults(command=_drift)


def _drift(options: argparse.Namespace) -> int:
    if not PAIRS_MIN <= options.pairs <= timing.PAIRS_MAX:
        raise UsageError(f"--pairs has to be from {PAIRS_MIN} to {timing.PAIRS_MAX}")
    if not 0 < options.seconds <= timing.SECONDS_MAX:
        raise UsageError(f"--seconds has to be above 0 and at most {timing.SECONDS_MAX:g}")
    if options.interpreted and not options.timing:
        raise UsageError("--interpreted needs --timing: drift counts instructions of compiled endpoints only")
    if not (ROOT / ".git").exists():
        raise BenchError(f"{ROOT} is not a git repository: drift can compare commits only in a repository")
    base = trees.commit(ROOT, options.base)
    if not options.timing:
        counted.valgrind()  # if valgrind is missing, this fails before anything is compiled
    with tempfile.TemporaryDirectory(prefix="drift-") as folder:
        sides = {"base": Path(folder, "base"), "here": Path(folder, "here")}
        for tree in sides.values():
            tree.mkdir()
        trees.of_commit(ROOT, base, sides["base"])
        trees.of_working_tree(ROOT, sides["here"])
        same = not options.timing and not options.twice and trees.same_code(*sides.values())
        if same:
            print("Both trees run the same code, so it is counted only once (--twice counts it for each tree).")
            del sides["base"]
        if not options.interpreted:
            for name, tree in sides.items():
                print(f"compiling {name} …", flush=True)
                trees.compiled(tree, ROOT / KEPT)
        return (_times if options.timing else _instructions)(options, base, sides, Path(folder, "files"))


def _instructions(options: argparse.Namespace, base: str, sides: dict[str, Path], folder: Path) -> int:
    folder.mkdir()
    say = functools.partial(print, flush=True)
    found = uvloop.run(counting.count(sides, folder, say, core_only=options.core))
    print(f"{base[:12]} and the working tree, compiled:")
    budget = BUDGET if options.budget is None else options.budget
    return report.report(found, budget, options.functions, print)


def _times(options: argparse.Namespace, base: str, sides: dict[str, Path], folder: Path) -> int:
    folder.mkdir()
    found = timing.by_turns(sides, options.pairs, options.seconds, not options.interpreted, folder)
    form = "interpreted" if options.interpreted else "compiled"
    print(f"{base[:12]} and the working tree, {form}, {options.pairs} pairs, CPU in microseconds:")
    return timing.report(found, timing.BUDGET if options.budget is None else options.budget, print)
