"""The subscribers: each a connection that polls, and what each got.

Owns: when a subscriber polls, and every answer as it came. Must never: judge an answer (``verdict`` does, when all is
over), or poll before the last poll was answered.

Where latency is measured a subscriber polls twice a second, as Kafka's consumers do, and at once where an answer says
that there is more; all subscribers are spread evenly over the half second. Where throughput is measured it polls again
as soon as it has been answered, and the broker answers when there is something.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import orjson

from ingeborg.bench.caching.live.messages import MESSAGE_BYTES_MAX, POLL, SUBSCRIBE, head_of
from ingeborg.bench.errors import BenchError
from ingeborg.protocol.outgoing import OutgoingSocket, connect

POLL_S: Final = 0.5

CONNECTING: Final = 50
"""Connections that are made at once."""


class Got(NamedTuple):
    """An answer with something in it, as it came."""

    subscriber: int
    at_ns: int
    message: bytes


class _Subscriber:
    """One of them. ``due``: its next poll was to be made, and an answer was under way."""

    def __init__(self, crowd: Crowd, number: int) -> None:
        self._crowd = crowd
        self.number = number
        self.socket: OutgoingSocket | None = None
        self.asked = False
        self.due = False

    def came(self, _: OutgoingSocket, message: bytes) -> None:
        at_ns = time.monotonic_ns()
        crowd = self._crowd
        if message[:1] == SUBSCRIBE:
            crowd.subscribed()
            return
        self.asked = False
        head = head_of(message)
        if head.records:
            crowd.got.append(Got(self.number, at_ns, message))
            crowd.delivered(head.records)
        if head.more or self.due or crowd.hurries:
            self.poll()

    def poll(self) -> None:
        if self.asked:
            self.due = True
            return
        self.asked, self.due = True, False
        assert self.socket is not None
        self.socket.write(POLL)


class Crowd:
    """All of them. ``expected``: deliveries that are owed; ``hurries``: poll again at once. ``done`` is set when all
    deliveries have come; its exception is why they cannot."""

    def __init__(self, wishes: Sequence[Any], expected: int, *, hurries: bool) -> None:
        self._wishes = wishes
        self._left = expected
        self.hurries = hurries
        self.got: list[Got] = []
        self._subscribers = [_Subscriber(self, number) for number in range(len(wishes))]
        self._unsubscribed = len(wishes)
        loop = asyncio.get_running_loop()
        self._ready: asyncio.Future[None] = loop.create_future()
        self.done: asyncio.Future[None] = loop.create_future()
        self._watches: list[asyncio.Task[None]] = []
        self._ticking: list[asyncio.TimerHandle | None] = [None] * len(wishes)
        self._ended = False

    @property
    def left(self) -> int:
        """Deliveries that have not come."""
        return self._left

    def delivered(self, count: int) -> None:
        """So many more have come."""
        self._left -= count
        if self._left <= 0 and not self.done.done():
            self.done.set_result(None)

    def subscribed(self) -> None:
        """One more is."""
        self._unsubscribed -= 1
        if not self._unsubscribed and not self._ready.done():
            self._ready.set_result(None)

    async def connect(self, url: str) -> None:
        """All have a connection afterwards."""
        for at in range(0, len(self._subscribers), CONNECTING):
            await asyncio.gather(*(self._connect(url, one) for one in self._subscribers[at : at + CONNECTING]))

    async def _connect(self, url: str, one: _Subscriber) -> None:
        one.socket = await connect(url, one.came, message_bytes_max=MESSAGE_BYTES_MAX)
        self._watches.append(asyncio.ensure_future(self._watch(one)))

    async def _watch(self, one: _Subscriber) -> None:
        assert one.socket is not None
        code, why = await asyncio.shield(one.socket.over)
        if not self._ended and not self.done.done():
            self.done.set_exception(BenchError(f"subscriber {one.number} has lost its connection: {why} ({code})"))

    async def subscribe(self) -> None:
        """All have, afterwards."""
        for one, wish in zip(self._subscribers, self._wishes, strict=True):
            assert one.socket is not None
            one.socket.write(SUBSCRIBE + orjson.dumps({"subscriber": one.number, "filter": wish}))
        await self._ready

    def begin(self, at: float) -> None:
        """Poll, from that time of the loop on."""
        count = len(self._subscribers)
        for one in self._subscribers:
            if self.hurries:
                one.poll()
            else:
                self._tick_at(one, at + POLL_S * one.number / count)

    def _tick_at(self, one: _Subscriber, at: float) -> None:
        self._ticking[one.number] = asyncio.get_running_loop().call_at(at, self._tick, one, at)

    def _tick(self, one: _Subscriber, at: float) -> None:
        one.poll()
        self._tick_at(one, at + POLL_S)

    async def end(self) -> None:
        """Nobody polls any more, and no connection is left."""
        self._ended = True
        for ticking in self._ticking:
            if ticking is not None:
                ticking.cancel()
        for one in self._subscribers:
            if one.socket is not None:
                one.socket.abort()
        if self._watches:
            await asyncio.wait(self._watches)
        if not self.done.done():
            self.done.cancel()
