"""Computes from repeated readings how many bytes per second each queue gets (arXiv 2402.06085, V-A).

Owns: the time window, the mean size of a record, and the number of unread bytes. Must never: read a clock, or make a
reading itself.

There are two methods. The paper's method, ``log_sizes``, divides the growth of a log's size over 30 s by the time.
Retention deletes the beginning of a log, so this result is too low. The default method, ``offsets``, multiplies the
growth of the end offset, which retention does not change, by the mean size of a record. If nothing is deleted, both
methods give the same result.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from .model import Flow, Queue

#: The window is divided into this many steps, with at most two points in each. The paper uses 30 points, one per second
#: for 30 s. More than twice that number would cost memory and not improve the result.
STEPS: Final = 60


class Reading(NamedTuple):
    """The state of a queue at one moment. ``begin``: the offset of the first existing record. ``end``: the offset after
    the last record. ``size``: the size of the queue's log in bytes. ``committed``: the group's position, or ``None`` if
    it is unknown."""

    begin: int
    end: int
    size: int
    committed: int | None


class Windows:
    """Computes the speed of each queue over the last ``window_s`` seconds, from the growth of an amount. ``shrunk``:
    how often an amount was smaller than before."""

    def __init__(self, window_s: float) -> None:
        self._window_s = window_s
        #: Each point holds a time, and the growth of each queue since the queue was first seen. The window begins at
        #: the first point.
        self._points: deque[tuple[float, dict[Queue, float]]] = deque()
        self._amounts: dict[Queue, float] = {}
        self.shrunk = 0

    @property
    def span_s(self) -> float:
        """The seconds that the speeds cover. It is 0 after fewer than two measurements, because no speed is known
        then."""
        return self._points[-1][0] - self._points[0][0] if self._points else 0.0

    def add(self, time_s: float, amounts: Mapping[Queue, float]) -> None:
        """Add a measurement. ``amounts``: the amounts of all existing queues. ``time_s`` must not be earlier than in
        the previous call.

        An amount shrinks if the topic was recreated, or if retention has cut the log. The writes since the previous
        measurement are then unknown, and count as 0.
        """
        points, before = self._points, self._amounts
        grown: dict[Queue, float] = points[-1][1] if points else {}
        for queue in before.keys() - amounts.keys():
            for _, each in points:  # if the queue comes back, it counts as a new queue
                each.pop(queue, None)
        now = {}
        for queue, amount in amounts.items():
            more = amount - before.get(queue, amount)
            self.shrunk += more < 0
            now[queue] = grown.get(queue, 0.0) + max(more, 0.0)
        self._amounts = dict(amounts)
        if len(points) >= 2 and time_s - points[-2][0] < self._window_s / STEPS:
            points.pop()
        points.append((time_s, now))
        # After a pause of this process, the window keeps the point before the pause, because only the mean over the
        # whole pause is known.
        while len(points) > 2 and time_s - points[0][0] > self._window_s:
            points.popleft()

    def speeds(self) -> dict[Queue, float]:
        """Return the speed of each queue: how much its amount grew per second, in the part of the window in which the
        queue existed. The speed is 0 for a queue that was seen only once."""
        if not self._points:
            return {}
        now_s, last = self._points[-1]
        found = {}
        for queue, grown in last.items():
            first_s, first = next((time_s, each[queue]) for time_s, each in self._points if queue in each)
            found[queue] = (grown - first) / (now_s - first_s) if now_s > first_s else 0.0
        return found


@dataclass(slots=True)
class _Written:
    """A log's growth in bytes and in records. Older growth counts less."""

    bytes: float = 0.0
    records: float = 0.0


