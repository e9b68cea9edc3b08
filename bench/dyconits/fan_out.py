"""E4 to E6: one endpoint or three endpoints, with a fan-out of 20.

Owns: the rows of these experiments. Must never: measure, because `bench.budgets` and `killed` do.
"""

from __future__ import annotations

import contextlib
from collections.abc import Coroutine, Iterable
from pathlib import Path
from typing import Any

import psutil
import uvloop
from websockets.exceptions import WebSocketException

from ingeborg.bench.budgets import bounds, overload
from ingeborg.bench.budgets.model import Check
from ingeborg.bench.dyconits import killed
from ingeborg.bench.dyconits.cases import E4, E5, FanOut
from ingeborg.bench.errors import BenchError

Json = dict[str, Any]


def run(work: FanOut, log: Path) -> list[Json]:
    """Run the experiment, and return its rows: checks with their goals, or the facts of E6. The intermediate results of
    E5 go to the file ``log``. Raises ``BenchError``."""
    try:
        with log.open("a", encoding="utf-8") as file, contextlib.redirect_stdout(file):
            return uvloop.run(_run(work))
    except (TimeoutError, WebSocketException, psutil.Error) as error:
        raise BenchError(str(error) or "an endpoint does not answer") from error


async def _run(work: FanOut) -> list[Json]:
    if work.experiment == E4:
        return await _checks(work, bounds.measure(work.rounds))
    if work.experiment == E5:
        return await _checks(work, overload.measure(work.rounds))
    return [
        {"experiment": work.experiment, "rounds": work.rounds, **await killed.run(kind, work.rounds)}
        for kind in killed.KINDS
    ]


async def _checks(work: FanOut, measuring: Coroutine[Any, Any, Iterable[Check]]) -> list[Json]:
    return [{"experiment": work.experiment, "rounds": work.rounds, **check._asdict()} for check in await measuring]
