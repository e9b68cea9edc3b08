"""An endpoint under a test's control: a real WebSocket server that runs a script for each frame.

It knows no rules of the broker. Other tests check a client against a real endpoint.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import orjson
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed

from tests.broker.running import certificate, scheme

#: The time limit of each wait, in seconds, for a busy machine.
PATIENCE_S = 60.0

Script = Callable[["ScriptedEndpoint", ServerConnection, dict[str, Any]], Any]


async def succeed(endpoint: ScriptedEndpoint, connection: ServerConnection, command: dict[str, Any]) -> None:
    """The default script: answer with success every command that has an id."""
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
            pass  # many scripts close the connection

    async def next(self, command: str) -> dict[str, Any]:
        """Return the next frame with that command, and skip others."""
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
        """Break the newest connection, like a killed process."""
        self.connections[-1].transport.abort()


def free_url() -> str:
    """Return a URL without a listener: port 9 (discard) of the loopback, which only root can bind."""
    return "ws://127.0.0.1:9/"
