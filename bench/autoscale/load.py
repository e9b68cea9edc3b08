"""The records to write into the partitions, with their due times.

Owns: the times of records. Must never: wait. A caller asks which records are due.

A record is due when the bytes for its partition are enough for one more record. The record contains that due time even
if it is sent later. So latencies include the delays of a slow producer or a paused machine.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Final, NamedTuple

#: Seconds between two evaluations of the rates.
STEP_S: Final = 0.01


class Due(NamedTuple):
    """A record. ``time_s``: its due time since the stream's beginning, in seconds."""

    time_s: float
    partition: int


class Load:
    """The records of one stream. ``stream`` has the bytes per second of each partition, one row for each
    ``iteration_s``. ``seed`` determines when each partition's first record is due, so that these times differ."""

    def __init__(self, stream: Sequence[Sequence[float]], iteration_s: float, record_bytes: int, seed: int) -> None:
        chance = random.Random(f"load {seed}")
        self._stream = stream
        self._iteration_s = iteration_s
        self._record_bytes = record_bytes
        self._written = [chance.uniform(0.0, record_bytes) for _ in stream[0]]
        self._steps = 0

    @property
    def length_s(self) -> float:
        """Return the length of the stream, in seconds."""
        return len(self._stream) * self._iteration_s

    def due(self, until_s: float) -> list[Due]:
        """Return the records that became due since the last call, up to this time. They are sorted by steps of 10 ms,
        and within each step by partition, so the records of one partition are in order."""
        found = []
        while (end_s := (self._steps + 1) * STEP_S) <= min(until_s, self.length_s) + 1e-9:
            begin_s = self._steps * STEP_S
            row = self._stream[min(int((begin_s + STEP_S / 2) / self._iteration_s), len(self._stream) - 1)]
            for partition, rate in enumerate(row):
                before = self._written[partition]
                after = before + rate * STEP_S
                while after >= self._record_bytes:
                    part = (self._record_bytes - before) / (after - before)
                    found.append(Due(begin_s + part * (end_s - begin_s), partition))
                    before -= self._record_bytes
                    after -= self._record_bytes
                self._written[partition] = after
            self._steps += 1
        return found
