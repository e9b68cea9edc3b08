"""Repetitions of a message that is still being handed over: they wait for it, and share its outcome. SPEC section 7.

Owns: the requests to former homes, of messages that those are still handing over. Must never: hand anything over.

When a slot moves, its former home goes on with the messages that are on their way already. The new home knows their
keys (``KeyHandover``), and asks the former one what becomes of a message when its first repetition comes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ingeborg.protocol.errors import ProtocolError

from ..cluster.handover import KeyHandover
from ..desk import Desk
from ..limits import SIZES, Sizes
from ..links.calls import Asker, Call, Kind
from .dedup import KEY_BYTES, Dedup
from .message import Handover, refusal
from .outcomes import Outcomes


class Sharing(Asker):
    """One home's. ``take_again``: is given those that share nothing any more."""

    def __init__(
        self,
        desk: Desk,
        dedup: Dedup[Handover],
        keys: KeyHandover,
        outcomes: Outcomes,
        take_again: Callable[[Handover], None],
        sizes: Sizes = SIZES,
    ) -> None:
        self._desk = desk
        self._dedup = dedup
        self._keys = keys
        self._outcomes = outcomes
        self._take_again = take_again
        self._waiters_max = sizes.waiters_max

    def join(self, handover: Handover, waiters: list[Handover]) -> None:
        """It waits, like ``waiters``, for the message with its key."""
        if len(waiters) >= self._waiters_max:
            self._desk.drops["duplicate_waiters_full"] += 1
            error = ProtocolError("peer_unavailable", "Too many duplicates wait for one message")
            self._outcomes.settle(handover, error)
            return
        self._outcomes.wait(handover)
        waiters.append(handover)
        key = handover.key
        if len(waiters) > 1 or key is None or key not in self._dedup.elsewhere:
            return
        home = self._keys.former_home(key)
        if home is None:
            self._over(key)
            return
        message = handover.message
        self._desk.ask(
            Kind.PUBLISH, home, (message.topic, message.payload, key.to_bytes(KEY_BYTES), True), self, handover
        )

    def _over(self, key: int) -> None:
        """The former home is not handing it over any more: the first repetition may be the first to be delivered."""
        for waiter in self._dedup.end_elsewhere(key, False, self._desk.now):
            self._take_again(waiter)

    def answered(self, call: Call, value: Any) -> None:
        """The former home has handed it over. It has counted the repetition that it was asked with."""
        first: Handover = call.context
        assert first.key is not None
        for waiter in self._dedup.end_elsewhere(first.key, True, self._desk.now):
            self._desk.counts["duplicates_dropped"] += waiter is not first
            self._outcomes.settle(waiter, bool(value) if waiter is first else True)

    def failed(self, call: Call, code: str, info: Any) -> None:
        """It could not, or does not answer."""
        first: Handover = call.context
        assert first.key is not None
        error = refusal(code, info)
        for waiter in self._dedup.end_elsewhere(first.key, code == "partial", self._desk.now):
            self._outcomes.settle(waiter, error)

    def lost(self, call: Call) -> str | None:
        """It is gone, or done with it."""
        first: Handover = call.context
        assert first.key is not None
        self._over(first.key)
        return None
