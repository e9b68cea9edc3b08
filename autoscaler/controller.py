"""The controller turns reports from the members, the monitor and the scaler into orders for the members and the scaler.

Owns: the list of members, the controller's term, and the order of its steps. Must never: read a clock, wait, or call
Kafka. The caller passes the time to the controller, and carries out the effects that the controller returns.

This module implements the state machine of the paper (arXiv 2402.06085, section V-C, figure 4), but not as a sequence
of steps. At each event, it compares the current owners (``owners``) with the planned owners (``sentinel``), and acts on
the difference. So a crash at any point is harmless, because the next controller asks the members which queues they own,
and continues from there. From outside, this looks like the states of the paper:

- *Synchronize* (``synchronizing``): at least one member has not reported its queues yet.
- *Sentinel* (``watching``): every queue has its planned owner.
- *Reassign*: the controller makes a decision. It does so within one step, so this state is never visible.
- *Group Management* (``managing``): a queue is not with its planned owner, or a member is about to join or leave.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Final

from .effects import Bar, Effect, Notes, Picture, Resign, Share, Tell
from .model import (
    EPOCHS_PER_TERM,
    Beat,
    Bye,
    Held,
    Hello,
    Message,
    Queue,
    Refused,
    Reign,
    Speeds,
    Started,
    Stop,
    Stopped,
    Welcome,
)
from .owners import OWNED, Owners
from .scalers.base import Running
from .sentinel import SETTLE_S, Sentinel
from .settings import GroupSettings
from .staff import Staff

SYNCHRONIZING: Final = "synchronizing"
WATCHING: Final = "watching"
MANAGING: Final = "managing"

#: If two ticks are more than this many seconds apart, the controller itself was paused, and the members' silence in
#: that time does not count.
PAUSE_S: Final = 2.0
#: The sizes of the queues are stale after this many seconds without a measurement.
STALE_S: Final = 60.0
#: If no message arrives for this many seconds, not even from the monitor, the controller blames Kafka and not the
#: members. The limit is at most half of ``lost_s``. Otherwise, members would count as lost before the controller blames
#: Kafka.
DEAF_S: Final = 5.0
#: The controller remembers at most this many nonces of replaced programs, and at most this many names that two programs
#: share.
REPLACED_MAX: Final = 1_000
#: Seconds between two of the controller's heartbeats to members.
AGAIN_S: Final = 20.0


@dataclass
class Member:
    """A program to which the controller has given a number. ``is_ready``: whether the program has reported its queues
    to this controller."""

    name: str
    nonce: str
    number: int
    capacity: float
    heard_s: float
    is_ready: bool = False
    beats: list[Beat] = field(default_factory=list)
    rates: dict[Queue, float] = field(default_factory=dict)
    problems: dict[Queue, str] = field(default_factory=dict)


class Controller:
    """Controls one group. Each method takes the time in seconds, from a clock that never goes back. ``take`` returns
    the effects of the calls. ``numbers_max``: the highest number that a member can have. ``name``: identifies this run
    of the program. ``sink``: the fingerprint that members must report (see ``model.Hello``), or ``""`` to accept any
    sink."""

    def __init__(self, settings: GroupSettings, numbers_max: int, name: str, sink: str = "") -> None:
        self._settings = settings
        self._numbers_max = numbers_max
        self._name = name
        self._sink = sink
        self._notes = Notes()
        self.state = SYNCHRONIZING
        self.term = 0
        self._place = 0
        self._epochs = 0
        self._began_s = self._ticked_s = self._shown_s = self._heard_s = 0.0
        self._is_deaf = False
        self._deaf_s = min(DEAF_S, settings.lost_s / 2)
        self._members: dict[str, Member] = {}
        self.owners = Owners(settings.answer_s, settings.stop_s, self._notes)
        self.sentinel = Sentinel(settings, self._notes)
        self.staff = Staff(settings, self._notes)
        self._managing_s: float | None = None
        self._parts: list[Speeds] = []
        self._serial: tuple[str, int] = ("", -1)
        self._measured_s: float | None = None
        self._is_stale = False
        self._missing: tuple[str, ...] = ()
        self._is_full = False
        self._is_over = False
        self._has_other_topics = False
        #: The nonces of programs whose name a newer program has taken, and the names that two live programs share. The
        #: newest entries are last.
        self._replaced: deque[str] = deque(maxlen=REPLACED_MAX)
        self._same_names: deque[str] = deque(maxlen=REPLACED_MAX)
        #: For each monitor that sent a message recently: the times of its first and its last message.
        self._monitors: dict[str, tuple[float, float]] = {}
        self.lost = 0
        #: Number of messages that the controller ignored, mostly because they arrived too late.
        self.stale = 0

    def take(self) -> list[Effect]:
        """Return the effects since the last call."""
        return self._notes.take()

    def _is_known(self, now_s: float, epoch: int) -> None:
        """Take note of an epoch that a member reported. If this controller cannot have assigned the epoch, an earlier
        controller used the same term. This controller then moves to a higher term."""
        if epoch > self.term * EPOCHS_PER_TERM + self._epochs:
            self._above(now_s, epoch // EPOCHS_PER_TERM)

    # Events

    def begin(self, now_s: float, place: int) -> None:
        """Begin this controller's term. ``place``: the offset of its ``Reign`` message in the controller's partition,
        from 0. The term follows from this offset, so it is greater than the term of every earlier controller."""
        self._place = place
        self._reign(now_s, place + 1)
        self._notes.note("synchronizing", f"term {self.term}: asking members which queues they own")

    def _reign(self, now_s: float, term: int) -> None:
        self.term, self._epochs = term, 0
        self._began_s = self._ticked_s = self._shown_s = self._heard_s = now_s
        for number in range(1, self._numbers_max + 1):
            self._notes.add(Tell(number, Reign(self._name, term)))

    def _above(self, now_s: float, term: int) -> None:
        """Move to the term above ``term``. Another program already knows ``term``, which is not below this controller's
        term. This happens if the topic was deleted and recreated, so that its offsets restarted. Even in this case,
        terms must grow."""
        self._notes.trouble("term", f"term {term} was already used, so this controller continues with term {term + 1}")
        self._reign(now_s, term + 1)

    def heard(self, now_s: float, *messages: tuple[Message, int]) -> None:
        """Process a batch of messages for the controller, each with its offset (0 if it has none). The controller
        decides only once, after the batch, because a decision can take a few milliseconds."""
        for message, place in messages:
            self._take_in(now_s, message, place)
        self._turn(now_s)

    def _take_in(self, now_s: float, message: Message, place: int) -> None:
        if self._is_over:
            return
        self._heard_s = now_s
        if self._is_deaf:
            self._is_deaf = False
            self._notes.note("hears", "messages arrive again")
        match message:
            case Hello():
                self._hello(now_s, message)
            case Beat():
                self._beat(now_s, message)
            case Started() | Stopped() | Refused():
                self._answered(now_s, message)
            case Bye():
                self._bye(message)
            case Reign():
                if message.controller != self._name and place > self._place:
                    self._resign(f"a newer controller has begun: {message.controller}")
            case Speeds():
                self._speeds(now_s, message)
            case _:  # sent by the controller itself
                pass

    def _resign(self, why: str) -> None:
        self._is_over = True
        self._notes.add(Resign(why))

    def running(self, now_s: float, running: Running) -> None:
        """Take note of the members that the scaler reports."""
        self.staff.listed(now_s, running, self._members.keys())
        self._turn(now_s)

    def scaler_failed(self, now_s: float, words: str) -> None:
        """Take note that a call to the scaler failed. The controller tries again."""
        self.staff.failed(words)
        self._turn(now_s)

    def tick(self, now_s: float) -> None:
        """Do the work that is due now. The caller must call this much more often than every ``PAUSE_S`` seconds."""
        gap_s = now_s - self._ticked_s
        self._ticked_s = now_s
        if gap_s > PAUSE_S:
            self._heard_s += gap_s
        # A controller without members never counts as deaf, because it has no member to lose. A deaf controller also
        # postpones ``_began_s``. If the scaler lists no names, only the time since ``_began_s`` ends the
        # synchronization, which might then never end.
        is_deaf = now_s - self._heard_s > self._deaf_s and bool(self._members)
        if is_deaf and not self._is_deaf:
            self._is_deaf = True
            self._notes.trouble(
                "deaf", f"no message from any member or monitor for {self._deaf_s:g} s: is Kafka running?"
            )
        if gap_s > PAUSE_S or is_deaf:
            for member in self._members.values():
                member.heard_s += gap_s
            self.owners.paused(gap_s)
            self.staff.paused(gap_s)
            self._began_s += gap_s
        if now_s - self._shown_s >= AGAIN_S:
            self._shown_s = now_s
            for member in self._members.values():
                self._notes.add(Tell(member.number, Reign(self._name, self.term)))
        for member in [each for each in self._members.values() if now_s - each.heard_s > self._settings.lost_s]:
            held = self._gone(member)
            self.staff.lost(member.name)
            self.lost += 1
            self._notes.trouble(
                "lost",
                f"{member.name}, member {member.number}, has been silent for {self._settings.lost_s:g} s, so its "
                f"{held:,} queues go to other members",
            )
        if self._measured_s is not None and now_s - self._measured_s > STALE_S and not self._is_stale:
            self._is_stale = True
            self._notes.trouble(
                "stale", f"no measurement for {STALE_S:g} s: is a monitor running? The queues keep their last sizes"
            )
        self._turn(now_s)

    # Members

    def _hello(self, now_s: float, hello: Hello) -> None:
        member = self._members.get(hello.name)
        if member is not None and member.nonce != hello.nonce:
            if hello.nonce in self._replaced:
                self._same_name(hello.name)
                return
            self._replaced.append(member.nonce)
            self._gone(member)  # a program that was restarted under the same name owns nothing
            member = None
        if member is None:
            member = self._join(now_s, hello, 0)
        if member is not None:
            member.heard_s = now_s
            self._notes.add(Tell(0, Welcome(member.name, member.nonce, member.number, self.term)))

    def _same_name(self, name: str) -> None:
        """Ignore the hello of a program that was replaced and is still alive."""
        self.stale += 1
        if name not in self._same_names:
            self._same_names.append(name)
            self._notes.trouble(
                "same_name",
                f"two programs are called {name}: the controller gives no work to the one that started first. Stop "
                "that program, or restart it with another --name",
            )

    def _join(self, now_s: float, message: Hello | Beat, number: int) -> Member | None:
        name = message.name
        taken = {member.number for member in self._members.values()}
        if not 0 < number <= self._numbers_max or number in taken:
            number = self._free_number(taken)
        if number == 0:
            if not self._is_full:
                self._notes.trouble("full", f"{name} cannot join: all {self._numbers_max} numbers are taken")
            self._is_full = True
            return None
        self._is_full = False
        capacity = message.capacity or self._settings.capacity_bytes_per_s
        member = Member(name, message.nonce, number, capacity, now_s)
        self._members[name] = member
        if message.sink and self._sink and message.sink != self._sink:
            self._notes.trouble(
                "other_sink",
                f"{name} does not write to the sink in this controller's settings file, so its records are stored "
                f"separately from the other members' records. Restart {name} with the same settings file",
            )
        self.staff.joined(name)
        return member

    def _free_number(self, taken: set[int]) -> int:
        """Return the lowest free number that a decision has planned for a new member. If there is none, return the
        lowest free number, or 0 if all numbers are taken."""
        numbers = range(1, self._numbers_max + 1)
        meant = {*numbers}.intersection(self.sentinel.targets.values()) - taken
        return min(meant, default=0) or next((number for number in numbers if number not in taken), 0)

    def _beat(self, now_s: float, beat: Beat) -> None:
        if beat.term > self.term:
            self._above(now_s, beat.term)
            return
        member = self._members.get(beat.name)
        if member is not None and member.nonce != beat.nonce:
            self.stale += 1  # from an earlier program with this name; a newer program has sent a hello
            return
        if member is not None:
            member.heard_s = now_s
        if beat.term < self.term:
            # The member is alive, but its report does not count until the member knows this controller. An order from
            # the previous controller may not have reached the member yet.
            if beat.number <= self._numbers_max:
                self._notes.add(Tell(beat.number, Reign(self._name, self.term)))
            return
        if member is None:
            member = self._join(now_s, beat, beat.number)
            if member is None:
                return
        if member.number != beat.number <= self._numbers_max:  # the member listens at this number
            self._notes.add(Tell(beat.number, Welcome(member.name, member.nonce, member.number, self.term)))
        if beat.part != len(member.beats):
            member.beats.clear()
        if beat.part == len(member.beats):
            member.beats.append(beat)
        if len(member.beats) == beat.parts:
            held = [each for part in member.beats for each in part.held]
            member.beats.clear()
            self._holds(now_s, member, held)

    def _holds(self, now_s: float, member: Member, held: list[Held]) -> None:
        """Process a complete beat. It lists all queues that the member owns."""
        if not member.is_ready:
            member.is_ready = True
            self._notes.note(
                "joined",
                f"{member.name} is member {member.number}, and owns {len(held):,} queues",
                self.staff.came(now_s),
            )
        problems: dict[str, list[Queue]] = {}
        for each in held:
            if each.problem and each.queue not in member.problems:
                problems.setdefault(each.problem, []).append(each.queue)
        for words, queues in problems.items():
            more = f" and {len(queues) - 1:,} more" if len(queues) > 1 else ""
            self._notes.trouble("problem", f"{member.name} does not read {queues[0]}{more}: {words}")
        member.rates = {each.queue: each.bytes_per_s for each in held}
        member.problems = {each.queue: each.problem for each in held if each.problem}
        self._is_known(now_s, max((each.epoch for each in held), default=0))
        wrong = self.owners.holds(now_s, member.name, held)
        if wrong:
            self._notes.add(Tell(member.number, Stop(member.name, self.term, tuple(wrong), member.nonce)))

    def _answered(self, now_s: float, message: Started | Stopped | Refused) -> None:
        if message.term != self.term:
            self.stale += 1
            return
        owners = self.owners
        took_s = []
        for queue in message.queues:
            match message:
                case Started():
                    took_s.append(owners.started(now_s, message.name, message.epoch, queue))
                case Stopped():
                    self.stale += not owners.stopped(message.name, queue)
                case Refused():
                    owners.refused(message.name, message.epoch, queue)
        known_s = [each for each in took_s if each is not None]
        self.stale += len(took_s) - len(known_s)
        if any(known_s):
            words = (
                f"{message.name} received {len(message.queues):,} queues, at most {max(known_s):.2g} s after the order"
            )
            self._notes.note("given", words, max(known_s))
        if isinstance(message, Refused):
            self._is_known(now_s, message.newer)

    def _bye(self, message: Bye) -> None:
        member = self._members.get(message.name)
        if member is None or member.nonce != message.nonce:
            return
        self._gone(member)
        was_to = self.staff.left(member.name)
        self._notes.note(
            "left", f"{member.name}, member {member.number}, has ended{'' if was_to else ' without an order'}"
        )

    def _gone(self, member: Member) -> int:
        """Remove the member and its queues from the group's state, and return the number of these queues."""
        del self._members[member.name]
        self.sentinel.gone(member.number)
        return self.owners.gone(member.name)

    # Measurements

    def _speeds(self, now_s: float, speeds: Speeds) -> None:
        if speeds.topics and speeds.topics != self._settings.fingerprint:
            # Topics that this monitor does not know would look as if they had vanished.
            self.stale += 1
            if not self._has_other_topics:
                self._notes.trouble(
                    "other_topics",
                    "a monitor measures topics other than those in this controller's settings file, so its "
                    "measurements do not count. Stop the monitor, or restart it with the same settings file",
                )
            self._has_other_topics = True
            return
        parts = self._parts
        if parts and (speeds.monitor, speeds.serial) != (parts[0].monitor, parts[0].serial):
            parts.clear()
        if speeds.part != len(parts):
            return
        parts.append(speeds)
        if len(parts) < speeds.parts:
            return
        flows = [flow for part in parts for flow in part.flows]
        parts.clear()
        if speeds.monitor == self._serial[0] and speeds.serial <= self._serial[1]:
            self.stale += 1
            return
        self._serial = (speeds.monitor, speeds.serial)
        if self._is_stale:
            self._notes.note("fresh", "measurements arrive again")
        self._measured_s, self._is_stale = now_s, False
        if self._is_young(now_s, speeds.monitor):
            return
        self.sentinel.measured(now_s, flows)
        for topic in sorted({*speeds.missing} - {*self._missing}):
            self._notes.trouble("missing", f"there is no topic {topic}: members release its queues")
        for topic in sorted({*self._missing} - {*speeds.missing}):
            self._notes.note("found", f"topic {topic} exists again")
        self._missing = speeds.missing

    def _is_young(self, now_s: float, monitor: str) -> bool:
        """Return whether this monitor began recently while an older monitor still sends. A monitor's first measurements
        cover only a second or two, so the measurements of the older monitor are better."""
        known = {name: times for name, times in self._monitors.items() if now_s - times[1] <= STALE_S}
        began_s, _ = known.get(monitor, (now_s if known else now_s - SETTLE_S, now_s))
        self._monitors = {**known, monitor: (began_s, now_s)}
        return now_s - began_s < SETTLE_S

    # Current state and plan

    def _turn(self, now_s: float) -> None:
        if self._is_over:
            return
        if self.state == SYNCHRONIZING:
            if not self._is_synchronized(now_s):
                return
            self._adopt(now_s)
        present = self._present()
        while self.staff.leaving and len(present) < self.sentinel.wanted:
            member = self._members[self.staff.call_back()]
            present[member.number] = member
        if self._measured_s is not None:
            capacities = {number: member.capacity for number, member in present.items()}
            reserved = frozenset(each.number for each in self._members.values() if each.number not in present)
            is_moving = self.owners.moving(now_s) > 0
            going = self.sentinel.look(
                *(now_s, capacities, reserved), is_moving=is_moving, is_short=self.staff.is_short
            )
            for number in going:
                self.staff.leaving[present.pop(number).name] = now_s
            self._reconcile(now_s, present)
        names = [member.name for member in present.values()]
        self.staff.count(now_s, self.sentinel.wanted, names)
        order = self.staff.order(now_s, self.sentinel.wanted, names, self.owners.holders())
        if order is not None:
            self._notes.add(order)
        self._settle(now_s, present)

    def _is_synchronized(self, now_s: float) -> bool:
        """Return whether every member that the scaler lists has answered, or ``lost_s`` seconds have passed."""
        if not self.term:
            return False
        if now_s - self._began_s > self._settings.lost_s:
            return True
        running = self.staff.running
        ready = {member.name for member in self._members.values() if member.is_ready}
        return running is not None and running.names is not None and running.names <= ready

    def _adopt(self, now_s: float) -> None:
        """Use the current owners as the plan until the first decision."""
        self.state = WATCHING
        present = self._present()
        numbers = {member.name: number for number, member in present.items()}
        owned = {queue: numbers[owner.name] for queue, owner in self.owners.of.items() if owner.name in numbers}
        self.sentinel.adopt(now_s, owned, len(present))
        self._notes.note("synchronized", f"{len(present):,} members own {len(owned):,} queues")

    def _present(self) -> dict[int, Member]:
        """Return the members that may own queues, indexed by member number."""
        leaving = self.staff.leaving
        return {each.number: each for each in self._members.values() if each.is_ready and each.name not in leaving}

    def _reconcile(self, now_s: float, present: dict[int, Member]) -> None:
        if self._epochs + 1 >= EPOCHS_PER_TERM:  # all orders of one call share one epoch
            self._reign(now_s, self.term + 1)
        targets = {
            queue: present[number].name if number in present else None
            for queue, number in self.sentinel.targets.items()
        }
        orders = self.owners.orders(now_s, targets, self.term, self._next_epoch)
        for name, some in orders.items():
            member = self._members.get(name)
            if member is not None:
                for order in some:
                    self._notes.add(Tell(member.number, order._replace(nonce=member.nonce)))

    def _next_epoch(self) -> int:
        self._epochs += 1
        return self.term * EPOCHS_PER_TERM + self._epochs

    def _settle(self, now_s: float, present: dict[int, Member]) -> None:
        targets, owned = self.sentinel.targets, self.owners.of
        is_managing = (
            self.owners.moving(now_s) > 0
            or bool(self.staff.leaving)
            or (len(present) < self.sentinel.wanted and not self.staff.is_short)
            or any(queue not in owned for queue in targets)
        )
        if is_managing and self.state == WATCHING:
            self.state, self._managing_s = MANAGING, None
        if self.state == MANAGING and len(present) < self.sentinel.wanted:
            self._managing_s = None
        elif self.state == MANAGING and self._managing_s is None:
            self._managing_s = now_s
        if not is_managing and self.state == MANAGING:
            self.state = WATCHING
            since_s = now_s if self._managing_s is None else self._managing_s
            self._notes.note("settled", f"{len(present)} members own {len(owned):,} queues", now_s - since_s)

    # Display

    def picture(self) -> Picture:
        """Return the group's current state for display."""
        sizes, flows = self.sentinel.sizes.now, self.sentinel.flows
        mine: dict[str, list[Share]] = {}
        for queue, owner in self.owners.of.items():
            problems = self._members[owner.name].problems if owner.name in self._members else {}
            share = Share(queue, sizes.get(queue, 0.0), owner.state, problems.get(queue, ""))
            mine.setdefault(owner.name, []).append(share)
        bars = []
        for member in sorted(self._members.values(), key=lambda member: member.number):
            shares = sorted(mine.get(member.name, []), key=lambda share: (-share.bytes_per_s, share.queue))
            load = sum(share.bytes_per_s for share in shares)
            bars.append(
                Bar(
                    *(member.number, member.name, member.capacity, load, sum(member.rates.values())),
                    *(member.is_ready, member.name in self.staff.leaving, tuple(shares)),
                )
            )
        running = self.staff.running
        return Picture(
            *(self.state, self.term, self.sentinel.wanted, None if running is None else running.count, tuple(bars)),
            *(len(flows), sum(queue not in self.owners.of for queue in flows)),
            sum(owner.state != OWNED for owner in self.owners.of.values()),
            *(sum(flow.bytes_per_s for flow in flows.values()), sum(flow.stock for flow in flows.values())),
            hot=self.sentinel.hot,
            missing=self._missing,
            is_capped=self.sentinel.is_capped,
            is_stale=self._is_stale,
        )
