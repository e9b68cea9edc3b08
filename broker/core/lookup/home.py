"""Routing by lookup, the thesis's algorithm (listing 5.1). Every endpoint acts as the home of all topics. For each
message it asks the store whether the message was seen before, which clients subscribe, and where they listen.

Owns: the stages that differ from ``home``. Must never: keep any state of a topic except its messages in progress. This
algorithm remains as the baseline for measurements of routing by homes.
"""

from __future__ import annotations

from typing import Any, ClassVar

from ..dedup.dedup import hash_of_key
from ..dispatch import Dispatch
from ..links.calls import NOT_HOME
from ..links.requests import PublishRequest
from ..messages.home import Home
from ..topics.routes import Route


class LookupHome(Home):
    """A home that shares the table of duplicates with all other endpoints, because the table is in the store.

    ``homes`` says that this endpoint is the home of all slots and has joined. ``locations`` is a cache of size 0.
    """

    keeps_lists: ClassVar[bool] = False

    _see: list[Dispatch] | None = None  # messages about which ``ask`` asks the store at the end of the turn

    def publish_requested(self, peer: str, number: int, request: PublishRequest) -> None:
        """Decline, because with this routing no endpoint needs to ask another endpoint."""
        self._desk.decline(peer, number, NOT_HOME)

    def take(self, dispatch: Dispatch) -> None:
        """Handle a message that a client of this endpoint has published."""
        self._queue(dispatch)

    def _advance(self, topic: str, route: Route) -> None:
        """Advance the topic's messages one after the other. The store answers separately for each message."""
        while (dispatch := route.first) is not None:
            if dispatch.key is not None and dispatch.seen is None:
                if self._see is None:
                    self._see = []
                self._see.append(dispatch)
                return
            if dispatch.seen:
                route.take()
                self._desk.counts["duplicates_dropped"] += 1
                self._outcomes.settle(dispatch, True)
            elif self._step(topic, route):
                self._routes.unread(route)
            else:
                return
        self._routes.drop(topic)

    def ask(self) -> None:
        """Send the turn's questions to the store. One question is whether the store has seen the payloads."""
        super().ask()
        see, self._see = self._see, None
        if see is not None:
            hashes = [hash_of_key(dispatch.key) for dispatch in see if dispatch.key is not None]
            self._desk.store("seen", (hashes, self._in_flight_dedup.ttl_s), self._seen, see)

    def _seen(self, dispatches: list[Dispatch], result: Any, error: Exception | None) -> None:
        for index, dispatch in enumerate(dispatches):
            topic = dispatch.message.topic
            route = self._routes.get(topic)
            if route is None or route.first is not dispatch:
                continue
            if error is not None:
                self._give_up(topic, error)
            else:
                dispatch.seen = result[index]
                self._advance(topic, route)

    def lapsed(self) -> None:
        """Do nothing, because a lease only matters for homes on which other endpoints rely."""
