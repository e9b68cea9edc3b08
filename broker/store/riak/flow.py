"""Run many small pieces of work concurrently, with a bounded number at a time.

Owns: the bound, and the rule that the first failure cancels all other work. Must never: know what the work is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

T = TypeVar("T")


async def each(items: Sequence[T], work: Callable[[T], Awaitable[None]], at_once: int) -> None:
    """Run ``work`` on every item, with up to ``at_once`` items at a time. The first exception cancels the rest and
    propagates."""
    if len(items) <= 1:
        for item in items:
            await work(item)
        return
    queue = iter(items)

    async def worker() -> None:
        for item in queue:
            await work(item)

    # Each worker is one task and processes many items, so a batch of 100,000 items needs only as many tasks as
    # ``at_once``.
    workers = [asyncio.create_task(worker()) for _ in range(min(at_once, len(items)))]
    try:
        await asyncio.gather(*workers)
    finally:
        for task in workers:
            task.cancel()
        await asyncio.gather(*workers, return_exceptions=True)


async def together(*works: Callable[[], Awaitable[None]]) -> None:
    """Run all given functions concurrently. The first exception cancels the rest and propagates."""
    await each(works, lambda work: work(), len(works))