class RecordSizes:
    """Computes the mean record size of each queue, in bytes in the log.

    If nothing is deleted between two readings, the log grows by exactly the written records, so their mean size is
    known. Before there are two such readings, this class uses the mean of the whole log. That mean is far too large if
    records were deleted one by one, because their bytes stay in the log until their whole segment is deleted. A queue
    without records gets the mean size of its topic, or the mean size of the group if the topic has none.
    """

    def __init__(self, half_life_s: float) -> None:
        self._half_life_s = half_life_s
        self._time_s = 0.0
        self._readings: Mapping[Queue, Reading] = {}
        self._written: dict[Queue, _Written] = {}

    def means(self, time_s: float, readings: Mapping[Queue, Reading]) -> dict[Queue, float]:
        """Return the mean record size for every existing queue. All sizes are 0 if no queue's record size is known."""
        kept = 0.5 ** ((time_s - self._time_s) / self._half_life_s) if self._readings else 0.0
        written: dict[Queue, _Written] = {}
        own: dict[Queue, float] = {}
        for queue, now in readings.items():
            before = self._readings.get(queue)
            if before is not None and now.end >= before.end:
                written[queue] = self._grown(self._written.get(queue) or _Written(), before, now, kept)
            mean = _own_mean(now, written.get(queue))
            if mean > 0:
                own[queue] = mean
        self._time_s, self._readings, self._written = time_s, dict(readings), written
        topics: dict[str, list[float]] = {}
        for queue, mean in own.items():
            topics.setdefault(queue.topic, []).append(mean)
        by_topic = {topic: _mean(means) for topic, means in topics.items()}
        of_all = _mean(own.values())
        return {queue: own.get(queue, by_topic.get(queue.topic, of_all)) for queue in readings}

    def _grown(self, written: _Written, before: Reading, now: Reading, kept: float) -> _Written:
        """Add the growth between two readings. The monitor does not read offsets and sizes at the same instant, so a
        write can appear in the offsets before it appears in the sizes, or the other way round. Therefore an interval
        counts even if only the offset or only the size has grown."""
        records, size = now.end - before.end, now.size - before.size
        if now.begin != before.begin or size < 0 or not (records or size):
            return written
        return _Written(written.bytes * kept + size, written.records * kept + records)


def _own_mean(now: Reading, written: _Written | None) -> float:
    if written is not None and written.records >= 1 and written.bytes > 0:
        return written.bytes / written.records
    return now.size / (now.end - now.begin) if now.end > now.begin else 0.0


def _mean(values: Iterable[float]) -> float:
    known = list(values)
    return sum(known) / len(known) if known else 0.0


class Meter:
    """Turns readings into flows. ``by_offsets``: compute speeds from offsets and the record size, and not from the
    logs' sizes. ``earliest``: the group reads new queues from their beginning."""

    def __init__(self, *, by_offsets: bool, window_s: float, earliest: bool) -> None:
        self._by_offsets = by_offsets
        self._earliest = earliest
        self._windows = Windows(window_s)
        self._sizes = RecordSizes(window_s)

    @property
    def span_s(self) -> float:
        """The seconds that the flows cover, or 0 if no speed is known yet."""
        return self._windows.span_s

    @property
    def shrunk(self) -> int:
        """How often a queue was shorter than before."""
        return self._windows.shrunk

    def flows(self, time_s: float, readings: Mapping[Queue, Reading]) -> tuple[Flow, ...]:
        """Return a ``Flow`` for each queue: its rate of writes, and its unread bytes. The result is sorted by queue.
        ``readings``: one reading of every existing queue. ``time_s`` must not be earlier than in the previous call."""
        means = self._sizes.means(time_s, readings)
        self._windows.add(time_s, {queue: self._amount(reading) for queue, reading in readings.items()})
        speeds = self._windows.speeds()
        return tuple(
            Flow(
                queue,
                speeds[queue] * means[queue] if self._by_offsets else speeds[queue],
                self._unread(readings[queue]) * means[queue],
            )
            for queue in sorted(readings)
        )

    def _amount(self, reading: Reading) -> int:
        return reading.end if self._by_offsets else reading.size

    def _unread(self, reading: Reading) -> int:
        """Return the number of unread records, without those that retention has deleted."""
        if reading.committed is None:
            return reading.end - reading.begin if self._earliest else 0
        return max(0, reading.end - max(reading.committed, reading.begin))
