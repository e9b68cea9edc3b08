"""Clients for the cluster tests: one that remembers everything it received, and a stream of numbered messages.

Owns: which messages arrived, how often, and which were acknowledged. Must never: decide what is right.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any, Self

from ingeborg.protocol.client import Client

Message = tuple[str | None, Any]
"""A notification: topic and payload (a number or a text here, so that it can be counted)."""

#: Time limit for a due message on a busy machine, in seconds.
HEARD_S = 60.0


class Ear:
    """A listening client that counts each message it receives. Use as ``async with Ear(urls, "id") as ear``."""

    def __init__(self, urls: str | Sequence[str], client_id: str, *, listen: bool = True, **options: Any) -> None:
        options.setdefault("timeout_s", HEARD_S)
        self.client = Client(urls, client_id, listen=listen, on_notification=self._note, **options)
        self.heard: Counter[Message] = Counter()
        self.last_at = 0.0  # when the last one came, on the monotonic clock
        self._news = asyncio.Event()

    async def __aenter__(self) -> Self:
        await self.client.connect()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.client.close()

    def _note(self, key: str | None, payload: Any) -> None:
        self.heard[key, payload] += 1
        self.last_at = time.monotonic()
        self._news.set()

    async def until(self, condition: Callable[[], bool], what: str, within_s: float = HEARD_S) -> None:
        """Wait until the condition holds; check it whenever a message arrives."""
        try:
            async with asyncio.timeout(within_s):
                while not condition():
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            raise AssertionError(f"{self.client.client_id} did not hear within {within_s:g} s: {what}") from None

    async def hears(self, messages: Iterable[Message], within_s: float = HEARD_S) -> None:
        """Wait until all of these have come, in any order, with or without others."""
        missing = set(messages) - self.heard.keys()

        def all_here() -> bool:
            missing.difference_update(self.heard.keys())
            return not missing

        try:
            await self.until(all_here, "", within_s)
        except AssertionError:
            some = sorted(missing, key=str)[:5]
            raise AssertionError(
                f"{self.client.client_id} lacks {len(missing)} messages after {within_s:g} s, such as {some}"
            ) from None

    async def all_read(self) -> None:
        """Wait until everything in its outbox by now has arrived: a reply comes after it (SPEC section 1)."""
        async for _ in self.client.subscriptions(limit=1):
            break

    async def back(self) -> None:
        """Wait until a new connection has replaced the lost one: a command waits for the next one."""
        await self.all_read()
        assert self.client.reconnects >= 1

    async def topics(self) -> set[str]:
        """Return the topics to which it subscribes, from the broker."""
        return {each.topic async for each in self.client.subscriptions()}


async def each(count: int, action: Callable[[int], Awaitable[Any]], *, workers: int = 32) -> list[Any]:
    """Run ``action(0)`` to ``action(count - 1)``, this many at a time; return the results in order."""
    numbers = iter(range(count))
    results: list[Any] = [None] * count

    async def work() -> None:
        for number in numbers:
            results[number] = await action(number)

    async with asyncio.TaskGroup() as group:
        for _ in range(min(workers, count)):
            group.create_task(work())
    return results


class Stream:
    """Publishes 0, 1, 2, … to the topics in turn, at a steady pace, whether or not the answers come.

    Every second one goes without ``dedup``: exact delivery must not depend on dropped duplicates.
    """

    def __init__(self, client: Client, topics: Sequence[str], interval_s: float) -> None:
        self.sent = 0
        self.acknowledged: list[Message] = []
        self.failed: list[tuple[Message, Exception]] = []
        self._client = client
        self._topics = topics
        self._interval_s = interval_s
        self._stop = asyncio.Event()
        self._progress = asyncio.Event()

    async def run(self) -> None:
        """Publish until ``stop``; end when every answer has come."""
        began = time.monotonic()
        async with asyncio.TaskGroup() as group:
            while not self._stop.is_set():
                group.create_task(self._publish(self.sent))
                self.sent += 1
                # By the clock, so that a slow turn does not make the stream thinner.
                pause_s = began + self.sent * self._interval_s - time.monotonic()
                await asyncio.sleep(max(0.0, pause_s))

    async def _publish(self, number: int) -> None:
        message = (self._topics[number % len(self._topics)], number)
        try:
            duplicate = await self._client.publish(*message, ack=True, dedup=number % 2 == 0)
            assert not duplicate, message
        except Exception as error:
            self.failed.append((message, error))
        else:
            self.acknowledged.append(message)
        self._progress.set()

    def stop(self) -> None:
        """Publish no more."""
        self._stop.set()

    async def goes_on(self, count: int, within_s: float = HEARD_S) -> None:
        """Wait until this many more than now have been acknowledged."""
        enough = len(self.acknowledged) + count
        async with asyncio.timeout(within_s):
            while len(self.acknowledged) < enough:
                self._progress.clear()
                await self._progress.wait()


@asynccontextmanager
async def streaming(client: Client, topics: Sequence[str], interval_s: float = 0.01) -> AsyncIterator[Stream]:
    """A stream that runs within the block; afterwards every answer has come. ``failed`` has the failures."""
    stream = Stream(client, topics, interval_s)
    async with asyncio.TaskGroup() as group:
        group.create_task(stream.run())
        try:
            yield stream
        finally:
            stream.stop()
    assert len(stream.acknowledged) + len(stream.failed) == stream.sent
