"""Kafka as a system under load (thesis 6.2.4), through aiokafka. Each topic is a Kafka topic with one partition.

Owns: how topics map to Kafka's topics, and how Kafka's topics are created and removed. Must never: commit an offset, or
leave a topic behind that it can remove.

- **Consuming** uses ``assign``, without a group. In the thesis, each client has its own group, so that each client gets
  every message. A client with assigned partitions also gets every message, but needs no group coordinator, no
  heartbeats, no rebalances of groups with one member, and no commits. This is the fastest way to consume from Kafka. It
  is also fair, because the other systems keep no position for a client either. A client reads from the end, and knows
  the offset before ``subscribe`` returns. If retention removes messages before the client can read them, the client
  skips these messages, and they count as lost.
- **Topics** are created in batches at the first subscribe or publish, as a part of that call (Kafka itself would create
  topics on demand one by one). The process that created a topic deletes it. Retention is a minute, because a shorter
  retention would remove messages before a slow consumer has read them.
- **Publishing** uses ``acks=1``, because ``acks=0`` hides refusals. On one node, the acknowledgement costs almost
  nothing. The linger is 5 ms, the default of Kafka's own clients since 4.0. There is no compression, because a batch of
  one topic holds few messages. A bounded number of messages waits for acknowledgement.
- **Cost**: aiokafka requests all partitions of a client in each fetch, and visits each of them before and after the
  fetch. An assignment replaces the previous one. So changing one subscription costs in proportion to all subscriptions.
  With tens of thousands of subscriptions, the client becomes slow before the server does.
- **Losses** of the connection show because the adapter queries the cluster each second. aiokafka itself retries
  forever.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Collection, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerStoppedError, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import KafkaError, NoError, TopicAlreadyExistsError, for_code

from ingeborg.protocol.hashes import digest

from .base import BackendError, Connection, Counters, OnError, OnMessage
from .lifeline import Call, Lifeline, no_server

_log = logging.getLogger("loadgen.kafka")
# The generator's display should not show aiokafka's log. Whenever aiokafka logs an error, it also raises the error, or
# ``_watch`` finds it. A handler that is configured for the root logger still gets the log.
logging.getLogger("aiokafka").addHandler(logging.NullHandler())

#: Time limit for connecting. A server that takes longer cannot be measured.
_CONNECT_TIMEOUT_S = 30.0
#: Time limit for one step of a call: a batch of topics, their offsets, or room for more messages. Kafka can need five
#: seconds to make the files of 500 new topics on a slow disk.
_PROGRESS_TIMEOUT_S = 30.0
#: Time limit for each part of closing. A part closes a client or deletes a batch of topics. Kafka only marks topics for
#: deletion, and marks 2,000 in 0.1 s.
_CLOSE_TIMEOUT_S = 4.0
#: Seconds between two checks that the cluster answers. The adapter notices a loss within about two intervals.
_WATCH_INTERVAL_S = 1.0
#: Seconds between two checks that a new topic has a leader.
_LEADER_POLL_S = 0.02
#: The most topics that one request creates, looks up or deletes. A controller accepts at most 10,000 records at a time,
#: and a topic takes three records. There is a second reason for the limit. While Kafka still makes the files of new
#: topics, aiokafka repeats its request for the offsets of all these topics. With more topics, this request would be
#: larger.
_TOPIC_BATCH = 500
#: Kafka's `retention.ms`. A stalled consumer has to catch up within this time.
_TOPIC_SETTINGS = {"retention.ms": "60000"}
#: The most messages of a connection that wait for acknowledgement. A produce request with more messages is no faster.
_UNACKNOWLEDGED_MAX = 5_000
#: The linger in milliseconds, see the module's text.
_LINGER_MS = 5
#: The most bytes in the batch of one partition. For throughput, Kafka's documentation recommends 100,000 to 200,000.
_BATCH_BYTES = 131_072
#: How long the server may hold a fetch when there are no messages (default 500). The server handles the requests of a
#: connection in order, so a change of the subscriptions waits behind the fetch.
_FETCH_WAIT_MS = 100
#: The maximum number of records that are passed on before the event loop runs other work. They take about 10 ms.
_RECORDS_MAX = 1000
#: Maximum age of aiokafka's metadata. It is long, because nodes and leaders do not change in a run, and because the
#: cost of a query grows with the number of topics.
_METADATA_AGE_MS = 3_600_000

#: Characters to escape: those not allowed in Kafka's names, the escape character, and the dot, which becomes an
#: underscore in metrics.
_SPECIAL = re.compile(r"[^A-Za-z0-9-]")
_NAME_MAX = 249
_HASHED = "_h"  # not an escape, because an escape has digits and capital letters


def topic_name(run: str, topic: str) -> str:
    """Return the name of the Kafka topic for a topic of the run. Different topics get different names. A name is
    ``RUN_`` and the topic, with ``_XX`` for each byte that Kafka does not allow. If the name is longer than 249
    characters, the topic's 128-bit BLAKE2b hash replaces the topic in the name."""

    def escaped(match: re.Match[str]) -> str:
        return "".join(f"_{byte:02X}" for byte in match[0].encode())

    name = f"{run}_{_SPECIAL.sub(escaped, topic)}"
    if len(name) > _NAME_MAX:
        return f"{run}_{_HASHED}{digest(topic.encode()).hex()}"
    return name


