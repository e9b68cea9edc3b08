"""Stores the group's position in each partition in Kafka, for sinks that do not store offsets, and for observers.

Owns: the group's committed offsets. Must never: join the group as a Kafka consumer, because the controller assigns the
partitions.

aiokafka commits offsets only through a consumer that has a group. Such a consumer fails with an assertion if its
partitions change while it looks up the group's coordinator. So the consumers that read records have no group, and this
module commits without being a member of the group. Kafka accepts such commits as long as no consumer subscribes with
this group.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

from aiokafka import errors
from aiokafka.client import AIOKafkaClient, CoordinationType
from aiokafka.protocol.commit import OffsetCommitRequest

from ..model import Queue
from .connecting import KafkaProblem, asking
from .logs import MOVING, Logs

#: Seconds between two attempts while the group's coordinator starts or moves.
_AGAIN_S: Final = 0.1
#: The generation id of a commit by a client that is not a member of the group.
_NO_GENERATION: Final = -1
_NO_MEMBER: Final = ""


class Progress:
    """Reads and commits offsets. ``client``: a connected client. ``servers``: for error texts. ``timeout_s``: the time
    limit of each call."""

    def __init__(self, client: AIOKafkaClient, group: str, servers: str, timeout_s: float) -> None:
        self._client = client
        self._group = group
        self._servers = servers
        self._timeout_s = timeout_s
        self._logs = Logs(client, servers, timeout_s)
        self._coordinator: int | None = None

    async def committed(self, queue: Queue) -> int | None:
        """Return the group's committed offset, or ``None`` if the queue has none. Raises ``KafkaProblem``."""
        return (await self._logs.committed(self._group, [queue])).get(queue)

    async def commit(self, places: Mapping[Queue, int]) -> None:
        """Commit offsets for the group. Raises ``KafkaProblem``. After this error, some offsets may nevertheless be
        committed."""
        what = f"cannot commit the offsets of group {self._group}"
        async with asking(what, self._servers, self._timeout_s):
            while True:
                try:
                    return await self._commit(places)
                except MOVING:
                    self._coordinator = None
                    await asyncio.sleep(_AGAIN_S)
                except errors.UnknownMemberIdError:
                    raise KafkaProblem(
                        f"Kafka at {self._servers}: {what}: a consumer has subscribed with this group. Stop that "
                        "consumer, or give it another group: the autoscaler assigns this group's partitions"
                    ) from None
                except BaseException:  # do not use a silent coordinator again
                    self._coordinator = None
                    raise

    async def _commit(self, places: Mapping[Queue, int]) -> None:
        if self._coordinator is None:
            self._coordinator = await self._client.coordinator_lookup(CoordinationType.GROUP, self._group)
        rows: dict[str, list[tuple[int, int, str]]] = {}
        for (topic, partition), place in places.items():
            rows.setdefault(topic, []).append((partition, place, ""))
        request = OffsetCommitRequest(
            *(self._group, _NO_GENERATION, _NO_MEMBER, OffsetCommitRequest.DEFAULT_RETENTION_TIME),
            list(rows.items()),
        )
        answer = await self._client.send(self._coordinator, request)
        for topic, found in answer.topics:
            for partition, code in found:
                if code:
                    raise errors.for_code(code)(f"{topic}/{partition}")
