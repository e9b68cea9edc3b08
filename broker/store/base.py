"""The store contract: what an endpoint asks of the place where subscriptions live.

Owns: the operations, their order, durability and conflict rules, and the errors, in five protocols. Every
implementation passes the contract suites in ``tests/contract``, one for each protocol. Must never: know an
implementation, or anything of the endpoint.

Every operation is batched: a caller hands over all it has in this turn of the loop. An implementation splits a batch
into pieces its storage likes (chunks, partitions, concurrent requests), so a large batch is *not* atomic: after an
error some of it may be stored. Every operation is idempotent, so that repeating the whole batch is safe.

Operations called one after the other (each awaited before the next is called) take effect in that order. Operations
under way at the same time may take effect in any order.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Protocol

from ingeborg.broker.core.model import (
    ENDED_BYTES_MAX,
    ENDED_MAX,
    EPOCHS_MAX,
    FILTERS_MAX,
    VOID,
    Ended,
    Endpoint,
    FilterPage,
    Location,
    RetainedMessage,
    Revocation,
    Settings,
    Shape,
    StoreError,
    StoreLost,
    StoreMisconfigured,
    StoreUnavailable,
    Subscribe,
    Subscribers,
    Subscription,
    Superseded,
    Term,
    TooManyFilters,
    TooManyRevocations,
    TopicPage,
)

__all__ = [
    "ENDED_BYTES_MAX",
    "ENDED_MAX",
    "EPOCHS_MAX",
    "FILTERS_MAX",
    "KEEP_BYTES",
    "PAGE_SUBSCRIPTIONS",
    "RETAINED_BYTES_MAX",
    "RETAINED_PAGE_BYTES",
    "VOID",
    "Ended",
    "Endpoint",
    "FilterPage",
    "Journal",
    "Location",
    "Locations",
    "Registry",
    "RetainedMessage",
    "Revocation",
    "Revocations",
    "Settings",
    "Shape",
    "Store",
    "StoreError",
    "StoreLost",
    "StoreMisconfigured",
    "StoreUnavailable",
    "Subscribe",
    "Subscribers",
    "Subscription",
    "Subscriptions",
    "Superseded",
    "Term",
    "TooManyFilters",
    "TooManyRevocations",
    "TopicPage",
]

PAGE_SUBSCRIPTIONS = 1_000
"""Most subscriptions in a page of all of them: 2 ms of reading the embedded store, for which the event loop waits."""

KEEP_BYTES = 1 << 20
"""Of retained messages (payloads, topics, and some 64 bytes each) that are written at once."""

RETAINED_BYTES_MAX = 3 << 20
"""Of a message that is kept: its payload and its texts. A larger one is refused, and with it what is given with it."""

RETAINED_PAGE_BYTES = 1 << 20
"""Of payloads in a page of retained messages."""


class Subscriptions(Protocol):
    """The subscriptions of all clients. A subscription is of a client, to a topic, with a filter or none, and has a
    term or none. All that a client has at a topic is one record: a write changes the whole record or nothing."""

    async def subscribe(self, batch: Sequence[Subscribe]) -> None:
        """Add each row's subscription to each of its topics, or give the one that is there the row's term. Rows of one
        client at one topic may take effect in any order.

        When it returns, the change survives ``kill -9`` of every process and, unless it is until disconnect, a power
        cut (embedded), or the loss of a minority of the nodes (Riak).

        No term beats any: a row without one takes the term away, and a row with one leaves a subscription without a
        term as it is. A row with a term gives one that has a term the new one and a greater stamp.

        ``replace``: in the same write all else that the client has at the topic is taken out, and the subscription has
        the row's term, whatever it had before. At no moment the client has nothing there.

        What is subscribed to has not ended any more (``ended``): the topic with this filter, or, with ``replace``, the
        topic with any.

        Concurrent writers: the union. Of one subscription with two terms the one with the greater stamp counts, whole.
        Against a concurrent ``subscribe`` a removal, by ``replace`` or by ``unsubscribe``, may lose, never the reverse.

        Raises ``TooManyFilters``: a client would have more than ``FILTERS_MAX`` filters at one topic.
        """

    async def unsubscribe(self, batch: Sequence[tuple[str, Sequence[str], str | None]]) -> None:
        """Take out, for each ``(client, topics, filter)``, the client's subscription with that filter at each topic;
        ``None``: all that it has there. As durable as ``subscribe``."""

    async def subscribers(self, topics: Sequence[str]) -> tuple[list[Subscribers], dict[str, FilterPage]]:
        """Return the subscribers of each topic that have no filter there, in the order asked (of a topic nobody ever
        had: none); and of each topic that has filters the first page of them. A client that has both is in both.

        Sees every ``subscribe`` that has returned, at whichever process. A client that goes from one of its
        subscriptions at a topic to another by ``replace`` is in one of the two, or in both, as far as both belong to
        the first page.
        """

    def subscribers_now(self, topics: Sequence[str]) -> tuple[list[Subscribers], dict[str, FilterPage]] | None:
        """The same, where that takes no more than a read of memory of some 2 ms. ``None``: ask ``subscribers``."""

    async def filtered(self, topic: str, cursor: str, limit: int) -> FilterPage:
        """Return the next page of about ``limit`` (1 or more) of the topic's clients and filters. What stays from the
        first page to the last comes, once. A client that goes from one filter to another by ``replace`` between two
        calls may be on neither page. ``ValueError`` for a cursor that is none."""

    def filtered_now(self, topic: str, cursor: str, limit: int) -> FilterPage | None:
        """The same, where that takes no more than a read of memory of some 2 ms. ``None``: ask ``filtered``."""

    async def subscriptions_of(self, pairs: Sequence[tuple[str, str]]) -> list[list[Subscription]]:
        """Return all that each ``(client, topic)`` has, in the order asked: the one without a filter first, then by
        the filters' texts. Sees every ``subscribe`` that has returned, at whichever process."""

    def subscriptions_of_now(self, pairs: Sequence[tuple[str, str]]) -> list[list[Subscription]] | None:
        """The same, where that takes no more than a read of memory of some 2 ms. ``None``: ask ``subscriptions_of``."""

    async def subscribed(self, client: str, topics: Sequence[str]) -> list[bool]:
        """Return whether the client has a subscription of any kind to each topic, in the order asked. Sees every
        ``subscribe`` that has returned, at whichever process."""

    def subscribed_now(self, client: str, topics: Sequence[str]) -> list[bool] | None:
        """The same, where that takes no more than a read of memory of some 2 ms. ``None``: ask ``subscribed``."""

    async def topics(self, client: str, cursor: str | None, limit: int) -> tuple[list[str], str | None]:
        """Return one page of at most ``limit`` (1 or more) of the topics at which the client has a subscription, and
        the cursor of the next or ``None``.

        Order is the implementation's (by hash), stable; a topic that stays subscribed through the paging comes
        exactly once. ``ValueError`` for a cursor that is none of this store's.
        """

    def all_subscriptions(self) -> AsyncIterator[list[TopicPage]]:
        """All subscriptions there are, in pages: ``PAGE_SUBSCRIPTIONS`` a page at most, none empty. A topic with many
        comes in parts. Order is the implementation's.

        Not a snapshot, since endpoints may write meanwhile: what stays subscribed from the first page to the last
        comes out, once (twice where the store itself holds it twice: Riak after a cut); what comes or goes meanwhile
        may come out or not. What it holds does not grow with the number of subscriptions.
        """

    # Subscriptions with a term, and their ends. The store finds them by slot, without a look at those without a term.

    async def expiring(self, slot: int, cursor: str | None, limit: int) -> tuple[list[Subscription], str | None]:
        """Return one page of about ``limit`` of the subscriptions with a term to topics of the slot, and the cursor of
        the next or ``None``. What stays from the first page to the last comes, once. (On Riak one may come that has
        another term by now, or is gone: ``end`` tells.) ``ValueError`` for a cursor that is none."""

    async def expiring_slots(self) -> list[int] | None:
        """Return the slots that have subscriptions with a term, in order, where the store can say so without reading
        all slots; else ``None``."""

    async def end(
        self, batch: Sequence[tuple[Sequence[Subscription], Location | None, bool]]
    ) -> list[list[Subscription]]:
        """Take out subscriptions with a term, each entry's those of one client, each once. Return what of each entry
        has been taken out, or was gone. One that has another stamp by now, or no term, stays.

        The entry's flag: only if the client's location is the given one (``None``: it has none) when they are taken
        out. A client whose ``listen`` has returned before, or has returned when this returns, keeps them; or ``ended``,
        asked after that ``listen``, names them. What is taken out goes to what has ended of the client.
        """

    async def tidy(self, kept_s: float) -> int:
        """A bounded step of clearing up, to be repeated: forget what ended more than ``kept_s`` seconds ago, and the
        locations of clients that listen nowhere and last began to so long ago. How many records went; 0 where the
        store does this at other times."""


