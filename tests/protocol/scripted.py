"""An endpoint that does what a test tells it: a real WebSocket server, and a script per frame it gets.

It knows no rules of the broker; what a client expects of a real one is tested against a real one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import orjson
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed

from tests.broker.running import certificate, scheme

#: How long what is awaited may take, in seconds, on a busy machine.
PATIENCE_S = 60.0

Script = Callable[["ScriptedEndpoint", ServerConnection, dict[str, Any]], Any]


async def succeed(endpoint: ScriptedEndpoint, connection: ServerConnection, command: dict[str, Any]) -> None:
    """The default script: success for everything that waits for an answer."""
    if "id" in command:
        await endpoint.reply(connection, command, result="success")


class ScriptedEndpoint:
    def __init__(self, script: Script = succeed) -> None:
        self.script = script
        self.frames: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.connections: list[ServerConnection] = []

    async def __aenter__(self) -> ScriptedEndpoint:
        tls = pair.context if (pair := certificate()) is not None else None
        options: dict[str, Any] = {"compression": None, "max_size": None, "close_timeout": 1, "ssl": tls}
        self._server = await serve(self._handle, "127.0.0.1", 0, **options)
        self.port = self._server.sockets[0].getsockname()[1]
        self.url = f"{scheme()}://127.0.0.1:{self.port}/"
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._server.close()
        await self._server.wait_closed()

    async def _handle(self, connection: ServerConnection) -> None:
        self.connections.append(connection)
        try:
            async for frame in connection:
                command = orjson.loads(frame)
                self.frames.put_nowait(command)
                await self.script(self, connection, command)
        except ConnectionClosed:
            pass  # what many of the scripts are about

    async def next(self, command: str) -> dict[str, Any]:
        """The next frame with that command; others are passed over."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                frame = await self.frames.get()
                if frame["command"] == command:
                    return frame

    async def send(self, connection: ServerConnection, message: Any) -> None:
        await connection.send(orjson.dumps(message), text=True)

    async def reply(self, connection: ServerConnection, command: dict[str, Any], /, **fields: Any) -> None:
        await self.send(connection, {**fields, "id": command["id"]})

    async def notify(self, key: str | None, payload: Any) -> None:
        await self.send(self.connections[-1], {"key": key, "broadcast": payload})

    def cut(self) -> None:
        """The newest connection breaks as when its process is killed."""
        self.connections[-1].transport.abort()


def free_url() -> str:
    """Where nobody listens: port 9 (discard) of the loopback, which needs root to be bound."""
    return "ws://127.0.0.1:9/"
