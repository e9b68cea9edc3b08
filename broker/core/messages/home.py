"""The home: a topic's messages, from their arrival to their outcome: duplicate? who subscribes? where are they?

Owns: the messages of the slots that this endpoint is home of, in the order of their topic, and what the store is asked
for them. Must never: write a subscription, or hold a message for longer than the time-outs of what it waits for.

A message goes through stages (``routes``), those behind it in its topic after it. What every message needs
(subscribers and locations that are in the caches) takes no turn of its own. ``lookup`` is the other strategy.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator
from typing import Any, Final

from ingeborg.protocol.errors import ProtocolError
from ingeborg.protocol.hashes import slot_of

from ..cluster.features import Switch
from ..cluster.homes import Homes
from ..desk import Desk, in_turn
from ..limits import SIZES, Sizes
from ..links.calls import NOT_HOME, TIMEOUT_S, Kind
from ..part import Part, RequestHandler
from ..stores import unavailable
from ..topics.locations import Found, Locations, Places, Whereabouts, add
from .fanout import Fanout
from .finder import Finder
from .guard import Guard
from .message import ELSEWHERE, Handover, Message
from .outcomes import Outcomes
from .routes import CROWDED, FINDING, GUARDED, PLACING, READING, READY, Route, Routes, Search
from .sharing import Sharing

#: A message for more subscribers may have to wait for another turn (``Sizes.places_per_turn``).
FEW: Final = 20

NOBODY: Final[Found] = {}


class Home(Part):
    """One endpoint's part as the home of messages, until it is known who gets them."""

    def __init__(
        self,
        desk: Desk,
        me: str,
        homes: Homes,
        routes: Routes,
        locations: Locations,
        whereabouts: Whereabouts,
        outcomes: Outcomes,
        fanout: Fanout,
        sharing: Sharing,
        guard: Guard,
        ending: Switch,
        sizes: Sizes = SIZES,
    ) -> None:
        self._desk = desk
        self._sizes = sizes
        self._ending = ending
        self._many = sizes.delivery_slice
        self._me = me
        self._homes = homes
        self._routes = routes
        self._locations = locations
        self._whereabouts = whereabouts
        self._outcomes = outcomes
        self._fanout = fanout
        self._sharing = sharing
        sharing.take_again = self._take_again
        guard.go_on = self.go_on
        self._parked: list[tuple[float, Handover]] = []  # until this endpoint has joined, or when they are given up
        self._recipients = 0  # of messages for many that are being handed over
        self._crowded: deque[tuple[str, Route]] = deque()  # topics whose first message is for many, and waits
        self._placed = 0  # recipients of messages of this turn for more than a few
        self._read: list[tuple[str, Route]] = []  # sets to read at the end of the turn
        self._finder = Finder(desk, locations, self._found, sizes)

    def requests(self) -> dict[Kind, RequestHandler]:
        """What origins ask."""
        return {Kind.PUBLISH: self.publish_requested}

    def publish_requested(self, peer: str, number: int, arguments: list[Any]) -> None:
        """A peer takes us for the home of the message's topic; ``again``: it took another for it before. Of a topic
        that was ours: it asks what becomes of a message that we are still handing over."""
        origin, origin_number = arguments[4]["from"] if len(arguments) > 4 else (peer, number)
        topic, payload, packed, again = arguments[:4]
        slot = slot_of(topic)
        key = int.from_bytes(packed) if packed else None
        waiters = None
        if self._homes.table[slot] != self._me:
            waiters = self._sharing.waiters(key)
            if waiters is None:
                self._desk.decline(peer, number, NOT_HOME)
                return
        message = Message(topic, payload, origin, origin_number, self._desk.now)
        message.travelled = True
        handover = Handover(message, slot, key, None)
        handover.peer, handover.number = peer, number
        if again:
            handover.begun = -math.inf
        if waiters is not None:
            self._sharing.join(handover, waiters)
        else:
            self.take(handover)

    def take(self, handover: Handover) -> None:
        """A message of a slot that is ours. Its ``outcome`` is there at once, or ``Outcomes.due`` gets it later if it
        is a publish of a client here."""
        if not self._homes.joined:
            self._outcomes.wait(handover)
            self._parked.append((self._desk.now + TIMEOUT_S, handover))
            return
        key = handover.key
        if key is None or self._sharing.is_first(handover, key):
            self._queue(handover)

    def go_on(self, handover: Handover) -> None:
        """It need not wait for a standby any more."""
        topic = handover.message.topic
        route = self._routes.get(topic)
        if route is not None and route.stage == GUARDED and route.first is handover:
            route.stage = READY
            self._advance(topic, route)

    def recover(self, handover: Handover) -> None:
        """A message that a home of before was handing over when it crashed; its key is pending."""
        assert handover.key is not None
        self._outcomes.wait(handover)
        self._sharing.begin(handover, handover.key)
        if self._homes.joined and self._homes.table[handover.slot] == self._me:
            self._queue(handover)
        else:
            self._move_on(handover)

    def _queue(self, handover: Handover) -> None:
        """Behind the topic's other messages."""
        topic = handover.message.topic
        routes = self._routes
        route = routes.use(topic)
        if topic:
            routes.asked += 1
            if route is None or route.subscribers is None:
                routes.misses += 1
        if route is None:
            route = routes.add(topic)
        waits = route.first is not None
        route.put(handover)
        if not waits:
            self._advance(topic, route)
        if handover.outcome is None:
            self._outcomes.wait(handover)

    # The stages

    def _advance(self, topic: str, route: Route) -> None:
        """Take the topic's messages, in their order, as far as they get without the store."""
        while route.first is not None:
            if not self._step(topic, route):
                return
        if route.passing:
            self._routes.drop(topic)

    def _step(self, topic: str, route: Route) -> bool:
        """The topic's first message is handed over. False: it waits for what the route's stage says."""
        first = route.first
        if first is not None and first.guarded and (not topic or route.subscribers is not None):
            route.stage = GUARDED
            return False
        if not topic:
            self._fanout.broadcast(route.take())
            self.take_handed_over()
            return True
        subscribers = route.subscribers
        if subscribers is None:
            if route.stage != READING:
                route.stage = READING
                self._read.append((topic, route))
            return False
        search = route.search
        count = len(subscribers)
        if count <= FEW:
            places = self._whereabouts.places(subscribers, NOBODY if search is None else search.found)
        else:
            of_many = self._places_of_many(topic, route, count)
            if of_many is None:
                return False
            places = of_many
        local, remote, missing = places
        if missing:
            self._search(topic, route, missing)
            return False
        route.search = None
        handover = route.take()
        if count > self._many:
            handover.recipients = count
            self._recipients += count
        if self._fanout.hand_over(handover, local, remote):
            self._ended(handover, None)
        elif self._fanout.handed_over:
            self.take_handed_over()
        return True

    def _places_of_many(self, topic: str, route: Route, count: int) -> Places | None:
        """Where more than a few subscribers are. ``None``: another turn comes first, or messages to many others."""
        search = route.search
        if count > self._many and self._recipients >= self._sizes.recipients_max:
            route.stage = CROWDED
            self._crowded.append((topic, route))
            if search is not None:
                search.places = None  # they may be elsewhere by then
            return None
        if self._placed >= self._sizes.places_per_turn:
            route.stage = PLACING
            self._desk.job(self._rest(topic, route))
            return None
        self._placed += count
        if search is not None and search.places is not None:
            places, search.places = search.places, None
            self._whereabouts.leave_out_the_gone(places[1])
            return places
        assert route.subscribers is not None
        if count <= self._sizes.clients_per_slice:
            return self._whereabouts.places(route.subscribers, NOBODY if search is None else search.found)
        route.stage = PLACING
        self._desk.job(self._place(topic, route, list(route.subscribers)))
        return None

    def _search(self, topic: str, route: Route, missing: list[str]) -> None:
        """Have the store asked where these are."""
        search = route.search
        if search is None:
            search = route.search = Search(topic, route)
        route.stage = FINDING
        self._finder.ask(search, missing)

    def _found(self, search: Search, error: Exception | None) -> None:
        """It has said it of all of them, or cannot."""
        route = search.route
        if self._routes.get(search.topic) is not route or route.search is not search:
            return
        if error is not None:
            self._give_up(search.topic, error)
        else:
            route.stage = READY
            self._advance(search.topic, route)

    def _rest(self, topic: str, route: Route) -> Iterator[bool]:
        """The topic's messages go on in another turn."""
        if self._routes.get(topic) is route:
            route.stage = READY
            self._advance(topic, route)
        yield from ()

    def _place(self, topic: str, route: Route, clients: list[str]) -> Iterator[bool]:
        """Where the many subscribers of the topic's first message are."""
        search = route.search
        if search is None:
            search = route.search = Search(topic, route)
        places: Places = [], {}, []
        per_slice = self._sizes.clients_per_slice
        for start in range(0, len(clients), per_slice):
            add(places, self._whereabouts.places(clients[start : start + per_slice], search.found))
            yield False
            if self._routes.get(topic) is not route:
                return  # the topic's messages are another home's by now
        search.places = places
        route.stage = READY
        self._advance(topic, route)

    # Outcomes

    def take_handed_over(self) -> None:
        """What every endpoint has confirmed, or failed to. Called after a hand-over, and at the end of each turn."""
        handed_over = self._fanout.handed_over
        while handed_over:
            handover, error = handed_over.popleft()
            self._ended(handover, error)

    def _ended(self, handover: Handover, error: ProtocolError | None) -> None:
        """The home is done with the message; its duplicates share the outcome."""
        if handover.recipients:
            self._recipients -= handover.recipients
            handover.recipients = 0
            self._desk.job(self._let_go_on())
        if error is not None:
            self._desk.drops[f"publish_{error.code}"] += 1
        if handover.pending:
            self._sharing.settle(handover, error)
        self._outcomes.settle(handover, False if error is None else error)

    def _let_go_on(self) -> Iterator[bool]:
        """Topics that waited until less is being handed over: in a turn of their own, and not inside the message's."""
        while self._crowded and self._recipients < self._sizes.recipients_max:
            topic, route = self._crowded.popleft()
            if self._routes.get(topic) is route:
                route.stage = READY
                self._advance(topic, route)
                yield False

    # The store

    def ask(self) -> None:
        """Ask the store for what this turn's messages need to know: in few calls, for many of them together."""
        read = self._read
        if read:
            self._read = []
            per_read = self._sizes.topics_per_read
            for start in range(0, len(read), per_read):
                part = read[start : start + per_read]
                topics = [topic for topic, _ in part]
                arguments = (topics, True) if self._ending.on else (topics,)
                self._desk.store("subscribers", arguments, self._subscribers, part)
        if self._finder.wanted:
            self._finder.flush()

    def flush(self) -> None:
        """End the turn."""
        self._placed = 0
        self.ask()

    def _subscribers(self, read: list[tuple[str, Route]], result: Any, error: Exception | None) -> None:
        for index, (topic, route) in enumerate(read):
            if self._routes.get(topic) is not route:
                continue  # dropped meanwhile, with what waited in it
            if error is not None:
                self._give_up(topic, error)
                continue
            self._routes.filled(topic, route, result[index])
            self._advance(topic, route)

    def _give_up(self, topic: str, error: Exception) -> None:
        """The store could not say what the topic's messages need to know; none of them was handed to anybody."""
        route = self._routes.drop(topic)
        if route is not None:
            for handover in route.waiting():
                self._ended(handover, unavailable(error))

    # The cluster

    def view_changed(self) -> None:
        """Slots have new homes: let go of those that went."""
        table = self._homes.table
        for topic in self._routes.topics():
            if topic and table[slot_of(topic)] != self._me:
                self._release(topic)
        self._look_at_parked()

    def lapsed(self) -> None:
        """Others may act for us: nothing cached is to be trusted."""
        for topic in self._routes.topics():
            self._release(topic)
        self._locations.clear()

    def joined(self) -> None:
        """From here on the peers tell us who listens where; what was learnt before may be old."""
        self._locations.clear()
        self._look_at_parked()

    def _look_at_parked(self) -> None:
        """In a turn to come, when all parts know what has happened, and not with the next tick."""
        if self._parked:
            self._desk.job(in_turn(self.tick))

    def _release(self, topic: str) -> None:
        """Forget the topic; the messages that wait in it are its new home's."""
        route = self._routes.drop(topic)
        if route is None:
            return
        for handover in route.waiting():
            self._move_on(handover)

    def _move_on(self, handover: Handover) -> None:
        """It is another home's, and so are its repetitions."""
        waiters = self._sharing.release(handover) if handover.pending else []
        for moved in (handover, *waiters):
            self._outcomes.settle(moved, ELSEWHERE)

    def tick(self) -> None:
        """Retry what is parked."""
        parked, self._parked = self._parked, []
        for deadline, handover in parked:
            if self._homes.joined or self._homes.table[handover.slot] != self._me:
                self._take_again(handover)
            elif deadline <= self._desk.now:
                self._ended(handover, ProtocolError("peer_unavailable", "This endpoint has not joined the others yet"))
            else:
                self._parked.append((deadline, handover))

    def _take_again(self, handover: Handover) -> None:
        """It has waited; the topic may be another home's by now."""
        if self._homes.table[handover.slot] != self._me:
            self._outcomes.settle(handover, ELSEWHERE)
        else:
            self.take(handover)
