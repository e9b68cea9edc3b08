"""What one endpoint may hold, which its operator sets; and how much it does in one go, which nobody has to.

Owns: the names and defaults of these bounds. Must never: hold one that is always the same (it stands in its part).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ingeborg.protocol.messages import PAGE_LIMIT_MAX

#: Of the filters of an endpoint's topics.
FILTER_BYTES: Final = 512 << 20


@dataclass(frozen=True)
class Limits:
    """What an endpoint may hold. Every one is a bound on memory; docs/limits.md has the reasons and the bytes."""

    payload_bytes: int = 1 << 20
    outbox_bytes: int = 16 << 20
    drop_oldest: bool = False  # of a full outbox, instead of closing its connection
    routes_topics: int = 50_000
    routes_ids: int = 2_000_000
    filter_bytes: int = FILTER_BYTES
    locations_clients: int = 500_000
    dedup_keys: int = 1_000_000
    inflight_messages: int = 20_000
    inflight_bytes: int = 64 << 20
    commands_per_s: int = 0  # of one connection; 0: any number
    subscriptions: int = 0  # of one client; 0: any number
    large_bytes: int = 64 << 10  # a longer frame is read away from the loop, which it would keep for 6 ms or more
    held_bytes: int = 1 << 62  # of all connections together
    history_bytes: int = 256 << 20  # of retained messages, as their home and for other homes
    history_size: int = 100  # retained messages of one topic
    history_topics: tuple[tuple[str, int], ...] = ()  # what topics begin with that are kept, and for how many seconds


@dataclass(frozen=True)
class Sizes:
    """How much a part does in one go of what is long, and how much of what it does may wait or be under way at once. A
    test makes them small, to see with a few clients what happens to many."""

    #: Connections that one message goes to in one slice: about 5 ms of writing. Of a long message fewer, by its bytes.
    delivery_slice: int = 500
    #: Messages delivered lately whose ids are remembered; at 20,000/s from other endpoints that is 10 s, twice what an
    #: origin goes on resending,
    recent_max: int = 200_000
    #: and recipients of them in all, at some 100 bytes each.
    recent_clients_max: int = 500_000
    #: Clients of one message that are looked for in one go, in the caches or in the store: 2 to 5 ms.
    clients_per_slice: int = 5_000
    #: Topics whose subscribers one call to the store asks for: 1 ms of reading what is in memory.
    topics_per_read: int = 256
    #: When the recipients of this turn's messages are so many, messages for more than a few wait for another turn:
    #: hundreds may wait for one answer of the store. Some 2 ms.
    places_per_turn: int = 5_000
    #: Recipients of messages for many that are being dispatched at once, some 70 MB of their names at the endpoints
    #: that hold them; the next such message waits.
    recipients_max: int = 1_000_000
    #: Duplicates of one pending message that may wait for its outcome; more than that is a flood, and refused.
    waiters_max: int = 10_000
    #: Dropped payloads that homes have not been told of yet: they are told of 2,000 in 100 ms. Beyond, they are asked.
    again_max: int = 20_000
    #: Ids in the lists of recipients that one endpoint keeps for another. What has more is sent each time.
    list_ids_max: int = 250_000
    #: Keys of the table of duplicates that are looked at in one go: about 2 ms.
    keys_per_slice: int = 2_000
    #: A write of more topics begins and ends in a turn of its own: peers and the store bring hundreds of them together.
    topics_at_once: int = 100
    #: Changes of one client, on all its connections together, that may wait to be counted; more are refused.
    counting_max: int = 1_000
    #: Topics of a client that are read from the store in one go, to count them.
    page_max: int = PAGE_LIMIT_MAX
    #: So much of all that waits behind other commands is begun in one turn, in bytes of frames: a hundred small ones.
    backlog_bytes_per_turn: int = 8 << 10
    #: Clients of a connection that has closed, taken in one slice: some 2 ms. 0: one at a time, none at once.
    closed_per_slice: int = 500
    #: Clients of which it is remembered that they have moved away. More can only be where many connections are not
    #: closed before their clients come back elsewhere.
    moved_max: int = 10_000
    #: Connections that are looked at in one slice, whether their token is revoked: some 1 ms, and 4 where all are.
    looked_at_per_slice: int = 500
    #: And that are closed in one since it has been: the shell's part of it is most, some 3 ms.
    revoked_per_slice: int = 50
    #: Subscribers that are sorted for an operator in one slice: some 2 ms.
    sort_slice: int = 5_000

    #: Clients that are told to go in one batch at least, when the endpoint ends: a hundred need no five seconds.
    told_at_once: int = 20


@dataclass(frozen=True)
class Patience:
    """How long an endpoint waits for others, in seconds. All endpoints of a cluster have the same."""

    #: A peer is dead after this long without a sign of life, on the observer's clock.
    dead_after_s: float = 3.0
    #: How long after a sign of life was given this endpoint may act on it. The gap to ``dead_after_s`` is what clocks
    #: may drift apart and a turn of the loop may take, between the check of the lease and the end of what it allowed.
    lease_s: float = 2.5
    #: How long an orderly end may take to transfer slots, beside the clients' going.
    transfer_s: float = 4.0
    #: How long a client that is told next to go may wait for replies, while nothing more is read of it.
    replies_s: float = 1.0


PATIENCE: Final = Patience()
SIZES: Final = Sizes()
