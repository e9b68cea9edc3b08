"""The interface of a sink, which accepts a partition's batches in order, from one owner at a time.

Owns: the contract, and its errors. Must never: depend on an implementation.

The controller gives each ownership of a partition an *epoch*, and epochs grow. An owner first opens the partition with
its epoch. From then on the sink refuses every owner with an older epoch, even one that was paused for an hour in the
middle of a call. ``tests/autoscaler/sinks/contract.py`` tests this for every sink.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol


class SinkError(Exception):
    """The sink does not accept the batch now, because it is unreachable or has no room. It may nevertheless have stored
    the batch. The member sends the same batch again. The error message is for the operator."""


class RefusedError(Exception):
    """The sink knows an owner with a newer epoch. This owner must release the partition.

    ``epoch``: the newer owner's epoch.
    """

    def __init__(self, topic: str, partition: int, epoch: int) -> None:
        super().__init__(f"{topic}/{partition} has an owner with a newer epoch, {epoch}")
        self.epoch = epoch


class Record(NamedTuple):
    """A Kafka record. ``time_ms``: its timestamp, in milliseconds since 1970."""

    offset: int
    time_ms: int
    key: bytes | None
    value: bytes | None


class Place(NamedTuple):
    """A partition and its writer. ``member``: the writer's name. ``epoch``: the epoch of the writer's ownership."""

    table: str
    topic: str
    partition: int
    epoch: int
    member: str


class Sink(Protocol):
    """Stores records from members. Every call has a time limit, after which it raises ``SinkError``."""

    async def open(self, place: Place) -> int | None:
        """Own the partition from now on. Return the offset to continue from, which is the offset after the last stored
        record. Return ``None`` if the sink has no records of the partition, or does not store offsets. Opening again
        with the same epoch changes nothing. Raises ``RefusedError``, ``SinkError``."""

    async def append(self, place: Place, records: Sequence[Record]) -> None:
        """Store a batch atomically, and wait until it would survive a crash. The offsets of the records ascend, and
        continue from the previous batch. Some offsets may be missing. A sink that stores offsets stores a batch only
        once, even if the member repeats it after a ``SinkError``. Raises ``RefusedError``, ``SinkError``."""

    async def close(self) -> None:
        """Release all resources."""
