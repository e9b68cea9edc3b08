"""How fast queues grow: from amounts that are looked at again and again to bytes a second (arXiv 2402.06085, V-A).

Owns: the window of time that is looked back, the size of a record, and what has not been read. Must never: read a
clock, or know how an amount was found out.

The document takes the sizes of logs and divides their growth over 30 s by the time (``log_sizes`` here). Retention
makes logs shorter, so that this is too little. ``offsets``, the default, takes the growth of the offsets, which
retention leaves alone, times the mean size of a record. Where nothing is deleted both give the same.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from .model import Flow, Queue

#: A window is kept in so many steps: at most two points lie within one. The document's 30 s at one a second are 30
#: points; more than twice as many would be memory for no better figure.
STEPS: Final = 60


class Reading(NamedTuple):
    """A queue at one moment. ``begin``: offset of the first record that is there; ``end``: behind the last one;
    ``size``: bytes of its log; ``committed``: where the group is, ``None``: nobody knows."""

    begin: int
    end: int
    size: int
    committed: int | None


class Windows:
    """The speed of each queue over the last ``window_s`` seconds, from an amount that grows. ``shrunk``: so often an
    amount was found less than before."""

    def __init__(self, window_s: float) -> None:
        self._window_s = window_s
        #: Time, and by how much each queue has grown since it was first seen. The time of the first is the window's.
        self._points: deque[tuple[float, dict[Queue, float]]] = deque()
        self._amounts: dict[Queue, float] = {}
        self.shrunk = 0

    @property
    def span_s(self) -> float:
        """The seconds that speeds are of. 0: there is one measurement, or none, and no speed yet."""
        return self._points[-1][0] - self._points[0][0] if self._points else 0.0

    def add(self, time_s: float, amounts: Mapping[Queue, float]) -> None:
        """One more measurement. ``amounts``: of all queues that there are. Times do not go back.

        An amount that is less than before is that of a topic made anew, or of a log that retention has cut. What was
        written in between is unknown, and counts as nothing.
        """
        points, before = self._points, self._amounts
        grown: dict[Queue, float] = points[-1][1] if points else {}
        for queue in before.keys() - amounts.keys():
            for _, each in points:  # if it comes back, it is another one
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
        # A window that a pause of this process has emptied keeps the point before the pause: the mean over the pause is
        # known, and no other speed is.
        while len(points) > 2 and time_s - points[0][0] > self._window_s:
            points.popleft()

    def speeds(self) -> dict[Queue, float]:
        """By queue, in a second: (last - first) / time, over the part of the window in which the queue was there. 0
        for one that was seen once only."""
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
    """Bytes and records that a log has grown by; what is long ago counts less."""

    bytes: float = 0.0
    records: float = 0.0


class RecordSizes:
    """The mean size of a record of each queue, bytes in the log.

    Between two readings with nothing deleted the log grows by exactly the records that were written, so their mean size
    is known. Until such are seen it is that of the whole log. This would be far too large where records were deleted
    one by one: their bytes stay in the log until all of their segment are gone. A queue that has no records is taken to
    be like the others of its topic, or else like those of the group.
    """

    def __init__(self, half_life_s: float) -> None:
        self._half_life_s = half_life_s
        self._time_s = 0.0
        self._readings: Mapping[Queue, Reading] = {}
        self._written: dict[Queue, _Written] = {}

    def means(self, time_s: float, readings: Mapping[Queue, Reading]) -> dict[Queue, float]:
        """By queue, for all that there are. 0: nothing is known of any queue."""
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
        """Offsets and sizes are not read at the same instant. What one has of an interval the other has of the next, so
        an interval counts although only one of the two has grown."""
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
    """From readings to flows. ``by_offsets``: speeds are those of offsets, times the size of a record; else those of
    the logs' sizes. ``earliest``: what the group has never read will be read from its beginning."""

    def __init__(self, *, by_offsets: bool, window_s: float, earliest: bool) -> None:
        self._by_offsets = by_offsets
        self._earliest = earliest
        self._windows = Windows(window_s)
        self._sizes = RecordSizes(window_s)

    @property
    def span_s(self) -> float:
        """The seconds that flows are of; 0: no speed is known yet."""
        return self._windows.span_s

    @property
    def shrunk(self) -> int:
        """So often a queue was found shorter than before."""
        return self._windows.shrunk

    def flows(self, time_s: float, readings: Mapping[Queue, Reading]) -> tuple[Flow, ...]:
        """What is written into each of these queues, and what the group has not read. Sorted. ``readings``: of all that
        there are; times do not go back."""
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
        """Records. Those that retention has taken are not there to be read."""
        if reading.committed is None:
            return reading.end - reading.begin if self._earliest else 0
        return max(0, reading.end - max(reading.committed, reading.begin))
