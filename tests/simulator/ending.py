"""A random history of subscriptions that end by themselves, and what SPEC section 2.2 promises of them.

Owns: the clients' actions, what each of them has to believe of its subscriptions, and the comparison of that with the
store. Faults, and the cluster, are those of ``history``.

A client believes what it was told: by the reply to a command, and by a ``listen`` that names what has ended. What it
believes has to be so when all is quiet, whatever befell the cluster. What a command that failed has done is uncertain
for a while, and nobody is held to it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ingeborg.broker.core.model import Ending
from ingeborg.broker.core.topics.sweeping import SLOT_REQUESTS_PER_TICK, WALK_S_MAX
from ingeborg.protocol.hashes import SLOTS

from .history import SETTLE_S, TOPICS, History, Subscriber
from .world import TICK_S, Client

GRACE_S = 8.0

#: Seconds after which one with a time ends.
TTL_S = (1, 5, 20)

#: After so long nothing of a command that has failed can take effect any more.
UNCERTAIN_S = 12.0

#: A home has found one to be over so long after that it was: two walks, word of an endpoint that has died, and a look
#: into each slot.
FOUND_S = 2 * WALK_S_MAX + 10.0 + SLOTS / SLOT_REQUESTS_PER_TICK * TICK_S

PLAIN = "plain"
UNTIL = "until"
TTL = "ttl"


class Believer(Subscriber):
    """A client, and what it believes: topic -> when it is over by time (infinity: not), and whether it is plain."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.plain: set[str] = set()
        self.ending: dict[str, float] = {}
        self.uncertain: dict[str, float] = {}  # until when what has failed can still take effect
        self.pending: dict[str, object] = {}  # what is under way about it
        self.listened_at = float("-inf")  # when it was last seen to listen, unless it does
        self.changed_at: dict[str, float] = {}  # when it was last told of a command's success
        self.told = 0  # topics that a `listen` said have ended

    def is_certain(self, topic: str) -> bool:
        """Is it known what it has to believe?"""
        return topic not in self.pending and topic not in self.uncertain

    def may_change(self, topic: str, now: float) -> bool:
        """Would what it is told of a command hold?"""
        return topic not in self.pending and self.uncertain.get(topic, now) <= now


