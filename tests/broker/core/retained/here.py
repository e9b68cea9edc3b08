"""One endpoint's parts of retained messages, at a fake desk, with real state around them: for tests that drive them
alone.

Owns: short words for retained messages, and for the peers' requests. Must never: answer for a peer or the store.
"""

from __future__ import annotations

from ingeborg.broker.core.entries import Entry
from ingeborg.broker.core.limits import Limits
from ingeborg.broker.core.links.calls import Call
from ingeborg.broker.core.links.requests import Request, WatermarkRequest
from ingeborg.broker.core.model import Settings, Shape
from ingeborg.broker.core.replication.assembly import Replication
from ingeborg.broker.core.retained.assembly import Retained
from ingeborg.protocol.hashes import slot_of

from ..surroundings import Surroundings

EPOCH = "m"
KEPT_S = 600.0
LIMITS = Limits(history_bytes=1 << 24)
IN_MEMORY = Settings(history="memory")
IN_STORE = Settings(history="store")
WITH_JOURNAL = Shape(journal=True)


class Keeper(Surroundings):
    """An endpoint that has joined. ``peers`` are linked and have history, and each has sent its watermark: 0."""

    def __init__(
        self,
        *peers: str,
        limits: Limits = LIMITS,
        settings: Settings = IN_MEMORY,
        shape: Shape = WITH_JOURNAL,
        unix_s: float = 0.0,
    ) -> None:
        super().__init__(*peers, settings=settings, unix_s=unix_s, limits=limits, shape=shape)
        self.replication = Replication(self.base, self.cluster, 60.0)
        self.retained = retained = Retained(self.base, self.cluster, self.replication)
        self.log, self.clock, self.watermarks = retained.log, retained.clock, retained.watermarks
        self.journal, self.state, self.retention = retained.journal, retained.state, retained.retention
        self.watermarks.joined()
        self.watermarks.tick()
        self.take_asked()
        for incarnation in peers:
            self.told(incarnation, 0)
        self.watermarks.advances = False  # a turn has ended
        self._names = 0

    # Retained messages

    def keep(self, topic: str, stamp: int = 0, payload: bytes = b"1", expires_s: float = KEPT_S) -> Entry:
        """Accept, keep and conclude a message of the topic. ``stamp``: 0: the clock's next one."""
        if not stamp:
            stamp = self.clock.stamp()
            self.clock.close(stamp)
        self.clock.see(stamp)
        self._names += 1
        entry = Entry(topic, payload, "o", self._names, stamp, self.desk.now + expires_s)
        self.log.add(slot_of(topic), entry, self.desk.now)
        return entry

    # Peers

    def told(
        self,
        incarnation: str,
        watermark: int,
        clock: int | None = None,
        again: list[str] | None = [],  # noqa: B006
        count: int = 0,
    ) -> None:
        """Send the peer's watermark. ``count``: the endpoints that take part, as the peer sees it; 0: as this endpoint
        does."""
        count = count or len(self.members.view()) + 1
        request = WatermarkRequest(watermark, watermark if clock is None else clock, [EPOCH], again, count)
        self.watermarks.watermark_told(incarnation, 1, request)

    def take_asked(self, kind: type[Request] | None = None) -> list[Call]:
        """Return the requests to peers since the last call. All must be of this kind."""
        asked = self.desk.asked[:]
        self.desk.asked.clear()
        assert kind is None or {type(call.request) for call in asked} <= {kind}
        return asked


def at(stamp: int) -> str:
    """Return a position."""
    return f"{EPOCH}.{stamp:x}"
