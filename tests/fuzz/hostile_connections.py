"""Connections of hostile clients, on bare bytes."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from typing import Final, cast

from tests.broker.running import HANDSHAKE

MiB: Final = 1 << 20


class Hostile:
    """One hostile connection, on bare bytes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def upgrade(self, extensions: str = "", protocol: str = "") -> None:
        """Do the opening handshake."""
        head = HANDSHAKE.format(path="/")
        for name, value in (("Extensions", extensions), ("Protocol", protocol)):
            if value:
                head = head[:-2] + f"Sec-WebSocket-{name}: {value}\r\n\r\n"
        self.writer.write(head.encode())
        await self.reader.readuntil(b"\r\n\r\n")

    async def write(self, data: bytes) -> None:
        """Write the data as fast as the endpoint takes it."""
        # In pieces, since TLS would encrypt the data in one go. For 60 connections with 60 MiB each that takes 7 GB of
        # memory, and a minute in which no time limit of this process takes effect.
        for start in range(0, len(data), MiB):
            self.writer.write(data[start : start + MiB])
            await self.writer.drain()

    def stop_reading(self) -> None:
        """Leave all further data in the kernel."""
        cast(asyncio.Transport, self.writer.transport).pause_reading()

    def read_on(self) -> asyncio.Task[None]:
        """Ignore everything that the endpoint sends."""

        async def pass_over() -> None:
            with contextlib.suppress(OSError):
                while await self.reader.read(MiB):
                    pass

        return asyncio.get_running_loop().create_task(pass_over())


async def connect(url: str) -> Hostile:
    """Connect to the endpoint, over TLS if its URL says so."""
    host, port = url.split("//")[1].rstrip("/").split(":")
    tls = None
    if url.startswith("wss:"):
        tls = ssl.create_default_context()
        tls.check_hostname = False
        tls.verify_mode = ssl.CERT_NONE
    reader, writer = await asyncio.open_connection(host, int(port), ssl=tls, limit=4 * MiB)
    return Hostile(reader, writer)
