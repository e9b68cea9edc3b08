"""The treatment of duplicates at their home. It drops a message whose payload was seen recently. A repetition of a
message that is still being dispatched waits for this message and shares its outcome. SPEC section 7.

Owns: the use of the table of duplicates, and the requests to former homes about messages that the former homes are
still dispatching. Must never: dispatch a message.

When a slot moves, its former home finishes the messages in progress. The new home knows their keys (``KeyTransfer``).
On the first repetition of such a message, the new home asks the former home for the outcome.
"""

from __future__ import annotations

import math
from typing import Any, Final

from msgspec.structs import replace

from ingeborg.protocol.errors import ProtocolError

from ..cluster.homes import Homes
from ..cluster.replicas import Replicas
from ..cluster.slots import SlotState
from ..dedup.dedup import Dedup
from ..desk import Desk
from ..dispatch import Dispatch, refusal
from ..limits import SIZES, Sizes
from ..links.calls import RETAINED, Asker, Call
from ..links.carrying import arrived, carried
from ..links.requests import PublishRequest
from ..message import Message
from ..replication.barrier import ReplicationBarrier
from ..replication.key_transfer import KeyTransfer
from ..retained.retention import Retention
from .outcomes import Outcomes

#: The largest number of messages with a partial outcome (they reached only some endpoints) that this endpoint
#: remembers. It remembers them because their origins can ask for the outcome again.
PARTIAL_MAX: Final = 1_000

CONFLICT: Final = (
    "This client has already used key 'dedup' for another payload at this topic; give a new message a new key"
)


