"""The origin of messages. It handles a client's publish from the command to the reply.

Owns: the publishes of this endpoint's clients until their outcome is known, and the record of payloads that their homes
have already seen. Must never: look for a subscriber. The topic's home does this, here or at another endpoint.

The origin sends a publish to its topic's home. If that endpoint dies, the origin sends the publish to the next home. If
many clients publish the same payload at the same time, the origin sends only the first message to the home
(``origin_dedup``).
"""

from __future__ import annotations

import math
from typing import Any

from msgspec.structs import replace

from ingeborg.protocol.errors import ProtocolError
from ingeborg.protocol.hashes import slot_of
from ingeborg.protocol.messages import ACK_WITH_MID, NO_ACK, Command, mid_of, success

from ..cluster.homes import Homes
from ..connections.hub import Connection
from ..counters import Counters
from ..dedup.dedup import key_of, key_of_name
from ..dedup.inflight import InFlight
from ..dedup.origin_dedup import OriginDedup
from ..dedup.own_keys import own_key_of
from ..desk import Desk
from ..dispatch import ELSEWHERE, Dispatch, Publish, refusal
from ..links.calls import RETAINED, Call
from ..links.carrying import carried
from ..links.requests import PublishRequest
from ..message import Message
from ..metrics import Metric
from ..outgoing.replies import Replies
from ..part import CommandSpec, Part
from ..retained.retention import Retention
from .home import Home
from .outcomes import Outcomes


