"""Which client listens on which connection of this endpoint.

Owns: the connections' state between two commands, client -> connection, and what may stand between a message and an
outbox. Must never: know other endpoints.
"""

from __future__ import annotations

from collections import deque

from ingeborg.protocol.native import mypyc_attr

from ..codec import MESSAGES, Codec
from ..message import Message
from ..model import Location
from .grants import Grant
from .large import Large
from .outbox import Outbox


@mypyc_attr(allow_interpreted_subclasses=True)
class Receiver:
    """Takes the messages for a connection's clients, and decides when each one goes into the outbox. A connection
    without a receiver gets them at once."""

    __slots__ = ()

    def take(self, message: Message) -> None:
        """A message has come for a client of the connection."""
        raise NotImplementedError

    def drained(self) -> None:
        """The connection's socket takes more again."""

    def gone(self, client: str) -> None:
        """The client has sent ``unlisten``: it listens on the connection no longer."""

    def restored(self) -> None:
        """The client listens on the connection again, since its ``listen`` elsewhere has failed."""


class Reply:
    """A place in a connection's row of replies: replies leave in the order of their commands (SPEC section 1)."""

    __slots__ = ("data", "done", "held")

    def __init__(self) -> None:
        self.done = False
        self.held = 0  # bytes of it that are counted while it waits for earlier ones
        self.data: bytes | None = None  # None: this command gets no reply


class Connection:
    """A client's connection, as the core sees it. Compared by identity."""

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
        self.codec = codec  # it makes what the outbox holds of a message
        self.clients: set[str] = set()  # that listen here
        self.replies: deque[Reply] = deque()  # of commands under way
        self.kind = ""  # what kind of commands is under way, where there are replies to come
        self.replaces = False  # they have a `subscribe` with `replace`, which must run alone
        self.tally: dict[str, int] = {}  # ``Replies.tally`` of that kind: result -> how many
        self.backlog: deque[bytes | Large] = deque()  # frames that wait for commands of another kind to end
        self.grant: Grant | None = None  # None: it may do everything
        self.receiver: Receiver | None = None  # None: messages go straight into the outbox
        self.dirty = False  # already on the list of connections to be written to
        self.backpressure = False  # it has sent more than can be dealt with for now
        self.draining = False  # this endpoint ends: it is told to go as soon as its commands are done
        self.closing = False  # it has been told to go; it is read for its close only
        self.closed = False
        self.revoked = False  # its token has been: nothing of it is begun, and nothing is sent to it
        self.pings_unanswered = 0
        self.ping_slot = self.expiry_slot = 0  # of its next ping, and of its token's end, in the timer wheels
        self.ends_at: float | None = None  # when the last of its commands may be begun; None: it is not told to go yet
        self.allowance: float | None = None  # commands it may still send; None: any number
        self.allowed_at = 0.0  # when that was
        self.throttled = False  # it has sent too many: what has been read waits
        # Bytes that it holds beside its outbox, for ``Memory``.
        self.unread = 0  # that have come, but not yet as whole messages
        self.waiting = 0  # of its backlog, and of large commands under way
        self.unsent = 0  # out of its outbox, and not taken by the client, or not given to the socket yet

    @property
    def paused(self) -> bool:
        """It is not to be read for now."""
        return (self.backpressure and not self.closing) or self.draining


class Binding:
    """A client's place at this endpoint."""

    __slots__ = ("connection", "location", "number")

    def __init__(self, connection: Connection, number: int) -> None:
        self.connection = connection
        self.number = number  # when the client came: who came later has a higher one
        self.location: Location | None = None  # None: its `listen` is still being written


class Hub:
    """client -> binding. At most one connection per client: the newest `listen` wins."""

    def __init__(self) -> None:
        self.bindings: dict[str, Binding] = {}
        self.bound = 0  # clients that have come, those that came again included
        #: Clients that a home looked for here in this turn, and that are not: somebody has to ask the store.
        self.missed: list[str] = []

    def bind(self, client: str, connection: Connection) -> Binding | None:
        """The client's messages go to this connection from now on. Returns its former binding, if to another one."""
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
        """What ``bind`` returned is to hold again; nothing holds now."""
        self.bindings[client] = former
        former.connection.clients.add(client)

    def unbind(self, client: str, connection: Connection) -> Binding | None:
        """No longer, if they still went there; returns the binding if so."""
        binding = self.bindings.get(client)
        if binding is None or binding.connection is not connection:
            return None
        del self.bindings[client]
        connection.clients.discard(client)
        return binding
