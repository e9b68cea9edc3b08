"""What one endpoint may ask another: a record for each kind of request, and the form of its answer.

Owns: the fields, what each may be, and what they mean. Must never: act, or know how a record travels.

Each field's rule is its type, and ``msgspec`` holds what comes over a link to it (``frames``). A record is the array of
its tag and its fields. A receiver passes over fields at the end that it does not know. A sender may leave out fields at
the end that have a default. So a new field goes to the end, with a default.

mypyc compiles no ``msgspec`` record, so this module is not compiled (``ingeborg.form``).
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Final, Literal

from msgspec import Meta, Struct
from msgspec.msgpack import Decoder

from ingeborg.protocol.hashes import HASH_BYTES, SLOTS

from ..model import JTI, SUB

#: Figures have no more lists and objects within one another.
FIGURES_DEEP: Final = 8

NotNegative = Annotated[int, Meta(ge=0)]

Stamp = Annotated[int, Meta(ge=0, lt=1 << 62)]
"""Of a retained message (``retained.clock.STAMPS_END``)."""

Slot = Annotated[int, Meta(ge=0, lt=SLOTS)]
"""A topic's slot."""

Hash = Annotated[bytes, Meta(min_length=HASH_BYTES, max_length=HASH_BYTES)]
"""A key without its slot (``dedup.hash_of_key``)."""

