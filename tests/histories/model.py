"""What a record says: who published, listened and was subscribed when, and when an endpoint was not what it should be.

Owns: the reading of a record. Must never: judge (``checker`` does), or know more than the record: what clients sent and
got, when processes were killed, stopped and started, and what ``/metrics`` showed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from protocol.errors import ERRORS, Next

from .allowances import CRASH_S, JOINING_S, LATE_S, LEAVING_S, READ_S
from .record import Event

FOREVER = float("inf")

ORDERLY_END = "orderly end"
LINK_FAULTS = ("cut", "cut both ways", "delay", "loss")


@dataclass
class Command:
    """One command and what came of it."""

    connection: int
    id: int
    name: str
    at: float
    fields: dict[str, Any]
    reply: Event | None = None
    replied_at: float = FOREVER
    # When it was over for certain: its reply, or (a publish without `ack`) the next reply on its connection.
    over_at: float = FOREVER

    @property
    def error(self) -> str | None:
        """The code it was refused with."""
        return self.reply.get("error") if self.reply is not None else None

    @property
    def succeeded(self) -> bool:
        """Success was said; of a publish without `ack`: no error was, and replies to later commands have come."""
        return self.over_at < FOREVER and self.error is None

    @property
    def changed_nothing(self) -> bool:
        """Refused with a code that says so (SPEC section 5)."""
        row = ERRORS.get(self.error or "")
        return row is not None and row.next is Next.FIX

    @property
    def topics(self) -> list[str]:
        """Of a ``subscribe`` or ``unsubscribe``."""
        topic = self.fields.get("topic", [])
        return [topic] if isinstance(topic, str) else topic


@dataclass
class Connection:
    """One connection of one client."""

    number: int
    client: str
    endpoint: str
    life: str
    opened_at: float
    ended_at: float = FOREVER  # whichever side
    code: int | None = None
    by: str = ""
    commands: list[Command] = field(default_factory=list)
    heard: list[Event] = field(default_factory=list)
    read_at: float = 0.0  # when the last frame came

    def read_past(self, at: float) -> bool:
        """Has it read what was in its outbox by then? Frames come in order; else it had ``READ_S`` to do so."""
        return self.read_at > at or self.ended_at > at + READ_S


@dataclass
class Message:
    """All publishes of one payload to one topic (``None``: broadcasts), in the order sent."""

    topic: str | None
    payload: Any
    sends: list[Command] = field(default_factory=list)

    @property
    def first_at(self) -> float:
        """When it was first sent."""
        return self.sends[0].at

    @property
    def dedup(self) -> bool:
        """Are its repetitions dropped?"""
        return all(send.fields.get("dedup", True) for send in self.sends)


@dataclass
class Window:
    """A time in which an endpoint's life was not what it should be, and why."""

    begin: float
    end: float
    life: str
    why: str

    def meets(self, begin: float, end: float) -> bool:
        """Have the two times a moment in common?"""
        return self.begin <= end and begin <= self.end


@dataclass
class Listen:
    """A place where a client listens, from its `listen` on."""

    command: Command
    connection: Connection
    until: float  # `unlisten`, or the end of the connection

    @property
    def over_at(self) -> float:
        """When it is certain whether it took effect, and how: its reply, or its connection's end."""
        return min(self.command.replied_at, self.connection.ended_at)


