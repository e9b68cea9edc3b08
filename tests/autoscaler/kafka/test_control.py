"""The controller as a program, with a real Kafka and alone: its messages, and the causes of its end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, TypeVar

import pytest

from ingeborg.autoscaler.controller import Controller
from ingeborg.autoscaler.effects import Note, Tell
from ingeborg.autoscaler.kafka import connecting, control
from ingeborg.autoscaler.kafka.channel import (
    Incoming,
    Outgoing,
    Received,
    ensure_topics,
    incoming,
    outgoing,
)
from ingeborg.autoscaler.kafka.connecting import KafkaProblem
from ingeborg.autoscaler.kafka.control import Control, Resigned
from ingeborg.autoscaler.model import (
    Beat,
    Bye,
    Flow,
    Hello,
    Message,
    Queue,
    Reign,
    Speeds,
    Start,
    Started,
    Welcome,
)
from ingeborg.autoscaler.scalers.base import Running, ScalerError
from ingeborg.autoscaler.settings import GroupSettings, Settings
from tests.loadgen.backends.conftest import PATIENCE_S, Server

from .conftest import Cluster
from .test_monitor import Heard, heard

__all__ = ["heard"]  # a fixture

#: Seconds of one read from a topic.
LOOK_S = 0.1
ONE = Queue("orders", 0)

M = TypeVar("M", bound=Message)


class FakeScaler:
    """A scaler that reports these members. ``orders``: the orders it got; ``words``: why it fails."""

    def __init__(self) -> None:
        self.names: frozenset[str] = frozenset()
        self.orders: list[tuple[int, tuple[str, ...]]] = []
        self.words = ""
        self.calls = 0
        self._changed = asyncio.Event()

    async def running(self) -> Running | None:
        """See ``base.Scaler``."""
        self._called()
        return Running(len(self.names), self.names)

    async def scale(self, count: int, leaving: Sequence[str]) -> None:
        """See ``base.Scaler``."""
        self.orders.append((count, tuple(leaving)))
        self._called()

    async def close(self) -> None:
        """See ``base.Scaler``."""

    def _called(self) -> None:
        self.calls += 1
        self._changed.set()
        if self.words:
            raise ScalerError(self.words)

    async def order(self, count: int) -> tuple[str, ...]:
        """Wait for an order for this number; return the leaving members."""
        async with asyncio.timeout(PATIENCE_S):
            while not self.orders or self.orders[-1][0] != count:
                self._changed.clear()
                await self._changed.wait()
        return self.orders[-1][1]

    async def asked(self, times: int) -> None:
        """Wait for this number of further calls."""
        until = self.calls + times
        async with asyncio.timeout(PATIENCE_S):
            while self.calls < until:
                self._changed.clear()
                await self._changed.wait()


class Group:
    """A running controller; the test plays everybody else."""

    def __init__(self, scaler: FakeScaler, controller: Controller, heard: Incoming, says: Outgoing, speeds: Outgoing):
        self.scaler = scaler
        self.controller = controller
        self.notes: list[Note] = []
        self._heard = heard
        self._says = says
        self._speeds = speeds
        self._messages: list[tuple[int, Message]] = []
        self.task: asyncio.Task[None]

    async def hear(self, kind: type[M], at: int, **fields: Any) -> M:
        """Return the next message of this kind in this partition, with these fields. Keep messages in other
        partitions."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                for each in self._messages:
                    number, message = each
                    if number != at or not isinstance(message, kind):
                        continue
                    if all(getattr(message, key) == value for key, value in fields.items()):
                        self._messages.remove(each)
                        return message
                received = await self._heard.take(LOOK_S)
                self._messages += [(each.partition, each.message) for each in received]
                if not received and self.task.done():
                    self.task.result()

    async def say(self, message: Message) -> None:
        await self._says.send(0, message)

    async def measured(self, **speeds: float) -> None:
        """Send speeds of the topic's partitions: ``p0=100.0``."""
        flows = tuple(Flow(Queue("orders", int(name[1:])), speed, 0.0) for name, speed in speeds.items())
        await self._speeds.send(0, Speeds("monitor", 1, 0, 1, 30.0, flows, ()))

    async def join(self, name: str) -> int:
        """Add a member, and return its number."""
        await self.say(Hello(name, f"{name}-nonce", 0.0))
        welcome = await self.hear(Welcome, 0, name=name)
        assert (welcome.nonce, welcome.term) == (f"{name}-nonce", self.controller.term)
        await self.say(Beat(name, f"{name}-nonce", welcome.number, welcome.term, 0, 1, 0.0, ()))
        return welcome.number


