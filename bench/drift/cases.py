"""The cases: scripts of clients, and how often each script repeats its action.

Owns: the scripts. Must never: count instructions, or depend on which of the two builds the clients talk to.

A script is an asynchronous context manager. It connects and subscribes, yields the action, and closes its connections.
If the endpoint's replies show that it does not know the action, the script raises ``NotThere``.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from functools import partial
from typing import NamedTuple

import orjson

from ingeborg.bench.drift.clients import Client, NotThere
from ingeborg.bench.errors import BenchError

Go = Callable[[int], Awaitable[int]]
"""A function that takes the wanted number of repetitions, and returns the actual number."""


async def _nothing(count: int) -> int:
    """Prepare nothing."""
    return count


class Doing(NamedTuple):
    """An action. ``go`` repeats it. ``before`` prepares the same number of repetitions, and its instructions are not
    counted."""

    go: Go
    before: Go = _nothing


Script = Callable[[Sequence[str]], AbstractAsyncContextManager[Doing]]
"""A script. It takes the URLs of the endpoints. Subscribers connect to the last URL."""

#: Number of topics to which a script publishes in rotation.
TOPICS = 50
#: Minimum size of a payload, in bytes.
PAYLOAD_BYTES = 200
#: The timestamp of a publisher's first message, in Unix milliseconds.
TIMESTAMP_MS = 1_700_000_000_000


class Case(NamedTuple):
    """A script and its numbers of actions. ``warm``: number of actions before the counting begins. ``times``: number of
    actions in each counted window. Both numbers are multiples of a chunk. ``rests``: the endpoint is not counted during
    the actions, but after them, while no client sends and the endpoint's clock runs at the usual speed."""

    name: str
    script: Script
    times: int
    warm: int
    rests: bool = False


class Setting(NamedTuple):
    """Endpoints that share a store, and the cases that run there one after the other. ``variables``: environment
    variables that set the endpoints' options. Variables are used because an endpoint ignores an unknown variable, but
    exits at an unknown argument."""

    name: str
    endpoints: int
    variables: Mapping[str, str]
    cases: Sequence[Case]


def topics(prefix: str) -> list[str]:
    """Return topics that only one case uses, so that no other client subscribes to them."""
    return [f"{prefix} station/{number}" for number in range(TOPICS)]


class Publisher(Client):
    """A client that publishes messages. No two of its messages have the same payload."""

    number = 0

    def publish(self, topic: str, **fields: object) -> bytes:
        """Return the next message's frame."""
        self.number += 1
        payload = f"{topic}: track {self.number:07} ".ljust(PAYLOAD_BYTES, "x")
        return self.frame("publish", topic=topic, payload=payload, timestamp=TIMESTAMP_MS + self.number, **fields)


async def listeners(stack: AsyncExitStack, url: str, prefix: str, names: Sequence[str], count: int) -> list[Client]:
    """Return clients that listen, each on its own connection, and have subscribed to these topics."""
    found = []
    for number in range(count):
        client = await stack.enter_async_context(await Client(f"{prefix} listener {number}").open(url))
        await client.ok("listen")
        await client.ok("subscribe", topic=list(names))
        found.append(client)
    return found


