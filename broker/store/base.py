"""The store contract: what an endpoint asks of the place where subscriptions live.

Owns: the operations, their order, durability and conflict rules, and the errors. Every implementation passes the one
contract suite in ``tests/contract``. Must never: know an implementation, or anything of the endpoint.

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
    ENDED_TOPICS_MAX,
    FILTERS_MAX,
    LINES_MAX,
    VOID,
    Ended,
    Ending,
    Endpoint,
    Kept,
    Location,
    Revocation,
    Settings,
    Shape,
    StoreError,
    StoreLost,
    StoreMisconfigured,
    StoreUnavailable,
    Subscribers,
    Superseded,
    Term,
    TooManyFilters,
    TooManyRevocations,
)

__all__ = [
    "ENDED_TOPICS_MAX",
    "FILTERS_MAX",
    "KEEP_BYTES",
    "KEPT_BYTES_MAX",
    "KEPT_PAGE_BYTES",
    "LINES_MAX",
    "PAGE_SUBSCRIPTIONS",
    "VOID",
    "Ended",
    "Ending",
    "Endpoint",
    "Kept",
    "Location",
    "Revocation",
    "Settings",
    "Shape",
    "Store",
    "StoreError",
    "StoreLost",
    "StoreMisconfigured",
    "StoreUnavailable",
    "Subscribers",
    "Superseded",
    "Term",
    "TooManyFilters",
    "TooManyRevocations",
]

PAGE_SUBSCRIPTIONS = 1_000
"""Most subscriptions in a page of all of them: 2 ms of reading the embedded store, for which the event loop waits."""

KEEP_BYTES = 1 << 20
"""Of kept messages (payloads, topics, and some 64 bytes each) that are written at once."""

KEPT_BYTES_MAX = 3 << 20
"""Of a message that is kept: its payload and its texts. A larger one is refused, and with it what is given with it."""

KEPT_PAGE_BYTES = 1 << 20
"""Of payloads in a page of kept messages."""


class Store(Protocol):
    """See the module's text for what holds for all operations. Client ids and topics are valid ``str`` already."""

    shape: Shape

    async def open(self) -> None:
        """Connect, check the layout, get ready. ``StoreMisconfigured`` says exactly what to do about it: also where the
        store has a feature that this version does not know (``features.py``)."""

    async def close(self) -> None:
        """Give everything back. Operations still under way end with ``StoreUnavailable``."""

    async def subscribe(self, batch: Sequence[tuple[str, Sequence[str]]]) -> None:
        """Add each ``(client, topics)`` of the batch: the client to the subscriber set of each of its topics.

        When it returns, the additions are durable: they survive ``kill -9`` of every process (embedded), or the loss
        of a minority of the nodes (Riak). Concurrent writers of one topic: the union.

        An ending subscription of the same client and topic is taken out: a plain one wins.
        """

    async def unsubscribe(self, batch: Sequence[tuple[str, Sequence[str]]]) -> None:
        """Take out all that each client has at each of its topics, as durably: a plain subscription, an ending one, and
        those with filters. Against a concurrent ``subscribe`` the subscription may win, never the reverse."""

    async def subscribers(self, topics: Sequence[str]) -> tuple[list[set[str]], list[str]]:
        """The subscriber set of each topic, plain and ending subscriptions, in the order asked; a topic nobody ever
        had: the empty set. And which of the topics have subscriptions with filters (``filtered`` has those), read after
        the sets.

        The sets are new objects, the caller's to keep and change. Sees every ``subscribe`` that has returned, at
        whichever process.
        """

    def subscribers_now(self, topics: Sequence[str]) -> tuple[list[Subscribers], list[str]] | None:
        """The same, where that takes no more than a read of memory of some 2 ms. ``None``: ask ``subscribers``."""

    async def topics(self, client: str, cursor: str | None, limit: int) -> tuple[list[str], str | None]:
        """One page of at most ``limit`` (1 or more) of the topics at which the client has a subscription of any kind,
        and the cursor of the next or ``None``.

        Order is the implementation's (by hash), stable; a topic that stays subscribed through the paging comes
        exactly once. ``ValueError`` for a cursor that is none of this store's.
        """

    async def subscribed(self, client: str, topics: Sequence[str], unfiltered: bool = False) -> list[bool]:
        """Whether the client has a subscription to each topic, in the order asked: of any kind, or, ``unfiltered``, one
        without a filter.

        One that becomes a subscription of another kind meanwhile counts. Sees every ``subscribe`` that has returned, at
        whichever process.
        """

    def subscribed_now(self, client: str, topics: Sequence[str], unfiltered: bool = False) -> list[bool] | None:
        """The same, where that takes no more than a read of memory of some 2 ms. ``None``: ask ``subscribed``."""

    # Subscriptions with filters. As durable as plain ones, and not among those that ``subscribers`` and
    # ``subscriptions`` give. A filter is canonical text (``protocol.filters``); a client may have several at a topic,
    # and a plain or an ending subscription as well.

    async def subscribe_filtered(self, batch: Sequence[tuple[str, Sequence[str], str, bool]]) -> None:
        """Add, for each ``(client, topics, filter, replace)``, the filter to those of the client at each topic.

        ``replace``: in the same write all else that the client has at these topics is taken out: other filters, a plain
        subscription, an ending one. At no moment it has nothing there. Concurrent writers: the union; against a
        concurrent ``subscribe_filtered`` a ``replace`` may lose, never the reverse.
        ``TooManyFilters``: a client would have more than ``FILTERS_MAX`` at one topic.
        """

    async def unsubscribe_filtered(self, batch: Sequence[tuple[str, Sequence[str], str]]) -> None:
        """Take out that filter of the client at each topic, as durably, where it is; all else stays."""

    async def filtered(
        self, asked: Sequence[tuple[str, str | None]], limit: int
    ) -> list[tuple[list[tuple[str, str]], str | None]]:
        """For each ``(topic, cursor)`` one page of about ``limit`` of the topic's ``(client, filter)``, and the cursor
        of the next or ``None``; a topic without filters: an empty page. In an order of the implementation's; what stays
        from the first page to the last comes, once. ``ValueError`` for a cursor that is none. Sees every write that has
        returned, at whichever process."""

    def filtered_now(
        self, asked: Sequence[tuple[str, str | None]], limit: int
    ) -> list[tuple[list[tuple[str, str]], str | None]] | None:
        """The same, where that takes no more than a read of memory of some 2 ms. ``None``: ask ``filtered``."""

    async def filters_of(self, pairs: Sequence[tuple[str, str]]) -> list[list[str]]:
        """The filters of each ``(client, topic)``, sorted, in the order asked."""

    def filtered_subscriptions(self) -> AsyncIterator[list[tuple[str, list[tuple[str, str]]]]]:
        """All subscriptions with filters, in pages of ``(topic, (client, filter) pairs)``, as ``subscriptions`` gives
        the plain ones; ``PAGE_SUBSCRIPTIONS`` pairs a page at most, none empty."""

    # Ending subscriptions. They survive ``kill -9`` of every process, but no reboot of the machine (embedded); or the
    # loss of a minority of the nodes (Riak).

    async def subscribe_ending(self, batch: Sequence[tuple[str, Sequence[str], Term]]) -> None:
        """Add each ``(client, topics, term)``, or give the ending subscription that is there the new term and a greater
        stamp. Where the client has a plain subscription to the topic nothing changes. What is subscribed to anew is not
        among what has ended any more.
        """

    async def terms(self, pairs: Sequence[tuple[str, str]]) -> list[Term | None]:
        """The term of each ``(client, topic)``, in the order asked; ``None``: that is no ending subscription."""

    async def ending(self, slot: int, cursor: str | None, limit: int) -> tuple[list[Ending], str | None]:
        """One page of about ``limit`` of the ending subscriptions to topics of the slot, and the cursor of the next or
        ``None``. What stays from the first page to the last comes, once. ``ValueError`` for a cursor that is none."""

    async def ending_slots(self) -> list[int] | None:
        """The slots that have ending subscriptions, in order, where the store can say so without reading all slots;
        else ``None``."""

    async def end(self, batch: Sequence[tuple[Sequence[Ending], Location | None, bool]]) -> list[list[Ending]]:
        """Take out ending subscriptions, each entry's those of one client; what of each entry has been taken out, or
        was gone (wherever the client listens), with no plain subscription beside it. One that has another stamp by now
        stays.

        The entry's flag: only if the client's location is the given one (``None``: it has none) when they are taken
        out. A client whose ``listen`` has returned before, or has returned when this returns, keeps them; or ``ended``,
        asked after that ``listen``, names them. What is taken out goes to what has ended of the client, unless there is
        a plain subscription beside it.
        """

    async def ended(self, clients: Sequence[str]) -> list[Ended | None]:
        """What has ended of each client, not been subscribed to again since, and not been forgotten. Of more than
        ``ENDED_TOPICS_MAX`` topics the first ones are counted only, and stay counted."""

    async def renew(self, slot: int) -> None:
        """Have the slot's ending subscriptions stay for as long as new ones do (``Shape.renew_s``)."""

    async def tidy(self, kept_s: float) -> int:
        """A bounded step of clearing up, to be repeated: forget what ended more than ``kept_s`` seconds ago, and the
        locations of clients that listen nowhere, last began to so long ago, and have no ending subscription (a home
        that waits for the client goes by its location). How many records went; where the store clears up by itself
        none."""

    def subscriptions(self) -> AsyncIterator[list[tuple[str, list[str]]]]:
        """All plain subscriptions there are, in pages of ``(topic, clients)``: ``PAGE_SUBSCRIPTIONS`` a page at most,
        none empty. A topic with many subscribers comes in parts. Order is the implementation's.

        Not a snapshot, since endpoints may write meanwhile: what stays subscribed from the first page to the last
        comes out, once (twice where the store itself holds it twice: Riak after a cut); what comes or goes meanwhile
        may come out or not. What it holds does not grow with the number of subscriptions.
        """

    # The journal of kept messages. It survives ``kill -9`` of every process, but no reboot of the machine. Only the
    # embedded store has one (``Shape.journal``); on Riak these raise ``StoreError``.

    async def keep(
        self,
        kept: Sequence[Kept],
        forgotten: Sequence[tuple[int, int]],
        floors: Sequence[tuple[int, int]],
        whole: Sequence[int] = (),
    ) -> None:
        """Write the messages ``kept`` (one of the same slot and stamp is replaced), take those out that are
        ``forgotten`` (slot, stamp; also of these), and raise the ``floors`` (slot, stamp) of slots, never lower one.
        The floor ``VOID`` says that nothing of a slot is whole. It replaces every stamp. A stamp replaces it only where
        the slot is among those that are ``whole``, which the journal has from here on.

        All of it or nothing, as far as it is no more than ``KEEP_BYTES`` of messages. A larger call is written piece by
        piece: floors first, what is forgotten last, so that what a crash leaves claims no more than it has.
        ``ValueError``, and nothing is written, for a slot or stamp that is none and for a message of more than
        ``KEPT_BYTES_MAX``. A store that is full still takes a call without messages.
        """

    async def kept(
        self, slots: Sequence[int], cursor: str | None, limit: int
    ) -> tuple[list[Kept], list[tuple[int, int]], str | None]:
        """One page of about ``limit`` (1 or more) of the slots' messages, by slot and stamp; the slots' floors, where
        they have one; the cursor of the next page or ``None``.

        A page has ``KEPT_PAGE_BYTES`` of payloads at most, or one message. What stays from the first page to the last
        comes, once. The floors come with the first page, and again with the last: what was forgotten in between may
        have raised one. ``ValueError`` for a cursor that is none.
        """

    async def kept_top(self) -> int:
        """The greatest stamp that the journal was ever given: with a message, a floor, what is forgotten, or as
        reached; 0: none."""

    async def reach(self, lines: Sequence[str], stamp: int) -> tuple[list[tuple[str, int]], int]:
        """Record the present ``lines`` (one or more), and that endpoints may tell positions up to ``stamp``. Each other
        line that was present until now ends at the greatest stamp that the journal had before.

        Returns the lines that have ended, each with its last stamp, the ``LINES_MAX`` latest at most; and the greatest
        stamp in the journal."""

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

    async def seen(self, hashes: Sequence[bytes], ttl_s: float) -> list[bool]:
        """For each 16-byte hash: was it here within ``ttl_s`` seconds? Either way it is now, for ``ttl_s`` more.

        Only for ``lookup`` routing; best effort: two endpoints that ask at the same time can both be told ``False``.
        """

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

    async def revoke(self, batch: Sequence[Revocation]) -> None:
        """Record these, as durably as a ``subscribe``; as often as one likes, and by several processes at once: of two
        revocations of one claim and value the later times are true. Those that are over go at a write.

        ``TooManyRevocations``: the record would grow beyond ``REVOCATIONS_MAX`` (``revocations.py``); none is recorded.
        """

    async def revocations(self) -> list[Revocation]:
        """All that are recorded, one for each claim and value; some of them may be over. Sees every ``revoke`` that has
        returned, at whichever process."""
