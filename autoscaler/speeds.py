"""How fast queues grow: turns repeated readings into bytes per second (arXiv 2402.06085, V-A).

Owns: the time window, the size of a record, and the unread bytes. Must never: read a clock, or know the source of an
amount.

The document divides the growth of the logs' sizes over 30 s by the time (``log_sizes`` here). Retention makes logs
shorter, so this result is too low. ``offsets``, the default, multiplies the growth of the offsets, which retention
leaves alone, by the mean size of a record. If nothing is deleted, both results agree.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from .model import Flow, Queue

#: A window has this many steps, with at most two points in each. The document's 30 s at one point a second are 30
#: points; more than twice that would cost memory and improve nothing.
STEPS: Final = 60


class Reading(NamedTuple):
    """A queue at one moment. ``begin``: offset of the first existing record; ``end``: offset after the last one;
    ``size``: bytes of its log; ``committed``: the group's position, ``None``: unknown."""

    begin: int
    end: int
    size: int
    committed: int | None


class Windows:
    """Computes the speed of each queue over the last ``window_s`` seconds, from a growing amount. ``shrunk``: times an
    amount was smaller than before."""

    def __init__(self, window_s: float) -> None:
        self._window_s = window_s
        #: Time, and growth of each queue since it was first seen. The window begins at the first point.
        self._points: deque[tuple[float, dict[Queue, float]]] = deque()
        self._amounts: dict[Queue, float] = {}
        self.shrunk = 0

    @property
    def span_s(self) -> float:
        """The seconds that the speeds cover. 0: no speed is known, with one measurement or none."""
        return self._points[-1][0] - self._points[0][0] if self._points else 0.0

    def add(self, time_s: float, amounts: Mapping[Queue, float]) -> None:
        """Add a measurement. ``amounts``: the amounts of all existing queues. The time must never be earlier than
        before.

        An amount shrinks if the topic was recreated, or if retention has cut the log. The writes in between are
        unknown, and count as nothing.
        """
        points, before = self._points, self._amounts
        grown: dict[Queue, float] = points[-1][1] if points else {}
        for queue in before.keys() - amounts.keys():
            for _, each in points:  # if it comes back, it is a new queue
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
        # After a pause of this process the window keeps the point before the pause: only the mean over the pause is
        # known.
        while len(points) > 2 and time_s - points[0][0] > self._window_s:
            points.popleft()

    def speeds(self) -> dict[Queue, float]:
        """Return the speed of each queue, in amounts per second: (last - first) / time, over the part of the window in
        which the queue existed. 0 for a queue that was seen only once."""
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
    """A log's growth in bytes and records; older growth counts less."""

    bytes: float = 0.0
    records: float = 0.0


class RecordSizes:
    """The mean record size of each queue, in bytes in the log.

    Between two readings without deletion, the log grows by exactly the written records, so their mean size is known.
    Until then the mean of the whole log applies. It would be far too large where records were deleted one by one: their
    bytes stay in the log until their whole segment is gone. A queue without records gets the mean of its topic, or else
    that of the group.
    """

    def __init__(self, half_life_s: float) -> None:
        self._half_life_s = half_life_s
        self._time_s = 0.0
        self._readings: Mapping[Queue, Reading] = {}
        self._written: dict[Queue, _Written] = {}

    def means(self, time_s: float, readings: Mapping[Queue, Reading]) -> dict[Queue, float]:
        """Return the mean record size for every existing queue. 0: no queue has a known size."""
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
        """Add the growth between two readings. Offsets and sizes are not read at the same instant, so growth can appear
        in one before the other. Therefore an interval counts even if only one has grown."""
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
    """Turns readings into flows. ``by_offsets``: compute speeds from offsets times the record size; else from the logs'
    sizes. ``earliest``: the group reads new queues from their beginning."""

    def __init__(self, *, by_offsets: bool, window_s: float, earliest: bool) -> None:
        self._by_offsets = by_offsets
        self._earliest = earliest
        self._windows = Windows(window_s)
        self._sizes = RecordSizes(window_s)

    @property
    def span_s(self) -> float:
        """The seconds that the flows cover; 0: no speed is known yet."""
        return self._windows.span_s

    @property
    def shrunk(self) -> int:
        """Times a queue was shorter than before."""
        return self._windows.shrunk

    def flows(self, time_s: float, readings: Mapping[Queue, Reading]) -> tuple[Flow, ...]:
        """Return each queue's rate of writes and unread bytes, sorted by queue. ``readings``: those of all existing
        queues; times do not go back."""
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
