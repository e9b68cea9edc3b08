"""A run of the document's layer, or of plain readers, in virtual time.

Owns: the order of events. Must never: read a clock, or draw without a seed.

Messages and reports arrive without a delay. As in a real run, each reader processes one unit at a time. Topics that
have a message take turns after each unit. The CPU time is the time of the units, plus ``MESSAGE_CPU_MS`` for each
message.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from ingeborg.bench.dyconits.layer.consumer import Consumer
from ingeborg.bench.dyconits.layer.manager import Manager, Update
from ingeborg.bench.dyconits.layer.messages import ConsumerReport, ConsumerUpdate, ProducerReport, ProducerUpdate
from ingeborg.bench.dyconits.layer.producer import Producer
from ingeborg.bench.dyconits.layer.settings import TOPICS, Readings
from ingeborg.bench.dyconits.rows import SAMPLE_MS, Control, Sample, Used
from ingeborg.bench.dyconits.workload import Workload

MESSAGE_CPU_MS: Final = 0.15
"""CPU time that a real reader needs for a message in addition to its units, in milliseconds."""


class Found(NamedTuple):
    """The rows of a run. ``messages``: the number of the layer's messages that the readers had to process."""

    produced: dict[str, list[float]]
    samples: list[Sample]
    used: list[Used]
    controls: list[Control]
    messages: int


@dataclass
class _Topic:
    """A topic at a reader. ``left``: number of remaining units of the message in progress. ``begun_ms``: the time at
    which that message began."""

    taken: int = 0
    left: int = 0
    begun_ms: float = float("-inf")
    is_waiting: bool = False


@dataclass
class _Reader:
    name: str
    control: Consumer | None
    topics: dict[str, _Topic] = field(default_factory=lambda: {topic: _Topic() for topic in TOPICS})
    due: deque[str] = field(default_factory=deque)
    is_busy: bool = False
    cpu_ms: float = 0.0
    reported_cpu_ms: float = 0.0


