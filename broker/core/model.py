"""The records and errors that the core and the stores share.

Owns: their fields, and which of two locations, or of two revocations, is true. Must never: grow behaviour.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

#: The claims of a token that a revocation can name.
JTI: Final = "jti"
SUB: Final = "sub"


class Location(NamedTuple):
    """Where a client listens: thesis section 5.1, the client-to-endpoint mapping.

    The locations of one client are totally ordered, and the greatest one is true: by ``number`` (greater at every
    ``listen``), then by ``incarnation`` (two endpoints can draw the same number at once), then offline over online.
    """

    number: int  # the listen number: see ``Store.listen``
    incarnation: str  # the endpoint that held the connection
    online: bool  # False: the client unlistened, or its connection closed

    @property
    def rank(self) -> tuple[int, str, bool]:
        """The sort key of one client's locations; the greatest is true."""
        return (self.number, self.incarnation, not self.online)


class Endpoint(NamedTuple):
    """An endpoint as the registry lists it; for discovery only."""

    name: str  # stable over restarts; decides which slots it is home of
    incarnation: str  # random, new at every start
    url: str  # ws://host:port, where its peers reach it
    heartbeat: int  # counts up: a change is a sign of life, the value has no meaning


class Revocation(NamedTuple):
    """Revoked tokens: the token with this id, or those of this subject that were issued by then.

    If two name the same claim and value, the later ``issued_until`` and the later ``expires_at`` are true.
    """

    claim: str  # JTI or SUB
    value: str
    issued_until: int  # for a subject: whole Unix seconds, that second included; for an id: 0
    expires_at: int  # whole Unix seconds; the endpoints remember it until then


class Settings(NamedTuple):
    """The settings that all endpoints of a cluster follow, as the store records them. ADR 42."""

    replication: bool = False  # a second endpoint keeps a replica of all slot state
    history: str = "off"  # where messages are retained: one of ``HISTORIES``


HISTORIES: Final = ("off", "memory", "store")
"""The values in order: each one promises more than the one before it."""


class Introduction(NamedTuple):
    """The first message of an endpoint to a peer when their link begins."""

    grace_s: float = float("inf")  # its grace time; infinity: it has not told its grace time
    settings: Settings = Settings()


NO_SETTINGS: Final = Settings()
"""The settings of a cluster whose endpoints were given none."""

NO_INTRODUCTION: Final = Introduction()
"""The introduction of a peer that has told nothing."""


class Load(NamedTuple):
    """How much an endpoint's process has to do. ``busy``: its CPU time by wall time, 1 for a whole core; ``lag_s``: how
    late its loop is, in seconds."""

    busy: float = 0.0
    lag_s: float = 0.0


NO_LOAD: Final = Load()


class Shape(NamedTuple):
    """How best to use a store.

    ``topics_at_once``: maximum number of topics of large subscribes to have under way at a time. ``topics_at_least``:
    the number of topics that the store writes in time even when it is slow. ``slots_together``: it keeps the topics of
    one slot in one place, so write these together. ``reads_memory``: it reads a few subscribers from this machine's
    memory, in microseconds. ``journal``: it can keep messages.
    """

    topics_at_once: int = 2_000
    slots_together: bool = True
    reads_memory: bool = False
    topics_at_least: int = 2_000
    journal: bool = False


class Term(NamedTuple):
    """When a subscription expires: at the first condition that is met. SPEC section 2.2."""

    disconnect: bool  # when its client has listened nowhere for the grace time
    ends_at: float  # Unix time in seconds; 0.0: no such time


class Subscription(NamedTuple):
    """One subscription, as the store has it: one client's, to one topic, perhaps with a filter, perhaps with a term."""

    topic: str
    client: str
    filter: str | None = None  # canonical text (``protocol.filters``); None: all messages
    term: Term | None = None  # None: it stays until the client removes it
    stamp: int = 0  # the term's: greater at every write that gives it one; 0: it has no term


class Subscribe(NamedTuple):
    """A client subscribes to these topics: one row of ``Store.subscribe``."""

    client: str
    topics: Sequence[str]
    filter: str | None = None
    term: Term | None = None
    replace: bool = False  # it replaces everything that the client has at these topics


class Ended(NamedTuple):
    """A client's subscriptions that have ended: the topics and filters of the latest, up to ``ENDED_MAX`` and
    ``ENDED_BYTES_MAX``, and the number that ended in all."""

    subscriptions: list[tuple[str, str | None]]
    total: int


class RetainedMessage(NamedTuple):
    """One retained message, as the journal has it. Slot and stamp identify it in the store."""

    slot: int  # the topic's
    stamp: int  # from the logical clock of the topic's home; 0 to 2**64 - 1
    topic: str
    payload: bytes
    origin: str  # with the number: its id, by which clients drop repeats
    number: int
    expires_at: float  # Unix seconds


VOID: Final = (1 << 64) - 1
"""The journal's floor of a slot whose home does not write to it."""

EPOCHS_MAX: Final = 64
"""Earlier lives of the cluster that a journal records. A position from an older one gets a gap."""

ENDED_MAX: Final = 1_000
"""The store remembers this many ended subscriptions of one client."""

ENDED_BYTES_MAX: Final = 1 << 20
"""Maximum bytes of their topics and filters, so that a reply that names them all fits any outbox."""

FILTERS_MAX: Final = 64
"""Maximum number of filters that one client can have at one topic."""

Subscribers = tuple[str, ...] | set[str]
"""The clients that subscribe to a topic without a filter, each once. A set belongs to the caller; a few clients come as
a tuple."""

FilterPage = tuple[list[tuple[str, str]], str | None]
"""Clients of a topic and their filters, each pair once, and the cursor of the next page; ``None``: this is the last
one."""

TopicPage = tuple[str, list[str], list[Subscription]]
"""Subscriptions of one topic: the clients that have one without a filter and without a term, and all other
subscriptions."""


class StoreError(Exception):
    """The store could not carry out a call. ``str(error)`` is for operators: what failed, and how to repair it. Clients
    never see it, because it can name paths and machines. ``is_logged``: the store has logged it."""

    def __init__(self, *words: object) -> None:
        super().__init__(*words)
        self.is_logged = False  # not in the class body: a compiled exception gets no attribute from there


class StoreUnavailable(StoreError):
    """The store did not answer in time, or refused; a later attempt can work."""


class StoreMisconfigured(StoreError):
    """The store cannot be used as it is set up (a missing bucket type, a foreign layout). The text says what to do."""


class TooManyRevocations(StoreError):
    """The store records its maximum of unexpired revocations already, and has recorded nothing new."""


class TooManyFilters(StoreError):
    """A client would have more than ``FILTERS_MAX`` filters at a topic."""


class Superseded(StoreError):
    """Another process has registered under this endpoint's name since. This process must stop."""


class StoreLost(StoreError):
    """The store that this process has open is no longer the one that others find. This process must stop."""
