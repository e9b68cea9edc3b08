"""The publishers of a soak. They publish with acknowledgements, and connect again after losing a connection.

Owns: the publishers' connections, and the unanswered publishes on each connection. Must never: decide what to publish.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import orjson
from websockets.exceptions import WebSocketException

from ingeborg.protocol.outgoing import OutgoingSocket, connect

from .clients import BACKOFF_S, TIMEOUT_S
from .ledger import Ledger
from .record import DUPLICATE, LOST, NEW, Life

#: Limit of unanswered publishes on one connection. An endpoint stops reading at 2,000 (SPEC section 1.4).
OUTSTANDING_MAX = 1_500


class Publisher:
    """One publisher, which has one connection at a time. The ``id`` of a publish combines the message and the attempt
    (0 or 1)."""

    def __init__(self, number: int, name: str, urls: Sequence[str], ledger: Ledger, now_us: Callable[[], int]) -> None:
        self.number = number
        self.lives: list[Life] = []
        self._name = orjson.dumps(name)
        self._urls, self._ledger, self._now_us = urls, ledger, now_us
        self._endpoint = number % len(urls)
        self._socket: OutgoingSocket | None = None
        self._outstanding: set[int] = set()
        self._batch: list[bytes] = []
        self._stopped = False

    async def run(self) -> None:
        """Stay connected until ``stop``."""
        while not self._stopped:
            try:
                async with asyncio.timeout(TIMEOUT_S):
                    socket = await connect(self._urls[self._endpoint], self._received)
            except (OSError, WebSocketException, TimeoutError):
                self._endpoint = (self._endpoint + 1) % len(self._urls)
                await asyncio.sleep(BACKOFF_S)
                continue
            life = Life(self.number, len(self.lives), self._endpoint, self._now_us())
            self.lives.append(life)
            self._socket = socket
            await asyncio.wait((socket.over,))
            self._socket = None
            life.lost(self._now_us(), socket.over.result()[0])
            self._batch.clear()
            lost, self._outstanding = self._outstanding, set()
            for id in lost:
                self._ledger.answered(id >> 1, id & 1, LOST, life.end_us)
            self._endpoint = (self._endpoint + 1) % len(self._urls)

    @property
    def takes_more(self) -> bool:
        """Return whether the publisher is connected and may send another publish."""
        socket = self._socket
        return socket is not None and socket.takes_more and len(self._outstanding) < OUTSTANDING_MAX

    def publish(self, message: int, attempt: int, topic: bytes, payload: bytes) -> None:
        """Publish with the next ``flush``. ``topic`` and ``payload`` are JSON texts."""
        id = message << 1 | attempt
        self._outstanding.add(id)
        self._ledger.sent_at(message, attempt, self._endpoint, self._now_us())
        self._batch.append(
            b'{"command":"publish","client_id":%b,"topic":%b,"payload":%b,"ack":true,"id":%d}'
            % (self._name, topic, payload, id)
        )

    def flush(self) -> None:
        """Send the collected publishes in one write."""
        if self._batch and self._socket is not None:
            self._socket.write(*self._batch)
            self._batch.clear()

    def stop(self) -> None:
        """Close the connection and do not connect again."""
        self._stopped = True
        for life in self.lives[-1:]:
            life.ended(self._now_us(), "end")
        if self._socket is not None:
            self._socket.abort()

    def _received(self, _: OutgoingSocket, data: bytes) -> None:
        reply = orjson.loads(data)
        id = reply.get("id")
        if id not in self._outstanding:
            return
        self._outstanding.remove(id)
        outcome = reply["error"] if "error" in reply else DUPLICATE if reply["duplicate"] else NEW
        self._ledger.answered(id >> 1, id & 1, outcome, self._now_us())
