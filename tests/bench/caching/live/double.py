"""`python -m tests.bench.caching.live.double`: the Riak double in a separate process, until SIGTERM.

It prints its address: ``ready at riak:127.0.0.1:PORT,…``, which `python -m ingeborg.bench.caching.live --store`
accepts. It keeps everything in memory, and is no measure of a real Riak.
"""

from __future__ import annotations

import asyncio
import signal

from tests.riak.double import RiakDouble


async def main() -> None:
    """Run three nodes with the bucket types of a broker."""
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    async with RiakDouble(nodes=3) as riak:
        riak.create_broker_types()
        nodes = ",".join(f"{host}:{port}" for host, port in riak.addresses)
        print(f"ready at riak:{nodes}", flush=True)
        await stopped.wait()


if __name__ == "__main__":
    asyncio.run(main())
