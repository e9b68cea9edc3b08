"""Count hits of plain requests with libcachesim, unit by unit, to compare them with this project's rows.

Owns: the files with libcachesim's results. Must never: be needed for a figure of this project.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from ingeborg.bench.caching import log as logs
from ingeborg.bench.caching import requests as plain
from ingeborg.bench.caching.cases import SHARES, Requests, Unit
from ingeborg.bench.caching.policies.named import BELADY, PLAIN
from ingeborg.bench.caching.policies.tinylfu import TinyLfu
from ingeborg.bench.caching.replay import requests
from ingeborg.bench.caching.simulator import Simulator
from ingeborg.bench.caching.work import Row
from ingeborg.bench.experiments import units

SIMULATED: Final = "simulated"
"""Folder of a result, with a file for each unit."""


Job = tuple[Requests, Path, str, Path | None]


def run(plan: Sequence[Unit], out: Path, python: str, log: Path | None, processes: int) -> None:
    """Run the units of the plan that are plain requests, except those with a kept result. ``python`` is an interpreter
    with libcachesim. Raises ``BenchError`` if the interpreter has no libcachesim."""
    requests_of = [unit for unit in plan if isinstance(unit, Requests)]
    due: list[Job] = [(unit, out, python, log) for unit in requests_of if not path_of(out, unit).is_file()]
    for _ in units.run(_one, due, processes):
        pass


def _one(job: Job) -> None:
    unit, out, python, log = job
    with Simulator(python) as simulator:
        units.keep(path_of(out, unit), _rows(unit, simulator, log))


def check(python: str) -> None:
    """Check the interpreter. Raises ``BenchError`` if it has no libcachesim."""
    with Simulator(python) as simulator:
        simulator.hits("lru", 1, [1])


def path_of(out: Path, unit: Requests) -> Path:
    """Return the unit's file."""
    return out / SIMULATED / f"{unit.name}.jsonl"


def _rows(unit: Requests, simulator: Simulator, log: Path | None) -> Iterator[Row]:
    if unit.wants_log:
        assert log is not None, "the plan must not have a unit that needs a log if there is no log"
        items = logs.songs(logs.read(log))
        different = len(set(items))
    else:
        items, different = plain.zipf(unit.exponent, unit.seed), plain.ITEMS
    for share in SHARES:
        room = int(different * share)
        for policy in (*PLAIN, BELADY):
            yield {
                "exponent": unit.exponent,
                "seed": unit.seed,
                "share": share,
                "policy": policy,
                "simulated": simulator.hits(policy, room, items),
                "narrow": narrow(items, room) if policy == "tinylfu" else None,
            }


def narrow(items: list[int], room: int) -> int:
    """Count hits of our W-TinyLFU with half the counters, which makes it as exact as libcachesim's. The sketch of
    libcachesim counts too many requests for other keys, because it adds to all counters of a key."""
    return requests(items, TinyLfu(room, room, width=2), room).hits
