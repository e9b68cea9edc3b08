"""One process of the storm's clients, which ``storm`` starts.

Each client listens and is subscribed to its own topic. When an endpoint is killed, the client library connects its
clients again and makes them listen. This process records when they listen. Then each of these clients publishes to its
own topic. The delivered message shows that the client can send, that its subscription still exists, and that the broker
knows where the client listens now.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import os
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

import uvloop

from ingeborg.protocol.client import Client, ClientError, ConnectionLost
from ingeborg.protocol.errors import ProtocolError

from .clients import assignment, commands, each, say

#: The precision of the time at which a client listens again, in seconds.
_LOOK_S = 0.02
#: A message that does not arrive within this number of seconds after its confirmation is sent again, and the repetition
#: is counted.
_AGAIN_S = 5.0


def own_list(urls: Sequence[str], number: int) -> list[str]:
    """Return the order in which client ``number`` tries the endpoints. The first endpoints are assigned round-robin.
    The clients of a dead endpoint spread over all others, instead of all moving to the next one."""
    first, lap = number % len(urls), number // len(urls)
    others = [*urls[first + 1 :], *urls[:first]]
    start = lap % len(others) if others else 0
    return [urls[first], *others[start:], *others[:start]]


class Clients:
    """The clients with these numbers."""

    def __init__(self, urls: Sequence[str], numbers: range) -> None:
        self._urls = urls
        self._numbers = numbers
        self._clients: dict[int, Client] = {}
        self._lost: Counter[int] = Counter()  # the number of lost connections, by client
        self._back_ns: dict[int, int] = {}  # the time at which each client first listened again
        self._got_ns: dict[int, int] = {}  # the time at which each client's message arrived
        self._repeated = 0
        self._refused = 0

    async def connect(self) -> None:
        """Connect each client, make it listen, and subscribe it to its own topic. Raises ``ClientError`` or
        ``ProtocolError``."""

        async def one(number: int) -> None:
            topic = _topic(number)

            def on_notification(key: str | None, payload: Any) -> None:
                if key == topic:
                    self._got_ns.setdefault(number, time.monotonic_ns())

            def on_lost(_: ConnectionLost) -> None:
                self._lost[number] += 1

            client = Client(
                own_list(self._urls, number), topic, listen=True, on_notification=on_notification, on_lost=on_lost
            )
            await client.connect()
            self._clients[number] = client
            await client.subscribe(topic)

        await each(self._numbers, one)

    def at(self, url: str) -> list[int]:
        """Return the clients that are connected to that endpoint."""
        return [number for number, client in self._clients.items() if client.url == url]

    async def storm(self, victims: Sequence[int], within_s: float) -> dict[str, Any]:
        """Wait at most ``within_s`` seconds, until each victim has lost its connection, has listened again, and has
        received a message."""
        waiting = set(victims)
        probes = set()
        end_s = time.monotonic() + within_s
        while len(self._got_ns) < len(victims) and time.monotonic() < end_s:
            now_ns = time.monotonic_ns()
            for number in [number for number in waiting if self._listens_again(number)]:
                waiting.discard(number)
                self._back_ns[number] = now_ns
                probes.add(asyncio.create_task(self._probe(number)))
            await asyncio.sleep(_LOOK_S)
        for probe in probes:
            probe.cancel()
        for result in await asyncio.gather(*probes, return_exceptions=True):
            if isinstance(result, Exception):
                raise result
        hurt = frozenset(victims)
        return {
            "back_ns": list(self._back_ns.values()),
            "got_ns": list(self._got_ns.values()),
            "went_to": Counter(self._clients[number].url or "" for number in self._back_ns),
            "lost_again": sum(self._lost[number] - 1 for number in hurt if self._lost[number]),
            "others": len(self._clients) - len(hurt),
            "others_lost": sum(number not in hurt for number in self._lost),
            "repeated": self._repeated,
            "refused": self._refused,
        }

    def _listens_again(self, number: int) -> bool:
        return 0 < self._lost[number] == self._clients[number].reconnects

    async def _probe(self, number: int) -> None:
        client, topic = self._clients[number], _topic(number)
        for attempt in itertools.count(1):
            try:
                await client.publish(topic, f"storm {number}, {attempt}", ack=True)
            except (ClientError, ProtocolError):
                self._refused += 1  # the client library does not retry every failed publish, so retry here
            await asyncio.sleep(_AGAIN_S)
            if number in self._got_ns:
                return
            self._repeated += 1


def _topic(number: int) -> str:
    """Return the topic of a client, which is also its id."""
    return f"storm {number}"


async def main() -> None:
    """Connect the clients. On each command, wait for the storm and report its result."""
    given = assignment()
    clients = Clients(given["urls"], range(*given["numbers"]))
    try:
        await clients.connect()
    except (ClientError, ProtocolError) as error:
        say(failed=str(error))
        return
    gc.collect()
    gc.freeze()  # these objects live to the end, so the garbage collector need not scan them
    say(connected=len(range(*given["numbers"])))
    async for command in commands():
        victims = clients.at(command["victim"])
        say(victims=len(victims))
        say(**await clients.storm(victims, command["within_s"]))
    os._exit(0)  # the system closes the connections; closing each would take longer than the measurement


if __name__ == "__main__":
    uvloop.run(main())
