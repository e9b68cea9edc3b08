"""A broker in a hundred lines, for runs of the generator against a server that answers: one endpoint, all in memory.

On request it loses, repeats and misdelivers messages, so that tests see whether the generator notices.
"""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import Any

import orjson
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed


class PlainBroker:
    def __init__(self) -> None:
        self.subscribers: dict[str, set[str]] = {}
        self.subscribed: dict[str, set[str]] = {}  # by client; not undone by unsubscribing
        self.publishes = asyncio.Event()
        self.listening: dict[str, ServerConnection] = {}
        self.seen: set[tuple[str, bytes]] = set()
        self.received = 0
        self.dropped = 0
        self.sent = 0
        self.lose_every = 0
        self.repeat_every = 0
        self.stray_every = 0
        self.misdeliver_every = 0
        self.misdelivered = 0
        self.form = ""  # the form of its code, as it reports; empty: it does not

    async def __aenter__(self) -> PlainBroker:
        self._server = await serve(
            self._handle, "127.0.0.1", 0, compression=None, process_request=self._page, close_timeout=1
        )
        self.address = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        self.url = f"ws://{self.address}/"
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._server.close()
        await self._server.wait_closed()

    async def received_some(self, publishes: int) -> None:
        while self.received < publishes:
            self.publishes.clear()
            await self.publishes.wait()

    def _page(self, connection: ServerConnection, request: Any) -> Any:
        if request.path == "/metrics":
            said = f',form="{self.form}"' if self.form else ""
            return connection.respond(
                HTTPStatus.OK,
                f'ingeborg_info{{name="plain"{said}}} 1\n'
                f"ingeborg_duplicates_dropped_total {self.dropped}\nprocess_cpu_seconds_total 0.5\n"
                "process_resident_memory_bytes 1000000\n",
            )
        if request.path == "/readyz":
            return connection.respond(HTTPStatus.OK, "ok\n")
        return None

    async def _handle(self, connection: ServerConnection) -> None:
        try:
            async for frame in connection:
                await self._command(connection, orjson.loads(frame))
        except ConnectionClosed:
            pass  # the tests do not care about a client that leaves without a close

    async def _command(self, connection: ServerConnection, command: dict[str, Any]) -> None:
        client = command["client_id"]
        match command["command"]:
            case "listen":
                self.listening[client] = connection
            case "subscribe":
                self.subscribed.setdefault(client, set()).update(command["topic"])
                for topic in command["topic"]:
                    self.subscribers.setdefault(topic, set()).add(client)
            case "unsubscribe":
                for topic in command["topic"]:
                    self.subscribers[topic].discard(client)
            case "publish":
                await self._publish(command["topic"], command["payload"])
        if "id" in command:
            await connection.send(orjson.dumps({"result": "success", "id": command["id"]}), text=True)

    async def _publish(self, topic: str, payload: Any) -> None:
        self.received += 1
        self.publishes.set()
        key = (topic, orjson.dumps(payload, option=orjson.OPT_SORT_KEYS))
        if key in self.seen:
            self.dropped += 1
            return
        self.seen.add(key)
        frame = orjson.dumps({"key": topic, "broadcast": payload})
        subscribers = self.subscribers.get(topic, set())
        strangers = sorted(self.listening.keys() - subscribers)
        for client in sorted(subscribers):
            self.sent += 1
            if strangers and self.misdeliver_every and self.sent % self.misdeliver_every == 0:
                self.misdelivered += 1
                await self.listening[strangers[0]].send(frame, text=True)
            if self.lose_every and self.sent % self.lose_every == 0:
                continue
            await self.listening[client].send(frame, text=True)
            if self.repeat_every and self.sent % self.repeat_every == 0:
                await self.listening[client].send(frame, text=True)
            if self.stray_every and self.sent % self.stray_every == 0:
                await self.listening[client].send(orjson.dumps({"key": "?", "broadcast": 1}), text=True)
