"""How far the group is in each partition, as Kafka knows it: for sinks that know no offsets, and for whoever looks.

Owns: the group's committed offsets. Must never: join the group as Kafka understands it; the controller shares out.

aiokafka commits for a consumer that has a group only, and such a consumer ends with an assertion if its partitions
change while it looks for the group's coordinator. So those that read have no group, and what is committed goes out from
here, as from one that is no member of a generation: Kafka takes it as long as no consumer subscribes with this group.
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

#: Between two tries while the group's coordinator begins or moves, seconds.
_AGAIN_S: Final = 0.1
#: Of one that is in no generation.
_NO_GENERATION: Final = -1
_NO_MEMBER: Final = ""


class Progress:
    """``client``: connected. ``servers``: for texts; ``timeout_s``: of each call."""

    def __init__(self, client: AIOKafkaClient, group: str, servers: str, timeout_s: float) -> None:
        self._client = client
        self._group = group
        self._servers = servers
        self._timeout_s = timeout_s
        self._logs = Logs(client, servers, timeout_s)
        self._coordinator: int | None = None

    async def committed(self, queue: Queue) -> int | None:
        """Where the group goes on; ``None``: it has never been there. Raises ``KafkaProblem``."""
        return (await self._logs.committed(self._group, [queue])).get(queue)

    async def commit(self, places: Mapping[Queue, int]) -> None:
        """The group goes on there. Raises ``KafkaProblem``: then some may be kept and some not."""
        what = f"the offsets of group {self._group} cannot be committed"
        async with asking(what, self._servers, self._timeout_s):
            while True:
                try:
                    return await self._commit(places)
                except MOVING:
                    self._coordinator = None
                    await asyncio.sleep(_AGAIN_S)
                except errors.UnknownMemberIdError:
                    raise KafkaProblem(
                        f"{what}, of {self._servers}: a consumer has subscribed with this group. End it, or give it "
                        "another group: this one's partitions are shared out here"
                    ) from None
                except BaseException:  # one that does not answer is not asked again
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
