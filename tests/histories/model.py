"""Reads a record: who published, listened and was subscribed when, and when an endpoint was impaired.

Owns: reading a record, and passing it to the oracle as facts. Must never: judge (``ingeborg.bench.oracle`` does, and
``checker`` for rules about this record only), or know more than the record: what clients sent and got, when processes
were killed, stopped and started, and what ``/metrics`` showed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from ingeborg.bench.oracle import facts as told
from ingeborg.bench.oracle.facts import (
    By,
    Change,
    Copy,
    Disturbance,
    Facts,
    Kind,
    Line,
    Listed,
    Note,
    Outcome,
    Place,
    Send,
    Terms,
)
from ingeborg.protocol.errors import ERRORS, Next

from .allowances import CRASH_S, JOINING_S, LATE_S, LEAVING_S, READ_S
from .record import Event

FOREVER = float("inf")

ORDERLY_END = "orderly end"
LINK_FAULTS = ("cut", "cut both ways", "delay", "loss")


@dataclass
class Command:
    """One command and its outcome."""

    connection: int
    id: int
    name: str
    at: float
    fields: dict[str, Any]
    reply: Event | None = None
    replied_at: float = FOREVER
    # When it was certainly over: its reply, or (a publish without `ack`) the next reply on its connection.
    over_at: float = FOREVER

    @property
    def error(self) -> str | None:
        """The error code of its refusal."""
        return self.reply.get("error") if self.reply is not None else None

    @property
    def succeeded(self) -> bool:
        """It succeeded; for a publish without `ack`: no error came, but replies to later commands did."""
        return self.over_at < FOREVER and self.error is None

    @property
    def changed_nothing(self) -> bool:
        """It was refused with a code that says so (SPEC section 5)."""
        row = ERRORS.get(self.error or "")
        return row is not None and row.next is Next.FIX

    @property
    def topics(self) -> list[str]:
        """The topics of a ``subscribe`` or ``unsubscribe``."""
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
    ended_at: float = FOREVER  # by either side
    code: int | None = None
    by: str = ""
    commands: list[Command] = field(default_factory=list)
    heard: list[Event] = field(default_factory=list)
    read_at: float = 0.0  # when the last frame came


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
    """A time in which an endpoint's life was impaired, and why."""

    begin: float
    end: float
    life: str
    why: str

    def meets(self, begin: float, end: float) -> bool:
        """Do the two times have a moment in common?"""
        return self.begin <= end and begin <= self.end


@dataclass
class Listen:
    """A place where a client listens, from its `listen` on."""

    command: Command
    connection: Connection
    until: float  # `unlisten`, or the end of the connection


