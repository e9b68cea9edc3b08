"""Changes of subscriptions at the home of their topics. The home writes them into the store.

Owns: the writes in progress, and the order of one client's writes. Must never: report success before the store has
reported it and the routing cache has the change. This rule guarantees that a later publish reaches the subscriber.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import takewhile
from typing import Any, Final

from ingeborg.protocol.errors import ProtocolError
from ingeborg.protocol.hashes import slot_of

from ..cluster.homes import Homes
from ..cluster.underway import UnderWay
from ..desk import Desk, in_turn
from ..limits import SIZES, Sizes
from ..links.calls import NOT_HOME, TIMEOUT_S, WAIT
from ..links.link import Link
from ..links.requests import ChangeRequest, Request
from ..metrics import Metric
from ..model import Subscribe, TooManyFilters
from ..part import Part, RequestHandler
from ..stores import unavailable
from .filtering import Filtering
from .presence import Presence
from .routes import Routes
from .terms import Terms
from .write import Write, Writes

#: The largest number of changes that wait behind another write of the same client. The home refuses further changes.
WRITES_WAITING_MAX: Final = 1_000

#: If a peer's change takes longer than this time, in seconds, the home notifies the peer, and repeats the notice at
#: this interval. The peer would give up after twice this time.
TELL_S: Final = TIMEOUT_S / 2

#: A change of filters at more topics than this is applied to the caches in slices.
FEW_TOPICS: Final = 4

#: The number of filters to change in one slice. This takes about 0.2 ms, or 10 ms if each filter has many alternatives.
CHANGES_PER_SLICE: Final = 20


class Writing(Part):
    """Writes changes of subscriptions to the topics whose home is one endpoint.

    Args:
        desk: The services of the endpoint.
        me: This endpoint's incarnation.
        homes: The table of homes.
        routes: The routing cache.
        links: The links to the peers, indexed by incarnation.
        writes: Keeps track of the writes that the store has not answered yet.
        terms: Makes terms, and keeps track of the slots into which this endpoint writes terms.
        presence: Announces clients that join and leave. ``None`` if no topic has presence.
        filtering: Caches the filters of topics.
        sizes: Limits.
    """

    def __init__(
        self,
        desk: Desk,
        me: str,
        homes: Homes,
        routes: Routes,
        links: dict[str, Link],
        writes: UnderWay,
        terms: Terms,
        presence: Presence | None,
        filtering: Filtering,
        sizes: Sizes = SIZES,
    ) -> None:
        self._desk = desk
        self._terms = terms
        self._presence = presence
        self.filtering = filtering
        self._at_once = sizes.topics_at_once
        self._me = me
        self._homes = homes
        self._routes = routes
        self._links = links
        self._under_way = writes
        self._clients: dict[str, Writes] = {}
        self._parked: list[Write] = []
        self._asked: dict[Write, None] = {}  # changes from peers, in the order of their next notices

    def metrics(self) -> list[Metric]:
        """See ``Part``."""
        return [
            self._desk.counted("subscriptions_changed", "Subscriptions added or removed by this endpoint, as home"),
        ]

    def requests(self) -> dict[type[Request], RequestHandler]:
        """See ``Part``. The clients' endpoints send these requests."""
        return {ChangeRequest: self.change_requested}

    def change_requested(self, peer: str, number: int, request: ChangeRequest) -> None:
        """Handle a change from a peer, which considers this endpoint the home of these topics."""
        now, term = self._desk.now, None
        if request.until_disconnect or request.ttl_s:
            term = self._terms.term(request.until_disconnect, request.ttl_s)
        client, topics, filter = request.client, request.topics, request.filter
        write = Write(client, topics, request.added, now, now + TIMEOUT_S, term, filter, request.replace)
        write.peer = peer
        write.link = self._links.get(peer)
        write.number = number
        write.tell_at = now + TELL_S
        self._asked[write] = None
        self._at_home(write)

    def _at_home(self, write: Write) -> None:
        """Take the write if this endpoint is the home of its topics. If the write has many topics, check this in a
        job."""
        if len(write.topics) > self._at_once:
            self._watch(write)
            writes = self._writes_of(write.client)
            self._wait(writes, write)
            self._begin_waiting(write.client, writes)
        elif self._is_ours(write):
            self.take(write)

    def take(self, write: Write) -> None:
        """Begin or queue the write, as the home of its topics."""
        if not self._homes.joined:
            self._parked.append(write)
            return
        self._watch(write)
        writes = self._writes_of(write.client)
        if writes.waiting or not self._may_overlap(writes, write):
            self._wait(writes, write)
        else:
            self._begin(writes, write)

    def _watch(self, write: Write) -> None:
        """Find the write's topics with presence, unless this was done before the write was parked."""
        presence = self._presence
        if presence is not None and write.watched is None:
            write.watched = presence.of(write.topics)
            if write.watched:
                write.order = ""

    @staticmethod
    def _may_overlap(writes: Writes, write: Write) -> bool:
        return not writes.under_way or (writes.order == write.order and write.order != "")

    def hold(self, client: str) -> bool:
        """Hold back the client's writes until ``release``. Return false if a write of the client is in progress or
        waits."""
        writes = self._clients.get(client)
        if writes is not None:
            return False
        writes = self._writes_of(client)
        writes.order = ""
        writes.under_way = 1
        return True

    def release(self, client: str) -> None:
        """Resume the client's writes after an expiry."""
        writes = self._clients[client]
        writes.under_way -= 1
        self._go_on(client, writes)

    def _writes_of(self, client: str) -> Writes:
        writes = self._clients.get(client)
        if writes is None:
            writes = self._clients[client] = Writes()
        return writes

    def _wait(self, writes: Writes, write: Write) -> None:
        # While a job begins the waiting writes, they count as writes in progress. Their senders limit the number of
        # such writes.
        if len(writes.waiting) >= WRITES_WAITING_MAX and not writes.begun_in_turns:
            self._finish(
                write, ProtocolError("store_unavailable", "Too many changes of this client are waiting; retry later")
            )
        else:
            writes.waiting.append(write)

    def _begin_waiting(self, client: str, writes: Writes) -> None:
        if not writes.begun_in_turns:
            writes.begun_in_turns = True
            self._desk.job(self._begin_in_turns(client, writes))

    def _begin_in_turns(self, client: str, writes: Writes) -> Iterator[bool]:
        """Begin the waiting writes, up to the first write that must wait for other writes."""
        topics = 0
        while writes.waiting and self._may_overlap(writes, writes.waiting[0]):
            write = writes.waiting.popleft()
            if self._is_ours(write):
                if self._homes.joined:
                    self._begin(writes, write)
                else:
                    self._parked.append(write)
            topics += len(write.topics)
            if topics > self._at_once:
                topics = 0
                yield False
        writes.begun_in_turns = False
        self._forget_ended(client, writes)

    def _forget_ended(self, client: str, writes: Writes) -> None:
        if not writes.under_way and not writes.waiting and not writes.begun_in_turns:
            self._clients.pop(client, None)

    def _is_ours(self, write: Write) -> bool:
        """Return whether this endpoint is still the home of the write's topics. Otherwise send the write back to its
        sender, because slots have moved while the write was on its way or was waiting."""
        homes = self._homes
        if homes.only_home is not None:
            ours = homes.only_home == self._me
        else:
            ours = all(homes.table[slot_of(topic)] == self._me for topic in write.topics)
        if not ours:
            self._not_home(write)
        return ours

    def _not_home(self, write: Write) -> None:
        self._asked.pop(write, None)
        if write.writer is not None:
            write.writer.not_home(write)
        else:
            self._desk.decline(write.peer, write.number, NOT_HOME)

    def _begin(self, writes: Writes, write: Write) -> None:
        writes.order = write.order
        writes.under_way += 1
        write.round = self._homes.round
        self._under_way.begin(write)
        presence = self._presence if write.watched else None
        if write.watched and presence is not None:
            presence.look(write.client, write.watched, write.added, write.filter, self._looked, (writes, write))
        else:
            self._store(writes, write)

    def _looked(self, context: tuple[Writes, Write], changed: list[str]) -> None:
        """Continue a write, because its effect on presence is now known."""
        writes, write = context
        if write.round == self._homes.round and self._homes.joined:
            write.watched = changed
            self._store(writes, write)
            return
        # Another endpoint may be the home now, and may have written already. This write must not follow that home's
        # writes.
        writes.under_way -= 1
        self._parked.append(write)
        self._go_on(write.client, writes)
        self._under_way.end(write)

    def _store(self, writes: Writes, write: Write) -> None:
        if write.added:
            row = Subscribe(write.client, write.topics, write.filter, write.term, write.replace)
            if write.replace:
                self.filtering.replacing[write] = (write.client, write.topics, write.filter)
            self._desk.store("subscribe", ([row],), self._written, (writes, write))
        else:
            removed = (write.client, write.topics, write.filter)
            self._desk.store("unsubscribe", ([removed],), self._written, (writes, write))

    def _written(self, context: Any, result: Any, error: Exception | None) -> None:
        writes, write = context
        write.took_s = self._desk.now - write.made_at
        if len(write.topics) > self._at_once:
            self._desk.job(in_turn(self._end, writes, write, error))
        else:
            self._end(writes, write, error)

    def _end(self, writes: Writes, write: Write, error: Exception | None) -> None:
        if (
            len(write.topics) > FEW_TOPICS
            and (write.filter is not None or write.replace or not write.added)
            and error is None
            and write.round == self._homes.round
        ):
            self._desk.job(self._change_in_slices(writes, write))
        else:
            self._ended(writes, write, error, write.topics)

    def _change_in_slices(self, writes: Writes, write: Write) -> Iterator[bool]:
        """Change the caches in slices, because an index may have many rows for a filter, and a client may have many
        filters at a topic.

        All changes at a topic are made in one turn, so every message finds either the former or the new
        subscriptions."""
        spent = 0
        for topic in write.topics:
            if write.round != self._homes.round:
                break
            spent += self._change(write, [topic])
            if spent >= CHANGES_PER_SLICE:
                spent = 0
                yield False
        self._ended(writes, write, None, ())

    def _change(self, write: Write, topics: Sequence[str]) -> int:
        """Change the caches. Return the amount of work, like ``Filtering.change``."""
        if write.filter is None or write.replace:
            self._routes.change(write.client, topics, write.added and write.filter is None)
        if write.filter is None and write.added and not write.replace:
            return 0
        return self.filtering.change(write.client, topics, write.filter, write.added, write.replace)

    def _ended(self, writes: Writes, write: Write, error: Exception | None, unchanged: Sequence[str]) -> None:
        """Finish a write that the store has answered. ``unchanged`` are the topics whose change the caches do not have
        yet."""
        writes.under_way -= 1
        if write.replace:
            self.filtering.replacing.pop(write, None)
        if write.term is not None:
            self._terms.wrote(write.topics)
        if write.watched:
            self._tell(write.watched, write, error)
        if error is not None:
            self._routes.doubt(write.topics)
            self._finish(write, _refusal(error))
        elif write.round != self._homes.round:
            # Another endpoint may have acted as home meanwhile, with a set of subscribers read before this write.
            self._routes.doubt(write.topics)
            self._not_home(write)
        else:
            if unchanged:
                self._change(write, unchanged)
            self._desk.counts["subscriptions_changed"] += len(write.topics)
            self._finish(write, None)
        self._go_on(write.client, writes)
        self._under_way.end(write)

    def _go_on(self, client: str, writes: Writes) -> None:
        """Continue after the end of one of the client's writes."""
        if writes.waiting:
            self._begin_waiting(client, writes)
        else:
            self._forget_ended(client, writes)

    def _tell(self, changed: list[str], write: Write, error: Exception | None) -> None:
        """Announce joins and leaves. Changes that are uncertain, or that another home may announce, count as lost."""
        presence = self._presence
        assert presence is not None
        if error is None and write.round == self._homes.round:
            presence.tell(write.client, changed, write.added)
        else:
            presence.lose(len(changed))

    def _finish(self, write: Write, error: ProtocolError | None) -> None:
        if write.writer is not None:
            write.writer.written(write, error)
            return
        self._asked.pop(write, None)
        if error is not None:
            self._desk.decline(write.peer, write.number, error.code, error.info)
        else:
            self._desk.answer(write.peer, write.number)

    def _have_wait(self) -> None:
        for write in [*takewhile(lambda write: write.tell_at <= self._desk.now, self._asked)]:
            self._desk.decline(write.peer, write.number, WAIT)
            write.tell_at = self._desk.now + TELL_S
            del self._asked[write]
            self._asked[write] = None

    def lapsed(self) -> None:
        """Park the writes that have not begun, because other endpoints may now act in place of this endpoint."""
        for writes in self._clients.values():
            self._parked.extend(writes.waiting)
            writes.waiting.clear()

    def tick(self) -> None:
        """Retry the parked writes. Notify the peers whose changes wait for a slow store or for other changes of the
        same client."""
        if self._asked:
            self._have_wait()
        parked, self._parked = self._parked, []
        for write in parked:
            if write.peer and write.link is not self._links.get(write.peer):
                # The peer gave up this endpoint or the link, and has repeated its request here or elsewhere. This write
                # may be obsolete, because its client may have reversed it meanwhile.
                self._desk.drops["outdated_change"] += 1
                self._asked.pop(write, None)
                continue
            if write.deadline <= self._desk.now:
                self._finish(write, ProtocolError("peer_unavailable", "This endpoint has not joined the others yet"))
            else:
                self._at_home(write)


def _refusal(error: Exception) -> ProtocolError:
    return ProtocolError("too_many_topics", str(error)) if isinstance(error, TooManyFilters) else unavailable(error)
