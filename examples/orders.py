"""Orders for an autoscaled group, with a load that doubles and then falls. Checks that the sink has each order once.

    python examples/orders.py HOST:PORT

The program makes the topic ``orders`` with 16 partitions and writes 100 kB/s for a minute, 200 kB/s for a minute, and
50 kB/s for two minutes. Then it waits until every order is in the folder ``sink``, which docs/autoscaling.md sets up.
``--seconds 20`` shortens a minute to 20 s; ``--sink FOLDER`` names another folder.
"""

from __future__ import annotations

import argparse
import asyncio
import collections
import json
import sys
import time
from pathlib import Path

from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import for_code

PARTITIONS = 16
ORDER_BYTES = 1_000
#: The phases of the load: kilobytes per second, and minutes.
LOAD = ((100, 1), (200, 1), (50, 2))
#: The sink must have all orders within this many seconds after the last order was written.
PATIENCE_S = 120.0


async def produce(server: str, minute_s: float) -> int:
    """Write all orders; return their number."""
    admin = AIOKafkaAdminClient(bootstrap_servers=server)
    await admin.start()
    answer = await admin.create_topics([NewTopic("orders", PARTITIONS, 1)])
    await admin.close()
    for _, code, *_ in answer.topic_errors:
        if code:
            raise SystemExit(
                f"cannot create the topic orders: {for_code(code).__name__}. If the topic exists already, delete it"
            )
    written = 0
    async with AIOKafkaProducer(bootstrap_servers=server, acks="all") as producer:
        for kilobytes, minutes in LOAD:
            print(f"{kilobytes} kB/s", flush=True)
            began_s, begun = time.monotonic(), written
            while (passed_s := time.monotonic() - began_s) < minutes * minute_s:
                due = begun + int(passed_s * kilobytes * 1_000 / ORDER_BYTES)
                sent = []
                for number in range(written, due):
                    order = json.dumps({"order": number, "text": "x" * (ORDER_BYTES - 40)}).encode()
                    sent.append(await producer.send("orders", order, partition=number % PARTITIONS))
                await asyncio.gather(*sent)
                written = max(written, due)
                await asyncio.sleep(0.05)
    return written


def kept(sink: Path) -> collections.Counter[int]:
    """Count each order in the sink."""
    found: collections.Counter[int] = collections.Counter()
    for file in sorted(sink.glob("orders/orders-*/*.jsonl")):
        for line in file.read_text(encoding="utf-8").splitlines():
            found[json.loads(json.loads(line)["value"])["order"]] += 1
    return found


def main() -> int:
    """Run the example; return its exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("server", metavar="HOST:PORT", help="Kafka's address")
    parser.add_argument("--seconds", type=float, default=60.0, help="length of a minute, in seconds (60)")
    parser.add_argument("--sink", type=Path, default=Path("sink"), help="the sink's folder (sink)")
    given = parser.parse_args()
    written = asyncio.run(produce(given.server, given.seconds))
    print(f"{written:,} orders are written; waiting for the sink", flush=True)
    until_s = time.monotonic() + PATIENCE_S
    while len(found := kept(given.sink)) < written and time.monotonic() < until_s:
        time.sleep(1.0)
    twice = sum(count > 1 for count in found.values())
    print(f"{len(found):,} of {written:,} are in the sink, {twice} more than once")
    return 0 if len(found) == written and not twice else 1


if __name__ == "__main__":
    sys.exit(main())
