"""Presence: who comes to a topic, and who leaves it, is told to the subscribers of ``presence:`` and its name. SPEC
section 2.5.

Owns: which topics have presence, whether a change is a join or a leave, and what has yet to be told of it. Must never:
tell of what is not in the store and in the routing cache, or have a change wait until it is told.

The home of a topic tells it, since it alone writes the topic's subscriptions. What it tells is a message like any
other, without a client that publishes it, and without a retry: what cannot be told is counted. Of one topic one message
is under way at a time, and what changes meanwhile goes into the next. So order is kept also where that message has to
go to another home.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Final

from ingeborg.protocol.errors import ProtocolError
from ingeborg.protocol.hashes import slot_of
from ingeborg.protocol.messages import Command
from ingeborg.protocol.topics import PRESENCE, TOPIC_BYTES_MAX
from ingeborg.protocol.wire import canonical

from ..cluster.homes import Homes
from ..connections.hub import Connection
from ..dedup.inflight import InFlight
from ..desk import Desk
from ..limits import SIZES
from ..links.calls import Call, Kind
from ..message import ELSEWHERE, Message, Outcome, Telling, refusal
from ..messages.home import Home
from ..messages.outcomes import Outcomes
from ..model import Subscription
from ..outgoing.replies import Replies
from ..part import CommandHandler, Part

#: Ids in one message: some 130 KB at most, where a payload may have a megabyte.
IDS_PER_MESSAGE: Final = 1_000

#: Joins and leaves that have yet to be told, of all topics, some 300 bytes each; beyond that they are dropped.
WAITING_MAX: Final = 10_000

#: Messages under way at once: as many as a home bears in addition to those of clients.
UNDER_WAY_MAX: Final = 1_000

#: Topics at which one call to the store asks for a client's subscriptions, as homes ask for topics.
TOPICS_PER_READ: Final = SIZES.topics_per_read

Looked = Callable[[Any, list[str]], None]
"""Told (context, the topics that the client joins or leaves by the change)."""


class Look:
    """A change, and which topics its client joins or leaves by it, as far as that is known."""

    __slots__ = ("added", "changed", "client", "context", "filter", "then", "unread")

    def __init__(
        self, client: str, topics: list[str], added: bool, filter: str | None, then: Looked, context: Any
    ) -> None:
        self.client = client
        self.added = added
        self.filter = filter
        self.then = then
        self.context = context
        self.changed: list[str] = []
        self.unread = topics  # at which the client's subscriptions have yet to be read

    def is_changed(self, held: list[Subscription]) -> bool:
        """Is it the first subscription at the topic that is added, or the last one that goes?"""
        if self.added:
            return not held
        return bool(held) and (self.filter is None or all(one.filter == self.filter for one in held))


class News:
    """What has yet to be told of one topic: runs of joins, or of leaves, in their order."""

    __slots__ = ("runs", "topic", "under_way")

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.runs: deque[tuple[bool, list[str]]] = deque()
        self.under_way = 0  # ids of the message that is


class Presence(Part):
    """One endpoint's part. It comes behind ``publish``'s, whose command it takes, and before the home, which asks the
    store at the end of a turn for what its messages need. ``prefixes``: what topics with presence begin with;
    ``publish``: carries out what this part does not refuse."""

    def __init__(
        self,
        desk: Desk,
        me: str,
        homes: Homes,
        home: Home,
        outcomes: Outcomes,
        inflight: InFlight,
        replies: Replies,
        publish: CommandHandler,
        prefixes: Iterable[str],
    ) -> None:
        self._desk = desk
        self._me = me
        self._homes = homes
        self._home = home
        self._outcomes = outcomes
        self._inflight = inflight
        self._replies = replies
        self._publish = publish
        self._prefixes = tuple(prefixes)
        self._told_of = tuple(PRESENCE + prefix for prefix in self._prefixes)
        self._news: dict[str, News] = {}  # by topic
        self._due: deque[News] = deque()  # of which the next message may go
        self._messages = 0  # under way
        self.waiting = 0  # joins and leaves that have yet to be told, those under way included

    def commands(self) -> dict[str, CommandHandler]:
        """In place of the origin's."""
        return {"publish": self.publish}

    # What has presence

    def of(self, topics: Iterable[str]) -> list[str]:
        """Those of the topics that have presence."""
        found: list[str] = []
        for topic in topics:
            if topic.startswith(self._prefixes) and not topic.startswith(PRESENCE):
                if len(PRESENCE) + len(topic.encode()) > TOPIC_BYTES_MAX:
                    self._desk.counts["presence_lost"] += 1
                else:
                    found.append(topic)
        return found

    def publish(self, connection: Connection, command: Command) -> None:
        """A client's ``publish``: joins and leaves are the homes' to tell, whatever its token says."""
        if command.topics[0].startswith(self._told_of):
            text = f"No client publishes to {command.topics[0][:128]!r}: the endpoints tell there who joins and leaves"
            self._replies.refuse(connection, None, command.id, ProtocolError("forbidden", text), "publish")
        else:
            self._publish(connection, command)

    # What a change does

    def look(self, client: str, topics: list[str], added: bool, filter: str | None, then: Looked, context: Any) -> None:
        """Find out which of these topics the client joins or leaves; all have presence. ``filter``: of the subscription
        that the change adds or removes; ``None`` adds the one without a filter, or removes all. Topics that the store
        cannot read are counted as lost."""
        self._read_on(Look(client, topics, added, filter, then, context))

    def _read_on(self, look: Look) -> None:
        if not look.unread:
            look.then(look.context, look.changed)
            return
        part, look.unread = look.unread[:TOPICS_PER_READ], look.unread[TOPICS_PER_READ:]
        pairs = [(look.client, topic) for topic in part]
        self._desk.store("subscriptions_of", (pairs,), self._read, (look, part))

    def _read(self, context: tuple[Look, list[str]], result: Any, error: Exception | None) -> None:
        look, part = context
        if error is not None:  # the next would take as long to fail
            self.lose(len(part) + len(look.unread))
            look.unread = []
        else:
            look.changed += [topic for topic, held in zip(part, result, strict=True) if look.is_changed(held)]
        self._read_on(look)

    # Telling

    def lose(self, count: int) -> None:
        """So many joins and leaves, if they are any, are not told."""
        self._desk.counts["presence_lost"] += count

    def tell(self, client: str, topics: Iterable[str], joined: bool) -> None:
        """The client has joined these topics, or has left them: the store and the cache say so. It is told at the end
        of the turn."""
        for topic in topics:
            if self.waiting >= WAITING_MAX:
                self.lose(1)
                continue
            self.waiting += 1
            news = self._news.get(topic)
            if news is None:
                news = self._news[topic] = News(topic)
                self._inflight.begin(0)  # so that an end in order waits for it, and publishers are slowed by many
                self._due.append(news)
            runs = news.runs
            if runs and runs[-1][0] == joined and len(runs[-1][1]) < IDS_PER_MESSAGE:
                runs[-1][1].append(client)
            else:
                runs.append((joined, [client]))

    def flush(self) -> None:
        """End the turn: send what may go. Comes before the homes' own: they read the sets of what is sent here."""
        told = self._outcomes.told
        while told:
            telling = told.popleft()
            assert telling.outcome is not None
            self._take_outcome(telling.news, telling.message, telling.outcome)
        while self._due and self._messages < UNDER_WAY_MAX:
            self._send(self._due.popleft())

    def _send(self, news: News) -> None:
        joined, clients = news.runs.popleft()
        news.under_way = len(clients)
        self._messages += 1
        payload = canonical({"joined" if joined else "left": clients})
        message = Message(PRESENCE + news.topic, payload, self._me, self._desk.number(), self._desk.now)
        self._dispatch(news, message)

    def _dispatch(self, news: News, message: Message) -> None:
        """To the home of the topic on which it is told."""
        home = self._homes.table[slot_of(message.topic)]
        if home == self._me:
            self._hand_to_home(news, message)
        else:
            message.travelled = True
            arguments = (message.topic, message.payload, b"", False)
            self._desk.ask(Kind.PUBLISH, home, arguments, self, (news, message), message.number)

    def _hand_to_home(self, news: News, message: Message) -> None:
        telling = Telling(message, slot_of(message.topic), news)
        self._home.take(telling)
        if telling.outcome is not None:
            self._take_outcome(news, message, telling.outcome)

    def _take_outcome(self, news: News, message: Message, outcome: Outcome) -> None:
        if outcome is ELSEWHERE:
            self._dispatch(news, message)
        else:
            self._settle(news, isinstance(outcome, ProtocolError))

    def _settle(self, news: News, is_lost: bool) -> None:
        """The message's way ends here; the next one of the topic may go."""
        count, news.under_way = news.under_way, 0
        self._messages -= 1
        self.waiting -= count
        if is_lost:
            self.lose(count)
        else:
            self._desk.counts["presence_told"] += count
        if news.runs:
            self._due.append(news)
        else:
            del self._news[news.topic]
            self._inflight.end(0)

    # What another home says

    def answered(self, call: Call, value: Any) -> None:
        """It has the message."""
        self._settle(call.context[0], False)

    def failed(self, call: Call, code: str, info: Any) -> None:
        """It could not take it, or not for all, or did not answer in time."""
        news, message = call.context
        self._take_outcome(news, message, refusal(code, info))

    def lost(self, call: Call) -> str | None:
        """It is gone, or not the home any more: to the next one, which is told that another was asked before."""
        news, message = call.context
        home = self._homes.table[slot_of(message.topic)]
        if home != self._me:
            call.arguments = (*call.arguments[:3], True)
            return home
        self._hand_to_home(news, message)
        return None
