"""Run many small pieces of work, with a bounded number under way.

Owns: the bound, and the rule that the first failure ends the rest. Must never: know what the work is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

T = TypeVar("T")


async def each(items: Sequence[T], work: Callable[[T], Awaitable[None]], at_once: int) -> None:
    """Run ``work`` on every item, ``at_once`` at a time. The first exception stops the rest and propagates."""
    if len(items) <= 1:
        for item in items:
            await work(item)
        return
    queue = iter(items)

    async def worker() -> None:
        for item in queue:
            await work(item)

    # One task per worker, not per item: a batch of 100,000 pieces needs 24 tasks.
    workers = [asyncio.create_task(worker()) for _ in range(min(at_once, len(items)))]
    try:
        await asyncio.gather(*workers)
    finally:
        for task in workers:
            task.cancel()
        await asyncio.gather(*workers, return_exceptions=True)


async def together(*works: Callable[[], Awaitable[None]]) -> None:
    """Run all works concurrently. The first exception stops the rest and propagates."""
    await each(works, lambda work: work(), len(works))
