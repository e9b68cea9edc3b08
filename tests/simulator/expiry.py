"""A random history of all kinds of subscriptions, and the promises of SPEC sections 2.2 and 2.6 about their ends.

Owns: the clients' actions, each client's beliefs about its subscriptions, and the comparison of these with the store.
Must never: cause a fault; ``history`` owns faults and the cluster.

A client subscribes with or without a filter, with or without a term, in addition to its other subscriptions or in their
place. It believes its replies: those to its commands, and those to a ``listen``, which name the subscriptions that have
ended. When all is quiet, its beliefs must hold, after any fault of the cluster. The effect of a failed command is
uncertain for a while, and the history then checks no belief about it.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from typing import Any

from ingeborg.broker.core.model import Subscription
from ingeborg.broker.core.topics.expiry import SLOT_REQUESTS_PER_TICK, WALK_S_MAX
from ingeborg.protocol.filters import canonical_filter
from ingeborg.protocol.hashes import SLOTS

from .filters import BY_TEXT, A, B, met_by
from .history import SETTLE_S, TOPICS, History, Subscriber
from .store import Name
from .world import TICK_S, Client

GRACE_S = 8.0

#: Seconds after which a subscription with a time ends.
TTL_S = (1, 5, 20)

#: Seconds after which a failed command can no longer take effect.
UNCERTAIN_S = 12.0

#: Seconds within which a home finds an expired subscription: two walks, word of an endpoint that has died, and a look
#: into each slot.
FOUND_S = 2 * WALK_S_MAX + 10.0 + SLOTS / SLOT_REQUESTS_PER_TICK * TICK_S

#: The end of a subscription that stays, or that ends with its client's connection.
NEVER = float("inf")

#: The clients' filters: few, so that each client often has several at a topic. None: all messages.
FILTERS: tuple[str | None, ...] = (None, None, *list(BY_TEXT)[:3])


class Believer(Subscriber):
    """A client, and its beliefs about each subscription, by topic and filter."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.lasting: set[Name] = set()
        self.expiring: dict[Name, float] = {}  # when each expires
        self.uncertain: dict[Name, float] = {}  # until when failed commands can still take effect
        self.pending: dict[str, object] = {}  # by topic: the command under way
        self.changed_at: dict[Name, float] = {}  # when a command about it last succeeded
        self.told = 0  # ended subscriptions that a `listen` has named

    def is_certain(self, name: Name) -> bool:
        """Is it certain what the client has to believe?"""
        return name[0] not in self.pending and name not in self.uncertain

    def may_change(self, topic: str, now: float) -> bool:
        """Would the reply to a command settle the client's beliefs?"""
        return topic not in self.pending and all(self.uncertain.get(name, now) <= now for name in names_at(topic))

    def forget(self, name: Name) -> None:
        """Note that the client does not have the subscription."""
        self.lasting.discard(name)
        self.expiring.pop(name, None)


def names_at(topic: str) -> list[Name]:
    """Return the names of all possible subscriptions at a topic."""
    return [(topic, text) for text in dict.fromkeys(FILTERS)]


