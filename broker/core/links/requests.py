"""The requests between endpoints: a record for each kind, and the form of its answer.

Owns: the fields, their limits, and their meaning. Must never: act, or know how a record travels.

Each field's type is its rule, and ``msgspec`` enforces it for everything that arrives over a link (``frames``). A
record is the array of its tag and its fields. A receiver ignores unknown fields at the end. A sender can leave out
fields at the end that have a default. So a new field goes to the end, with a default.

mypyc compiles no ``msgspec`` record, so this module is not compiled (``ingeborg.form``).
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Final, Literal

from msgspec import Meta, Struct
from msgspec.msgpack import Decoder

from ingeborg.protocol.bounds import ITEM_BYTES_MAX, WEIGHT_MAX
from ingeborg.protocol.hashes import HASH_BYTES, SLOTS

from ..model import JTI, SUB

#: Limits how deeply lists and objects nest in figures.
FIGURES_DEEP: Final = 8

NotNegative = Annotated[int, Meta(ge=0)]

Stamp = Annotated[int, Meta(ge=0, lt=1 << 62)]
"""The stamp of a retained message (``retained.clock.STAMPS_END``)."""

Slot = Annotated[int, Meta(ge=0, lt=SLOTS)]
"""A topic's slot."""

Hash = Annotated[bytes, Meta(min_length=HASH_BYTES, max_length=HASH_BYTES)]
"""A key without its slot (``dedup.hash_of_key``)."""

