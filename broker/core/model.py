"""What the core and the stores both speak of: a few records, and the errors.

Owns: their fields, and which of two locations, or of two revocations, is true. Must never: grow behaviour.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

#: The claims of a token that it may be revoked by.
JTI: Final = "jti"
SUB: Final = "sub"


class Location(NamedTuple):
    """Where a client listens: thesis section 5.1, the client-to-endpoint mapping.

    Locations of one client are totally ordered, and the greatest one is true: by ``number`` (greater at every
    ``listen``), then by ``incarnation`` (two endpoints that drew the same number at once), then offline over online.
    """

    number: int  # the listen number: see ``Store.listen``
    incarnation: str  # of the endpoint that held the connection
    online: bool  # False: the client unlistened, or its connection closed

    @property
    def rank(self) -> tuple[int, str, bool]:
        """What locations of one client are compared by; the greatest is true."""
        return (self.number, self.incarnation, not self.online)


class Endpoint(NamedTuple):
    """An endpoint as the registry lists it; for discovery only."""

    name: str  # stable over restarts; decides which slots it is home of
    incarnation: str  # random, new at every start
    url: str  # ws://host:port, where its peers reach it
    heartbeat: int  # counts up; that it moves is what shows life, its value means nothing


class Revocation(NamedTuple):
    """Tokens that have been taken back: the one with this id, or those of this subject that had been issued by then.

    Of two of one claim and value the later ``issued_until`` and the later ``expires_at`` are true.
    """

    claim: str  # JTI or SUB
    value: str
    issued_until: int  # of a subject: whole Unix seconds, that second included; of an id: 0
    expires_at: int  # whole Unix seconds: until then it has to be remembered


class Settings(NamedTuple):
    """What all endpoints of a cluster do, as the store records it. ADR 42."""

    replication: bool = False  # what belongs to slots is kept at a second endpoint as well
    history: str = "off"  # where messages are retained: one of ``HISTORIES``


HISTORIES: Final = ("off", "memory", "store")
"""Each promises more than the one before it."""


class Introduction(NamedTuple):
    """What an endpoint tells a peer when their link begins."""

    grace_s: float = float("inf")  # its grace time; infinity: it has not told one
    settings: Settings = Settings()


NO_SETTINGS: Final = Settings()
"""Of a cluster whose endpoints were given none."""

NO_INTRODUCTION: Final = Introduction()
"""A peer's that has told nothing."""


class Shape(NamedTuple):
    """How a store likes to be used. ``topics_at_once``: as many of large subscribes as it wants to have at a time;
    ``slots_together``: it keeps topics of one slot in one place, so that they should come together; ``reads_memory``:
    it reads a few subscribers from this machine's memory, in microseconds; ``topics_at_least``: as many of large
    subscribes as it writes in time even when it is slow; ``journal``: it can keep messages."""

    topics_at_once: int = 2_000
    slots_together: bool = True
    reads_memory: bool = False
    topics_at_least: int = 2_000
    journal: bool = False


class Term(NamedTuple):
    """When a subscription ends by itself; the first that comes to pass counts. SPEC section 2.2."""

    disconnect: bool  # when its client has listened nowhere for the grace time
    ends_at: float  # Unix time in seconds; 0.0: never for that


class Subscription(NamedTuple):
    """One subscription, as the store has it: of a client, to a topic, with a filter or none, with a term or none."""

    topic: str
    client: str
    filter: str | None = None  # canonical text (``protocol.filters``); None: all messages
    term: Term | None = None  # None: it stays until it is taken out
    stamp: int = 0  # of the term: greater at every write that gives it one; 0: it has no term


class Subscribe(NamedTuple):
    """A client subscribes to these topics: one row of ``Store.subscribe``."""

    client: str
    topics: Sequence[str]
    filter: str | None = None
    term: Term | None = None
    replace: bool = False  # it replaces everything that the client has at these topics


class Ended(NamedTuple):
    """A client's subscriptions that have ended: topics and filters of the latest, up to ``ENDED_MAX`` of them and
    ``ENDED_BYTES_MAX``, and how many ended in all."""

    subscriptions: list[tuple[str, str | None]]
    total: int


class RetainedMessage(NamedTuple):
    """One retained message, as the journal has it. Slot and stamp tell it from all others of the store."""

    slot: int  # the topic's
    stamp: int  # of the logical clock of the topic's home; 0 to 2**64 - 1
    topic: str
    payload: bytes
    origin: str  # with the number: its id, by which clients drop repeats
    number: int
    expires_at: float  # Unix seconds


VOID: Final = (1 << 64) - 1
"""The journal's floor of a slot whose home does not write to it."""

EPOCHS_MAX: Final = 64
"""Earlier lives of the cluster that a journal records. A position of an older one gets a gap."""

ENDED_MAX: Final = 1_000
"""The store remembers this many ended subscriptions of one client."""

ENDED_BYTES_MAX: Final = 1 << 20
"""Their topics and filters have this many bytes at most, so that a reply that names them all fits any outbox."""

FILTERS_MAX: Final = 64
"""Filters of one client at one topic."""

Subscribers = tuple[str, ...] | set[str]
"""The clients that are subscribed to a topic without a filter, each once. A set belongs to the caller; a few come as a
tuple."""

FilterPage = tuple[list[tuple[str, str]], str | None]
"""Clients of a topic and their filters, each pair once, and the cursor of what follows; ``None``: nothing does."""

TopicPage = tuple[str, list[str], list[Subscription]]
"""Subscriptions of one topic: the clients that have one with neither a filter nor a term, and all others."""


class StoreError(Exception):
    """The store could not do it. ``str(error)`` is for operators: what failed, and what they can do. It may name paths
    and machines, so clients are not told it. ``is_logged``: the store has told the log."""

    def __init__(self, *words: object) -> None:
        super().__init__(*words)
        self.is_logged = False  # not in the body: a compiled exception has no attribute from there


class StoreUnavailable(StoreError):
    """The store did not answer in time, or refused; trying again later may work."""


class StoreMisconfigured(StoreError):
    """The store cannot be used as it is set up (a missing bucket type, a foreign layout). Says what to do."""


class TooManyRevocations(StoreError):
    """As many as a store records have not expired yet; nothing has been recorded."""


class TooManyFilters(StoreError):
    """A client would have more than ``FILTERS_MAX`` filters at a topic."""


class Superseded(StoreError):
    """Another process has registered under this endpoint's name since; this one must stop."""


class StoreLost(StoreError):
    """The store that this process has open is no longer the one that others find; the process must stop."""