class InFlightDedup(Asker):
    """Handles duplicates at one home. ``seen`` is the slot state with which replicas carry the table of
    duplicates."""

    def __init__(
        self,
        desk: Desk,
        me: str,
        homes: Homes,
        dedup: Dedup[Dispatch],
        keys: KeyTransfer,
        replicas: Replicas,
        seen: SlotState,
        barrier: ReplicationBarrier,
        retention: Retention,
        outcomes: Outcomes,
        sizes: Sizes = SIZES,
    ) -> None:
        #: Keys of messages that no former home is dispatching any longer. The home empties this tray.
        self.over: list[bytes] = []
        self.ttl_s = dedup.ttl_s
        self._desk = desk
        self._me = me
        self._homes = homes
        self._dedup = dedup
        self._keys = keys
        self._replicas = replicas
        self._seen = seen
        self._barrier = barrier
        self._names = barrier.names
        self.retention = retention
        self._outcomes = outcomes
        self._waiters_max = sizes.waiters_max
        #: For each message's key, the origin's incarnation, the origin's number for the message, and the outcome.
        self._partial: dict[bytes, tuple[str, int, ProtocolError]] = {}

    def is_first(self, dispatch: Dispatch, key: bytes) -> bool:
        """Return whether the message must be dispatched. If not, either its outcome is set now, or it waits for the
        message with its key."""
        dedup = self._dedup
        if dedup.duplicate(key, self._desk.now):
            if self._partial and (error := self._was_partial(dispatch, key)) is not None:
                self._outcomes.settle(dispatch, error)
                return False
            if dispatch.message.travelled and self._is_itself(dispatch, key):
                self._outcomes.settle(dispatch, False)
                return False
            self._desk.counts["duplicates_dropped"] += 1
            if self._replicas.watching:
                self._replicas.changed(self._seen, dispatch.slot, key)
            self._outcomes.settle(dispatch, True)
            return False
        waiters = dedup.pending(key)
        if waiters is not None:
            self.join(dispatch, waiters)
            return False
        if dedup.conflicts(key, self._desk.now):
            self._desk.drops["publish_conflict"] += 1
            self._outcomes.settle(dispatch, ProtocolError("conflict", CONFLICT))
            return False
        dispatch.pending = True
        dedup.begin(key)
        if dispatch.keep_s:
            self.retention.begin(dispatch, key)
        elif self._barrier.on:
            self._barrier.begin(dispatch, key)
        return True

    def _is_itself(self, dispatch: Dispatch, key: bytes) -> bool:
        """Return whether this very message was dispatched before, and not only an equal message. This happens if its
        origin did not get the outcome and asks again."""
        dispatch.is_retained = dispatch.keep_s > 0 and self.retention.has(dispatch)
        return dispatch.is_retained or self._names.has(key, dispatch.message)

    def begin(self, dispatch: Dispatch, key: bytes) -> None:
        """Begin a message whose key is already pending."""
        dispatch.pending = True
        if self.retention.on:
            self.retention.recall(dispatch)
        if dispatch.keep_s:
            self.retention.begin(dispatch, key)
        elif self._barrier.on:
            self._barrier.begin(dispatch, key)

    def settle(self, dispatch: Dispatch, error: ProtocolError | None) -> None:
        """End the message. From now on a repetition is a duplicate, unless no client received the message."""
        desk, key = self._desk, dispatch.key
        assert key is not None
        dispatch.pending = False
        reached_somebody = error is None or error.code == "partial"
        if self._barrier.under_way:
            self._barrier.under_way.pop(key, None)
        message = dispatch.message
        if reached_somebody and (message.travelled or self._barrier.on):
            self._names.learn(key, message.origin, message.number)  # its origin may ask again, here or at the next home
        if error is not None and reached_somebody and dispatch.peer:
            self._keep_partial(message, key, error)
        for waiter in self._dedup.settle(key, reached_somebody, desk.now):
            # The message itself can also be among the waiters, because its origin asks again after the crash of a home.
            is_other = waiter.message.number != message.number or waiter.message.origin != message.origin
            waiter.is_retained = dispatch.is_retained and not is_other
            if error is None:
                desk.counts["duplicates_dropped"] += is_other
            self._outcomes.settle(waiter, is_other if error is None else error)
        if self._replicas.watching:
            self._replicas.changed(self._seen, dispatch.slot, key)
        if self._homes.table[dispatch.slot] != self._me:
            self._keys.hand_on([(key, self._dedup.ttl_s if reached_somebody else 0.0)])

    def _keep_partial(self, message: Message, key: bytes, error: ProtocolError) -> None:
        """Remember a partial outcome. If the origin considers this endpoint dead meanwhile, the origin gets the outcome
        only when it asks again. In this case the message must not count as a duplicate of itself."""
        partial = self._partial
        partial[key] = message.origin, message.number, error
        if len(partial) > PARTIAL_MAX:
            del partial[next(iter(partial))]

    def _was_partial(self, dispatch: Dispatch, key: bytes) -> ProtocolError | None:
        """Return the outcome if this message itself, and not only an equal message, has reached only some of its
        recipients."""
        kept = self._partial.get(key)
        message = dispatch.message
        return kept[2] if kept is not None and kept[:2] == (message.origin, message.number) else None

    def release(self, dispatch: Dispatch) -> list[Dispatch]:
        """Leave the message to another home. Return the repetitions that wait for the message."""
        assert dispatch.key is not None
        dispatch.pending = False
        self._barrier.under_way.pop(dispatch.key, None)
        return self._dedup.settle(dispatch.key, False, self._desk.now)

    def waiters(self, key: bytes | None) -> list[Dispatch] | None:
        """Return the repetitions that wait for a message with this key. Return ``None`` if this endpoint itself is not
        dispatching such a message."""
        return self._dedup.pending_here(key)

    def join(self, dispatch: Dispatch, waiters: list[Dispatch]) -> None:
        """Add a repetition to ``waiters``, which wait for the message with its key."""
        if len(waiters) >= self._waiters_max:
            self._desk.drops["duplicate_waiters_full"] += 1
            error = ProtocolError("peer_unavailable", "Too many duplicates wait for one message")
            self._outcomes.settle(dispatch, error)
            return
        self._outcomes.wait(dispatch)
        waiters.append(dispatch)
        if not dispatch.can_wait:
            self._desk.hurry()  # for the answers about the message that it joins
        key = dispatch.key
        if len(waiters) > 1 or key is None or key not in self._dedup.elsewhere:
            return
        home = self._keys.former_home(key)
        if home is None:
            self.over.append(key)
            return
        # The former home may be dispatching this very message, and not only an equal message.
        request = PublishRequest(carried(dispatch.message), key, again=True)
        self._desk.ask(home, request, self, dispatch)

    def take_over(self) -> list[Dispatch]:
        """Return the repetitions of messages that no former home is dispatching any longer. The home then dispatches
        the first repetition of each message, because it is possible that no client has received a copy."""
        again: list[Dispatch] = []
        over, self.over = self.over, []
        for key in over:
            for waiter in self._dedup.end_elsewhere(key, False, self._desk.now):
                waiter.begun = -math.inf  # the former home may have retained this very message
                again.append(waiter)
        return again

    def answered(self, call: Call, value: Any) -> None:
        """End the repetitions, because the former home has dispatched the message. The former home has already counted
        the repetition about which this endpoint asked."""
        first: Dispatch = call.context
        assert first.key is not None
        if type(value) is tuple:
            said = replace(carried(first.message), origin=value[1], number=value[2])
            first.message = arrived(said, first.message.received)
            first.is_retained, first.renamed = value[0], True
        else:
            first.is_retained = value == RETAINED
        for waiter in self._dedup.end_elsewhere(first.key, True, self._desk.now):
            self._desk.counts["duplicates_dropped"] += waiter is not first
            self._outcomes.settle(waiter, value is True if waiter is first else True)

    def failed(self, call: Call, code: str, info: Any) -> None:
        """End the repetitions with an error, because the former home failed or did not answer."""
        first: Dispatch = call.context
        assert first.key is not None
        error = refusal(code, info)
        for waiter in self._dedup.end_elsewhere(first.key, code == "partial", self._desk.now):
            self._outcomes.settle(waiter, error)

    def lost(self, call: Call) -> str | None:
        """Pass the repetitions to the home, because the former home is gone or no longer has the message."""
        first: Dispatch = call.context
        assert first.key is not None
        self.over.append(first.key)
        return None