class Kafka:
    """``urls``: ``kafka://HOST:PORT`` of servers of one cluster. ``run``: the beginning of the names of all topics."""

    deduplicates = False

    def __init__(self, urls: Sequence[str], run: str) -> None:
        self._servers = [urlsplit(url).netloc for url in urls]
        self._where = f"kafka://{','.join(self._servers)}"
        self._run = run
        self._admin: AIOKafkaAdminClient | None = None
        self._starting = asyncio.Lock()
        self._topics: _Topics
        self._watcher: asyncio.Task[None] | None = None
        self._lifelines: set[Lifeline] = set()

    async def connect(self, number: int, on_message: OnMessage, on_error: OnError) -> Connection:
        """See ``Backend``. The client opens two TCP connections to each node, for a producer and for a consumer."""
        lifeline = Lifeline(self._where, on_error)
        try:
            async with asyncio.timeout(_CONNECT_TIMEOUT_S):
                admin = await self._start_admin()
                connection = _Connection(self, f"{self._run}-{number}", self._topics, lifeline, on_message)
                try:
                    await connection.open()
                except BaseException:
                    await connection.close()
                    raise
        except (KafkaError, OSError) as error:
            raise no_server(self._where, "Kafka", "kafka", error) from error
        self._lifelines.add(lifeline)
        if self._watcher is None or self._watcher.done():
            self._watcher = asyncio.ensure_future(self._watch(admin))
        return connection

    @property
    def servers(self) -> list[str]:
        """Return each server's ``HOST:PORT``."""
        return self._servers

    @property
    def run(self) -> str:
        """Return the run's id."""
        return self._run

    def forget(self, lifeline: Lifeline) -> None:
        """Stop tracking a connection that is closed."""
        self._lifelines.discard(lifeline)

    async def _start_admin(self) -> AIOKafkaAdminClient:
        async with self._starting:
            if self._admin is None:
                admin = AIOKafkaAdminClient(
                    bootstrap_servers=self._servers,
                    client_id=f"{self._run}-admin",
                    metadata_max_age_ms=_METADATA_AGE_MS,
                )
                try:
                    await admin.start()
                except BaseException:
                    await admin.close()
                    raise
                self._admin, self._topics = admin, _Topics(admin)
            return self._admin

    async def _watch(self, admin: AIOKafkaAdminClient) -> None:
        """When the cluster does not answer, end all connections and return."""
        try:
            while True:
                await asyncio.sleep(_WATCH_INTERVAL_S)
                async with asyncio.timeout(_PROGRESS_TIMEOUT_S):
                    await admin.describe_topics([])
        except (KafkaError, OSError) as error:
            for lifeline in list(self._lifelines):
                lifeline.lose(str(error) or "it does not answer")

    async def counters(self) -> list[Counters]:
        """See ``Backend``. This system has no counters, because Kafka exposes its counters only over JMX."""
        return []

    async def close(self) -> None:
        """See ``Backend``. Delete the topics that this process created, and log how many could not be deleted."""
        if self._watcher is not None:
            self._watcher.cancel()
            await asyncio.wait([self._watcher])
        if self._admin is not None:
            admin, self._admin = self._admin, None
            await self._topics.delete()
            await _finished(admin.close())


