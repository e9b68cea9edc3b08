"""Retains messages at the home of their topic, from the moment when the home accepts a message until the message ends.
SPEC section 8.10, ADR 36.

Owns: the mapping from messages in progress to entries of the log, and the transfer of entries to the slot's next home,
its replica and the journal. Must never: dispatch a message, or keep the entry of a message whose publisher got no
success reply.

A message that is not retained costs only two tests of an attribute, one when it is accepted and one when it ends.
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
    """One home's retention. ``on`` says whether this endpoint keeps messages. ``topics`` is a list of (prefix,
    seconds). Messages to topics with such a prefix are retained even without ``keep_s``."""

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
        #: For messages of crashed homes, until they begin here: their old stamps and their new stamps, by origin and
        #: number.
        self._inherited: dict[tuple[str, int], tuple[int, int]] = {}
        self._void = 0  # the greatest stamp given before the lease last lapsed

    def refusal(self) -> ProtocolError | None:
        """Return the reason why history is not available now, or ``None`` if it is available."""
        if not self.on:
            return ProtocolError("bad_state", "This endpoint keeps no messages: its setting 'history' is off")
        if self._watermarks.proven < 0:
            return ProtocolError("peer_unavailable", "The journal has not loaded its positions yet: try again")
        return None

    # At the origin

    def seconds(self, topic: str, asked: int, size: int) -> int:
        """Return the time to retain a message, in seconds. It is 0 if the message is not retained. ``asked`` is the
        publisher's ``keep_s``, and ``size`` is the size of the payload in bytes. Raise ``ProtocolError`` if the message
        cannot be retained as requested."""
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
        """Give a crashed home's message its new stamp. The dispatch follows soon, but the stamp must be smaller than
        the stamps of all messages that are accepted from now on. The crashed home may have confirmed this message
        before the later messages were published."""
        if self.on and (entry := self._log.find(slot, topic, origin, number)) is not None:
            stamp = self._clock.stamp()
            self._inherited[origin, number] = entry.stamp, stamp
            self._log.stamp_anew(slot, entry, stamp)

    def concluded(self, origin: str, number: int) -> None:
        """Close the stamp from ``inherit`` when a crashed home's message ends without having begun here. This happens
        if another endpoint has become the message's home, or if this endpoint has given up the message. If the stamp
        stayed open, no position could ever advance beyond it."""
        inherited = self._inherited.pop((origin, number), None)
        if inherited is not None:
            self._clock.close(inherited[1])

    def has(self, dispatch: Dispatch) -> bool:
        """Return whether this message itself is in the log, and not only an equal message."""
        message = dispatch.message
        return self._log.find(dispatch.slot, message.topic, message.origin, message.number) is not None

    def begin(self, dispatch: Dispatch, key: bytes) -> None:
        """Retain an accepted message. The dispatch waits until the replica and the journal have the message. If the
        home has no room for the message, it dispatches the message without retaining it."""
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
        if dispatch.begun == -math.inf:  # another home may have retained this message before
            entry = self._log.find(slot, message.topic, message.origin, message.number)
        inherited = self._inherited.pop((message.origin, message.number), None) if self._inherited else None
        stamp = self._clock.stamp() if inherited is None else inherited[1]
        if entry is None:
            expires = self._desk.now + dispatch.keep_s
            message.compact()
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
        """Return the messages that no longer have to wait for the journal. These include messages that the journal
        could not write (``not_retained``), which the home must not dispatch."""
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
        """End a retained message. Return false if the lease has lapsed since the message was accepted. If so, another
        home may have acted for the topic without knowing this message. That home must then dispatch the message again
        under the same name."""
        assert dispatch.entry is not None
        if dispatch.stamp <= self._void or (error is not None and error.code != "partial"):
            self.released(dispatch)
            return dispatch.stamp > self._void
        self._clock.close(dispatch.stamp)
        return True

    def released(self, dispatch: Dispatch) -> None:
        """Release a message that this home does not dispatch. Its entry stays if another home had begun to dispatch the
        message, because that home may have reported success to the publisher. Clients that are away must then get the
        message later."""
        entry = dispatch.entry
        assert entry is not None
        self._clock.close(dispatch.stamp)
        dispatch.entry, dispatch.is_retained = None, False
        if dispatch.found and dispatch.not_retained is not None and self.journal.writes:
            # The log has the message, but the journal lacks it. After a restart, perhaps only the journal is left.
            self.journal.floor(dispatch.slot, dispatch.stamp)
        if not entry.gone and entry.stamp == dispatch.stamp and not dispatch.found:
            slot = dispatch.slot
            self._log.remove(slot, entry)
            if self._replicas.watching:
                self._replicas.changed(self._history, slot, entry)
            if self.journal.writes:
                self.journal.forget(slot, entry.stamp)

    def recall(self, dispatch: Dispatch) -> None:
        """Mark the message as retained if another home has already begun to dispatch and retain it."""
        if self.has(dispatch):
            dispatch.keep_s = 1

    def delivery_failed(self, peer: str, clients: list[str]) -> None:
        """Record that a retained message may not have reached these clients of a peer."""
        self._watermarks.delivery_failed(peer, clients)

    def lapsed(self) -> None:
        """Record that other endpoints can now act for this endpoint's slots."""
        self._void = self._clock.value
