"""Reports the outcome of each message, decided at its home, to the party that waits for it: the publish of a client
here, or a peer.

Owns: how to report an outcome, and that a message counts as in flight while anyone waits for its outcome. Must never:
decide the outcome.
"""

from __future__ import annotations

from collections import deque

from ingeborg.protocol.errors import ProtocolError

from ..dedup.inflight import InFlight
from ..desk import Desk
from ..dispatch import ELSEWHERE, Dispatch, Outcome, Telling
from ..links.calls import NOT_HOME, RETAINED


class Outcomes:
    """One home's outcomes."""

    def __init__(self, desk: Desk, inflight: InFlight) -> None:
        self._desk = desk
        self._inflight = inflight
        #: Publishes of clients here that had to wait, and now have an outcome. The origin takes them.
        self.due: deque[Dispatch] = deque()
        #: Messages that nobody waits for, with their outcomes. ``Failover`` takes them.
        self.failed_over: deque[tuple[Dispatch, Outcome]] = deque()
        #: This endpoint's own messages that had to wait. ``Presence`` takes them.
        self.told: deque[Telling] = deque()

    def wait(self, dispatch: Dispatch) -> None:
        """Count the message as in flight from now on."""
        if not dispatch.waits:
            dispatch.waits = True
            self._inflight.begin(len(dispatch.message.payload))

    def settle(self, dispatch: Dispatch, outcome: Outcome) -> None:
        """Report the outcome to the origin or peer that waits. An origin here that has just dispatched the message
        reads the outcome itself."""
        dispatch.outcome = outcome
        waited = dispatch.waits
        if waited:
            dispatch.waits = False
            self._inflight.end(len(dispatch.message.payload))
        if dispatch.publish is not None:
            if waited:
                self.due.append(dispatch)
        elif not dispatch.peer:
            if not isinstance(dispatch, Telling):
                self.failed_over.append((dispatch, outcome))
            elif waited:
                self.told.append(dispatch)
        elif outcome is ELSEWHERE:
            self._desk.decline(dispatch.peer, dispatch.number, NOT_HOME)
        elif isinstance(outcome, ProtocolError):
            info = [outcome.info, outcome.extra] if outcome.extra else outcome.info
            self._desk.decline(dispatch.peer, dispatch.number, outcome.code, info)
        else:
            value = RETAINED if dispatch.is_retained and not outcome else outcome
            self._desk.answer(dispatch.peer, dispatch.number, value)