class Origin(Part):
    """Handles the messages that one endpoint's clients publish. ``dedup`` says whether the endpoints check for
    duplicates."""

    def __init__(
        self,
        desk: Desk,
        me: str,
        homes: Homes,
        home: Home,
        outcomes: Outcomes,
        origin_dedup: OriginDedup,
        inflight: InFlight,
        replies: Replies,
        counters: Counters,
        retention: Retention,
        dedup: bool,
    ) -> None:
        self._desk = desk
        self._me = me
        self._homes = homes
        self._home = home
        self._outcomes = outcomes
        self._origin_dedup = origin_dedup
        self._inflight = inflight
        self._replies = replies
        self._counters = counters
        self._retention = retention
        self._dedup = dedup

    def metrics(self) -> list[Metric]:
        """See ``Part``."""
        return [
            self._desk.counted(
                "publishes_received",
                "Publishes and broadcasts received from clients of this endpoint",
            ),
            self._desk.counted(
                "duplicates_dropped",
                "Publishes that this endpoint, as home, dropped because it had seen their payload recently",
            ),
        ]

    def commands(self) -> dict[str, CommandSpec]:
        """See ``Part``. A broadcast is handled as a publish without a topic."""
        publish = CommandSpec(self.publish, publishes=True, after_close=True)
        return {"publish": publish, "broadcast": publish}

    def publish(self, connection: Connection, command: Command) -> None:
        """Handle a client's ``publish`` or ``broadcast``, and dispatch it."""
        desk = self._desk
        desk.counts["publishes_received"] += 1
        if self._outcomes.due:
            self.take_outcomes()  # earlier messages that have to go to another home must go first
        topic = command.topics[0] if command.topics else ""
        slot = slot_of(topic)
        message = Message(topic, command.payload, self._me, 0, desk.now)
        if command.about is not None:
            message.about = command.about
        publish = Publish(message, slot, connection, command.id, command.ack)
        if (command.keep_s or self._retention.topics) and not self._keep(publish, command):
            return
        if command.dedup and self._dedup:
            if type(command.dedup) is str:
                publish.key = own_key_of(slot, topic, command.client, command.dedup, command.payload)
            else:
                publish.key = key_of(slot, topic, command.payload)
        self._begin(publish)
        if publish.outcome is None:
            publish.reply = self._replies.expect(connection, publish.ack != NO_ACK)

    def _keep(self, publish: Publish, command: Command) -> bool:
        """Set how long to retain the message. Return false if the message cannot be retained as requested."""
        topic = publish.message.topic
        if topic:
            try:
                publish.keep_s = self._retention.seconds(topic, command.keep_s, len(command.payload))
            except ProtocolError as error:
                self._settle(publish, error)
                return False
        return True

    def _begin(self, publish: Publish) -> None:
        """Begin dispatching an accepted message. From now on its number identifies it."""
        number = publish.message.number = self._desk.number()
        if publish.keep_s and publish.key is None:
            publish.key, publish.unique = key_of_name(publish.slot, self._me, number), True
        self._dispatch(publish)

    def _dispatch(self, publish: Publish) -> None:
        """Send the message to the present home of its topic."""
        home = self._homes.table[publish.slot]
        if home == self._me:
            self._hand_to_home(publish)
            return
        desk = self._desk
        message, key = publish.message, publish.key
        if key is not None and self._origin_dedup.known(key, desk.now):
            desk.counts["duplicates_dropped"] += 1
            self._settle(publish, True)
            return
        if not publish.waits:
            publish.waits = True
            self._inflight.begin(len(message.payload))
            if not self._inflight.eased:
                desk.hurry()
        message.travelled = True
        can_wait = not (publish.ack or publish.keep_s or publish.again)
        request = PublishRequest(carried(message), key, publish.again, publish.keep_s, can_wait)
        desk.ask(home, request, self, publish, message.number, None, can_wait)

    def _hand_to_home(self, publish: Publish) -> None:
        """Pass the message to the home at this endpoint."""
        dispatch = Dispatch(publish.message, publish.slot, publish.key, publish)
        dispatch.keep_s = publish.keep_s
        dispatch.can_wait = not (publish.ack or publish.keep_s)
        if publish.keep_s and (publish.message.travelled or publish.again):
            dispatch.begun = -math.inf  # another home may have begun to dispatch this message
        if publish.keep_s:
            publish.message.travelled = True  # another home may dispatch it later, so destinations must remember it
        self._home.take(dispatch)
        if dispatch.outcome is not None:
            self._take_outcome(publish, dispatch)

    def take_outcomes(self) -> None:
        """Collect the outcomes of messages that had to wait at this endpoint's home. Called at the end of each turn."""
        due = self._outcomes.due
        while due:
            dispatch = due.popleft()
            assert dispatch.publish is not None
            self._take_outcome(dispatch.publish, dispatch)

    def _take_outcome(self, publish: Publish, dispatch: Dispatch) -> None:
        outcome = dispatch.outcome
        assert outcome is not None
        publish.is_retained = dispatch.is_retained
        if dispatch.renamed:
            publish.name = dispatch.message.origin, dispatch.message.number
        if outcome is ELSEWHERE:
            publish.again = publish.keep_s > 0
            publish.message.travelled = True  # the former home may have dispatched it
            self._dispatch(publish)
        else:
            self._settle(publish, outcome)

    def _settle(self, publish: Publish, outcome: bool | ProtocolError) -> None:
        """End the message, and reply to its publisher. A success without ``ack`` gets no reply (SPEC section 2)."""
        if outcome is True and publish.unique:
            outcome = False  # only this message has this key, so it was dispatched before and is no duplicate
        publish.outcome = outcome
        self._forget(publish)
        if publish.reply is None:
            self._counters.settled_at_once += 1
        elif publish.ack or publish.keep_s:  # otherwise the outcome may have waited on its way
            self._counters.settled_s.append(self._desk.now - publish.message.received)
        if isinstance(outcome, ProtocolError):
            name = "publish" if publish.message.topic else "broadcast"
            self._replies.refuse(publish.connection, publish.reply, publish.id, outcome, name)
        else:
            data = None
            if publish.ack == ACK_WITH_MID and not outcome:
                data = self._success_with_mid(publish)
            elif publish.ack and publish.keep_s:
                data = success(publish.id, duplicate=outcome, kept=publish.is_retained)
            elif publish.ack:
                data = success(publish.id, duplicate=outcome)
            self._replies.reply(publish.connection, publish.reply, data)

    def _success_with_mid(self, publish: Publish) -> bytes:
        origin, number = publish.name or (self._me, publish.message.number)
        fields = {"duplicate": False, "mid": mid_of(origin, number)}
        if publish.keep_s:
            fields["kept"] = publish.is_retained
        return success(publish.id, **fields)

    def _forget(self, publish: Publish) -> None:
        """Stop counting the message as in flight."""
        if publish.waits:
            publish.waits = False
            self._inflight.end(len(publish.message.payload))

    # Answers from another home

    def answered(self, call: Call, value: Any) -> None:
        """End the message, because the home has dispatched it."""
        publish: Publish = call.context
        if publish.key is not None and not publish.unique:
            self._origin_dedup.learn(publish.key, self._desk.now)
        if type(value) is tuple:
            publish.is_retained, publish.name = value[0], (value[1], value[2])
        else:
            publish.is_retained = value == RETAINED
        self._settle(publish, value is True)

    def failed(self, call: Call, code: str, info: Any) -> None:
        """End the message with an error, because the home could not dispatch it or did not answer in time."""
        self._settle(call.context, refusal(code, info))

    def lost(self, call: Call) -> str | None:
        """Send the message to the next home, marked as a repetition, because the endpoint is gone or is no longer the
        home."""
        publish: Publish = call.context
        home = self._homes.table[publish.slot]
        if home != self._me:
            call.request = replace(call.request, again=True, can_wait=False)
            return home
        self._forget(publish)
        self._hand_to_home(publish)
        return None