class Locations(Protocol):
    """Where clients listen, and what has ended of them."""

    async def listen(self, clients: Sequence[str], incarnation: str) -> list[tuple[Location, Ended | None]]:
        """Map each client to this endpoint. For each (it stands there once): the new location, and what ``ended`` has
        of the client, read after the location was written.

        A listen number is drawn when the call begins: above that of the location the store has then, and no less than
        the Unix time in milliseconds. It is written if it is greater than what is there by then. So a write that is
        late (its caller has long been told that it failed) cannot displace a ``listen`` that began after it.
        """

    async def unlisten(self, batch: Sequence[tuple[str, Location]]) -> None:
        """Mark each client offline, where the mapping is still the given one; a newer one stays as it is."""

    async def locations(self, clients: Sequence[str]) -> list[Location | None]:
        """The greatest location of each client, in the order asked; ``None``: it never listened."""

    def locations_now(self, clients: Sequence[str]) -> list[Location | None] | None:
        """The same, where that takes no more than a read of memory of some 2 ms. ``None``: ask ``locations``."""

    async def ended(self, clients: Sequence[str]) -> list[Ended | None]:
        """Return what has ended of each client, not been subscribed to again since, and not been forgotten. Of more
        than ``ENDED_MAX``, or ``ENDED_BYTES_MAX`` of text, the first ones are counted only, and stay counted."""


