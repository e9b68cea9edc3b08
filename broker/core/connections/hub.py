"""The connections of this endpoint, and the clients that listen on each connection.

Owns: the connections' state between two commands, the bindings of clients to connections, and the receivers, which can
delay a message before it goes into an outbox. Must never: know other endpoints.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from ingeborg.protocol.native import mypyc_attr

from ..codec import MESSAGES, Codec
from ..message import Message
from ..model import Location
from .grants import Grant
from .large import Large
from .outbox import Outbox

#: Greater than every stamp.
NO_FLOOR: Final = 1 << 62


@mypyc_attr(allow_interpreted_subclasses=True)
class Receiver:
    """Gets the messages for a connection's clients, and decides when each message goes into the outbox. If a connection
    has no receiver, all messages go into its outbox immediately. A connection can have a chain of several receivers
    (``put_first``, ``put_last``), each of which passes messages and calls on to the next.

    A receiver's methods must not block. Each receiver must limit the bytes that it holds back.
    """

    def __init__(self) -> None:
        self.onward: Receiver | None = None  # the next receiver; None if the outbox is next

    def take(self, client: str, message: Message, named: bool) -> None:
        """Handle a message for a client of the connection.

        Args:
            client: the client that gets it.
            message: the message. If several clients of the connection get it, there is one call for each client.
            named: whether the client recovers, so that the notification has the message's `mid`.
        """
        raise NotImplementedError

    def passed(self, count: int) -> None:
        """Record that an earlier receiver has put this many notifications into the outbox."""
        if self.onward is not None:
            self.onward.passed(count)

    def dropped(self, count: int) -> None:
        """Record that the outbox has dropped this many notifications."""
        if self.onward is not None:
            self.onward.dropped(count)

    def drained(self) -> None:
        """Handle a connection whose socket takes bytes again."""
        if self.onward is not None:
            self.onward.drained()

    def gone(self, client: str) -> None:
        """Handle a client's ``unlisten``: the client no longer listens on the connection.

        Args:
            client: the client's id.
        """
        if self.onward is not None:
            self.onward.gone(client)

    def moved(self, client: str) -> None:
        """Handle a client that listens on another connection now, while other clients may still listen on this
        connection.

        Args:
            client: the client's id.
        """
        if self.onward is not None:
            self.onward.moved(client)

    def restored(self) -> None:
        """Handle a client that listens on the connection again, because its ``listen`` elsewhere has failed."""
        if self.onward is not None:
            self.onward.restored()

    def release(self, client: str | None) -> None:
        """Put all messages that are held because of the client's bounds into the outbox. If ``client`` is ``None``, do
        so for all clients of the connection."""
        if self.onward is not None:
            self.onward.release(client)

    def floor(self) -> int:
        """Return the greatest stamp that a position sent now may have, because messages with later stamps may be
        held."""
        return NO_FLOOR if self.onward is None else self.onward.floor()


class Reply:
    """A place in a connection's queue of replies, which leave in the order of their commands (SPEC section 1)."""

    __slots__ = ("data", "done", "held", "is_awaited")

    def __init__(self) -> None:
        self.done = False
        self.is_awaited = False  # whether the client waits for it, or for a later reply or command
        self.held = 0  # its bytes, while it waits for earlier replies
        self.data: bytes | None = None  # None if this command gets no reply


