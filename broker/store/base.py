"""The store contract: everything that an endpoint requires of a store, as five protocols.

Owns: the operations, their order, durability and conflict rules, and the errors. Every implementation passes the
contract suites in ``tests/contract``, one for each protocol. Must never: know an implementation, or anything of the
endpoint.

Every operation is batched: a caller passes everything that it has in one turn of the event loop. An implementation
splits a batch as its storage requires (chunks, partitions, concurrent requests), so a large batch is *not* atomic:
after an error, part of the batch may be stored. Every operation is idempotent, so callers can safely repeat the whole
batch.

Operations take effect in order if the caller awaits each one before it calls the next. Concurrent operations may take
effect in any order.

Every asynchronous operation can raise ``StoreError``, most often ``StoreUnavailable``: the store did not answer in
time, or refused. ``Raises:`` lists only the errors that are particular to an operation. An operation whose name ends in
``_now`` does not await: it answers from memory within about 2 ms, or returns ``None``.
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
"""Most subscriptions in a page of ``all_subscriptions``. The embedded store reads so large a page in 2 ms, during which
the event loop waits."""

KEEP_BYTES = 1 << 20
"""Bytes of retained messages (payloads, topics, and about 64 bytes each) that ``Journal.keep`` writes atomically."""

RETAINED_BYTES_MAX = 3 << 20
"""Most bytes of one retained message: its payload and its texts. ``Journal.keep`` refuses a whole call that has a
larger one."""

RETAINED_PAGE_BYTES = 1 << 20
"""Most bytes of payloads in a page of retained messages."""


class Subscriptions(Protocol):
    """The subscriptions of all clients.

    A subscription belongs to one client and one topic. It has at most one filter, and at most one term. All
    subscriptions of a client to a topic form one record: a write changes the whole record or nothing.
    """

    async def subscribe(self, batch: Sequence[Subscribe]) -> None:
        """Add each row's subscription to each of its topics. If the subscription exists, give it the row's term.

        When the call returns, the change survives ``kill -9`` of every process. Unless it is a subscription until
        disconnect, it also survives a power cut (embedded) or the loss of a minority of the nodes (Riak).

        A subscription without a term takes precedence over one with a term. A row without a term removes the term. A
        row with a term does not change a subscription without one; if the subscription has a term, the row replaces it
        and gives it a greater stamp.

        With ``replace``, the same write removes everything else that the client has at the topic, and the subscription
        gets the row's term even if it had none before. The client has a subscription at every moment.

        The call also removes from ``ended`` what it subscribes to: the topic with this filter or, with ``replace``, the
        topic with any filter.

        Concurrent writes merge by union. If two writers give one subscription different terms, the term with the
        greater stamp wins as a unit. A removal, by ``replace`` or ``unsubscribe``, may lose against a concurrent
        ``subscribe``; a ``subscribe`` never loses against a removal.

        Args:
            batch: One row for each client, filter and term, with any number of topics. Rows of one client at one topic
                may take effect in any order.

        Raises:
            TooManyFilters: A client would have more than ``FILTERS_MAX`` filters at one topic.
        """

    async def unsubscribe(self, batch: Sequence[tuple[str, Sequence[str], str | None]]) -> None:
        """Remove subscriptions, as durably as ``subscribe`` adds them.

        Args:
            batch: ``(client, topics, filter)``. The call removes the client's subscription with this filter at each
                topic; ``None`` removes everything that the client has there.
        """

    async def subscribers(self, topics: Sequence[str]) -> tuple[list[Subscribers], dict[str, FilterPage]]:
        """Return the subscribers of each topic.

        The result includes every ``subscribe`` that has returned, on any process. While ``replace`` moves a client from
        one of its subscriptions to another, the client appears in one of the two or in both, as far as both belong to
        the first page of filters.

        Args:
            topics: The topics; a topic without subscribers is valid.

        Returns:
            The clients that have a subscription without a filter, one collection for each topic in the order of
            ``topics`` (empty: no such client). Then, for each topic that has filters, the first page of clients and
            filters. A client that has both kinds is in both.
        """

    def subscribers_now(self, topics: Sequence[str]) -> tuple[list[Subscribers], dict[str, FilterPage]] | None:
        """Return the result of ``subscribers`` if reading memory for about 2 ms is enough.

        Args:
            topics: The topics; a topic without subscribers is valid.

        Returns:
            The same as ``subscribers``; ``None``: call ``subscribers``.
        """

    async def filtered(self, topic: str, cursor: str, limit: int) -> FilterPage:
        """Return the next page of the topic's clients and filters.

        A filter that exists from the first page to the last appears exactly once. If ``replace`` moves a client from
        one filter to another between two calls, the client can be missing from both pages.

        Args:
            topic: The topic.
            cursor: From ``subscribers`` or from the page before.
            limit: About how many pairs to return, at least 1.

        Returns:
            ``(client, filter)`` pairs, and the cursor of the next page or ``None``.

        Raises:
            ValueError: The cursor is invalid.
        """

    def filtered_now(self, topic: str, cursor: str, limit: int) -> FilterPage | None:
        """Return the result of ``filtered`` if reading memory for about 2 ms is enough.

        Args:
            topic: The topic.
            cursor: From ``subscribers`` or from the page before.
            limit: About how many pairs to return, at least 1.

        Returns:
            The same as ``filtered``; ``None``: call ``filtered``.

        Raises:
            ValueError: The cursor is invalid.
        """

    async def subscriptions_of(self, pairs: Sequence[tuple[str, str]]) -> list[list[Subscription]]:
        """Return every subscription of each client to each topic.

        The result includes every ``subscribe`` that has returned, on any process.

        Args:
            pairs: ``(client, topic)``.

        Returns:
            One list for each pair, in the order of ``pairs``: first the subscription without a filter, then those with
            a filter, sorted by its text.
        """

    def subscriptions_of_now(self, pairs: Sequence[tuple[str, str]]) -> list[list[Subscription]] | None:
        """Return the result of ``subscriptions_of`` if reading memory for about 2 ms is enough.

        Args:
            pairs: ``(client, topic)``.

        Returns:
            The same as ``subscriptions_of``; ``None``: call ``subscriptions_of``.
        """

    async def subscribed(self, client: str, topics: Sequence[str]) -> list[bool]:
        """Return whether the client has a subscription of any kind to each topic.

        The result includes every ``subscribe`` that has returned, on any process.

        Args:
            client: The client's id.
            topics: The topics.

        Returns:
            One flag for each topic, in the order of ``topics``.
        """

    def subscribed_now(self, client: str, topics: Sequence[str]) -> list[bool] | None:
        """Return the result of ``subscribed`` if reading memory for about 2 ms is enough.

        Args:
            client: The client's id.
            topics: The topics.

        Returns:
            The same as ``subscribed``; ``None``: call ``subscribed``.
        """

    async def topics(self, client: str, cursor: str | None, limit: int) -> tuple[list[str], str | None]:
        """Return one page of the topics at which the client has a subscription.

        The implementation chooses a stable order (by hash). A topic that stays subscribed from the first page to the
        last appears exactly once.

        Args:
            client: The client's id.
            cursor: From the page before; ``None``: the first page.
            limit: Most topics to return, at least 1.

        Returns:
            The topics, and the cursor of the next page or ``None``.

        Raises:
            ValueError: The cursor is not one of this store's.
        """

    def all_subscriptions(self) -> AsyncIterator[list[TopicPage]]:
        """Iterate over every subscription in the store.

        This is not a snapshot, because endpoints may write meanwhile. A subscription that exists from the first page to
        the last appears once (twice where the store itself holds it twice: Riak after a network partition). One that is
        added or removed meanwhile may or may not appear. Memory use does not grow with the number of subscriptions.

        Returns:
            Pages of at most ``PAGE_SUBSCRIPTIONS`` subscriptions each, none empty. A topic with many subscriptions
            comes in several parts. The implementation chooses the order.
        """

    # Subscriptions with a term, and how they end. The store finds them by slot and never reads those without a term.

    async def expiring(self, slot: int, cursor: str | None, limit: int) -> tuple[list[Subscription], str | None]:
        """Return one page of the subscriptions with a term to topics of the slot.

        A subscription that exists from the first page to the last appears once. On Riak, a page may also list a
        subscription that has another term by now, or no longer exists: ``end`` sorts these out.

        Args:
            slot: The slot's number.
            cursor: From the page before; ``None``: the first page.
            limit: About how many subscriptions to return, at least 1.

        Returns:
            The subscriptions, and the cursor of the next page or ``None``.

        Raises:
            ValueError: The cursor is invalid.
        """

    async def expiring_slots(self) -> list[int] | None:
        """Return the slots that have subscriptions with a term.

        Returns:
            The slots in ascending order; ``None``: the store would have to read all slots to find out.
        """

    async def end(
        self, batch: Sequence[tuple[Sequence[Subscription], Location | None, bool]]
    ) -> list[list[Subscription]]:
        """Remove subscriptions whose term is over, and add them to what ``ended`` returns for the client.

        A subscription that has another stamp by now, or no term, stays.

        Args:
            batch: ``(subscriptions, location, only_there)``. The subscriptions of an entry belong to one client, and
                each appears once. With the flag set, the store removes them only if the client's location is still the
                given one (``None``: no location) at that moment. A client whose ``listen`` returned before, or returns
                before this call does, then keeps them; otherwise ``ended``, called after that ``listen``, names them.

        Returns:
            For each entry, the subscriptions that this call removed or that were already gone.
        """

    async def tidy(self, kept_s: float) -> int:
        """Do one bounded step of cleaning up. Callers repeat it.

        A step removes what ended more than ``kept_s`` seconds ago. It also removes the location of a client that
        listens nowhere and last began to listen more than ``kept_s`` seconds ago.

        Args:
            kept_s: Seconds that the store keeps both.

        Returns:
            The number of records removed; always 0 if the store cleans up at other times.
        """


class Locations(Protocol):
    """Where clients listen, and which of their subscriptions have ended."""

    async def listen(self, clients: Sequence[str], incarnation: str) -> list[tuple[Location, Ended | None]]:
        """Map each client to this endpoint.

        The store draws a listen number when the call begins. It is greater than the number of the client's location at
        that time, and at least the Unix time in milliseconds. The store writes the new location only if it is greater
        than the one it finds then. So a delayed write, whose caller has long had an error, cannot displace a
        ``listen`` that began after it.

        Args:
            clients: The clients' ids, each once.
            incarnation: The incarnation of the endpoint that holds the connections.

        Returns:
            For each client, in order: the new location, and what ``ended`` has for the client, read after the store
            wrote the location.
        """

    async def unlisten(self, batch: Sequence[tuple[str, Location]]) -> None:
        """Mark each client offline if its location is still the given one. A newer location stays.

        Args:
            batch: ``(client, location)``, the location as ``listen`` returned it.
        """

    async def locations(self, clients: Sequence[str]) -> list[Location | None]:
        """Return the greatest location of each client.

        Args:
            clients: The clients' ids.

        Returns:
            One location for each client, in the order of ``clients``; ``None``: the client has never listened.
        """

    def locations_now(self, clients: Sequence[str]) -> list[Location | None] | None:
        """Return the result of ``locations`` if reading memory for about 2 ms is enough.

        Args:
            clients: The clients' ids.

        Returns:
            The same as ``locations``; ``None``: call ``locations``.
        """

    async def ended(self, clients: Sequence[str]) -> list[Ended | None]:
        """Return the subscriptions of each client that have ended.

        A subscription leaves this list when its client subscribes again, or when the store forgets it (``tidy``). The
        store names the latest ``ENDED_MAX`` subscriptions, with at most ``ENDED_BYTES_MAX`` bytes of text. It counts
        the earlier ones without their names, and they stay counted.

        Args:
            clients: The clients' ids.

        Returns:
            One entry for each client, in the order of ``clients``; ``None``: nothing has ended.
        """


class Registry(Protocol):
    """The endpoints of a cluster, how they find each other, and the settings that they agree on."""

    async def register(self, endpoint: Endpoint) -> None:
        """Write this endpoint's registry entry when it starts, in place of any former holder of the name.

        Args:
            endpoint: The entry.
        """

    async def heartbeat(self, endpoint: Endpoint) -> None:
        """Write the entry with its new heartbeat count.

        Args:
            endpoint: The entry.

        Raises:
            Superseded: Another incarnation has the name by now.
            StoreLost: Other processes no longer find this store under its name.
        """

    async def deregister(self, endpoint: Endpoint) -> None:
        """Remove the entry if it still belongs to this incarnation; otherwise do nothing.

        Args:
            endpoint: The entry.
        """

    async def endpoints(self) -> list[Endpoint]:
        """Return all registry entries.

        Returns:
            One entry for each name, including those of crashed endpoints.
        """

    async def settings(self, first: Settings | None = None) -> Settings | None:
        """Return the cluster's settings, and record ``first`` if the store has none.

        If several processes record first settings at once, they agree. The settings of one process win; on Riak, the
        result is what they all promise. On Riak a process can return before the last one has written, so it has to
        call again.

        Args:
            first: The settings to record, as durably as a ``subscribe``; ``None``: record nothing.

        Returns:
            The recorded settings; ``None``: no settings.

        Raises:
            ValueError: ``first`` or the recorded value is invalid.
        """

    async def set_settings(self, settings: Settings) -> None:
        """Replace the recorded settings, as durably as a ``subscribe``.

        If two calls run at once, one wins for all processes. On Riak, two calls that miss each other leave what
        both promise.

        Args:
            settings: The new settings.

        Raises:
            ValueError: The settings are invalid.
        """

    async def seen(self, hashes: Sequence[bytes], ttl_s: float) -> list[bool]:
        """Return whether each hash was seen before, and remember it for ``ttl_s`` more seconds.

        Only ``lookup`` routing uses this. It is best effort: two endpoints that call at the same time can both get
        ``False``.

        Args:
            hashes: Hashes of 16 bytes each.
            ttl_s: Seconds for which a hash counts as seen.

        Returns:
            One flag for each hash, in the order of ``hashes``.
        """


class Journal(Protocol):
    """Retained messages.

    They survive ``kill -9`` of every process, but not a reboot of the machine. Only the embedded store has a journal
    (``Shape.journal``); on Riak these operations raise ``StoreError``.
    """

    async def keep(
        self,
        retained: Sequence[RetainedMessage],
        forgotten: Sequence[tuple[int, int]],
        floors: Sequence[tuple[int, int]],
        whole: Sequence[int] = (),
    ) -> None:
        """Write messages, remove others, and raise the floors of slots.

        A floor is the stamp from which on the journal has all messages of a slot. The floor ``VOID`` says that no part
        of the slot is complete. It replaces every stamp. A stamp replaces ``VOID`` only if the slot is in ``whole``.

        A call with at most ``KEEP_BYTES`` of messages is atomic. The store writes a larger one in pieces: the floors
        first and the removals last. So after a crash the journal never claims more than it has. A full store still
        accepts a call without messages.

        Args:
            retained: The messages. One replaces a message with the same slot and stamp.
            forgotten: ``(slot, stamp)`` of messages to remove, including messages in ``retained``.
            floors: ``(slot, stamp)``. A floor never falls.
            whole: Slots that the journal has completely from now on.

        Raises:
            ValueError: A slot or stamp is invalid, or a message is larger than ``RETAINED_BYTES_MAX``. The store has
                written nothing.
        """

    async def retained(
        self, slots: Sequence[int], cursor: str | None, limit: int
    ) -> tuple[list[RetainedMessage], list[tuple[int, int]], str | None]:
        """Return one page of the slots' messages.

        A message that exists from the first page to the last appears once. The floors come with the first page and
        again with the last, because messages that the store forgot in between may have raised a floor.

        Args:
            slots: The slots to read.
            cursor: From the page before; ``None``: the first page.
            limit: About how many messages to return, at least 1.

        Returns:
            The messages, sorted by slot and stamp, with at most ``RETAINED_PAGE_BYTES`` of payloads, or one message;
            ``(slot, stamp)`` for each slot that has a floor; and the cursor of the next page or ``None``.

        Raises:
            ValueError: The cursor is invalid.
        """

    async def retained_top(self) -> int:
        """Return the greatest stamp that the journal ever received.

        Returns:
            The greatest stamp of any message, floor, removal or ``reach``; 0: none.
        """

    async def reach(self, epochs: Sequence[str], stamp: int) -> tuple[list[tuple[str, int]], int]:
        """Record the present epochs, and that endpoints may hand out positions up to ``stamp``.

        Every other epoch that was present until now ends at the greatest stamp that the journal had before this call.

        Args:
            epochs: The present epochs, at least one.
            stamp: The greatest stamp that a position may have.

        Returns:
            The epochs that have ended, each with its last stamp, at most the ``EPOCHS_MAX`` latest; and the greatest
            stamp in the journal.
        """


class Revocations(Protocol):
    """Revoked tokens."""

    async def revoke(self, batch: Sequence[Revocation]) -> None:
        """Record revocations, as durably as a ``subscribe``.

        Callers can repeat a revocation, and several processes can call at once. If two revocations have the same claim
        and value, the later times win. A write also removes expired revocations.

        Args:
            batch: The revocations.

        Raises:
            TooManyRevocations: The record would exceed ``REVOCATIONS_MAX`` (``revocations.py``). The store has recorded
                none of the batch.
        """

    async def revocations(self) -> list[Revocation]:
        """Return all recorded revocations.

        The result includes every ``revoke`` that has returned, on any process.

        Returns:
            One revocation for each claim and value. Some may have expired.
        """


class Store(Subscriptions, Locations, Registry, Journal, Revocations, Protocol):
    """The whole contract. The module's docstring has the rules that apply to all operations.

    Client ids and topics are valid ``str``, and filters are canonical text: callers have checked them.
    """

    shape: Shape

    async def open(self) -> None:
        """Connect, check the layout and get ready.

        Raises:
            StoreMisconfigured: The store cannot be used as it is, or has a feature that this version does not know
                (``features.py``). The message says exactly what to do.
        """

    async def close(self) -> None:
        """Release everything. Operations still under way end with ``StoreUnavailable``."""