@asynccontextmanager
async def group(
    cluster: Cluster, settings: Settings, name: str = "c", timeout_s: float = PATIENCE_S
) -> AsyncIterator[Group]:
    """Run a controller of the test's own group."""
    settings = replace(
        settings,
        group=replace(settings.group, name=cluster.name, capacity_bytes_per_s=100.0, fill=1.0, catch_up_s=0.0),
    )
    await ensure_topics(settings)
    options = {**cluster.options, "request_timeout_ms": int(timeout_s * 1e3)}
    topic = settings.metadata_topic
    async with (
        incoming(options, topic) as inbox,
        incoming(options, settings.speeds_topic) as speeds,
        outgoing(options, topic) as orders,
        incoming(cluster.options, topic) as heard,
        outgoing(cluster.options, topic) as says,
        outgoing(cluster.options, settings.speeds_topic) as measures,
    ):
        await heard.read_from(dict.fromkeys(range(settings.numbers_max + 1), 0))
        scaler = FakeScaler()
        controller = Controller(settings.group, settings.numbers_max, name)
        found = Group(scaler, controller, heard, says, measures)
        program = Control(controller, name, scaler, inbox, speeds, orders, lambda _, note: found.notes.append(note))
        found.task = asyncio.create_task(program.run())
        try:
            await found.hear(Reign, settings.numbers_max, controller=name)
            yield found
        finally:
            found.task.cancel()
            await asyncio.wait([found.task], timeout=PATIENCE_S)


async def test_a_group_comes_to_be(cluster: Cluster, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control, "_ASK_S", 0.05)
    async with group(cluster, settings) as found:
        place = await found.hear(Reign, 0)
        assert place.term == 0
        assert (await found.hear(Reign, 1)).term == found.controller.term == 1  # after its offset, 0
        await found.measured(p0=60.0, p1=60.0)
        assert await found.scaler.order(2) == ()
        found.scaler.names = frozenset(["a", "b"])
        numbers = [await found.join(name) for name in ("a", "b")]
        assert sorted(numbers) == [1, 2]
        owned = set()
        for name, number in zip(("a", "b"), numbers, strict=True):
            start = await found.hear(Start, number, name=name)
            owned |= {*start.queues}
            await found.say(Started(name, number, start.term, start.epoch, start.queues))
        assert owned == {ONE, Queue("orders", 1)}
        async with asyncio.timeout(PATIENCE_S):
            while "settled" not in [note.event for note in found.notes]:
                await found.scaler.asked(2)
        picture = found.controller.picture()
        assert (picture.state, picture.unowned, picture.running) == ("watching", 0, 2)
        # Both queues exceed one member's capacity: the queue of a member that ends goes to the next new one.
        await found.say(Bye("b", "b-nonce", numbers[1]))
        found.scaler.names = frozenset(["a", "c"])
        number = await found.join("c")
        start = await found.hear(Start, number, name="c")
        assert len(start.queues) == 1
        decided = [note for note in found.notes if note.event == "decided"]
        assert all(note.seconds is not None and 0.0 <= note.seconds < PATIENCE_S for note in decided)
        scaled = [note.seconds for note in found.notes if note.event == "scaled"]
        assert scaled
        assert None not in scaled


async def test_what_was_there_before_it_is_not_heard(cluster: Cluster, settings: Settings) -> None:
    async with group(cluster, settings, "first") as found:
        await found.join("a")
    async with group(cluster, settings, "second") as found:
        await found.join("b")
        assert [bar.name for bar in found.controller.picture().bars] == ["b"]
        assert found.controller.term > 1


async def test_a_newer_controller_ends_it(cluster: Cluster, settings: Settings) -> None:
    async with group(cluster, settings, "old") as old, group(cluster, settings, "new") as new:
        async with asyncio.timeout(PATIENCE_S):
            [done] = (await asyncio.wait([old.task]))[0]
        error = done.exception()
        assert isinstance(error, ExceptionGroup)
        resigned, rest = error.split(Resigned)
        assert rest is None
        assert resigned is not None
        assert "a newer controller has begun: new" in str(resigned.exceptions[0])
        await new.join("a")
        assert not new.task.done()
        assert new.controller.term > old.controller.term


async def test_a_scaler_that_fails_is_asked_again(
    cluster: Cluster, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control, "_ASK_S", 0.05)
    async with group(cluster, settings) as found:
        found.scaler.words = "it is out"
        await found.scaler.asked(2)
        failures = found.controller.staff.failures
        assert failures >= 2
        assert any("it is out" in note.words for note in found.notes)
        await found.join("a")
        found.scaler.words, found.scaler.names = "", frozenset(["a"])
        await found.scaler.asked(2)
        assert found.controller.picture().running == 1


