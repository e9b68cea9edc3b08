"""A process for tests to kill: ``python -m tests.store.endless_subscriber DIR CLIENT``.

Subscribes CLIENT to batch after batch, and prints each batch's number once it has been acknowledged. First it prints
the process ids of its writers. It runs until it is killed, or until ``BATCHES_MAX``.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from ingeborg.broker.store.base import Subscribe
from ingeborg.broker.store.embedded.store import EmbeddedStore

BATCHES_MAX = 2_000
TOPICS_PER_BATCH = 3_000


def batch_topics(client: str, batch: int) -> list[str]:
    """Return the topics of one batch."""
    return [f"{client}/{batch}/{index}" for index in range(TOPICS_PER_BATCH)]


async def _main(directory: Path, client: str) -> None:
    store = EmbeddedStore(directory, timeout_s=60.0)  # other processes use the disk
    await store.open()
    print(*store.writer_pids.values(), flush=True)
    for batch in range(BATCHES_MAX):
        await store.subscribe([Subscribe(client, batch_topics(client, batch))])
        print(batch, flush=True)


if __name__ == "__main__":
    asyncio.run(_main(Path(sys.argv[1]), sys.argv[2]))
