"""One deduplicator of the layer of thesis 1.3.4, and the process that it runs in.

Owns: the contents of the work queue and of the shared cache, and which messages are new. Must never: know which system
it publishes to, or keep a message longer than its batch.

    python -m ingeborg.loadgen.layer.deduplicator --redis redis://… --queue NAME --system rabbitmq --url amqp://… --run
    ID

One Redis holds everything of a layer (7.0 or newer: BLMPOP, and SET with NX and GET):

- ``NAME``: the work queue, a list of ``topic NUL payload`` (topics have no NUL). Every deduplicator takes from it, up
  to `BATCH` messages at a time: the thesis' load-balancing queue. So two deduplicators can hold messages of one topic
  at once, and publish them in the other order: with more than one deduplicator the layer keeps no order. (A queue for
  each, chosen by a hash of the topic, would keep it and make the shared cache needless; but that is another system.)
- ``NAME:seen:HASH``: the shared cache, one key per message, for the time-to-live. The hash covers topic and payload, as
  in the broker. The value is its expiry, so that a deduplicator can remember locally what another one has seen, and no
  longer. The time runs from the first sighting; in the broker's own table it runs from the last.
- ``NAME:counts``: a hash of counters, by the names of `Counts`.

A killed deduplicator loses the batch in its hand: those messages are in no counter except ``pushed``. If its system
fails, a deduplicator removes its batch from the shared cache, so that repetitions of these messages can pass. Then it
counts the batch as failed, and exits.
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

#: Messages taken at once: they share the round trips, and a crash loses no more.
BATCH = 500
#: Entries of the local cache: 180 bytes each, 36 MB; at 10,000 new messages per second the last 20 s. The shared cache
#: still has what this one forgets.
SEEN_MAX = 200_000
#: How long it waits at an empty queue before it checks whether it should stop.
_WAIT_S = 0.5
#: A Redis that takes longer for a command has stopped; well above `_WAIT_S`.
_REDIS_TIMEOUT_S = 10.0
#: Clients of the run are numbered from 0; deduplicators from here, so that names made from numbers do not clash.
_FIRST_NUMBER = 1_000_000


def open_redis(url: str) -> Redis:
    """Return a client that fails instead of retrying: a repeated push or pop would double or lose messages."""
    client: Redis = Redis.from_url(
        url,
        socket_timeout=_REDIS_TIMEOUT_S,
        socket_connect_timeout=_REDIS_TIMEOUT_S,
        retry=Retry(NoBackoff(), 0),
    )
    return client


def entry(topic: str, payload: str) -> bytes:
    """Return a message as it is in the work queue."""
    return f"{topic}\0{payload}".encode()


def counts_key(queue: str) -> str:
    """Return the key of the hash of counters."""
    return f"{queue}:counts"


def seen_prefix(queue: str) -> bytes:
    """Return the prefix of the keys of the shared cache."""
    return f"{queue}:seen:".encode()


class Seen:
    """The local cache: hashes and when they expire (milliseconds of any clock), at most ``keys_max``."""

    def __init__(self, keys_max: int = SEEN_MAX) -> None:
        self._expiry_ms: BoundedMap[bytes, int] = BoundedMap(keys_max)

    def __len__(self) -> int:
        return len(self._expiry_ms)

    def knows(self, key: bytes, now_ms: int) -> bool:
        """Return whether the key is here and has not expired."""
        expiry_ms = self._expiry_ms.get(key)
        if expiry_ms is None:
            return False
        if expiry_ms <= now_ms:
            self._expiry_ms.discard(key)
            return False
        return True

    def add(self, key: bytes, expiry_ms: int) -> None:
        """Add a key, in place of the oldest if the cache is full."""
        self._expiry_ms.put(key, expiry_ms)


class Deduplicator:
    """Takes batches from the queue and publishes the new messages over ``connection``. ``now_ms``: Unix time in
    milliseconds (other processes read the value of a shared key)."""

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
            Its size: 0 if nothing arrived within ``wait_s``.

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
        # Sends the counts of the last batch ahead of the wait, in the same round trip.
        async with self._redis.pipeline(transaction=False) as pipe:
            self._write_counts(pipe)
            pipe.blmpop(wait_s, 1, self._queue, direction="LEFT", count=BATCH)
            taken = (await pipe.execute())[-1]
        return taken[1] if taken else []

    async def _sift(self, entries: list[bytes]) -> dict[bytes, bytes]:
        """Return the entries that no deduplicator has seen, by key, in order; from now on they count as seen."""
        prefix, now_ms = seen_prefix(self._queue), self._now_ms()
        asked: dict[bytes, bytes] = {}
        for message in entries:
            key = prefix + digest(message)
            if key not in asked and not self._seen.knows(key, now_ms):
                asked[key] = message
        if not asked:
            return {}
        # Read before Redis starts its clock, so that this cache keeps nothing longer than Redis does.
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
    """Run until SIGTERM or the end of standard input; return 0, or 1 with a message if it cannot continue."""
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
        description="One deduplicator in front of a system that does not drop duplicates. `loadgen` starts the number "
        "that it is given. Standard input has to be a pipe or a terminal; its end ends the deduplicator.",
    )
    parser.add_argument("--redis", required=True, metavar="URL", help="the Redis that the layer shares")
    parser.add_argument("--queue", required=True, metavar="NAME", help="the work queue's key there")
    parser.add_argument("--system", required=True, choices=sorted(SYSTEMS), help="the system that gets the messages")
    parser.add_argument("--url", required=True, action="append", help="its server; repeat it for several servers")
    parser.add_argument("--run", required=True, metavar="ID", help="the run's id, the same as the subscribers'")
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
    """Set ``stop`` on SIGTERM, and when the parent is gone."""
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    # The parent decides when this process ends.
    loop.add_signal_handler(signal.SIGINT, lambda: None)
    stdin = sys.stdin.fileno()

    def read() -> None:
        if not os.read(stdin, 4096):
            loop.remove_reader(stdin)
            stop.set()

    loop.add_reader(stdin, read)


def _ignore(topic: str, payload: str) -> None:
    """Ignore messages: none arrive, since a deduplicator subscribes to nothing."""


if __name__ == "__main__":
    sys.exit(main())
