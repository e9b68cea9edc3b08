"""What has become of messages at their home, told to whoever waits for it: a client's publish here, or a peer.

Owns: how it is told, and that a message counts as in flight while somebody waits. Must never: decide what it is.
"""

from __future__ import annotations

from collections import deque

from ingeborg.protocol.errors import ProtocolError

from ..dedup.inflight import InFlight
from ..desk import Desk
from ..dispatch import ELSEWHERE, Handover, Outcome, Telling
from ..links.calls import KEPT, NOT_HOME


class Outcomes:
    """One home's."""

    def __init__(self, desk: Desk, inflight: InFlight) -> None:
        self._desk = desk
        self._inflight = inflight
        #: Publishes of clients here that had to wait, and whose outcome is known by now: the origin takes them.
        self.due: deque[Handover] = deque()
        #: Messages that nobody waits for, and what has become of them: ``Recovery`` takes them.
        self.recovered: deque[tuple[Handover, Outcome]] = deque()
        #: This endpoint's own messages that had to wait: ``Presence`` takes them.
        self.told: deque[Telling] = deque()

    def wait(self, handover: Handover) -> None:
        """It is in flight from here on."""
        if not handover.waits:
            handover.waits = True
            self._inflight.begin(len(handover.message.payload))

    def settle(self, handover: Handover, outcome: Outcome) -> None:
        """Tell who waits for it. An origin here that has just handed it over looks by itself."""
        handover.outcome = outcome
        waited = handover.waits
        if waited:
            handover.waits = False
            self._inflight.end(len(handover.message.payload))
        if handover.publish is not None:
            if waited:
                self.due.append(handover)
        elif not handover.peer:
            if not isinstance(handover, Telling):
                self.recovered.append((handover, outcome))
            elif waited:
                self.told.append(handover)
        elif outcome is ELSEWHERE:
            self._desk.decline(handover.peer, handover.number, NOT_HOME)
        elif isinstance(outcome, ProtocolError):
            info = [outcome.info, outcome.extra] if outcome.extra else outcome.info
            self._desk.decline(handover.peer, handover.number, outcome.code, info)
        else:
            value = KEPT if handover.is_kept and not outcome else outcome
            self._desk.answer(handover.peer, handover.number, value)
