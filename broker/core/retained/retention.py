"""Retaining messages, at the home of their topic: from the moment when the home accepts one until its end. SPEC section
8.10, ADR 36.

Owns: which entry of the log belongs to which message under way, its replicas at the slot's next home and replica, and
the journal. Must never: dispatch a message, or keep the entry of a message that no publisher was told is published.

A message that is not retained costs one test of an attribute when it is accepted, and one when it ends.
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
    """One home's retention. ``on``: this endpoint keeps messages. ``topics``: (prefix, seconds) of topics that are
    retained even if their publishers do not ask for it."""

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
        #: By origin and number: the old stamps of crashed homes' messages, and their new stamps here, until the
        #: messages begin.
        self._inherited: dict[tuple[str, int], tuple[int, int]] = {}
        self._void = 0  # stamps given before the lease last lapsed

    def refusal(self) -> ProtocolError | None:
        """Return the reason why there is currently no history; ``None``: there is."""
        if not self.on:
            return ProtocolError("bad_state", "This endpoint keeps no messages: its setting 'history' is off")
        if self._watermarks.proven < 0:
            return ProtocolError("peer_unavailable", "The journal has not loaded its positions yet: try again")
        return None

    # At the origin

    def seconds(self, topic: str, asked: int, size: int) -> int:
        """Return how long to retain a message, in seconds; 0: do not retain it. ``asked``: the seconds that its
        publisher asks for. ``size``: the bytes of its payload. Raises ``ProtocolError``."""
        if asked:
            if not self.on and (refusal := self.refusal()) is not None:
                raise refusal
            room = self._log.bytes_max
            if room and not self._log.has_room(topic, size):
                why = f"a payload of {size} bytes exceeds the {room} bytes for all kept messages (history-bytes)"
                raise ProtocolError("bad_state", f"Key 'keep_s': {why}: publish it without 'keep_s'")
            return asked
        if self.on:
            for prefix, keep_s in self.topics:
                if topic.startswith(prefix):
                    return keep_s
        return 0

    # At the home

    def inherit(self, slot: int, topic: str, origin: str, number: int) -> None:
        """Give a crashed home's message its new stamp. It is dispatched here in a moment, but must come before any
        message that is accepted from now on, since it may have been confirmed before those were published."""
        if self.on and (entry := self._log.find(slot, topic, origin, number)) is not None:
            stamp = self._clock.stamp()
            self._inherited[origin, number] = entry.stamp, stamp
            self._log.stamp_anew(slot, entry, stamp)

    def concluded(self, origin: str, number: int) -> None:
        """Close the stamp of such a message at its end. If another endpoint became its home before this one began it,
        or this one gave it up, nothing else would close the stamp, and no position could pass it."""
        inherited = self._inherited.pop((origin, number), None)
        if inherited is not None:
            self._clock.close(inherited[1])

    def has(self, dispatch: Dispatch) -> bool:
        """Return whether this same message is in the log."""
        message = dispatch.message
        return self._log.find(dispatch.slot, message.topic, message.origin, message.number) is not None

    def begin(self, dispatch: Dispatch, key: int) -> None:
        """Retain an accepted message. It waits until it is retained everywhere that it must be. If the home has no room
        for it, the home dispatches it without keeping it."""
        if self._barrier.on:
            self._barrier.name(dispatch, key)
        message, slot = dispatch.message, dispatch.slot
        if not self._log.has_room(message.topic, len(message.payload)):
            self._desk.counts["messages_not_retained"] += 1
            if self._barrier.on:
                self._barrier.keep(dispatch, key)
            return
        dispatch.is_retained = dispatch.message.is_kept = True
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
        """Take messages that no longer wait for the journal, and those that the journal could not take
        (``not_retained``). The latter stay behind their barrier, and must not be dispatched."""
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
        """End a retained message. Returns false if others could have acted for its topic since it was accepted: they do
        not know it, so it must be dispatched there, under its name."""
        assert dispatch.entry is not None
        if dispatch.stamp <= self._void or (error is not None and error.code != "partial"):
            self.released(dispatch)
            return dispatch.stamp > self._void
        self._clock.close(dispatch.stamp)
        return True

    def released(self, dispatch: Dispatch) -> None:
        """Release a message that this home does not dispatch. If another home had begun to dispatch it, the entry
        stays: that home may have told the publisher that it is published, so absent clients must get it."""
        entry = dispatch.entry
        assert entry is not None
        self._clock.close(dispatch.stamp)
        dispatch.entry, dispatch.is_retained = None, False
        if dispatch.found and dispatch.not_retained is not None and self.journal.writes:
            # the message is here, but not in the journal, which would outlast all endpoints
            self.journal.floor(dispatch.slot, dispatch.stamp)
        if not entry.gone and entry.stamp == dispatch.stamp and not dispatch.found:
            slot = dispatch.slot
            self._log.remove(slot, entry)
            if self._replicas.watching:
                self._replicas.changed(self._history, slot, entry)
            if self.journal.writes:
                self.journal.forget(slot, entry.stamp)

    def recall(self, dispatch: Dispatch) -> None:
        """Find out whether a message that another home has begun to dispatch was to be retained."""
        if self.has(dispatch):
            dispatch.keep_s = 1

    def delivery_failed(self, peer: str, clients: list[str]) -> None:
        """Note that a retained message may not have reached these clients of a peer."""
        self._watermarks.delivery_failed(peer, clients)

    def lapsed(self) -> None:
        """Note that others can act for this endpoint's slots."""
        self._void = self._clock.value
