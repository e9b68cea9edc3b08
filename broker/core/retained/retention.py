"""Retaining messages, at the home of their topic: from when one is accepted for dispatching until its end. SPEC section
8.10, ADR 36.

Owns: which entry of the log belongs to which message under way, its replicas at the slot's next home and replica, and
the journal. Must never: dispatch a message, or leave an entry of one that nobody was told to be published.

A message that is not retained costs one test of an attribute where it is accepted, and one where it ends.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from ingeborg.protocol.errors import ProtocolError

from ..cluster.replicas import Replicas
from ..cluster.replication import SlotReplication
from ..desk import Desk
from ..dispatch import Dispatch
from ..entries import Entry
from ..replication.barrier import ReplicationBarrier
from .clock import Clock
from .journal import Journal
from .log import Log
from .state import History
from .watermarks import Watermarks


class Retention:
    """One home's. ``on``: does this endpoint keep messages? ``topics``: what topics begin with that are retained though
    their publishers do not ask for it, and for how many seconds."""

    def __init__(
        self,
        desk: Desk,
        on: bool,
        topics: Sequence[tuple[str, int]],
        log: Log,
        clock: Clock,
        history: History,
        watermarks: Watermarks,
        replicas: Replicas,
        replication: SlotReplication,
        barrier: ReplicationBarrier,
        journal: Journal,
    ) -> None:
        self._desk = desk
        self.on = on
        self.topics = topics
        self._log = log
        self._clock = clock
        self._history = history
        self._watermarks = watermarks
        self._replicas = replicas
        self._replication = replication
        self._barrier = barrier
        self.journal = journal
        #: By origin and number: what stamps crashed homes' messages had, and were given here, until they are begun.
        self._inherited: dict[tuple[str, int], tuple[int, int]] = {}
        self._void = 0  # stamps that were given before the lease last lapsed

    def refusal(self) -> ProtocolError | None:
        """Why there is no history just now; ``None``: there is."""
        if not self.on:
            return ProtocolError("bad_state", "No message is kept here: this endpoint's setting 'history' is off")
        if self._watermarks.proven < 0:
            return ProtocolError("peer_unavailable", "The journal has not said yet how far positions go: try again")
        return None

    # At the origin

    def seconds(self, topic: str, asked: int, size: int) -> int:
        """How long a message is to be retained whose publisher has asked for so many seconds, with a payload of so many
        bytes; 0: not at all. Raises ``ProtocolError``."""
        if asked:
            if not self.on and (refusal := self.refusal()) is not None:
                raise refusal
            room = self._log.bytes_max
            if room and not self._log.has_room(topic, size):
                why = f"a payload of {size} bytes is not kept where all kept ones have {room} (history-bytes)"
                raise ProtocolError("bad_state", f"Key 'keep_s': {why}: publish it without")
            return asked
        if self.on:
            for prefix, keep_s in self.topics:
                if topic.startswith(prefix):
                    return keep_s
        return 0

    # At the home

    def inherit(self, slot: int, topic: str, origin: str, number: int) -> None:
        """A home has crashed, and its message is dispatched here in a moment. It gets its new stamp now, before any
        that is accepted from here on: it may have been confirmed before those were published."""
        if self.on and (entry := self._log.find(slot, topic, origin, number)) is not None:
            stamp = self._clock.stamp()
            self._inherited[origin, number] = entry.stamp, stamp
            self._log.stamp_anew(slot, entry, stamp)

    def concluded(self, origin: str, number: int) -> None:
        """Such a message has come to its end. Where another endpoint has become its home before this one began it, or
        it is given up, nothing else closes its stamp, and no position would pass that."""
        inherited = self._inherited.pop((origin, number), None)
        if inherited is not None:
            self._clock.close(inherited[1])

    def has(self, dispatch: Dispatch) -> bool:
        """Is this very message in the log?"""
        message = dispatch.message
        return self._log.find(dispatch.slot, message.topic, message.origin, message.number) is not None

    def begin(self, dispatch: Dispatch, key: int) -> None:
        """The message is accepted for dispatching, and waits until it is retained where it has to be. A home without
        room for it dispatches it, and does not keep it."""
        if self._barrier.on:
            self._barrier.name(dispatch, key)
        message, slot = dispatch.message, dispatch.slot
        if not self._log.has_room(message.topic, len(message.payload)):
            self._desk.counts["messages_not_retained"] += 1
            if self._barrier.on:
                self._barrier.keep(dispatch, key)
            return
        dispatch.is_retained = True
        entry = None
        if dispatch.begun == -math.inf:  # another home may have retained it before
            entry = self._log.find(slot, message.topic, message.origin, message.number)
        inherited = self._inherited.pop((message.origin, message.number), None) if self._inherited else None
        stamp = self._clock.stamp() if inherited is None else inherited[1]
        if entry is None:
            expires = self._desk.now + dispatch.keep_s
            entry = Entry(message.topic, message.payload, message.origin, message.number, stamp, expires)
            self._log.add(slot, entry, self._desk.now, is_new=True)
            self._desk.counts["messages_retained"] += 1
        else:
            dispatch.found = True
            if self.journal.writes:
                self.journal.forget(slot, entry.stamp if inherited is None else inherited[0])
            if inherited is None:
                self._log.stamp_anew(slot, entry, stamp)
        dispatch.entry, dispatch.stamp = entry, stamp
        if self._replicas.watching:
            self._replicas.changed(self._history, slot, entry, failover_too=False)
            self._replication.tell(self._history, slot, entry, entry.size)
        if self._barrier.on:
            self._barrier.keep(dispatch, key)
        if self.journal.holds:
            dispatch.barriers += 1
            self.journal.keep(slot, entry, dispatch)

    def take_written(self) -> list[Dispatch]:
        """Messages that need not wait for the journal any more, or that it could not take in (``not_retained``): these
        stay behind their barrier, and are not to be dispatched."""
        go_on: list[Dispatch] = []
        written, self.journal.written = self.journal.written, []
        for dispatch, error in written:
            if error is not None:
                dispatch.not_retained = error
            else:
                dispatch.barriers -= 1
            if not dispatch.barriers or error is not None:
                go_on.append(dispatch)
        return go_on

    def ended(self, dispatch: Dispatch, error: ProtocolError | None) -> bool:
        """The home is done with a retained message. False: others may act for its topic since it was accepted, and do
        not know of it; it has to be dispatched there, under its name."""
        assert dispatch.entry is not None
        if dispatch.stamp <= self._void or (error is not None and error.code != "partial"):
            self.released(dispatch)
            return dispatch.stamp > self._void
        self._clock.close(dispatch.stamp)
        return True

    def released(self, dispatch: Dispatch) -> None:
        """This home does not dispatch it. Of a message that another home had begun to dispatch the entry stays: that
        one may have told its publisher that it is published, and then whoever is away is to get it."""
        entry = dispatch.entry
        assert entry is not None
        self._clock.close(dispatch.stamp)
        dispatch.entry, dispatch.is_retained = None, False
        if dispatch.found and dispatch.not_retained is not None and self.journal.writes:
            self.journal.floor(dispatch.slot, dispatch.stamp)  # it is here, and not where it would outlast all
        if not entry.gone and entry.stamp == dispatch.stamp and not dispatch.found:
            slot = dispatch.slot
            self._log.remove(slot, entry)
            if self._replicas.watching:
                self._replicas.changed(self._history, slot, entry)
            if self.journal.writes:
                self.journal.forget(slot, entry.stamp)

    def recall(self, dispatch: Dispatch) -> None:
        """A message that another home has begun to dispatch: was it one to be retained?"""
        if self.has(dispatch):
            dispatch.keep_s = 1

    def delivery_failed(self, peer: str, clients: list[str]) -> None:
        """A retained message may not have reached these clients of a peer's."""
        self._watermarks.delivery_failed(peer, clients)

    def lapsed(self) -> None:
        """Others may act for this endpoint's slots."""
        self._void = self._clock.value
