"""`bench drift --timing` runs the endpoints of two trees alternately, and prints the ratio of their CPU times.

Owns: the order of the turns. Must never: compare two runs unless one directly followed the other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median

import uvloop

from ingeborg.bench import starting
from ingeborg.bench.budgets.light import TIMEOUT_S
from ingeborg.bench.drift import loads
from ingeborg.bench.drift.ratio import CONFIDENCE, ratio
from ingeborg.bench.errors import BenchError
from ingeborg.form import VARIABLE

PAIRS, SECONDS, BUDGET = 30, 2.0, 0.02
PAIRS_MAX, SECONDS_MAX = 1_000, 60.0

Costs = Mapping[str, float]


def by_turns(
    sides: Mapping[str, Path], pairs: int, seconds: float, compiled: bool, folder: Path
) -> list[tuple[Costs, Costs]]:
    """Load both trees alternately.

    Args:
        sides: the trees, ``base`` and ``here``.
        pairs: number of turns of each tree.
        seconds: duration of the load in a turn, for each number of subscribers.
        compiled: whether the endpoints run in their compiled form.
        folder: a folder for files.

    Raises:
        BenchError: an endpoint did not start, or did not do its task.
    """
    found = []
    for number in range(pairs):
        pair: dict[str, Costs] = {}
        # Each tree goes first in every second pair, so that a change of the machine's speed favours neither tree.
        for name in sorted(sides, reverse=bool(number % 2)):
            pair[name] = _turn(sides[name], seconds, compiled, folder / f"{name}-{number}")
        found.append((pair["base"], pair["here"]))
        print(f"  pair {number + 1} of {pairs}", flush=True)
    return found


def _turn(tree: Path, seconds: float, compiled: bool, folder: Path) -> Costs:
    """Measure a tree in a new process on an empty store. Each turn has a new process, because the memory addresses of a
    process affect its speed at random."""
    folder.mkdir()
    command = starting.serve("--port", "0", "--store", f"lmdb:{folder / 'store'}")
    # -P: Python does not look for modules in the current directory, which may belong to another tree.
    command.insert(1, "-P")
    variables = {"PYTHONPATH": str(tree), VARIABLE: "0" if compiled else "1"}
    with starting.started(f"the endpoint of {tree.name}", command, folder / "log", variables=variables) as endpoint:
        said = endpoint.child.said()
        if compiled and ", compiled\n" not in said:
            raise BenchError(f"the endpoint of {tree.name} does not say that it is compiled:\n{said[-1000:]}")
        try:
            return uvloop.run(loads.measure(endpoint.url, endpoint.child.process, seconds))
        except TimeoutError:
            text = f"the endpoint of {tree.name} did not finish its task within {TIMEOUT_S:g} s"
            raise BenchError(f"{text}:\n{endpoint.child.said()[-1000:]}") from None


def report(found: list[tuple[Costs, Costs]], budget: float, say: Callable[[str], None]) -> int:
    """Print a line for each figure. Return 1 if the lower bound of a figure's ratio exceeds the budget."""
    dearer = []
    say(f"{'':22}{'base':>9}{'here':>9}{'ratio':>8}   {CONFIDENCE:.0%} bounds")
    for figure, words in loads.FIGURES.items():
        pairs = [(base[figure], here[figure]) for base, here in found]
        firsts, seconds = zip(*pairs, strict=True)
        if min(*firsts, *seconds) <= 0:
            raise BenchError(f"the cost of a {words} is 0 or negative in at least one pair: was the machine idle?")
        value = ratio(pairs)
        middles = f"{median(firsts):9.2f}{median(seconds):9.2f}"
        say(f"{words:22}{middles}{value.mean:8.3f}   {value.low:.3f} to {value.high:.3f}")
        if value.low > 1 + budget:
            dearer.append(words)
    if dearer:
        say(f"more than {1 + budget:g} times as expensive: {', '.join(dearer)}")
    return 1 if dearer else 0