class Registry(Protocol):
    """The endpoints of a cluster, as they find each other, and what they agree on."""

    async def register(self, endpoint: Endpoint) -> None:
        """Write this endpoint's registry entry, at its start; a former holder of the name is replaced."""

    async def heartbeat(self, endpoint: Endpoint) -> None:
        """Write the entry with its new heartbeat count. ``Superseded`` if the name is another incarnation's by now;
        ``StoreLost`` if this is no longer the store that others find under its name."""

    async def deregister(self, endpoint: Endpoint) -> None:
        """Take the entry out if it is still of this incarnation; nothing otherwise."""

    async def endpoints(self) -> list[Endpoint]:
        """All registry entries, one per name, those of crashed endpoints included."""

    async def settings(self, first: Settings | None = None) -> Settings | None:
        """The settings of the cluster. Where none are recorded ``first`` is recorded, as durably as a ``subscribe``;
        ``None``: nothing is. ``ValueError`` for what are no settings.

        Processes that record first ones at the same time agree: those of one of them count, or on Riak what all of them
        promise. On Riak a process can return before the last of them has written, so it has to ask again.
        """

    async def set_settings(self, settings: Settings) -> None:
        """Record these in place of those that are there, as durably. ``ValueError`` for what are no settings. Of two
        calls at the same time one counts, for all; on Riak what both promise, where they missed each other."""

    async def seen(self, hashes: Sequence[bytes], ttl_s: float) -> list[bool]:
        """For each 16-byte hash: was it here within ``ttl_s`` seconds? Either way it is now, for ``ttl_s`` more.

        Only for ``lookup`` routing; best effort: two endpoints that ask at the same time can both be told ``False``.
        """