async def test_while_kafka_does_not_answer_it_goes_on_and_says_so_once(
    cluster: Cluster, settings: Settings, kafka: Server, heard: Heard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connecting, "_CLOSE_S", 0.5)
    async with group(cluster, settings, timeout_s=1.0) as found:
        number = await found.join("a")
        kafka.pause()
        try:
            # The controller does the same on ticks; the test does not wait for that.
            found.controller._notes.add(Tell(number, Reign("c", found.controller.term)))
            await heard.has("cannot write to topic")
            assert not found.task.done()
        finally:
            kafka.resume()
        await found.join("b")
        await heard.has("Kafka answers again")
        assert sum("cannot write to topic" in line for line in heard.lines) == 1


# Without Kafka: cases that a real one does not produce on demand


class GivenMessages(Incoming):
    """Messages from the test. ``places``: the requested offsets."""

    def __init__(self) -> None:
        self.given: asyncio.Queue[Received] = asyncio.Queue()
        self.places: dict[int, int | None] = {}

    async def read_from(self, places: Mapping[int, int | None]) -> None:
        """See ``Incoming``."""
        self.places = dict(places)

    async def take(self, wait_s: float) -> list[Received]:
        """See ``Incoming``; it waits for a message."""
        return [await self.given.get()]


class TriedOrders(Outgoing):
    """Collects messages in ``tried``. ``words``: why it accepts nothing."""

    def __init__(self, words: str = "") -> None:
        self.words = words
        self._tried: asyncio.Queue[list[tuple[int, Message]]] = asyncio.Queue()

    async def send(self, partition: int, message: Message) -> int:
        """See ``Outgoing``: it is the 42nd message."""
        return 41

    async def put(self, messages: Sequence[tuple[int, Message]]) -> None:
        """See ``Outgoing``."""
        self._tried.put_nowait([*messages])
        if self.words:
            raise KafkaProblem(self.words)

    async def tried(self) -> list[tuple[int, Message]]:
        """Return the next batch of messages."""
        async with asyncio.timeout(PATIENCE_S):
            return await self._tried.get()


class Alone:
    """A controller at time 12.5 s, with only doubles around it."""

    def __init__(self, words: str = "") -> None:
        settings = GroupSettings(members_max=4, capacity_bytes_per_s=1e6)
        self.controller = Controller(settings, 4, "c")
        self.inbox, self.speeds, self.orders = GivenMessages(), GivenMessages(), TriedOrders(words)
        self.notes: list[tuple[float, Note]] = []
        self.program = Control(
            self.controller,
            "c",
            FakeScaler(),
            self.inbox,
            self.speeds,
            self.orders,
            lambda at_s, note: self.notes.append((at_s, note)),
            lambda: 12.5,
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator[asyncio.Task[None]]:
        """Run the controller until the end of the block."""
        task = asyncio.create_task(self.program.run())
        try:
            yield task
        finally:
            task.cancel()
            await asyncio.wait([task], timeout=PATIENCE_S)


async def test_it_begins_behind_its_own_reign_tells_notes_with_their_time_and_ends_for_a_newer_one() -> None:
    alone = Alone()
    async with alone.running() as task:
        assert await alone.orders.tried() == [(number, Reign("c", 42)) for number in range(1, 5)]
        assert (alone.inbox.places, alone.speeds.places) == ({0: 42}, {0: None})
        alone.inbox.given.put_nowait(Received(0, 43, Reign("newer", 0)))
        async with asyncio.timeout(PATIENCE_S):
            await asyncio.wait([task])
        error = task.exception()
    assert isinstance(error, ExceptionGroup)
    assert error.subgroup(Resigned) is not None
    assert alone.notes[0][1].event == "synchronizing"
    assert {at_s for at_s, _ in alone.notes} == {12.5}


async def test_orders_that_kafka_does_not_take_are_dropped_and_that_is_said_once(
    heard: Heard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control, "_ASK_S", 0.01)
    monkeypatch.setattr(control, "_SEND_MAX", 1)
    alone = Alone("it is gone")
    async with alone.running():
        assert await alone.orders.tried() == [(1, Reign("c", 42))]  # those for 2, 3 and 4 go along
        alone.controller._notes.add(Tell(3, Reign("c", 42)))
        assert await alone.orders.tried() == [(3, Reign("c", 42))]
        alone.orders.words = ""
        alone.inbox.given.put_nowait(Received(0, 42, Hello("a", "a-nonce", 0.0)))
        assert await alone.orders.tried() == [(0, Welcome("a", "a-nonce", 1, 42))]
    assert heard.lines.count("it is gone") == 1
    assert heard.lines.count("Kafka answers again") == 1