class EndingHistory(History):
    """Runs one seed. ``ended``: how many have ended; ``checked``: beliefs that were compared."""

    def __init__(self, seed: int, **options: Any) -> None:
        super().__init__(seed, **options)
        self.world.options["grace_s"] = GRACE_S
        self.believers = [Believer(f"c{index}") for index in range(6)]
        self.subscribers = list(self.believers)
        self.by_name = {believer.name: believer for believer in self.believers}
        self.ended = self.checked = self.kept = 0
        self._watch_store()

    def run(self, seconds: float = 40.0) -> list[str]:
        """The whole history; returns the violations."""
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
        for subscriber in self.subscribers:  # whoever is away comes back, and is told what has ended
            if not self._listens(subscriber):
                self.connect(subscriber)
        world.run(UNCERTAIN_S + FOUND_S)
        self.compare()
        self.publish_to_all()
        self.leave_for_good()
        return self.violations

    # What clients do

    def connect(self, subscriber: Subscriber) -> None:
        """A (new) connection that listens, and hears what has ended."""
        assert isinstance(subscriber, Believer)
        node = self.node()
        if node is None:
            return
        client = Client(self.world, subscriber.name, node)
        client.on_going = lambda: self.told_to_go(client)
        subscriber.connections.append(client)
        self.say(f"{subscriber.name} listens at {node.me.name}")
        begun_at = self.world.now

        def then(reply: dict[str, Any]) -> None:
            self.say(f"{subscriber.name} listens at {node.me.name}: {reply}")
            if reply.get("result") != "success":
                return
            subscriber.listening_since[client] = self.world.now
            for topic in reply.get("ended", ()):
                if subscriber.changed_at.get(topic, 0.0) < begun_at:  # else it may have been said before that
                    subscriber.told += topic in subscriber.ending
                    subscriber.ending.pop(topic, None)

        self.command(client, then, command="listen")

    def act(self) -> None:
        """One random action of a client."""
        draw = self.random.random()
        believer = self.random.choice(self.believers)
        topic = self.random.choice(TOPICS)
        connection = believer.connection
        if draw < 0.6 and connection is not None and believer.may_change(topic, self.world.now):
            kind = self.random.choice([UNTIL, UNTIL, UNTIL, TTL, PLAIN, "unsubscribe", "unsubscribe"])
            self.change(believer, connection, topic, kind)
        elif draw < 0.75 and connection is None:
            self.connect(believer)
        elif draw < 0.8:
            self.connect(believer)  # it moves
        elif draw < 0.9 and connection is not None and self.random.random() < 0.5:
            self.say(f"{believer.name} goes away")
            connection.close()

    def change(self, believer: Believer, connection: Client, topic: str, kind: str) -> None:
        """Subscribe, in one of three ways, or take it back."""
        world = self.world
        fields: dict[str, Any] = {"command": "unsubscribe" if kind == "unsubscribe" else "subscribe", "topic": topic}
        ttl_s = self.random.choice(TTL_S)
        if kind == UNTIL:
            fields["until"] = "disconnect"
        if kind == TTL or (kind == UNTIL and self.random.random() < 0.2):
            fields["ttl_s"] = ttl_s
        self.say(f"{believer.name}: {fields}")
        mark = believer.pending[topic] = object()

        def then(reply: dict[str, Any]) -> None:
            self.say(f"{believer.name}: {fields}: {reply}")
            del believer.pending[topic]
            if reply.get("result") != "success":
                believer.uncertain[topic] = world.now + UNCERTAIN_S
                return
            believer.changed_at[topic] = world.now
            if believer.uncertain.pop(topic, None) is not None:
                # What had failed may have made it plain.
                believer.plain.discard(topic)
                if kind in (UNTIL, TTL):
                    believer.uncertain[topic] = world.now
                    return
            if kind == "unsubscribe":
                believer.plain.discard(topic)
                believer.ending.pop(topic, None)
            elif kind == PLAIN:
                believer.ending.pop(topic, None)
                believer.plain.add(topic)
            elif topic not in believer.plain:
                believer.ending[topic] = world.now + fields["ttl_s"] if "ttl_s" in fields else float("inf")

        def cut_off() -> None:
            """Its connection ended before the reply came."""
            if believer.pending.get(topic) is not mark:
                return
            if connection.core is None:
                del believer.pending[topic]
                believer.uncertain[topic] = world.now + UNCERTAIN_S
            else:
                world.at(0.5, cut_off)

        self.command(connection, then, **fields)
        world.at(0.5, cut_off)

    def _listens(self, believer: Subscriber) -> bool:
        """It does, and has not tried to elsewhere since."""
        newest = believer.connections[-1] if believer.connections else None
        return newest is not None and newest.core is not None and newest in believer.listening_since

    def _may_listen(self, believer: Subscriber) -> bool:
        """It has tried to, and does not know what came of it."""
        return any(client.core is not None for client in believer.connections) and not self._listens(believer)

    def _went_at(self, believer: Believer) -> float:
        """Until when it listened, or tried to."""
        ends = [client.closed_at for client in believer.connections]
        return max((end for end in ends if end is not None), default=float("-inf"))

    # What must hold

    def _watch_store(self) -> None:
        """Every subscription that ends is looked at when it does."""
        store = self.world.store
        finish = store.finish_end

        def watched(batch: Any) -> list[list[Ending]]:
            held = dict(store.taken)
            found = finish(batch)
            for record in (record for records in found for record in records):
                if held.get((record.topic, record.client)) == record:
                    self.has_ended(record)
            return found

        store.finish_end = watched  # type: ignore[method-assign]

    def has_ended(self, record: Ending) -> None:
        """Was it time?"""
        self.ended += 1
        now, believer = self.world.now, self.by_name[record.client]
        self.say(f"{record.client} {record.topic}: has ended")
        if record.term.ends_at and now >= record.term.ends_at:
            return
        if not record.term.disconnect:
            self.violations.append(f"{record} ended at {now:.3f}, which is early")
        elif self._may_listen(believer) or self._was_cut_off(believer):
            return
        elif self._listens(believer):
            self.violations.append(f"{record} ended at {now:.3f} while its client listened")
        elif now - self._went_at(believer) < GRACE_S:
            self.violations.append(f"{record} ended at {now:.3f}, its client went at {self._went_at(believer):.3f}")

    def _was_cut_off(self, believer: Believer) -> bool:
        """Was an endpoint where it listened taken for dead while it lived, or can it have been?"""
        places = {client.node.me.incarnation for client in believer.listening_since}
        return any(incarnation in places for _, incarnation in self.false_deaths)

    def compare(self) -> None:
        """What a client that listens believes is in the store, and nothing else is."""
        store, now = self.world.store, self.world.now
        for believer in self.believers:
            if not self._listens(believer):
                self.violations.append(f"{believer.name} could not listen again")
            for topic in TOPICS:
                if not believer.is_certain(topic):
                    continue
                self.checked += 1
                is_plain = believer.name in store.subscribers_of.get(topic, ())
                held = store.endings.get((topic, believer.name))
                if is_plain != (topic in believer.plain):
                    self.violations.append(f"{believer.name} {topic}: plain is {is_plain}, and it was told otherwise")
                over_at = believer.ending.get(topic)
                if over_at is not None and over_at > now + 1.0 and held is None:
                    self.violations.append(f"{believer.name} {topic}: it has ended, and nobody has said so")
                elif held is not None and (over_at is None or over_at < now - FOUND_S):
                    self.violations.append(f"{believer.name} {topic}: it should be over, and is there: {held}")
                self.kept += held is not None

    def publish_to_all(self) -> None:
        """A message to each topic reaches whoever believes in it."""
        world = self.world
        before = {client: len(client.notes) for believer in self.believers for client in believer.connections}
        for topic in TOPICS:
            client = self.publisher()
            assert client is not None
            self.command(client, command="publish", topic=topic, payload=f"last {topic}", ack=True)
        due = dict(self._due())
        world.run(3.0)
        for (believer, topic), wanted in due.items():
            notes = [note for client in believer.connections for note in client.notes[before.get(client, 0) :]]
            count = sum(note[1] == topic for note in notes)
            if count != wanted:
                self.violations.append(f"{believer.name} got the last message to {topic} {count} times, not {wanted}")

    def _due(self) -> Iterator[tuple[tuple[Believer, str], int]]:
        now = self.world.now
        for believer in self.believers:
            for topic in TOPICS:
                over_at = believer.ending.get(topic)
                if not believer.is_certain(topic) or (over_at is not None and over_at < now + FOUND_S):
                    continue
                yield (believer, topic), int(topic in believer.plain or over_at is not None)

    def leave_for_good(self) -> None:
        """Nothing that ends is left when its clients have gone."""
        for believer in self.believers:
            for client in believer.connections:
                client.close()
        self.say("all go away")
        self.world.run(2 * GRACE_S + FOUND_S + max(TTL_S))
        for record in self.world.store.endings.values():
            self.violations.append(f"{record} is left")