class _Topics:
    """The topics that a process uses, under Kafka's names. The set only grows: each topic of the run is added once."""

    def __init__(self, admin: AIOKafkaAdminClient) -> None:
        self._admin = admin
        self._made: set[str] = set()
        self.known: set[str] = set()

    async def ensure(self, names: Collection[str], call: Call) -> None:
        """Create the topics that may not exist. Raises ``KafkaError`` or ``BackendError``."""
        missing = [name for name in dict.fromkeys(names) if name not in self.known]
        for start in range(0, len(missing), _TOPIC_BATCH):
            batch = missing[start : start + _TOPIC_BATCH]
            self._made.update(batch)  # the topics may exist even if no answer arrives
            response = await self._admin.create_topics([NewTopic(name, 1, 1, None, _TOPIC_SETTINGS) for name in batch])
            for name, code, text in response.topic_errors:
                error = for_code(code)
                if error is not NoError:
                    self._made.discard(name)
                    if error is not TopicAlreadyExistsError:
                        raise BackendError(_code(error()), f"Kafka refuses topic {name}: {text or error.__name__}")
            await self._wait_for_leaders(batch)
            self.known.update(batch)
            call.progress()

    async def _wait_for_leaders(self, names: list[str]) -> None:
        """Wait, because a client that requests a topic without a leader repeats the request without a pause."""
        while any(topic["error_code"] for topic in await self._admin.describe_topics(names)):  # noqa: ASYNC110
            await asyncio.sleep(_LEADER_POLL_S)

    async def delete(self) -> None:
        """Delete the topics that this process created. Each request is bounded in time. Raises nothing."""
        names = list(self._made)
        try:
            while names:
                async with asyncio.timeout(_CLOSE_TIMEOUT_S):
                    await self._admin.delete_topics(names[-_TOPIC_BATCH:])
                del names[-_TOPIC_BATCH:]
        except (KafkaError, OSError) as error:
            _log.warning("%d topics are left in Kafka (%s)", len(names), error or "no answer")
        self._made.clear()
        self.known.clear()


