"""A client of HTTP that says exactly what a test wants, and reads one response at a time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import orjson

from ..running import PATIENCE_S, Raw, raw


class Answer(NamedTuple):
    """A response: its status, its headers by their names in lower case, and its body."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        assert self.headers["content-type"] == "application/json"
        return orjson.loads(self.body)


class Event(NamedTuple):
    """An event as a browser dispatches it, with the id that its stream has then."""

    kind: str
    data: Any
    id: str


class EventSource:
    """Parses a stream as the HTML standard says. ``last``: the id of the last event so far; ``moved``: gets each new
    one."""

    def __init__(
        self, reader: asyncio.StreamReader, last: str, moved: Callable[[str], None] = lambda last: None
    ) -> None:
        self.last = last
        self._reader = reader
        self._moved = moved

    async def event(self) -> Event:
        """The next event with data. Raises ``IncompleteReadError`` at the end of the stream."""
        kind, last, data = "message", self.last, []
        while True:
            line = (await self._reader.readuntil(b"\n")).decode().rstrip("\n")
            name, _, value = line.partition(":")
            value = value.removeprefix(" ")
            if name == "id":
                last = value
            elif name == "event":
                kind = value
            elif name == "data":
                data.append(value)
            elif not line:
                if last != self.last:
                    self.last = last
                    self._moved(last)
                if data:
                    return Event(kind, orjson.loads("\n".join(data)), last)


def head(method: str, target: str, *headers: str) -> bytes:
    return "\r\n".join((f"{method} {target} HTTP/1.1", "Host: 127.0.0.1", *headers, "", "")).encode("latin-1")


def post(path: str, value: Any, *headers: str) -> bytes:
    """A request with a JSON body. Bytes are sent as they are."""
    body = value if isinstance(value, bytes) else orjson.dumps(value)
    return head("POST", path, "Content-Type: application/json", f"Content-Length: {len(body)}", *headers) + body


class Talk:
    """One connection."""

    def __init__(self, connection: Raw) -> None:
        self.raw = connection

    def say(self, data: bytes) -> None:
        self.raw.writer.write(data)

    async def hear(self, *, has_body: bool = True) -> Answer:
        """The next response. ``has_body``: false for the response to a HEAD."""
        async with asyncio.timeout(PATIENCE_S):
            lines = (await self.raw.reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:-2])}
            size = int(headers.get("content-length", "0")) if has_body else 0
            return Answer(int(lines[0].split()[1]), headers, await self.raw.reader.readexactly(size))

    async def ask(self, data: bytes) -> Answer:
        self.say(data)
        return await self.hear()

    async def post(self, path: str, value: Any, *headers: str) -> Answer:
        return await self.ask(post(path, value, *headers))

    async def get(self, target: str, *headers: str) -> Answer:
        return await self.ask(head("GET", target, *headers))

    async def ends(self) -> bytes:
        """Everything until the endpoint ends the stream."""
        return await self.raw.rest()


@asynccontextmanager
async def talk(url: str) -> AsyncIterator[Talk]:
    async with raw(url, limit=2**22) as connection:
        yield Talk(connection)
