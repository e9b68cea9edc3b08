"""The monitor's queries to a cluster: its partitions, their offsets, their sizes, and a group's committed offsets.

Owns: the requests, and parsing their answers. Must never: change anything in the cluster, or compute a speed.

Each call ends within the time limit. It sends one request to each broker, for all partitions that the broker leads. If
a partition has no leader, or its leader has just changed, its values are unknown and are missing from the result.

aiokafka has no request for log sizes. This module builds such a request from aiokafka's parts, in version 1, which
Kafka 2.0 to 4 support. If a broker denies a request of this version, its answer contains no directories.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

from aiokafka import errors
from aiokafka.client import AIOKafkaClient, CoordinationType
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.commit import OffsetFetchRequest
from aiokafka.protocol.metadata import MetadataRequest
from aiokafka.protocol.offset import OffsetRequest, OffsetResetStrategy
from aiokafka.protocol.types import Array, Boolean, Int16, Int32, Int64, Schema, String

from ..model import Queue
from .connecting import KafkaProblem, asking

#: Seconds between two requests to a coordinator that is starting.
_COORDINATOR_POLL_S: Final = 0.1
#: The replica id in a request. This value says that the client is not a replica.
_NO_REPLICA: Final = -1
_READ_UNCOMMITTED: Final = 0

#: Temporary errors of one partition: it was just deleted, its leader has just changed, or its disk has failed. The next
#: request normally succeeds, because it goes to the partitions' new leaders.
_PASSING: Final = frozenset(
    error.errno
    for error in (
        errors.UnknownTopicOrPartitionError,
        errors.LeaderNotAvailableError,
        errors.NotLeaderForPartitionError,
        errors.ReplicaNotAvailableError,
        errors.KafkaStorageError,
    )
)
#: Errors after which the group's coordinator must be looked up again, because it has changed or is about to change.
MOVING: Final = (
    errors.GroupLoadInProgressError,
    errors.GroupCoordinatorNotAvailableError,
    errors.NotCoordinatorForGroupError,
    errors.KafkaConnectionError,
    errors.NodeNotReadyError,
    errors.RequestTimedOutError,
)


class DescribeLogDirsResponse_v1(Response):  # type: ignore[misc]  # aiokafka has no types
    """The answer to ``DescribeLogDirsRequest_v1``. It has a row for each directory of the broker. Each of these rows
    contains a row for each replica in the directory."""

    API_KEY = 35
    API_VERSION = 1
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        (
            "results",
            Array(
                ("error_code", Int16),
                ("log_dir", String("utf-8")),
                (
                    "topics",
                    Array(
                        ("topic", String("utf-8")),
                        (
                            "partitions",
                            Array(("partition", Int32), ("size", Int64), ("offset_lag", Int64), ("is_future", Boolean)),
                        ),
                    ),
                ),
            ),
        ),
    )


class DescribeLogDirsRequest_v1(RequestStruct):  # type: ignore[misc]
    """Version 1 of the request for the log sizes of some partitions."""

    API_KEY = 35
    API_VERSION = 1
    RESPONSE_TYPE = DescribeLogDirsResponse_v1
    SCHEMA = Schema(("topics", Array(("topic", String("utf-8")), ("partitions", Array(Int32)))))


class DescribeLogDirsRequest(Request[DescribeLogDirsRequest_v1]):  # type: ignore[misc]
    """A request for log sizes. ``topics``: the names of the topics, each with its partitions."""

    API_KEY = 35

    def __init__(self, topics: list[tuple[str, list[int]]]) -> None:
        self._topics = topics

    def build(self, request_struct_class: type[DescribeLogDirsRequest_v1]) -> DescribeLogDirsRequest_v1:
        """See ``Request``."""
        return request_struct_class(self._topics)


class Logs:
    """Queries a cluster. ``client``: a connected client. ``servers``, ``user``: for error texts. The user ``""`` is
    anonymous."""

    def __init__(self, client: AIOKafkaClient, servers: str, timeout_s: float, user: str = "") -> None:
        self._client = client
        self._servers = servers
        self._timeout_s = timeout_s
        self._user = user
        self._leaders: dict[Queue, int] = {}
        self._coordinators: dict[str, int] = {}

    async def partitions(self, topics: Collection[str]) -> dict[str, int | None]:
        """Return the number of partitions of each topic, or ``None`` for a topic that does not exist. Call this method
        before the other methods, because it also updates the leaders to which they send requests. Raises
        ``KafkaProblem``."""
        client = self._client
        async with asking("cannot read the topics", self._servers, self._timeout_s):
            # Servers may be configured to create topics on request, which must not happen here.
            request = MetadataRequest(list(topics), allow_auto_topic_creation=False)
            answer = await client.send(client.get_random_node(), request)
            found: dict[str, int | None] = {}
            leaders: dict[Queue, int] = {}
            for code, topic, *_, rows in answer.topics:
                error = errors.for_code(code)
                if error in (errors.UnknownTopicOrPartitionError, errors.InvalidTopicError):
                    found[topic] = None
                    continue
                if error is errors.TopicAuthorizationFailedError:
                    raise self._not_granted(f"cannot read topic {topic}", "DESCRIBE", f"--topic {topic}")
                if error is not errors.NoError:
                    raise error(topic)
                found[topic] = len(rows)
                for _, partition, leader, *_ in rows:
                    if leader >= 0:
                        leaders[Queue(topic, partition)] = leader
            places = {node: (host, port) for node, host, port, *_ in answer.brokers}
            if any(places.get(node) != self._place(node) for node in set(leaders.values())):
                await client.force_metadata_update()
        self._leaders = leaders
        return found

    def _place(self, node: int) -> tuple[str, int] | None:
        broker = self._client.cluster.broker_metadata(node)
        return None if broker is None else (broker.host, broker.port)

    async def begin_offsets(self, queues: Iterable[Queue]) -> dict[Queue, int]:
        """Return the offset of each partition's first record, or the offset of its next record if the partition is
        empty. Raises ``KafkaProblem``."""
        return await self._offsets(queues, OffsetResetStrategy.EARLIEST)

    async def end_offsets(self, queues: Iterable[Queue]) -> dict[Queue, int]:
        """Return for each partition the offset after the last record that all replicas have. Raises
        ``KafkaProblem``."""
        return await self._offsets(queues, OffsetResetStrategy.LATEST)

    async def _offsets(self, queues: Iterable[Queue], moment: int) -> dict[Queue, int]:
        requests = {
            node: OffsetRequest(
                _NO_REPLICA,
                _READ_UNCOMMITTED,
                [(topic, [(number, moment) for number in numbers]) for topic, numbers in topics],
            )
            for node, topics in self._by_leader(queues).items()
        }
        found = {}
        what = "cannot read the offsets of partitions"
        async with asking(what, self._servers, self._timeout_s):
            for answer in await self._ask(requests):
                for topic, rows in answer.topics:
                    for partition, code, _, offset in rows:
                        if code == errors.TopicAuthorizationFailedError.errno:
                            raise self._not_granted(what, "DESCRIBE", f"--topic {topic}")
                        if not code:
                            found[Queue(topic, partition)] = offset
                        elif code not in _PASSING:
                            raise errors.for_code(code)(f"{topic}/{partition}")
        return found

    async def log_sizes(self, queues: Iterable[Queue]) -> dict[Queue, int]:
        """Return the size in bytes of each partition's log on its leader. Raises ``KafkaProblem``, for example if the
        user has no permission."""
        requests = {node: DescribeLogDirsRequest(topics) for node, topics in self._by_leader(queues).items()}
        found: dict[Queue, int] = {}
        what = "cannot read the sizes of logs"
        async with asking(what, self._servers, self._timeout_s):
            for answer in await self._ask(requests):
                sizes = sizes_in(answer)
                if sizes is None:
                    raise self._not_granted(what, "DESCRIBE", "--cluster")
                found.update(sizes)
        return found

    async def committed(self, group: str, queues: Collection[Queue]) -> dict[Queue, int]:
        """Return the group's committed offset in each queue. Queues without a committed offset are missing. Raises
        ``KafkaProblem``."""
        if not queues:
            return {}
        what = f"cannot read the offsets of group {group}"
        async with asking(what, self._servers, self._timeout_s):
            while True:
                try:
                    return await self._committed(group, queues)
                except MOVING:  # a new cluster also answers with these errors while it creates its offsets topic
                    self._coordinators.pop(group, None)
                    await asyncio.sleep(_COORDINATOR_POLL_S)
                except errors.GroupAuthorizationFailedError:
                    raise self._not_granted(what, "READ", f"--group {group}") from None
                except BaseException:  # do not use a silent coordinator again
                    self._coordinators.pop(group, None)
                    raise

    async def _committed(self, group: str, queues: Iterable[Queue]) -> dict[Queue, int]:
        client = self._client
        if group not in self._coordinators:
            self._coordinators[group] = await client.coordinator_lookup(CoordinationType.GROUP, group)
        answer = await client.send(self._coordinators[group], OffsetFetchRequest(group, _by_topic(queues)))
        if answer.error_code:
            raise errors.for_code(answer.error_code)(group)
        found = {}
        for topic, rows in answer.topics:
            for partition, offset, _, code in rows:
                if code and code not in _PASSING:
                    raise errors.for_code(code)(f"{topic}/{partition}")
                if not code and offset >= 0:
                    found[Queue(topic, partition)] = offset
        return found

    async def _ask(self, requests: Mapping[int, Request]) -> list[Any]:
        """Send each broker its request, all concurrently, and return the answers."""
        return await asyncio.gather(*(self._client.send(node, request) for node, request in requests.items()))

    def _by_leader(self, queues: Iterable[Queue]) -> dict[int, list[tuple[str, list[int]]]]:
        led: dict[int, list[Queue]] = {}
        for queue in queues:
            if (leader := self._leaders.get(queue)) is not None:
                led.setdefault(leader, []).append(queue)
        return {leader: _by_topic(mine) for leader, mine in led.items()}

    def _not_granted(self, what: str, operation: str, resource: str) -> KafkaProblem:
        user = f"User:{self._user or 'NAME'}"
        return KafkaProblem(
            f"Kafka at {self._servers}: {what}: this user lacks permission. Grant {operation}: kafka-acls.sh "
            f"--bootstrap-server {self._servers} --add --allow-principal {user} "
            f"--operation {operation.title()} {resource}"
        )


def sizes_in(answer: DescribeLogDirsResponse_v1) -> dict[Queue, int] | None:
    """Return the size in bytes of each replica in a broker's answer, or ``None`` if the broker denies this user the
    request. A replica that is moving to another directory appears twice, and its copy is skipped. Failed directories
    are skipped as well."""
    found: dict[Queue, int] = {}
    for code, _, topics in answer.results:
        if code == errors.ClusterAuthorizationFailedError.errno:
            return None
        if code and code not in _PASSING:
            raise errors.for_code(code)
        for topic, rows in topics:
            for partition, size, _, is_future in rows:
                if not is_future:
                    queue = Queue(topic, partition)
                    found[queue] = max(size, found.get(queue, 0))
    return found if answer.results else None


def _by_topic(queues: Iterable[Queue]) -> list[tuple[str, list[int]]]:
    found: dict[str, list[int]] = {}
    for topic, partition in queues:
        found.setdefault(topic, []).append(partition)
    return list(found.items())
