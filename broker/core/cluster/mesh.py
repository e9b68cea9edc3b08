"""The links to all other endpoints: which links should exist, and which frames each link carries.

Owns: the links, and when to dial a peer. Must never: decide which peers are alive (``membership`` does), or know the
meaning of a request.

Every endpoint has a link to every other endpoint. In each pair the endpoint with the smaller incarnation dials. If it
does not dial in time, the other endpoint dials. The first endpoint may be unable to read the registry, and may
therefore not know the second endpoint.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

from msgspec import Raw

from ..dedup.inflight import InFlight
from ..desk import Desk
from ..effects import Dial, DropLink
from ..limits import SIZES, Sizes
from ..links.calls import TIMEOUT_S, Calls
from ..links.frames import Answer, Hurry, UsualAnswers, value_of
from ..links.link import Link, LinkError, SessionMismatch
from ..links.requests import Request
from ..metrics import Metric, gauge, gauges
from ..model import Endpoint
from ..part import Part, RequestHandler
from .membership import Membership

#: The first and the longest wait before redialling a peer, in seconds.
REDIAL_FIRST_S: Final = 0.1
REDIAL_MAX_S: Final = 1.0

#: How long we wait for a peer that should dial first, in seconds. This is far less than the silence after which a peer
#: counts as dead.
PEERS_TURN_S: Final = 1.0


class Dialling:
    """A peer that should have a link but has none."""

    __slots__ = ("not_before", "under_way", "wait_s")

    def __init__(self, not_before: float) -> None:
        self.not_before = not_before
        self.wait_s = REDIAL_FIRST_S  # the wait between the next two attempts
        self.under_way = False


class Mesh(Part):
    """One endpoint's links. ``errors``: the number of errors with each code."""

    def __init__(
        self,
        desk: Desk,
        members: Membership,
        calls: Calls,
        inflight: InFlight,
        errors: Counter[str],
        sizes: Sizes = SIZES,
    ) -> None:
        self._desk = desk
        self._list_ids_max = sizes.list_ids_max
        self._me = members.me.incarnation
        self._members = members
        self._calls = calls
        self._inflight = inflight
        self._errors = errors
        self._requests: dict[Any, RequestHandler] = {}
        self._sessions = 0
        self._up: set[str] = set()  # peers with a connection
        self._dialling: dict[str, Dialling] = {}
        self._again: dict[str, list[bytes]] = {}  # frames to send again in this turn
        self._confirm = False  # in this turn, links confirm the frames that they have processed
        self._ping = False  # in this turn, links send a sign of life
        self.due = False  # ``_again``, ``_confirm`` or ``_ping`` is set; links may have other frames to send

    def bind(self, requests: Mapping[type[Request], RequestHandler]) -> None:
        """Dispatch the peers' requests to these handlers."""
        self._requests = dict(requests)

    def metrics(self) -> list[Metric]:
        """See ``Part``."""
        names = {incarnation: peer.endpoint.name for incarnation, peer in self._members.peers.items()}
        links = [(names[peer], link) for peer, link in self._calls.links.items() if peer in names]
        now = self._desk.now
        lags = [((name,), now - link.confirmed_sent_at) for name, link in links if link.confirmed_sent_at is not None]
        unconfirmed = [((name,), float(link.unconfirmed_bytes)) for name, link in links]
        queued = [((name,), float(link.queued)) for name, link in links]
        return [
            self._desk.counted("links_restarted", "Links started over because one side had given up on the other"),
            gauge("requests_under_way", "Requests that wait for an answer from another endpoint", len(self._calls)),
            gauges("link_queued_items", "Items that wait for the link to be up", ("peer",), queued),
            gauges("link_unconfirmed_bytes", "Bytes sent over the link, but not confirmed yet", ("peer",), unconfirmed),
            gauges("link_lag_seconds", "Age of the newest ping that the peer has echoed", ("peer",), lags),
        ]

    # Connections

    def link_up(self, endpoint: Endpoint) -> bytes:
        """Handle a new authenticated connection to the peer. Return the frame to send first."""
        incarnation = endpoint.incarnation
        self._up.add(incarnation)
        self._dialling.pop(incarnation, None)
        link = self._calls.links.get(incarnation)
        if link is None:
            link = self._new_link(incarnation)
        return link.connected()

    def link_down(self, incarnation: str) -> None:
        """Handle the end of the connection."""
        self._up.discard(incarnation)
        link = self._calls.links.get(incarnation)
        if link is not None:
            link.disconnected(self._desk.now)

    def dial_failed(self, incarnation: str) -> None:
        """Record that dialling the peer has failed."""
        dialling = self._dialling.get(incarnation)
        if dialling is not None:
            dialling.under_way = False

    def gone(self, incarnation: str) -> None:
        """Drop the link of a peer that is dead or has left."""
        self._calls.gone(incarnation)
        self._desk.emit(DropLink(incarnation))

    def ask_again(self) -> None:
        """Repeat refused requests, because the view has changed and the new home can answer them."""
        self._calls.ask_again()

    def _new_link(self, incarnation: str) -> Link:
        self._sessions += 1
        link = Link(f"{self._me}.{self._sessions}", self._list_ids_max)
        self._calls.linked(incarnation, link)
        return link

    # Frames

    def frame(self, incarnation: str, data: bytes) -> None:
        """Handle a frame that has arrived over the peer's link."""
        desk = self._desk
        link = self._calls.links.get(incarnation)
        if link is None:
            desk.emit(DropLink(incarnation))
            return
        try:
            items, again = link.receive(data)
        except SessionMismatch:
            desk.emit(DropLink(incarnation))
            self._new_link(incarnation)
            desk.counts["links_restarted"] += 1
            return
        except LinkError:
            self._refuse(incarnation)
            return
        if items is None:
            self._refuse(incarnation)
            return
        self._members.heard(incarnation, desk.now)
        if link.confirmed_sent_at is not None:
            self._members.confirmed(incarnation, link.confirmed_sent_at)
        self._calls.due[incarnation] = None
        if again:
            self._again.setdefault(incarnation, []).extend(again)
            self.due = True
        requests = self._requests
        for number, said in items:
            handle = requests.get(type(said))
            if handle is not None:
                handle(incarnation, number, said)
            elif isinstance(said, UsualAnswers):
                self._calls.answered_usually(incarnation, said.numbers, desk.now)
            elif isinstance(said, Hurry):
                link.want(number)
                if said.goes_on:
                    self._calls.hurry(False)  # some of the peer's messages may wait for answers to this endpoint
            elif isinstance(said, Answer):
                self._answered(incarnation, number, said)
            else:
                self._errors["link"] += 1
                desk.decline(incarnation, number, "internal", "the request is malformed")

    def _refuse(self, incarnation: str) -> None:
        self._desk.emit(DropLink(incarnation))
        self._errors["link"] += 1

    def _answered(self, incarnation: str, number: int, answer: Answer[Raw]) -> None:
        request = self._calls.asked(incarnation, number)
        if request is None:
            return  # the request was repeated elsewhere, or given up
        try:
            code, value = value_of(request, answer)
        except ValueError:
            self._errors["link"] += 1
            code, value = "internal", "the answer is malformed"
        self._calls.answer(incarnation, number, code, value, self._desk.now)

    def ping(self) -> None:
        """Send every peer a sign of life in this turn."""
        self._ping = self.due = True

    def take(self) -> list[tuple[str, list[bytes]]]:
        """Return the frames for the peers at the end of the turn. With many peers, most turns have frames for only a
        few peers."""
        again, self._again = self._again, {}
        ping, self._ping = self._ping, False
        due, self._calls.due = self._calls.due, {}
        frames = []
        for incarnation in self._calls.links if ping or self._confirm else due:
            link = self._calls.links.get(incarnation)
            if link is None:
                continue
            sent = again.get(incarnation, [])
            sent.extend(link.flush(self._confirm))
            if ping:
                sent.extend(link.ping(self._desk.now))
            if sent:
                frames.append((incarnation, sent))
        self._confirm = self.due = False
        return frames

    # Time

    def tick(self) -> None:
        """Drop links that have become useless, and dial the peers that have no connection."""
        now = self._desk.now
        dead_after_s = self._members.patience.dead_after_s
        self._confirm = self.due = True
        full = 0
        for incarnation, link in list(self._calls.links.items()):
            peer = self._members.peers.get(incarnation)
            if link.down_since is not None and now - link.down_since > TIMEOUT_S:
                self._calls.unlink(incarnation)
            elif peer is not None and peer.connected and now - peer.heard_at > dead_after_s:
                # The peer is silent, although a live peer sends pings all the time. TCP can take a quarter of an hour
                # to notice that a peer is gone.
                self._desk.emit(DropLink(incarnation))
            full = max(full, link.unconfirmed_bytes)
        self._inflight.links(full)
        self._dial(now)

    def _dial(self, now: float) -> None:
        wanted = {
            incarnation: peer.endpoint
            for incarnation, peer in self._members.peers.items()
            if peer.dead_since is None and incarnation not in self._up
        }
        for incarnation in self._dialling.keys() - wanted.keys():
            del self._dialling[incarnation]
        for incarnation, endpoint in wanted.items():
            dialling = self._dialling.get(incarnation)
            if dialling is None:
                ours = incarnation > self._me
                dialling = self._dialling[incarnation] = Dialling(now if ours else now + PEERS_TURN_S)
            if dialling.under_way or now < dialling.not_before:
                continue
            dialling.under_way = True
            dialling.not_before = now + dialling.wait_s
            dialling.wait_s = min(2 * dialling.wait_s, REDIAL_MAX_S)
            self._desk.emit(Dial(endpoint))
