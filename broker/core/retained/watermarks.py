"""The progress of all homes, and so the meaning of a position. SPEC section 8.10, ADR 36.

Owns: the watermark of every endpoint, the position that follows from them, and the clients of each endpoint that have
missed a delivery. Must never: hand out a position that covers a message not yet sent to a connected client that should
get it.

Once a second each endpoint tells all others its *watermark* (``clock``). The least of all is the *cluster's watermark*:
each retained message up to it has ended, so every endpoint has put it into the outboxes of all its clients that should
get it. That is a position, with the *epoch* in front: the life of the cluster that the stamps belong to.

With a journal, a cold start continues the earlier lives of the cluster up to the greatest stamp in the journal. So the
journal must know a stamp before any client gets a position with it. A position beyond that comes from a journal that is
gone, because somebody has restored an older backup.

An endpoint that comes into the view learns the clock before it is let in, so it gives no stamp up to any existing
position. An endpoint whose lease has lapsed may have missed messages. It hands out no later position before its
clients have recovered (``replaying``). When a delivery to an endpoint has failed, every watermark tells that endpoint
so until it has confirmed, so no position passes such a message unnoticed.
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

#: Seconds between two watermarks to each peer.
PERIOD_S: Final = 1.0

#: Maximum number of clients of one endpoint to name as having missed messages. Beyond that, all its clients count as
#: such.
MISSED_MAX: Final = 1_000

#: In place of a stamp: without a journal, no stamp bounds the positions.
ANY: Final = 1 << 64

#: In place of a watermark: this endpoint does not act yet.
NOT_YET: Final = -1

#: Maximum number of hexadecimal digits of a stamp in a position.
_STAMP_DIGITS: Final = 16


class Watermarks(Part):
    """One endpoint's part. ``clock``: its own."""

    def __init__(self, desk: Desk, members: Membership, clock: Clock) -> None:
        self._desk = desk
        self._members = members
        self._me = members.me.incarnation
        self._clock = clock
        self.cluster_watermark = 0
        #: Every endpoint in the view has told its watermark since this one joined.
        self.known = False
        #: The present epochs. There is more than one only if endpoints began at the same moment.
        self.epochs: dict[str, None] = {}
        #: Epochs of earlier lives whose positions are accepted, each up to a stamp.
        self.past: dict[str, int] = {}
        #: The journal has recorded that positions go up to this stamp; -1: it has recorded nothing yet.
        self.proven = ANY
        self._watermarks: dict[str, int] = {}
        #: By peer: its clients to which a delivery failed, each with the number of its latest failure; ``None`` alone:
        #: perhaps all its clients. The number shows whether a client has missed more since the peer last got its name.
        self._failed: dict[str, dict[str | None, int]] = {}
        self._failures = 0
        #: By endpoint, this one included: its clock when it began to act. Floors that it set then lie below.
        self._begun: dict[str, int] = {}
        #: By peer: the number of endpoints that take part, in its view.
        self._counts: dict[str, int] = {}
        self._tell_at = desk.now
        #: The cluster's watermark has grown. ``Positions`` sends it.
        self.advances = False
        #: Clients here that have missed messages, as peers have told (None: perhaps all). ``Replaying`` takes them. The
        #: cluster's watermark does not grow before that.
        self.missing: list[list[str] | None] = []
        #: Positions can go up to this stamp once the journal has recorded it and the epochs. ``Journal`` takes it. -1:
        #: there is nothing to record.
        self.unproven = -1

    def requests(self) -> dict[type[Request], RequestHandler]:
        """See ``Part``."""
        return {WatermarkRequest: self.watermark_told}

    # Positions

    @property
    def position(self) -> str:
        """The position of a client that has been sent everything up to the cluster's watermark."""
        return self.position_at(self.cluster_watermark)

    def position_at(self, stamp: int) -> str:
        """Return the position for this stamp."""
        return f"{min(self.epochs, default='')}.{stamp:x}"

    def stamp_of(self, position: str) -> int | None:
        """Return a position's stamp. ``None``: no endpoint of this cluster's present life, or of a life that it
        continues, has given such a position."""
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
        """Have the journal record the present epochs, and that positions can go up to this stamp."""
        self.unproven = max(self.unproven, stamp)

    def reached(self, past: dict[str, int], proven: int) -> None:
        """Note the journal's record: positions go up to ``proven``, and these are the earlier lives."""
        self.past, self.proven = past, proven
        self.advance()

    # Telling

    def tick(self) -> None:
        """Tell the peers the watermark when it is due, and at every tick until all know each other's."""
        if self._desk.now >= self._tell_at or (self._acts and not self.known):
            self._tell_at = self._desk.now + PERIOD_S
            if not self._members.keep_messages:
                return
            for peer in self._members.view():
                self.greet(peer)
        self.advance()

    def greet(self, peer: str) -> None:
        """Tell a peer the watermark, also before it is let in. If no endpoint keeps messages, nobody needs it."""
        if not self._members.keep_messages:
            return
        failed = self._failed.get(peer, {})
        again = None if None in failed else [client for client in failed if client is not None]
        watermark = self._clock.watermark if self._acts else NOT_YET
        request = WatermarkRequest(watermark, self._clock.value, list(self.epochs), again, self._count)
        self._desk.ask(peer, request, self, (again, self._failures))

    def watermark_told(self, peer: str, number: int, request: WatermarkRequest) -> None:
        """Process a peer's watermark, and the clients of this endpoint that have missed a message of its topics."""
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
        """Forget the clients that were named to the peer: it has confirmed."""
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
        """Note that a retained message may not have reached these clients of the peer."""
        if not self._members.in_view(peer):
            return  # it recovers all its clients when it returns
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
        """Advance the cluster's watermark to the point that all endpoints have reached."""
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
            # Endpoints that begin at the same time have floors above each other's watermarks. Before all know each
            # other's, a position would have a needless gap. A peer can see one that is not in this view yet.
            return
        known, self.known = self.known, True
        if least > self.cluster_watermark or not known:
            self.cluster_watermark = max(least, self.cluster_watermark)
            self.advances = True

    # The cluster

    def view_changed(self) -> None:
        """Forget the watermarks of peers outside the view. One that returns tells its watermark again."""
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
        """Begin to act. Without an epoch from another endpoint, begin a new one."""
        if not self.epochs:
            self.epochs[self._me] = None
        self.prove(0)
        self._begun[self._me] = self._clock.value
        self._tell_at = self._desk.now

    def lapsed(self) -> None:
        """Forget the peers' watermarks: others can continue without this endpoint."""
        self._watermarks.clear()
        self._begun.clear()
        self._counts.clear()
        self.known = False
