"""One deduplicator of the deduplication layer (thesis 1.3.4), and the process in which it runs.

Owns: the contents of the work queue and of the shared cache, and the decision which messages are new. Must never: know
which system it publishes to, or keep a message after its batch is done.

    python -m ingeborg.loadgen.layer.deduplicator --redis redis://… --queue NAME --system rabbitmq --url amqp://… --run
    ID

One Redis holds all data of a layer. It has to be 7.0 or newer, for BLMPOP, and for SET with NX and GET. Its keys:

- ``NAME``: the work queue, a list of ``topic NUL payload`` (topics have no NUL). It is the thesis' load-balancing
  queue: every deduplicator takes up to `BATCH` messages at a time. So two deduplicators can hold messages of one topic
  at the same time, and publish them in the wrong order. With more than one deduplicator, the layer keeps no order. (If
  each deduplicator had its own queue, and a hash of the topic chose the queue, the layer would keep the order and need
  no shared cache. But that would not be the system of the thesis.)
- ``NAME:seen:HASH``: the shared cache, with one key per message, which expires after the time-to-live. The hash covers
  topic and payload, as in the broker. The value is the time of expiry. From this value, a deduplicator learns which
  messages another deduplicator has seen, and can remember them locally until they expire. The time-to-live begins when
  a message is seen for the first time. In the broker's own table, it begins again each time the message is seen.
- ``NAME:counts``: a hash of counters. ``publishing.py`` names them.

A killed deduplicator loses its current batch. The lost messages are only counted in ``pushed``. If the system fails, a
deduplicator counts its batch as failed and removes the messages from the shared cache, so that repetitions of these
messages can pass. Then the deduplicator exits.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import uvloop
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from ingeborg.protocol.bounded import BoundedMap
from ingeborg.protocol.hashes import digest

from ..backends import SYSTEMS, check_urls, open_backend
from ..backends.base import BackendError, Connection

#: The most messages that a deduplicator takes at a time. These messages share round trips. If the deduplicator crashes,
#: only these messages are lost.
BATCH = 500
#: The most entries of the local cache. At 180 bytes each, they take 36 MB. At 10,000 new messages per second, they
#: cover the last 20 s. The shared cache still has older entries.
SEEN_MAX = 200_000
#: How long a deduplicator waits at an empty queue before it checks whether it should stop.
_WAIT_S = 0.5
#: A Redis that takes longer than this for a command counts as failed. The limit has to be much greater than `_WAIT_S`.
_REDIS_TIMEOUT_S = 10.0
#: The numbers of clients begin at 0, and the numbers of deduplicators begin at this number. So the names that are made
#: from the numbers do not clash.
_FIRST_NUMBER = 1_000_000


def open_redis(url: str) -> Redis:
    """Return a client that fails instead of retrying, because a repeated push or pop would double or lose messages."""
    client: Redis = Redis.from_url(
        url,
        socket_timeout=_REDIS_TIMEOUT_S,
        socket_connect_timeout=_REDIS_TIMEOUT_S,
        retry=Retry(NoBackoff(), 0),
    )
    return client


def entry(topic: str, payload: str) -> bytes:
    """Return the entry of a message in the work queue."""
    return f"{topic}\0{payload}".encode()


def counts_key(queue: str) -> str:
    """Return the key of the hash of counters."""
    return f"{queue}:counts"


def seen_prefix(queue: str) -> bytes:
    """Return the prefix of the keys of the shared cache."""
    return f"{queue}:seen:".encode()


class Seen:
    """The local cache: up to ``keys_max`` hashes, and the time at which each hash expires (in milliseconds, of any
    clock)."""

    def __init__(self, keys_max: int = SEEN_MAX) -> None:
        self._expiry_ms: BoundedMap[bytes, int] = BoundedMap(keys_max)

    def __len__(self) -> int:
        return len(self._expiry_ms)

    def knows(self, key: bytes, now_ms: int) -> bool:
        """Return whether the cache has the key and the key has not expired."""
        expiry_ms = self._expiry_ms.get(key)
        if expiry_ms is None:
            return False
        if expiry_ms <= now_ms:
            self._expiry_ms.discard(key)
            return False
        return True

    def add(self, key: bytes, expiry_ms: int) -> None:
        """Add a key. If the cache is full, drop the oldest key."""
        self._expiry_ms.put(key, expiry_ms)


class Deduplicator:
    """Takes batches from the queue and publishes the new messages over ``connection``. ``now_ms`` returns Unix time in
    milliseconds, because other processes read the times in the shared cache."""

    def __init__(
        self, redis: Redis, queue: str, connection: Connection, ttl_s: float, now_ms: Callable[[], int]
    ) -> None:
        self._redis = redis
        self._queue = queue
        self._connection = connection
        self._ttl_ms = max(1, round(ttl_s * 1000))
        self._now_ms = now_ms
        self._seen = Seen()
        self._uncounted: dict[str, int] = {}

    async def step(self, wait_s: float = _WAIT_S) -> int:
        """Handle one batch.

        Returns:
            The size of the batch, or 0 if nothing arrived within ``wait_s``.

        Raises:
            RedisError: Redis failed.
            BackendError: the batch may not have been published.
        """
        entries = await self._take(wait_s)
        if entries:
            fresh = await self._sift(entries)
            self._count("duplicates_dropped", len(entries) - len(fresh))
            await self._publish(fresh)
        return len(entries)

    async def settle(self) -> None:
        """Write the counts since the last step to Redis."""
        if self._uncounted:
            async with self._redis.pipeline(transaction=False) as pipe:
                self._write_counts(pipe)
                await pipe.execute()

    async def _take(self, wait_s: float) -> list[bytes]:
        # A single round trip sends the counts of the last batch and waits for the next batch.
        async with self._redis.pipeline(transaction=False) as pipe:
            self._write_counts(pipe)
            pipe.blmpop(wait_s, 1, self._queue, direction="LEFT", count=BATCH)
            taken = (await pipe.execute())[-1]
        return taken[1] if taken else []

    async def _sift(self, entries: list[bytes]) -> dict[bytes, bytes]:
        """Return the entries that no deduplicator has seen, by key and in order. From now on, these entries count as
        seen."""
        prefix, now_ms = seen_prefix(self._queue), self._now_ms()
        asked: dict[bytes, bytes] = {}
        for message in entries:
            key = prefix + digest(message)
            if key not in asked and not self._seen.knows(key, now_ms):
                asked[key] = message
        if not asked:
            return {}
        # This time is read before Redis sets the key, so that the local cache does not keep the key longer than Redis
        # does.
        expiry_ms = now_ms + self._ttl_ms
        async with self._redis.pipeline(transaction=False) as pipe:
            for key in asked:
                pipe.set(key, expiry_ms, nx=True, px=self._ttl_ms, get=True)
            earlier = await pipe.execute()
        fresh: dict[bytes, bytes] = {}
        for (key, message), seen_until in zip(asked.items(), earlier, strict=True):
            if seen_until is None:
                fresh[key] = message
                self._seen.add(key, expiry_ms)
            else:
                self._seen.add(key, int(seen_until))
        return fresh

    async def _publish(self, fresh: dict[bytes, bytes]) -> None:
        messages = []
        for message in fresh.values():
            topic, _, payload = message.decode().partition("\0")
            messages.append((topic, payload))
        try:
            if messages:
                await self._connection.publish(messages)
        except BackendError:
            self._count("failed", len(fresh))
            await self._redis.unlink(*fresh)
            raise
        self._count("published", len(fresh))

    def _count(self, name: str, amount: int) -> None:
        if amount:
            self._uncounted[name] = self._uncounted.get(name, 0) + amount

    def _write_counts(self, pipe: Any) -> None:
        for name, amount in self._uncounted.items():
            pipe.hincrby(counts_key(self._queue), name, amount)
        self._uncounted.clear()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run until SIGTERM or the end of standard input. Return 0, or print a message and return 1 on a failure."""
    options = _options(arguments)
    try:
        uvloop.run(_run(options))
    except (BackendError, RedisError, OSError) as error:
        print(f"deduplicator {options.number}: {error}", file=sys.stderr)
        return 1
    return 0


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m ingeborg.loadgen.layer.deduplicator",
        description="Run one deduplicator in front of a system that does not drop duplicates. `loadgen` starts as many "
        "as its option --deduplicators says. Standard input has to be a pipe or a terminal. When it ends, the "
        "deduplicator ends.",
    )
    parser.add_argument("--redis", required=True, metavar="URL", help="the Redis that the layer shares")
    parser.add_argument("--queue", required=True, metavar="NAME", help="the key of the work queue in that Redis")
    parser.add_argument("--system", required=True, choices=sorted(SYSTEMS), help="the system that gets the messages")
    parser.add_argument(
        "--url", required=True, action="append", help="a server of the system; repeat the option for more"
    )
    parser.add_argument("--run", required=True, metavar="ID", help="the id of the run, the same as for the subscribers")
    parser.add_argument("--ttl-s", type=float, default=10.0, metavar="S", help="how long a message counts as seen")
    parser.add_argument("--number", type=int, default=0, metavar="N", help="number of this deduplicator in the run")
    options = parser.parse_args(arguments)
    try:
        check_urls(options.system, options.url)
    except ValueError as error:
        parser.error(str(error))
    if options.ttl_s <= 0:
        parser.error("--ttl-s has to be more than 0")
    return options


