"""The fanout of a message from its home. It sends the message to each endpoint with recipients, and again for clients
that have moved, until all endpoints have confirmed.

Owns: the requests that carry the message, and their confirmations. Must never: know why a client gets the message
(``home`` does), or keep the message for longer than the time-outs of the requests and store calls that it waits for.
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
    """Sends messages from their home, once the home knows their recipients."""

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
        """``links`` has the links, indexed by the peer's incarnation. ``retention`` records which retained messages a
        peer may not have received. If ``keeps_lists`` is true, a peer gets a list of recipients only when the list has
        changed."""
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
        #: Messages that could not end immediately, and that every endpoint has now confirmed or failed to confirm. The
        #: home empties this tray.
        self.dispatched: deque[tuple[Dispatch, ProtocolError | None]] = deque()
        #: Deliveries at this endpoint that took more than one turn. Their tickets have the dispatch, the number of
        #: clients, and the locations where the clients had been found.
        self.delivered: Delivered = deque()
        self.broadcasts: deque[tuple[Dispatch, Moved]] = deque()

    def metrics(self) -> list[Metric]:
        """See ``Part``."""
        return [
            self._desk.counted("messages_forwarded", "Messages sent by this endpoint, as home, to other endpoints"),
            self._desk.counted(
                "lists_sent",
                "Lists of recipients sent to other endpoints, once for each version of a large set",
            ),
            self._desk.counted(
                "relocations",
                "Locations read again because a client was not at its cached location",
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
        """Send the message to each endpoint for its clients. Return true if all clients are at this endpoint and have
        the message. Otherwise ``dispatched`` gets the message after the last endpoint has confirmed or failed.

        ``places`` is set if this call repeats an attempt whose cached locations were wrong. It has the clients'
        locations from the store. A publish is repeated at most once. A broadcast is repeated for each later location
        within ``MOVED_S``, because it must also reach a client that keeps moving. ``name`` is the name of the lists of
        recipients if it differs from the topic.
        """
        absent: list[str] | None
        if local:
            absent = self._delivery.deliver(dispatch.message, local, (dispatch, len(local), places), self.delivered)
        else:
            absent = []
        if absent is not None and not absent and not remote and not dispatch.open:
            return True
        dispatch.open += 1  # an extra confirmation, given below when all requests have been sent
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
        """Send the message to the plain subscribers, and to those whose filters have matched. If there are many
        subscribers, the two groups get separate requests, because only the list of matching subscribers changes with
        each message. ``name`` is the name of the lists of matching subscribers. Return the same as ``send``."""
        self._location_groups.leave_out_the_gone(plain[1])  # their locations may be old
        many = self._many
        if all(len(clients) <= many for places in (plain, matched) for clients in places[1].values()):
            add(plain, matched)
            return self.send(dispatch, plain[0], plain[1])
        dispatch.open += 1  # an extra confirmation, given below when both groups have been sent
        self.send(dispatch, plain[0], plain[1])
        self.send(dispatch, matched[0], matched[1], None, name)
        self._confirmed_by_one(dispatch)
        return False

    def _forward(self, dispatch: Dispatch, endpoint: str, clients: list[str], places: Found | None, name: str) -> None:
        topic, message = dispatch.message.topic, carried(dispatch.message)
        self._desk.counts["messages_forwarded"] += 1
        can_wait = dispatch.can_wait and not self._is_awaited(dispatch)
        request = DeliverRequest(message, clients, can_wait)
        linked = None
        if self._keeps_lists and len(clients) > self._many and topic and places is None:
            link = self.links.get(endpoint)
            if link is not None:
                name = name or topic
                known = link.sent.holds(name, clients)
                if not known:
                    link.sent.keep(name, clients)
                    self._desk.counts["lists_sent"] += 1
                linked = DeliverToListRequest(message, name, None if known else clients, can_wait)
        self._desk.ask(endpoint, request, self, (dispatch, clients, places), 0, linked, can_wait)

    def _is_awaited(self, dispatch: Dispatch) -> bool:
        """Return whether somebody has begun to wait for the outcome of a message whose outcome could wait at first."""
        if dispatch.publish is not None:
            reply = dispatch.publish.reply
            return reply is not None and reply.is_awaited
        link = self.links.get(dispatch.peer)
        return link is not None and dispatch.number <= link.wanted

    def _delivered_here(self, dispatch: Dispatch, clients: int, absent: list[str], places: Found | None) -> None:
        if len(absent) < clients:
            _note(dispatch, self._name)
        self._confirmed(dispatch, absent, places)

    def take_delivered(self) -> None:
        """Collect the deliveries at this endpoint that took more than one turn. Called at the end of each turn."""
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
        """Pass the message to the tray ``dispatched``, because every endpoint has confirmed or failed."""
        error = None
        if dispatch.failed and dispatch.confirmed:
            extra = {"delivered": sorted(set(dispatch.confirmed)), "failed": sorted(set(dispatch.failed))}
            error = ProtocolError("partial", "Do not retry: the retry would be a duplicate", **extra)
        elif dispatch.failed:
            error = ProtocolError("peer_unavailable", "An endpoint with subscribers did not answer")
        self.dispatched.append((dispatch, error))

    def answered(self, call: Call, value: Any) -> None:
        """Record an endpoint's confirmation."""
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
        """Record that an endpoint could not deliver the message, or did not answer in time."""
        dispatch: Dispatch = call.context[0] if isinstance(call.request, DeliverRequest) else call.context
        if dispatch.entry is not None:
            self._retention.delivery_failed(call.target, call.context[1])
        _note_failure(dispatch, self._name_of(call.target))
        self._confirmed_by_one(dispatch)

    def lost(self, call: Call) -> str | None:
        """Look for the clients of an endpoint that is gone, because they may listen at another endpoint now."""
        if isinstance(call.request, DeliverRequest):
            dispatch, clients, places = call.context
            self._confirmed(dispatch, clients, places, gone=True)
        else:
            # The clients of that endpoint are no longer connected. Only that endpoint knew their number.
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
        """Handle an endpoint that has confirmed or is ``gone``. ``absent`` has the clients that are not there."""
        if absent and (places is None or not dispatch.message.topic):
            # These clients have moved, or their endpoint is gone. Ask the store for their locations and resend the
            # message, perhaps to the same endpoint if a client has returned there. The caches cannot decide this,
            # because that endpoint may have learned a client's new location before this endpoint did.
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
            found[client] = self._locations.get(client) or location  # the caches may know a later location
        if tried is not None:
            late = self._desk.now >= dispatch.message.received + MOVED_S
            last = {client for client in clients if late or not _later(found[client], tried[client])}
            self._not_listening(last, found, gone)
            clients = [client for client in clients if client not in last]
        local, remote, _ = self._location_groups.places(clients, found)
        if dispatch.entry is not None:
            dispatch.entry.pending_readers += len(clients) - placed(local, remote)
        # This keeps the dispatch open until all requests have been sent again.
        self.send(dispatch, local, remote, found)
        self._confirmed_by_one(dispatch)

    def _not_listening(self, clients: Collection[str], places: Found, gone: bool) -> None:
        """Record that clients do not listen at the locations that the store has. They have left, or their endpoint
        could not clear their locations. If the endpoint itself is ``gone``, do not cache this, because the endpoint may
        be alive and return, and then the clients still listen there."""
        if gone:
            self._desk.drops["endpoint_gone"] += len(clients)
            return
        self._desk.drops["not_listening"] += len(clients)
        for client in clients:
            if (location := places[client]) is not None:
                self._locations.learn_offline(client, location)

    def broadcast(self, dispatch: Dispatch) -> None:
        """Send a broadcast to every endpoint, including this one, and then to clients that have moved meanwhile."""
        dispatch.open = 1
        message = dispatch.message
        self._delivery.broadcast(message, dispatch, self.broadcasts)
        endpoints = self._members.view()
        dispatch.open += len(endpoints)
        request = BroadcastRequest(carried(message))
        self._desk.cast(endpoints, request, self, dispatch)

    def _follow(self, dispatch: Dispatch, moved: Moved) -> None:
        """Send a broadcast to clients that left an endpoint before the broadcast arrived there. If they moved after the
        broadcast began, it may have reached their new endpoint before they did. The new endpoint knows which clients
        have got the broadcast, and delivers it to the other clients."""
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
    """Record an endpoint's confirmation."""
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
    """Return whether ``place`` comes from a later ``listen`` than ``than``."""
    return place is not None and (than is None or place.rank > than.rank)
