"""Announces a topic's joins and leaves as messages on another topic, whose name is ``presence:`` and the topic's name.
SPEC section 2.5.

Owns: the announcements in progress. Must never: determine which clients join or leave (``topics.presence`` does this).

The home of a topic makes the announcements, because only the home writes the topic's subscriptions. An announcement is
a message like any other, except that no client publishes it. Nothing repeats a lost announcement, but a metric counts
it. Only one announcement of a topic is in progress at a time, and later changes go into the next announcement. This
keeps announcements in order even if an announcement has to go to another home.
"""

from __future__ import annotations

from typing import Any, Final

from msgspec.structs import replace

from ingeborg.protocol.errors import ProtocolError
from ingeborg.protocol.hashes import slot_of
from ingeborg.protocol.messages import Command
from ingeborg.protocol.topics import PRESENCE
from ingeborg.protocol.wire import canonical

from ..cluster.homes import Homes
from ..connections.hub import Connection
from ..desk import Desk
from ..dispatch import ELSEWHERE, Outcome, Telling, refusal
from ..links.calls import Call
from ..links.carrying import carried
from ..links.requests import PublishRequest
from ..message import Message
from ..outgoing.replies import Replies
from ..part import CommandSpec, Part
from ..topics.presence import News, Presence
from .home import Home
from .origin import Origin
from .outcomes import Outcomes

#: The largest number of announcements in progress at the same time. A home can handle this many announcements in
#: addition to clients' messages.
UNDER_WAY_MAX: Final = 1_000


class Announcing(Part):
    """Announces joins and leaves at one endpoint. This part comes after ``origin`` in the list of parts, so that it can
    replace the handler of ``publish``. It comes before the home, because at the end of a turn the home reads from the
    store the data that its messages need."""

    def __init__(
        self,
        desk: Desk,
        me: str,
        homes: Homes,
        presence: Presence,
        home: Home,
        outcomes: Outcomes,
        replies: Replies,
        origin: Origin,
    ) -> None:
        self._desk = desk
        self._me = me
        self._homes = homes
        self._presence = presence
        self._home = home
        self._outcomes = outcomes
        self._replies = replies
        self._origin = origin
        self._messages = 0  # the number of announcements in progress

    def commands(self) -> dict[str, CommandSpec]:
        """See ``Part``. This part receives ``publish`` before the origin does."""
        return {"publish": self._origin.commands()["publish"].taken_by(self.publish)}

    def publish(self, connection: Connection, command: Command) -> None:
        """Handle a client's ``publish``. Refuse it on topics of announcements, regardless of the client's token,
        because only homes publish there."""
        if command.topics[0].startswith(self._presence.told_of):
            text = f"No client may publish to {command.topics[0][:128]!r}: endpoints announce joins and leaves there"
            self._replies.refuse(connection, None, command.id, ProtocolError("forbidden", text), "publish")
        else:
            self._origin.publish(connection, command)

    def flush(self) -> None:
        """End the turn by sending the announcements that can be sent now. This method runs before ``Home.flush``, which
        reads the sets of subscribers of these announcements."""
        told = self._outcomes.told
        while told:
            telling = told.popleft()
            assert telling.outcome is not None
            self._take_outcome(telling.news, telling.message, telling.outcome)
        due = self._presence.due
        while due and self._messages < UNDER_WAY_MAX:
            self._send(due.popleft())

    def _send(self, news: News) -> None:
        joined, clients = self._presence.next_of(news)
        self._messages += 1
        payload = canonical({"joined" if joined else "left": clients})
        message = Message(PRESENCE + news.topic, payload, self._me, self._desk.number(), self._desk.now)
        self._dispatch(news, message)

    def _dispatch(self, news: News, message: Message) -> None:
        """Send an announcement to the home of its topic."""
        home = self._homes.table[slot_of(message.topic)]
        if home == self._me:
            self._hand_to_home(news, message)
        else:
            message.travelled = True
            request = PublishRequest(carried(message), None)
            self._desk.ask(home, request, self, (news, message), message.number)

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
        """End an announcement, so that the topic's next announcement can be sent."""
        self._messages -= 1
        self._presence.told(news, is_lost)

    # Answers from another home

    def answered(self, call: Call, value: Any) -> None:
        """End the announcement, because the home has dispatched it."""
        self._settle(call.context[0], False)

    def failed(self, call: Call, code: str, info: Any) -> None:
        """End or repeat the announcement, because the home could not dispatch it to all subscribers or did not answer
        in time."""
        news, message = call.context
        self._take_outcome(news, message, refusal(code, info))

    def lost(self, call: Call) -> str | None:
        """Send the announcement to the next home, marked as a repetition, because the endpoint is gone or is no longer
        the home."""
        news, message = call.context
        home = self._homes.table[slot_of(message.topic)]
        if home != self._me:
            call.request = replace(call.request, again=True)
            return home
        self._hand_to_home(news, message)
        return None
