"""Run one world from its beginning to its end, and return its row of figures.

Owns: the order of phases and faults in a world. Must never: touch a file, or compare cells.

A world begins with a built overlay. For ``SETTLE_S`` seconds, the protocol does its exchanges over new links. Then each
sender broadcasts a first message, which makes a tree and has its own figures. (If all nodes send, at most one node does
so.) After a pause, the senders broadcast the messages that count.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from statistics import fmean
from typing import Any, Final

from ingeborg.bench.overlay import metrics
from ingeborg.bench.overlay.cases import ALL, UNREPAIRED, Cell
from ingeborg.bench.overlay.log import Phase
from ingeborg.bench.overlay.making import facts_of, join, left_of, neighbours_in, world_of
from ingeborg.bench.overlay.metrics import Life, Traffic
from ingeborg.bench.overlay.tally import Tally
from ingeborg.bench.overlay.wheel import SLOT_S
from ingeborg.bench.overlay.world import EndlessError

Row = dict[str, Any]

SETTLE_S: Final = 2.0

FIRST_S: Final = 0.25
"""Seconds between the first messages of two senders. A flood of 1 MB occupies a host at Rennes for 0.1 s."""

STEP_S: Final = 0.1
QUIET_S: Final = 5.0
"""A run ends when no payload has been under way for this time. The longest wait before a protocol requests a missing
message is shorter: grove waits 4 s at a gap in a link."""

DRAIN_S_MAX: Final = 60.0
"""The longest wait at the end of a run. A node that still lacks a message after this time counts as not having
received it."""

FAULT_AT_S, FAULT_S = 2.0, 5.0
"""The fault begins ``FAULT_AT_S`` seconds after the first counted message. A cut lasts ``FAULT_S`` seconds. Messages
within ``FAULT_S`` seconds after a crash have their own figures."""

SAMPLED: Final = 20
"""Number of nodes whose memory is measured."""

FIRST, RUN, DURING, AFTER = "first", "run", "during", "after"
"""Phases of messages: the first message of each sender, and the counted messages. Under faults, the messages during and
after the fault have their own phases."""


ENDED, ENDLESS, TIMERS_GO_ON = "ended", "more events than the limit", "timers restart forever"
"""How a run of a protocol as printed can end. If the protocol raised an error, the end is the name of the error."""


class Run:
    """A cell's world, and its notes. ``phases``: the phases of its log. ``mark``: the slot in which the fault ended.
    ``end``: how the run ended."""

    def __init__(self, cell: Cell) -> None:
        self.cell = cell
        self.chance = Random(f"cell {cell.seed} {cell.nodes}")
        self.world = world_of(cell)
        self.tally = Tally(cell.protocol)
        self.phases: list[Phase] = []
        self.mark: int | None = None
        self.end = ENDED
        self._senders = self._drawn_senders()
        self._sent = 0

    def go(self) -> None:
        """Run the world from the beginning to the end. A protocol that lacks a repair may not end, or may raise an
        error. That is the result of the run, and the row contains the figures until then."""
        try:
            self._go()
        except (EndlessError, LookupError, AssertionError) as error:
            if not self.cell.without:
                raise
            self.end = ENDLESS if isinstance(error, EndlessError) else type(error).__name__

    def _go(self) -> None:
        cell, world = self.cell, self.world
        self._until("settle", "connect", world.now_s + SETTLE_S)
        if cell.first:
            self._first()
        world.tap = self.tally.count
        faults = {"crash": self._crash, "cut": self._cut, "churn": self._churn}
        (faults[cell.faults] if cell.faulty else self._plain)()

    def lives(self) -> list[Life]:
        """Return the lives of all nodes in the world so far."""
        return [Life(place.linked_at, place.alive) for place in self.world.places]

    def row(self) -> Row:
        """Return the row of figures to store."""
        world, record = self.world, self.world.record
        lives = self.lives()
        traffic = dict.fromkeys((phase.name for phase in self.phases), Traffic())
        for phase, drain in zip(self.phases, [*self.phases[1:], None], strict=True):
            # Copies that are still under way at the end of a phase count in that phase.
            end = drain.after if drain is not None and drain.kind == "drain" else phase.after
            traffic[phase.name] = end.since(phase.before)
        traffic.setdefault(RUN, Traffic())  # a run can end before its counted messages
        found = {
            name: metrics.figures(record, name, lives, traffic[name], self.cell.payload_bytes)
            for name in (FIRST, RUN, DURING, AFTER)
            if name in traffic
        }
        up = [number for number, life in enumerate(lives) if life.up]
        neighbours = {one: neighbours_in(world, one) for one in up}
        parts = metrics.islands(neighbours.__getitem__, up)
        return {
            **self.cell.facts(),
            "phases": found,
            "redundancy": self._redundancy(),
            "violations": record.violations,
            "named": [[each.node, *_names(self, each.message), each.slot] for each in record.named],
            "doubles": record.doubles,
            "unknown": record.unknown,
            "settled_s": self._settled_s(),
            "up": len(up),
            "islands": len(parts),
            "greatest_island": parts[0] if parts else 0,
            "isolated": sum(not others for others in neighbours.values()),
            "registry_reads": world.registry_reads,
            "events": world.events,
            "virtual_s": round(world.now_s, 4),
            "memory_bytes": self._memory(up),
            "counted": facts_of(world, up),
            "kinds": self.tally.by_name(),
            "entry_bytes": self.tally.entry_bytes(),
            **(self._unrepaired(up) if self.cell.experiment == UNREPAIRED else {}),
        }

    def _unrepaired(self, up: Sequence[int]) -> Row:
        left = left_of(self.world, up)
        return {"end": TIMERS_GO_ON if self.end == ENDED and left["timers"] else self.end, "left": left}

    # Events

    def _drawn_senders(self) -> list[int]:
        if self.cell.senders == ALL:
            return list(range(self.cell.nodes))
        return sorted(self.chance.sample(range(self.cell.nodes), self.cell.senders))

    def _send(self) -> None:
        """Send the next message. The senders take turns. If all nodes are senders, a random node sends."""
        if self.cell.senders == ALL:
            root = self.chance.choice(self._senders)
        else:
            root = self._senders[self._sent % len(self._senders)]
        self._sent += 1
        self.world.broadcast(root, self.cell.payload_bytes)

    def _first(self) -> None:
        begin = self.world.now_s
        self.world.record.phase = FIRST
        count = self.cell.first
        for number in range(count):
            self.world.at(begin + number * FIRST_S, self._send)
        self._until(FIRST, "run", begin + count * FIRST_S, 1 / FIRST_S)
        self._drain("pause")
        self._sent = 0

    def _schedule(self, begin_s: float, count: int) -> float:
        """Schedule this number of messages from ``begin_s`` on, and return the time one interval after the last
        message."""
        interval = self.cell.interval_ms / 1e3
        for number in range(count):
            self.world.at(begin_s + number * interval, self._send)
        return begin_s + count * interval

    def _plain(self) -> None:
        self.world.record.phase = RUN
        self._until(RUN, "run", self._schedule(self.world.now_s, self.cell.broadcasts), self._rate)
        self._drain("drain")

    def _crash(self) -> None:
        victims = self.chance.sample(range(self.cell.nodes), round(self.cell.share * self.cell.nodes))
        self._faulted(lambda: self._all_go(victims), lambda: None, at_once=True)

    def _all_go(self, victims: Sequence[int]) -> None:
        for victim in victims:
            self.world.crash(victim)

    def _cut(self) -> None:
        side = dict.fromkeys(self.chance.sample(range(self.cell.nodes), self.cell.nodes // 2))
        self._faulted(lambda: self.world.cut(lambda node: node in side), self.world.heal, at_once=False)

    def _faulted(self, begin: Callable[[], None], end: Callable[[], None], at_once: bool) -> None:
        """Send messages before, during and after a fault. ``at_once``: whether the fault itself is instantaneous and
        only its effect lasts."""
        world, start = self.world, self.world.now_s
        last = self._schedule(start, self.cell.broadcasts)
        world.record.phase = RUN
        self._until(RUN, "run", start + FAULT_AT_S, self._rate)
        world.record.phase = DURING
        begin()
        if at_once:
            self.mark = world.wheel.now
        self._until(DURING, "run", start + FAULT_AT_S + FAULT_S, self._rate)
        end()
        if not at_once:
            self.mark = world.wheel.now
        world.record.phase = AFTER
        self._until(AFTER, "run", max(last, world.now_s + STEP_S), self._rate)
        self._drain("drain")

    def _churn(self) -> None:
        """Distribute crashes and joins evenly over time. Senders do not crash, so that every message is due."""
        world, start = self.world, self.world.now_s
        last = self._schedule(start, self.cell.broadcasts)
        world.record.phase = RUN
        stay = dict.fromkeys(self._senders)
        every = 1 / (self.cell.share * self.cell.nodes)
        for number in range(round((last - start) / every)):
            world.at(start + number * every, self._one_goes, stay)
            world.at(start + (number + 0.5) * every, self._one_comes)
        self._until(RUN, "run", last, self._rate)
        self._drain("drain")

    def _one_goes(self, stay: dict[int, None]) -> None:
        while True:
            victim = self.chance.randrange(len(self.world.places))
            if self.world.places[victim].alive and victim not in stay:
                self.world.crash(victim)
                return

    def _one_comes(self) -> None:
        join(self.world)

    # Phases

    @property
    def _rate(self) -> float:
        return 1e3 / self.cell.interval_ms

    def _until(self, name: str, kind: str, until_s: float, rate: float | None = None) -> None:
        before, start = self._traffic(), self.world.wheel.now
        try:
            self.world.run(until_s)
        finally:
            self._note(name, kind, start, before, rate)

    def _drain(self, name: str) -> None:
        """Run until no payload has been under way for a while."""
        world = self.world
        before, start = self._traffic(), world.wheel.now
        end, quiet = world.now_s + DRAIN_S_MAX, 0.0
        while quiet < QUIET_S and world.now_s < end:
            sent = world.payload_bytes
            world.run(world.now_s + STEP_S)
            quiet = 0.0 if world.under_way or world.payload_bytes != sent else quiet + STEP_S
        self._note(name, "drain", start, before, None)

    def _note(self, name: str, kind: str, start: int, before: Traffic, rate: float | None) -> None:
        measured = name in (RUN, DURING, AFTER)
        end = self.world.wheel.now
        self.phases.append(Phase(name, kind, start, end, measured, before, self._traffic(), rate))

    def _traffic(self) -> Traffic:
        world = self.world
        return Traffic(world.messages, world.payload_bytes, world.control_bytes)

    # Figures of the whole run

    def _redundancy(self) -> float:
        """Return the RMR of all counted messages together, because under faults some copies of a phase's messages are
        sent in the next phase."""
        record = self.world.record
        before = next((phase.before for phase in self.phases if phase.name == RUN), self._traffic())
        copies = (self._traffic().payload_bytes - before.payload_bytes) / self.cell.payload_bytes
        others = sum(
            record.number_got(index) - 1 for index, message in enumerate(record.messages) if message.phase != FIRST
        )
        return round(copies / others - 1, metrics.DIGITS) if others else 0.0

    def _settled_s(self) -> float | None:
        """Return the time from the fault's end to the last delivery of a message sent before that end. It is 0 if no
        such delivery came after the fault, and ``None`` if there was no fault."""
        if self.mark is None:
            return None
        record = self.world.record
        last = self.mark
        for slot, index in zip(record.slots, record.indices, strict=True):
            if slot > last and record.messages[index].at <= self.mark:
                last = slot
        return round((last - self.mark) * SLOT_S, 4)

    def _memory(self, up: Sequence[int]) -> int:
        """Return the mean memory of some living nodes, in bytes."""
        sample = Random(f"memory {self.cell.seed}").sample(up, min(SAMPLED, len(up)))
        places = self.world.places
        shared = [self.world, self.world.chance_of_nodes, *places]
        return round(fmean(metrics.memory_bytes(places[one].node, shared) for one in sample)) if sample else 0


def _names(run_of: Run, index: int) -> tuple[int, int]:
    message = run_of.world.record.messages[index]
    return message.root, message.number
