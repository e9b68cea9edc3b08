"""The whole plan of `bench caching`: replayed streams, and runs on real processes.

Owns: the selection of parts. Must never: run anything, or depend on what a part contains.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from ingeborg.bench.caching import cases
from ingeborg.bench.caching.cases import Seeds
from ingeborg.bench.caching.live import cases as live
from ingeborg.bench.errors import UsageError

PARTS: Final = {part.name: part.text for part in cases.PARTS} | {part.name: part.text for part in live.PARTS}
"""The sentence of each part, by its name."""


def check(only: Collection[str]) -> None:
    """Check names of parts. Raises ``UsageError``, which lists all names."""
    unknown = [name for name in only if name not in PARTS]
    if unknown:
        raise UsageError(f"no part is called {', '.join(unknown)}; the parts are {', '.join(PARTS)}")


def streams(only: Collection[str] = (), seeds: Seeds = None, *, log: bool) -> list[cases.Unit]:
    """Return the replayed streams of the selected parts, or of all, each once. ``seeds`` replaces each part's own
    seeds. ``log`` says whether there is a now-playing log. Streams may run in any order and at once."""
    units = dict.fromkeys(unit for part in cases.PARTS if not only or part.name in only for unit in part.units(seeds))
    return [unit for unit in units if log or not unit.wants_log]


def processes(
    only: Collection[str] = (), seeds: Seeds = None, *, kafka: bool = True, riak: bool = True
) -> list[live.Unit]:
    """Return the runs on real processes of the selected parts, or of all, each once. They run one by one, alone."""
    return live.plan(seeds, only, kafka=kafka, riak=riak)
