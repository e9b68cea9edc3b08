"""The clients of a soak. They listen, and connect again whenever their connection has ended. Some clients read slowly.

Owns: the clients' connections, and the times at which each connection began and ended. Must never: publish, or judge.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import socket as sockets
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import orjson
from websockets.exceptions import WebSocketException

from ingeborg.protocol.outgoing import OutgoingSocket, connect

from .ledger import Ledger
from .record import Life
from .settings import Settings

#: Limit for connecting, or for the answer to a command, in seconds. An endpoint that waits for a dead endpoint answers
#: after about 5 s.
TIMEOUT_S = 15.0
#: The pause between two attempts to connect is random, up to a limit. These are the first limit and the greatest limit,
#: in seconds.
BACKOFF_S, BACKOFF_MAX_S = 0.05, 1.0
#: Size of the kernel's receive buffer for a slow client. It is small, so that the endpoint soon notices the slowness.
SLOW_RECEIVE_BYTES = 16_384


class Refused(Exception):
    """Raised if an endpoint answers with an error."""


class Connection:
    """A WebSocket, and the commands that wait for their replies on it."""

    def __init__(self) -> None:
        self._socket: OutgoingSocket | None = None
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._numbers = itertools.count(1)

    async def ask(self, **command: Any) -> dict[str, Any]:
        """Send a command, and return the reply. Raises ``Refused``, ``TimeoutError`` or ``ConnectionError``."""
        assert self._socket is not None
        number = next(self._numbers)
        answer = self._waiting[number] = asyncio.get_running_loop().create_future()
        self._socket.write(orjson.dumps({**command, "id": number}))
        try:
            async with asyncio.timeout(TIMEOUT_S):
                await asyncio.wait((answer, self._socket.over), return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._waiting.pop(number, None)
        if not answer.done():
            raise ConnectionResetError("the connection ended before the reply")
        reply: dict[str, Any] = answer.result()
        if "error" in reply:
            raise Refused(f"{reply['error']}: {reply.get('info')}")
        return reply

    def replied(self, reply: dict[str, Any]) -> None:
        """Pass a reply to the command that waits for it. Do nothing if the command has timed out."""
        answer = self._waiting.get(reply.get("id", 0))
        if answer is not None and not answer.done():
            answer.set_result(reply)


class Subscriber(Connection):
    """One subscriber. ``now_us`` is the run's clock."""

    def __init__(
        self,
        number: int,
        name: str,
        topics: Sequence[str],
        urls: Sequence[str],
        settings: Settings,
        ledger: Ledger,
        now_us: Callable[[], int],
        *,
        slow: bool,
    ) -> None:
        super().__init__()
        self.number = number
        self.slow = slow
        self.lives: list[Life] = []
        self.refusals: Counter[str] = Counter()  # error replies to a listen, by their code
        self.listening = asyncio.Event()
        self._name, self._topics, self._urls = name, topics, urls
        self._settings, self._ledger, self._now_us = settings, ledger, now_us
        self._random = random.Random(f"{settings.seed} {number}")
        self._endpoint = number % len(urls)
        self._subscribed = False
        self._read_bytes = 0
        self._stopped = False

    async def run(self) -> None:
        """Listen until ``stop``. After each lost connection, listen again."""
        failures = 0
        while not self._stopped:
            life = Life(self.number, len(self.lives), self._endpoint)
            try:
                await self._listen(life)
            except (OSError, WebSocketException, TimeoutError, Refused) as error:
                if isinstance(error, Refused):
                    self.refusals[str(error).partition(":")[0]] += 1
                if self._socket is not None:
                    self._socket.abort()
                failures += 1
                self._endpoint = (self._endpoint + 1) % len(self._urls)
                await asyncio.sleep(self._random.random() * min(BACKOFF_MAX_S, BACKOFF_S * 2**failures))
                continue
            failures = 0
            assert self._socket is not None
            await asyncio.wait((self._socket.over,))
            self.listening.clear()
            self._endpoint = self._random.choice(
                [number for number in range(len(self._urls)) if number != self._endpoint] or [self._endpoint]
            )

    async def _listen(self, life: Life) -> None:
        async with asyncio.timeout(TIMEOUT_S):
            self._socket = None
            self._socket = socket = await connect(self._urls[self._endpoint], self._received)
        self.lives.append(life)
        socket.over.add_done_callback(lambda over: self._over(life, over.result()[0]))
        if self.slow:
            raw = socket.transport.get_extra_info("socket")
            raw.setsockopt(sockets.SOL_SOCKET, sockets.SO_RCVBUF, SLOW_RECEIVE_BYTES)
        await self.ask(command="listen", client_id=self._name)
        life.listening_us = self._now_us()
        if not self._subscribed:
            await self.ask(command="subscribe", client_id=self._name, topic=self._topics)
            self._subscribed = True
        self.listening.set()

    def _over(self, life: Life, code: int | None) -> None:
        life.lost(self._now_us(), code)

    async def move(self) -> None:
        """Close the connection in an orderly way. ``run`` then continues at another endpoint."""
        socket, life = self._socket, self.lives[-1]
        if socket is None or not self.listening.is_set() or life.end_us >= 0:
            return
        life.ended(self._now_us(), "moved")
        self.listening.clear()
        await socket.end()

    async def all_read(self) -> None:
        """Wait until the client has received all messages that are now in its outbox. A reply to a command arrives
        after these messages (SPEC section 1.3)."""
        while True:
            try:
                await self.listening.wait()
                await self.ask(command="subscriptions", client_id=self._name, limit=1)
                return
            except (OSError, Refused):
                await asyncio.sleep(BACKOFF_S)

    def stop(self) -> None:
        """Close the connection and do not connect again."""
        self._stopped = True
        for life in self.lives[-1:]:
            life.ended(self._now_us(), "end")
        if self._socket is not None:
            self._socket.abort()

    def _received(self, socket: OutgoingSocket, data: bytes) -> None:
        message = orjson.loads(data)
        payload = message.get("broadcast")
        if payload is None:
            self.replied(message)
            return
        life = self.lives[-1]
        if socket is not self._socket or life.end_us >= 0:
            return
        number, due, _ = payload.split(" ", 2)
        due_us = int(due)
        self._ledger.delivered_at(int(number), self.number, life.number, due_us, self._now_us())
        if due_us > life.newest_us:
            life.newest_us = due_us
        if self.slow:
            self._read_bytes += len(data)
            if self._read_bytes >= self._settings.slow_read_bytes:
                self._read_bytes = 0
                socket.pause()
                asyncio.get_running_loop().call_later(self._settings.slow_pause_s, socket.go_on)
