"""A group without Kafka: controllers, members, a scaler, a monitor and a sink, in one simulated time.

Owns: their connections, and the failures. Must never: check anything except the sink's content.

Messages travel as in Kafka: each number has its own log, and each reader has an offset in it. A paused program does
nothing, and resumes with the same state. The caller provides randomness.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from random import Random

from ingeborg.autoscaler.controller import Controller
from ingeborg.autoscaler.effects import Note, Resign, Scale, Tell
from ingeborg.autoscaler.membership import Membership
from ingeborg.autoscaler.model import Flow, Message, Queue, Reign, Speeds, decode, encode
from ingeborg.autoscaler.scalers.base import Running
from ingeborg.autoscaler.settings import GroupSettings

STEP_S = 0.5
BEAT_S = 2.0

SETTINGS = GroupSettings(
    name="g",
    members_max=6,
    members_min=1,
    capacity_bytes_per_s=120.0,
    look_s=5.0,
    down_cooldown_s=60.0,
    start_s=20.0,
    answer_s=3.0,
    stop_s=12.0,
    lost_s=8.0,
    topics=("t",),
)


class Sink:
    """A sink as ``sinks.base`` requires. ``taken``: (epoch, member, first, after the last) for each queue."""

    def __init__(self) -> None:
        self.epochs: dict[Queue, int] = {}
        self.taken: dict[Queue, list[tuple[int, str, int, int]]] = {}
        self.refused = 0

    def open(self, queue: Queue, epoch: int) -> int | None:
        """Return the offset to continue from; ``None``: refused."""
        if epoch < self.epochs.get(queue, 0):
            self.refused += 1
            return None
        self.epochs[queue] = epoch
        taken = self.taken.setdefault(queue, [])
        return taken[-1][3] if taken else 0

    def append(self, queue: Queue, epoch: int, member: str, first: int, behind: int) -> bool:
        """Return whether the sink accepts the batch."""
        if epoch < self.epochs.get(queue, 0):
            self.refused += 1
            return False
        self.taken[queue].append((epoch, member, first, behind))
        return True


class SimulatedMember:
    """A member program. ``has_read``: records fetched and not in the sink, by queue."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.core = Membership(name, f"{name}-{world.serial()}", 0.0)
        self.joining_from = len(world.logs[0])
        self.places: dict[int, int] = {}
        self.is_paused = False
        self.beats_at_s = world.now_s
        self.has_read: dict[Queue, tuple[int, int]] = {}
        self.is_ending = False

    def step(self) -> None:
        """Run one cycle: send the fetched records, follow the controller, then fetch."""
        world, core = self.world, self.core
        for queue, (first, behind) in self.has_read.items():
            holding = core.held.get(queue)
            if holding is None or not holding.is_open:
                continue
            if world.sink.append(queue, holding.epoch, self.name, first, behind):
                holding.next = behind
            else:
                core.refused(queue, world.sink.epochs[queue])
        self.has_read.clear()
        self._listen()
        core.closed()
        for queue in sorted(core.opening):
            holding = core.held[queue]
            next = world.sink.open(queue, holding.epoch)
            if next is None:
                core.refused(queue, world.sink.epochs[queue])
            else:
                core.opened(queue, holding.epoch, next)
        if self.is_ending:
            world.say(core.bye())
            del world.members[self.name]
            return
        for queue, holding in core.held.items():
            end = int(world.produced.get(queue, 0.0))
            if holding.is_open and end > holding.next:
                self.has_read[queue] = (holding.next, end)
        if world.now_s >= self.beats_at_s:
            self.beats_at_s = world.now_s + BEAT_S
            if core.number:
                core.beat()
            else:
                world.say(core.hello())
        for message in core.take():
            world.say(message)

    def _listen(self) -> None:
        core, logs = self.core, self.world.logs
        while self.joining_from < len(logs[0]):
            core.welcomed(decode(logs[0][self.joining_from]))
            self.joining_from += 1
        if core.number and core.number not in self.places:
            self.places = {core.number: len(logs[core.number])}
        while core.number and self.places[core.number] < len(logs[core.number]):
            number = core.number
            core.told(decode(logs[number][self.places[number]]))
            self.places[number] += 1
            if core.number != number:
                self.joining_from = len(logs[0])
                self.places = {core.number: len(logs[core.number])} if core.number else {}


class SimulatedController:
    """A controller program. It has its own clock: days ahead of the previous one's, or behind it."""

    def __init__(self, world: World) -> None:
        self.world = world
        serial = world.serial()
        self.ahead_s = serial % 3 * 86_400.0
        name = f"controller-{serial}"
        self.core = Controller(world.settings, 2 * world.settings.members_max, name)
        place = len(world.logs[0])
        world.logs[0].append(encode(Reign(name, 0)))
        self.core.begin(self.now_s, place)
        self.place = place + 1
        self.is_paused = False
        self.is_over = False
        #: Orders that it gives before it is killed in the middle of a step; ``None``: it is not killed.
        self.orders_left: int | None = None
        self.asked_at_s = 0.0

    @property
    def now_s(self) -> float:
        """Return the time of its clock."""
        return self.world.now_s + self.ahead_s

    def step(self, effects_max: int | None = None) -> None:
        """Process new messages, and carry out the effects. If ``effects_max`` is given, carry out only that many, then
        die."""
        world, core = self.world, self.core
        while self.place < len(world.logs[0]):
            core.heard(self.now_s, (decode(world.logs[0][self.place]), self.place))
            self.place += 1
        for message in world.measurements:
            core.heard(self.now_s, (decode(message), 0))
        if world.now_s >= self.asked_at_s:
            self.asked_at_s = world.now_s + 1.0
            if world.scaler.fails:
                core.scaler_failed(self.now_s, "it does not answer")
            else:
                core.running(self.now_s, world.scaler.running())
        core.tick(self.now_s)
        effects = core.take()
        for effect in effects if effects_max is None else effects[:effects_max]:
            if self.orders_left is not None and isinstance(effect, Tell | Scale):
                self.orders_left -= 1
                if self.orders_left < 0:
                    self.is_over = True
                    return
            match effect:
                case Tell(number, order):
                    world.logs[number].append(encode(order))
                case Scale(count, leaving):
                    world.scaler.scale(count, leaving)
                case Resign():
                    self.is_over = True
                case Note():
                    world.notes.append((world.now_s, effect))


