"""The home of topics. It handles each message from its arrival to its outcome. It decides whether the message is a
duplicate, which clients subscribe, and where they listen.

Owns: the messages of the slots whose home is this endpoint, in order within each topic, and the store calls about these
messages. Must never: write a subscription, or keep a message for longer than the time-outs of the calls that it waits
for.

A message goes through stages (``routes``), and later messages of its topic follow it. If the subscribers and their
locations are cached, as for most messages, the message passes all stages in one turn. The other routing strategy is in
``lookup``.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar, Final

from ingeborg.protocol.errors import ProtocolError
from ingeborg.protocol.hashes import slot_of

from ..cluster.homes import Homes
from ..dedup.dedup import slot_of_key
from ..desk import Desk, in_turn
from ..dispatch import ELSEWHERE, Dispatch
from ..limits import SIZES, Sizes
from ..links.calls import NOT_HOME, TIMEOUT_S, WAIT
from ..links.carrying import arrived
from ..links.link import Link
from ..links.requests import PublishRequest, Request
from ..model import FilterPage, Subscribers
from ..part import Part, RequestHandler
from ..replication.barrier import ReplicationBarrier
from ..stores import unavailable
from ..topics.filtering import NO_FILTERS, Filtering
from ..topics.locations import LocationGroups, Locations, Places, placed
from ..topics.routes import BARRIER, READING, READY, Route, Routes
from ..topics.topic_filters import Matched
from .fanout import Fanout
from .in_flight_dedup import InFlightDedup
from .location_resolver import FEW, NOBODY, LocationResolver
from .outcomes import Outcomes

#: The largest number of messages to compare with filters in one turn. Each message takes about 5 µs.
MATCHING_PER_TURN: Final = 1_000
#: A message counts as one more message for each ``FILTERS_MORE`` filters at its topic. With a million filters at a
#: topic, about ten messages fit into a turn, and take 3 ms.
FILTERS_MORE: Final = 10_000


class Home(Part):
    """Handles messages at their home, until the home knows their recipients."""

    #: Whether a peer gets a long list of recipients only once. This saves traffic, because a topic's recipients stay
    #: the same for a while.
    keeps_lists: ClassVar[bool] = True

    def __init__(
        self,
        desk: Desk,
        me: str,
        homes: Homes,
        routes: Routes,
        locations: Locations,
        location_groups: LocationGroups,
        outcomes: Outcomes,
        fanout: Fanout,
        in_flight_dedup: InFlightDedup,
        barrier: ReplicationBarrier,
        filtering: Filtering,
        sizes: Sizes = SIZES,
    ) -> None:
        self._desk = desk
        self._retention = in_flight_dedup.retention
        self._sizes = sizes
        self._many = sizes.delivery_slice
        self._me = me
        self._homes = homes
        self._routes = routes
        self._locations = locations
        self._location_groups = location_groups
        self._outcomes = outcomes
        self._fanout = fanout
        self._in_flight_dedup = in_flight_dedup
        self._barrier = barrier
        self._filtering = filtering
        # Messages that wait until this endpoint has joined: (when to give up, the message, the link that it came over).
        self._parked: list[tuple[float, Dispatch, Link | None]] = []
        self._read: list[tuple[str, Route]] = []  # sets of subscribers to read at the end of the turn
        self._resolver = LocationResolver(desk, routes, locations, location_groups, sizes)

    def requests(self) -> dict[type[Request], RequestHandler]:
        """See ``Part``."""
        return {PublishRequest: self.publish_requested}

    def publish_requested(self, peer: str, number: int, request: PublishRequest) -> None:
        """Handle a peer's message. If this endpoint is only a former home of the topic, the peer asks for the outcome
        of a message that this endpoint is still dispatching."""
        key, keep_s = request.key, request.keep_s
        slot = slot_of(request.message.topic)
        if key is not None and slot_of_key(key) != slot:
            self._desk.decline(peer, number, "internal", "the key belongs to another slot")
            return
        waiters = None
        if self._homes.table[slot] != self._me:
            waiters = self._in_flight_dedup.waiters(key)
            if waiters is None:
                self._desk.decline(peer, number, NOT_HOME)
                return
        dispatch = Dispatch(arrived(request.message, self._desk.now), slot, key, None)
        dispatch.peer, dispatch.number = peer, number
        dispatch.keep_s = keep_s
        dispatch.can_wait = request.can_wait
        if request.again:
            dispatch.begun = -math.inf
            if self._retention.on and not keep_s:
                self._retention.recall(dispatch)
        if waiters is not None:
            self._in_flight_dedup.join(dispatch, waiters)
        else:
            self.take(dispatch)

    def take(self, dispatch: Dispatch) -> None:
        """Handle a message whose home is this endpoint. Either ``dispatch.outcome`` is set immediately, or ``Outcomes``
        reports the outcome later."""
        if not self._homes.joined:
            self._outcomes.wait(dispatch)
            self._parked.append((self._desk.now + TIMEOUT_S, dispatch, self._fanout.links.get(dispatch.peer)))
            return
        key = dispatch.key
        if key is None or self._in_flight_dedup.is_first(dispatch, key):
            self._queue(dispatch)

    def take_back(self) -> None:
        """Continue with messages that no longer have to wait. Called at the end of each turn."""
        if self._barrier.replicated.confirmed:
            for dispatch in self._barrier.take_replicated():
                self._go_on(dispatch)
        if self._retention.journal.written:
            for dispatch in self._retention.take_written():
                self._go_on(dispatch)
        if self._in_flight_dedup.over:
            for dispatch in self._in_flight_dedup.take_over():
                self._take_again(dispatch)
        if self._fanout.dispatched:
            self._take_dispatched()
        if self._routes.ready:
            self._take_ready()
        if self._routes.slow:
            self._have_wait()

    @property
    def has_waited(self) -> bool:
        """Return whether ``take_back`` has messages to continue with."""
        if self._routes.ready or self._in_flight_dedup.over:
            return True
        return len(self._retention.journal.written) > 0 or len(self._barrier.replicated.confirmed) > 0

    def _take_ready(self) -> None:
        """Continue with topics whose messages no longer wait, or whose store call has failed."""
        ready, self._routes.ready = self._routes.ready, []
        for topic, route, error in ready:
            if self._routes.get(topic) is not route:
                continue  # the route was dropped meanwhile, with its waiting messages
            if error is not None:
                self._give_up(topic, error)
            else:
                self._advance(topic, route)

    def _have_wait(self) -> None:
        """Tell the peers that sent the messages of slow routes, or repetitions of these messages, to wait longer than
        usual."""
        slow, self._routes.slow = self._routes.slow, []
        for route in slow:
            for dispatch in route.waiting():
                waiters = (self._in_flight_dedup.waiters(dispatch.key) or ()) if dispatch.pending else ()
                for waiting in (dispatch, *waiters):
                    if waiting.peer:
                        self._desk.decline(waiting.peer, waiting.number, WAIT)

    def _go_on(self, dispatch: Dispatch) -> None:
        """Continue with a message that no longer waits for a replica or the journal."""
        topic = dispatch.message.topic
        route = self._routes.get(topic)
        if route is not None and route.stage == BARRIER and route.first is dispatch:
            route.stage = READY
            self._advance(topic, route)

    def fail_over(self, dispatch: Dispatch) -> None:
        """Dispatch a message that an earlier home was dispatching when it crashed. The message's key is already
        pending."""
        assert dispatch.key is not None
        self._outcomes.wait(dispatch)
        self._in_flight_dedup.begin(dispatch, dispatch.key)
        if self._homes.joined and self._homes.table[dispatch.slot] == self._me:
            self._queue(dispatch)
        else:
            self._move_on(dispatch)

    def _queue(self, dispatch: Dispatch) -> None:
        """Queue a message behind the other messages of its topic."""
        topic = dispatch.message.topic
        routes = self._routes
        route = routes.use(topic)
        if topic:
            routes.asked += 1
            if route is None or route.subscribers is None:
                routes.misses += 1
        if route is None:
            route = routes.add(topic)
        waits = route.first is not None
        route.put(dispatch)
        if not waits:
            self._advance(topic, route)
        if dispatch.outcome is None:
            self._outcomes.wait(dispatch)

    # The stages

    def _advance(self, topic: str, route: Route) -> None:
        """Advance the topic's messages, in order, until one has to wait."""
        while route.first is not None:
            if not self._step(topic, route):
                return
        if route.passing:
            self._routes.drop(topic)

    def _step(self, topic: str, route: Route) -> bool:
        """Dispatch the topic's first message. Return false if it has to wait. The route's stage gives the reason."""
        first = route.first
        if first is not None and first.barriers and (not topic or route.subscribers is not None):
            if first.not_retained is not None:
                self._ended(route.take(), unavailable(first.not_retained))
                return True
            route.stage = BARRIER
            return False
        if not topic:
            self._fanout.broadcast(route.take())
            self._take_dispatched()
            return True
        subscribers = route.subscribers
        if subscribers is None:
            if route.stage != READING:
                route.stage = READING
                self._read.append((topic, route))
            return False
        if route.filters is None and route.search is None and len(subscribers) <= FEW:  # the usual case
            local, remote, missing = self._location_groups.places(subscribers, NOBODY)
            if missing:
                self._resolver.search(topic, route, subscribers, missing)
                return False
            dispatch = route.take()
            if dispatch.entry is not None:
                dispatch.entry.pending_readers = len(subscribers) - placed(local, remote)
            if self._fanout.send(dispatch, local, remote):
                self._ended(dispatch, None)
            elif self._fanout.dispatched:
                self._take_dispatched()
            return True
        return self._step_of_others(topic, route, subscribers)

    def _step_of_others(self, topic: str, route: Route, subscribers: Subscribers) -> bool:
        """Dispatch the first message of a topic that has many subscribers or filters, or whose clients the store had to
        locate."""
        clients: Subscribers | list[str] = subscribers
        matched = None
        if route.filters is not None:
            if route.filters.loading:
                return False
            if self._resolver.matching >= MATCHING_PER_TURN:
                self._resolver.later(topic, route)
                return False
            self._resolver.matching += 1 + len(route.filters.index) // FILTERS_MORE
            assert route.first is not None
            matched = self._filtering.matched(route, route.filters, route.first)
            if matched.plain is not None:
                clients = matched.clients  # the places of the plain subscribers are known already
        places = self._resolver.places(topic, route, clients)
        if places is None:
            return False
        count = len(clients)
        if matched is not None:
            if matched.plain is None and matched.clients:
                matched.plain, matched.plain_count = places, count
                return True
            count += matched.plain_count
        dispatch = route.take()
        if count > self._many:
            self._resolver.begin(dispatch, count)
        if dispatch.entry is not None:
            dispatch.entry.pending_readers = count - placed(places[0], places[1])
            if matched is not None and matched.plain is not None:
                dispatch.entry.pending_readers -= placed(matched.plain[0], matched.plain[1])
        if matched is None:
            at_once = self._fanout.send(dispatch, places[0], places[1])
        else:
            at_once = self._send_matched(route, dispatch, matched, places)
        if at_once:
            self._ended(dispatch, None)
        elif self._fanout.dispatched:
            self._take_dispatched()
        return True

    def _send_matched(self, route: Route, dispatch: Dispatch, matched: Matched, places: Places) -> bool:
        """Send a message of a topic with filters. ``places`` has the places of the clients whose filters have matched.
        If no filter has matched, ``places`` has the places of the plain subscribers."""
        if route.filters is not None:
            route.filters.matched = None
        if matched.plain is None:
            return self._fanout.send(dispatch, places[0], places[1])
        name = f"{dispatch.message.topic}\0{matched.key.hex()}"
        return self._fanout.send_both(dispatch, matched.plain, places, name)

    # Outcomes

    def _take_dispatched(self) -> None:
        """Collect the messages that every endpoint has confirmed or failed."""
        dispatched = self._fanout.dispatched
        while dispatched:
            dispatch, error = dispatched.popleft()
            self._ended(dispatch, error)

    def _ended(self, dispatch: Dispatch, error: ProtocolError | None) -> None:
        """End the message. The duplicates that wait for it share its outcome."""
        if dispatch.recipients:
            self._resolver.end(dispatch)
        if dispatch.entry is not None and not self._retention.ended(dispatch, error):
            self._move_on(dispatch)
            return
        if error is not None:
            self._desk.drops[f"publish_{error.code}"] += 1
        if dispatch.pending:
            self._in_flight_dedup.settle(dispatch, error)
        self._outcomes.settle(dispatch, False if error is None else error)

    # The store

    def ask(self) -> None:
        """Ask the store for all data that this turn's messages need. One call serves many messages."""
        read = self._read
        if read:
            self._read = []
            per_read = self._sizes.topics_per_read
            for start in range(0, len(read), per_read):
                part = read[start : start + per_read]
                topics = [topic for topic, _ in part]
                self._desk.store("subscribers", (topics,), self._subscribers, part)
        self._resolver.ask()

    def flush(self) -> None:
        """End the turn."""
        self._resolver.placed = self._resolver.matching = 0
        self.ask()

    def _subscribers(self, read: list[tuple[str, Route]], result: Any, error: Exception | None) -> None:
        sets, pages = result if error is None else ((), {})
        filtered: list[tuple[str, Route, FilterPage]] = []
        for index, (topic, route) in enumerate(read):
            if self._routes.get(topic) is not route:
                continue  # the route was dropped meanwhile, with its waiting messages
            if error is not None:
                self._give_up(topic, error)
                continue
            self._routes.filled(topic, route, sets[index])
            if topic in pages or route.filters is not None:
                filtered.append((topic, route, pages.get(topic, NO_FILTERS)))
            else:
                self._advance(topic, route)
        if filtered:
            self._filtering.read(filtered)
            self._take_ready()

    def _give_up(self, topic: str, error: Exception) -> None:
        """Fail the topic's waiting messages, because the store could not answer. No client has got these messages."""
        route = self._routes.drop(topic)
        if route is not None:
            for dispatch in route.waiting():
                self._ended(dispatch, unavailable(error))

    # The cluster

    def view_changed(self) -> None:
        """Release topics whose slots have a new home."""
        table = self._homes.table
        for topic in self._routes.topics():
            if topic and table[slot_of(topic)] != self._me:
                self._release(topic)
        self._look_at_parked()

    def lapsed(self) -> None:
        """Clear the caches, because other endpoints can now act in place of this endpoint."""
        for topic in self._routes.topics():
            self._release(topic)
        self._locations.clear()

    def joined(self) -> None:
        """Start with an empty cache of locations. From now on the peers announce where clients listen, but earlier
        entries can be stale."""
        self._locations.clear()
        self._look_at_parked()

    def _look_at_parked(self) -> None:
        """Retry the parked messages in a later turn, when all parts have handled the change, without waiting for the
        next tick."""
        if self._parked:
            self._desk.job(in_turn(self.tick))

    def _release(self, topic: str) -> None:
        """Forget the topic. Its waiting messages go to the topic's new home."""
        route = self._routes.drop(topic)
        if route is None:
            return
        for dispatch in route.waiting():
            self._move_on(dispatch)

    def _move_on(self, dispatch: Dispatch) -> None:
        """Pass the message and its repetitions on to another home."""
        if dispatch.entry is not None:
            self._retention.released(dispatch)
        waiters = self._in_flight_dedup.release(dispatch) if dispatch.pending else []
        for moved in (dispatch, *waiters):
            self._outcomes.settle(moved, ELSEWHERE)

    def tick(self) -> None:
        """Retry the parked messages, and trim the cached routes."""
        self._routes.trim()
        parked, self._parked = self._parked, []
        for deadline, dispatch, link in parked:
            if link is not self._fanout.links.get(dispatch.peer):
                # The peer has considered this endpoint or the link dead. If it still needs an answer, it has asked
                # another endpoint.
                self._outcomes.settle(dispatch, ELSEWHERE)
            elif self._homes.joined or self._homes.table[dispatch.slot] != self._me:
                self._take_again(dispatch)
            elif deadline <= self._desk.now:
                self._ended(dispatch, ProtocolError("peer_unavailable", "This endpoint has not joined the others yet"))
            else:
                self._parked.append((deadline, dispatch, link))

    def _take_again(self, dispatch: Dispatch) -> None:
        """Process a message that has waited. Its topic may have another home now."""
        if self._homes.table[dispatch.slot] != self._me:
            self._outcomes.settle(dispatch, ELSEWHERE)
        else:
            self.take(dispatch)
