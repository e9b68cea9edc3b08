"""What a member asks of a sink: to take batches of a partition, in their order, from one owner at a time.

Owns: the contract, and its errors. Must never: know an implementation.

The controller gives each ownership of a partition an *epoch*, and epochs grow. An owner opens the partition with its
epoch first. From then on the sink refuses whoever has an older one, also where that one was paused for an hour in the
middle of a call. ``tests/autoscaler/sinks/contract.py`` holds every sink to this.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol


class SinkError(Exception):
    """The sink does not take it now: it cannot be reached, or has no room. Nothing is known to be kept; the member
    tries again with the same batch. The text is for the operator."""


class RefusedError(Exception):
    """The sink knows an owner with a newer epoch. This one has to let go of the partition.

    ``epoch``: the newer one.
    """

    def __init__(self, topic: str, partition: int, epoch: int) -> None:
        super().__init__(f"{topic}/{partition} has an owner with a newer epoch, {epoch}")
        self.epoch = epoch


class Record(NamedTuple):
    """One record of Kafka's. ``time_ms``: its timestamp, milliseconds since 1970."""

    offset: int
    time_ms: int
    key: bytes | None
    value: bytes | None


class Place(NamedTuple):
    """A partition, and who writes it: ``member`` is its name, ``epoch`` that of its ownership."""

    table: str
    topic: str
    partition: int
    epoch: int
    member: str


class Sink(Protocol):
    """Keeps what members read. Every call has a limit of time, after which it raises ``SinkError``."""

    async def open(self, place: Place) -> int | None:
        """Own the partition from now on. The offset to go on from: behind all that the sink has of it; ``None``: the
        sink does not know, or has nothing. Opening again with the same epoch changes nothing. Raises ``RefusedError``,
        ``SinkError``."""

    async def append(self, place: Place, records: Sequence[Record]) -> None:
        """Keep a batch, whole or not at all. Returns when it is kept so that it survives a crash. The records ascend by
        offset and go on from where the batch before ended; offsets may be missing. The same batch again after a
        ``SinkError`` is kept once, if the sink knows offsets. Raises ``RefusedError``, ``SinkError``."""

    async def close(self) -> None:
        """Give back what is held here."""
