"""The deduplication layer of thesis 1.3.4, for systems that do not drop duplicates: its publishing side and processes.

Owns: writing publishes into the work queue, within limits; starting and ending the deduplicators. Must never: decide
which messages are duplicates, or touch any key of Redis except its own.

    publishers -> work queue (Redis) -> deduplicators (a cache in the same Redis, and a local one each) -> the system

The one process that coordinates a run uses `Layer`, and each process of the generator uses `Deduplicated`.
`deduplicator.py` describes the contents of Redis. The layer needs its own Redis, separate from any Redis under test.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from collections import deque
from collections.abc import Sequence
from itertools import islice
from typing import Any
from urllib.parse import urlsplit

from redis.exceptions import RedisError

from ..backends.base import Backend, BackendError, Connection, Counters, OnError, OnMessage
from .deduplicator import counts_key, entry, open_redis, seen_prefix

#: Publishers wait while the work queue has more than this number of messages. A deduplicator handles this number in
#: half a second. A longer queue would only delay messages.
QUEUE_MAX = 10_000
#: The maximum number of messages that a process holds before they are in the queue, and the maximum number of messages
#: in one write.
_HELD_MAX = 2_000
_PUSH_BATCH = 500
#: Seconds between two checks of a full queue. This is 1 % of the time that a deduplicator needs to handle a full queue.
_FULL_POLL_S = 0.005
#: If the layer handles no message for this long, it counts as stopped.
_PROGRESS_TIMEOUT_S = 30.0
_COUNTERS_TIMEOUT_S = 2.0
_CLOSE_TIMEOUT_S = 5.0
#: Time limit for starting all deduplicators, with their interpreters and connections, on a busy machine.
_START_TIMEOUT_S = 60.0
#: Time limit for a deduplicator to stop. A deduplicator notices the signal within half a second, and may still have to
#: publish a batch.
_STOP_TIMEOUT_S = 10.0
#: The most deduplicators of one layer. A machine gains nothing from more processes than it has cores.
PROCESSES_MAX = 64
#: The layer keeps this many bytes of a deduplicator's last output, for the message about its end.
_WORDS_BYTES = 2_000
#: Keys per SCAN and UNLINK, which remove keys that an earlier run with the same name left behind.
_CLEAR_BATCH = 1_000

_COUNTED = ("pushed", "published", "duplicates_dropped", "failed", "publish_waits")


class Deduplicated:
    """A backend that puts the layer in front of ``backend``. Publishes go into the work queue, and all other calls go
    to ``backend``.

    A publish is done when its messages are in a buffer, from which a task writes them to the queue. The task waits
    while the queue is longer than `QUEUE_MAX`. A publish waits while the buffer is full, and ``publish_waits`` counts
    such waits. ``on_error`` gets ``layer_lost`` once for each message that cannot be written.
    """

    deduplicates = True

    def __init__(self, backend: Backend, redis_url: str, queue: str) -> None:
        self._backend = backend
        self._feeder = _Feeder(redis_url, queue)

    async def connect(self, number: int, on_message: OnMessage, on_error: OnError) -> Connection:
        """See ``Backend``."""
        return _Connection(await self._backend.connect(number, on_message, on_error), self._feeder, on_error)

    async def counters(self) -> list[Counters]:
        """See ``Backend``. Return the system's counters, and the layer's counters as source ``layer``. Every process
        returns the counters of the whole layer. ``in_hand`` counts messages that deduplicators have taken but not
        finished. When no deduplicator runs any more, these messages are lost."""
        found, layer = await asyncio.gather(self._backend.counters(), self._feeder.counters())
        return found + layer

    async def close(self) -> None:
        """See ``Backend``. Write the remaining messages to the queue first."""
        await self._feeder.close()
        await self._backend.close()


class _Connection:
    def __init__(self, inner: Connection, feeder: _Feeder, on_error: OnError) -> None:
        self._inner = inner
        self._feeder = feeder
        self._on_error = on_error
        self._closed = False

    async def subscribe(self, topics: Sequence[str]) -> None:
        await self._inner.subscribe(topics)

    async def unsubscribe(self, topics: Sequence[str]) -> None:
        await self._inner.unsubscribe(topics)

    async def publish(self, messages: Sequence[tuple[str, str]]) -> None:
        if self._closed:
            raise BackendError("closed", "the connection is closed")
        await self._feeder.push([entry(topic, payload) for topic, payload in messages], self._tell)

    def _tell(self, code: str) -> None:
        if not self._closed:
            self._on_error(code)

    async def close(self) -> None:
        self._closed = True
        await self._inner.close()


class _Feeder:
    """Writes the publishes of one process to the work queue, many at a time, in order."""

    def __init__(self, redis_url: str, queue: str) -> None:
        self._where = _where(redis_url)
        self._queue = queue
        self._redis = open_redis(redis_url)
        self._held: deque[tuple[bytes, OnError]] = deque()
        self._waits = 0
        self._lost: BackendError | None = None
        self._news = asyncio.Event()  # set while messages are held
        self._room = asyncio.Condition()  # notified when messages are written, or all are lost
        self._writer: asyncio.Task[None] | None = None

    async def push(self, entries: list[bytes], on_error: OnError) -> None:
        """See ``Connection.publish``."""
        if self._writer is None:
            self._writer = asyncio.ensure_future(self._write_all())
        for start in range(0, len(entries), _PUSH_BATCH):
            if self._lost is None and len(self._held) >= _HELD_MAX:
                await self._wait_for_room()
            if self._lost is not None:
                raise BackendError(self._lost.code, str(self._lost))
            self._held.extend((message, on_error) for message in entries[start : start + _PUSH_BATCH])
            self._news.set()

    async def _wait_for_room(self) -> None:
        self._waits += 1
        try:
            async with asyncio.timeout(_PROGRESS_TIMEOUT_S), self._room:
                await self._room.wait_for(lambda: self._lost is not None or len(self._held) < _HELD_MAX)
        except TimeoutError:
            raise BackendError(
                "timeout",
                f"the deduplication layer ({self._where}) took nothing for {_PROGRESS_TIMEOUT_S:g} s: are its "
                "deduplicators alive?",
            ) from None

    async def _write_all(self) -> None:
        try:
            # `close` also cancels this task, but redis-py can lose a cancellation. Up to Python 3.11,
            # `asyncio.wait_for` loses a cancellation if the awaited call ends at the same instant.
            while self._lost is None:
                await self._news.wait()
                batch = [message for message, _ in islice(self._held, _PUSH_BATCH)]
                length = await self._write(batch)  # the batch stays in `_held` until it is written, see `close`
                for _ in batch:
                    self._held.popleft()
                if not self._held:
                    self._news.clear()
                async with self._room:
                    self._room.notify_all()
                while length > QUEUE_MAX and self._lost is None:
                    await asyncio.sleep(_FULL_POLL_S)
                    length = await self._redis.llen(self._queue)
        except (RedisError, OSError) as error:
            self._lost = BackendError("layer_lost", f"the deduplication layer's Redis ({self._where}): {error}")
            while self._held:  # including the batch under way, which Redis may have received
                self._held.popleft()[1]("layer_lost")
            async with self._room:
                self._room.notify_all()

    async def _write(self, entries: list[bytes]) -> int:
        """Append to the queue, and return its new length. Queue and counter change in one transaction, so that
        their difference is reliable."""
        waits, self._waits = self._waits, 0
        async with self._redis.pipeline(transaction=True) as pipe:
            pipe.rpush(self._queue, *entries)
            pipe.hincrby(counts_key(self._queue), "pushed", len(entries))
            if waits:
                pipe.hincrby(counts_key(self._queue), "publish_waits", waits)
            length: int = (await pipe.execute())[0]
        return length

    async def counters(self) -> list[Counters]:
        """Return the layer's counters, or an empty list if its Redis does not answer."""
        try:
            async with asyncio.timeout(_COUNTERS_TIMEOUT_S), self._redis.pipeline(transaction=True) as pipe:
                pipe.hgetall(counts_key(self._queue))
                pipe.llen(self._queue)
                told, queued = await pipe.execute()
        except (RedisError, OSError):  # also TimeoutError; the log has a gap, and `publish` reports the cause
            return []
        counts = {name: int(told.get(name.encode(), 0)) for name in _COUNTED}
        counts["publish_waits"] += self._waits
        done = counts["published"] + counts["duplicates_dropped"] + counts["failed"]
        values = {f"{name}_total": float(count) for name, count in counts.items()}
        values |= {"queued": float(queued), "in_hand": float(counts["pushed"] - queued - done)}
        return [Counters(time.monotonic_ns(), "layer", values)]

    async def close(self) -> None:
        """Write the remaining messages if the queue accepts them in time, and close. Messages that are not written
        never reach the subscribers, so they count as lost. Idempotent."""
        if self._writer is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_CLOSE_TIMEOUT_S), self._room:
                    await self._room.wait_for(lambda: self._lost is not None or not self._held)
            self._lost = self._lost or BackendError("closed", "the backend is closed")
            self._writer.cancel()
            await asyncio.wait([self._writer])
            self._writer = None
        with contextlib.suppress(RedisError, OSError):
            await self._redis.aclose()


