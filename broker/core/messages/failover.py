"""Messages that a home was dispatching when it crashed. The endpoint that has the replica of the slot becomes the home,
and dispatches them. ADR 23.

Owns: these messages, until their outcome is known. Must never: give such a message a new identity. Each message keeps
its old identity, so that no client gets the message twice.

Nobody waits for the outcome of such a message. The message's origin can ask again (``Origin.lost``). This repetition
then shares the outcome, like every repetition.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator
from typing import Any, Final

from ..cluster.membership import Membership
from ..dedup.dedup import Dedup, slot_of_key
from ..desk import Desk
from ..dispatch import Dispatch
from ..links.calls import Call
from ..links.carrying import arrived
from ..links.requests import Carried, PublishRequest
from ..metrics import Metric
from ..part import Part
from ..replication.replicated import ReplicatedMessages
from ..retained.retention import Retention
from .delivery import RECENT_S
from .home import Home
from .outcomes import Outcomes

#: The time between two attempts to dispatch a crashed home's message, in seconds.
AGAIN_S: Final = 1.0

#: The time for which to retry, in seconds. It is half the time for which destinations remember a delivery, because the
#: delivery can have happened some seconds before this endpoint noticed the crash.
TRY_S: Final = RECENT_S / 2

#: The largest number of messages to begin to dispatch in one slice. This takes about 1 ms.
PER_SLICE: Final = 50


class Orphan:
    """One message of a crashed home, until it has been dispatched. After ``until`` the destinations may have forgotten
    that they received it."""

    __slots__ = ("key", "known", "slot", "until")

    def __init__(self, key: bytes, slot: int, known: Carried, until: float) -> None:
        self.key = key
        self.slot = slot
        self.known = known
        self.until = until


class Failover(Part):
    """Dispatches, at one endpoint, the messages of crashed homes. This part comes after ``incoming`` in the list of
    parts, because ``incoming`` adds the messages of a crashed home to ``replicated.left``."""

    def __init__(
        self,
        desk: Desk,
        members: Membership,
        dedup: Dedup[Dispatch],
        replicated: ReplicatedMessages,
        outcomes: Outcomes,
        retention: Retention,
        home: Home,
    ) -> None:
        self._desk = desk
        self._members = members
        self._me = members.me.incarnation
        self._dedup = dedup
        self._replicated = replicated
        self._outcomes = outcomes
        self._retention = retention
        self._home = home
        self._open: dict[bytes, Orphan] = {}  # indexed by the message's key
        self._again: deque[tuple[float, Orphan]] = deque()

    def metrics(self) -> list[Metric]:
        """See ``Part``."""
        return [
            self._desk.counted(
                "messages_failed_over",
                "Messages of a crashed home that this endpoint has finished dispatching",
            ),
        ]

    def view_changed(self) -> None:
        """Begin to dispatch the messages of a crashed home if this endpoint is now the home of its slots."""
        self._begin_left()

    def joined(self) -> None:
        """Begin to dispatch the messages of a crashed home if this endpoint is now the home of its slots."""
        self._begin_left()

    def _begin_left(self) -> None:
        if self._replicated.left:
            left, self._replicated.left = self._replicated.left, []
            self.begin(left)

    def begin(self, left: list[tuple[bytes, Carried]]) -> None:
        """Take over the messages that another home was dispatching when it crashed."""
        now = self._desk.now
        begun: list[Orphan] = []
        for key, known in left:
            self._dedup.forget_elsewhere(key)
            if self._dedup.pending(key) is None and key not in self._open:
                self._dedup.begin(key)  # from now on, repetitions wait for this message
                self._open[key] = one = Orphan(key, slot_of_key(key), known, now + TRY_S)
                self._replicated.identities[key] = (known.origin, known.number)
                begun.append(one)
                self._retention.inherit(one.slot, known.topic, known.origin, known.number)
        self._desk.counts["messages_failed_over"] += len(begun)
        self._desk.job(self._dispatch(begun))

    def _dispatch(self, begun: list[Orphan]) -> Iterator[bool]:
        for start in range(0, len(begun), PER_SLICE):
            for one in begun[start : start + PER_SLICE]:
                self._dispatch_one(one)
            yield False

    def _dispatch_one(self, one: Orphan) -> None:
        dispatch = Dispatch(arrived(one.known, self._desk.now), one.slot, one.key, None)
        dispatch.begun = -math.inf
        self._home.fail_over(dispatch)

    def tick(self) -> None:
        """Collect the outcomes, and retry the messages that could not be dispatched."""
        failed_over = self._outcomes.failed_over
        while failed_over:
            dispatch, outcome = failed_over.popleft()
            assert dispatch.key is not None
            self._ended(dispatch.key, outcome is False or getattr(outcome, "code", "") == "partial")
        now = self._desk.now
        while self._again and self._again[0][0] <= now:
            self._try(self._again.popleft()[1])

    def _ended(self, key: bytes, is_done: bool) -> None:
        one = self._open.get(key)
        if one is None:
            return
        if not is_done and self._desk.now < one.until:
            self._again.append((self._desk.now + AGAIN_S, one))
            return
        del self._open[key], self._replicated.identities[key]
        self._retention.concluded(one.known.origin, one.known.number)
        if is_done:
            self._replicated.names.learn(key, one.known.origin, one.known.number)
        else:
            self._desk.drops["failover_given_up"] += 1

    def _try(self, one: Orphan) -> None:
        home = self._members.table[one.slot]
        dedup = self._dedup
        if home == self._me:
            if dedup.pending(one.key) is not None or dedup.left([one.key], self._desk.now)[0] > 0:
                self._ended(one.key, True)  # its origin has asked again
            else:
                dedup.begin(one.key)
                self._dispatch_one(one)
        else:
            request = PublishRequest(one.known, one.key, again=True)
            self._desk.ask(home, request, self, one.key)

    def answered(self, call: Call, value: Any) -> None:
        """End the message, because its present home has dispatched it."""
        self._ended(call.context, True)

    def failed(self, call: Call, code: str, info: Any) -> None:
        """Try again, because the home could not dispatch the message or did not answer in time. If the message has
        reached some recipients (``partial``), end it instead."""
        self._ended(call.context, code == "partial")

    def lost(self, call: Call) -> str | None:
        """Try again, because the endpoint is gone or is no longer the home."""
        self._ended(call.context, False)
        return None