class History:
    """A record, read."""

    def __init__(self, events: Iterable[Event]) -> None:
        self.events = list(events)
        self.header: Event = {}
        self.connections: dict[int, Connection] = {}
        self.messages: dict[tuple[str | None, Any], Message] = {}
        self.refused_messages: set[tuple[str | None, Any]] = set()
        self.listens: defaultdict[str, list[Listen]] = defaultdict(list)
        self.changes: defaultdict[tuple[str, str], list[Command]] = defaultdict(list)  # (client, topic)
        self.strange_replies: list[str] = []
        self.whole_at: float | None = None
        self.store_faults_at = FOREVER  # when nodes of the store first could not reach each other
        self.lapses: list[Window] = []  # in which a living endpoint may have been taken for dead
        self.crashes: list[Window] = []  # ``kill -9``, and what follows
        self.changes_of_members: list[Window] = []  # orderly ends and starts
        self.link_faults: list[tuple[Window, set[str]]] = []  # and the two endpoints
        for event in self.events:
            reader = getattr(self, "_" + event["what"], None)
            if reader is not None:
                reader(event)
        self._settle()
        self._find_lapses()

    # Event by event

    def _history(self, event: Event) -> None:
        self.header = event

    def _opened(self, event: Event) -> None:
        number = event["connection"]
        self.connections[number] = Connection(number, event["client"], event["endpoint"], event["life"], event["at"])

    def _closed(self, event: Event) -> None:
        connection = self.connections[event["connection"]]
        if connection.ended_at == FOREVER:
            connection.ended_at, connection.code, connection.by = event["at"], event["code"], event["by"]

    def _sent(self, event: Event) -> None:
        connection = self.connections[event["connection"]]
        fields = {k: v for k, v in event.items() if k not in ("at", "what", "connection", "id", "command")}
        command = Command(connection.number, event["id"], event["command"], event["at"], fields)
        connection.commands.append(command)
        if command.name in ("publish", "broadcast"):
            key = (fields.get("topic"), fields["payload"])
            self.messages.setdefault(key, Message(*key)).sends.append(command)
        elif command.name == "listen":
            self.listens[connection.client].append(Listen(command, connection, FOREVER))
        elif command.name == "unlisten":
            for listen in self.listens[connection.client]:
                if listen.connection is connection:
                    listen.until = min(listen.until, event["at"])
        elif command.name in ("subscribe", "unsubscribe"):
            for topic in command.topics:
                self.changes[connection.client, topic].append(command)

    def _reply(self, event: Event) -> None:
        connection = self.connections[event["connection"]]
        connection.read_at = event["at"]
        waiting = [command for command in connection.commands if command.reply is None]
        command = next((command for command in waiting if command.id == event.get("id")), None)
        if command is None:
            self.strange_replies.append(f"a reply to no command on connection {connection.number}: {event}")
            return
        command.reply, command.replied_at = event, event["at"]
        for earlier in waiting[: waiting.index(command)]:
            silent = earlier.name in ("publish", "broadcast") and not earlier.fields.get("ack")
            if silent:
                earlier.over_at = min(earlier.over_at, event["at"])
            else:
                self.strange_replies.append(
                    f"command {command.id} on connection {connection.number} was answered before {earlier.id}"
                )
        if command.over_at < FOREVER and command.error is None:
            self.strange_replies.append(f"command {command.id} on connection {connection.number} was answered late")
        command.over_at = event["at"]

    def _heard(self, event: Event) -> None:
        connection = self.connections[event["connection"]]
        connection.heard.append(event)
        connection.read_at = event["at"]

    def _whole(self, event: Event) -> None:
        self.whole_at = event["at"] if event["yes"] else None

    def _fault(self, event: Event) -> None:
        if event["kind"].startswith("riak") and event["phase"] == "begins":
            self.store_faults_at = min(self.store_faults_at, event["at"])
        if event["kind"] in LINK_FAULTS and event["phase"] == "begins":
            self.link_faults.append((Window(event["at"], FOREVER, "", event["kind"]), {event["where"], event["other"]}))
        elif event["kind"] in LINK_FAULTS and event["phase"] == "ends":
            for window, pair in self.link_faults:
                if pair == {event["where"], event["other"]}:
                    window.end = min(window.end, event["at"])

    def _life(self, event: Event) -> None:
        at, life, phase = event["at"], event["life"], event["phase"]
        if phase == "killed":
            self.crashes.append(Window(at, at + CRASH_S, life, "crash"))
        elif phase == "stopping":
            self.changes_of_members.append(Window(at, at + LEAVING_S, life, ORDERLY_END))
        elif phase == "started":
            self.changes_of_members.append(Window(at, at + JOINING_S, life, "start"))

    # Afterwards

    def _settle(self) -> None:
        for key, message in list(self.messages.items()):
            message.sends = [send for send in message.sends if not send.changed_nothing]
            if not message.sends:
                self.refused_messages.add(key)
                del self.messages[key]
        for (client, topic), changes in self.changes.items():
            self.changes[client, topic] = [change for change in changes if not change.changed_nothing]
        for listens in self.listens.values():
            for listen in listens:
                listen.until = min(listen.until, listen.connection.ended_at)

    def _find_lapses(self) -> None:
        """An endpoint that others take for dead notices by itself, before (its lease is shorter), and counts it.

        The window is from the last look that showed it in order to the first at which it has joined again and all
        other endpoints that were looked at then have it among their peers.
        """
        looks = [event for event in self.events if event["what"] == "look"]
        by_life: defaultdict[str, list[Event]] = defaultdict(list)
        for look in looks:
            if look["answered"]:
                by_life[look["life"]].append(look)
        for life, mine in by_life.items():
            name = mine[0]["endpoint"]
            begin: float | None = None
            good = mine[0]["at"]
            for before, look in pairwise(mine):
                if look["lapses"] > before["lapses"] and begin is None:
                    begin = good
                if look["joined"] and (begin is None or self._known(name, look["at"], looks)):
                    if begin is not None:
                        self.lapses.append(Window(begin, look["at"], life, "taken for dead"))
                    begin, good = None, look["at"]
            if begin is not None:
                self.lapses.append(Window(begin, FOREVER, life, "taken for dead"))

    def _known(self, name: str, at: float, looks: list[Event]) -> bool:
        """Do the others' last looks up to then all show it?"""
        last = {look["endpoint"]: look for look in looks if look["at"] <= at and look["endpoint"] != name}
        return all(name in look["peers"] for look in last.values() if look["answered"])

    # Questions

    def publisher(self, send: Command) -> Connection:
        """The connection it was sent on."""
        return self.connections[send.connection]

    def steady_listen(self, client: str, begin: float, end: float) -> tuple[Listen | None, str]:
        """The place where the client listened for certain from ``begin`` to ``end``; else why there is none."""
        listens = self.listens[client]
        good = [listen for listen in listens if listen.command.succeeded and listen.command.replied_at < begin]
        if not good:
            return None, "was not listening"
        for listen in reversed(good):
            others = [other for other in listens if other is not listen and other.command.at <= end]
            # Those that were over before it was sent are older; of all others it is not known which is the newest.
            elsewhere = [other for other in others if other.connection is not listen.connection]
            if any(other.over_at >= listen.command.at for other in elsewhere):
                continue
            if listen.until <= end or not listen.connection.read_past(end):
                return None, "its connection ended" if listen.until >= listen.connection.ended_at else "had stopped"
            return listen, ""
        return None, "was moving"

    @property
    def listeners(self) -> list[str]:
        """The clients that ever listened."""
        return [client for client, listens in self.listens.items() if listens]

    def moved(self, client: str, begin: float, end: float) -> bool:
        """Was a `listen` of the client under way in that time?"""
        return any(listen.command.at <= end and listen.over_at >= begin for listen in self.listens[client])

    def moved_well(self, client: str, begin: float, end: float) -> bool:
        """Did the client listen all the time, here or there, with nothing but its own moves to disturb it?

        It listened before; each `listen` of the time succeeded; and it left no connection: they are closed upon. None
        was sent while another was under way, for of those nobody knows which is the newest.
        """
        ever = [listen for listen in self.listens[client] if listen.command.at <= end]
        if any(earlier.over_at >= later.command.at for earlier, later in pairwise(ever)):
            return False
        # One after the other, so the newest of before is where it was. An older one may still be open: it is replaced,
        # and was only not told yet.
        before = [listen for listen in ever if listen.over_at < begin]
        if not before or before[-1].until <= begin:
            return False
        listens = [before[-1], *ever[len(before) :]]
        return (
            any(listen.until > end and listen.connection.read_past(end) for listen in listens)
            and all(listen.command.succeeded for listen in listens)
            and all(listen.until > end or listen.connection.code == 4001 for listen in listens)
            and not self.members_changed(begin, end)
        )

    def subscribed(self, client: str, topic: str | None, begin: float, end: float) -> str:
        """``yes`` or ``no``: for certain, for all of that time; ``unknown`` otherwise. Everybody is to broadcasts.

        Commands of one client on one connection take effect in order; of others those that were over before.
        """
        if topic is None:
            return "yes"
        changes = [change for change in self.changes.get((client, topic), ()) if change.at <= end]
        for index, change in enumerate(changes):
            if not change.succeeded or change.replied_at >= begin:
                continue
            opposite = [other for other in changes if other.name != change.name]
            if all(self._over_before(other, change, changes.index(other) < index) for other in opposite):
                return "yes" if change.name == "subscribe" else "no"
        return "unknown" if any(change.name == "subscribe" for change in changes) else "no"

    def _over_before(self, other: Command, change: Command, earlier: bool) -> bool:
        if other.succeeded:
            return other.replied_at < change.at or (earlier and other.connection == change.connection)
        return other.at + LATE_S < change.at

    def may_be_undone(self, at: float) -> bool:
        """May two writers of one object of a Riak store have missed each other by then? The union is kept."""
        riak = self.header.get("store") == "riak"
        return riak and (self.store_faults_at <= at or self.members_changed(0.0, at))

    def crashed(self, begin: float, end: float) -> bool:
        """Did an endpoint crash, or may a living one have been taken for dead, so that it mattered then?"""
        return any(window.meets(begin, end) for window in (*self.crashes, *self.lapses))

    def ended_cut_off(self, begin: float, end: float) -> bool:
        """Did an endpoint end in order then that may not have reached another one? To that one it has crashed."""
        ends = [window for window in self.changes_of_members if window.why == ORDERLY_END and window.meets(begin, end)]
        return any(
            fault.meets(window.begin, window.end) and window.life.partition("#")[0] in pair
            for window in ends
            for fault, pair in self.link_faults
        )

    def members_changed(self, begin: float, end: float) -> bool:
        """Were the endpoints other ones at the end of that time, or on their way to be?"""
        return self.crashed(begin, end) or any(window.meets(begin, end) for window in self.changes_of_members)

    def lapsed(self, life: str, begin: float, end: float) -> bool:
        """May this life of an endpoint have been taken for dead in that time?"""
        return any(window.life == life and window.meets(begin, end) for window in self.lapses)
