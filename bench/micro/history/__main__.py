"""The command ``python -m ingeborg.bench.micro.history``.

Owns: the list of figures, and their table. Must never: measure a figure itself.
"""

from __future__ import annotations

import argparse
from collections.abc import Awaitable, Callable, Sequence

from ingeborg.bench.budgets.model import Check, measured, table
from ingeborg.bench.budgets.recoverers import run
from ingeborg.bench.errors import BenchError

from . import costs, crowd, memory, recoveries

Figure = Callable[[float], Awaitable[list[Check]]]

FIGURES: dict[str, Figure] = {
    "missed": recoveries.missed,
    "few": recoveries.few,
    "many": crowd.many,
    "keep": costs.keep,
    "unused": costs.unused,
    "bytes": memory.retained_bytes,
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(
        prog="python -m ingeborg.bench.micro.history", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--only", nargs="+", metavar="FIGURE", choices=list(FIGURES), default=list(FIGURES))
    parser.add_argument("--share", type=float, default=1.0, help="scale all sizes by this factor; goals apply to 1.0")
    options = parser.parse_args(arguments)
    if not 0 < options.share <= 1:
        parser.error("--share has to be above 0, and at most 1")
    print(measured(), flush=True)
    rows: list[Check] = []
    for name in options.only:
        try:
            found = run(FIGURES[name](options.share))
        except BenchError as error:
            parser.exit(1, f"{name}: {error}\n")
        for check in found:
            print(f"{name}: {check.figure}: {check.measured}", flush=True)
        rows += found
    print()
    print(table(rows), end="")


if __name__ == "__main__":
    main()
