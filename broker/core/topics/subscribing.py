"""Changes of subscriptions at the client's endpoint. It sends the parts of a command to the topics' homes, and replies
when the homes have answered.

Owns: the commands in progress. Must never: report success before every home has reported it.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator
from typing import Any, Final

from ingeborg.protocol.errors import ProtocolError
from ingeborg.protocol.hashes import SLOTS, slot_of
from ingeborg.protocol.messages import Command, success

from ..cluster.homes import Homes
from ..connections.hub import Connection
from ..connections.large import Topics
from ..desk import Desk, in_turn
from ..limits import SIZES, Sizes
from ..links.calls import TIMEOUT_S, Call
from ..links.requests import ChangeRequest
from ..model import Shape
from ..outgoing.memory import Memory
from ..outgoing.replies import Replies
from ..part import CommandSpec, Part
from .change import Change, OfChange
from .quota import Quota
from .terms import Terms
from .write import Write, Writer
from .writing import Writing

#: The largest number of a command's topics in one slice, and in one request to a home. The sender and the receiver each
#: take about 1 ms to process these topics.
TOPICS_PER_SLICE: Final = 1_000

#: The size of a part of a large command is the number of topics that may be in progress, divided by this number. So
#: when one part ends, another part keeps the store busy.
PARTS: Final = 2

#: The bounds for the time to write a part of a large command, in seconds. If a part took less than the lower bound,
#: more topics may be in progress at the same time. If it took more than the upper bound, fewer topics may be in
#: progress. Both bounds are far below the time-out of a request.
WRITE_S_SHORT: Final = 1.5
WRITE_S_LONG: Final = 2.5

#: The fraction by which the number of topics in progress may grow or shrink each time.
WINDOW_GROWTH: Final = 0.25


class Own(Writer):
    """The writes that this endpoint makes as a home for its own clients."""

    def __init__(self, subscribing: Subscribing) -> None:
        self._subscribing = subscribing

    def written(self, write: Write, error: ProtocolError | None) -> None:
        """Handle a write that has succeeded or failed."""
        self._subscribing.part_done(write.context, len(write.topics), write.took_s, error)

    def not_home(self, write: Write) -> None:
        """Send a write to the new home of its topics."""
        self._subscribing.dispatch_again(write.context, write.topics, write.deadline)


class Subscribing(Part):
    """Changes the subscriptions of one endpoint's clients.

    Args:
        desk: The services of the endpoint.
        me: This endpoint's incarnation.
        homes: Says which endpoint is the home of each slot.
        writing: The part that writes to topics whose home is this endpoint.
        terms: Makes the terms of new subscriptions.
        replies: Sends replies to the clients.
        memory: Counts the memory that connections hold.
        shape: The properties of the store.
        subscriptions_max: The largest number of topics of a client, or 0 for no limit.
        sizes: The sizes of slices and queues.
    """

    def __init__(
        self,
        desk: Desk,
        me: str,
        homes: Homes,
        writing: Writing,
        terms: Terms,
        replies: Replies,
        memory: Memory,
        shape: Shape,
        subscriptions_max: int,
        sizes: Sizes = SIZES,
    ) -> None:
        self._desk = desk
        self._at_once = sizes.topics_at_once
        self._me = me
        self._homes = homes
        self._writing = writing
        self._terms = terms
        self._replies = replies
        self._memory = memory
        self._shape = shape
        self._own = Own(self)
        self._quota: Quota | None = None
        if subscriptions_max:
            self._quota = Quota(desk, subscriptions_max, self._permitted, self._forbidden, sizes)
        self._topics = 0  # the number of topics of all large commands in progress
        self._window = float(shape.topics_at_least)  # the limit of ``_topics``, which adapts like a TCP window
        self._waiting: deque[Change] = deque()  # large commands that wait for other large commands, in order

    def commands(self) -> dict[str, CommandSpec]:
        """See ``Part``. These are the two commands that change subscriptions."""
        change = CommandSpec(self.change, after_close=True)
        return {"subscribe": change, "unsubscribe": change}

    def change(self, connection: Connection, command: Command) -> None:
        """Begin a client's ``subscribe`` or ``unsubscribe``."""
        self.begin(connection, command, None)

    def begin(self, connection: Connection, command: Command, more: OfChange | None) -> None:
        """Begin a change. ``more`` is the rest of the command, if it does more than change subscriptions."""
        added = command.name == "subscribe"
        reply, filter = self._replies.expect(connection), command.filter
        change = Change(command.client, added, connection, reply, command.id, command.term, filter, command.replace)
        change.more = more
        if isinstance(command.topics, Topics):
            change.size = command.topics.size
            self._memory.wait(connection, change.size)
        self._ask(change, command.topics)

    def _ask(self, change: Change, topics: Any) -> None:
        if change.added and self._quota is not None:
            self._quota.ask(change, topics)
        else:
            self._permitted(change, topics)

    def _permitted(self, change: Change, topics: Any) -> None:
        if len(topics) <= 1 or len(topics) <= self._part_size():
            deadline = self._desk.now + TIMEOUT_S
            for home, part in self._by_home(topics):
                self._dispatch(change, home, part, deadline)
            self._done(change, 0)
        else:
            change.job = self._cut(change, topics)
            self._desk.job(change.job)

    def _forbidden(self, change: Change, error: ProtocolError) -> None:
        self._done(change, 0, error)

    def _cut(self, change: Change, topics: Any) -> Iterator[bool]:
        """Send a large command part by part. Other commands can thus continue, and the store gets only as many topics
        as it can handle."""
        for part in self._parts(topics):
            if not part:
                yield False
                continue
            while self._topics and self._topics + len(part) > self._window and change.error is None:
                self._waiting.append(change)
                yield True
            if change.error is not None:
                break
            deadline = self._desk.now + TIMEOUT_S
            for home, topics_of_home in self._by_home(part):
                self._dispatch(change, home, topics_of_home, deadline)
            yield False
        self._done(change, 0)

    def _part_size(self) -> int:
        """Return the largest number of topics in one part of a large command."""
        return max(1, min(int(self._window / PARTS), TOPICS_PER_SLICE))

    def _parts(self, topics: Any) -> Iterator[list[str]]:
        """Yield parts of at most ``_part_size`` topics. An empty part is only a pause in the work."""
        if isinstance(topics, Topics):
            parts = topics.slices()
        else:
            starts = range(0, len(topics), TOPICS_PER_SLICE)
            parts = (topics[start : start + TOPICS_PER_SLICE] for start in starts)
        if not self._shape.slots_together:
            yield from parts
            return
        slots: list[list[str]] = [[] for _ in range(SLOTS)]
        for some in parts:
            for topic in some:
                slots[slot_of(topic)].append(topic)
            yield []
        part: list[str] = []
        for slot in slots:
            # The store would write a split slot twice, so only slots larger than a part are split.
            if part and len(part) + len(slot) > self._part_size():
                yield part
                part = []
            start = 0
            while len(slot) - start > (size := self._part_size()):
                yield slot[start : start + size]
                start += size
            part += slot[start:]
        yield part

    def _by_home(self, topics: Any) -> list[tuple[str, list[str]]]:
        if (only := self._homes.only_home) is not None:
            return [(only, list(topics))]
        table = self._homes.table
        homes: dict[str, list[str]] = {}
        for topic in topics:
            homes.setdefault(table[slot_of(topic)], []).append(topic)
        return list(homes.items())

    def _dispatch(self, change: Change, home: str, topics: list[str], deadline: float) -> None:
        """Send a part of the change to its home. After ``deadline`` the part is not sent to another home."""
        change.open += 1
        if change.job is not None:
            self._topics += len(topics)
        if home == self._me:
            term = None if change.term is None else self._terms.term(*change.term)
            now, filter = self._desk.now, change.filter
            write = Write(change.client, topics, change.added, now, deadline, term, filter, change.replace)
            write.writer, write.context = self._own, change
            self._writing.take(write)
        else:
            until_disconnect, ttl_s = change.term or (False, 0)
            request = ChangeRequest(
                change.client, topics, change.added, change.filter, until_disconnect, ttl_s, change.replace
            )
            self._desk.ask(home, request, self, (change, deadline, self._desk.now))

    def part_done(self, change: Change, topics: int, took_s: float, error: ProtocolError | None) -> None:
        """Handle the end of a part of the change. A home has written this many topics in ``took_s`` seconds, or has
        failed."""
        self._pace(change, math.inf if error is not None else took_s)
        self._done(change, topics, error)

    def dispatch_again(self, change: Change, topics: list[str], deadline: float) -> None:
        """Send a part of the change again, because its receiver was not or is no longer the home."""
        if deadline <= self._desk.now:
            error = ProtocolError(
                "peer_unavailable", "No endpoint became the home of these topics in time; retry later"
            )
            self.part_done(change, len(topics), math.inf, error)
            return
        for home, some in self._by_home(topics):
            self._dispatch(change, home, some, deadline)
        self._done(change, len(topics))

    def _pace(self, change: Change, took_s: float) -> None:
        """Adapt the window to the time that a part of a large command took (``inf`` if it failed). Small commands do
        not count, because their times say nothing about large commands."""
        if change.job is None:
            return
        if took_s == math.inf:
            self._window = float(self._shape.topics_at_least)
        elif took_s > WRITE_S_LONG:
            self._window = max(self._window * (1 - WINDOW_GROWTH), self._shape.topics_at_least)
        elif took_s < WRITE_S_SHORT:
            self._window = min(self._window * (1 + WINDOW_GROWTH), self._shape.topics_at_once)

    def _done(self, change: Change, topics: int, error: ProtocolError | None = None) -> None:
        change.open -= 1
        if error is not None and change.error is None:
            change.error = error
        if change.job is not None:
            self._topics -= topics
            self._wake(change)
        if change.open:
            return
        if change.size:
            self._memory.wait(change.connection, -change.size)
        if change.counted and self._quota is not None:
            self._quota.ended(change)
        if change.more is None:
            self.reply(change, {})
        elif change.error is None:
            change.more.succeeded(change)
        else:
            change.more.failed(change)

    def _wake(self, ended: Change) -> None:
        """Continue with the commands that have waited longest. If ``ended`` has failed, it goes first, so that it can
        end."""
        waiting = self._waiting
        if ended.error is not None and ended in waiting:
            waiting.remove(ended)
            waiting.appendleft(ended)
        room = self._window - self._topics
        while waiting and (room > 0 or waiting[0].error is not None):
            job = waiting.popleft().job
            assert job is not None
            self._desk.job(job)
            room -= self._part_size()

    def reply(self, change: Change, fields: dict[str, Any]) -> None:
        """Reply to the client, because all parts of the change have ended. If ``change.error`` is set, the reply is
        this error, otherwise it has ``fields``."""
        if change.error is not None:
            self._replies.refuse(change.connection, change.reply, change.id, change.error)
            return
        if change.connection.receiver is not None and (change.replace or not change.added):
            change.connection.receiver.release(change.client)
        if change.term is not None:
            fields["grace_s"] = self._terms.grace_s
        if change.filter is not None and change.added:
            fields["filtered"] = True
        self._replies.reply(change.connection, change.reply, success(change.id, **fields))

    def answered(self, call: Call, value: Any) -> None:
        """Handle a home's answer that it has written the topics."""
        change, _, began = call.context
        self.part_done(change, len(call.request.topics), self._desk.now - began, None)

    def failed(self, call: Call, code: str, info: Any) -> None:
        """Handle the failure of a home, which reported an error or did not answer in time."""
        change, _, _ = call.context
        self.part_done(change, len(call.request.topics), math.inf, ProtocolError(code, info))

    def lost(self, call: Call) -> str | None:
        """Send the topics to their new homes, because the home is gone. It is harmless to add or remove a subscription
        twice."""
        change, deadline, _ = call.context
        topics = call.request.topics
        if len(topics) > self._at_once:
            self._desk.job(in_turn(self.dispatch_again, change, topics, deadline))
        else:
            self.dispatch_again(change, topics, deadline)
        return None
