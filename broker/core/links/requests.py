"""The requests that endpoints send each other. Each kind has a record, which also defines the type of its answer.

Owns: the fields, their limits, and their meaning. Must never: act, or know how a link transports a record.

A field's type defines its valid values, and ``msgspec`` checks every record that arrives over a link against these
types (``frames``). A record is encoded as an array of its tag and its fields. A receiver ignores unknown fields at the
end. A sender may omit fields at the end that have a default. A new field must therefore come last and have a default.

This module is not compiled, because mypyc cannot compile a ``msgspec`` record (``ingeborg.form``).
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Final, Literal

from msgspec import UNSET, Meta, Struct
from msgspec.msgpack import Decoder

from ingeborg.protocol.bounds import ITEM_BYTES_MAX, WEIGHT_MAX
from ingeborg.protocol.hashes import HASH_BYTES, SLOTS

from ..dedup.dedup import KEY_BYTES
from ..model import JTI, SUB

#: The greatest depth of nested lists and objects in figures.
FIGURES_DEEP: Final = 8

NotNegative = Annotated[int, Meta(ge=0)]

Stamp = Annotated[int, Meta(ge=0, lt=1 << 62)]
"""The stamp of a retained message (``retained.clock.STAMPS_END``)."""

Slot = Annotated[int, Meta(ge=0, lt=SLOTS)]
"""A topic's slot."""

Key = Annotated[bytes, Meta(min_length=KEY_BYTES, max_length=KEY_BYTES)]
"""A key of the table of duplicates (``dedup``)."""

Hash = Annotated[bytes, Meta(min_length=HASH_BYTES, max_length=HASH_BYTES)]
"""A key of the table of duplicates, without the slot that is a part of the key (``dedup.hash_of_key``)."""

