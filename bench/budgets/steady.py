"""Clients that publish at a steady rate, or one message at a time, while endpoints join and leave.

Owns: the clients' messages, and the times and codes of the replies. Must never: judge results, or delay a message
because another message is late. Latency counts from the time at which a message was due.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

import orjson
from websockets.exceptions import WebSocketException
from websockets.protocol import OPEN

from ingeborg.protocol.hashes import slot_of
from ingeborg.protocol.outgoing import OutgoingSocket, connect

#: Time limit for connecting, and pause between two attempts, both in seconds.
_CONNECT_S, _AGAIN_S = 5.0, 0.02

#: A message of the probe counts as lost after this time, in seconds.
_LOST_S = 10.0

#: Pause between two messages of the probe, in seconds. The probe sends so little that an idle endpoint stays idle.
_PROBE_PAUSE_S = 0.002

_UNREACHABLE = (OSError, TimeoutError, WebSocketException)


class Sent(NamedTuple):
    """One message. ``due_ns`` is the time at which it was due, and ``slot`` is its topic's slot. ``over_ns`` is the
    time at which its reply arrived. For a message of a probe, it is the time at which the message itself arrived."""

    due_ns: int
    slot: int
    over_ns: int

    @property
    def ms(self) -> float:
        """Return the latency in milliseconds."""
        return (self.over_ns - self.due_ns) / 1e6


class _Connection:
    """A connection that moves to the next endpoint when it is lost."""

    def __init__(self, urls: Sequence[str]) -> None:
        self._urls = itertools.cycle(urls)
        self.socket: OutgoingSocket | None = None
        self.lost = 0

    async def open(self) -> None:
        """Connect to the next endpoint that is up."""
        while True:
            with suppress(*_UNREACHABLE):
                async with asyncio.timeout(_CONNECT_S):
                    self.socket = await connect(next(self._urls), self.came)
                return
            await asyncio.sleep(_AGAIN_S)

    async def keep(self) -> None:
        """Keep the client connected."""
        while True:
            assert self.socket is not None
            await self.socket.over
            self.socket = None
            self.lost += 1
            await self.open()
            self.again()

    def came(self, socket: OutgoingSocket, data: bytes) -> None:
        """Handle a message from the endpoint."""

    def again(self) -> None:
        """Send what is needed on a new connection."""

    def write(self, **command: object) -> None:
        """Send a command, if there is a connection."""
        if self.socket is not None and self.socket.ws.state is OPEN:
            self.socket.write(orjson.dumps(command))


class Publisher(_Connection):
    """A client that publishes ``per_s`` messages per second with ``ack``, to its topics in turn. When its connection
    ends, it sends unanswered messages again over the next connection."""

    def __init__(self, name: str, urls: Sequence[str], topics: Sequence[str], per_s: float) -> None:
        super().__init__(urls)
        self._name = name
        self._topics = [(topic, slot_of(topic)) for topic in topics]
        self._per_s = per_s
        self._unanswered: dict[int, tuple[int, str, int]] = {}  # number -> due, topic, slot
        self.sent: list[Sent] = []
        self.refused: Counter[str] = Counter()  # the number of refusals, by code
        self.repeated = 0

    @property
    def unanswered(self) -> int:
        """Return the number of messages that have no reply yet."""
        return len(self._unanswered)

    async def publish(self, stop: asyncio.Event) -> None:
        """Publish until ``stop``."""
        began_s = time.monotonic()
        for number in itertools.count():
            due_s = began_s + number / self._per_s
            if due_s > time.monotonic():
                await asyncio.sleep(due_s - time.monotonic())
            if stop.is_set():
                return
            topic, slot = self._topics[number % len(self._topics)]
            self._unanswered[number] = (int(due_s * 1e9), topic, slot)
            self._publish(number)

    def _publish(self, number: int) -> None:
        _, topic, _ = self._unanswered[number]
        payload = f"{self._name} {number} ".ljust(150, "x")
        self.write(command="publish", client_id=self._name, topic=topic, payload=payload, ack=True, id=number)

    def came(self, socket: OutgoingSocket, data: bytes) -> None:
        """Handle a reply."""
        reply = orjson.loads(data)
        row = self._unanswered.pop(reply.get("id"), None)
        if row is None:
            self.refused["an unexpected reply"] += 1
        elif "error" in reply:
            self.refused[reply["error"]] += 1
        else:
            self.sent.append(Sent(row[0], row[2], time.monotonic_ns()))

    def again(self) -> None:
        """Send unanswered messages again. In the worst case, they are duplicates of messages that arrived before."""
        for number in list(self._unanswered):
            self.repeated += 1
            self._publish(number)


class Listener(_Connection):
    """A client that counts the messages of some topics."""

    def __init__(self, name: str, urls: Sequence[str], topics: Sequence[str]) -> None:
        super().__init__(urls)
        self._name = name
        self._topics = list(topics)
        self._replies: asyncio.Queue[dict[str, object]] = asyncio.Queue()
        self.heard = 0

    async def begin(self) -> None:
        """Listen and subscribe."""
        await self.open()
        self.write(command="listen", client_id=self._name)
        self.write(command="subscribe", client_id=self._name, topic=self._topics)
        async with asyncio.timeout(_CONNECT_S):
            for _ in range(2):
                assert (await self._replies.get()).get("result") == "success"

    def came(self, socket: OutgoingSocket, data: bytes) -> None:
        """Handle a notification, or one of the two replies."""
        message = orjson.loads(data)
        if "broadcast" in message:
            self.heard += 1
            self.notified(message)
        else:
            self._replies.put_nowait(message)

    def notified(self, message: dict[str, object]) -> None:
        """Count a notification."""


class Probe(Listener):
    """A client that publishes and receives messages at one endpoint, one at a time. It measures the time from the write
    of each message to its arrival."""

    def __init__(self, name: str, url: str, topics: Sequence[str]) -> None:
        super().__init__(name, [url], topics)
        self._publisher = _Connection([url])
        self._expected = ""
        self._here = asyncio.Event()
        self.sent: list[Sent] = []
        self.lost_messages = 0

    async def begin(self) -> None:
        """See ``Listener``."""
        await super().begin()
        await self._publisher.open()

    async def probe(self, stop: asyncio.Event) -> None:
        """Send messages until ``stop``."""
        for number in itertools.count():
            if stop.is_set():
                return
            topic = self._topics[number % len(self._topics)]
            self._expected = f"{self._name} {number}"
            self._here.clear()
            due_ns = time.monotonic_ns()
            payload = {"payload": self._expected}
            self._publisher.write(command="publish", client_id=f"{self._name} p", topic=topic, **payload)
            try:
                async with asyncio.timeout(_LOST_S):
                    await self._here.wait()
            except TimeoutError:
                self.lost_messages += 1
            else:
                self.sent.append(Sent(due_ns, slot_of(topic), time.monotonic_ns()))
            await asyncio.sleep(_PROBE_PAUSE_S)

    def notified(self, message: dict[str, object]) -> None:
        """Process a notification, which usually is the awaited one."""
        if message["broadcast"] == self._expected:
            self._here.set()

    async def close(self) -> None:
        """Close the connection."""
        for each in (self.socket, self._publisher.socket):
            if each is not None:
                await each.end()
