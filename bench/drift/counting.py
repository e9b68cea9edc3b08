"""Count the instructions of both trees: of the whole endpoints, and of the core alone.

Owns: the choice of counts that run at the same time. Must never: leave a process running.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from ingeborg.bench.drift import core, trace, whole
from ingeborg.bench.drift.figures import Figure, Pair, pairs

T = TypeVar("T")

WHOLE, CORE = "whole endpoints", "the core alone"

Sections = list[tuple[str, list[Pair]]]


async def count(
    sides: Mapping[str, Path], folder: Path, say: Callable[[str], None], *, core_only: bool = False
) -> Sections:
    """Return all figures. Both trees run at the same time, because the counts do not depend on the load of the machine.

    Args:
        sides: the compiled trees ``base`` and ``here``. If there is only ``here``, its figures are used for both trees.
        folder: a folder for files.
        say: gets each line of progress.
        core_only: count only the cores, and start no endpoints.

    Returns:
        A list of headings, each with the figures of both trees.

    Raises:
        BenchError: a program did not start, did not do its task, or was not counted.
    """
    base, here = ("base" if "base" in sides else "here"), "here"
    cores = dict(
        zip(sides, await together([core.figures(n, t, folder / n / "core") for n, t in sides.items()]), strict=True)
    )
    say("  the cores: done")
    names = [segment.name for segment in trace.segments() if segment.name]
    nothing: Sequence[Figure | None] = [None] * len(names)
    found = [(CORE, pairs(cores[base] or nothing, cores[here] or nothing, names))]
    if not core_only:
        wholes = dict(
            zip(sides, await together([whole.figures(n, t, folder / n, say) for n, t in sides.items()]), strict=True)
        )
        found.insert(0, (WHOLE, pairs(wholes[base], wholes[here], whole.NAMES)))
    return found


async def together(all_of: Sequence[Awaitable[T]]) -> list[T]:
    """Run all awaitables at the same time. If one fails, cancel the others before raising its error."""
    tasks = [asyncio.ensure_future(each) for each in all_of]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
