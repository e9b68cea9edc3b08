"""The records and errors that the core and the stores share.

Owns: their fields, and the rule that says which of two locations, or of two revocations, is valid. Must never: contain
any other logic.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

#: The claims of a token that a revocation can name.
JTI: Final = "jti"
SUB: Final = "sub"


class Location(NamedTuple):
    """Where a client listens (the client-to-endpoint mapping of thesis section 5.1).

    The locations of one client are totally ordered, and the greatest one is valid. The order is by ``number``, which
    grows with every ``listen``. Two endpoints can draw the same number at the same time, so equal numbers are ordered
    by ``incarnation``. If number and incarnation are both equal, offline is greater than online.
    """

    number: int  # the listen number: see ``Store.listen``
    incarnation: str  # the endpoint that held the connection
    online: bool  # False if the client unlistened, or its connection closed

    @property
    def rank(self) -> tuple[int, str, bool]:
        """The sort key of one client's locations. The location with the greatest key is valid."""
        return (self.number, self.incarnation, not self.online)


class Endpoint(NamedTuple):
    """An endpoint's entry in the registry, through which endpoints discover each other."""

    name: str  # stable over restarts; determines the endpoint's slots
    incarnation: str  # random, new at every start
    url: str  # ws://host:port, where its peers reach it
    heartbeat: int  # a counter: any change is a sign of life, and the value has no other meaning


class Revocation(NamedTuple):
    """A revocation of the token with this id, or of all tokens of this subject that were issued up to a certain time.

    If two revocations have the same claim and value, the later ``issued_until`` and the later ``expires_at`` apply.
    """

    claim: str  # JTI or SUB
    value: str
    issued_until: int  # for a subject: Unix time in whole seconds, inclusive; for an id: 0
    expires_at: int  # Unix time in whole seconds; until then the endpoints remember the revocation


class Settings(NamedTuple):
    """The settings that all endpoints of a cluster follow, as the store records them. ADR 42."""

    replication: bool = False  # a second endpoint keeps a replica of all slot state
    history: str = "off"  # where messages are retained: one of ``HISTORIES``


HISTORIES: Final = ("off", "memory", "store")
"""The possible values of ``Settings.history``. Each value promises more than the value before it."""


class Introduction(NamedTuple):
    """The first message of an endpoint to a peer when their link begins."""

    grace_s: float = float("inf")  # the endpoint's grace time; infinity if it has not reported one
    settings: Settings = Settings()


NO_SETTINGS: Final = Settings()
"""The settings of a cluster for which no settings were configured."""

NO_INTRODUCTION: Final = Introduction()
"""The introduction to use for a peer that has sent none."""


class Load(NamedTuple):
    """The load of an endpoint's process. ``busy``: its CPU time divided by wall time, so 1 is a whole core. ``lag_s``:
    how late its event loop is, in seconds."""

    busy: float = 0.0
    lag_s: float = 0.0


NO_LOAD: Final = Load()


class Shape(NamedTuple):
    """How best to use a store.

    ``topics_at_once``: the maximum number of topics that large ``subscribe`` commands can be writing at the same time.
    ``topics_at_least``: the number of topics that the store writes in time even when it is slow. ``slots_together``:
    the store keeps the topics of one slot in one place, so write them together. ``reads_memory``: the store reads a few
    subscribers from this machine's memory within microseconds. ``journal``: the store can keep messages.
    """

    topics_at_once: int = 2_000
    slots_together: bool = True
    reads_memory: bool = False
    topics_at_least: int = 2_000
    journal: bool = False


class Term(NamedTuple):
    """When a subscription expires: as soon as one of these conditions holds. SPEC section 2.2."""

    disconnect: bool  # expire when the client has listened nowhere for the grace time
    ends_at: float  # Unix time in seconds; 0.0 if there is no such time


class Subscription(NamedTuple):
    """One client's subscription to one topic, as the store has it. It can have a filter and a term."""

    topic: str
    client: str
    filter: str | None = None  # canonical text (``protocol.filters``); None for all messages
    term: Term | None = None  # None if it stays until the client removes it
    stamp: int = 0  # the term's stamp, which grows with every write that sets a term; 0 if it has no term


class Subscribe(NamedTuple):
    """New subscriptions of one client to these topics: one row of ``Store.subscribe``."""

    client: str
    topics: Sequence[str]
    filter: str | None = None
    term: Term | None = None
    replace: bool = False  # replace all subscriptions that the client has at these topics


class Ended(NamedTuple):
    """A client's subscriptions that have ended: the topics and filters of the latest ended subscriptions, up to
    ``ENDED_MAX`` and ``ENDED_BYTES_MAX``, and the total number of ended subscriptions."""

    subscriptions: list[tuple[str, str | None]]
    total: int


class RetainedMessage(NamedTuple):
    """One retained message, as the journal has it. Slot and stamp identify it in the store."""

    slot: int  # the topic's slot
    stamp: int  # from the logical clock of the topic's home; 0 to 2**64 - 1
    topic: str
    payload: bytes
    origin: str  # origin and number are the message's id, by which clients drop repeats
    number: int
    expires_at: float  # Unix seconds


VOID: Final = (1 << 64) - 1
"""The journal's floor for a slot if the journal lacks some of the slot's messages."""

EPOCHS_MAX: Final = 64
"""Maximum number of earlier runs of the cluster that a journal records. A client whose position is from an older run
gets a notice of a gap."""

ENDED_MAX: Final = 1_000
"""The store remembers this many ended subscriptions of one client."""

ENDED_BYTES_MAX: Final = 1 << 20
"""Maximum bytes of the topics and filters of one client's remembered ended subscriptions. A reply that lists all of
these subscriptions fits any outbox."""

FILTERS_MAX: Final = 64
"""Maximum number of filters that one client can have at one topic."""

Subscribers = tuple[str, ...] | set[str]
"""The clients that subscribe to a topic without a filter, each once. If there are only a few clients, they come as a
tuple. If the caller receives a set, the caller owns this set."""

FilterPage = tuple[list[tuple[str, str]], str | None]
"""Pairs of a topic's client and filter, each pair once, and the cursor of the next page (``None`` on the last page)."""

TopicPage = tuple[str, list[str], list[Subscription]]
"""A topic, the clients that have a subscription without a filter and without a term, and all other subscriptions of the
topic."""


class StoreError(Exception):
    """The store could not carry out a call. ``str(error)`` tells operators what failed, and how to repair it. Clients
    never see this text, because it can name paths and machines. ``is_logged``: the store has logged it."""

    def __init__(self, *words: object) -> None:
        super().__init__(*words)
        self.is_logged = False  # set here, because a compiled exception gets no attributes from the class body


class StoreUnavailable(StoreError):
    """The store did not answer in time, or refused the call. A later attempt can succeed."""


class StoreMisconfigured(StoreError):
    """The store cannot be used as it is set up (a missing bucket type, a foreign layout). The text says what to do."""


class TooManyRevocations(StoreError):
    """The store already has its maximum number of unexpired revocations, and has not recorded the new revocation."""


class TooManyFilters(StoreError):
    """A client would have more than ``FILTERS_MAX`` filters at a topic."""


class Superseded(StoreError):
    """Another process has since registered under this endpoint's name. This process must stop."""


class StoreLost(StoreError):
    """The store that this process has open is no longer the store that other processes find. This process must stop."""
