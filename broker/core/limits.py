"""The limits on one endpoint's memory, which its operator can set, and its batch sizes, which are not configurable.

Owns: the names and defaults of these limits. Must never: hold a limit that never changes (it is a constant of its
part).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ingeborg.protocol.messages import PAGE_LIMIT_MAX

#: Maximum bytes of the filters that an endpoint keeps for its topics.
FILTER_BYTES: Final = 512 << 20


@dataclass(frozen=True)
class Limits:
    """Limits on an endpoint's memory. docs/limits.md explains each limit and its cost in bytes."""

    payload_bytes: int = 1 << 20
    outbox_bytes: int = 16 << 20
    drop_oldest: bool = False  # drop a full outbox's oldest frames instead of closing its connection
    routes_topics: int = 50_000
    routes_ids: int = 2_000_000
    filter_bytes: int = FILTER_BYTES
    locations_clients: int = 500_000
    dedup_keys: int = 1_000_000
    inflight_messages: int = 20_000
    inflight_bytes: int = 64 << 20
    commands_per_s: int = 0  # per connection; 0 if there is no limit
    subscriptions: int = 0  # per client; 0 if there is no limit
    large_bytes: int = 64 << 10  # another process reads longer frames, which takes 6 ms or more
    held_bytes: int = 1 << 62  # for all connections together
    history_bytes: int = 256 << 20  # for retained messages, including those that this endpoint holds as a replica
    history_size: int = 100  # the number of retained messages of one topic
    # (prefix, seconds): messages of topics with this prefix are retained for this many seconds
    history_topics: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True)
class Sizes:
    """The sizes of slices of long work, and limits on how much work can wait or run at the same time. Tests use small
    values, so that they need only a few clients."""

    #: Number of connections to write one message to in one slice, which takes about 5 ms. Long messages are written to
    #: fewer connections per slice, depending on their size.
    delivery_slice: int = 500
    #: Number of recently delivered messages whose ids to remember. At 20,000 messages per second from other endpoints,
    #: this covers 10 s, twice the time for which an origin resends a message.
    recent_max: int = 200_000
    #: Total number of recipients to remember for these recently delivered messages, at about 100 bytes each.
    recent_clients_max: int = 500_000
    #: Number of one message's recipients to look up in one slice, in the caches or in the store. This takes 2 to 5 ms.
    clients_per_slice: int = 5_000
    #: Number of topics whose subscribers one store call reads. This takes 1 ms if they are in memory.
    topics_per_read: int = 256
    #: Maximum number of recipients to look up in one turn, which takes about 2 ms. Beyond this number, messages with
    #: more than a few recipients wait for another turn. Without this limit, one answer of the store could let hundreds
    #: of messages continue at the same time.
    places_per_turn: int = 5_000
    #: Maximum total number of recipients of all messages in dispatch that have many recipients. The recipients' names
    #: take about 70 MB at the endpoints that hold them. Beyond this number, the next message with many recipients
    #: waits.
    recipients_max: int = 1_000_000
    #: Maximum number of duplicates of one pending message that can wait for its outcome. Further duplicates are
    #: refused, because such a number is a flood.
    waiters_max: int = 10_000
    #: Maximum number of duplicate payloads that an endpoint has dropped and has yet to report to their homes. It
    #: reports 2,000 payloads every 100 ms. Beyond this number, the endpoint drops no further duplicates, but sends them
    #: to their homes.
    again_max: int = 20_000
    #: Maximum number of ids in all recipient lists that one endpoint stores for another. Lists that do not fit are sent
    #: with each message.
    list_ids_max: int = 250_000
    #: Number of keys in the table of duplicates to check in one slice, which takes about 2 ms.
    keys_per_slice: int = 2_000
    #: A write of more topics than this begins and ends in jobs, which run in later turns, because hundreds of writes
    #: can arrive at the same time.
    topics_at_once: int = 100
    #: Maximum number of one client's subscription changes, on all its connections together, that can wait until its
    #: subscriptions have been counted. Further changes are refused.
    counting_max: int = 1_000
    #: Number of a client's topics to read in one store call when the endpoint counts them.
    page_max: int = PAGE_LIMIT_MAX
    #: Bytes of waiting frames whose commands begin in one turn. This corresponds to about a hundred small frames.
    backlog_bytes_per_turn: int = 8 << 10
    #: Number of a closed connection's clients to remove in one slice, which takes about 2 ms. With 0, a job removes
    #: them one at a time.
    closed_per_slice: int = 500
    #: Maximum number of clients to remember as moved away. More clients would matter only if old connections stayed
    #: open after their clients had reconnected elsewhere.
    moved_max: int = 10_000
    #: Number of connections to check for revoked tokens in one slice. This takes about 1 ms, or 4 ms if all are
    #: revoked.
    looked_at_per_slice: int = 500
    #: Number of connections to close in one slice because their tokens are revoked. This takes about 3 ms, mostly in
    #: the shell.
    revoked_per_slice: int = 50
    #: Number of subscribers to sort in one slice when an operator lists them. This takes about 2 ms.
    sort_slice: int = 5_000

    #: The smallest batch of clients to disconnect at shutdown, so that disconnecting a hundred clients does not take
    #: five seconds.
    told_at_once: int = 20


@dataclass(frozen=True)
class Patience:
    """How long an endpoint waits for other endpoints, in seconds. All endpoints of a cluster use the same values."""

    #: A peer counts as dead after this long without a sign of life, by the observer's clock.
    dead_after_s: float = 3.0
    #: An endpoint can act as a home for this long after its last sign of life. The difference between this time and
    #: ``dead_after_s`` covers the drift between clocks. It also covers the time from the check of the lease to the end
    #: of the action in the same turn.
    lease_s: float = 2.5
    #: The time limit for transferring slots in an orderly shutdown, in addition to the time for disconnecting clients.
    transfer_s: float = 4.0
    #: How long the endpoint waits at shutdown for a client's outstanding replies before it disconnects the client. It
    #: reads nothing more from the client meanwhile.
    replies_s: float = 1.0


PATIENCE: Final = Patience()
SIZES: Final = Sizes()