SlotBits = Annotated[bytes, Meta(min_length=SLOTS // 8, max_length=SLOTS // 8)]
"""A set of slots, a bit for each (``cluster.slots.pack_slots``)."""

Claim = Annotated[str, Meta(pattern=rf"^({JTI}|{SUB})\Z")]
"""The name of a token in a revocation."""

Name = tuple[str, int]
"""A message's name in the cluster: its origin's incarnation, and a number that the origin gave it."""

Known = float | str
"""An endpoint's knowledge of a key: the remaining seconds of its time (0: forget it), or the incarnation of the home
that is still dispatching its message."""

KeptRow = tuple[str, bytes, str, int, Stamp]
"""A retained message: topic, payload, origin's incarnation and number, stamp."""


def _json() -> Any:
    """Return the type of the values in a reply to a client, with a bounded depth."""
    scalar = None | bool | int | float | str
    deeper: Any = scalar
    for _ in range(FIGURES_DEEP - 1):
        deeper = scalar | list[deeper] | dict[str, deeper]
    return deeper


_FIGURES: Final[Any] = dict[str, _json()]  # type: ignore[misc]


class Request(Struct, array_like=True, gc=False):
    """A request. ``answer`` decodes the value of an answer; most answers have none."""

    answer: ClassVar[Decoder[Any]] = Decoder(None)


class ForBounds(Struct, array_like=True, gc=False):
    """A message's item, weight and retention, for subscribers with bounds. ``None`` stands for the defaults."""

    item: Annotated[str, Meta(min_length=1, max_length=ITEM_BYTES_MAX)] | None = None
    weight: Annotated[float, Meta(ge=0, le=WEIGHT_MAX)] = 1.0
    is_kept: bool = False


class Carried(Struct, array_like=True, gc=False):
    """A message, as requests carry it (``carrying``)."""

    topic: str  # "": a broadcast
    payload: bytes
    origin: str  # incarnation of its publisher's endpoint
    number: int  # the origin's number for it
    said: ForBounds | None = None


class PublishRequest(Request, tag=1):
    """An origin asks the home of a topic to dispatch a message. A home asks a former home that is still dispatching a
    message with the same key.

    The home answers whether the message was a duplicate, or ``RETAINED``: it dispatched the message, and retains it.
    """

    answer = Decoder(bool | Literal["kept"])

    message: Carried
    hashed: Hash | None  # forms the message's key, with the topic's slot; None: do not check for duplicates
    again: bool = False  # the sender has sent this request to another endpoint before
    keep_s: NotNegative = 0  # how long to retain the message, in seconds; 0: it is not retained


class ChangeRequest(Request, tag=2):
    """An endpoint asks the home of some topics to change the subscriptions of one of its clients.

    A removal can name a filter. An addition can also say when it ends, and whether it replaces everything else.
    """

    client: str
    topics: list[str]
    added: bool
    filter: str | None = None  # in canonical text
    until_disconnect: bool = False  # it ends when the client disconnects
    ttl_s: NotNegative = 0  # it ends after these seconds; 0: it does not
    replace: bool = False  # it replaces all subscriptions of the client at these topics

    def __post_init__(self) -> None:
        """Raise ``ValueError`` if a removal has fields that only an addition can have."""
        if not self.added and (self.until_disconnect or self.ttl_s or self.replace):
            raise ValueError("a removal has no term, and replaces nothing")


class DeliverRequest(Request, tag=3):
    """A home dispatches a message to an endpoint, for clients there. The endpoint answers which clients it does not
    hold."""

    answer = Decoder(list[str])

    message: Carried
    clients: list[str]


class DeliverToListRequest(Request, tag=4):
    """A ``DeliverRequest`` for many clients, which a home lists once for many messages. A list is valid on one link
    only, so for any other link a home turns it into a ``DeliverRequest`` (``Desk.ask``)."""

    answer = DeliverRequest.answer

    message: Carried
    list_name: str
    clients: list[str] | None  # keep them under that name; None: use those kept under it


class BroadcastRequest(Request, tag=5):
    """The home of broadcasts asks every endpoint to deliver one to all its clients. The endpoint answers which clients
    moved away lately, and how many seconds ago."""

    answer = Decoder(list[tuple[str, float]])

    message: Carried


class ListenRequest(Request, tag=6):
    """An endpoint tells every peer where clients listen now, or that they stopped."""

    news: list[tuple[str, int, str, bool]]  # the client, and the fields of its ``Location``


class JoinRequest(Request, tag=7):
    """An endpoint asks every peer to let it in.

    A peer answers 0. If the peer has acted without the newcomer since it last let it in, it answers the number of its
    first replica to the newcomer since then.
    """

    answer = Decoder(int)

    round: int  # the join round


class LeaveRequest(Request, tag=8):
    """An endpoint tells every peer that it leaves."""


class SeenRequest(Request, tag=9):
    """A former home, or an origin, tells a home about payloads."""

    keys: list[tuple[Slot, Hash, Known]]


class FiguresRequest(Request, tag=10):
    """An endpoint asks a peer for its figures when an operator wants to see them. The peer answers with its own."""

    answer = Decoder(_FIGURES)


class PrepareRequest(Request, tag=11):
    """A newcomer asks every peer for replicas of its future slots. The peer answers whether it has replicated them."""

    answer = Decoder(bool)


class ReplicaBeginsRequest(Request, tag=12):
    """A home tells the next home that it begins a replica, or that the replica has fewer slots from now on."""

    replica: int  # its number among the sender's replicas
    slots: SlotBits | None  # None: the replica has ended
    at: float = 0.0  # when it began, by the sender's clock, in Unix seconds
    for_failover: bool = False  # the sender makes it in case it crashes
    fewer: bool = False  # the replica began before
    lapsed: bool = False  # the sender has not acted for a while
    giver: str = ""  # the incarnation that gave these slots to the sender, which passes them on


class ReplicaChunkRequest(Request, tag=13):
    """A home sends the next home a part of a replica."""

    replica: int
    state: str  # the state's name
    data: bytes  # packed by the state


class ReplicaSentRequest(Request, tag=14):
    """A home asks the next home whether all of a replica has arrived."""

    answer = Decoder(bool)

    replica: int
    keys: int  # keys sent in all
    final: bool  # the slots have gone, and nothing follows


class RevokedRequest(Request, tag=15):
    """An endpoint tells every peer which revocations of tokens it has recorded."""

    revocations: list[tuple[Claim, str, int, int]]  # the fields of ``Revocation``


class WatermarkRequest(Request, tag=16):
    """An endpoint tells every peer its watermark once a second."""

    watermark: Annotated[int, Meta(ge=-1)]  # -1: it does not act yet
    clock: Stamp
    epochs: list[str]
    missed: list[str] | None  # the receiver's clients that missed messages; None: any client can have
    count: int  # participating endpoints in the sender's view

    def __post_init__(self) -> None:
        """Raise ``ValueError`` if the watermark is ahead of the clock."""
        if self.watermark > self.clock:
            raise ValueError("a watermark is a stamp that the clock has passed")


class HistoryPage(Struct, array_like=True, gc=False):
    """A page of the messages that a client missed at a home; a ``FetchRequest`` brings the next page."""

    number: int  # fetches the rest; 0: the page is the last; -1: the home cut the rest
    rows: list[KeptRow]
    gap_topics: list[str]  # topics with a gap
    gap_slots: list[Slot]  # slots with a gap
    covered: SlotBits | None  # the page's slots; None: those of the requested topics
    watermark: int  # the home's, at the time of the look-up


class HistoryRequest(Request, tag=17):
    """An endpoint asks a home for the messages that one of its clients missed."""

    answer = Decoder(HistoryPage)

    client: str
    since: int  # stamp
    topics: list[str] | None  # the client's topics; None: too many to name
    latest: NotNegative = 0  # this many latest messages of each topic instead; 0: all since
    name: Name | None = None  # start after this message instead
    limit: NotNegative = 0  # the most messages, in one page; 0: all, in pages


class FetchRequest(Request, tag=18):
    """An endpoint asks a home for the next page of the messages that a client missed."""

    answer = HistoryRequest.answer

    number: int  # the previous page's number


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
"""The value of a refusal: a text, and possibly further fields of the reply to the client."""