class ExpiryHistory(History):
    """Runs one seed. ``ended``: the subscriptions that have ended; ``checked``: the beliefs compared."""

    def __init__(self, seed: int, **options: Any) -> None:
        super().__init__(seed, **options)
        self.world.options["grace_s"] = GRACE_S
        self.topics = TOPICS[:4]
        self.believers = [Believer(f"c{index}") for index in range(6)]
        self.subscribers = list(self.believers)
        self.by_name = {believer.name: believer for believer in self.believers}
        self.ended = self.checked = self.kept = 0
        self._watch_store()

    def run(self, seconds: float = 40.0) -> list[str]:
        """Run the whole history; return the violations."""
        world = self.world
        for name in self.names:
            self.start(name)
        world.run(2.5)
        for subscriber in self.subscribers:
            self.connect(subscriber)
        if self.drains:
            world.at(2.0, self.drain, list(self.names))
        end = world.now + seconds
        while world.now < end:
            world.run(self.random.expovariate(6.0))
            self.act()
            if self.faults and self.random.random() < 0.02:
                self.fault()
            if self.cuts and world.now > self.whole_at and self.random.random() < 0.05:
                self.cut_off()
        self.say("no more faults")
        world.run(SETTLE_S + 6.0)
        for subscriber in self.subscribers:  # absent clients come back, and learn what has ended
            if not self._listens(subscriber):
                self.connect(subscriber)
        world.run(UNCERTAIN_S + FOUND_S)
        self.compare()
        self.publish_to_all()
        self.leave_for_good()
        return self.violations

    # Actions of clients

    def connect(self, subscriber: Subscriber) -> None:
        """Open a (new) connection that listens and learns what has ended."""
        assert isinstance(subscriber, Believer)
        node = self.node()
        if node is None:
            return
        client = Client(self.world, subscriber.name, node)
        client.on_going_away = lambda: self.told_to_go(client)
        subscriber.connections.append(client)
        self.say(f"{subscriber.name} listens at {node.me.name}")
        begun_at = self.world.now

        def then(reply: dict[str, Any]) -> None:
            self.say(f"{subscriber.name} listens at {node.me.name}: {reply}")
            if reply.get("result") != "success":
                return
            subscriber.listening_since[client] = self.world.now
            for each in reply.get("ended", ()):
                name = each["topic"], canonical_filter(each["filter"]) if "filter" in each else None
                if subscriber.changed_at.get(name, 0.0) < begun_at:  # else the reply may be older than the success
                    subscriber.told += name in subscriber.expiring
                    subscriber.expiring.pop(name, None)

        self.command(client, then, command="listen")

    def act(self) -> None:
        """Perform one random action of a client."""
        draw = self.random.random()
        believer = self.random.choice(self.believers)
        topic = self.random.choice(self.topics)
        connection = believer.connection
        if draw < 0.6 and connection is not None and believer.may_change(topic, self.world.now):
            self.change(believer, connection, topic)
        elif draw < 0.75 and connection is None:
            self.connect(believer)
        elif draw < 0.8:
            self.connect(believer)  # it moves
        elif draw < 0.9 and connection is not None and self.random.random() < 0.5:
            self.say(f"{believer.name} goes away")
            connection.close()
        elif draw >= 0.9:
            self.publish_to(topic)  # so that homes read the subscribers, and have to keep them right

    def publish_to(self, topic: str) -> dict[str, Any]:
        """Publish a payload that some filters match."""
        client = self.publisher()
        values = {"a": self.random.choice(A), "b": self.random.choice(B)}
        payload = {key: value for key, value in values.items() if value is not None} | {"n": self.world.now}
        if client is not None:
            self.say(f"{client.name} publishes {json.dumps(payload)} to {topic}")
            self.command(client, command="publish", topic=topic, payload=payload, ack=True)
        return payload

    def change(self, believer: Believer, connection: Client, topic: str) -> None:
        """Subscribe in a random way, or take one subscription back, or all."""
        draws = self.random
        text = draws.choice(FILTERS)
        added = draws.random() < 0.72
        replace = added and draws.random() < 0.15
        until = added and draws.random() < 0.6
        ttl_s = draws.choice(TTL_S) if added and draws.random() < (0.2 if until else 0.6) else None
        fields = {
            "command": "subscribe" if added else "unsubscribe",
            "topic": topic,
            **({"filter": BY_TEXT[text]} if text is not None else {}),
            **({"replace": True} if replace else {}),
            **({"until": "disconnect"} if until else {}),
            **({"ttl_s": ttl_s} if ttl_s is not None else {}),
        }
        name = topic, text
        # The command changes all of the topic's names.
        touched = names_at(topic) if replace or (not added and text is None) else [name]
        self.say(f"{believer.name}: {fields}")
        mark = believer.pending[topic] = object()

        def then(reply: dict[str, Any]) -> None:
            self.say(f"{believer.name}: {fields}: {reply}")
            del believer.pending[topic]
            now = self.world.now
            if reply.get("result") != "success":
                believer.uncertain |= dict.fromkeys(touched, now + UNCERTAIN_S)
                return
            believer.changed_at |= dict.fromkeys(touched, now)
            has_term = until or ttl_s is not None
            for each in touched:
                was_uncertain = believer.uncertain.pop(each, None) is not None
                if each != name or not added or replace:
                    believer.forget(each)
                elif was_uncertain:
                    believer.forget(each)
                    if has_term:  # a failed command may have made it permanent
                        believer.uncertain[each] = now
                        return
            if added and not has_term:
                believer.expiring.pop(name, None)
                believer.lasting.add(name)
            elif added and name not in believer.lasting:
                believer.expiring[name] = NEVER if ttl_s is None else now + ttl_s

        def cut_off() -> None:
            """Handle a connection that ended before the reply came."""
            if believer.pending.get(topic) is not mark:
                return
            if connection.core is None:
                del believer.pending[topic]
                believer.uncertain |= dict.fromkeys(touched, self.world.now + UNCERTAIN_S)
            else:
                self.world.at(0.5, cut_off)

        self.command(connection, then, **fields)
        self.world.at(0.5, cut_off)

    def _listens(self, believer: Subscriber) -> bool:
        """Does the client listen, and has it tried nothing else since?"""
        newest = believer.connections[-1] if believer.connections else None
        return newest is not None and newest.core is not None and newest in believer.listening_since

    def _may_listen(self, believer: Subscriber) -> bool:
        """Has the client tried to listen, with an outcome that it does not know?"""
        return any(client.core is not None for client in believer.connections) and not self._listens(believer)

    def _went_at(self, believer: Believer) -> float:
        """Return the time until which the client listened on its newest connection, or tried to. Its earlier
        connections have lost to that one, though an endpoint that was cut off may have closed them later."""
        newest = believer.connections[-1] if believer.connections else None
        return float("-inf") if newest is None or newest.closed_at is None else newest.closed_at

    # Checks

    def _watch_store(self) -> None:
        """Check every subscription at the moment at which it ends."""
        store = self.world.store
        has_ended = store.has_ended

        def watched(held: Subscription) -> None:
            self.has_ended(held)
            has_ended(held)

        store.has_ended = watched  # type: ignore[method-assign]

    def has_ended(self, held: Subscription) -> None:
        """Check that the subscription was due."""
        self.ended += 1
        now, believer = self.world.now, self.by_name[held.client]
        self.say(f"{held} has ended")
        assert held.term is not None
        if held.term.ends_at and now >= held.term.ends_at:
            return
        if not held.term.disconnect:
            self.violations.append(f"{held} ended at {now:.3f}, which is early")
        elif self._may_listen(believer) or self._was_cut_off(believer):
            return
        elif self._listens(believer):
            self.violations.append(f"{held} ended at {now:.3f} while its client listened")
        elif now - self._went_at(believer) < GRACE_S:
            self.violations.append(f"{held} ended at {now:.3f}, its client went at {self._went_at(believer):.3f}")

    def _was_cut_off(self, believer: Believer) -> bool:
        """Can an endpoint where the client listened have been taken for dead while it lived?"""
        places = {client.node.me.incarnation for client in believer.listening_since}
        return any(incarnation in places for _, incarnation in self.false_deaths)

    def compare(self) -> None:
        """Compare the beliefs of listening clients with the store, in both directions."""
        now = self.world.now
        for believer in self.believers:
            if not self._listens(believer):
                self.violations.append(f"{believer.name} could not listen again")
            for name in (name for topic in self.topics for name in names_at(topic)):
                if not believer.is_certain(name):
                    continue
                self.checked += 1
                held = self.world.store.record(name[0], believer.name).get(name[1])
                if (held is not None and held.term is None) is not (name in believer.lasting):
                    self.violations.append(f"{believer.name} {name}: there is {held}, and it was told otherwise")
                over_at = believer.expiring.get(name)
                is_expiring = held is not None and held.term is not None
                if over_at is not None and over_at > now + 1.0 and held is None:
                    self.violations.append(f"{believer.name} {name}: it has ended, and nobody has said so")
                elif is_expiring and (over_at is None or over_at < now - FOUND_S):
                    self.violations.append(f"{believer.name} {name}: it should be over, and is there: {held}")
                self.kept += is_expiring

    def publish_to_all(self) -> None:
        """Check that a message to each topic reaches every client with a matching subscription."""
        world = self.world
        before = {client: len(client.notes) for believer in self.believers for client in believer.connections}
        due: dict[tuple[Believer, str], int] = {}
        for topic in self.topics:
            payload = self.publish_to(topic)
            met = {text for text in FILTERS if text is None or met_by(BY_TEXT[text], payload)}
            due |= {(believer, topic): count for believer, count in self._due(topic, met)}
        world.run(3.0)
        for (believer, topic), wanted in due.items():
            notes = [note for client in believer.connections for note in client.notes[before.get(client, 0) :]]
            count = sum(note[1] == topic for note in notes)
            if count != wanted:
                self.violations.append(f"{believer.name} got the last message to {topic} {count} times, not {wanted}")

    def _due(self, topic: str, met: Collection[str | None]) -> Iterator[tuple[Believer, int]]:
        """Return the clients whose number of copies is certain, and that number."""
        now = self.world.now
        for believer in self.believers:
            names = names_at(topic)
            overs = [believer.expiring.get(name, NEVER) for name in names]
            if all(map(believer.is_certain, names)) and all(over_at >= now + FOUND_S for over_at in overs):
                held = believer.lasting | believer.expiring.keys()
                yield believer, int(any(name in held and name[1] in met for name in names))

    def leave_for_good(self) -> None:
        """Check that no expiring subscription is left after its client has gone."""
        for believer in self.believers:
            for client in believer.connections:
                client.close()
        self.say("all go away")
        self.world.run(2 * GRACE_S + FOUND_S + max(TTL_S))
        for held in self.world.store.all_of_them():
            if held.term is not None:
                self.violations.append(f"{held} is left")