class Journal(Protocol):
    """Retained messages. They survive ``kill -9`` of every process, but no reboot of the machine. Only the embedded
    store has a journal (``Shape.journal``); on Riak these raise ``StoreError``."""

    async def keep(
        self,
        retained: Sequence[RetainedMessage],
        forgotten: Sequence[tuple[int, int]],
        floors: Sequence[tuple[int, int]],
        whole: Sequence[int] = (),
    ) -> None:
        """Write the messages ``retained`` (one of the same slot and stamp is replaced), take those out that are
        ``forgotten`` (slot, stamp; also of these), and raise the ``floors`` (slot, stamp) of slots, never lower one.
        The floor ``VOID`` says that nothing of a slot is whole. It replaces every stamp. A stamp replaces it only where
        the slot is among those that are ``whole``, which the journal has from here on.

        All of it or nothing, as far as it is no more than ``KEEP_BYTES`` of messages. A larger call is written piece by
        piece: floors first, what is forgotten last, so that what a crash leaves claims no more than it has.
        ``ValueError``, and nothing is written, for a slot or stamp that is none and for a message of more than
        ``RETAINED_BYTES_MAX``. A store that is full still takes a call without messages.
        """

    async def retained(
        self, slots: Sequence[int], cursor: str | None, limit: int
    ) -> tuple[list[RetainedMessage], list[tuple[int, int]], str | None]:
        """One page of about ``limit`` (1 or more) of the slots' messages, by slot and stamp; the slots' floors, where
        they have one; the cursor of the next page or ``None``.

        A page has ``RETAINED_PAGE_BYTES`` of payloads at most, or one message. What stays from the first page to the
        last comes, once. The floors come with the first page, and again with the last: what was forgotten in between
        may have raised one. ``ValueError`` for a cursor that is none.
        """

    async def retained_top(self) -> int:
        """The greatest stamp that the journal was ever given: with a message, a floor, what is forgotten, or as
        reached; 0: none."""

    async def reach(self, epochs: Sequence[str], stamp: int) -> tuple[list[tuple[str, int]], int]:
        """Record the present ``epochs`` (one or more), and that endpoints may tell positions up to ``stamp``. Each
        other epoch that was present until now ends at the greatest stamp that the journal had before.

        Returns the epochs that have ended, each with its last stamp, the ``EPOCHS_MAX`` latest at most; and the
        greatest stamp in the journal."""


class Revocations(Protocol):
    """Tokens that have been taken back."""

    async def revoke(self, batch: Sequence[Revocation]) -> None:
        """Record these, as durably as a ``subscribe``; as often as one likes, and by several processes at once: of two
        revocations of one claim and value the later times are true. Those that are over go at a write.

        ``TooManyRevocations``: the record would grow beyond ``REVOCATIONS_MAX`` (``revocations.py``); none is recorded.
        """

    async def revocations(self) -> list[Revocation]:
        """All that are recorded, one for each claim and value; some of them may be over. Sees every ``revoke`` that has
        returned, at whichever process."""


class Store(Subscriptions, Locations, Registry, Journal, Revocations, Protocol):
    """The whole contract. See the module's text for what holds for all operations. Client ids and topics are valid
    ``str`` already, and filters canonical text."""

    shape: Shape

    async def open(self) -> None:
        """Connect, check the layout, get ready. ``StoreMisconfigured`` says exactly what to do about it: also where the
        store has a feature that this version does not know (``features.py``)."""

    async def close(self) -> None:
        """Give everything back. Operations still under way end with ``StoreUnavailable``."""
