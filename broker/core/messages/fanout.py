"""A message on its way from its home: to each endpoint its clients, again where they have moved, until all confirm.

Owns: the requests that carry it, and who has confirmed. Must never: know why it goes to whom (``home`` does), or hold
it for longer than the time-outs of what it waits for.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from typing import Any

from ingeborg.protocol.errors import ProtocolError

from ..cluster.membership import Membership
from ..desk import Desk
from ..dispatch import Dispatch
from ..limits import SIZES, Sizes
from ..links.calls import Call
from ..links.carrying import carried
from ..links.link import Link
from ..links.requests import BroadcastRequest, DeliverRequest, DeliverToListRequest
from ..metrics import Metric
from ..model import Location
from ..part import Part
from ..retained.retention import Retention
from ..topics.locations import NEVER_LISTENED, Found, LocationGroups, Locations, Places, add, placed
from ..topics.moved import MOVED_S
from .delivery import Delivered, Delivery, Moved


class Fanout(Part):
    """One endpoint's part as the home of messages, once it is known who gets them."""

    def __init__(
        self,
        desk: Desk,
        members: Membership,
        links: dict[str, Link],
        locations: Locations,
        location_groups: LocationGroups,
        delivery: Delivery,
        retention: Retention,
        keeps_lists: bool,
        sizes: Sizes = SIZES,
    ) -> None:
        """``links``: by the peer's incarnation. ``retention`` learns of retained messages that may not have reached a
        peer. ``keeps_lists``: recipients that stay the same go to a peer once."""
        self._desk = desk
        self._members = members
        self._name = members.me.name
        self.links = links
        self._locations = locations
        self._location_groups = location_groups
        self._delivery = delivery
        self._retention = retention
        self._keeps_lists = keeps_lists
        self._many = sizes.delivery_slice
        #: What did not end at once, and every endpoint has confirmed by now, or failed to: the home takes it.
        self.dispatched: deque[tuple[Dispatch, ProtocolError | None]] = deque()
        #: What ``delivery`` has done of it here in later turns. The tickets: dispatch, how many clients it was for,
        #: where they had been found.
        self.delivered: Delivered = deque()
        self.broadcasts: deque[tuple[Dispatch, Moved]] = deque()

    def metrics(self) -> list[Metric]:
        """See ``Part``."""
        return [
            self._desk.counted("messages_forwarded", "Items sent by this endpoint, as home, to other endpoints"),
            self._desk.counted(
                "lists_sent",
                "Lists of recipients sent to other endpoints, once for each version of a large set",
            ),
            self._desk.counted(
                "relocations",
                "Locations read again because a client was not where it was thought to be",
            ),
        ]

    def send(
        self,
        dispatch: Dispatch,
        local: list[str],
        remote: dict[str, list[str]],
        places: Found | None = None,
        name: str = "",
    ) -> bool:
        """To each endpoint its clients. True: they are all here, and have it. Else ``dispatched`` gets it when the
        last endpoint has confirmed, or failed to.

        ``places``: where they have been found, if they were not where they were thought to be. A publish has this
        second attempt; a broadcast as many as there are later places within ``MOVED_S``, since whoever moves on from
        place to place listens all the time. ``name``: of the lists of recipients, where they are not the topic's.
        """
        absent: list[str] | None
        if local:
            absent = self._delivery.deliver(dispatch.message, local, (dispatch, len(local), places), self.delivered)
        else:
            absent = []
        if absent is not None and not absent and not remote and not dispatch.open:
            return True
        dispatch.open += 1  # until all of it is on its way
        if local:
            dispatch.open += 1
            if absent is not None:
                self._delivered_here(dispatch, len(local), absent, places)
        for endpoint, clients in remote.items():
            dispatch.open += 1
            self._forward(dispatch, endpoint, clients, places, name)
        self._confirmed_by_one(dispatch)
        return False

    def send_both(self, dispatch: Dispatch, plain: Places, matched: Places, name: str) -> bool:
        """To the plain subscribers, and to those whose filters have matched. Many go apart: those lists stay the same,
        and these come and go with what a message says. ``name``: of these. Returns as ``send`` does."""
        self._location_groups.leave_out_the_gone(plain[1])  # it may be a while ago
        many = self._many
        if all(len(clients) <= many for places in (plain, matched) for clients in places[1].values()):
            add(plain, matched)
            return self.send(dispatch, plain[0], plain[1])
        dispatch.open += 1  # until both are on their way
        self.send(dispatch, plain[0], plain[1])
        self.send(dispatch, matched[0], matched[1], None, name)
        self._confirmed_by_one(dispatch)
        return False

    def _forward(self, dispatch: Dispatch, endpoint: str, clients: list[str], places: Found | None, name: str) -> None:
        topic, message = dispatch.message.topic, carried(dispatch.message)
        self._desk.counts["messages_forwarded"] += 1
        request = DeliverRequest(message, clients)
        linked = None
        if self._keeps_lists and len(clients) > self._many and topic and places is None:
            link = self.links.get(endpoint)
            if link is not None:
                name = name or topic
                known = link.sent.holds(name, clients)
                if not known:
                    link.sent.keep(name, clients)
                    self._desk.counts["lists_sent"] += 1
                linked = DeliverToListRequest(message, name, None if known else clients)
        self._desk.ask(endpoint, request, self, (dispatch, clients, places), 0, linked)

    def _delivered_here(self, dispatch: Dispatch, clients: int, absent: list[str], places: Found | None) -> None:
        if len(absent) < clients:
            _note(dispatch, self._name)
        self._confirmed(dispatch, absent, places)

    def take_delivered(self) -> None:
        """What has been delivered at this endpoint and took more than a turn. Called at the end of each turn."""
        delivered = self.delivered
        while delivered:
            (dispatch, clients, places), absent = delivered.popleft()
            self._delivered_here(dispatch, clients, absent, places)
        while self.broadcasts:
            dispatch, moved = self.broadcasts.popleft()
            _note(dispatch, self._name)
            self._follow(dispatch, moved)
            self._confirmed_by_one(dispatch)

    def _all_confirmed(self, dispatch: Dispatch) -> None:
        """Every endpoint has confirmed, or failed to."""
        error = None
        if dispatch.failed and dispatch.confirmed:
            extra = {"delivered": sorted(set(dispatch.confirmed)), "failed": sorted(set(dispatch.failed))}
            error = ProtocolError("partial", "Do not retry: it would be a duplicate", **extra)
        elif dispatch.failed:
            error = ProtocolError("peer_unavailable", "An endpoint with subscribers did not answer")
        self.dispatched.append((dispatch, error))

    def answered(self, call: Call, value: Any) -> None:
        """An endpoint has what it was sent."""
        if isinstance(call.request, DeliverRequest):
            dispatch, clients, places = call.context
            if len(value) < len(clients):
                _note(dispatch, self._name_of(call.target))
            self._confirmed(dispatch, value, places)
        else:
            dispatch = call.context
            _note(dispatch, self._name_of(call.target))
            self._follow(dispatch, value)
            self._confirmed_by_one(dispatch)

    def failed(self, call: Call, code: str, info: Any) -> None:
        """It could not take it, or did not answer in time."""
        dispatch: Dispatch = call.context[0] if isinstance(call.request, DeliverRequest) else call.context
        if dispatch.entry is not None:
            self._retention.delivery_failed(call.target, call.context[1])
        _note_failure(dispatch, self._name_of(call.target))
        self._confirmed_by_one(dispatch)

    def lost(self, call: Call) -> str | None:
        """It is gone: its clients may listen elsewhere by now."""
        if isinstance(call.request, DeliverRequest):
            dispatch, clients, places = call.context
            self._confirmed(dispatch, clients, places, gone=True)
        else:
            # Whoever was there is connected nowhere now; how many that were was the other endpoint's to know.
            self._desk.drops["broadcast_endpoint_gone"] += 1
            self._confirmed_by_one(call.context)
        return None

    def _confirmed_by_one(self, dispatch: Dispatch) -> None:
        dispatch.open -= 1
        if not dispatch.open:
            self._all_confirmed(dispatch)

    def _name_of(self, incarnation: str) -> str:
        peer = self._members.peers.get(incarnation)
        return peer.endpoint.name if peer is not None else incarnation

    def _confirmed(self, dispatch: Dispatch, absent: list[str], places: Found | None, gone: bool = False) -> None:
        """An endpoint has what it was sent, or is ``gone``. ``absent``: the clients it does not hold."""
        if absent and (places is None or not dispatch.message.topic):
            # Moved meanwhile? Read where to, and resend; perhaps to the same endpoint, where it came back to. Until
            # then nothing is known: that endpoint may have heard of the client's new place before us.
            self._desk.counts["relocations"] += 1
            self._desk.store("locations", (absent,), self._relocated, (dispatch, absent, places, gone))
            return
        if absent:
            assert places is not None
            self._not_listening(absent, places, gone)
            if dispatch.entry is not None:
                dispatch.entry.pending_readers += len(absent)
        self._confirmed_by_one(dispatch)

    def _relocated(self, context: Any, result: Any, error: Exception | None) -> None:
        dispatch, clients, tried, gone = context
        if error is not None:
            self._desk.drops["relocation_failed"] += len(clients)
            _note_failure(dispatch, "store")
            self._confirmed_by_one(dispatch)
            return
        found: Found = dict(zip(clients, result, strict=True))
        for client, location in found.items():
            self._locations.learn(client, location or NEVER_LISTENED)
            found[client] = self._locations.get(client) or location  # what is known by now may be later
        if tried is not None:
            late = self._desk.now >= dispatch.message.received + MOVED_S
            last = {client for client in clients if late or not _later(found[client], tried[client])}
            self._not_listening(last, found, gone)
            clients = [client for client in clients if client not in last]
        local, remote, _ = self._location_groups.places(clients, found)
        if dispatch.entry is not None:
            dispatch.entry.pending_readers += len(clients) - placed(local, remote)
        # The place it kept open stays so until all that is resent is on its way.
        self.send(dispatch, local, remote, found)
        self._confirmed_by_one(dispatch)

    def _not_listening(self, clients: Collection[str], places: Found, gone: bool) -> None:
        """Since the store said so they have left these places again, or the endpoint failed to clear them. ``gone``:
        the endpoint itself is not there; if it was taken for dead, and comes back, they are."""
        if gone:
            self._desk.drops["endpoint_gone"] += len(clients)
            return
        self._desk.drops["not_listening"] += len(clients)
        for client in clients:
            if (location := places[client]) is not None:
                self._locations.learn_offline(client, location)

    def broadcast(self, dispatch: Dispatch) -> None:
        """To every endpoint, this one included; then to those that moved meanwhile."""
        dispatch.open = 1
        message = dispatch.message
        self._delivery.broadcast(message, dispatch, self.broadcasts)
        endpoints = self._members.view()
        dispatch.open += len(endpoints)
        request = BroadcastRequest(carried(message))
        self._desk.cast(endpoints, request, self, dispatch)

    def _follow(self, dispatch: Dispatch, moved: Moved) -> None:
        """Clients left a place before the broadcast came there. Where they are now it may have been before them, if
        they moved since it began; that place knows, and gives it to those it has not had.
        """
        elapsed = self._desk.now - dispatch.begun
        clients = [client for client, since in moved if since <= elapsed]
        if not clients:
            return
        local, remote, unknown = self._location_groups.places(clients, {})
        if unknown:
            dispatch.open += 1
            self._desk.counts["relocations"] += 1
            self._desk.store("locations", (unknown,), self._relocated, (dispatch, unknown, None, False))
        self.send(dispatch, local, remote)


def _note(dispatch: Dispatch, name: str) -> None:
    """The endpoint has confirmed."""
    if dispatch.confirmed is None:
        dispatch.confirmed = [name]
    else:
        dispatch.confirmed.append(name)


def _note_failure(dispatch: Dispatch, name: str) -> None:
    if dispatch.failed is None:
        dispatch.failed = [name]
    else:
        dispatch.failed.append(name)


def _later(place: Location | None, than: Location | None) -> bool:
    """Is it of a later ``listen``?"""
    return place is not None and (than is None or place.rank > than.rank)
