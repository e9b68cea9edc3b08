"""A message on its way from its home: to each endpoint its clients, again where they have moved, until all confirm.

Owns: the requests that carry it, and who has confirmed. Must never: know why it goes to whom (``publishing`` does), or
hold it for longer than the time-outs of what it waits for.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from typing import TYPE_CHECKING, Any

from protocol.errors import ProtocolError

from .calls import Call, Kind
from .delivering import DELIVERY_SLICE, MOVED_S, Moved
from .message import Publish
from .model import Location

if TYPE_CHECKING:
    from .publishing import Publishing
    from .router import Router

NEVER_LISTENED = Location(0, "", False)

Found = dict[str, Location | None]
"""Client -> where it listens, as the store has it, or as is known since."""


class Forwarding:
    """One endpoint's part as the home of messages, once it is known who gets them."""

    def __init__(self, router: Router, publishing: Publishing) -> None:
        self._router = router
        self._publishing = publishing

    def hand_over(
        self,
        message: Publish,
        local: list[str],
        remote: dict[str, list[str]],
        places: Found | None = None,
    ) -> None:
        """To each endpoint its clients. ``places``: where they have been found, if they were not where they were
        thought to be. A publish has this second attempt; a broadcast as many as there are later places within
        ``MOVED_S``, since whoever moves on from place to place listens all the time.
        """
        message.open += 1  # until all of it is on its way
        if local:
            message.open += 1
            self._router.delivering.deliver(message, local, partial(self._delivered_here, len(local), places))
        for endpoint, clients in remote.items():
            message.open += 1
            self._forward(message, endpoint, clients, places)
        self._closed(message)

    def _forward(self, message: Publish, endpoint: str, clients: list[str], places: Found | None) -> None:
        router = self._router
        calls = router.calls
        router.counts["messages_forwarded"] += 1
        arguments = (message.origin, message.number, message.topic, message.payload, clients, False)
        linked = None
        may_be_kept = message.topic and places is None and not router.lookup
        if len(clients) > DELIVERY_SLICE and may_be_kept and endpoint in calls.links:
            sent = calls.links[endpoint].sent
            known = sent.holds(message.topic, clients)
            if not known:
                sent.keep(message.topic, clients)
                router.counts["lists_sent"] += 1
            linked = (*arguments[:4], None if known else clients, True)
        context = (message, clients, places)
        calls.make_numbered(calls.number(), Kind.DELIVER, endpoint, arguments, self, context, router.now, linked)

    def _delivered_here(self, clients: int, places: Found | None, message: Publish, absent: list[str]) -> None:
        if len(absent) < clients:
            message.confirmed.append(self._router.me.name)
        self._confirmed(message, absent, places)

    def _handed_over(self, message: Publish) -> None:
        """Every endpoint has confirmed, or failed to."""
        error = None
        if message.failed and message.confirmed:
            extra = {"delivered": sorted(set(message.confirmed)), "failed": sorted(set(message.failed))}
            error = ProtocolError("partial", "Do not retry: it would be a duplicate", **extra)
        elif message.failed:
            error = ProtocolError("peer_unavailable", "An endpoint with subscribers did not answer")
        self._publishing.ended(message, error)

    def answered(self, call: Call, value: Any) -> None:
        """An endpoint has what it was sent."""
        if call.kind == Kind.DELIVER:
            message, clients, places = call.context
            if len(value) < len(clients):
                message.confirmed.append(self._name(call.target))
            self._confirmed(message, value, places)
        else:
            message = call.context
            message.confirmed.append(self._name(call.target))
            self._follow(message, value or [])
            self._closed(message)

    def failed(self, call: Call, code: str, info: Any) -> None:
        """It could not take it, or did not answer in time."""
        message = call.context[0] if call.kind == Kind.DELIVER else call.context
        message.failed.append(self._name(call.target))
        self._closed(message)

    def lost(self, call: Call) -> None:
        """It is gone: its clients may listen elsewhere by now."""
        self._router.calls.settle(call)
        if call.kind == Kind.DELIVER:
            message, clients, places = call.context
            self._confirmed(message, clients, places)
        else:
            # Whoever was there is connected nowhere now; how many that were was the other endpoint's to know.
            self._router.drops["broadcast_endpoint_gone"] += 1
            self._closed(call.context)

    def _closed(self, message: Publish) -> None:
        message.open -= 1
        if not message.open:
            self._handed_over(message)

    def _name(self, incarnation: str) -> str:
        peer = self._router.members.peers.get(incarnation)
        return peer.endpoint.name if peer is not None else incarnation

    def _confirmed(self, message: Publish, absent: list[str], places: Found | None) -> None:
        """An endpoint has what it was sent, or is dead. ``absent``: the clients it does not hold."""
        if absent and (places is None or not message.topic):
            # Moved meanwhile? Read where to, and resend; perhaps to the same endpoint, where it came back to. Until
            # then nothing is known: that endpoint may have heard of the client's new place before us.
            self._router.counts["relocations"] += 1
            self._router.store("locations", (absent,), self._relocated, (message, absent, places))
            return
        if absent:
            assert places is not None
            self._not_listening(absent, places)
        self._closed(message)

    def _relocated(self, context: Any, result: Any, error: Exception | None) -> None:
        message, clients, tried = context
        if error is not None:
            self._router.drops["relocation_failed"] += len(clients)
            message.failed.append("store")
            self._closed(message)
            return
        found: Found = dict(zip(clients, result, strict=True))
        if not self._router.lookup:
            for client, location in found.items():
                self._publishing.locations.learn(client, location or NEVER_LISTENED)
                found[client] = self._publishing.locations.get(client) or location  # what is known by now may be later
        if tried is not None:
            late = self._router.now >= message.received + MOVED_S
            last = {client for client in clients if late or not _later(found[client], tried[client])}
            self._not_listening(last, found)
            clients = [client for client in clients if client not in last]
        local, remote, _ = self._publishing.places(clients, found)
        # The place it kept open stays so until all that is resent is on its way.
        self.hand_over(message, local, remote, found)
        self._closed(message)

    def _not_listening(self, clients: Collection[str], places: Found) -> None:
        """Since the store said so they have left these places again, or the endpoint failed to clear them."""
        self._router.drops["not_listening"] += len(clients)
        if not self._router.lookup:
            for client in clients:
                if (location := places[client]) is not None:
                    self._publishing.locations.learn(client, location._replace(online=False))

    def broadcast(self, message: Publish) -> None:
        """To every endpoint, this one included; then to those that moved meanwhile."""
        message.open = 1
        done = partial(self._broadcast_here, message)
        delivering = self._router.delivering
        self._router.jobs.append(
            delivering.broadcast(message.origin, message.number, message.payload, message.received, done)
        )
        for endpoint in self._router.members.view():
            message.open += 1
            arguments = (message.origin, message.number, message.payload)
            self._router.ask(Kind.BROADCAST, endpoint, arguments, self, message)

    def _broadcast_here(self, message: Publish, moved: Moved) -> None:
        message.confirmed.append(self._router.me.name)
        self._follow(message, moved)
        self._closed(message)

    def _follow(self, message: Publish, moved: Moved) -> None:
        """Clients left a place before the broadcast came there. Where they are now it may have been before them, if
        they moved since it began; that place knows, and gives it to those it has not had.
        """
        elapsed = self._router.now - message.begun
        clients = [client for client, since in moved if since <= elapsed]
        if not clients:
            return
        local, remote, unknown = self._publishing.places(clients, {})
        if unknown:
            message.open += 1
            self._router.counts["relocations"] += 1
            self._router.store("locations", (unknown,), self._relocated, (message, unknown, None))
        self.hand_over(message, local, remote)


def _later(place: Location | None, than: Location | None) -> bool:
    """Is it of a later ``listen``?"""
    return place is not None and (than is None or place.rank > than.rank)