class Scaler:
    """A scaler that starts members after ``start_s``. ``lies``: it reports success, and does nothing."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.starting: list[tuple[float, str]] = []
        self.start_s = 2.0
        self.fails = False
        self.lies = False
        self.orders: list[int] = []

    def running(self) -> Running:
        """Return the running members."""
        names = frozenset([*self.world.members, *(name for _, name in self.starting)])
        return Running(len(names), names)

    def scale(self, count: int, leaving: tuple[str, ...]) -> None:
        """Start members, or end some that leave."""
        if self.fails:
            return
        self.orders.append(count)
        if self.lies:
            return
        running = len(self.world.members) + len(self.starting)
        for _ in range(count - running):
            self.starting.append((self.world.now_s + self.start_s, f"m{self.world.serial()}"))
        for name in leaving[: max(running - count, 0)]:
            member = self.world.members.get(name)
            if member is not None and not member.is_paused:
                member.is_ending = True
            elif member is not None:
                del self.world.members[name]  # it does not end, so the scaler kills it

    def step(self) -> None:
        """Start the members that are due."""
        for at_s, name in list(self.starting):
            if self.world.now_s >= at_s:
                self.starting.remove((at_s, name))
                self.world.members[name] = SimulatedMember(self.world, name)


class World:
    """The whole simulation."""

    def __init__(self, queues: int, chance: Random, **changes: object) -> None:
        self.settings = dataclasses.replace(SETTINGS, **changes)  # type: ignore[arg-type]
        self.chance = chance
        self.now_s = 0.0
        self._serial = 0
        self.logs: list[list[bytes]] = [[] for _ in range(2 * self.settings.members_max + 1)]
        self.sink = Sink()
        self.members: dict[str, SimulatedMember] = {}
        self.zombies: list[SimulatedMember] = []
        self.scaler = Scaler(self)
        self.notes: list[tuple[float, Note]] = []
        self.speeds: dict[Queue, float] = {Queue("t", partition): 10.0 for partition in range(queues)}
        self.produced: dict[Queue, float] = dict.fromkeys(self.speeds, 0.0)
        self.measurements: list[bytes] = []
        self.has_monitor = True
        self.missing: tuple[str, ...] = ()
        self._measured = 0
        self.controllers = [SimulatedController(self)]

    @property
    def controller(self) -> SimulatedController:
        """Return the newest controller."""
        return self.controllers[-1]

    def serial(self) -> int:
        """Return an unused number."""
        self._serial += 1
        return self._serial

    def say(self, message: Message) -> None:
        """Send a message to the controller."""
        self.logs[0].append(encode(message))

    def replace_controller(self) -> None:
        """Start another controller. The previous one does not learn of this."""
        self.controllers.append(SimulatedController(self))

    def step(self) -> None:
        """Advance by half a second."""
        self.now_s += STEP_S
        for queue, speed in self.speeds.items():
            self.produced[queue] = self.produced.get(queue, 0.0) + speed * STEP_S
        self.measurements = []
        if self.has_monitor and self.now_s % 1.0 == 0.0:
            self._measured += 1
            flows = tuple(Flow(queue, speed, 0.0) for queue, speed in sorted(self.speeds.items()))
            half = len(flows) // 2
            for part, some in enumerate((flows[:half], flows[half:])):
                speeds = Speeds("monitor", self._measured, part, 2, 30.0, some, self.missing)
                self.measurements.append(encode(speeds))
        self.scaler.step()
        programs: list[SimulatedController | SimulatedMember] = [
            *(each for each in self.controllers if not each.is_over),
            *self.members.values(),
        ]
        self.chance.shuffle(programs)
        for program in programs:
            if not program.is_paused:
                program.step()

    def run(self, seconds: float, until: Callable[[], bool] = lambda: False) -> None:
        """Run for this time, or until the condition holds."""
        for _ in range(int(seconds / STEP_S)):
            if until():
                return
            self.step()

    def owners(self) -> dict[Queue, set[str]]:
        """Return the members that would read a queue without a refusal from the sink."""
        found: dict[Queue, set[str]] = {queue: set() for queue in self.speeds}
        for member in self.members.values():
            for queue, holding in member.core.held.items():
                if holding.is_open and holding.epoch >= self.sink.epochs.get(queue, 0):
                    found.setdefault(queue, set()).add(member.name)
        return found

    def is_settled(self) -> bool:
        """Return whether each queue has one owner, and the controller is idle."""
        return self.controller.core.state == "watching" and all(len(names) == 1 for names in self.owners().values())

    def events(self) -> list[str]:
        """Return the events of all notes."""
        return [note.event for _, note in self.notes]
