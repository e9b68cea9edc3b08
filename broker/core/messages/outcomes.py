"""Reports the outcome of each message from its home to the party that waits for the outcome. That party is the publish
of a client of this endpoint, or a peer.

Owns: the reports, and the count of the messages in flight, which are the messages whose outcome somebody waits for.
Must never: decide the outcome.
"""

from __future__ import annotations

from collections import deque
from typing import Any

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
        #: Publishes of this endpoint's clients that had to wait and now have an outcome. The origin empties this tray.
        self.due: deque[Dispatch] = deque()
        #: Messages whose outcome nobody waits for, with their outcomes. ``Failover`` empties this tray.
        self.failed_over: deque[tuple[Dispatch, Outcome]] = deque()
        #: This endpoint's own announcements that had to wait and now have an outcome. ``Announcing`` empties this tray.
        self.told: deque[Telling] = deque()

    def wait(self, dispatch: Dispatch) -> None:
        """Count the message as in flight from now on."""
        if not dispatch.waits:
            dispatch.waits = True
            self._inflight.begin(len(dispatch.message.payload))
            if dispatch.can_wait and not self._inflight.eased:
                self._desk.hurry()

    def settle(self, dispatch: Dispatch, outcome: Outcome) -> None:
        """Report the outcome to the waiting origin or peer. If the origin is this endpoint and has not begun to wait,
        it reads ``dispatch.outcome`` itself."""
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
            value: Any = True if outcome else RETAINED if dispatch.is_retained else None
            if dispatch.renamed and not outcome:
                message = dispatch.message
                value = (dispatch.is_retained, message.origin, message.number)
            if value is None and dispatch.can_wait:
                self._desk.answer_later(dispatch.peer, dispatch.number)
            else:
                self._desk.answer(dispatch.peer, dispatch.number, value)