class _Connection:
    """One client: a consumer and a producer."""

    def __init__(self, backend: Kafka, name: str, topics: _Topics, lifeline: Lifeline, on_message: OnMessage) -> None:
        self._backend = backend
        self._run = backend.run
        self._topics = topics
        self._lifeline = lifeline
        self._on_message = on_message
        self._consumer = AIOKafkaConsumer(
            bootstrap_servers=backend.servers,
            client_id=name,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            check_crcs=False,  # for extreme performance; other adapters also trust TCP
            fetch_max_wait_ms=_FETCH_WAIT_MS,
            metadata_max_age_ms=_METADATA_AGE_MS,
        )
        self._producer = AIOKafkaProducer(
            bootstrap_servers=backend.servers,
            client_id=name,
            acks=1,
            linger_ms=_LINGER_MS,
            max_batch_size=_BATCH_BYTES,
            metadata_max_age_ms=_METADATA_AGE_MS,
        )
        self._subscribed: dict[TopicPartition, str] = {}
        self._offsets: dict[TopicPartition, int] = {}  # the next offset to read
        self._publishable: set[str] = set()  # topics whose leaders the producer knows
        self._unacknowledged = 0
        self._room = asyncio.Event()
        self._room.set()
        self._reader: asyncio.Task[None] | None = None

    async def open(self) -> None:
        await self._consumer.start()
        await self._producer.start()
        self._reader = asyncio.ensure_future(self._read())

    async def subscribe(self, topics: Sequence[str]) -> None:
        async with self._call("subscribe") as call:
            for start in range(0, len(topics), _TOPIC_BATCH):
                await self._subscribe_some(topics[start : start + _TOPIC_BATCH], call)

    async def _subscribe_some(self, topics: Sequence[str], call: Call) -> None:
        new = {TopicPartition(topic_name(self._run, topic), 0): topic for topic in topics}
        await self._topics.ensure([partition.topic for partition in new], call)
        self._subscribed.update(new)
        self._assign()
        await self._consumer.seek_to_end(*new)
        for partition in new:
            # The position is already known, except if a time-out of the library has expired. Then this call waits for
            # the position.
            self._offsets[partition] = await self._consumer.position(partition)
        call.progress()

    async def unsubscribe(self, topics: Sequence[str]) -> None:
        async with self._call("unsubscribe"):
            for topic in topics:
                partition = TopicPartition(topic_name(self._run, topic), 0)
                del self._subscribed[partition]
                del self._offsets[partition]
            if topics:
                self._assign()

    def _assign(self) -> None:
        """Read every subscription from its last position. The method does not wait, because a record that arrived
        during a wait would be read twice."""
        if not self._subscribed:
            self._consumer.unsubscribe()
            return
        self._consumer.assign(list(self._subscribed))
        for partition, offset in self._offsets.items():
            self._consumer.seek(partition, offset)

    async def _read(self) -> None:
        while True:
            try:
                found = await self._consumer.getmany(timeout_ms=1000, max_records=_RECORDS_MAX)
            except ConsumerStoppedError:
                return
            except KafkaError as error:
                self._lifeline.report(_code(error))
                await asyncio.sleep(_WATCH_INTERVAL_S)  # the next fetch is likely to fail the same way
                continue
            for partition, records in found.items():
                topic = self._subscribed[partition]
                self._offsets[partition] = records[-1].offset + 1
                for record in records:
                    self._on_message(topic, record.value.decode(errors="replace"))
            await asyncio.sleep(0)

    async def publish(self, messages: Sequence[tuple[str, str]]) -> None:
        async with self._call("publish") as call:
            named = [(topic_name(self._run, topic), payload.encode()) for topic, payload in messages]
            await self._find({name for name, _ in named} - self._publishable, call)
            for name, value in named:
                if not self._room.is_set():
                    await self._room.wait()
                    call.progress()
                acknowledgement = await self._producer.send(name, value, partition=0)
                self._unacknowledged += 1
                if self._unacknowledged >= _UNACKNOWLEDGED_MAX:
                    self._room.clear()
                acknowledgement.add_done_callback(self._acknowledged)

    async def _find(self, names: set[str], call: Call) -> None:
        """Let the producer learn the leaders of topics, with one request for all topics that the process knows. Without
        this call, the producer would send a request for each new topic, and each request would cover all topics that
        the producer knows."""
        if not names:
            return
        await self._topics.ensure(names, call)
        client = self._producer.client
        asked = client.set_topics(self._topics.known | names)
        while True:
            await asked
            if all(client.cluster.partitions_for_topic(name) for name in names):
                break
            await asyncio.sleep(_LEADER_POLL_S)
            asked = client.force_metadata_update()
        self._publishable |= names
        call.progress()

    def _acknowledged(self, acknowledgement: asyncio.Future[Any]) -> None:
        self._unacknowledged -= 1
        if self._unacknowledged <= _UNACKNOWLEDGED_MAX // 2:
            self._room.set()
        error = None if acknowledgement.cancelled() else acknowledgement.exception()
        if error is not None:
            self._lifeline.report(_code(error))

    @asynccontextmanager
    async def _call(self, what: str) -> AsyncIterator[Call]:
        async with self._lifeline.call(what, _PROGRESS_TIMEOUT_S) as call:
            try:
                yield call
            except KafkaError as error:
                raise BackendError(_code(error), f"{what}: {error}") from error

    async def close(self) -> None:
        if not self._lifeline.close():
            return
        self._on_message = _ignore
        self._backend.forget(self._lifeline)
        if self._reader is not None:
            self._reader.cancel()
            await asyncio.wait([self._reader])
        await asyncio.gather(self._stop_producer(), self._stop_consumer())

    # If the cluster answers, closing both is enough. Otherwise the producer waits for acknowledgements that never come.
    # A consumer cancels its own tasks, and these tasks then cancel the consumer. So tasks and sockets are left behind.
    # This code ends them through private names, because there are no public names.

    async def _stop_producer(self) -> None:
        if not await _finished(self._producer.stop()):
            await _finished(self._producer._sender.close())
            await _finished(self._producer.client.close())

    async def _stop_consumer(self) -> None:
        if not await _finished(self._consumer.stop()):
            await _finished(self._consumer._client.close())


async def _finished(closing: Coroutine[Any, Any, None]) -> bool:
    """Return whether ``closing`` finished in time. ``closing`` runs in a separate task, so that a cancellation inside
    does not cancel the caller."""
    task = asyncio.ensure_future(closing)
    if not (await asyncio.wait([task], timeout=_CLOSE_TIMEOUT_S))[0]:
        task.cancel()
        await asyncio.wait([task], timeout=_CLOSE_TIMEOUT_S)
    return task.done() and not task.cancelled() and task.exception() is None


def _code(error: BaseException) -> str:
    """Return the server's own name for a refusal (``topic_authorization_failed``), or the library's name for its
    error."""
    return str(getattr(error, "message", "") or type(error).__name__).lower()


def _ignore(topic: str, payload: str) -> None:
    """Drop a message that arrives after ``close``."""
