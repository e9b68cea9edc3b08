"""The broker in this process, with its sockets and its database, and its publishers and subscribers."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

from ingeborg.bench.caching.live import drawing, verdict
from ingeborg.bench.caching.live.memory import Memory
from ingeborg.bench.caching.live.publishing import Direct, Publishing
from ingeborg.bench.caching.live.server import Server
from ingeborg.bench.caching.live.settings import Settings
from ingeborg.bench.caching.live.subscribing import Crowd
from ingeborg.bench.caching.reads import Stream
from ingeborg.protocol.outgoing import connect

#: Time limit for everything together: it takes seconds, even on a busy machine.
PATIENCE_S = 60.0


@dataclass
class Played:
    """``faults``: errors in the subscribers' answers; ``stream``: the order of all events."""

    faults: list[str]
    batches: list[verdict.Batch]
    intended_ns: list[int]
    counters: dict[str, int]
    stream: Stream


def noted(memory: Memory) -> Stream:
    """Return a stream that gets all publications and reads of this memory, in their order."""
    stream = Stream()
    publish, read = memory.publish, memory.read

    def publishes(number: int, payload: bytes, utility: int) -> bool:
        stream.sizes.append(len(payload))
        stream.readers.append(utility)
        stream.events.append(number)
        return publish(number, payload, utility)

    def reads(number: int) -> bytes | None:
        stream.events.append(~number)
        return read(number)

    vars(memory).update(publish=publishes, read=reads)
    return stream


async def played(
    drawn: drawing.Drawn,
    directory: Path,
    strategy: str,
    share: float | None = None,
    *,
    rate_per_s: float | None = None,
    parameters: dict[str, str] | None = None,
    either: bool = False,
    rounds: int = 1,
) -> Played:
    """Play all records of the world at that rate, ``None``: at full speed, in some rounds. Raises the broker's
    errors."""
    settings = Settings(
        strategy=strategy,
        parameters=parameters or {},
        bytes_max=None if share is None else int(drawn.bytes * share),
        entries=round(len(drawn.payloads) * (share or 1.0)),
        database=str(directory / "store"),
        waits=rate_per_s is None,
        either=either,
    )
    server, stopped = Server(settings), asyncio.Event()
    stream = noted(server.memory)
    url: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    serving = asyncio.ensure_future(server.serve(url.set_result, stopped))
    owed = drawn.owed()
    crowd = Crowd(drawn.wishes, sum(map(len, owed)), hurries=rate_per_s is None)
    try:
        async with asyncio.timeout(PATIENCE_S):
            starting: list[asyncio.Future[Any]] = [url, serving]
            await asyncio.wait(starting, return_when=asyncio.FIRST_COMPLETED)
            if serving.done():
                await serving
            await crowd.connect(url.result())
            await crowd.subscribe()
            publisher = await connect(url.result(), lambda _, message: None)
            publishing = Publishing(drawn.payloads)
            loop = asyncio.get_running_loop()
            crowd.begin(loop.time())
            if rate_per_s is None:
                due = list(accumulate(drawn.world.utilities, initial=0))
                of_round = len(drawn.payloads) // rounds
                await publishing.at_full_speed(Direct(publisher), of_round, lambda count: crowd.came_to(due[count]))
            else:
                await publishing.on_schedule(Direct(publisher), time.monotonic_ns(), rate_per_s)
            await asyncio.wait([crowd.done, serving], return_when=asyncio.FIRST_COMPLETED)
            if serving.done():
                await serving
            await crowd.done
            publisher.abort()
        made, faults = verdict.batches(crowd.got, drawn.payloads)
        faults += verdict.faults_of(made, owed)
    finally:
        await crowd.end()
        stopped.set()
        await asyncio.wait([serving])
        if not serving.cancelled():
            serving.exception()  # mark it as retrieved
    return Played(faults, made, list(publishing.intended_ns), server.broker.counters(), stream)
