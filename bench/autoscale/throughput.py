"""The speed of one member under the document's three conditions (table VI).

Owns: the conditions, and the times when a member handed on data. Must never: limit a member's speed.

The topics are full before the member starts. The member is the autoscaler's own. Like the document's member, it sends a
batch after 5 MB or 1 s. It sends to an HTTP endpoint, while the document's member sends to a warehouse. Nothing is
scaled down.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any, Final

import orjson
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from ingeborg.bench.autoscale.arrivals import Arrivals, listening
from ingeborg.bench.autoscale.cases import Condition, Reading
from ingeborg.bench.autoscale.members import Program
from ingeborg.bench.autoscale.topics import delete_topic, fill, make_topic
from ingeborg.bench.errors import BenchError
from ingeborg.bench.experiments.experiment import Results

#: Bytes of each record's value.
RECORD_BYTES: Final = 1_000
ROWS: Final = "throughput"

_SECONDS_MAX: Final = 180.0

_FILE: Final = """\
[group]
name = "{group}"
topics = {topics}
members_max = 1
capacity_bytes_per_s = 1_000_000_000
[kafka]
servers = ["{servers}"]
[monitor]
window_s = 3
[member]
batch_bytes = 5_000_000
wait_s = 1
"""


def shares(condition: Condition) -> list[int]:
    """Return the number of partitions of each topic."""
    count, more = divmod(condition.partitions, condition.tables)
    return [count + (table < more) for table in range(condition.tables)]


async def run(work: Reading, servers: str, results: Results) -> dict[str, Any]:
    """Fill the topics, let one member read everything, and store the rows. Return the facts of the run."""
    condition, name = work.condition, f"test-{work.condition.number}-{work.repeat}"
    folder = results.out / "work" / name
    folder.mkdir(parents=True, exist_ok=True)
    stamp = time.time_ns()
    topics = [f"{name}-{table}-{stamp}" for table in range(condition.tables)]
    admin = AdminClient({"bootstrap.servers": servers})
    for topic, partitions in zip(topics, shares(condition), strict=True):
        make_topic(admin, topic, partitions)
    try:
        producer = Producer({"bootstrap.servers": servers, "linger.ms": 20, "acks": "1", "batch.size": 262_144})
        places = [
            (topic, each) for topic, count in zip(topics, shares(condition), strict=True) for each in range(count)
        ]
        records = condition.total_bytes // RECORD_BYTES
        await asyncio.to_thread(fill, producer, places, records, RECORD_BYTES)
        arrivals = Arrivals(0, reads_lines=False)
        async with listening(arrivals) as port:
            text = _FILE.format(group=f"{name}-{stamp}", topics=orjson.dumps(topics).decode(), servers=servers)
            program = Program(folder, text, port)
            await program.start()
            begun_s = time.monotonic()
            try:
                while arrivals.records < records:
                    if time.monotonic() - begun_s > _SECONDS_MAX:
                        raise BenchError(f"{name}: {arrivals.records:,} of {records:,} records arrived in time")
                    program.check()
                    await asyncio.sleep(0.05)
            finally:
                await program.stop()
    finally:
        for topic in topics:
            delete_topic(admin, topic)
    results.keep(ROWS, name, arrivals.rows)
    return {"test": condition.number, "repeat": work.repeat, "records": records, "seconds": time.monotonic() - begun_s}