def publishing(name: str, burst: int, *, ack: bool = False, subscribers: int = 1) -> Script:
    """Return a script that publishes to ``TOPICS`` topics in rotation. ``burst`` is the number of publishes in a chunk.
    The publisher sends the next chunk after all notifications and replies for the previous chunk have arrived."""

    @asynccontextmanager
    async def script(urls: Sequence[str]) -> AsyncIterator[Doing]:
        async with AsyncExitStack() as stack:
            names = topics(name)
            heard = await listeners(stack, urls[-1], name, names, subscribers)
            publisher = await stack.enter_async_context(await Publisher(f"{name} publisher").open(urls[0]))
            fields = {"ack": True} if ack else {}

            async def go(count: int) -> int:
                for _ in range(count // burst):
                    at = publisher.number
                    frames = [publisher.publish(names[(at + each) % TOPICS], **fields) for each in range(burst)]
                    publisher.send(*frames)
                    accepted(await publisher.until(replies=burst * ack))
                    for client in heard:
                        await client.until(notes=publisher.number)
                return count

            yield Doing(go)

    return script


def accepted(replies: Sequence[bytes], word: bytes = b'"success"') -> None:
    """Check that each reply contains the word, and raise ``BenchError`` otherwise."""
    for reply in replies:
        if word not in reply:
            raise BenchError(f"the endpoint's reply is not the expected one: {reply[:200]!r}")


@asynccontextmanager
async def duplicates(urls: Sequence[str]) -> AsyncIterator[Doing]:
    """Publish one message repeatedly. Each reply has to say that the message was a duplicate."""
    async with AsyncExitStack() as stack:
        [name] = topics("duplicates")[:1]
        await listeners(stack, urls[-1], "duplicates", [name], 1)
        publisher = await stack.enter_async_context(await Publisher("duplicates publisher").open(urls[0]))
        frame = publisher.publish(name, ack=True)
        publisher.send(frame)
        await publisher.until(replies=1)

        async def go(count: int) -> int:
            for _ in range(count):
                publisher.send(frame)
                accepted(await publisher.until(replies=1), b'"duplicate":true')
            return count

        yield Doing(go)


#: Number of new topics in ``misses``. It exceeds the number of topics that the warm-up and the counted windows use.
FRESH_TOPICS = 2_000


@asynccontextmanager
async def misses(urls: Sequence[str]) -> AsyncIterator[Doing]:
    """Publish to topics that are new to the endpoint, each with one subscriber."""
    async with AsyncExitStack() as stack:
        names = [f"fresh station/{number}" for number in range(FRESH_TOPICS)]
        [heard] = await listeners(stack, urls[-1], "misses", names, 1)
        publisher = await stack.enter_async_context(await Publisher("misses publisher").open(urls[0]))

        async def go(count: int) -> int:
            for _ in range(count):
                publisher.send(publisher.publish(names[publisher.number], ack=True))
                accepted(await publisher.until(replies=1))
                await heard.until(notes=publisher.number)
            return count

        yield Doing(go)


@asynccontextmanager
async def commands(urls: Sequence[str], send: Callable[[Client, int], Awaitable[object]]) -> AsyncIterator[Doing]:
    """Send one command after the other over the connection of a client that listens. ``send`` sends a command. Each
    call gets a new number."""
    async with await Client("of commands").open(urls[0]) as client:
        numbers = itertools.count()
        await client.ok("listen")

        async def go(count: int) -> int:
            for number in itertools.islice(numbers, count):
                await send(client, number)
            return count

        yield Doing(go)


def listen(client: Client, number: int) -> Awaitable[object]:
    """Send `listen` for a client name that has never listened."""
    client.name = f"listening {number:06}"
    return client.ok("listen")


def subscribe(client: Client, number: int) -> Awaitable[object]:
    """Subscribe the client to a topic that has no subscribers yet."""
    return client.ok("subscribe", topic=f"some artist - song {number:06}")


@asynccontextmanager
async def recoveries(urls: Sequence[str]) -> AsyncIterator[Doing]:
    """Reconnect an absent client with its position. Each message that it missed counts as one action."""
    async with AsyncExitStack() as stack:
        names = topics("recoveries")
        publisher = await stack.enter_async_context(await Publisher("recoveries publisher").open(urls[0]))
        position = await _first_position(urls[-1], names)
        client = Client("")

        async def before(count: int) -> int:
            nonlocal client
            for each in range(count):
                publisher.send(publisher.publish(names[each % TOPICS], ack=True, keep_s=KEEP_S))
                accepted(await publisher.until(replies=1))
            client = await stack.enter_async_context(await Client(RECOVERER).open(urls[-1]))
            return count

        async def go(count: int) -> int:
            nonlocal position
            client.send(client.frame("listen", recover=position))
            position = await _position(client, b'"recovered":true')
            await client.close()
            if client.notes < count:
                raise BenchError(f"a recovery delivered only {client.notes} of {count} missed messages")
            return client.notes  # includes messages older than the position, which arrive again

        yield Doing(go, before)


#: The name of the client that recovers, and the seconds for which its messages are retained (longer than a run takes).
RECOVERER, KEEP_S = "recoverer", 3_600
#: Maximum number of seconds until all endpoints of an older commit retain messages, and seconds between two checks.
AGREED_S, AGAIN_S = 60.0, 0.5


async def _first_position(url: str, names: Sequence[str]) -> str:
    """Make the client listen for the first time and subscribe. Return the position from which it will recover."""
    async with await Client(RECOVERER).open(url) as client:
        deadline = time.monotonic() + AGREED_S
        reply = await client.ask("listen", recover=True)
        while reply.get("error") == "peer_unavailable" and time.monotonic() < deadline:
            await asyncio.sleep(AGAIN_S)
            reply = await client.ask("listen", recover=True)
        if "recovering" not in reply:
            raise NotThere(f"recovery: the endpoint replies {reply}")
        await client.ok("subscribe", topic=list(names))
        return str(reply.get("position") or await _position(client, b'"position":'))


async def _position(client: Client, mark: bytes) -> str:
    """Return the position in the next message that contains this mark. Raises ``BenchError`` if a gap arrives first."""
    while mark not in (message := await client.word()):
        if b'"gap"' in message:
            raise BenchError(f"{client.name}: a gap came instead of a position: {message[:200]!r}")
    return str(orjson.loads(message)["position"])


def afterwards(script: Script, quiet_s: float) -> Script:
    """Return a script that counts the work that another script leaves for later. The counted action is a wait of
    ``quiet_s`` seconds in which no client sends."""

    @asynccontextmanager
    async def later(urls: Sequence[str]) -> AsyncIterator[Doing]:
        async def go(count: int) -> int:
            await asyncio.sleep(quiet_s)
            return count

        async with script(urls) as doing:
            yield Doing(go, doing.go)

    return later


ALONE = "publish, alone in its event-loop turn, with ack"
CHUNK = "publish, 50 in a chunk"
CHUNK_ACK = "publish, 50 in a chunk, with ack"
FEW = "publish, 4 in a chunk"
LARGE = "publish, 200 in a chunk"
LARGE_ACK = "publish, 200 in a chunk, with ack"
MANY = "publish to 20 subscribers, 50 in a chunk"
FURTHER = "each further subscriber"
HOP = "a hop, alone in its event-loop turn, both endpoints"
HOP_CHUNK = "a hop, 50 in a chunk, both endpoints"
HOP_FEW = "a hop, 4 in a chunk, both endpoints"
HOP_LARGE = "a hop, 200 in a chunk, both endpoints"
HOP_LARGE_ACK = "a hop, 200 in a chunk, with ack, both endpoints"
DUPLICATE = "duplicate"
MISS = "publish to a topic that is not in the routing cache"
LISTEN = "listen"
SUBSCRIBE = "subscribe"
RECOVERY = "recovery, each missed message"
LATER = "work in ticks that a publish causes (included above)"
IDLE = "an idle second (1/1000 is in each figure above)"

#: The case across two endpoints for each hop, and the same case at one endpoint. Their difference is the hop.
HOPS = {HOP: ALONE, HOP_FEW: FEW, HOP_CHUNK: CHUNK, HOP_LARGE: LARGE, HOP_LARGE_ACK: LARGE_ACK}

#: Number of subscribers of each topic in the case ``MANY``.
SUBSCRIBERS = 20
#: In the case ``LATER``, endpoints forget a message after this many seconds.
BRIEF_S = 1
#: Forgetting takes three seconds on the endpoints' own clock, which runs at a quarter of the real speed. So it takes
#: this number of real seconds.
QUIET_S = 12.0

SETTINGS = (
    Setting(
        "alone",
        1,
        {},
        (
            Case(ALONE, publishing("alone", 1, ack=True), 600, 200),
            Case(CHUNK, publishing("chunk", 50), 1_000, 300),
            Case(CHUNK_ACK, publishing("acks", 50, ack=True), 1_000, 300),
            Case(FEW, publishing("few", 4), 400, 100),
            Case(LARGE, publishing("large", 200), 1_000, 200),
            Case(LARGE_ACK, publishing("large acks", 200, ack=True), 1_000, 200),
            Case(MANY, publishing("many", 50, subscribers=SUBSCRIBERS), 500, 200),
            Case(DUPLICATE, duplicates, 600, 100),
            Case(MISS, misses, 200, 50),
            Case(LISTEN, partial(commands, send=listen), 100, 50),
            Case(SUBSCRIBE, partial(commands, send=subscribe), 100, 50),
        ),
    ),
    Setting(
        "pair",
        2,
        {},
        (
            Case(HOP, publishing("hop", 1, ack=True), 400, 100),
            Case(HOP_FEW, publishing("few hops", 4), 400, 100),
            Case(HOP_CHUNK, publishing("hops", 50), 1_000, 200),
            Case(HOP_LARGE, publishing("large hops", 200), 1_000, 200),
            Case(HOP_LARGE_ACK, publishing("large hop acks", 200, ack=True), 1_000, 200),
        ),
    ),
    Setting(
        "brief",
        1,
        {"INGEBORG_DEDUP_TTL": str(BRIEF_S)},
        (Case(LATER, afterwards(publishing("later", 1, ack=True), QUIET_S), 2_000, 200, rests=True),),
    ),
    Setting(
        "history",
        1,
        {"INGEBORG_HISTORY": "memory", "INGEBORG_HISTORY_BYTES": str(64 << 20)},
        (Case(RECOVERY, recoveries, 1_000, 100),),
    ),
)