class Layer:
    """The deduplicators of a run, as child processes, and their keys in Redis.

    ``system``, ``urls``, ``run``: as for ``open_backend``. ``queue``: the key of the work queue, which no other run may
    use. ``processes``: how many deduplicators, from 1. Only a single deduplicator keeps the order within a topic.
    """

    def __init__(
        self, redis_url: str, queue: str, *, system: str, urls: Sequence[str], run: str, ttl_s: float, processes: int
    ) -> None:
        if not 1 <= processes <= PROCESSES_MAX:
            raise ValueError(f"there have to be 1 to {PROCESSES_MAX} deduplicators, not {processes}")
        self._redis_url = redis_url
        self._queue = queue
        self._arguments = ["--redis", redis_url, "--queue", queue, "--system", system, "--run", run]
        self._arguments += ["--ttl-s", repr(ttl_s), *(part for url in urls for part in ("--url", url))]
        self._number = processes
        self._deduplicators: list[_Process] = []
        self._redis_pid: int | None = None

    @property
    def processes(self) -> dict[str, int]:
        """Return the pids, by name, of all processes of the layer on this machine: the deduplicators that have not
        ended, and its Redis if it runs here."""
        processes = {
            f"deduplicator-{number}": deduplicator.pid
            for number, deduplicator in enumerate(self._deduplicators)
            if not deduplicator.ended
        }
        return processes if self._redis_pid is None else processes | {"layer-redis": self._redis_pid}

    def failures(self) -> list[str]:
        """Describe the deduplicators that ended unexpectedly. Their current batches are lost. Call this method before
        `stop`."""
        return [deduplicator.words() for deduplicator in self._deduplicators if deduplicator.ended]

    async def start(self) -> None:
        """Start the deduplicators, and return when all take messages. If this raises ``BackendError``, no deduplicator
        runs."""
        try:
            async with asyncio.timeout(_START_TIMEOUT_S):
                await self._prepare_redis()
                for number in range(self._number):
                    self._deduplicators.append(await _Process.start([*self._arguments, "--number", str(number)]))
                await asyncio.gather(*(deduplicator.ready() for deduplicator in self._deduplicators))
        except TimeoutError:
            await self.stop()
            raise BackendError("timeout", f"the deduplicators were not ready within {_START_TIMEOUT_S:g} s") from None
        except BaseException:
            await self.stop()
            raise

    async def _prepare_redis(self) -> None:
        where = _where(self._redis_url)
        try:
            async with open_redis(self._redis_url) as redis:
                server = await redis.info("server")
                if int(server["redis_version"].partition(".")[0]) < 7:
                    raise BackendError(
                        "layer", f"{where} is Redis {server['redis_version']}; the deduplication layer needs 7.0"
                    )
                if urlsplit(self._redis_url).hostname in ("127.0.0.1", "localhost", "::1"):
                    self._redis_pid = server["process_id"]
                await _clear(redis, self._queue)
        except (RedisError, OSError) as error:
            raise BackendError(
                "connect", f"{where}: no Redis for the deduplication layer ({error}): start one there"
            ) from error

    async def stop(self) -> None:
        """Let the deduplicators finish their batches and end. Kill the deduplicators that do not end in time. Then
        remove the queue and its content. The call is idempotent, is bounded in time, and raises nothing."""
        await asyncio.gather(*(deduplicator.stop() for deduplicator in self._deduplicators))
        if self._deduplicators:
            self._deduplicators = []
            # If Redis has ended, the keys are gone too. If Redis hangs, all keys expire, except one list and one hash.
            with contextlib.suppress(RedisError, OSError):
                async with asyncio.timeout(_STOP_TIMEOUT_S), open_redis(self._redis_url) as redis:
                    await _clear(redis, self._queue)