async def _run(options: argparse.Namespace) -> None:
    stop = asyncio.Event()
    lost: list[str] = []

    def on_error(code: str) -> None:
        print(f"deduplicator {options.number}: {code}", file=sys.stderr, flush=True)
        if code == "connection_lost":
            lost.append(code)
            stop.set()

    _watch(stop)
    async with contextlib.AsyncExitStack() as stack:
        redis = open_redis(options.redis)
        stack.push_async_callback(redis.aclose)
        backend = open_backend(options.system, options.url, options.run)
        stack.push_async_callback(backend.close)
        connection = await backend.connect(_FIRST_NUMBER + options.number, _ignore, on_error)
        stack.push_async_callback(connection.close)
        await redis.ping()
        deduplicator = Deduplicator(redis, options.queue, connection, options.ttl_s, _unix_ms)
        print(json.dumps({"ready": True, "pid": os.getpid()}), flush=True)
        try:
            while not stop.is_set():
                await deduplicator.step()
        finally:
            await deduplicator.settle()
    if lost:
        raise BackendError("connection_lost", f"{options.system}: the connection was lost")


def _unix_ms() -> int:
    return time.time_ns() // 1_000_000


def _watch(stop: asyncio.Event) -> None:
    """Set ``stop`` on SIGTERM, and when the parent has ended."""
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    # Ignore SIGINT, because the parent decides when this process ends.
    loop.add_signal_handler(signal.SIGINT, lambda: None)
    stdin = sys.stdin.fileno()

    def read() -> None:
        if not os.read(stdin, 4096):
            loop.remove_reader(stdin)
            stop.set()

    loop.add_reader(stdin, read)


def _ignore(topic: str, payload: str) -> None:
    """Ignore a message. No message arrives, because a deduplicator subscribes to nothing."""


if __name__ == "__main__":
    sys.exit(main())
