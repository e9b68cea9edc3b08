"""The subscribers. Each subscriber is a connection that polls, and records its answers.

Owns: the time of each poll, and every answer as it arrived. Must never: judge an answer (``verdict`` does at the end),
or poll before the answer to the previous poll.

There are two ways to poll. In the first, a subscriber polls again after each answer, and the broker answers when a
record arrives. In the second, a subscriber polls twice a second, and also immediately if an answer says that there are
more records. The polls of all subscribers are then spread evenly over the half second.
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
"""Maximum number of connections in progress at the same time."""


class Got(NamedTuple):
    """A non-empty answer, as received."""

    subscriber: int
    at_ns: int
    message: bytes


class _Subscriber:
    """One subscriber. ``due`` says that the subscriber's next poll became due while an answer was pending."""

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
    """All subscribers. ``expected`` is the number of deliveries that are due. With ``hurries``, subscribers poll again
    immediately. ``done`` gets a result when all deliveries have arrived, or an exception that says why some cannot
    arrive."""

    def __init__(self, wishes: Sequence[Any], expected: int, *, hurries: bool) -> None:
        self._wishes = wishes
        self._expected = self._left = expected
        self.hurries = hurries
        self.got: list[Got] = []
        self._subscribers = [_Subscriber(self, number) for number in range(len(wishes))]
        self._unsubscribed = len(wishes)
        loop = asyncio.get_running_loop()
        self._ready: asyncio.Future[None] = loop.create_future()
        self.done: asyncio.Future[None] = loop.create_future()
        self._mark = 0
        self._marked: asyncio.Future[None] | None = None
        self._watches: list[asyncio.Task[None]] = []
        self._ticking: list[asyncio.TimerHandle | None] = [None] * len(wishes)
        self._ended = False

    @property
    def left(self) -> int:
        """Return the number of missing deliveries."""
        return self._left

    def delivered(self, count: int) -> None:
        """Count deliveries."""
        self._left -= count
        if self._marked is not None and self._left <= self._mark and not self._marked.done():
            self._marked.set_result(None)
        if self._left <= 0 and not self.done.done():
            self.done.set_result(None)

    async def came_to(self, count: int) -> None:
        """Wait until this number of deliveries has arrived since the beginning."""
        self._mark = self._expected - count
        if self._left > self._mark:
            self._marked = asyncio.get_running_loop().create_future()
            await self._marked
            self._marked = None

    def subscribed(self) -> None:
        """Count one more subscription."""
        self._unsubscribed -= 1
        if not self._unsubscribed and not self._ready.done():
            self._ready.set_result(None)

    async def connect(self, url: str) -> None:
        """Connect all subscribers."""
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
        """Make all subscriptions, and wait for the replies."""
        for one, wish in zip(self._subscribers, self._wishes, strict=True):
            assert one.socket is not None
            one.socket.write(SUBSCRIBE + orjson.dumps({"subscriber": one.number, "filter": wish}))
        await self._ready

    def begin(self, at: float) -> None:
        """Start polling at this time of the event loop."""
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
        """Stop all polls and close all connections."""
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
