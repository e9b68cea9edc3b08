"""Run a bare `websockets` server for comparison, in its own process.

    python -m ingeborg.bench.budgets.bare

At `/publish` it parses each command and broadcasts the notification to every client that has sent `listen`. A broker
cannot do less than that. At any other path it sends every message back. It prints its URL when it is ready, and SIGTERM
ends it.
"""

from __future__ import annotations

import asyncio
import contextlib

import orjson
import uvloop
from websockets.asyncio.server import ServerConnection, broadcast, serve
from websockets.exceptions import ConnectionClosed

SUCCESS = '{"result":"success"}'


async def main() -> None:
    """Serve until killed."""
    listeners: set[ServerConnection] = set()

    async def publish(connection: ServerConnection) -> None:
        async for message in connection:
            command = orjson.loads(message)
            if command["command"] == "publish":
                frame = orjson.dumps({"key": command["topic"], "broadcast": command["payload"]})
                broadcast(listeners, frame.decode())
            else:
                if command["command"] == "listen":
                    listeners.add(connection)
                await connection.send(SUCCESS)

    async def handler(connection: ServerConnection) -> None:
        assert connection.request is not None
        with contextlib.suppress(ConnectionClosed):
            if connection.request.path == "/publish":
                await publish(connection)
            else:
                async for message in connection:
                    await connection.send(message)
        listeners.discard(connection)

    async with serve(handler, "127.0.0.1", 0, compression=None) as server:
        port = next(iter(server.sockets)).getsockname()[1]
        print(f"ready at ws://127.0.0.1:{port}", flush=True)
        await asyncio.get_running_loop().create_future()


if __name__ == "__main__":
    uvloop.run(main())