class History:
    """A record after reading."""

    def __init__(self, events: Iterable[Event]) -> None:
        self.events = list(events)
        self.header: Event = {}
        self.readers: frozenset[str] = frozenset()  # clients that recover: ``readers`` judges their deliveries
        self.connections: dict[int, Connection] = {}
        self.messages: dict[tuple[str | None, Any], Message] = {}
        self.refused_messages: set[tuple[str | None, Any]] = set()
        self.listens: defaultdict[str, list[Listen]] = defaultdict(list)
        self.changes: defaultdict[tuple[str, str], list[Command]] = defaultdict(list)  # (client, topic)
        self.strange_replies: list[str] = []
        self.whole_at: float | None = None
        self.store_faults_at = FOREVER  # when nodes of the store first lost each other
        self.lapses: list[Window] = []  # when others may have taken a living endpoint for dead
        self.crashes: list[Window] = []  # ``kill -9``, and its aftermath
        self.changes_of_members: list[Window] = []  # orderly ends and starts
        self.link_faults: list[tuple[Window, set[str]]] = []  # with the two endpoints
        for event in self.events:
            reader = getattr(self, "_" + event["what"], None)
            if reader is not None:
                reader(event)
        self._settle()
        self._find_lapses()

    # Event by event

    def _history(self, event: Event) -> None:
        self.header = event
        self.readers = frozenset(event.get("readers", ()))

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

    def _told(self, event: Event) -> None:
        connection = self.connections[event["connection"]]
        connection.read_at = event["at"]
        if connection.client not in self.readers:
            self.strange_replies.append(f"{connection.client} does not recover, and is told {event}")

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
        """Find when others took a living endpoint for dead. It notices first (its lease is shorter), and counts it.

        The window runs from the last sample that showed it in order to the first at which it has joined again and all
        other endpoints sampled then have it among their peers.
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
        """Do the others' last samples up to then all show it?"""
        last = {look["endpoint"]: look for look in looks if look["at"] <= at and look["endpoint"] != name}
        return all(name in look["peers"] for look in last.values() if look["answered"])

    # Results

    def publisher(self, send: Command) -> Connection:
        """Return the connection that carried it."""
        return self.connections[send.connection]

    def crashed(self, begin: float, end: float) -> bool:
        """Could an endpoint have crashed, or a living one have been taken for dead, so that it mattered then?"""
        return any(window.meets(begin, end) for window in (*self.crashes, *self.lapses))

    def may_lack(self, begin: float, end: float) -> bool:
        """Can messages retained by then, or requested then, be lost (SPEC section 2.7)?"""
        outlives = self._survives() or (self.header.get("history") == "store" and not self.header.get("changed"))
        if not outlives and any(window.meets(begin, end) for window in self.crashes):
            return True
        return any(window.meets(begin, end) for window in (*self.lapses, *self._unreached()))

    def facts(self) -> Facts:
        """Return the oracle's input, together with messages, connections and lists."""
        return Facts(
            places={
                client: [_place(one) for one in listens]
                for client, listens in self.listens.items()
                if listens and client not in self.readers
            },
            changes=[_change(client, topic, one) for (client, topic), of in self.changes.items() for one in of],
            disturbances=self._disturbances(),
            terms=Terms(read=READ_S, late=LATE_S, survives=self._survives()),
            refused=frozenset(self.refused_messages),
        )

    def _survives(self) -> bool:
        """Does a home's knowledge survive its crash? Other faults can take two homes at once, or one before its replica
        is whole again. A home with other settings may have no replica."""
        is_whole = bool(self.header.get("replication")) and not self.header.get("changed")
        return is_whole and self.header["faults"] == ["kill"]

    def told_messages(self) -> dict[tuple[told.Name | None, Any], told.Message]:
        """Return the messages by topic and payload."""
        return {
            key: told.Message(*key, sends=[self._send(one) for one in message.sends], dedup=message.dedup)
            for key, message in self.messages.items()
        }

    def copies(self) -> defaultdict[tuple[told.Name | None, Any], defaultdict[told.Name, list[Copy]]]:
        """Return (topic, payload) -> client -> its deliveries."""
        found: defaultdict[tuple[told.Name | None, Any], defaultdict[told.Name, list[Copy]]]
        found = defaultdict(lambda: defaultdict(list))
        for connection in self.connections.values():
            for event in connection.heard if connection.client not in self.readers else ():
                copy = Copy(connection.client, connection.number, event["at"])
                found[event["key"], event["payload"]][connection.client].append(copy)
        return found

    def lines(self) -> list[Line]:
        """Return the connections."""
        by = {"": By.NOBODY, "client": By.CLIENT, "endpoint": By.OTHER}
        return [
            Line(
                one.number,
                one.client,
                one.endpoint,
                one.ended_at,
                by[one.by],
                one.code,
                notes=[Note(event["at"], event["key"], event["payload"]) for event in one.heard],
            )
            for one in self.connections.values()
        ]

    def lists(self) -> list[Listed]:
        """Return the clients' views of their own topics."""
        return [
            Listed(connection.client, command.at, command.replied_at, frozenset(command.reply["topic"]))
            for connection in self.connections.values()
            for command in connection.commands
            if command.name == "subscriptions" and command.succeeded and command.reply is not None
        ]

    def sets(self) -> list[Listed]:
        """Return each client's topics, from the lists of subscribers that one connection got of all topics."""
        topics: defaultdict[str, set[str]] = defaultdict(set)
        for client, topic in self.changes:
            topics[client].add(topic)
        found = []
        for connection in self.connections.values():
            asked = [one for one in connection.commands if one.name == "subscribers" and one.succeeded]
            of: defaultdict[str, set[str]] = defaultdict(set)
            for command in asked:
                for row in (command.reply or {})["subscribers"]:
                    of[row["client_id"]].add(command.fields["topic"])
            if {one.fields["topic"] for one in asked} >= set().union(*topics.values()):
                times = min(one.at for one in asked), max(one.replied_at for one in asked)
                found += [Listed(client, *times, frozenset(of[client])) for client in topics]
        return found

    def _send(self, command: Command) -> Send:
        if command.error is not None:
            outcome = Outcome.PARTIAL if command.error == "partial" else Outcome.TOLD
        elif not command.succeeded:
            outcome = Outcome.CUT_OFF  # if its connection survived, ``checker.check_replies`` says so
        else:
            duplicate = (command.reply or {}).get("duplicate")
            said = Outcome.DUPLICATE if duplicate else Outcome.NEW
            outcome = Outcome.ACCEPTED if duplicate is None else said
        return Send(
            command.at,
            command.over_at,
            outcome,
            endpoint=self.publisher(command).endpoint,
            row=command.connection,
            number=command.id,
            reached=_reached(command.reply) if outcome is Outcome.PARTIAL else frozenset(),
            may_have_come=not command.succeeded,
            acknowledged=bool(command.fields.get("ack")),
        )

    def _disturbances(self) -> list[Disturbance]:
        crashes = [*self.crashes, *self.lapses]
        found = [Disturbance(one.begin, one.end, Kind.CRASH) for one in crashes]
        found += [Disturbance(one.begin, one.end, Kind.GONE, one.life) for one in self.lapses]
        found += [Disturbance(one.begin, one.end, Kind.CHANGE) for one in self.changes_of_members]
        unreached = self._unreached()
        found += [Disturbance(one.begin, one.end, Kind.CUT_OFF) for one in unreached]
        found += [Disturbance(one.begin, one.end, Kind.GONE, one.life) for one in unreached]
        if self.header.get("store") == "riak":
            begins = [self.store_faults_at, *(one.begin for one in (*crashes, *self.changes_of_members))]
            found += [Disturbance(begin, FOREVER, Kind.UNION) for begin in begins]
        return found

    def _unreached(self) -> list[Window]:
        """To an endpoint without a link to it, one that ends in order has crashed, and its clients are at no
        survivor."""
        return [
            one
            for one in self.changes_of_members
            if one.why == ORDERLY_END
            and any(
                fault.meets(one.begin, one.end) and one.life.partition("#")[0] in pair
                for fault, pair in self.link_faults
            )
        ]


def _place(listen: Listen) -> Place:
    command, connection = listen.command, listen.connection
    return Place(
        connection.client,
        connection.number,
        endpoint=connection.endpoint,
        life=connection.life,
        begun_at=command.at,
        answered_at=command.replied_at,
        succeeded=command.succeeded,
        until=listen.until,
        ended_at=connection.ended_at,
        replaced=connection.code == 4001,
        read_at=connection.read_at,
    )


def _change(client: str, topic: str, command: Command) -> Change:
    added = command.name == "subscribe"
    return Change(client, topic, command.connection, added, command.at, command.replied_at, command.succeeded)


def _reached(reply: Event | None) -> frozenset[str]:
    """Return the endpoints that certainly got it, and knew where everybody is."""
    delivered, failed = (reply or {})["delivered"], (reply or {})["failed"]
    return frozenset() if "store" in failed else frozenset(delivered) - frozenset(failed)
