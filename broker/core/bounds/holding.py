"""Holds messages for clients with bounds. Some messages pass immediately. The others are released before they exceed
their bounds. SPEC section 2.8.

Owns: the receivers of these clients' connections, all held messages, and the agenda of release times. Must never: hold
a message beyond its bound while its client accepts messages.

A topic's messages leave at multiples of its pace, shifted by the connection's phase. So the messages of all topics of a
connection leave in one write, and different connections get their messages at different times.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator, Sequence
from typing import Any, Final

from orjson import Fragment

from ..connections.hub import NO_FLOOR, Connection, Receiver, put_last, take_out
from ..desk import Desk
from ..histogram import Histogram
from ..message import Message
from ..metrics import HISTOGRAM, Metric, counters_by, gauge
from ..outgoing.memory import Memory
from ..outgoing.sending import Sending
from ..part import Part
from ..retained.watermarks import Watermarks
from .conits import Conit, Urgent
from .rules import BANDS, PACE_S, Bound, Rules, SharedRules
from .steering import Steering

#: Maximum number of messages, and of bytes, that an endpoint holds. Beyond either limit, a message leaves immediately.
HELD_MAX: Final = 200_000
HELD_BYTES_MAX: Final = 80 << 20

#: Maximum number of messages that an endpoint holds for the clients of one connection. All these messages may have to
#: leave in one turn, for example when a client changes its bounds. This takes about 7 µs a message.
CONNECTION_HELD_MAX: Final = 20_000

#: Number of messages to release in one slice, and number of receivers to examine in one slice. A large message counts
#: as several messages: one more for every ``BYTES_PER_MESSAGE`` bytes. The reason is that the release may have to copy
#: the message to add the number of skipped messages.
MESSAGES_PER_SLICE: Final = 500
BYTES_PER_MESSAGE: Final = 4096
RECEIVERS_PER_SLICE: Final = 500

#: Changes in the number of held bytes are reported to ``Memory`` when they add up to this number.
WEIGHED_BYTES: Final = 4096

#: Maximum bytes of one write to a connection with bounds. It is low, because a newer message cannot replace a message
#: that is already in the socket's buffer.
PIECE_BYTES: Final = 64 << 10

#: A release may come up to this many seconds before its interval has passed. Otherwise, if one release were late, the
#: next release would miss the next multiple of the interval.
EARLY_S: Final = 2 * PACE_S

#: If a release comes this many seconds after its staleness has passed, it counts as exceeding its bound.
EXCEEDED_S: Final = 2 * PACE_S

#: The difference between the phases of connections with consecutive numbers (the golden ratio).
_PHASE: Final = 0.618034


class Place:
    """A client with bounds, on the connection where it listens."""

    __slots__ = ("conits", "rules")

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.conits: dict[str, Conit] = {}  # indexed by topic


class BoundedReceiver(Receiver):
    """The receiver of a connection that has a window, or clients with bounds."""

    def __init__(self, holding: Holding, connection: Connection) -> None:
        super().__init__()
        self._holding = holding
        self.connection = connection
        self.places: dict[str, Place] = {}
        self.window = 0  # 0 if there is no window
        self.sent = 0  # notifications put into the outbox, except those dropped there
        self.processed = 0  # notifications that the client has confirmed
        self.held = 0  # messages held
        self.size = 0  # bytes held
        self.weighed = 0  # the held bytes last reported to ``Memory``
        self.late = Urgent()  # conits that came due while the connection accepted nothing
        self.conits: dict[Conit, None] = {}  # the conits that hold messages
        self.phase = connection.number * _PHASE % 1.0

    @property
    def takes(self) -> bool:
        """Return whether the connection accepts data and its window is open."""
        return self.connection.outbox.flowing and (not self.window or self.sent - self.processed < self.window)

    def take(self, client: str, message: Message, named: bool) -> None:
        """See ``Receiver``."""
        place = self.places.get(client)
        bound = None if place is None or not message.topic else place.rules.bound(message.topic)
        if place is None or bound is None:
            self.send(message, named, 0)
        else:
            self._holding.take(self, place, bound, client, message, named)

    def send(self, message: Message, named: bool, skipped: int) -> None:
        """Put the message into the outbox. ``skipped``: the number of messages that it replaces."""
        codec = self.connection.codec
        if skipped:
            frame = message.skipping_for(codec, named, skipped)
        elif named:
            frame = message.named_for(codec)
        else:
            frame = message.frame_for(codec)
        self.sent += 1
        self._holding.sending.push(self.connection, frame, named)

    def passed(self, count: int) -> None:
        """See ``Receiver``."""
        self.sent += count

    def dropped(self, count: int) -> None:
        """See ``Receiver``."""
        self.sent -= count
        self._holding.go_on(self)  # there is room in the window again

    def drained(self) -> None:
        """See ``Receiver``."""
        self._holding.go_on(self)

    def gone(self, client: str) -> None:
        """See ``Receiver``."""
        self._holding.set_rules(self, client, None)

    def moved(self, client: str) -> None:
        """See ``Receiver``."""
        self._holding.set_rules(self, client, None)

    def release(self, client: str | None) -> None:
        """See ``Receiver``."""
        self._holding.release_all(self, client)

    def floor(self) -> int:
        """See ``Receiver``."""
        floor = NO_FLOOR
        for conit in self.conits:
            floor = min(floor, conit.floor)
        return floor


class Holding(Part):
    """Holds the messages of one endpoint's clients with bounds.

    Args:
        steering: decides the endpoint's level.
        defaults: the text of the default rules, for clients that set no bounds. ``""`` if there are none.
        held_max: the maximum number of messages to hold.
        held_bytes_max: the maximum number of bytes to hold.
        connection_held_max: the maximum number of messages to hold for the clients of one connection.
    """

    def __init__(
        self,
        desk: Desk,
        sending: Sending,
        memory: Memory,
        watermarks: Watermarks,
        steering: Steering,
        defaults: str = "",
        held_max: int = HELD_MAX,
        held_bytes_max: int = HELD_BYTES_MAX,
        connection_held_max: int = CONNECTION_HELD_MAX,
    ) -> None:
        self._desk = desk
        self.sending = sending
        self._memory = memory
        self._watermarks = watermarks
        self._steering = steering
        self._held_max = held_max
        self._held_bytes_max = held_bytes_max
        self._connection_held_max = connection_held_max
        self.defaults = defaults
        self.rules = SharedRules()
        self.receivers: dict[Connection, BoundedReceiver] = {}
        self.clients = 0  # the number of clients with bounds
        self.held = 0
        self.held_bytes = 0
        self.conits = 0  # conits of all clients; each holds messages, or waits for its interval to pass
        #: The conits to examine in each time slot of ``PACE_S`` seconds. A conit that moves to another slot also stays
        #: in the list of its former slot, where it is then ignored.
        self._agenda: dict[int, list[Conit]] = {}
        self._slots: list[int] = []  # a heap of the slots in ``_agenda``
        self._looked = math.floor(desk.now / PACE_S)  # the last slot that has passed
        self._due = Urgent()  # conits to release now
        self.going: dict[BoundedReceiver, None] = {}  # receivers that accept messages again, and have late conits
        self._releasing = False
        # The next three attributes have one count for each band of priority.
        self.conflated = [0] * len(BANDS)
        self.exceeded = [0] * len(BANDS)
        self._weights = [0.0] * len(BANDS)  # the total weight of released messages
        self.released = {"due": 0, "numerical": 0, "limit": 0, "asked": 0}
        self._staleness = [Histogram() for _ in BANDS]

    def metrics(self) -> list[Metric]:
        """See ``Part``."""
        steering = self._steering
        released = "Releases of the messages held for a client's topic, by cause"
        staleness = "Age of the oldest message held for a client's topic at its release, by band of priority"
        exceeded = "Times that a client's topic exceeded its bounds, by band of priority"
        weight = "Total weight of released messages, by band; for the mean, divide by the count of bounds_staleness"
        times = tuple(((band,), times) for band, times in zip(BANDS, self._staleness, strict=True))
        return [
            gauge("bounds_clients", "Clients with bounds", self.clients),
            gauge("bounds_held", "Messages held for clients with bounds", self.held),
            gauge("bounds_held_bytes", "Bytes of the messages held for clients with bounds", self.held_bytes),
            gauge("bounds_level", "Share of the clients' slack in use, from 0 to 19", self.level),
            gauge("bounds_busy", "CPU cores that the endpoint uses, averaged over half a second", steering.busy),
            gauge(
                "bounds_busy_target",
                "CPU cores that the endpoint should use; the level rises if it uses 0.1 more",
                steering.target,
            ),
            _by_band("bounds_conflated", "Held messages replaced by newer ones of the same item", self.conflated),
            _by_band("bounds_exceeded", exceeded, self.exceeded),
            _by_band("bounds_weight", weight, self._weights),
            counters_by("bounds_released", released, "cause", self.released),
            Metric(HISTOGRAM, "bounds_staleness", staleness, ("band",), (), times),
        ]

    @property
    def level(self) -> int:
        """The level of ``Steering``: how much of the clients' slack the endpoint uses."""
        return self._steering.level

    # Clients

    def attach(self, connection: Connection) -> BoundedReceiver:
        """Return the connection's receiver. Create a receiver if the connection has none."""
        receiver = self.receivers.get(connection)
        if receiver is None:
            receiver = self.receivers[connection] = BoundedReceiver(self, connection)
            connection.outbox.piece_bytes = min(connection.outbox.piece_bytes, PIECE_BYTES)
            put_last(connection, receiver)
        return receiver

    def say(self, connection: Connection, client: str, text: str | None) -> dict[str, Any]:
        """Set the client's rules, and return the fields that report them in the reply."""
        receiver = self.receivers.get(connection)
        if receiver is None:
            if text is None or text == "[]":
                return {}
            receiver = self.attach(connection)
        self.set_rules(receiver, client, text)
        place = receiver.places.get(client)
        return {} if place is None else {"bounds": Fragment(place.rules.text)}

    def set_rules(self, receiver: BoundedReceiver, client: str, text: str | None) -> None:
        """Release everything held for the client, and replace its rules. If ``text`` is ``None``, the client has no
        rules from now on."""
        place = receiver.places.get(client)
        if place is not None:
            self.release_all(receiver, client)
            self._take_away(receiver, place)
            del receiver.places[client]
            self.clients -= 1
        if text is not None and text != "[]":
            receiver.places[client] = Place(self.rules.take(text))
            self._memory.wait(receiver.connection, len(text))
            self.clients += 1
        else:
            self.detach_unused(receiver.connection)

    def detach_unused(self, connection: Connection) -> None:
        """Remove the connection's receiver if it has neither a window nor a client with bounds."""
        receiver = self.receivers.get(connection)
        if receiver is not None and not receiver.places and not receiver.window:
            self._detach(receiver)

    def _detach(self, receiver: BoundedReceiver) -> None:
        if self.receivers.pop(receiver.connection, None) is not None:
            take_out(receiver.connection, receiver)
        self.going.pop(receiver, None)
        if not self.receivers:  # all these entries are outdated, and nothing looks at them any more
            self._agenda.clear()
            self._slots.clear()
            self._due = Urgent()

    def closed(self, connection: Connection) -> None:
        """Drop everything held for the connection's clients."""
        receiver = self.receivers.get(connection)
        if receiver is None:
            return
        dropped = 0
        for place in receiver.places.values():
            dropped += sum(len(conit) for conit in place.conits.values())
            self._take_away(receiver, place)
        if dropped:
            reason = "slow_consumer" if connection.outbox.overflowed else "connection_closed"
            self._desk.drops["token_revoked" if connection.revoked else reason] += dropped
            self._count(receiver, -dropped, -receiver.size)
        self.clients -= len(receiver.places)
        receiver.places.clear()
        receiver.conits.clear()
        self._detach(receiver)

    # Messages

    def take(
        self, receiver: BoundedReceiver, place: Place, bound: Bound, client: str, message: Message, named: bool
    ) -> None:
        """Handle a message for a client that has a bound for the message's topic: pass the message on, or hold it."""
        now = self._desk.now
        conit = place.conits.get(message.topic)
        if conit is None or (conit.is_empty and conit.next_at <= now):
            passes = receiver.takes and bound.steered(self._steering.level) <= bound.interval_s
            if passes and not bound.interval_s:
                receiver.send(message, named, 0)
                return
            if conit is None:
                if self.conits >= self._held_max:
                    self.released["limit"] += 1
                    receiver.send(message, named, 0)
                    return
                conit = place.conits[message.topic] = Conit(receiver.connection, client, message.topic, bound)
                self.conits += 1
            if passes:
                receiver.send(message, named, 0)
                self._rest(receiver, conit)
                return
        before = conit.weight
        self._hold(receiver, conit, message, named, now)
        numerical = bound.numerical
        if numerical is not None and conit.weight > numerical:
            if receiver.takes:
                self._release(receiver, conit, "numerical")
            elif before <= numerical:
                self.exceeded[bound.band] += 1
                self._is_late(receiver, conit)
        if not conit.is_empty and self._is_full(receiver):
            self._release(receiver, conit, "limit", whole=True)
        outbox = receiver.connection.outbox
        if receiver.size + outbox.size > outbox.bytes_max and not receiver.takes:
            self.release_all(receiver, None)

    def _hold(self, receiver: BoundedReceiver, conit: Conit, message: Message, named: bool, now: float) -> None:
        message.compact()
        before, is_first = len(conit.held), conit.is_empty
        size = conit.put(message, named, now, self._watermarks.cluster_watermark)
        more = len(conit.held) - before
        if not more:
            self.conflated[conit.bound.band] += 1
        if more or size:
            self._count(receiver, more, size)
        if is_first:
            receiver.conits[conit] = None
            self._await(conit, self._due_at(receiver, conit, now))

    def _is_full(self, receiver: BoundedReceiver) -> bool:
        return (
            self.held > self._held_max
            or self.held_bytes > self._held_bytes_max
            or receiver.held > self._connection_held_max
        )

    def _count(self, receiver: BoundedReceiver, messages: int, size: int) -> None:
        self.held += messages
        receiver.held += messages
        self.held_bytes += size
        receiver.size += size
        unweighed = receiver.size - receiver.weighed
        if not receiver.size or unweighed >= WEIGHED_BYTES or unweighed <= -WEIGHED_BYTES:
            receiver.weighed = receiver.size
            self._memory.wait(receiver.connection, unweighed)

    # Times

    def _due_at(self, receiver: BoundedReceiver, conit: Conit, now: float) -> float:
        """Return when the conit's messages leave if its first held message came at ``now``. Both times are monotonic
        seconds."""
        bound = conit.bound
        at = max(conit.next_at, now)
        steered = bound.steered(self._steering.level)
        if steered > bound.interval_s:
            at = max(at, _boundary(now, steered, receiver.phase))
        return min(at, now + bound.staleness_s - PACE_S)

    def _rest(self, receiver: BoundedReceiver, conit: Conit) -> None:
        """Record that messages of the conit have left. The next messages leave when its interval has passed."""
        interval_s = conit.bound.interval_s
        early = min(EARLY_S, interval_s / 2)
        conit.next_at = _boundary(self._desk.now + interval_s - early, interval_s, receiver.phase)
        self._await(conit, conit.next_at)

    def _await(self, conit: Conit, at: float) -> None:
        """Schedule the examination of the conit at this time, or up to one slot later."""
        slot = max(math.ceil(at / PACE_S), self._looked + 1)
        if slot == conit.slot:
            return
        conit.slot = slot
        conits = self._agenda.get(slot)
        if conits is None:
            self._agenda[slot] = [conit]
            heapq.heappush(self._slots, slot)
        else:
            conits.append(conit)

    def _take_away(self, receiver: BoundedReceiver, place: Place) -> None:
        """Remove the client's rules and conits. The caller has released the client's held messages, or drops them."""
        self.rules.give_back(place.rules)
        self._memory.wait(receiver.connection, -len(place.rules.text))
        self.conits -= len(place.conits)
        for conit in place.conits.values():
            conit.slot = 0

    @property
    def wake_at(self) -> float | None:
        """Return when the next conit is due, in monotonic seconds. Return ``None`` if no conit is waiting."""
        # The time is a little after the beginning of the slot, so that rounding cannot put it before the slot.
        return (self._slots[0] + 0.01) * PACE_S if self._slots else None

    def release_due(self) -> None:
        """Release the conits that are due, the most urgent first. If there are too many for one turn, release the rest
        in later turns. ``Turns`` calls this method at the end of each turn, if there are receivers."""
        slots = self._slots
        if slots:
            looked = math.floor(self._desk.now / PACE_S)
            if slots[0] <= looked:
                self._looked = looked
                due: list[Conit] = []
                while slots and slots[0] <= looked:
                    slot = heapq.heappop(slots)
                    due += [conit for conit in self._agenda.pop(slot) if conit.slot == slot]
                self._take_due(due)
        if (self._due or self.going) and not self._releasing:
            self._releasing = True
            releases = self._releases()
            if not next(releases, True):
                self._desk.job(releases)

    def _take_due(self, due: list[Conit]) -> None:
        left = 0 if self._due or len(due) > MESSAGES_PER_SLICE else MESSAGES_PER_SLICE
        for conit in due:
            conit.slot = 0
            receiver = self.receivers.get(conit.connection)
            if receiver is None:
                continue
            if left > 0 and not receiver.window:  # all these conits leave in this turn, in any order
                left -= self._look(receiver, conit)
            else:
                self._due.push(conit)

    def _releases(self) -> Iterator[bool]:
        left = MESSAGES_PER_SLICE
        while self._due or self.going:
            left -= self._release_due() if self._due else self._release_late()
            if left <= 0:
                yield False
                left = MESSAGES_PER_SLICE
        self._releasing = False

    def _release_due(self) -> int:
        """Release the most urgent conit that is due. Return the cost, counted in messages."""
        conit = self._due.pop()
        receiver = None if conit is None else self.receivers.get(conit.connection)
        return 1 if conit is None or receiver is None else self._look(receiver, conit)

    def _release_late(self) -> int:
        """Release messages of a receiver's most urgent late conit, as far as the window has room. Return the cost,
        counted in messages."""
        receiver = next(iter(self.going))
        conit = receiver.late.pop() if receiver.takes else None
        if conit is None:
            del self.going[receiver]
            return 1
        return self._look(receiver, conit)

    def _look(self, receiver: BoundedReceiver, conit: Conit) -> int:
        """Release a conit that is due, if its client accepts messages. Return the cost, counted in messages."""
        if conit.is_empty:
            if conit.next_at <= self._desk.now + PACE_S:
                self._forget(receiver, conit)
            return 1
        if receiver.takes:
            return self._release(receiver, conit, "due")
        self._is_late(receiver, conit)
        return 1

    def _is_late(self, receiver: BoundedReceiver, conit: Conit) -> None:
        """Record that the conit has to wait until its client accepts messages again."""
        conit.is_late = True
        receiver.late.push(conit)

    def go_on(self, receiver: BoundedReceiver) -> None:
        """Schedule the release of the connection's late conits, if the connection accepts messages again."""
        if receiver.late and receiver.takes:
            self.going[receiver] = None

    # Releases

    def _release(self, receiver: BoundedReceiver, conit: Conit, cause: str, whole: bool = False) -> int:
        """Put the conit's messages into the outbox, as far as the client accepts them.

        Args:
            receiver: the receiver of the conit's connection.
            conit: a conit that holds at least one message.
            cause: the label of the release in the metrics. If it is ``due``, only one slice of messages leaves now.
            whole: whether to release all messages, even if the client accepts none.

        Returns:
            The cost of the release, counted in messages.
        """
        band, weight = conit.bound.band, conit.weight
        age = self._desk.now - conit.since
        self._staleness[band].observe(age)
        self.exceeded[band] += age > conit.bound.staleness_s + EXCEEDED_S
        self.released[cause] += 1
        in_slices = cause == "due"
        count = size = cost = 0
        while not conit.is_empty and (whole or (receiver.takes and not (in_slices and cost >= MESSAGES_PER_SLICE))):
            held = conit.take()
            count += 1
            cost += 1 + held.size // BYTES_PER_MESSAGE
            size += held.size
            receiver.send(held.message, held.named, held.skipped)
        self._count(receiver, -count, -size)
        self._weights[band] += weight - conit.weight
        if not conit.is_empty:
            if receiver.takes:
                self._due.push(conit)
            else:
                self._is_late(receiver, conit)
            return cost
        if conit.entry:
            (receiver.late if conit.is_late else self._due).discard(conit)
        conit.is_late = False
        conit.weight = 0.0
        receiver.conits.pop(conit, None)
        if conit.bound.interval_s:
            self._rest(receiver, conit)
        elif not conit.slot:  # otherwise ``_look`` forgets it at its slot, if it is still empty
            self._forget(receiver, conit)
        return cost

    def _forget(self, receiver: BoundedReceiver, conit: Conit) -> None:
        conit.slot = 0
        place = receiver.places.get(conit.client)
        if place is not None and place.conits.get(conit.topic) is conit:
            del place.conits[conit.topic]
            self.conits -= 1

    def release_all(self, receiver: BoundedReceiver, client: str | None) -> None:
        """Release everything held for the client, or for all clients of the connection if ``client`` is ``None``."""
        for conit in list(receiver.conits):
            if client is None or conit.client == client:
                self._release(receiver, conit, "asked", whole=True)

    # Load and credit

    def tick(self) -> None:
        """Adapt the level to the load. When the level falls back to 0, release the messages that are held only because
        of the load."""
        before = self._steering.level
        self._steering.observe(self._desk.load, self._desk.now)
        if before and not self._steering.level:
            self._desk.job(self._ease())

    def _ease(self) -> Iterator[bool]:
        receivers = list(self.receivers.values())
        for start in range(0, len(receivers), RECEIVERS_PER_SLICE):
            now = self._desk.now
            for receiver in receivers[start : start + RECEIVERS_PER_SLICE]:
                for conit in receiver.conits:
                    if conit.next_at <= now:
                        self._due.push(conit)
            yield False

    def credit(self, receiver: BoundedReceiver, processed: int) -> None:
        """Record that the connection's clients have processed this many notifications in total."""
        receiver.processed = max(receiver.processed, processed)
        self.go_on(receiver)


def _by_band(name: str, help: str, counts: Sequence[float]) -> Metric:
    return counters_by(name, help, "band", dict(zip(BANDS, counts, strict=True)))


def _boundary(after: float, pace: float, phase: float) -> float:
    """Return the first multiple of the pace after this time. The multiples are shifted by the phase, a fraction of the
    pace."""
    return (math.floor(after / pace - phase) + 1 + phase) * pace