SlotBits = Annotated[bytes, Meta(min_length=SLOTS // 8, max_length=SLOTS // 8)]
"""A set of slots, with one bit for each slot of the cluster (``cluster.slots.pack_slots``)."""

Claim = Annotated[str, Meta(pattern=rf"^({JTI}|{SUB})\Z")]
"""Identifies the tokens that a revocation revokes."""

Name = tuple[str, int]
"""The unique name of a message in the cluster: the incarnation of its origin, and a number that the origin chose."""

Known = float | str
"""An endpoint's knowledge of a key in the table of duplicates. A number is the time in seconds until the key expires; 0
tells the receiver to forget the key. A string is the incarnation of a home that is still dispatching the key's
message."""

KeptRow = tuple[str, bytes, str, int, Stamp]
"""A retained message: its topic, payload, origin's incarnation, number at the origin, and stamp."""


def _json() -> Any:
    """Return the type of the JSON values in a reply to a client, nested to a bounded depth."""
    scalar = None | bool | int | float | str
    deeper: Any = scalar
    for _ in range(FIGURES_DEEP - 1):
        deeper = scalar | list[deeper] | dict[str, deeper]
    return deeper


_FIGURES: Final[Any] = dict[str, _json()]  # type: ignore[misc]


class Request(Struct, array_like=True, gc=False):
    """A request. ``answer`` decodes the value of the request's answer. Most kinds of requests have answers without a
    value. ``usual`` is the most frequent value, and ``UNSET`` if there is none. A receiver can give the usual answer to
    many requests in one record (``frames.UsualAnswers``)."""

    answer: ClassVar[Decoder[Any]] = Decoder(None)
    usual: ClassVar[Any] = None


class ForBounds(Struct, array_like=True, gc=False):
    """A message's item and weight, for subscribers with bounds, and whether it is retained. If a message has ``None``
    in place of this record, all three have their default values."""

    item: Annotated[str, Meta(min_length=1, max_length=ITEM_BYTES_MAX)] | None = None
    weight: Annotated[float, Meta(ge=0, le=WEIGHT_MAX)] = 1.0
    is_kept: bool = False


class Carried(Struct, array_like=True, gc=False):
    """A message as a part of a request (see ``carrying``)."""

    topic: str  # empty for a broadcast
    payload: bytes
    origin: str  # the incarnation of the publisher's endpoint
    number: int  # the number that the origin gave the message
    said: ForBounds | None = None


class PublishRequest(Request, tag=1):
    """An origin asks the home of a topic to dispatch a message. A home also sends this request to a former home that is
    still dispatching a message with the same key.

    The receiver answers whether the message was a duplicate. The answer ``RETAINED`` means that the receiver has
    dispatched the message and retains it. If the receiver has dispatched the message under another name, its answer
    says whether it retains the message, and gives the name.
    """

    answer = Decoder(bool | Literal["kept"] | tuple[bool, str, int])
    usual = False

    message: Carried
    key: Key | None  # the message's key in the table of duplicates; None if there is no duplicate check
    again: bool = False  # the sender has sent this request to another endpoint before
    keep_s: NotNegative = 0  # the time to retain the message, in seconds; 0 if it is not retained
    can_wait: bool = False  # the usual answer can wait (``Desk.answer_later``)


class ChangeRequest(Request, tag=2):
    """An endpoint asks the home of some topics to change the subscriptions of one of its clients.

    A removal can be limited to one filter. An addition can also specify when the subscription ends, and whether it
    replaces the client's other subscriptions.
    """

    client: str
    topics: list[str]
    added: bool
    filter: str | None = None  # the filter's canonical text
    until_disconnect: bool = False  # the subscription ends when the client disconnects
    ttl_s: NotNegative = 0  # the subscription ends after this time, in seconds; 0 if it does not end
    replace: bool = False  # the subscription replaces all subscriptions of the client to these topics

    def __post_init__(self) -> None:
        """Raise ``ValueError`` if a removal has fields that only an addition can have."""
        if not self.added and (self.until_disconnect or self.ttl_s or self.replace):
            raise ValueError("a removal has no term, and replaces nothing")


class DeliverRequest(Request, tag=3):
    """A home sends a message to an endpoint, for clients that listen there. The endpoint answers with the clients that
    do not listen there."""

    answer = Decoder(list[str])
    usual: ClassVar[list[str]] = []

    message: Carried
    clients: list[str]
    can_wait: bool = False  # the usual answer can wait (``Desk.answer_later``)


class DeliverToListRequest(Request, tag=4):
    """A ``DeliverRequest`` for many clients. The home sends the list of clients once and then refers to it in many
    messages. A list is valid on one link only. If the message has to go over another link, ``Desk.ask`` sends a
    ``DeliverRequest``."""

    answer = DeliverRequest.answer
    usual = DeliverRequest.usual

    message: Carried
    list_name: str
    clients: list[str] | None  # the list to store under ``list_name``; None if the stored list is to be used
    can_wait: bool = False  # the usual answer can wait (``Desk.answer_later``)


class BroadcastRequest(Request, tag=5):
    """The home of broadcasts asks every endpoint to deliver a broadcast to all its clients. The endpoint answers with
    the clients that moved away recently, and how many seconds ago each one moved."""

    answer = Decoder(list[tuple[str, float]])
    usual: ClassVar[list[tuple[str, float]]] = []

    message: Carried


class ListenRequest(Request, tag=6):
    """An endpoint tells every peer where clients listen now, or that they have stopped listening."""

    news: list[tuple[str, int, str, bool]]  # each client's id, and the fields of the client's ``Location``


class JoinRequest(Request, tag=7):
    """An endpoint asks every peer to let it in.

    If the peer has acted without the newcomer since it last let the newcomer in, its answer is the number of its first
    replica to the newcomer that is not outdated. Otherwise the answer is 0.
    """

    answer = Decoder(int)
    usual = UNSET

    round: int  # the number of the newcomer's attempt to join


class LeaveRequest(Request, tag=8):
    """An endpoint tells every peer that it is leaving."""


class SeenRequest(Request, tag=9):
    """A former home or an origin tells a home which keys of payloads the sender knows."""

    keys: list[tuple[Slot, Hash, Known]]


class FiguresRequest(Request, tag=10):
    """An endpoint asks a peer for the peer's figures, because an operator has requested them."""

    answer = Decoder(_FIGURES)
    usual = UNSET


class PrepareRequest(Request, tag=11):
    """A newcomer asks every peer for replicas of the slots whose home the newcomer will be. The peer answers whether it
    has sent them."""

    answer = Decoder(bool)
    usual = UNSET


class ReplicaBeginsRequest(Request, tag=12):
    """A home tells the next home that it begins a replica, or that the replica contains fewer slots from now on."""

    replica: int  # the replica's number among the sender's replicas
    slots: SlotBits | None  # the replica's slots; None if the replica has ended
    at: float = 0.0  # when the replica began, by the sender's clock, in Unix seconds
    for_failover: bool = False  # the receiver uses the replica if the sender crashes
    fewer: bool = False  # the replica exists already, and loses slots
    lapsed: bool = False  # the sender was not acting as a home at that time, so its state may be outdated
    giver: str = ""  # the incarnation from which the sender got these slots, which it passes on


class ReplicaChunkRequest(Request, tag=13):
    """A home sends the next home a part of a replica's data."""

    replica: int
    state: str  # the name of the kind of state
    data: bytes  # encoded by the state


class ReplicaSentRequest(Request, tag=14):
    """A home asks the next home whether all data of a replica sent so far has arrived."""

    answer = Decoder(bool)
    usual = UNSET

    replica: int
    keys: int  # the number of keys sent in total
    final: bool  # the sender has given up the slots, and sends nothing more


class RevokedRequest(Request, tag=15):
    """An endpoint tells every peer which revocations of tokens it has stored."""

    revocations: list[tuple[Claim, str, int, int]]  # the fields of ``Revocation``


class WatermarkRequest(Request, tag=16):
    """An endpoint tells every peer its watermark once a second."""

    watermark: Annotated[int, Meta(ge=-1)]  # -1 if the sender does not act yet
    clock: Stamp
    epochs: list[str]
    missed: list[str] | None  # the receiver's clients that missed messages; None if any client may have missed some
    count: int  # the number of endpoints in the sender's view, including the sender

    def __post_init__(self) -> None:
        """Raise ``ValueError`` if the watermark is ahead of the clock."""
        if self.watermark > self.clock:
            raise ValueError("a watermark is a stamp that the clock has passed")


class HistoryPage(Struct, array_like=True, gc=False):
    """One page of the messages that a client missed at a home. A ``FetchRequest`` returns the next page."""

    number: int  # the answer's number, for a ``FetchRequest``; 0 on the last page; -1 if the home left out the rest
    rows: list[KeptRow]
    gap_topics: list[str]  # topics from which messages may be missing
    gap_slots: list[Slot]  # slots from whose topics messages may be missing
    covered: SlotBits | None  # the slots that the home has searched; None if the request named the topics
    watermark: int  # the home's watermark at the time of the search


class HistoryRequest(Request, tag=17):
    """An endpoint asks a home for the messages that a client has missed."""

    answer = Decoder(HistoryPage)
    usual = UNSET

    client: str
    since: int  # return messages with greater stamps than this one
    topics: list[str] | None  # the topics; None for all topics of the client, because they are too many to list
    latest: NotNegative = 0  # if not 0, return only this many latest messages of each topic
    name: Name | None = None  # if not None, return the messages after the message with this name
    limit: NotNegative = 0  # if not 0, return a single page with at most this many messages


class FetchRequest(Request, tag=18):
    """An endpoint asks a home for the next page of the messages that a client has missed."""

    answer = HistoryRequest.answer
    usual = UNSET

    number: int  # the number in the previous page


AnyRequest = (
    PublishRequest
    | ChangeRequest
    | DeliverRequest
    | DeliverToListRequest
    | BroadcastRequest
    | ListenRequest
    | JoinRequest
    | LeaveRequest
    | SeenRequest
    | FiguresRequest
    | PrepareRequest
    | ReplicaBeginsRequest
    | ReplicaChunkRequest
    | ReplicaSentRequest
    | RevokedRequest
    | WatermarkRequest
    | HistoryRequest
    | FetchRequest
)

REFUSAL: Final[Decoder[str | tuple[str, dict[str, Any]]]] = Decoder(str | tuple[str, _FIGURES])
"""The value of a refusal: a text, or a text with further fields for the reply to the client."""
