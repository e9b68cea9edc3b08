"""A `listen` that recovers, or comes where somebody does: may it be, and may it be already? SPEC section 2.7.

Owns: the commands that wait until the journal has told how far positions go, or until the `listen` before them has
its reply. Must never: carry one out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ingeborg.protocol.errors import ProtocolError
from ingeborg.protocol.messages import Command

from ..connections.hub import Connection, Reply
from ..desk import Desk
from ..outgoing.replies import Replies
from ..part import Part
from ..retained.keeping import Keeping
from .follower import Follower

#: How long a `listen` may wait for that, in seconds.
WAIT_S: Final = 5.0

#: Commands that may wait for it.
EARLY_MAX: Final = 10_000


class Admitting(Part):
    """One endpoint's part."""

    def __init__(self, desk: Desk, keeping: Keeping, replies: Replies) -> None:
        self._desk = desk
        self._keeping = keeping
        self._replies = replies
        self._early: list[tuple[float, Connection, Command, Reply]] = []
        #: Is given the commands that may be.
        self.admitted: Callable[[Connection, Command, Reply], None] = lambda connection, command, reply: None

    def ask(self, connection: Connection, command: Command, reply: Reply) -> None:
        """May it be? ``admitted`` gets it, now or in some moments, or it is refused."""
        self._ask(connection, command, reply, self._desk.now + WAIT_S)

    def _ask(self, connection: Connection, command: Command, reply: Reply, until: float) -> None:
        refusal = self._refusal(connection, command)
        if refusal is None:
            self.admitted(connection, command, reply)
        elif refusal.code == "peer_unavailable" and self._desk.now < until and len(self._early) < EARLY_MAX:
            self._early.append((until, connection, command, reply))
        else:
            self._replies.refuse(connection, reply, command.id, refusal)

    def tick(self) -> None:
        """Look again at those that wait."""
        if self._early:
            early, self._early = self._early, []
            for until, connection, command, reply in early:
                if not connection.closed:
                    self._ask(connection, command, reply, until)

    def _refusal(self, connection: Connection, command: Command) -> ProtocolError | None:
        follower: Follower | None = connection.follower
        if follower is not None and follower.stays and follower.client != command.client:
            text = f"Client {follower.client[:64]!r} recovers on this connection, and has it for itself; open another"
            return ProtocolError("bad_state", text)
        if command.recover is None:
            return None
        if connection.clients.difference((command.client,)):
            text = "Key 'recover': other clients listen on this connection; one that recovers has it for itself"
            return ProtocolError("bad_state", text)
        if follower is not None and follower.waits:
            return ProtocolError("peer_unavailable", "A listen with recover is under way on this connection: try again")
        return self._keeping.refusal()
