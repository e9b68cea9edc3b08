"""A client's connection that records everything: each command before it goes out, each frame as it comes.

Owns: the ids of its commands, and which are unanswered. Must never: repeat a command, or reconnect automatically: a
library hides failures that way, and a history is about them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import orjson

from ingeborg.protocol.outgoing import OutgoingSocket, connect

from .record import Recorder

#: Time limit for a connection, in seconds: an endpoint allows a handshake as much.
CONNECT_S = 5.0


class Line:
    """One connection of one client. ``number`` is the record's, unique."""

    def __init__(self, recorder: Recorder, number: int, client: str, endpoint: str, life: str) -> None:
        self.client = client
        self.endpoint = endpoint
        self.number = number
        self.unanswered: dict[int, asyncio.Future[dict[str, Any]]] = {}  # commands that expect a reply
        self.over = asyncio.Event()
        #: Gets each position, with its number in the record, and whether it ended a recovery.
        self.on_position: Callable[[int, str, bool], None] = lambda number, position, recovered: None
        self._life = life
        self._recorder = recorder
        self._id = 0
        self._ending = False
        self._socket: OutgoingSocket | None = None
        self._watch: asyncio.Task[None] | None = None

    async def open(self, url: str, *, lines: bool = False) -> None:
        """Connect. ``lines``: several messages can share a frame (SPEC section 1.6). Raises ``OSError``,
        ``TimeoutError`` or `websockets`' errors for a failed handshake."""
        async with asyncio.timeout(CONNECT_S):
            self._socket = await connect(url, self._message, lines=lines)
        self._recorder.add(
            "opened", connection=self.number, client=self.client, endpoint=self.endpoint, life=self._life
        )
        self._watch = asyncio.create_task(self._ends())

    @property
    def is_open(self) -> bool:
        """Can it send a command?"""
        return self._socket is not None and self._socket.takes_more and not self._ending

    def send(self, command: str, **fields: Any) -> asyncio.Future[dict[str, Any]]:
        """Send a command and return its reply, if it has one. Cancelled if the connection ends first, or has ended."""
        future: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        if self._socket is None or not self.is_open:
            future.cancel()
            return future
        self._id += 1
        self._recorder.add("sent", connection=self.number, id=self._id, command=command, **fields)
        if command not in ("publish", "broadcast") or fields.get("ack"):
            self.unanswered[self._id] = future
        self._socket.write(orjson.dumps({"command": command, "client_id": self.client, "id": self._id, **fields}))
        return future

    async def close(self) -> None:
        """Close the connection from here: messages on their way to it from now on are lost through us."""
        if self._socket is None:
            return
        if not self._ending and not self.over.is_set():
            self._ending = True
            self._recorder.add("closed", connection=self.number, code=None, by="client")
            self._give_up()
        await self._socket.end()
        if self._watch is not None:
            await self._watch

    def _message(self, _: OutgoingSocket, frame: bytes) -> None:
        message = orjson.loads(frame)
        if self._ending:
            return  # it counts as closed
        if "broadcast" in message:
            named = {name: message[name] for name in ("mid", "kept") if name in message}
            payload = message["broadcast"]
            self._recorder.add("heard", connection=self.number, key=message.get("key"), payload=payload, **named)
            return
        position = message.pop("position", None)
        if "result" not in message and "error" not in message:
            self._tell(position, message)
            return
        self._recorder.add("reply", connection=self.number, **message)
        if position is not None:
            self._tell(position, {})
        future = self.unanswered.pop(message.get("id"), None)
        if future is not None and not future.done():
            future.set_result(message)

    def _tell(self, position: str | None, beside: dict[str, Any]) -> None:
        """Record a position, or a gap."""
        number = len(self._recorder.events)
        about = beside if position is None else {"position": position, **beside}
        self._recorder.add("told", connection=self.number, number=number, **about)
        if position is not None:
            self.on_position(number, position, "recovered" in beside)

    async def _ends(self) -> None:
        assert self._socket is not None
        code, _ = await self._socket.over
        if not self._ending:
            self._recorder.add("closed", connection=self.number, code=code, by="endpoint")
        self.over.set()
        self._give_up()

    def _give_up(self) -> None:
        for future in self.unanswered.values():
            future.cancel()
        self.unanswered.clear()
