"""Subscriptions: from the client's command to the homes of its topics, from there into the store.

Owns: the commands and the writes under way. Must never: say success before every home has, or a home before the store
has; that is what "a publish handled afterwards reaches the subscriber" rests on.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from protocol.errors import ProtocolError
from protocol.messages import Command, success

from .calls import TIMEOUT_S, Call, Kind
from .hub import Connection, Reply
from .large import Topics
from .links import Link
from .membership import SLOTS, slot_of
from .quota import Quota

if TYPE_CHECKING:
    from .router import Router

#: Topics of one command taken in one go, and in one request to a home: about 1 ms of work on either side.
TOPICS_PER_SLICE = 1_000

#: A write of more topics begins and ends in a turn of its own: peers and the store bring hundreds of them together.
TOPICS_AT_ONCE = 100

#: Topics of one command that may be under way whatever the others do; the rest of a large command waits. What is under
#: way has to be written within the time-out of a request: on a Riak cluster that does 600 requests a second, this takes
#: some 3 s.
TOPICS_UNDER_WAY = 2_000

#: How long a write of a large command should take, in seconds: more is begun at once while it takes less than the
#: first, less when it takes more than the second. Both are far within the time-out of a request.
WRITE_S_SHORT, WRITE_S_LONG = 1.5, 2.5

#: By what part more is begun at once, each time.
WINDOW_GROWTH = 0.25

#: Changes that may wait for another of the same client to be written; more are refused.
WRITES_WAITING_MAX = 1_000


class Change:
    """A client's command: done when every slice of it is."""

    __slots__ = (
        "added",
        "client",
        "connection",
        "counted",
        "error",
        "id",
        "job",
        "open",
        "parked",
        "reply",
        "size",
        "topics",
    )

    def __init__(self, client: str, added: bool, connection: Connection, reply: Reply, number: Any) -> None:
        self.client = client
        self.added = added
        self.connection = connection
        self.reply = reply
        self.id = number
        self.open = 1  # requests and writes under way, and one for the cutting itself
        self.topics = 0  # in them
        self.job: Iterator[bool] | None = None  # the cutting of a large one
        self.parked = False  # it waits until less is under way
        self.error: ProtocolError | None = None
        self.size = 0  # bytes that its connection holds for it
        self.counted = False  # others of its client wait until it has ended, to be counted, too


class Write:
    """A home's part of a change: from a command here, or for a peer."""

    __slots__ = ("added", "change", "client", "deadline", "link", "number", "peer", "round", "topics")

    def __init__(self, client: str, topics: list[str], added: bool, deadline: float) -> None:
        self.client = client
        self.topics = topics
        self.added = added
        self.deadline = deadline
        self.change: Change | None = None
        self.peer = ""
        self.link: Link | None = None  # the life of the peer's link that it came over
        self.number = 0
        self.round = 0  # of membership, when the store was called


class Writes:
    """One client's writes at this home. Those of one kind overlap, the others wait: the store keeps no order."""

    __slots__ = ("added", "begun_in_turns", "under_way", "waiting")

    def __init__(self) -> None:
        self.added = True
        self.under_way = 0
        self.waiting: deque[Write] = deque()
        self.begun_in_turns = False  # a job begins what waits


