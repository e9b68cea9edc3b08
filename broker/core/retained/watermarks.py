"""How far all homes have come, and so what a position may say. SPEC section 8.10, ADR 36.

Owns: the watermark of every endpoint, the position that follows from them, and which clients of which endpoints have
missed a delivery. Must never: hand out a position that covers a message which a client that was connected has not been
sent.

Each endpoint tells all others once a second its *watermark* (``clock``). The least of all is the *cluster's watermark*:
each retained message up to it has ended, so every endpoint has put it into the outboxes of all its clients that were to
get it. That is a position, with the *epoch* in front of it: the life of the cluster that the stamps belong to.

With a journal, a cold start continues the earlier lives of the cluster up to the greatest stamp in the journal. So the
journal has to know of a stamp before a position with it is told. A position beyond that comes from a journal that is
gone, because somebody has restored an older backup.

Who comes into the view is told the clock before it is let in, so that it gives no stamp up to any position that there
is. Whose lease has lapsed may have missed messages: it hands out no later position before its clients have been
recovered (``replaying``). A delivery to an endpoint that failed is told to it with every watermark until it has heard
of it, so no position passes such a message unseen either.
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

#: Between two tellings, in seconds.
PERIOD_S: Final = 1.0

#: Clients of one endpoint that are named as having missed something; of more it is told that all may have.
MISSED_MAX: Final = 1_000

#: In place of a stamp: there is no journal, so positions are not bounded by one.
ANY: Final = 1 << 64

#: In place of a watermark: this endpoint does not act yet.
NOT_YET: Final = -1

#: Of a stamp in a position, in hexadecimal.
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
        #: any may be concerned. The number tells whether one has missed something since it was named.
        self._failed: dict[str, dict[str | None, int]] = {}
        self._failures = 0
        #: By endpoint, this one included: its clock when it began to act. The floors that it set then lie below.
        self._begun: dict[str, int] = {}
        #: By peer: how many endpoints take part, as it sees it.
        self._counts: dict[str, int] = {}
        self._tell_at = desk.now
        #: The cluster's watermark has grown: ``Positions`` tells it.
        self.advances = False
        #: Clients here that have missed something (None: any may have), as peers have said: ``Replaying`` takes them.
        #: The cluster's watermark does not grow before that.
        self.missing: list[list[str] | None] = []
        #: Up to this stamp positions may be told once the journal knows of it and of the epochs: ``Journal`` takes it.
        #: -1: there is nothing that the journal has to know.
        self.unproven = -1

    def requests(self) -> dict[type[Request], RequestHandler]:
        """What the others tell."""
        return {WatermarkRequest: self.watermark_told}

    # Positions

    @property
    def position(self) -> str:
        """What a client may be told that has been sent all up to the cluster's watermark."""
        return self.position_at(self.cluster_watermark)

    def position_at(self, stamp: int) -> str:
        """The same of another stamp."""
        return f"{min(self.epochs, default='')}.{stamp:x}"

    def stamp_of(self, position: str) -> int | None:
        """``None``: no endpoint of this cluster's present life, or of one that it goes on from, has given such a
        position."""
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
        """The journal has to know the present epochs, and that positions may go up to this stamp."""
        self.unproven = max(self.unproven, stamp)

    def reached(self, past: dict[str, int], proven: int) -> None:
        """The journal has recorded that positions go up to ``proven``, and knows these earlier lives."""
        self.past, self.proven = past, proven
        self.advance()

    # Telling

    def tick(self) -> None:
        """Tell it when it is due, and with each tick until all have heard of each other."""
        if self._desk.now >= self._tell_at or (self._acts and not self.known):
            self._tell_at = self._desk.now + PERIOD_S
            if not self._members.keep_messages:
                return
            for peer in self._members.view():
                self.greet(peer)
        self.advance()

    def greet(self, peer: str) -> None:
        """Tell the peer; before it is let in, too. Where no endpoint keeps messages nobody needs a watermark."""
        if not self._members.keep_messages:
            return
        failed = self._failed.get(peer, {})
        again = None if None in failed else [client for client in failed if client is not None]
        watermark = self._clock.watermark if self._acts else NOT_YET
        request = WatermarkRequest(watermark, self._clock.value, list(self.epochs), again, self._count)
        self._desk.ask(peer, request, self, (again, self._failures))

    def watermark_told(self, peer: str, number: int, request: WatermarkRequest) -> None:
        """A peer has come so far; these of our clients have missed a message of its topics."""
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
        """The peer has heard of the clients that were named."""
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
        """A retained message for these clients of the peer's may not have reached it."""
        if not self._members.in_view(peer):
            return  # it recovers all its clients when it comes back
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
        """The cluster's watermark grows, as far as all have come."""
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
            # Endpoints that begin at the same time have floors above each other's watermarks. Before all of them have
            # heard of each other, a position would have a gap for nothing. A peer may see one that is not in this view
            # yet.
            return
        known, self.known = self.known, True
        if least > self.cluster_watermark or not known:
            self.cluster_watermark = max(least, self.cluster_watermark)
            self.advances = True

    # The cluster

    def view_changed(self) -> None:
        """Who is not in the view any more has no say; who comes back tells its watermark anew."""
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
        """This endpoint acts. Nobody has told it of an epoch: it begins one."""
        if not self.epochs:
            self.epochs[self._me] = None
        self.prove(0)
        self._begun[self._me] = self._clock.value
        self._tell_at = self._desk.now

    def lapsed(self) -> None:
        """Others may go on without this endpoint."""
        self._watermarks.clear()
        self._begun.clear()
        self._counts.clear()
        self.known = False