class _Process:
    """One process ``python -m ingeborg.loadgen.layer.deduplicator``, with pipes to stdin, stdout and stderr."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._words = b""
        assert process.stdout is not None
        assert process.stderr is not None
        self._stdout = process.stdout
        self._listener = asyncio.ensure_future(self._listen(process.stderr))

    @classmethod
    async def start(cls, arguments: list[str]) -> _Process:
        pipe = asyncio.subprocess.PIPE
        command = [sys.executable, "-m", "ingeborg.loadgen.layer.deduplicator", *arguments]
        # The process gets its own session. So a signal to the whole group (Ctrl-C) reaches only the coordinator, which
        # then ends this process.
        return cls(
            await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True)
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def ended(self) -> bool:
        return self._process.returncode is not None

    async def ready(self) -> None:
        """Wait for the line that the process prints when it is ready. Raises ``BackendError`` if it has ended
        instead."""
        if not await self._stdout.readline():
            await self._process.wait()
            await self._listener
            raise BackendError("layer", self.words())

    def words(self) -> str:
        """Describe how the process ended."""
        words = self._words.decode(errors="replace").strip()
        return f"a deduplicator ended with status {self._process.returncode}: {words or 'it said nothing'}"

    async def _listen(self, stderr: asyncio.StreamReader) -> None:
        while some := await stderr.read(_WORDS_BYTES):
            self._words = (self._words + some)[-_WORDS_BYTES:]

    async def stop(self) -> None:
        if not self.ended:
            with contextlib.suppress(ProcessLookupError):  # it has just ended
                self._process.terminate()
            try:
                await asyncio.wait_for(self._process.wait(), _STOP_TIMEOUT_S)
            except TimeoutError:
                self._process.kill()
                await self._process.wait()
        await self._listener


async def _clear(redis: Any, queue: str) -> None:
    """Remove the queue, its counters and its cache, and nothing else."""
    await redis.unlink(queue, counts_key(queue))
    keys: list[bytes] = []
    async for key in redis.scan_iter(match=seen_prefix(queue) + b"*", count=_CLEAR_BATCH):
        keys.append(key)
        if len(keys) == _CLEAR_BATCH:
            await redis.unlink(*keys)
            keys = []
    if keys:
        await redis.unlink(*keys)


def _where(url: str) -> str:
    """Return the address without a password."""
    return f"redis://{urlsplit(url).netloc.rpartition('@')[2]}"
