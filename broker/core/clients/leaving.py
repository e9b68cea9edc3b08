"""An orderly end: transfer all slots, send the clients away in batches, finish everything under way, go. ADR 12.

Owns: the progress of the end, and the time at which each client is sent away. Must never: cut off what a client has
sent; its commands get their replies first if these are ready soon.
"""

from __future__ import annotations

import math
from typing import Final

from ingeborg.protocol.errors import GOING_AWAY

from ..cluster.joining import Joining
from ..cluster.slot_transfer import SlotTransfer
from ..connections.hub import Connection
from ..dedup.inflight import InFlight
from ..desk import Desk
from ..effects import Left, SlotsTransferred
from ..limits import PATIENCE, SIZES, Patience, Sizes
from ..outgoing.sending import Sending
from .sessions import AFTER_CLOSE_S, Sessions

#: Seconds between two batches of clients to send away.
STEP_S: Final = 0.1

#: How long messages under way can take to reach clients here before the first client is sent away, in seconds.
MESSAGES_S: Final = 1.0

#: How long the end can take to finish once the clients have gone, in seconds: as long as the slowest request.
LEAVE_S: Final = 8.0

#: How long copying the slots' state can take before the slots go, in seconds. With the later stages, an end stays
#: within the usual time-outs of service managers.
COPY_S: Final = 6.0

#: Seconds between two checks whether the slots' state has been copied.
LOOK_S: Final = 0.05

#: The stages of the end, each by what it waits for.
NOTHING: Final = 0
COPYING: Final = 1
TRANSFERRING: Final = 2
DELIVERING: Final = 3
SENDING_AWAY: Final = 4
CLOSING: Final = 5
DEPARTING: Final = 6
GONE: Final = 7


class Leaving:
    """One endpoint's end."""

    def __init__(
        self,
        desk: Desk,
        joining: Joining,
        slot_transfer: SlotTransfer,
        sessions: Sessions,
        sending: Sending,
        inflight: InFlight,
        sizes: Sizes = SIZES,
        patience: Patience = PATIENCE,
    ) -> None:
        self._desk = desk
        self._told_at_once = sizes.told_at_once
        self._patience = patience
        self._inflight = inflight
        self._joining = joining
        self._slot_transfer = slot_transfer
        self._sessions = sessions
        self._sending = sending
        self._stage = NOTHING
        self._deadline = math.inf
        self._look_at = -math.inf
        self._over_s = 0.0
        self._batch = 0
        self._next_batch_at = -math.inf
        self.under_way = False
        self._untold: list[Connection] = []  # the next client to send away is the last one
        # no longer read; (connection, when it is sent away at the latest)
        self._told_soon: list[tuple[Connection, float]] = []

    def begin(self, over_s: float) -> None:
        """Leave. Send the clients away over ``over_s`` seconds, or less if they are few. Accept no new ones."""
        self.under_way = True
        self._stage = COPYING
        self._deadline = self._desk.now + COPY_S
        self._over_s = over_s

    def go_on(self) -> None:
        """Continue the end as far as possible. Called at the end of each turn while the end is ``under_way``."""
        now = self._desk.now
        if self._stage == COPYING:
            if now < min(self._look_at, self._deadline):
                return
            # Slots that others have released to this endpoint leave from here, once this endpoint owns them.
            if (self._joining.half_in or not self._slot_transfer.prepared_to_leave()) and now < self._deadline:
                self._look_at = now + LOOK_S
                return
            self._stage = TRANSFERRING
            self._deadline = now + self._patience.transfer_s
            self._joining.leave()
        self._joining.go_on_leaving()
        if self._stage == TRANSFERRING and (self._joining.transferred or now >= self._deadline):
            self._desk.emit(SlotsTransferred(self._joining.transferred))
            self._stage = DELIVERING
            self._deadline = now + MESSAGES_S
        if self._stage == DELIVERING and (not self._inflight.messages or now >= self._deadline):
            self._stage = SENDING_AWAY
            self._untold = list(self._sessions.connections.values())[::-1]
            count = len(self._untold)
            self._batch = max(self._told_at_once, math.ceil(count * STEP_S / self._over_s)) if self._over_s else count
        if self._stage == SENDING_AWAY:
            self._send_away(now)
            if not self._untold and not self._told_soon:
                self._stage = CLOSING
                self._deadline = now + AFTER_CLOSE_S
        # A client sends until it reads the close. Its messages need the links to the peers, which end with `depart`.
        if self._stage == CLOSING and (not self._sessions.connections or now >= self._deadline):
            self._stage = DEPARTING
            self._deadline = now + LEAVE_S
            self._joining.depart()
        if self._stage == DEPARTING and (self._joining.left or now >= self._deadline):
            self._stage = GONE
            self.under_way = False
            self._desk.emit(Left(self._joining.left))

    def _send_away(self, now: float) -> None:
        batch = 0
        if now >= self._next_batch_at:
            self._next_batch_at = now + STEP_S
            batch = min(self._batch, len(self._untold))
        for _ in range(batch):
            connection = self._untold.pop()
            if not connection.closed and connection.ends_at is None:
                self._sessions.drain(connection)
                self._told_soon.append((connection, now + self._patience.replies_s))
        waiting = []
        for connection, deadline in self._told_soon:
            if connection.closed:
                continue
            if (connection.replies or connection.backlog or connection.unread) and now < deadline:
                waiting.append((connection, deadline))
                continue
            self._sessions.send_away(connection)
            if connection.ends_at is None:
                self._sending.close(connection, GOING_AWAY)
        self._told_soon = waiting