class _Run:
    def __init__(self, workload: Workload, experiment: str, readings: Readings | None, seed: int, length_s: float):
        manager, consumer, producer = workload.settings(experiment)
        self._workload = workload
        self._setup = workload.experiments[experiment]
        self._begin_ms = -workload.lead_s * 1e3
        self._end_ms = length_s * 1e3
        self._events: list[tuple[float, int, Callable[[float], None]]] = []
        self._count = 0
        self._manager = None if readings is None else Manager(manager, readings)
        self._producers = {topic: Producer(f"p-{topic}", topic, producer, seed) for topic in TOPICS}
        self._readers = [
            _Reader(name, None if readings is None else Consumer(name, TOPICS, consumer, readings))
            for name in (f"c{number}" for number in range(1, workload.readers.count + 1))
        ]
        self._report_ms = (producer.report_ms, consumer.report_ms)
        self.found = Found({topic: [] for topic in TOPICS}, [], [], [], 0)
        self.messages = 0

    def run(self) -> Found:
        for number, producer in enumerate(self._producers.values()):
            self._at(number + 1.0, lambda now_ms, one=producer: self._produce(one, now_ms))  # type: ignore[misc]
            if self._manager is not None:
                self._at(0.0, lambda now_ms, one=producer: self._produced(one, now_ms))  # type: ignore[misc]
        for reader in self._readers:
            self._at(SAMPLE_MS, lambda now_ms, one=reader: self._sample(one, now_ms))  # type: ignore[misc]
            if reader.control is not None:
                begun_ms = self._begin_ms + self._report_ms[1]
                self._at(begun_ms, lambda now_ms, one=reader: self._report(one, now_ms))  # type: ignore[misc]
        while self._events and self._events[0][0] <= self._end_ms:
            now_ms, _, event = heapq.heappop(self._events)
            event(now_ms)
        return self.found._replace(messages=self.messages)

    def _at(self, time_ms: float, event: Callable[[float], None]) -> None:
        self._count += 1
        heapq.heappush(self._events, (time_ms, self._count, event))

    # Producers

    def _produce(self, producer: Producer, now_ms: float) -> None:
        self.found.produced[producer.topic].append(now_ms)
        self._at(producer.next_ms(now_ms), lambda then_ms: self._produce(producer, then_ms))
        for reader in self._readers:
            self._ready(reader, producer.topic, now_ms)

    def _produced(self, producer: Producer, now_ms: float) -> None:
        assert self._manager is not None
        report = ProducerReport.parse(producer.report().text())
        self._send(self._manager.producer_report(report, now_ms), now_ms)
        self._at(now_ms + self._report_ms[0], lambda then_ms: self._produced(producer, then_ms))

    def _send(self, updates: list[Update], now_ms: float) -> None:
        for update in updates:
            if isinstance(update, ProducerUpdate):
                self._producers[update.producer.removeprefix("p-")].updated(update, now_ms)
                continue
            self.messages += 1
            reader = next(reader for reader in self._readers if reader.name == update.consumer)
            assert reader.control is not None
            reader.control.updated(ConsumerUpdate.parse(update.text()), now_ms)
            self._note(reader, now_ms)

    # Readers

    def _report(self, reader: _Reader, now_ms: float) -> None:
        assert self._manager is not None
        assert reader.control is not None
        cpu = (reader.cpu_ms - reader.reported_cpu_ms) / self._report_ms[1] * 100
        reader.reported_cpu_ms = reader.cpu_ms
        report = reader.control.report(cpu, now_ms)
        self._send(self._manager.consumer_report(ConsumerReport.parse(report.text())), now_ms)
        self._at(now_ms + self._report_ms[1], lambda then_ms: self._report(reader, then_ms))

    def _note(self, reader: _Reader, now_ms: float) -> None:
        assert reader.control is not None
        for topic in TOPICS:
            control = reader.control
            values = (control.delay_ms(topic), *control.bounds(topic), control.priority(topic))
            self.found.controls.append(Control(reader.name, topic, now_ms, *values))

    def _ready(self, reader: _Reader, name: str, now_ms: float) -> None:
        """Begin the topic's next message, now or when its delay is over, unless a message is in progress."""
        topic = reader.topics[name]
        if topic.left or topic.is_waiting or topic.taken >= len(self.found.produced[name]):
            return
        delay_ms = 0.0 if reader.control is None else reader.control.delay_ms(name)
        begin_ms = topic.begun_ms + delay_ms
        if begin_ms > now_ms:
            topic.is_waiting = True
            self._at(begin_ms, lambda then_ms: self._waited(reader, name, then_ms))
            return
        topic.begun_ms, topic.left = now_ms, self._setup.units[name]
        if not topic.left:
            self._taken(reader, name, now_ms)
            return
        reader.due.append(name)
        if not reader.is_busy:
            self._serve(reader, now_ms)

    def _waited(self, reader: _Reader, name: str, now_ms: float) -> None:
        reader.topics[name].is_waiting = False
        self._ready(reader, name, now_ms)

    def _serve(self, reader: _Reader, now_ms: float) -> None:
        reader.is_busy = bool(reader.due)
        if reader.is_busy:
            name = reader.due.popleft()
            self._at(now_ms + self._workload.readers.unit_ms, lambda then_ms: self._served(reader, name, then_ms))

    def _served(self, reader: _Reader, name: str, now_ms: float) -> None:
        topic = reader.topics[name]
        reader.cpu_ms += self._workload.readers.cpu_ms
        topic.left -= 1
        if topic.left:
            reader.due.append(name)
        else:
            self._taken(reader, name, now_ms)
        self._serve(reader, now_ms)

    def _taken(self, reader: _Reader, name: str, now_ms: float) -> None:
        topic = reader.topics[name]
        produced_ms = self.found.produced[name][topic.taken]
        topic.taken += 1
        reader.cpu_ms += MESSAGE_CPU_MS
        if reader.control is not None:
            reader.control.took(name, produced_ms)
        busy, reader.is_busy = reader.is_busy, True  # so that a message that begins now waits for its turn
        self._ready(reader, name, now_ms)
        reader.is_busy = busy

    def _sample(self, reader: _Reader, now_ms: float) -> None:
        for name, topic in reader.topics.items():
            count = len(self.found.produced[name])
            self.found.samples.append(Sample(reader.name, name, now_ms, topic.taken, 0, topic.taken, count))
        self.found.used.append(Used(reader.name, now_ms, reader.cpu_ms / 1e3))
        self._at(now_ms + SAMPLE_MS, lambda then_ms: self._sample(reader, then_ms))


def run(workload: Workload, experiment: str, readings: Readings | None, seed: int, length_s: float) -> Found:
    """Run an experiment.

    Args:
        workload: the workload file.
        experiment: one of ``workload.EXPERIMENTS``.
        readings: the interpretation of the layer's text, or None for readers without the layer.
        seed: determines the times of all messages.
        length_s: the length of the run, in virtual seconds.
    """
    return _Run(workload, experiment, readings, seed, length_s).run()
