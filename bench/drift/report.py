"""The report of `bench drift`: each figure of both trees with its ratio, and the functions that cause a difference.

Owns: the lines, and the exit code. Must never: count instructions, or leave out a figure.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ingeborg.bench.drift.figures import Pair
from ingeborg.bench.drift.profile import readable

#: The report shows functions for figures that have changed by at least this share.
SHOWN_FROM = 0.002
#: For these figures, the report shows functions that have changed by at least this share of the figure.
FUNCTION_FROM = 0.000_5
#: Width of the column of names, in characters.
WIDTH = 54

Say = Callable[[str], None]


def report(sections: Sequence[tuple[str, Sequence[Pair]]], budget: float, functions: int, say: Say) -> int:
    """Print a line for each figure, then the functions that contribute most to each change.

    Args:
        sections: pairs of a heading and its figures.
        budget: how much a figure may grow, as a share of the base's figure.
        functions: the maximum number of functions to show for a figure.
        say: gets each line.

    Returns:
        The exit code, which is 1 if a figure grew by more than the budget, or is missing in the working tree.
    """
    say(f"{'instructions of one':{WIDTH}}{'base':>14}{'here':>14}{'ratio':>8}")
    for heading, pairs in sections:
        say(f"{heading}:")
        for pair in pairs:
            say("  " + line(pair, budget))
    changed = [(heading, pair) for heading, pairs in sections for pair in pairs if has_changed(pair)]
    if functions and changed:
        say("")
        say("The difference by function, as instructions of one message in the function itself")
        for heading, pair in changed:
            _functions(heading, pair, functions, say)
    over = [f"{pair.name} ({heading})" for heading, pairs in sections for pair in pairs if pair.over(budget)]
    if over:
        say("")
        say(f"more than {1 + budget:g} times as expensive: {'; '.join(over)}")
    lost = [f"{pair.name} ({heading})" for heading, pairs in sections for pair in pairs if pair.lost]
    if lost:
        say("")
        say(f"no longer exists: {'; '.join(lost)}")
    return 1 if over or lost else 0


def line(pair: Pair, budget: float) -> str:
    """Return the line of one figure of both trees."""
    cells = ["not there" if each is None else f"{each.each:,.0f}" for each in (pair.base, pair.here)]
    ratio = "" if pair.ratio is None else f"{pair.ratio:.3f}"
    mark = "  over" if pair.over(budget) else ""
    return f"{pair.name:{WIDTH - 2}}{cells[0]:>14}{cells[1]:>14}{ratio:>8}{mark}"


def has_changed(pair: Pair) -> bool:
    """Return whether a figure has changed enough to show its functions."""
    return pair.ratio is not None and abs(pair.ratio - 1) >= SHOWN_FROM


def _functions(heading: str, pair: Pair, most: int, say: Say) -> None:
    assert pair.base is not None
    least = FUNCTION_FROM * pair.base.each
    rows = [row for row in pair.functions(most) if abs(row[2] - row[1]) >= least]
    if not rows:
        return
    say(f"  {pair.name} ({heading}):")
    for name, base, here in rows:
        say(f"  {base:14,.0f}{here:14,.0f}{here - base:+12,.0f}  {readable(name)}")
