"""`bench drift`: the endpoint of a commit and that of the working tree, by turns, and the ratio of their costs.

Owns: its arguments, and the order of the turns. Must never: compare what did not run side by side.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median

import uvloop

from ingeborg.bench import starting
from ingeborg.bench.drift import loads, trees
from ingeborg.bench.drift.ratio import CONFIDENCE, PAIRS_MIN, ratio
from ingeborg.bench.errors import BenchError, UsageError
from ingeborg.bench.guards.light import TIMEOUT_S
from ingeborg.form import VARIABLE

#: The repository, which has to be there: this measures what is not installed.
ROOT = Path(__file__).resolve().parents[2]
PAIRS, SECONDS, BUDGET = 30, 2.0, 0.02
PAIRS_MAX, SECONDS_MAX = 1_000, 60.0

#: What all later work together is held to: the compiled core of bench/results/2026-11-23-2-cores-compiled.
BASE = "d6dff7fee0de41c231a7d49aa183610a89ee705a"

Costs = Mapping[str, float]


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command."""
    command = commands.add_parser(
        "drift",
        help="has the cost of a message changed since a commit?",
        description="Build an endpoint of a commit and one of the working tree, load them by turns, and print the "
        f"ratio of what they cost, with its bounds ({CONFIDENCE:.0%}): CPU of a received publish, a delivered message, "
        "a listen, a subscribe. Half an hour of an idle machine. Exit code 1: something is dearer than the budget for "
        "certain.",
    )
    command.add_argument(
        "--base",
        default=BASE,
        metavar="COMMIT",
        help=f"what to compare with (default: {BASE[:12]}, what all later work together is held to)",
    )
    command.add_argument("--pairs", type=int, default=PAIRS, metavar="N", help="turns of each (default: %(default)s)")
    command.add_argument(
        "--seconds",
        type=float,
        default=SECONDS,
        metavar="S",
        help="of publishing in a turn, for each of four numbers of subscribers (default: %(default)g)",
    )
    command.add_argument(
        "--budget", type=float, default=BUDGET, metavar="PART", help="how much dearer it may be (default: %(default)g)"
    )
    command.add_argument("--interpreted", action="store_true", help="compare the interpreted forms, not the compiled")
    command.set_defaults(command=_drift)


def _drift(options: argparse.Namespace) -> int:
    if not PAIRS_MIN <= options.pairs <= PAIRS_MAX:
        raise UsageError(f"--pairs has to be from {PAIRS_MIN} to {PAIRS_MAX}")
    if not 0 < options.seconds <= SECONDS_MAX:
        raise UsageError(f"--seconds has to be over 0, and {SECONDS_MAX:g} at most")
    if not (ROOT / ".git").exists():
        raise BenchError(f"{ROOT} is no git repository: commits are compared in one")
    base = trees.commit(ROOT, options.base)
    with tempfile.TemporaryDirectory() as folder:
        sides = {"base": Path(folder, "base"), "here": Path(folder, "here")}
        for tree in sides.values():
            tree.mkdir()
        trees.of_commit(ROOT, base, sides["base"])
        trees.of_working_tree(ROOT, sides["here"])
        if not options.interpreted:
            for name, tree in sides.items():
                print(f"compiling {name} …", flush=True)
                trees.compiled(tree, ROOT / "build" / "drift")
        found = _by_turns(sides, options.pairs, options.seconds, not options.interpreted, Path(folder))
    form = "interpreted" if options.interpreted else "compiled"
    print(f"{base[:12]} and the working tree, {form}, {options.pairs} pairs, CPU in microseconds:")
    return report(found, options.budget, print)


def _by_turns(
    sides: Mapping[str, Path], pairs: int, seconds: float, compiled: bool, folder: Path
) -> list[tuple[Costs, Costs]]:
    found = []
    for number in range(pairs):
        pair: dict[str, Costs] = {}
        # Who goes first changes: what the machine does in the course of a minute is no advantage for one of them.
        for name in sorted(sides, reverse=bool(number % 2)):
            pair[name] = _turn(sides[name], seconds, compiled, folder / f"{name}-{number}")
        found.append((pair["base"], pair["here"]))
        print(f"  pair {number + 1} of {pairs}", flush=True)
    return found


def _turn(tree: Path, seconds: float, compiled: bool, folder: Path) -> Costs:
    """A new process on an empty store: one may be lucky in where its memory lies."""
    folder.mkdir()
    command = starting.serve("--port", "0", "--store", f"lmdb:{folder / 'store'}")
    # -P: what Python is started from, the folder of another tree perhaps, is not where it looks for modules.
    command.insert(1, "-P")
    variables = {"PYTHONPATH": str(tree), VARIABLE: "0" if compiled else "1"}
    with starting.started(f"the endpoint of {tree.name}", command, folder / "log", variables=variables) as endpoint:
        said = endpoint.child.said()
        if compiled and ", compiled\n" not in said:
            raise BenchError(f"the endpoint of {tree.name} does not say that it is compiled:\n{said[-1000:]}")
        try:
            return uvloop.run(loads.measure(endpoint.url, endpoint.child.process, seconds))
        except TimeoutError:
            text = f"the endpoint of {tree.name} did not do what it was asked within {TIMEOUT_S:g} s"
            raise BenchError(f"{text}:\n{endpoint.child.said()[-1000:]}") from None


def report(found: list[tuple[Costs, Costs]], budget: float, say: Callable[[str], None]) -> int:
    """A line for each figure. Returns 1 where one is dearer than the budget even at its lower bound."""
    dearer = []
    say(f"{'':22}{'base':>9}{'here':>9}{'ratio':>8}   {CONFIDENCE:.0%} bounds")
    for figure, words in loads.FIGURES.items():
        pairs = [(base[figure], here[figure]) for base, here in found]
        firsts, seconds = zip(*pairs, strict=True)
        if min(*firsts, *seconds) <= 0:
            raise BenchError(f"the cost of a {words} is not over 0 in every pair: was the machine idle?")
        value = ratio(pairs)
        middles = f"{median(firsts):9.2f}{median(seconds):9.2f}"
        say(f"{words:22}{middles}{value.mean:8.3f}   {value.low:.3f} to {value.high:.3f}")
        if value.low > 1 + budget:
            dearer.append(words)
    if dearer:
        say(f"dearer than {1 + budget:g} times: {', '.join(dearer)}")
    return 1 if dearer else 0