class Subscribing:
    """One endpoint's part in changing subscriptions, as the client's endpoint and as home."""

    def __init__(self, router: Router) -> None:
        self._router = router
        self._me = router.me.incarnation
        self._quota = Quota(router, self)
        self._clients: dict[str, Writes] = {}
        self._parked: list[Write] = []
        self.under_way: set[Write] = set()  # given to the store
        self._topics = 0  # of all commands, under way
        self._window = float(TOPICS_UNDER_WAY)  # what these may be: found out, as a TCP sender's window is

    # The client's endpoint

    def change(self, connection: Connection, command: Command) -> None:
        """A client's ``subscribe`` or ``unsubscribe``."""
        router = self._router
        added = command.name == "subscribe"
        change = Change(command.client, added, connection, router.expect(connection), command.id)
        if isinstance(command.topics, Topics):
            change.size = command.topics.size
            router.waits(connection, change.size)
        if added and router.limits.subscriptions:
            self._quota.ask(change, command.topics)
        else:
            self.begin(change, command.topics)

    def begin(self, change: Change, topics: Any) -> None:
        """It is permitted."""
        router = self._router
        if len(topics) <= TOPICS_PER_SLICE:
            for home, part in self._by_home(topics):
                self._dispatch(change, home, part)
            self._done(change, 0)
        else:
            change.job = self._cut(change, topics)
            router.jobs.append(change.job)

    def refuse(self, change: Change, error: ProtocolError) -> None:
        """It is not."""
        self._done(change, 0, error)

    def _cut(self, change: Change, topics: Any) -> Iterator[bool]:
        """A large command, slice by slice, so that it keeps nobody else waiting."""
        for part in self._slices(topics):
            if not part:
                yield False
                continue
            # One that waits has topics of its own under way, whose end wakes it up.
            while change.topics >= TOPICS_UNDER_WAY and self._topics >= self._window and change.error is None:
                change.parked = True
                yield True
            if change.error is not None:
                break
            for home, topics_of_home in self._by_home(part):
                self._dispatch(change, home, topics_of_home)
            yield False
        self._done(change, 0)

    def _slices(self, topics: Any) -> Iterator[list[str]]:
        """Up to ``TOPICS_PER_SLICE`` each; an empty one where there is work but nothing yet."""
        if isinstance(topics, Topics):
            parts = topics.slices()
        else:
            starts = range(0, len(topics), TOPICS_PER_SLICE)
            parts = (topics[start : start + TOPICS_PER_SLICE] for start in starts)
        if not self._router.shape.slots_together:
            yield from parts
            return
        slots: list[list[str]] = [[] for _ in range(SLOTS)]
        for some in parts:
            for topic in some:
                slots[slot_of(topic)].append(topic)
            yield []
        part: list[str] = []
        for slot in slots:
            # A slot cut in two is written twice; that is left to those which are larger than a slice.
            if len(part) + len(slot) > TOPICS_PER_SLICE:
                yield part
                part = []
            for start in range(0, len(slot) - TOPICS_PER_SLICE, TOPICS_PER_SLICE):
                yield slot[start : start + TOPICS_PER_SLICE]
            part += slot[-(len(slot) % TOPICS_PER_SLICE or TOPICS_PER_SLICE) :]
        yield part

    def _by_home(self, topics: Any) -> list[tuple[str, list[str]]]:
        if self._router.lookup:
            return [(self._me, list(topics))]
        if (only := self._router.members.only_home) is not None:
            return [(only, list(topics))]
        table = self._router.members.table
        homes: dict[str, list[str]] = {}
        for topic in topics:
            homes.setdefault(table[slot_of(topic)], []).append(topic)
        return list(homes.items())

    def _dispatch(self, change: Change, home: str, topics: list[str]) -> None:
        change.open += 1
        change.topics += len(topics)
        self._topics += len(topics)
        if home == self._me:
            write = Write(change.client, topics, change.added, self._router.now + TIMEOUT_S)
            write.change = change
            self._take(write)
        else:
            self._router.ask(Kind.CHANGE, home, (change.client, topics, change.added), self, change)

    def _done(self, change: Change, topics: int, error: ProtocolError | None = None) -> None:
        change.open -= 1
        change.topics -= topics
        self._topics -= topics
        if error is not None and change.error is None:
            change.error = error
        if change.parked and change.job is not None:
            change.parked = False
            self._router.jobs.append(change.job)
        if change.open:
            return
        router = self._router
        if change.size:
            router.waits(change.connection, -change.size)
        if change.counted:
            self._quota.ended(change)
        if change.error is not None:
            router.refuse(change.connection, change.reply, change.id, change.error)
        else:
            router.reply(change.connection, change.reply, success(change.id))

    def answered(self, call: Call, value: Any) -> None:
        """The home has written its topics."""
        self._pace(call.context, self._router.now - call.deadline + TIMEOUT_S)
        self._done(call.context, len(call.arguments[1]))

    def failed(self, call: Call, code: str, info: Any) -> None:
        """It could not, or did not answer in time."""
        self._pace(call.context, math.inf)
        self._done(call.context, len(call.arguments[1]), ProtocolError(code, info))

    def lost(self, call: Call) -> None:
        """The home is gone: its topics have new ones. Adding and removing again is harmless."""
        self._router.calls.settle(call)
        topics = call.arguments[1]
        if len(topics) > TOPICS_AT_ONCE:
            self._router.jobs.append(_in_turn(self._dispatch_again, call.context, topics))
        else:
            self._dispatch_again(call.context, topics)

    def _dispatch_again(self, change: Change, topics: list[str]) -> None:
        """A part of the change was dispatched to what is not its home, or not any more."""
        for home, some in self._by_home(topics):
            self._dispatch(change, home, some)
        self._done(change, len(topics))

    # The home

    def change_requested(self, peer: str, number: int, arguments: list[Any]) -> None:
        """A peer takes us for the home of these topics."""
        client, topics, added = arguments
        write = Write(client, topics, added, self._router.now + TIMEOUT_S)
        write.peer = peer
        write.link = self._router.calls.links.get(peer)
        write.number = number
        self._at_home(write)

    def _at_home(self, write: Write) -> None:
        """Somebody takes us for the home of its topics."""
        if len(write.topics) > TOPICS_AT_ONCE:
            writes = self._writes_of(write.client)
            self._wait(writes, write)
            self._begin_waiting(write.client, writes)
        elif self._is_ours(write):
            self._take(write)

    def _take(self, write: Write) -> None:
        """We are the home of its topics."""
        if not self._router.lookup and not self._router.members.joined:
            self._parked.append(write)
            return
        writes = self._writes_of(write.client)
        if (writes.under_way and writes.added != write.added) or writes.waiting:
            self._wait(writes, write)
        else:
            self._begin(writes, write)

    def _writes_of(self, client: str) -> Writes:
        writes = self._clients.get(client)
        if writes is None:
            writes = self._clients[client] = Writes()
        return writes

    def _wait(self, writes: Writes, write: Write) -> None:
        # While they are begun one after the other they are as good as under way, which their senders bound.
        if len(writes.waiting) >= WRITES_WAITING_MAX and not writes.begun_in_turns:
            self._finish(write, ProtocolError("store_unavailable", "Too many changes of this client are waiting"))
        else:
            writes.waiting.append(write)

    def _begin_waiting(self, client: str, writes: Writes) -> None:
        if not writes.begun_in_turns:
            writes.begun_in_turns = True
            self._router.jobs.append(self._begin_in_turns(client, writes))

    def _begin_in_turns(self, client: str, writes: Writes) -> Iterator[bool]:
        """All that waits, up to one that others have to end for."""
        topics = 0
        while writes.waiting and (not writes.under_way or writes.added == writes.waiting[0].added):
            write = writes.waiting.popleft()
            if self._is_ours(write):
                if self._router.lookup or self._router.members.joined:
                    self._begin(writes, write)
                else:
                    self._parked.append(write)
            topics += len(write.topics)
            if topics > TOPICS_AT_ONCE:
                topics = 0
                yield False
        writes.begun_in_turns = False
        self._forget_ended(client, writes)

    def _forget_ended(self, client: str, writes: Writes) -> None:
        if not writes.under_way and not writes.waiting and not writes.begun_in_turns:
            self._clients.pop(client, None)

    def _is_ours(self, write: Write) -> bool:
        """Its slots may have moved while it was on its way, or waited: then it goes there."""
        if self._router.lookup or self._all_ours(write.topics):
            return True
        self._again(write)
        return False

    def _all_ours(self, topics: list[str]) -> bool:
        members = self._router.members
        if members.only_home is not None:
            return members.only_home == self._me
        return all(members.table[slot_of(topic)] == self._me for topic in topics)

    def _again(self, write: Write) -> None:
        """We are not the home, or not any more: begin anew, at whichever is. Doing it twice is harmless."""
        if write.change is not None:
            self._dispatch_again(write.change, write.topics)
        else:
            self._router.not_home(write.peer, write.number)

    def _begin(self, writes: Writes, write: Write) -> None:
        writes.added = write.added
        writes.under_way += 1
        write.round = self._router.members.round
        self.under_way.add(write)
        operation = "subscribe" if write.added else "unsubscribe"
        self._router.store(operation, ([(write.client, write.topics)],), self._written, (writes, write))

    def _written(self, context: Any, result: Any, error: Exception | None) -> None:
        writes, write = context
        took_s = math.inf if error is not None else self._router.now - write.deadline + TIMEOUT_S
        if len(write.topics) > TOPICS_AT_ONCE:
            self._router.jobs.append(_in_turn(self._end, writes, write, error, took_s))
        else:
            self._end(writes, write, error, took_s)

    def _end(self, writes: Writes, write: Write, error: Exception | None, took_s: float) -> None:
        writes.under_way -= 1
        self.under_way.discard(write)
        members = self._router.members
        publishing = self._router.publishing
        if error is None and write.round != members.round and not self._router.lookup:
            # Meanwhile another may have acted as home, with a set read before this write.
            publishing.doubtful(write.topics)
            self._again(write)
        elif error is None:
            self._pace(write.change, took_s)
            publishing.changed(write.client, write.topics, write.added)
            self._router.counts["subscriptions_changed"] += len(write.topics)
            self._finish(write, None)
        else:
            self._pace(write.change, took_s)
            publishing.doubtful(write.topics)
            self._finish(write, ProtocolError("store_unavailable", str(error) or repr(error)))
        if writes.waiting:
            self._begin_waiting(write.client, writes)
        else:
            self._forget_ended(write.client, writes)
        self._router.joining.write_ended(write)

    def _pace(self, change: Change | None, took_s: float) -> None:
        """A part of our client's command was written within so long (``inf``: it failed): begin more of them at once,
        or less. Small commands say nothing about large ones."""
        if change is None or change.job is None:
            return
        if took_s > WRITE_S_LONG:
            self._window = max(self._window * (1 - WINDOW_GROWTH), TOPICS_UNDER_WAY)
        elif took_s < WRITE_S_SHORT:
            self._window = min(self._window * (1 + WINDOW_GROWTH), self._router.shape.topics_at_once)

    def _finish(self, write: Write, error: ProtocolError | None) -> None:
        if write.change is not None:
            self._done(write.change, len(write.topics), error)
        elif error is not None:
            self._router.decline(write.peer, write.number, error.code, error.info)
        else:
            self._router.answer(write.peer, write.number)

    def lapsed(self) -> None:
        """Others may act for us: what has not begun is not ours to begin."""
        for writes in self._clients.values():
            self._parked.extend(writes.waiting)
            writes.waiting.clear()

    def tick(self) -> None:
        """Retry what is parked."""
        router = self._router
        parked, self._parked = self._parked, []
        for write in parked:
            if write.peer and write.link is not router.calls.links.get(write.peer):
                # The peer has taken us for dead, or the link: whatever it still wants it has asked anew, of us or of
                # another. This may be over by now, and its client have said the contrary since.
                router.drops["outdated_change"] += 1
                continue
            if write.deadline <= router.now:
                self._finish(write, ProtocolError("peer_unavailable", "This endpoint has not joined the others yet"))
            else:
                self._at_home(write)


def _in_turn(step: Callable[..., None], *arguments: Any) -> Iterator[bool]:
    """A job of one slice."""
    step(*arguments)
    yield from ()
