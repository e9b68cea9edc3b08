"""Both trees counted: whole endpoints of each, and the core of each alone.

Owns: what runs at the same time. Must never: leave anything running.
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
    """Return all figures. Counts do not depend on other load, so both sides run at the same time.

    Args:
        sides: compiled trees: ``base`` and ``here``, or ``here`` alone, which is then both.
        folder: for files.
        say: gets each line of progress.
        core_only: start no endpoints.

    Returns:
        For each heading, the figures of both trees.

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
    """Run all at once; if one fails, end the others before raising its error."""
    tasks = [asyncio.ensure_future(each) for each in all_of]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
