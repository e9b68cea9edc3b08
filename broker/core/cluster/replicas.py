"""Replicas of slots, which this endpoint sends to the endpoint that will be their home next. ADR 21, 23.

Owns: the replicas that this endpoint makes as the home of slots, how it sends them, and how much can be in flight. Must
never: know a replica's content (``slots``) or its purpose. ``slot_transfer`` makes replicas of slots that move, and
``replication`` makes replicas in case this endpoint crashes.

A replica begins with a snapshot, which is sent in slices while this endpoint is still the slots' home. This endpoint
then sends the changes made since the snapshot began. If a key changes ten times before it is sent, it is sent only
once.

A link also carries all other traffic. So at most ``UNANSWERED_BYTES`` of a replica are in flight on the link, and the
traffic behind these bytes waits for only a few milliseconds.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from ingeborg.protocol.native import mypyc_attr

from ..desk import Desk
from ..links.calls import LEAVING, Call
from ..links.requests import ReplicaBeginsRequest, ReplicaChunkRequest, ReplicaSentRequest
from ..metrics import Metric, gauge
from ..part import Part
from .membership import Membership
from .slots import SlotState, SlotStates, pack_slots

#: Maximum bytes of a replica that are in flight without an answer.
UNANSWERED_BYTES: Final = 1 << 20

#: Maximum number of chunks of a replica that are in flight without an answer. Absorbing a chunk takes up to a
#: millisecond, even if the chunk is small.
UNANSWERED_CHUNKS: Final = 8

#: Bytes of changes to pack in one turn, which takes about 3 ms.
TURN_BYTES: Final = 64 << 10

#: Maximum number of urgent changes in one chunk.
AT_ONCE_MAX: Final = 200

#: Maximum number of urgent changes of one replica that can wait. If more changes have to wait, the link is slower than
#: the publishers, and this endpoint gives the replica up.
ROW_MAX: Final = 10_000

#: Maximum number of chunks of changes that can remain unsent when a slot moves.
CHUNKS_LEFT: Final = 16

#: Maximum number of changed keys of one state that can wait to be sent in one replica. If keys change faster than the
#: other end absorbs them, this endpoint gives the replica up.
CHANGES_MAX: Final = 200_000


@mypyc_attr(allow_interpreted_subclasses=True)
class ReplicaOwner(Part):
    """A part that requests replicas, and learns whether they succeed."""

    def confirmed(self, replica: Replica, waiters: list[Any]) -> None:
        """Release these waiters, because the other end has their changes, or the replica has ended.

        Args:
            replica: The replica that carried the changes.
            waiters: The ``AtOnce.waiter`` of each change, in the order of sending. Each waiter is passed once.
        """

    def declined(self, replica: Replica) -> None:
        """Handle a replica whose other end is leaving and accepts no replica. A call of ``over`` follows.

        Args:
            replica: The declined replica.
        """

    def over(self, replica: Replica, keeps: bool) -> None:
        """Forget the replica, because it has ended.

        Args:
            replica: The ended replica.
            keeps: True if the other end is gone. This endpoint still needs its state of the slots that moved there.
        """


class AtOnce(NamedTuple):
    """An urgent change, which a waiter can wait for."""

    state: SlotState
    slot: int
    key: Any
    size: int  # approximate bytes
    waiter: Any  # passed to ``ReplicaOwner.confirmed``; None if there is no waiter


class Replica:
    """One replica at another endpoint."""

    __slots__ = (
        "asked",
        "asked_at",
        "at_once",
        "changes",
        "final",
        "for_failover",
        "giver",
        "job",
        "keys",
        "number",
        "over",
        "owner",
        "parked",
        "ripe",
        "sent_all",
        "slots",
        "stands",
        "target",
        "unanswered",
        "unconfirmed",
        "under_way",
        "whole",
    )

    def __init__(
        self, owner: ReplicaOwner, number: int, target: str, slots: frozenset[int], for_failover: bool, now: float
    ) -> None:
        self.owner = owner
        self.for_failover = for_failover  # true if its slots stay here and the replica guards against our crash
        self.number = number
        self.target = target  # incarnation
        self.giver = ""  # the incarnation that gave us the slots, if this replica passes them on
        self.slots = slots
        self.asked_at = now  # when a caller last asked for it
        self.keys = 0  # the number of keys sent
        self.unanswered = 0  # bytes sent without an answer yet
        self.under_way = 0  # chunks sent without an answer yet
        self.changes: dict[SlotState, dict[Any, int]] = {}  # each state's keys to be sent, with their slots
        self.at_once: deque[AtOnce] = deque()  # to be sent before the changes
        self.unconfirmed: deque[tuple[float, list[Any]]] = deque()  # (when some changes were sent, their waiters)
        self.job: Iterator[bool] | None = None  # the job that sends the snapshot
        self.parked = False  # the job waits for an answer
        self.sent_all = False  # the whole snapshot has been sent, and only changes are left
        self.asked = False  # the target is checking its count of keys
        self.whole = False  # the target confirmed all keys
        self.stands = False  # the target itself knows that the replica is whole
        self.final = False  # its slots have moved
        self.ripe = False  # for a failover replica: its changes may be sent, because a tick has passed
        self.over = False

    @property
    def full(self) -> bool:
        """Return whether the bytes or chunks in flight have reached their limit."""
        return self.unanswered >= UNANSWERED_BYTES or self.under_way >= UNANSWERED_CHUNKS

    @property
    def ready(self) -> bool:
        """Return whether so little is left to send that the slots can move."""
        chunks = sum(len(keys) / state.keys_per_chunk for state, keys in self.changes.items())
        return self.whole and chunks <= CHUNKS_LEFT


class Replicas(Part):
    """One endpoint's outgoing replicas. ``states``: the slot states here."""

    def __init__(self, desk: Desk, members: Membership, states: SlotStates) -> None:
        self._desk = desk
        self._members = members
        self._states = states
        self._numbers = 0
        self._replicas: dict[int, Replica] = {}
        self._of_slot: dict[int, list[Replica]] = {}
        #: Whether any replica exists. If none exists, parts need not report changes, so this test is the only cost of a
        #: change.
        self.watching = False
        self._due: dict[Replica, None] = {}  # replicas that may have something to send

    def metrics(self) -> list[Metric]:
        """See ``Part``."""
        return [
            self._desk.counted(
                "replicas_begun",
                "Replicas of slots begun for the endpoint that will be their home next",
            ),
            self._desk.counted("replicated_bytes", "Bytes sent in replicas of slots"),
            gauge(
                "replicas",
                "Replicas of slots that this endpoint sends to other endpoints, or keeps up to date there",
                len(self),
            ),
        ]

    def __len__(self) -> int:
        """Return the number of existing replicas."""
        return len(self._replicas)

    def first_to(self, target: str) -> int:
        """Return the number of the first existing replica to this target. If none exists, return the number of the next
        replica."""
        return min(
            (replica.number for replica in self._replicas.values() if replica.target == target),
            default=self._numbers + 1,
        )

    # Changes

    def changed(self, state: SlotState, slot: int, key: Any, failover_too: bool = True) -> None:
        """Report that the state's key of the slot has changed or is gone. Call this only while ``watching``.

        A failover replica sends the change after the next tick. Changes that must survive a crash before that tick go
        through ``at_once``.

        Args:
            state: The state that owns the key.
            slot: The key's slot.
            key: The changed key.
            failover_too: Whether to report the change to failover replicas as well. False if ``at_once`` has sent it to
                them.
        """
        for replica in tuple(self._of_slot.get(slot, ())):
            for_failover = replica.for_failover
            if for_failover and not failover_too:
                continue
            form = state.failover_form if for_failover else state
            if form is None:
                continue
            keys = replica.changes.setdefault(form, {})
            keys[key] = slot
            if not for_failover or not replica.whole:
                self._due[replica] = None
            if len(keys) > CHANGES_MAX:
                self.give_up(replica)

    def at_once(self, replica: Replica, change: AtOnce) -> None:
        """Send this item in the present turn, or as soon as the other end has answered some of the items in flight.

        When the other end has the item, the owner's ``confirmed`` is called."""
        replica.at_once.append(change)
        self._due[replica] = None
        if len(replica.at_once) > ROW_MAX:
            self.give_up(replica)

    # Making a replica

    def begin(self, owner: ReplicaOwner, target: str, slots: frozenset[int], **said: Any) -> Replica:
        """Begin a replica of these slots at the target.

        Args:
            owner: The part that learns of confirmations and of the end.
            target: The incarnation of the other end.
            slots: The slots to replicate.
            said: Additional fields of the ``ReplicaBeginsRequest``.

        Returns:
            The new replica.
        """
        self._numbers += 1
        request = ReplicaBeginsRequest(self._numbers, pack_slots(slots), self._desk.unix_s, **said)
        replica = Replica(owner, request.replica, target, slots, request.for_failover, self._desk.now)
        self._replicas[replica.number] = replica
        for slot in slots:
            self._of_slot.setdefault(slot, []).append(replica)
        self.watching = True
        self._desk.counts["replicas_begun"] += 1
        replica.giver = request.giver
        self._tell(replica, request)
        replica.job = self._send_all(replica)
        self._desk.job(replica.job)
        return replica

    def _tell(self, replica: Replica, request: ReplicaBeginsRequest | ReplicaSentRequest) -> None:
        self._desk.ask(replica.target, request, self, (replica, 0, None))

    def _send_all(self, replica: Replica) -> Iterator[bool]:
        """Send the snapshot of the replica's slots, slice by slice."""
        for_failover = replica.for_failover
        for state in self._states.all:
            form = state.failover_form if for_failover else state
            if form is None:
                continue
            for keys in form.departing(replica.slots):
                for start in range(0, len(keys), form.keys_per_chunk):
                    while replica.full and not replica.over:
                        replica.parked = True
                        yield True
                    if replica.over:
                        return
                    self._put(replica, form, keys[start : start + form.keys_per_chunk])
                    yield False
                if not keys:
                    yield False
        replica.job = None
        replica.sent_all = True
        self._due[replica] = None

    def _put(self, replica: Replica, state: SlotState, keys: Sequence[Any], waiting: list[Any] | None = None) -> None:
        data = state.pack(keys)
        if waiting:
            replica.unconfirmed.append((self._desk.now, waiting))
        replica.keys += len(keys)
        replica.unanswered += len(data)
        replica.under_way += 1
        self._desk.counts["replicated_bytes"] += len(data)
        context = (replica, len(data), waiting)
        self._desk.ask(replica.target, ReplicaChunkRequest(replica.number, state.name, data), self, context)

    def send(self, replica: Replica) -> None:
        """Check the replica when the turn ends, because it may have something to send."""
        self._due[replica] = None

    def flush(self) -> None:
        """Send the changes as the turn ends."""
        if self._due:
            due, self._due = self._due, {}
            for replica in due:
                self._go_on(replica)

    def tick(self) -> None:
        """Let failover replicas send the changes that came before this tick."""
        for replica in self._replicas.values():
            if replica.changes and replica.for_failover:
                replica.ripe = True
                self._due[replica] = None

    def _go_on(self, replica: Replica) -> None:
        """Send some of the changes. Send the rest after the other end has answered. If no changes are left, ask the
        other end whether all keys have arrived."""
        if replica.over:
            return
        if replica.at_once:
            self._send_at_once(replica)
        if not replica.sent_all:
            return
        if replica.ripe or not (replica.whole and replica.for_failover):
            self._send_changes(replica)
        if (
            not replica.changes
            and not replica.asked
            and (replica.final or not replica.whole or replica.for_failover > replica.stands)
        ):
            replica.asked = True
            self._tell(replica, ReplicaSentRequest(replica.number, replica.keys, replica.final))

    def _send_at_once(self, replica: Replica) -> None:
        at_once = replica.at_once
        while at_once and not replica.full:
            state, size = at_once[0].state, 0
            keys: list[Any] = []
            waiting: list[Any] = []
            while at_once and at_once[0].state is state and size < TURN_BYTES and len(keys) < AT_ONCE_MAX:
                change = at_once.popleft()
                size += change.size
                keys.append(change.key)
                if change.waiter is not None:
                    waiting.append(change.waiter)
            self._put(replica, state, keys, waiting)

    def _send_changes(self, replica: Replica) -> None:
        sent = replica.unanswered
        while replica.changes and replica.unanswered < sent + TURN_BYTES and not replica.full:
            state, changed = next(iter(replica.changes.items()))
            keys = state.chunk(changed)
            for key in keys:
                del changed[key]
            if not changed:
                del replica.changes[state]
            self._put(replica, state, keys)
        if not replica.changes:
            replica.ripe = False

    def answered(self, call: Call, value: Any) -> None:
        """Handle an answer: the other end has absorbed a chunk, or has answered a question."""
        replica, size, waiting = call.context
        replica.unanswered -= size
        replica.under_way -= isinstance(call.request, ReplicaChunkRequest)
        if replica.over:
            return
        if waiting:
            replica.unconfirmed.popleft()
            replica.owner.confirmed(replica, waiting)
            if replica.over:
                return
        if replica.parked and replica.job is not None:
            replica.parked = False
            self._desk.job(replica.job)
        if replica.at_once or replica.changes or not replica.whole or replica.final:
            self._due[replica] = None
        if isinstance(call.request, ReplicaSentRequest):
            replica.asked = False
            if not value:
                self.give_up(replica)
            elif call.request.final:
                self.end(replica)
            else:
                replica.whole, replica.stands = True, replica.whole

    def failed(self, call: Call, code: str, info: Any) -> None:
        """Handle a failure: the other end refused, or did not answer in time."""
        replica = call.context[0]
        if code == LEAVING and not replica.over:
            replica.owner.declined(replica)
            self.end(replica)
        elif replica.for_failover and isinstance(call.request, ReplicaBeginsRequest):
            self.end(replica)  # the other end's view still differs
        else:
            self.give_up(replica)

    def lost(self, call: Call) -> str | None:
        """Handle the loss of the other end. Keep the state of slots that moved to it, because the new view decides
        where these slots go."""
        self.end(call.context[0], keeps=True)
        return None

    def give_up(self, replica: Replica) -> None:
        """End a replica that will stay incomplete. If the other end becomes the home, it reports that some state may be
        missing."""
        if not replica.over:
            self._desk.drops["replicas_broken"] += 1
            self.end(replica)

    def narrow(self, replica: Replica, slots: frozenset[int]) -> None:
        """Restrict a whole replica to these slots."""
        self._let_go(replica, replica.slots - slots)
        replica.slots = slots
        for state, changed in list(replica.changes.items()):
            replica.changes[state] = {key: slot for key, slot in changed.items() if slot in slots}
            if not replica.changes[state]:
                del replica.changes[state]
        left = [change for change in replica.at_once if change.slot not in slots]
        replica.at_once = deque(change for change in replica.at_once if change.slot in slots)
        self._tell(replica, ReplicaBeginsRequest(replica.number, pack_slots(slots), for_failover=True, fewer=True))
        replica.owner.confirmed(replica, [change.waiter for change in left if change.waiter is not None])

    def end(self, replica: Replica, *, keeps: bool = False, tell: bool = False) -> None:
        """Stop sending.

        Args:
            replica: The replica to end; ended replicas are ignored.
            keeps: See ``ReplicaOwner.over``.
            tell: Whether to tell the other end to drop the received part even if the slots have moved. If they have not
                moved, this endpoint tells the other end in any case.
        """
        if replica.over:
            return
        replica.over = True
        del self._replicas[replica.number]
        self._let_go(replica, replica.slots)
        self.watching = bool(self._replicas)
        if replica.parked and replica.job is not None:
            replica.parked = False
            self._desk.job(replica.job)
        replica.changes.clear()
        waiting = [waiter for _, waiters in replica.unconfirmed for waiter in waiters]
        waiting += [change.waiter for change in replica.at_once if change.waiter is not None]
        replica.at_once.clear()
        replica.unconfirmed.clear()
        if (tell or not replica.final) and replica.target in self._members.peers:
            self._tell(replica, ReplicaBeginsRequest(replica.number, None, for_failover=replica.for_failover))
        replica.owner.over(replica, keeps)
        if waiting:
            replica.owner.confirmed(replica, waiting)

    def _let_go(self, replica: Replica, slots: frozenset[int]) -> None:
        for slot in slots:
            replicas = self._of_slot[slot]
            replicas.remove(replica)
            if not replicas:
                del self._of_slot[slot]
