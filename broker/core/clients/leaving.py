"""The orderly shutdown of an endpoint: transfer all slots, disconnect the clients in batches, finish all work, and
leave the cluster. ADR 12.

Owns: the progress of the shutdown, and the time at which each client is disconnected. Must never: disconnect a client
before its commands have their replies, unless the replies take too long.
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

#: Seconds between two batches of clients to disconnect.
STEP_S: Final = 0.1

#: How long the endpoint waits for messages in flight to reach their clients before it disconnects the first client, in
#: seconds.
MESSAGES_S: Final = 1.0

#: How long the shutdown can take after the clients have gone, in seconds. This is as long as the slowest request takes.
LEAVE_S: Final = 8.0

#: How long copying the slots' state can take before the slots move, in seconds. With this limit, the whole shutdown
#: stays within the usual time-outs of service managers.
COPY_S: Final = 6.0

#: Seconds between two checks of whether the slots' state has been copied.
LOOK_S: Final = 0.05

#: The stages of a shutdown, each named after the step that it waits for.
NOTHING: Final = 0
COPYING: Final = 1
TRANSFERRING: Final = 2
DELIVERING: Final = 3
SENDING_AWAY: Final = 4
CLOSING: Final = 5
DEPARTING: Final = 6
GONE: Final = 7


class Leaving:
    """One endpoint's shutdown."""

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
        self._untold: list[Connection] = []  # connections to disconnect; the last connection in the list is next
        self._newest = -1  # the greatest number of a connection that was in this list
        # Connections that the endpoint no longer reads: (connection, the latest time at which to disconnect it).
        self._told_soon: list[tuple[Connection, float]] = []

    def begin(self, over_s: float) -> None:
        """Begin to leave. Spread the clients' disconnections over ``over_s`` seconds, or less if there are only a few
        clients. Accept no new clients."""
        self.under_way = True
        self._stage = COPYING
        self._deadline = self._desk.now + COPY_S
        self._over_s = over_s

    def go_on(self) -> None:
        """Continue the shutdown as far as possible. The caller calls this method at the end of each turn while the
        shutdown is ``under_way``."""
        now = self._desk.now
        self._desk.hurry()
        if self._stage == COPYING:
            if now < min(self._look_at, self._deadline):
                return
            # If other endpoints have released slots to this endpoint, it must first take these slots over, and then
            # transfer them as well.
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
            self._untold = self._newcomers()
            count = len(self._untold)
            self._batch = max(self._told_at_once, math.ceil(count * STEP_S / self._over_s)) if self._over_s else count
        if self._stage == SENDING_AWAY:
            self._untold[:0] = self._newcomers()
            self._send_away(now)
            if not self._untold and not self._told_soon:
                self._stage = CLOSING
                self._deadline = now + AFTER_CLOSE_S
        # A client can send messages until it reads the close frame. These messages need the links to the peers, which
        # end some time after `depart`.
        if self._stage == CLOSING and (not self._sessions.connections or now >= self._deadline):
            self._stage = DEPARTING
            self._deadline = now + LEAVE_S
            self._joining.depart()
        if self._stage == DEPARTING and (self._joining.left or now >= self._deadline):
            self._stage = GONE
            self.under_way = False
            self._desk.emit(Left(self._joining.left))

    def _newcomers(self) -> list[Connection]:
        """Return the connections that clients have got since the last call. A client that speaks HTTP gets another
        connection if it opens an event stream or uses another token."""
        newcomers: list[Connection] = []
        for number in reversed(self._sessions.connections):
            if number <= self._newest:
                break
            newcomers.append(self._sessions.connections[number])
        if newcomers:
            self._newest = newcomers[0].number
        return newcomers

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
