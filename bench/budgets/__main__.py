"""Run all budgets, as `make bench-self` does. With --full, or FULL=1 for `make`, they run at full length.

    python -m ingeborg.bench.budgets [--full] [--only NAME …] [--out FILE]

Prints the version and form of the measured code, each figure next to its goal as soon as it is known, and a table at
the end. FILE also gets the table. Exits with 1 if a figure could not be measured. A missed goal is a valid result.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import uvloop

from ingeborg.bench.errors import BenchError

from . import (
    bounds,
    cost,
    hops,
    idle,
    latency,
    loads,
    misses,
    over_http,
    replication,
    rivals,
    scaling,
    slots,
    storm,
    streams,
)
from .model import Check, measured, show, table


def _cost(full: bool) -> list[Check]:
    return list(cost.checks(*uvloop.run(cost.measure(3 if full else 1))))


def _misses(full: bool) -> list[Check]:
    return misses.checks(uvloop.run(misses.measure(misses.sizes(full))))


def _latency(full: bool) -> list[Check]:
    return latency.checks(uvloop.run(latency.measure(20_000 if full else 4_000)))


def _storm(full: bool) -> list[Check]:
    clients, endpoints = (100_000, 7) if full else (20_000, 4)
    return storm.checks(uvloop.run(storm.measure(clients, endpoints)))


def _slots(full: bool) -> list[Check]:
    return slots.measure()


def _idle(full: bool) -> list[Check]:
    return idle.checks(uvloop.run(idle.measure(15_000, 120.0 if full else 30.0)))


def _scaling(full: bool) -> list[Check]:
    return scaling.report(4 if full else 1)


def _hops(full: bool) -> list[Check]:
    return hops.report(hops.ROUNDS if full else 1)


def _replication(full: bool) -> list[Check]:
    return replication.report(4 if full else 1)


def _bounds(full: bool) -> list[Check]:
    return uvloop.run(bounds.measure(bounds.ROUNDS if full else 1))


def _over_http(full: bool) -> list[Check]:
    return uvloop.run(over_http.measure(over_http.ROUNDS if full else 2))


def _streams(full: bool) -> list[Check]:
    return uvloop.run(streams.measure(streams.CLIENTS if full else 2_000))


def _rivals(full: bool) -> list[Check]:
    return rivals.measure()


#: All budgets, in the order of the figures. The longest budgets are last.
BUDGETS: Mapping[str, Callable[[bool], list[Check]]] = {
    "latency": _latency,
    "cost": _cost,
    "misses": _misses,
    "traffic": loads.traffic,
    "scaling": _scaling,
    "hops": _hops,
    "slots": _slots,
    "replication": _replication,
    "bounds": _bounds,
    "over_http": _over_http,
    "streams": _streams,
    "storm": _storm,
    "idle": _idle,
    "memory": loads.memory,
    "topics": loads.topics,
    "radio": loads.radio,
    "rivals": _rivals,
}
#: A short run skips these budgets unless --only names them, because they need other programs and have no shorter form.
FULL_ONLY = frozenset({"rivals"})


def main() -> int:
    """Run the command. Return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--full", action="store_true", help="measure at full length, which takes an hour")
    parser.add_argument("--only", choices=BUDGETS, nargs="+", metavar="NAME", help=", ".join(BUDGETS))
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the table as Markdown")
    options = parser.parse_args()
    print(measured(), flush=True)
    found: list[Check] = []
    failed = False
    for name in options.only or BUDGETS:
        if name in FULL_ONLY and not options.full and not options.only:
            print(f"{name}: skipped (FULL=1 includes it; ARGS='--only {name}' runs it alone)", flush=True)
            continue
        started_s = time.monotonic()
        try:
            checks = BUDGETS[name](options.full)
        except BenchError as error:
            print(f"{name}: not measured: {error}", file=sys.stderr, flush=True)
            failed = True
            continue
        show(checks)
        print(f"  ({name}: {time.monotonic() - started_s:.0f} s)", flush=True)
        found += checks
    text = f"{table(found)}\nMeasured: {measured()}.\n"
    print("\n" + text, end="")
    if options.out is not None:
        options.out.write_text(text, encoding="utf-8")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
