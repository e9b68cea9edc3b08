"""The bounds on one endpoint's memory, which its operator sets; and its batch sizes, which need no setting.

Owns: the names and defaults of these bounds. Must never: hold a bound that is always the same (it stands in its part).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ingeborg.protocol.messages import PAGE_LIMIT_MAX

#: Bytes of filters that an endpoint keeps for its topics.
FILTER_BYTES: Final = 512 << 20


@dataclass(frozen=True)
class Limits:
    """Bounds on an endpoint's memory. docs/limits.md has the reasons and the bytes."""

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
    commands_per_s: int = 0  # per connection; 0: any number
    subscriptions: int = 0  # per client; 0: any number
    large_bytes: int = 64 << 10  # the loop would take 6 ms or more to read a longer frame, so a separate reader does
    held_bytes: int = 1 << 62  # all connections together
    history_bytes: int = 256 << 20  # retained messages, as their home and as another home's replica
    history_size: int = 100  # retained messages of one topic
    # (prefix, seconds): messages of topics with this prefix are retained for that long
    history_topics: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True)
class Sizes:
    """The size of one slice of long work, and how much work can wait or run at once. Tests make these small, to see
    with a few clients what happens to many."""

    #: Connections that one message goes to in one slice: about 5 ms of writing. Longer messages go to fewer, by their
    #: bytes.
    delivery_slice: int = 500
    #: Ids of recently delivered messages to remember. At 20,000/s from other endpoints that is 10 s, twice as long as
    #: an origin resends.
    recent_max: int = 200_000
    #: Recipients of these messages to remember in total, at some 100 bytes each.
    recent_clients_max: int = 500_000
    #: Clients of one message to look up in one slice, in the caches or in the store: 2 to 5 ms.
    clients_per_slice: int = 5_000
    #: Topics whose subscribers one call to the store asks for: 1 ms of reading from memory.
    topics_per_read: int = 256
    #: When this turn's messages have more recipients than this, messages to more than a few wait for another turn,
    #: since hundreds can wait for one answer of the store. Some 2 ms.
    places_per_turn: int = 5_000
    #: Recipients of large messages in dispatch at once: some 70 MB of names at the endpoints that hold them. The next
    #: such message waits.
    recipients_max: int = 1_000_000
    #: Duplicates of one pending message that can wait for its outcome. More would be a flood, and are refused.
    waiters_max: int = 10_000
    #: Dropped payloads to report to homes: an endpoint reports 2,000 in 100 ms. Beyond this bound it asks the homes.
    again_max: int = 20_000
    #: Ids in the lists of recipients that one endpoint keeps for another. It receives longer lists with each message.
    list_ids_max: int = 250_000
    #: Keys of the table of duplicates to check in one slice: about 2 ms.
    keys_per_slice: int = 2_000
    #: Writes of more topics than this begin and end in a separate turn, since peers and the store bring hundreds at
    #: once.
    #:
    topics_at_once: int = 100
    #: Changes of one client, on all its connections together, that can wait to be counted. More are refused.
    counting_max: int = 1_000
    #: Topics of a client to read from the store in one go, to count them.
    page_max: int = PAGE_LIMIT_MAX
    #: Bytes of waiting frames to begin in one turn: a hundred small ones.
    backlog_bytes_per_turn: int = 8 << 10
    #: Clients of a closed connection to remove in one slice: some 2 ms. 0: one at a time, none at once.
    closed_per_slice: int = 500
    #: Clients to remember as moved away. Only connections that stay open after their clients have returned elsewhere
    #: can need more.
    moved_max: int = 10_000
    #: Connections to check for revoked tokens in one slice: some 1 ms, and 4 ms if all are revoked.
    looked_at_per_slice: int = 500
    #: Revoked connections to close in one slice: mostly the shell's work, some 3 ms.
    revoked_per_slice: int = 50
    #: Subscribers to sort for an operator in one slice: some 2 ms.
    sort_slice: int = 5_000

    #: The smallest batch of clients to send away when the endpoint ends: a hundred clients do not need five seconds.
    told_at_once: int = 20


@dataclass(frozen=True)
class Patience:
    """How long an endpoint waits for others, in seconds. All endpoints of a cluster use the same values."""

    #: A peer is dead after this long without a sign of life, on the observer's clock.
    dead_after_s: float = 3.0
    #: This endpoint can act for this long after it gave a sign of life. The gap to ``dead_after_s`` covers the drift
    #: between clocks, and the turn of the loop between the check of the lease and the end of the action.
    lease_s: float = 2.5
    #: The time limit of an orderly end for transferring slots, in addition to the time for sending clients away.
    transfer_s: float = 4.0
    #: How long a client in the next batch to send away can wait for replies. The endpoint reads nothing more from it
    #: meanwhile.
    replies_s: float = 1.0


PATIENCE: Final = Patience()
SIZES: Final = Sizes()