class Connection:
    """A client's connection, as the core sees it. Connections are compared by identity."""

    __slots__ = (
        "allowance",
        "allowed_at",
        "backlog",
        "backpressure",
        "clients",
        "closed",
        "closing",
        "codec",
        "dirty",
        "draining",
        "ends_at",
        "expiry_slot",
        "grant",
        "has_listened",
        "kind",
        "number",
        "outbox",
        "ping_slot",
        "pings_unanswered",
        "receiver",
        "replaces",
        "replies",
        "revoked",
        "tally",
        "throttled",
        "unread",
        "unsent",
        "waiting",
    )

    def __init__(self, number: int, outbox: Outbox, codec: Codec = MESSAGES) -> None:
        self.number = number
        self.outbox = outbox
        self.codec = codec  # makes the outbox's frames
        self.clients: set[str] = set()  # clients that listen here
        self.replies: deque[Reply] = deque()  # for commands in progress
        self.kind = ""  # the kind of the commands in progress, while replies are outstanding
        self.replaces = False  # these commands include a `subscribe` with `replace`, which must run alone
        self.tally: dict[str, int] = {}  # ``Replies.tally`` of this kind: result -> count
        self.backlog: deque[bytes | Large] = deque()  # frames that wait for commands of another kind
        self.grant: Grant | None = None  # None if the connection has all rights
        self.receiver: Receiver | None = None  # None if messages go straight into the outbox
        self.has_listened = False  # one of its clients has sent `listen`
        self.dirty = False  # already in the list of connections to write to
        self.backpressure = False  # it has sent more than the endpoint can handle for now
        self.draining = False  # this endpoint shuts down, and closes the connection as soon as its commands are done
        self.closing = False  # the endpoint is closing it, and reads only the client's close frame
        self.closed = False
        self.revoked = False  # its token is revoked: the endpoint begins nothing and sends nothing for it
        self.pings_unanswered = 0
        self.ping_slot = self.expiry_slot = 0  # slots of its next ping and its token's expiry in the timer wheels
        # its waiting commands can begin until this time; None if the endpoint is not closing the connection
        self.ends_at: float | None = None
        self.allowance: float | None = None  # commands it can still send; None if there is no limit
        self.allowed_at = 0.0  # the time of that allowance
        self.throttled = False  # it has sent too many commands, so the commands already read wait
        # Bytes held in addition to its outbox, for ``Memory``.
        self.unread = 0  # bytes of incomplete messages
        self.waiting = 0  # bytes of its backlog, and of large commands in progress
        self.unsent = 0  # bytes taken from its outbox that the client has not read, or that have not reached the socket

    @property
    def paused(self) -> bool:
        """Whether the endpoint must stop reading from this connection for now."""
        return (self.backpressure and not self.closing) or self.draining


def put_first(connection: Connection, receiver: Receiver) -> None:
    """Insert the receiver before all receivers of the connection."""
    receiver.onward = connection.receiver
    connection.receiver = receiver


def put_last(connection: Connection, receiver: Receiver) -> None:
    """Append the receiver after all receivers of the connection."""
    last = connection.receiver
    if last is None:
        connection.receiver = receiver
        return
    while last.onward is not None:
        last = last.onward
    last.onward = receiver


def take_out(connection: Connection, receiver: Receiver) -> None:
    """Remove the receiver, if the connection has it."""
    if connection.receiver is receiver:
        connection.receiver = receiver.onward
    else:
        before = connection.receiver
        while before is not None and before.onward is not receiver:
            before = before.onward
        if before is not None:
            before.onward = receiver.onward
    receiver.onward = None


class Binding:
    """The connection at this endpoint on which a client listens."""

    __slots__ = ("connection", "location", "number")

    def __init__(self, connection: Connection, number: int) -> None:
        self.connection = connection
        self.number = number  # counts clients that begin to listen here; a client keeps it on a new connection
        self.location: Location | None = None  # None while the store writes its `listen`


class Hub:
    """The bindings of clients. Each client has at most one connection: the newest `listen` wins."""

    def __init__(self) -> None:
        self.bindings: dict[str, Binding] = {}
        self.bound = 0  # the latest number of a binding
        #: Clients that a home looked for here in this turn, although they are not here. A part must ask the store about
        #: these clients.
        self.missed: list[str] = []

    def bind(self, client: str, connection: Connection) -> Binding | None:
        """Send the client's messages to this connection from now on. Return the client's former binding, if that was to
        another connection."""
        former = self.bindings.get(client)
        if former is None:
            self.bound += 1
            number = self.bound
        elif former.connection is connection:
            return None
        else:
            former.connection.clients.discard(client)
            number = former.number
        self.bindings[client] = Binding(connection, number)
        connection.clients.add(client)
        return former

    def restore(self, client: str, former: Binding) -> None:
        """Restore the binding that ``bind`` returned. The client must have no other binding."""
        self.bindings[client] = former
        former.connection.clients.add(client)

    def unbind(self, client: str, connection: Connection) -> Binding | None:
        """Remove the client's binding to this connection, if there is one, and return it."""
        binding = self.bindings.get(client)
        if binding is None or binding.connection is not connection:
            return None
        del self.bindings[client]
        connection.clients.discard(client)
        return binding
