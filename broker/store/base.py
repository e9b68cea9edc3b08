"""The store contract: everything that an endpoint requires of a store, as five protocols.

Owns: the operations, their order, durability and conflict rules, and the errors. Every implementation passes the
contract suites in ``tests/contract``, one for each protocol. Must never: depend on an implementation or on the
endpoint.

Every operation takes a batch: a caller passes everything that it has collected in one pass of the event loop. An
implementation splits a batch as its storage requires (chunks, partitions, concurrent requests), so a large batch is
*not* atomic. After an error, part of the batch may be stored. Every operation is idempotent, so callers can safely
repeat the whole batch.

Operations take effect in order if the caller awaits each one before it calls the next. Concurrent operations may take
effect in any order.

Every asynchronous operation can raise ``StoreError``, most often ``StoreUnavailable`` because the store did not answer
in time or refused the request. ``Raises:`` lists only the errors that are particular to an operation. An operation
whose name ends in ``_now`` does not await: it answers from memory within about 2 ms, or returns ``None``.
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
"""The largest number of subscriptions in a page of ``all_subscriptions``. The embedded store reads such a page in 2 ms,
and the event loop is blocked meanwhile."""

KEEP_BYTES = 1 << 20
"""A call of ``Journal.keep`` is atomic if its messages have at most this many bytes in total. Each message counts as
the bytes of its payload and its texts, plus 256 bytes."""

RETAINED_BYTES_MAX = 3 << 20
"""The largest size of one retained message, which consists of its payload and its texts. ``Journal.keep`` refuses a
whole call if one message in the call is larger."""

RETAINED_PAGE_BYTES = 1 << 20
"""The largest number of bytes of payloads in a page of retained messages."""


class Subscriptions(Protocol):
    """The subscriptions of all clients.

    A subscription belongs to one client and one topic. It has at most one filter, and at most one term. All
    subscriptions of a client to a topic form one record, which a write changes completely or not at all.
    """

    async def subscribe(self, batch: Sequence[Subscribe]) -> None:
        """Add each row's subscription to each of its topics. If the subscription exists, give it the row's term.

        When the call returns, the subscriptions survive ``kill -9`` of every process. Subscriptions that do not end at
        a disconnect also survive a power cut (embedded store) or the loss of a minority of the nodes (Riak).

        A subscription without a term takes precedence over one with a term. A row without a term therefore removes the
        subscription's term. A row with a term does not change a subscription without one. If both have a term, the
        row's term replaces the old one and gets a greater stamp.

        With ``replace``, the same write removes all other subscriptions of the client to the topic, and the
        subscription gets the row's term even if it had none before. The client has a subscription to the topic
        throughout.

        The call also removes the new subscriptions from the list that ``ended`` returns. With ``replace``, it removes
        all entries for the topic, with any filter.

        Concurrent writes merge by union. If two writers give one subscription different terms, the term with the
        greater stamp wins as a whole. If a ``subscribe`` and a removal (by ``replace`` or ``unsubscribe``) of the same
        subscription run concurrently, the subscription may stay: the ``subscribe`` never loses.

        Args:
            batch: One row for each client, filter and term, with any number of topics. Rows of one client at one topic
                may take effect in any order.

        Raises:
            TooManyFilters: A client would have more than ``FILTERS_MAX`` filters at one topic.
        """

    async def unsubscribe(self, batch: Sequence[tuple[str, Sequence[str], str | None]]) -> None:
        """Remove subscriptions, as durably as ``subscribe`` adds them.

        Args:
            batch: ``(client, topics, filter)``. The call removes the client's subscription with this filter to each
                topic. If the filter is ``None``, it removes all of the client's subscriptions to the topics.
        """

    async def subscribers(self, topics: Sequence[str]) -> tuple[list[Subscribers], dict[str, FilterPage]]:
        """Return the subscribers of each topic.

        The result reflects every ``subscribe`` call that has returned, in any process. While ``replace`` exchanges one
        subscription of a client for another, the result has at least one of the two, provided that both belong to the
        first page of filters.

        Args:
            topics: The topics. A topic may have no subscribers.

        Returns:
            First, for each topic in the order of ``topics``, a collection of the clients that have a subscription
            without a filter; it can be empty. Second, for each topic that has subscriptions with filters, the first
            page of clients and filters. A client that has both kinds of subscription is in both parts.
        """

    def subscribers_now(self, topics: Sequence[str]) -> tuple[list[Subscribers], dict[str, FilterPage]] | None:
        """Return the result of ``subscribers`` if reading memory for about 2 ms is enough.

        Args:
            topics: The topics. A topic may have no subscribers.

        Returns:
            The same as ``subscribers``, or ``None`` if the caller has to call ``subscribers`` instead.
        """

    async def filtered(self, topic: str, cursor: str, limit: int) -> FilterPage:
        """Return the next page of the topic's clients and filters.

        A filter that exists while all pages are read appears exactly once. If ``replace`` exchanges one filter of a
        client for another between two calls, the client can be missing from both pages.

        Args:
            topic: The topic.
            cursor: The cursor that ``subscribers`` or the previous page returned.
            limit: The approximate number of pairs to return, at least 1.

        Returns:
            ``(client, filter)`` pairs, and the cursor of the next page, or ``None`` after the last page.

        Raises:
            ValueError: The cursor is invalid.
        """

    def filtered_now(self, topic: str, cursor: str, limit: int) -> FilterPage | None:
        """Return the result of ``filtered`` if reading memory for about 2 ms is enough.

        Args:
            topic: The topic.
            cursor: The cursor that ``subscribers`` or the previous page returned.
            limit: The approximate number of pairs to return, at least 1.

        Returns:
            The same as ``filtered``, or ``None`` if the caller has to call ``filtered`` instead.

        Raises:
            ValueError: The cursor is invalid.
        """

    async def subscriptions_of(self, pairs: Sequence[tuple[str, str]]) -> list[list[Subscription]]:
        """Return every subscription of each client to each topic.

        The result reflects every ``subscribe`` call that has returned, in any process.

        Args:
            pairs: ``(client, topic)``.

        Returns:
            One list for each pair, in the order of ``pairs``. A list has the subscription without a filter first, then
            those with a filter, sorted by the filter's text.
        """

    def subscriptions_of_now(self, pairs: Sequence[tuple[str, str]]) -> list[list[Subscription]] | None:
        """Return the result of ``subscriptions_of`` if reading memory for about 2 ms is enough.

        Args:
            pairs: ``(client, topic)``.

        Returns:
            The same as ``subscriptions_of``, or ``None`` if the caller has to call ``subscriptions_of`` instead.
        """

    async def subscribed(self, client: str, topics: Sequence[str]) -> list[bool]:
        """Return whether the client has a subscription of any kind to each topic.

        The result reflects every ``subscribe`` call that has returned, in any process.

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
            The same as ``subscribed``, or ``None`` if the caller has to call ``subscribed`` instead.
        """

    async def topics(self, client: str, cursor: str | None, limit: int) -> tuple[list[str], str | None]:
        """Return one page of the topics at which the client has a subscription.

        The implementation chooses a stable order (by hash). A topic to which the client stays subscribed while all
        pages are read appears exactly once.

        Args:
            client: The client's id.
            cursor: The cursor that the previous page returned, or ``None`` for the first page.
            limit: The largest number of topics to return, at least 1.

        Returns:
            The topics, and the cursor of the next page, or ``None`` after the last page.

        Raises:
            ValueError: The cursor is invalid.
        """

    def all_subscriptions(self) -> AsyncIterator[list[TopicPage]]:
        """Iterate over every subscription in the store.

        This is not a snapshot, because endpoints may write meanwhile. A subscription that exists during the whole
        iteration appears once, or twice if the store itself holds it twice (Riak after a network partition). A
        subscription that is added or removed meanwhile may or may not appear. Memory use does not grow with the number
        of subscriptions.

        Returns:
            Pages of at most ``PAGE_SUBSCRIPTIONS`` subscriptions each. No page is empty. A topic with many
            subscriptions is split into several parts. The implementation chooses the order.
        """

    # Subscriptions with a term, and how they end. The store finds these by slot, and reads no subscriptions without a
    # term.

    async def expiring(self, slot: int, cursor: str | None, limit: int) -> tuple[list[Subscription], str | None]:
        """Return one page of the subscriptions that have a term, to topics of one slot.

        A subscription that exists while all pages are read appears once. On Riak, a page may also list a subscription
        that has another term by now or no longer exists; ``end`` skips such subscriptions.

        Args:
            slot: The slot's number.
            cursor: The cursor that the previous page returned, or ``None`` for the first page.
            limit: The approximate number of subscriptions to return, at least 1.

        Returns:
            The subscriptions, and the cursor of the next page, or ``None`` after the last page.

        Raises:
            ValueError: The cursor is invalid.
        """

    async def expiring_slots(self) -> list[int] | None:
        """Return the slots that have subscriptions with a term.

        Returns:
            The slots in ascending order, or ``None`` if the store would have to read all slots to find them.
        """

    async def end(
        self, batch: Sequence[tuple[Sequence[Subscription], Location | None, bool]]
    ) -> list[list[Subscription]]:
        """Remove subscriptions whose term has expired, and add them to the list that ``ended`` returns for the client.

        The store keeps a subscription that has another stamp by now, or no term.

        Args:
            batch: ``(subscriptions, location, only_there)``. The subscriptions of an entry belong to one client, and
                each appears once. If ``only_there`` is set, the store removes them only if ``location`` is still the
                client's location at that time (``None`` if the client has none). So a client keeps them if its
                ``listen`` returns before this call returns. If its ``listen`` returns later, ``ended`` then returns the
                subscriptions.

        Returns:
            For each entry, the subscriptions that this call removed and those that were already gone.
        """

    async def tidy(self, kept_s: float) -> int:
        """Do one bounded step of cleaning up. Callers call this repeatedly.

        A step removes the records of subscriptions that ended more than ``kept_s`` seconds ago. It also removes the
        location of a client that is offline and last began to listen more than ``kept_s`` seconds ago.

        Args:
            kept_s: For how many seconds the store keeps these two kinds of records.

        Returns:
            The number of records removed; always 0 if the store cleans up at other times.
        """


class Locations(Protocol):
    """Where clients listen, and which of their subscriptions have ended."""

    async def listen(self, clients: Sequence[str], incarnation: str) -> list[tuple[Location, Ended | None]]:
        """Set the location of each client to this endpoint.

        When the call begins, the store draws a listen number for each client. It is greater than the number in the
        client's location at that time, and at least the Unix time in milliseconds. The store writes the new location
        only if it is greater than the location that the store then has. So even a write that finishes long after its
        caller got an error cannot displace a ``listen`` that began later.

        Args:
            clients: The clients' ids, each once.
            incarnation: The incarnation of the endpoint that holds the connections.

        Returns:
            For each client, in order: the new location, and the result of ``ended`` for the client, which the store
            reads after it has written the location.
        """

    async def unlisten(self, batch: Sequence[tuple[str, Location]]) -> None:
        """Mark each client offline if its location is still the given one. A newer location stays as it is.

        Args:
            batch: ``(client, location)``, with the location that ``listen`` returned.
        """

    async def locations(self, clients: Sequence[str]) -> list[Location | None]:
        """Return the greatest location that was written for each client.

        Args:
            clients: The clients' ids.

        Returns:
            One location for each client, in the order of ``clients``, or ``None`` for a client that has never listened.
        """

    def locations_now(self, clients: Sequence[str]) -> list[Location | None] | None:
        """Return the result of ``locations`` if reading memory for about 2 ms is enough.

        Args:
            clients: The clients' ids.

        Returns:
            The same as ``locations``, or ``None`` if the caller has to call ``locations`` instead.
        """

    async def ended(self, clients: Sequence[str]) -> list[Ended | None]:
        """Return the subscriptions of each client that have ended.

        A subscription leaves this list when its client subscribes again, or when the store forgets it (``tidy``). The
        store remembers the topics and filters of the latest ``ENDED_MAX`` subscriptions, with at most
        ``ENDED_BYTES_MAX`` bytes of text. For earlier subscriptions it keeps only a count. The count does not fall when
        the client subscribes again.

        Args:
            clients: The clients' ids.

        Returns:
            One entry for each client, in the order of ``clients``, or ``None`` for a client whose subscriptions have
            not ended.
        """


class Registry(Protocol):
    """The endpoints of a cluster, how they find each other, and the settings that they agree on."""

    async def register(self, endpoint: Endpoint) -> None:
        """Write the registry entry of an endpoint that starts. It replaces the entry of any earlier endpoint with this
        name.

        Args:
            endpoint: The entry.
        """

    async def heartbeat(self, endpoint: Endpoint) -> None:
        """Write the entry with its new heartbeat count.

        Args:
            endpoint: The entry.

        Raises:
            Superseded: Another incarnation has registered under the name since.
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

        If several processes record first settings at the same time, they all get the same result in the end. On the
        embedded store, the settings of one process win. On Riak, the result is the strongest settings that they all
        promise. On Riak, a call can also return before the last process has written, so its caller has to call again.

        Args:
            first: The settings to record, as durably as a ``subscribe``, or ``None`` to record nothing.

        Returns:
            The recorded settings, or ``None`` if the store has none.

        Raises:
            ValueError: ``first`` or the recorded value is invalid.
        """

    async def set_settings(self, settings: Settings) -> None:
        """Replace the recorded settings, as durably as a ``subscribe``.

        If two calls run at the same time, one wins for all processes. If two calls on Riak do not see each other's
        write, the result is the strongest settings that both promise.

        Args:
            settings: The new settings.

        Raises:
            ValueError: The settings are invalid.
        """

    async def seen(self, hashes: Sequence[bytes], ttl_s: float) -> list[bool]:
        """Return whether each hash was seen before, and remember it for ``ttl_s`` more seconds.

        Only ``lookup`` routing uses this. The answer is best effort: two endpoints that call at the same time can both
        get ``False``.

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

        A slot's floor is a stamp: from this stamp on, the journal has all messages of the slot. The floor ``VOID`` says
        that no part of the slot is complete. ``VOID`` can replace any stamp, but a stamp replaces ``VOID`` only if the
        slot is in ``whole``.

        A call with at most ``KEEP_BYTES`` of messages is atomic. The store splits a larger call into several writes,
        with the floors in the first write and the removals in the last ones. So after a crash the journal never claims
        to have messages that it lacks. A full store still accepts a call without messages.

        Args:
            retained: The messages. Each replaces any message with the same slot and stamp.
            forgotten: ``(slot, stamp)`` of messages to remove, including messages in ``retained``.
            floors: ``(slot, stamp)``. The store ignores a stamp that is lower than the slot's floor.
            whole: Slots of which the journal has all messages from now on.

        Raises:
            ValueError: A slot or stamp is invalid, or a message is larger than ``RETAINED_BYTES_MAX``. The store has
                written nothing.
        """

    async def retained(
        self, slots: Sequence[int], cursor: str | None, limit: int
    ) -> tuple[list[RetainedMessage], list[tuple[int, int]], str | None]:
        """Return one page of the slots' messages.

        A message that exists while all pages are read appears once. The floors come with the first page and again with
        the last one, because a floor rises when the store forgets messages in between.

        Args:
            slots: The slots to read.
            cursor: The cursor that the previous page returned, or ``None`` for the first page.
            limit: The approximate number of messages to return, at least 1.

        Returns:
            First, the messages, sorted by slot and stamp, with at most ``RETAINED_PAGE_BYTES`` of payloads; a larger
            message is alone in its page. Second, ``(slot, stamp)`` for each slot that has a floor. Third, the cursor of
            the next page, or ``None`` after the last page.

        Raises:
            ValueError: The cursor is invalid.
        """

    async def retained_top(self) -> int:
        """Return the greatest stamp that the journal ever received.

        Returns:
            The greatest stamp of any message, floor, removal or ``reach``, or 0 if there is none.
        """

    async def reach(self, epochs: Sequence[str], stamp: int) -> tuple[list[tuple[str, int]], int]:
        """Record the current epochs, and that endpoints may give clients positions up to ``stamp``.

        Every other epoch that was current until now ends at the greatest stamp that the journal had before this call.

        Args:
            epochs: The current epochs, at least one.
            stamp: The greatest stamp that a position may have.

        Returns:
            The epochs that have ended, each with its last stamp, and the greatest stamp in the journal. Only the
            ``EPOCHS_MAX`` latest ended epochs are included.
        """


class Revocations(Protocol):
    """Revoked tokens."""

    async def revoke(self, batch: Sequence[Revocation]) -> None:
        """Record revocations, as durably as a ``subscribe``.

        Callers can repeat a revocation, and several processes can call this at the same time. If two revocations have
        the same claim and value, the store keeps the later of their times. Each write also removes expired revocations.

        Args:
            batch: The revocations.

        Raises:
            TooManyRevocations: The record would exceed ``REVOCATIONS_MAX`` (``revocations.py``). The store has recorded
                none of the batch.
        """

    async def revocations(self) -> list[Revocation]:
        """Return all recorded revocations.

        The result reflects every ``revoke`` call that has returned, in any process.

        Returns:
            One revocation for each claim and value. Some may have expired.
        """


class Store(Subscriptions, Locations, Registry, Journal, Revocations, Protocol):
    """The whole contract. The module's docstring has the rules that apply to all operations.

    Callers have to check that client ids and topics are valid, and that filters are canonical text.
    """

    shape: Shape

    async def open(self) -> None:
        """Connect, check the layout and get ready.

        Raises:
            StoreMisconfigured: The store cannot be used as it is set up, or has a feature that this version does not
                know (``features.py``). The message says exactly what the operator has to do.
        """

    async def close(self) -> None:
        """Release all resources. Operations that are still running raise ``StoreUnavailable``."""
