"""The progress of all homes, which determines the positions that clients get. SPEC section 8.10, ADR 36.

Owns: the watermark of every endpoint, the position that follows from these watermarks, and the clients of each endpoint
that have missed a delivery. Must never: give out a position that covers a message before the message has been sent to
all connected clients that should get it.

Once a second each endpoint sends its *watermark* (``clock``) to all other endpoints. The smallest of all these
watermarks is the *cluster's watermark*. All retained messages with stamps up to the cluster's watermark have ended. So
every endpoint has put these messages into the outboxes of all clients that should get them. A position consists of an
*epoch* and a stamp that is at most the cluster's watermark. The epoch identifies the life of the cluster to which the
stamps belong.

With a journal, a cluster that starts again accepts the positions of its earlier lives, up to the greatest stamp in the
journal. The journal must therefore record a stamp before any client gets a position with this stamp. If a client has a
position beyond the greatest recorded stamp, somebody has replaced the journal with an older backup.

A new endpoint gets the clocks of the other endpoints before they let it in, so all its stamps are greater than any
existing position. An endpoint whose lease has lapsed may have missed messages. It gives out a later position only after
its clients have recovered (``replaying``). When a delivery to an endpoint has failed, each watermark sent to that
endpoint also names the affected clients, until the endpoint has confirmed the list. The endpoint recovers these
clients, so their positions never skip the message.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from ..cluster.membership import Membership
from ..desk import Desk
from ..links.calls import Call
from ..links.requests import Request, WatermarkRequest
from ..model import EPOCHS_MAX
from ..part import Part, RequestHandler
from .clock import Clock

#: The time between two watermarks to each peer, in seconds.
PERIOD_S: Final = 1.0

#: The largest number of clients of one endpoint to list as having missed messages. If there are more, all clients of
#: the endpoint count as having missed messages.
MISSED_MAX: Final = 1_000

#: The value of ``proven`` without a journal. It is greater than all stamps, so that it does not limit positions.
ANY: Final = 1 << 64

#: An endpoint sends this instead of its watermark while it does not act yet.
NOT_YET: Final = -1

#: The largest number of hexadecimal digits of a stamp in a position.
_STAMP_DIGITS: Final = 16


class Watermarks(Part):
    """The watermarks and positions that one endpoint knows. ``clock`` is the endpoint's own clock."""

    def __init__(self, desk: Desk, members: Membership, clock: Clock) -> None:
        self._desk = desk
        self._members = members
        self._me = members.me.incarnation
        self._clock = clock
        self.cluster_watermark = 0
        #: Whether every endpoint in the view has sent its watermark since this endpoint joined.
        self.known = False
        #: The epochs of the cluster's present life. There is more than one only if endpoints began at the same moment.
        self.epochs: dict[str, None] = {}
        #: Epochs of earlier lives, each with the greatest stamp of its positions that this endpoint accepts.
        self.past: dict[str, int] = {}
        #: The journal has recorded that positions can have stamps up to this stamp. It is -1 until the journal has
        #: recorded a stamp.
        self.proven = ANY
        self._watermarks: dict[str, int] = {}
        #: For each peer, its clients to which a delivery failed, each with the number of the latest failure. The single
        #: key ``None`` means all clients of the peer. The number shows whether a client has missed another message
        #: since this endpoint last sent the client's id to the peer.
        self._failed: dict[str, dict[str | None, int]] = {}
        self._failures = 0
        #: For each endpoint, including this endpoint, its clock when it began to act. The floors that the endpoint set
        #: at that time are not greater than this clock.
        self._begun: dict[str, int] = {}
        #: For each peer, the number of endpoints in the peer's view, including the peer.
        self._counts: dict[str, int] = {}
        self._tell_at = desk.now
        #: Whether the cluster's watermark has grown, and ``Positions`` should send new positions.
        self.advances = False
        #: Lists of this endpoint's clients that have missed messages according to peers (``None`` if all clients may
        #: have missed messages). ``Replaying`` empties this tray. While the tray is not empty, the cluster's watermark
        #: does not grow.
        self.missing: list[list[str] | None] = []
        #: The stamp that the journal should record next, with the epochs, or -1 if there is nothing to record. After
        #: the journal has recorded the stamp, positions can have stamps up to it. ``Journal`` resets this attribute to
        #: -1.
        self.unproven = -1

    def requests(self) -> dict[type[Request], RequestHandler]:
        """See ``Part``."""
        return {WatermarkRequest: self.watermark_told}

    # Positions

    @property
    def position(self) -> str:
        """Return the position of a client to which all messages up to the cluster's watermark have been sent."""
        return self.position_at(self.cluster_watermark)

    def position_at(self, stamp: int) -> str:
        """Return the position with this stamp."""
        return f"{min(self.epochs, default='')}.{stamp:x}"

    def stamp_of(self, position: str) -> int | None:
        """Return a position's stamp. Return ``None`` if no endpoint of the cluster's present life, or of an earlier
        life that the present life continues, can have given out this position."""
        epoch, _, text = position.rpartition(".")
        last = self._clock.value if epoch in self.epochs else self.past.get(epoch, -1)
        if not 0 < len(text) <= _STAMP_DIGITS or not text.isalnum():
            return None
        try:
            stamp = int(text, 16)
        except ValueError:
            return None
        return stamp if 0 <= stamp <= last else None

    def prove(self, stamp: int) -> None:
        """Ask the journal to record the present epochs and this stamp, so that positions can have stamps up to it."""
        self.unproven = max(self.unproven, stamp)

    def reached(self, past: dict[str, int], proven: int) -> None:
        """Use the values that the journal has recorded. Positions can have stamps up to ``proven``, and ``past`` has
        the earlier lives of the cluster."""
        self.past, self.proven = past, proven
        self.advance()

    # Telling

    def tick(self) -> None:
        """Send the watermark to the peers when it is due, or at every tick until this endpoint knows the watermarks of
        all peers."""
        if self._desk.now >= self._tell_at or (self._acts and not self.known):
            self._tell_at = self._desk.now + PERIOD_S
            if not self._members.keep_messages:
                return
            for peer in self._members.view():
                self.greet(peer)
        self.advance()

    def greet(self, peer: str) -> None:
        """Send the watermark to a peer, even before this endpoint lets the peer in. If no endpoint keeps messages,
        nobody needs watermarks."""
        if not self._members.keep_messages:
            return
        failed = self._failed.get(peer, {})
        again = None if None in failed else [client for client in failed if client is not None]
        watermark = self._clock.watermark if self._acts else NOT_YET
        request = WatermarkRequest(watermark, self._clock.value, list(self.epochs), again, self._count)
        self._desk.ask(peer, request, self, (again, self._failures))

    def watermark_told(self, peer: str, number: int, request: WatermarkRequest) -> None:
        """Handle a peer's watermark, and the list of this endpoint's clients that have missed a message from the
        peer."""
        watermark, clock, again = request.watermark, request.clock, request.missed
        self._counts[peer] = request.count
        self._clock.see(clock)
        for epoch in request.epochs:
            if epoch not in self.epochs and len(self.epochs) < EPOCHS_MAX:
                self.epochs[epoch] = None
                self.prove(0)
        if again is None or again:
            self.missing.append(again)
        if watermark != NOT_YET:
            self._watermarks[peer] = max(watermark, self._watermarks.get(peer, 0))
            self._begun.setdefault(peer, clock)
        self._desk.answer(peer, number)
        self.advance()

    def answered(self, call: Call, value: Any) -> None:
        """Forget the clients that the request listed, because the peer has confirmed the request."""
        again: list[str] | None = call.context[0]
        failures: int = call.context[1]
        failed = self._failed.get(call.target)
        if failed is None:
            return
        for client in list(failed) if again is None else again:
            if failed.get(client, failures + 1) <= failures:
                del failed[client]
        if not failed:
            del self._failed[call.target]

    def delivery_failed(self, peer: str, clients: Sequence[str]) -> None:
        """Record that a retained message may not have reached these clients of the peer."""
        if not self._members.in_view(peer):
            return  # the peer recovers all its clients when it returns
        self._failures += 1
        failed = self._failed.setdefault(peer, {})
        failed.update(dict.fromkeys(clients, self._failures))
        if None in failed or len(failed) > MISSED_MAX:
            self._failed[peer] = {None: self._failures}

    @property
    def _acts(self) -> bool:
        return self._members.joined or self._members.leaving

    @property
    def _count(self) -> int:
        return len(self._members.view()) + 1

    def advance(self) -> None:
        """Advance the cluster's watermark to the stamp that all endpoints have reached."""
        if not self._acts or self.missing:
            return
        least = self._clock.watermark
        for peer in self._members.view():
            watermark = self._watermarks.get(peer)
            if watermark is None:
                return
            least = min(least, watermark)
        if least > self.proven:
            self.prove(least)
            least = self.proven
        if not self.known and (
            least < max(self._begun.values(), default=0)
            or max([self._counts.get(peer, 0) for peer in self._members.view()], default=0) > self._count
        ):
            # Endpoints that begin at the same time have floors above each other's watermarks. A position that is given
            # out before all watermarks are known would lie below such a floor, and so cause a needless gap. A peer may
            # also see an endpoint that is not in this endpoint's view yet.
            return
        known, self.known = self.known, True
        if least > self.cluster_watermark or not known:
            self.cluster_watermark = max(least, self.cluster_watermark)
            self.advances = True

    # The cluster

    def view_changed(self) -> None:
        """Forget the watermarks of peers outside the view. A peer that returns sends its watermark again."""
        in_view = self._members.in_view
        for peer in [peer for peer in self._watermarks if not in_view(peer)]:
            del self._watermarks[peer]
        for peer in [peer for peer in self._failed if not in_view(peer)]:
            del self._failed[peer]
        for peer in [peer for peer in self._counts if not in_view(peer)]:
            del self._counts[peer]
        for peer in [peer for peer in self._begun if peer != self._me and not in_view(peer)]:
            del self._begun[peer]

    def joined(self) -> None:
        """Begin to act. If no other endpoint has sent an epoch, begin a new epoch."""
        if not self.epochs:
            self.epochs[self._me] = None
        self.prove(0)
        self._begun[self._me] = self._clock.value
        self._tell_at = self._desk.now

    def lapsed(self) -> None:
        """Forget the peers' watermarks, because other endpoints can now continue without this endpoint."""
        self._watermarks.clear()
        self._begun.clear()
        self._counts.clear()
        self.known = False