SlotBits = Annotated[bytes, Meta(min_length=SLOTS // 8, max_length=SLOTS // 8)]
"""A set of slots, a bit for each (``cluster.slots.pack_slots``)."""

Claim = Annotated[str, Meta(pattern=rf"^({JTI}|{SUB})\Z")]
"""What a revocation names a token by."""

Name = tuple[str, int]
"""What a message is known by in the cluster: its origin's incarnation, and a number of the origin's."""

Known = float | str
"""What an endpoint knows of a key: the seconds that are left of its time (0: forget it), or the incarnation of the home
that is still dispatching its message."""

KeptRow = tuple[str, bytes, str, int, Stamp]
"""A retained message: topic, payload, origin's incarnation and number, stamp."""


def _json() -> Any:
    """The type of what a client can be told, with a bounded depth."""
    scalar = None | bool | int | float | str
    deeper: Any = scalar
    for _ in range(FIGURES_DEEP - 1):
        deeper = scalar | list[deeper] | dict[str, deeper]
    return deeper


_FIGURES: Final[Any] = dict[str, _json()]  # type: ignore[misc]


class Request(Struct, array_like=True, gc=False):
    """A request. ``answer``: decodes the value that answers one; most are answered with nothing."""

    answer: ClassVar[Decoder[Any]] = Decoder(None)


class Carried(Struct, array_like=True, gc=False):
    """A message, as every request has it that carries one (``carrying``)."""

    topic: str  # "": a broadcast
    payload: bytes
    origin: str  # incarnation of the endpoint that its publisher is connected to
    number: int  # of the origin's


class PublishRequest(Request, tag=1):
    """An origin asks the home of a topic to dispatch a message. A home asks a former one that is still dispatching a
    message with the same key.

    The home answers whether it was a duplicate, or ``RETAINED``: it has dispatched the message, and retains it.
    """

    answer = Decoder(bool | Literal["kept"])

    message: Carried
    hashed: Hash | None  # with the topic's slot the key of the message; None: do not check for duplicates
    again: bool = False  # the sender has asked another endpoint for it before
    keep_s: NotNegative = 0  # how long to keep the message, in seconds; 0: it is not retained


class ChangeRequest(Request, tag=2):
    """An endpoint asks the home of some topics to change what one client of its own has subscribed to.

    A removal may name a filter. An addition may also say when it ends, and whether it replaces everything else.
    """

    client: str
    topics: list[str]
    added: bool
    filter: str | None = None  # in canonical text
    until_disconnect: bool = False  # it ends when the client has disconnected
    ttl_s: NotNegative = 0  # it ends after so many seconds; 0: it does not
    replace: bool = False  # it replaces all that the client has at these topics

    def __post_init__(self) -> None:
        """Raises ``ValueError``: a removal says what only an addition may."""
        if not self.added and (self.until_disconnect or self.ttl_s or self.replace):
            raise ValueError("a removal has no term, and replaces nothing")


class DeliverRequest(Request, tag=3):
    """A home dispatches a message to an endpoint, for clients there. The endpoint answers which of them it does not
    hold."""

    answer = Decoder(list[str])

    message: Carried
    clients: list[str]


class DeliverToListRequest(Request, tag=4):
    """As ``DeliverRequest``, for many clients, which a home names once for many messages. A list means something over
    one link only, so a home makes a ``DeliverRequest`` of it for any other (``Desk.ask``)."""

    answer = DeliverRequest.answer

    message: Carried
    list_name: str
    clients: list[str] | None  # keep them under that name; None: those that the receiver has kept under it


class BroadcastRequest(Request, tag=5):
    """The home of broadcasts asks every endpoint to give one to all clients there. The endpoint answers which clients
    have moved away lately, and how many seconds ago."""

    answer = Decoder(list[tuple[str, float]])

    message: Carried


class ListenRequest(Request, tag=6):
    """An endpoint tells every peer where clients listen now, or that they do not any more."""

    news: list[tuple[str, int, str, bool]]  # client, and the fields of its ``Location``


class JoinRequest(Request, tag=7):
    """An endpoint asks every peer to let it in. A peer answers 0; or, where it has acted without the asking endpoint
    since it last let that in, the number of its first replica to it that is no older than that."""

    answer = Decoder(int)

    round: int  # of joining


class LeaveRequest(Request, tag=8):
    """An endpoint tells every peer that it leaves."""


class SeenRequest(Request, tag=9):
    """A former home, or an origin, tells a home what it knows of payloads."""

    keys: list[tuple[Slot, Hash, Known]]


class FiguresRequest(Request, tag=10):
    """An endpoint asks any peer for its figures, for an operator. The peer answers with what it says of itself."""

    answer = Decoder(_FIGURES)


class PrepareRequest(Request, tag=11):
    """A newcomer asks every peer for replicas of what will be its own. The peer answers whether it has replicated
    it."""

    answer = Decoder(bool)


class ReplicaBeginsRequest(Request, tag=12):
    """A home tells the next home that it begins a replica, or that the replica is of fewer slots from here on."""

    replica: int  # number of it, among the sender's
    slots: SlotBits | None  # None: the replica is over
    at: float = 0.0  # when it began, by the sender's clock, in Unix seconds
    for_failover: bool = False  # the sender makes it in case that it crashes
    fewer: bool = False  # the replica has begun before
    lapsed: bool = False  # the sender has not acted for a while
    giver: str = ""  # the incarnation that has given these slots to the sender, which passes them on


class ReplicaChunkRequest(Request, tag=13):
    """A home sends the next home a part of a replica."""

    replica: int
    state: str  # name of it
    data: bytes  # what the state has packed


class ReplicaSentRequest(Request, tag=14):
    """A home asks the next home whether all of a replica is there."""

    answer = Decoder(bool)

    replica: int
    keys: int  # that have been sent in all
    final: bool  # the slots have gone, and nothing follows


class RevokedRequest(Request, tag=15):
    """An endpoint tells every peer which tokens it has recorded as revoked."""

    revocations: list[tuple[Claim, str, int, int]]  # the fields of ``Revocation``


class WatermarkRequest(Request, tag=16):
    """An endpoint tells every peer once a second how far it has come."""

    watermark: Annotated[int, Meta(ge=-1)]  # -1: it does not act yet
    clock: Stamp
    epochs: list[str]
    missed: list[str] | None  # clients of the receiver's that have missed something; None: any may have
    count: int  # of endpoints that take part, as the sender sees it

    def __post_init__(self) -> None:
        """Raises ``ValueError``: the watermark is ahead of the clock."""
        if self.watermark > self.clock:
            raise ValueError("a watermark is a stamp that the clock has passed")


class HistoryPage(Struct, array_like=True, gc=False):
    """What a home knows of what a client has missed; a ``FetchRequest`` brings the next page of it."""

    number: int  # to fetch the rest with; 0: there is none; -1: it was cut
    rows: list[KeptRow]
    gap_topics: list[str]  # topics that have a gap
    gap_slots: list[Slot]  # slots that have one
    covered: SlotBits | None  # the slots that this is about; None: those of the topics that were asked for
    watermark: int  # the home's, when it looked


class HistoryRequest(Request, tag=17):
    """An endpoint asks a home what a client of its own has missed."""

    answer = Decoder(HistoryPage)

    client: str
    since: int  # stamp
    topics: list[str] | None  # that the client has; None: they are too many
    latest: NotNegative = 0  # the latest so many of each topic instead; 0: all since
    name: Name | None = None  # since this message instead
    limit: NotNegative = 0  # messages at most, in one page; 0: all, in pages


class FetchRequest(Request, tag=18):
    """An endpoint asks a home for the next page of what a client has missed."""

    answer = HistoryRequest.answer

    number: int  # that the page before it had


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
"""What an endpoint says when it refuses a request: a text, and perhaps further fields of the reply to the client."""
