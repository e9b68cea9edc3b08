"""A random history of clients that recover, and of retained messages: readers go away, come back, and ask for the
messages that they have missed.

Owns: the actions of clients and publishers, and the faults. ``reader`` judges what readers saw; ``history`` has the
cluster, and the ways in which endpoints end and begin.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from ingeborg.broker.core.limits import Limits
from ingeborg.broker.core.links.requests import WatermarkRequest
from ingeborg.broker.core.model import Load, Settings, Shape
from ingeborg.protocol.hashes import slot_of

from .history import TOPICS, History
from .reader import (
    Line,
    Position,
    Publication,
    Reader,
    Sent,
    Wish,
    duplicates_of_nothing,
    holes,
    not_sent,
    owed,
    verdict,
)
from .world import Client, Node

#: A position of another cluster, and texts that are no position.
FORGED = ("0123456789abcdef.1f", "no position", "x" * 128)

#: Seconds after which all faults are healed, failed requests have timed out, and every loss is known.
QUIET_S = 12.0

#: Seconds within which a reader that has come back recovers.
RECOVERED_S = 15.0

#: Earlier positions with which each reader comes back at the end, and the seconds that it gets for each.
SAVED = 4
BACK_S = 2.5

#: Seconds after which all processes have ended, and none of their store calls is under way.
RESTORE_S = 0.25

#: Seconds after which a failed command can no longer take effect.
UNCERTAIN_S = 12.0

HOUR_S = 3600

#: Options with which a subscription still gets all messages, as long as its client is away for less than the grace
#: time: payloads here are strings, which have no attribute.
EVERYTHING = {"x": [{"exists": False}]}
DRESSES: tuple[dict[str, Any], ...] = (
    {},
    {"until": "disconnect"},
    {"ttl_s": HOUR_S},
    {"filter": EVERYTHING},
    {"filter": EVERYTHING, "until": "disconnect"},
    {"filter": EVERYTHING, "ttl_s": HOUR_S, "replace": True},
    {"replace": True},
)


class RecoveringHistory(History):
    """Runs one seed. ``faults``: names of faults (see ``_fault``), one of which is drawn each time. ``every_s``:
    seconds between two. ``keeps_s``: the values of ``keep_s`` that publishers draw. ``whole``: no event of this history
    can justify a gap. ``forges``: clients forge positions now and then. ``slow``: clients stop reading for a while.
    ``restless``: the share of their chances to go away that readers take. ``varied``: readers also repeat a `listen` on
    the same connection, and subscribe in every way. ``settle_s``: the cluster's age in seconds when readers come; they
    come no earlier than the first endpoint is ready. ``roomless``: endpoints without room for retained messages.
    ``bounds``: the rules that readers draw; the endpoints are then busy."""

    def __init__(
        self,
        seed: int,
        *,
        faults: Sequence[str] = (),
        every_s: float = 2.0,
        keeps_s: Sequence[int] = (HOUR_S,),
        whole: bool = True,
        forges: bool = False,
        replication: bool = False,
        journal: bool = False,
        readers: int = 4,
        restless: float = 1.0,
        varied: bool = False,
        settle_s: float = 6.0,
        topics: Sequence[str] = TOPICS,
        limits: Limits | None = None,
        roomless: Sequence[str] = (),
        bounds: Sequence[Any] = (),
        **options: Any,
    ) -> None:
        history = "store" if journal else "memory"
        options.setdefault("shape", Shape(journal=True))
        limits = limits or Limits(history_bytes=1 << 20)
        super().__init__(seed, faults=False, replication=replication, limits=limits, history=history, **options)
        self.kinds, self.every_s, self.keeps_s, self.whole, self.forges = faults, every_s, keeps_s, whole, forges
        self.topics = list(topics)
        self.roomless = frozenset(roomless)
        self.bounds = bounds
        if bounds:
            self.world.load = Load(1.0)
        self.roomy = self.world.options["limits"]
        self.restless, self.varied, self.settle_s = restless, varied, settle_s
        self.readers = [Reader[Client](f"c{index}") for index in range(readers)]
        self.published: list[Publication] = []
        self.next_fault = 0.0
        self.has_crashed = False
        self.is_over = False
        self.copy: tuple[Any, ...] | None = None  # the journal's
        self.restored_at = 0.0
        self.owed = self.gaps = self.recoveries = self.came_back = 0

    # Actions

    def start(self, name: str) -> Node:
        """Start an endpoint."""
        limits = replace(self.roomy, history_bytes=0) if name in self.roomless else self.roomy
        self.world.options["limits"] = limits
        return super().start(name)

    def run(self, seconds: float = 12.0) -> list[str]:
        """Run the whole history; return the violations."""
        world = self.world
        for name in self.names:
            self.start(name)
        world.run(self.settle_s)
        while self.node() is None:
            world.run(0.05)
        self.check_homes_regularly()
        for reader in self.readers:
            self.listen(reader)
        world.run(0.5)
        if self.drains:
            world.at(0.5, self.drain, list(self.names))
        self.next_fault = world.now + self.random.uniform(0.5, self.every_s)
        end = world.now + seconds
        while world.now < end:
            world.run(self.random.expovariate(14.0))
            self.act()
            if self.kinds and world.now >= self.next_fault:
                self._fault(self.random.choice(self.kinds))
                self.next_fault = world.now + self.random.uniform(0.5, 1.5) * self.every_s
        self._end()
        return self.violations

    def _end(self) -> None:
        world = self.world
        self.say("no more faults")
        self.is_over = True
        world.run(QUIET_S)
        for reader in self.readers:
            if reader.line is not None:
                reader.line.client.close()
        world.run(0.5)
        for reader in self.readers:
            self.listen(reader)
        world.run(RECOVERED_S)
        for reader in self.readers:
            line = reader.lines[-1]
            if not line.is_told or not (line.recovered or line.recover is True):
                self.violations.append(f"{reader.name} came back with {line.recover}, and has not recovered")
            if self.whole:
                self.violations += [f"a gap was told to {gap}" for gap in reader.unasked]
                for one in reader.lines:
                    if one.recovered and not one.genuine:
                        self.violations += not_sent(reader, one, self.published)
            self.gaps += len(reader.gaps)
        if self.restored_at:
            for reader in self.readers:
                reader.began = max(reader.began, self.restored_at)
        partial = not self.has_crashed
        self.violations += verdict(self.readers, self.published, partial)
        self.violations += duplicates_of_nothing(self.published)
        self.owed = sum(bool(owed(reader, one, partial)) for reader in self.readers for one in self.published)
        self._come_back_with_any(partial)
        self.recoveries = sum(node.router.counters.counts["recoveries"] for node in world.nodes.values())
        self._check_logs()
        for node in world.live():  # endpoints send their watermarks all the time
            for number in [
                number
                for number, call in node.router.calls._calls.items()
                if isinstance(call.request, WatermarkRequest)
            ]:
                del node.router.calls._calls[number]
        self.check_replies()

    def _come_back_with_any(self, partial: bool) -> None:
        """Make each reader come back with old positions: those sent during a recovery, and some others."""
        for number in range(SAVED):
            lines = []
            for reader in self.readers:
                if number < len(reader.saved) and (node := self.node()) is not None:
                    self._listen(reader, node, self.random.choice(reader.saved), True)
                    lines.append((reader, reader.lines[-1]))
            self.world.run(BACK_S)
            for reader, line in lines:
                if line.recovered:
                    self.violations += holes(reader, line, self.published, partial)
                    self.came_back += 1

    def act(self) -> None:
        """Perform one random action of a client."""
        draw = self.random.random()
        reader = self.random.choice(self.readers)
        line = reader.line
        if self.varied and line is not None and self.random.random() < 0.12:
            self.listen_anew(reader, line)
        elif draw < 0.5:
            self.publish_one()
        elif line is None:
            if not reader.is_due:
                self.listen(reader)
        elif draw < 0.68:
            self.change(reader, line)
        elif self.restless < 1.0 and self.random.random() > self.restless:
            return
        elif draw < 0.86:
            self.cut_reader(reader, line)
        elif draw < 0.94:
            self.listen(reader)  # also while it is connected
        elif draw < 0.97:
            self.command(line.client, command="history", topic=self.random.choice(self.topics), last=3)
        elif self.slow:
            line.client.deaf_until = self.world.now + self.random.uniform(0.1, 3.0)

    # Readers

    def listen(self, reader: Reader[Client]) -> None:
        """Open a new connection that recovers; the broker has to close the old one."""
        reader.is_due = False
        node = self.node()
        if node is None:
            return
        recover: Position | str | bool = reader.position
        genuine = True
        draw = self.random.random()
        if not self.is_over and draw < 0.1 and reader.positions:
            recover = self.random.choice(reader.positions)
        elif not self.is_over and self.forges and draw < 0.25:
            recover, genuine = self.random.choice(FORGED), False
            if reader.positions and self.random.random() < 0.4:
                recover = reader.positions[-1].text.rpartition(".")[0] + ".ffffffffffff"
        self._listen(reader, node, recover, genuine)

    def _listen(self, reader: Reader[Client], node: Node, recover: Position | str | bool, genuine: bool) -> None:
        if isinstance(recover, Position) and self.copy is not None and recover.stamp <= self.copy[-1]:
            # Only clients with positions from after the copy can learn what the copy lacks.
            recover = recover._replace(began=max(recover.began, self.restored_at))
        client = Client(self.world, reader.name, node)
        line = Line(client, recover, genuine)
        reader.lines.append(line)
        client.on_going_away = lambda: self._come_back(reader, self.random.uniform(0.0, 0.3))
        client.on_word = lambda word: self._heard(reader, line, word)
        client.on_named = lambda message: reader.took(line, message)
        self.say(f"{reader.name} listens at {node.me.name} with {line.recover}")

        def then(reply: dict[str, Any]) -> None:
            self.say(f"{reader.name} listens at {node.me.name}: {reply}")
            if reply.get("result") == "success":
                reader.listened(line, reply, self.world.now)
            else:
                client.close()

        self.command(client, then, command="listen", recover=line.recover, **self._bounds())

    def _bounds(self) -> dict[str, Any]:
        return {"bounds": self.random.choice(self.bounds)} if self.bounds else {}

    def listen_anew(self, reader: Reader[Client], former: Line[Client]) -> None:
        """Listen again on the same connection, from an earlier position; or end its listen for a moment first."""
        client = former.client
        # One at a time: a message between two replies could belong to either.
        if not reader.saved or self.expected.get(client):
            return
        line = Line(client, self.random.choice(reader.saved), True)
        if self.random.random() < 0.4:
            self.say(f"{reader.name} does not listen at {client.node.me.name} any more")
            self.command(client, command="unlisten")
        self.say(f"{reader.name} listens anew at {client.node.me.name} with {line.recover}")

        def then(reply: dict[str, Any]) -> None:
            self.say(f"{reader.name} listens anew at {client.node.me.name}: {reply}")
            if reply.get("result") != "success":
                client.close()
            elif former is reader.lines[-1]:
                reader.lines.append(line)
                client.on_word = lambda word: self._heard(reader, line, word)
                client.on_named = lambda message: reader.took(line, message)
                reader.listened(line, reply, self.world.now)
            else:
                former.order.clear()  # it goes on elsewhere; the order of this connection starts afresh

        self.command(client, then, command="listen", recover=line.recover, **self._bounds())

    def _heard(self, reader: Reader[Client], line: Line[Client], word: dict[str, Any]) -> None:
        self.say(f"{reader.name} at {line.client.node.me.name}: {str(word)[:200]}")
        reader.heard(line, word, self.world.now)

    def _come_back(self, reader: Reader[Client], seconds: float) -> None:
        if not reader.is_due and not self.is_over:
            reader.is_due = True
            self.world.at(seconds, lambda: None if self.is_over else self.listen(reader))

    def cut_reader(self, reader: Reader[Client], line: Line[Client]) -> None:
        """Cut the reader's connection; everything unread is lost. The reader comes back at once or after a while."""
        draw = self.random.random()
        if draw < 0.3:
            line.client.close()
        else:
            line.client.cut_off(self.random.uniform(0.0, 3.0) if draw < 0.7 else 0.0)
        self.say(f"{reader.name} is cut off")
        self._come_back(reader, self.random.choice([0.0, self.random.uniform(0.0, 0.3), self.random.uniform(0.0, 4.0)]))

    def change(self, reader: Reader[Client], line: Line[Client]) -> None:
        """Subscribe, perhaps with kept messages, or take a subscription back."""
        topic = self.random.choice(self.topics)
        added = topic not in reader.since or self.random.random() < 0.6
        fields: dict[str, Any] = {}
        reached: float | None = None
        draw = self.random.random()
        if added and draw < 0.2:
            fields["last"] = self.random.randint(1, 5)
        elif added and draw < 0.4 and reader.positions:
            position = self.random.choice(reader.positions)
            reached, fields["since"] = position.at, position.text
        wish = Wish(line, topic, added, bool(fields), reached, self.world.now + UNCERTAIN_S)
        if self.varied and added:
            fields |= self.random.choice(DRESSES)
        reader.wishes(wish)
        self.say(f"{reader.name} {'subscribes to' if added else 'unsubscribes from'} {topic} {fields}")

        def then(reply: dict[str, Any]) -> None:
            self.say(f"{reader.name} {topic} {added} {fields}: {reply}")
            can_count = added and line is reader.line and not reader.is_leaving(topic, self.world.now)
            is_whole = reply.get("result") != "success" or reply.get("recovered", False)
            if can_count and self.whole and "since" in fields and not is_whole:
                self.violations.append(f"{reader.name}: {topic} since {fields['since']} is not whole")
            reader.answered(wish, reply, self.world.now)

        self.command(line.client, then, command="subscribe" if added else "unsubscribe", topic=[topic], **fields)

    # Publishers

    def publish_one(self) -> None:
        """Publish a new payload, or repeat one of the last."""
        if self.published and self.random.random() < 0.1:
            publication = self.random.choice(self.published[-5:])
        else:
            number = len(self.published)
            keep_s = 0 if self.random.random() < 0.12 else self.random.choice(self.keeps_s)
            dedup: bool | str = self.random.choice((True, False, f"k{number}"))
            publication = Publication(f"m{number}", self.random.choice(self.topics), keep_s, dedup)
            self.published.append(publication)
        client = self.publisher()
        if client is None:
            return
        sent = Sent(self.world.now, client.name)
        publication.sends.append(sent)
        keep = {"keep_s": publication.keep_s} if publication.keep_s else {}
        self.say(f"{client.name} publishes {publication.payload} to {publication.topic} {keep} {publication.dedup}")

        def then(reply: dict[str, Any]) -> None:
            sent.reply, sent.replied_at = reply, self.world.now
            self.say(f"{publication.payload}: {reply}")

        fields = {"topic": publication.topic, "payload": publication.payload, "ack": True, "mid": True, **keep}
        own = {"client_id": "p"} if isinstance(publication.dedup, str) else {}
        self.command(client, then, command="publish", dedup=publication.dedup, **fields, **own)

    # Faults

    def _fault(self, name: str) -> None:
        live = [node for node in self.world.live() if node is not self.draining]
        if live:
            faults: dict[str, Callable[[Node], None]] = {
                "crash": self._crash_endpoint,
                "crash home": self._crash_home,
                "crash replicated": self._crash_replicated,
                "leave": self._leave,
                "leave together": self._leave_together,
                "join": self._add,
                "stall": self._stall,
                "cut": self._cut,
                "short cut": self._short_cut,
                "long cut": self._long_cut,
                "store": self._fail_store,
                "readonly": self._fail_writes,
                "restart all": self._restart_all,
                "set": self._set,
                "copy": self._copy,
                "restore": self._restore_all,
            }
            faults[name](self.random.choice(live))

    def crash(self, node: Node) -> None:
        """Crash the endpoint, as ``kill -9`` does."""
        self.has_crashed = self.disturbed = True
        super().crash(node)

    def _crash_endpoint(self, node: Node) -> None:
        if len(self.world.live()) > 1:
            self.say(f"{node.me.name} crashes")
            self.crash(node)
            self.world.at(self.random.uniform(0.3, 8.0), self.start, node.me.name)

    def _crash_home(self, node: Node) -> None:
        """Crash the home of a topic, and a while later the endpoint that has taken over."""
        topic = self.random.choice(self.topics)
        self._crash_home_of(topic)
        self.world.at(self.random.uniform(0.1, 8.0), self._crash_home_of, topic)

    def _crash_home_of(self, topic: str) -> None:
        for node in self.world.live():
            members = node.router.members
            if members.joined and members.table[slot_of(topic)] == node.me.incarnation and not self.is_over:
                self._crash_endpoint(node)
                return

    def _crash_replicated(self, node: Node) -> None:
        """Crash an endpoint, if every slot has its replica."""
        live = self.world.live()
        if len(live) < len(self.names) or not all(one.router.members.joined for one in live):
            return
        if all(one.router.replication.barrier.on and not one.router.cluster.replication.without for one in live):
            self._crash_endpoint(node)

    def _leave(self, node: Node) -> None:
        """End an endpoint in order; its next life comes a while later."""
        if self.draining is None and len(self.world.live()) > 1:
            self.drain([node.me.name])

    def _leave_together(self, node: Node) -> None:
        """End two endpoints in order at the same moment; one stays. The two come back one after the other."""
        live = [one for one in self.world.live() if one.router.members.joined]
        if self.draining is None and len(live) > 2:
            for one in self.random.sample(live, 2):
                self.drain([one.me.name])

    def drained_one(self, others: list[str]) -> None:
        """Permit crashes again: the process has ended in order."""
        super().drained_one(others)

    def end(self, node: Node, others: list[str]) -> None:
        """End an endpoint in order. That does not count as a crash."""
        crashed = self.has_crashed
        super().end(node, others)
        if "leave together" in self.kinds:
            self.away_s = 3.6 - self.away_s  # if two end, one comes back soon, and the other later
        self.has_crashed = crashed

    def told_to_go(self, client: Client) -> None:
        """Do nothing for a publisher: another connection takes its place."""

    def _add(self, node: Node) -> None:
        """Start one more endpoint."""
        if len(self.world.live()) < 5:
            name = f"e-{len(self.names)}"
            self.names.append(name)
            self.start(name)

    def _stall(self, node: Node) -> None:
        seconds = self.random.uniform(0.3, 6.0)
        self.disturbed = True
        self.say(f"{node.me.name} stalls for {seconds:.1f} s")
        node.stalled_until = max(node.stalled_until, self.world.now + seconds)

    def _cut(self, node: Node, seconds_max: float = 7.0, seconds_min: float = 0.3) -> None:
        other = self.random.choice(self.world.live())
        seconds = self.random.uniform(seconds_min, seconds_max)
        if other is not node:
            self.say(f"{node.me.name} -> {other.me.name} cut for {seconds:.1f} s")
            self.world.cut(node.me.name, other.me.name, seconds)
            if self.random.random() < 0.6:
                self.world.cut(other.me.name, node.me.name, seconds)

    def _short_cut(self, node: Node) -> None:
        self._cut(node, 2.0)

    def _long_cut(self, node: Node) -> None:
        """Cut a link for longer than a request's time-out: some requests to another endpoint are lost."""
        self._cut(node, 9.0, 5.5)

    def _fail_store(self, node: Node) -> None:
        seconds = self.random.uniform(0.3, 5.0)
        self.say(f"{node.me.name} is cut from the store for {seconds:.1f} s")
        self.world.store.cut.add(node.me.incarnation)
        self.world.at(seconds, self.world.store.cut.discard, node.me.incarnation)

    def _fail_writes(self, node: Node) -> None:
        seconds = self.random.uniform(0.3, 5.0)
        self.say(f"{node.me.name} cannot write the store for {seconds:.1f} s")
        self.world.store.readonly.add(node.me.incarnation)
        self.world.at(seconds, self.world.store.readonly.discard, node.me.incarnation)

    def _restart_all(self, node: Node) -> None:
        """Crash all endpoints, and start them again."""
        self.say("all endpoints end")
        for one in self.world.live():
            self.crash(one)
            self.world.at(self.random.uniform(0.3, 4.0), self.start, one.me.name)

    def _set(self, node: Node) -> None:
        """Change the cluster's settings: an endpoint takes them when it starts."""
        settings = Settings(self.random.random() < 0.5, self.random.choice(("memory", "store")))
        self.say(f"from now on {settings}")
        self.world.settings = settings

    def _copy(self, node: Node) -> None:
        """Copy the journal."""
        self.copy = self.world.store.copied()

    def _restore_all(self, node: Node) -> None:
        """End all endpoints, restore an older copy of the journal, and start all endpoints again."""
        if self.copy is not None and not self.restored_at:
            self._restart_all(node)
            self.restored_at = self.world.now + RESTORE_S
            self.world.at(RESTORE_S, self.world.store.put_back, self.copy)

    # Checks of the logs

    def _check_logs(self) -> None:
        for node in self.world.live():
            log = node.router.retained.log
            entries = size = 0
            for slot, topics in log._slots.items():
                for topic in topics.values():
                    mids = [(entry.origin, entry.number) for entry in topic.entries]
                    stamps = [entry.stamp for entry in topic.entries]
                    entries += len(mids)
                    size += sum(entry.size for entry in topic.entries)
                    if len(mids) != len(set(mids)) or stamps != sorted(set(stamps)) or slot != topic.slot:
                        self.violations.append(f"{node.me.name} has {topic.topic!r} as {mids} at {stamps}")
            if entries != log.entries:
                self.violations.append(f"{node.me.name} counts {log.entries} entries, and has {entries}")
