"""Effects: the records by which the core tells the shell what to do.

Owns: the kinds of effects, and the order in which to carry them out. Must never: make a decision, or carry out an
effect.

Nearly every turn has frames and store calls, so these have separate lists. Every other effect is an *act*: a small
record that says what to do. One list holds all acts in the order in which the core decided them. A new kind of act
needs a new record here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ingeborg.protocol.errors import CloseCode

from .connections.grants import Grant
from .connections.hub import Connection
from .model import Endpoint


class StoreCall(NamedTuple):
    """Call ``store.<operation>(*arguments)``, and pass the result or the error to ``Router.stored``.

    ``number`` identifies the call in ``stored``.
    """

    number: int
    operation: str
    arguments: tuple[Any, ...]


class Read(NamedTuple):
    """Read a large frame outside the event loop (``large.read``), and pass the outcome to ``Router.read``."""

    number: int
    size: int  # bytes
    pieces: Sequence[bytes | bytearray]
    is_text: bool
    payload_bytes_max: int
    grant: Grant | None


class Forget(NamedTuple):
    """Drop the large frame of the ``Read`` with this number, because the core no longer needs its outcome."""

    number: int


class Close(NamedTuple):
    """Close the client's connection after writing the frames that the core has handed over. With ``HELD_TOO_MUCH`` or
    ``TOKEN_REVOKED``, drop these frames instead."""

    connection: Connection
    code: CloseCode


class PauseOrResume(NamedTuple):
    """Stop or resume reading the client's connection, according to its ``paused``."""

    connection: Connection


class Ping(NamedTuple):
    """Send the client a ping. Call ``Router.ponged`` when the client answers."""

    connection: Connection


class Dial(NamedTuple):
    """Connect to the peer. Call ``Router.link_up`` or ``Router.dial_failed``."""

    endpoint: Endpoint


class DropLink(NamedTuple):
    """Close the connection to the peer. The next connection starts afresh."""

    incarnation: str


class Gone(NamedTuple):
    """Log that the peer is gone: it has left, this endpoint considers it dead, or a newer incarnation has taken over
    its name."""

    endpoint: Endpoint


class Joined(NamedTuple):
    """All other endpoints have accepted this endpoint, which serves clients from now on."""


class Knows(NamedTuple):
    """The endpoint now knows which tokens are revoked, so accept clients with tokens from now on."""


class Stop(NamedTuple):
    """End this process immediately. ``why``: the reason, for the log."""

    why: str


class SlotsTransferred(NamedTuple):
    """This leaving endpoint is no longer home of any slot. ``in_time``: false if the time ran out before all other
    endpoints knew this and had received the data of the slots."""

    in_time: bool


class Left(NamedTuple):
    """This endpoint has left, and its process can end. ``in_time``: false if the time ran out before all work was
    finished."""

    in_time: bool


Act = (
    Read
    | Forget
    | Close
    | PauseOrResume
    | Ping
    | Dial
    | DropLink
    | Gone
    | Joined
    | Knows
    | Stop
    | SlotsTransferred
    | Left
)


class Effects(NamedTuple):
    """The decisions of one turn. The shell carries out the lists in this order, each from front to back.

    Attributes:
        store: the store calls to start.
        links: (peer's incarnation, frames) for each peer's link.
        write: (connection, buffers) for each client's socket. After writing them, call ``Router.written``.
        acts: everything else, in the order of the decisions.
        more: true if work is left for the next turn; the shell then calls ``Router.work``.
        wake_at: the latest time at which the next turn must end, in monotonic seconds. ``None`` if there is no such
            time.
    """

    store: list[StoreCall]
    links: list[tuple[str, list[bytes]]]
    write: list[tuple[Connection, list[bytes]]]
    acts: list[Act]
    more: bool
    wake_at: float | None = None
