"""What the core wants done: the one form in which its decisions leave it.

Owns: the kinds of effects and the order to carry them out in. Must never: decide, or carry out.

What nearly every turn has (frames, store calls) comes in lists of its own. Everything else is an *act*: a small record
that says what to do, in one list, in the order in which the acts were decided. A new capability adds a record here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ingeborg.protocol.errors import CloseCode

from .connections.grants import Grant
from .connections.hub import Connection
from .model import Endpoint


class StoreCall(NamedTuple):
    """Call ``store.<operation>(*arguments)``, and tell the router what came of it: ``stored``."""

    number: int
    operation: str
    arguments: tuple[Any, ...]


class Read(NamedTuple):
    """Read a large frame away from the loop (``large.read``), and tell the router what it says: ``read``."""

    number: int
    size: int  # in bytes
    pieces: Sequence[bytes | bytearray]
    is_text: bool
    payload_bytes_max: int
    grant: Grant | None


class Forget(NamedTuple):
    """What the large frame of this ``Read`` says is not wanted any more."""

    number: int


class Close(NamedTuple):
    """Close the client's connection after what it was given to write; with ``HELD_TOO_MUCH`` drop that, too."""

    connection: Connection
    code: CloseCode


class PauseOrResume(NamedTuple):
    """Stop or go on reading the client's connection, as its ``paused`` now says."""

    connection: Connection


class Ping(NamedTuple):
    """Send the client a ping; tell the router when it answers: ``ponged``."""

    connection: Connection


class Dial(NamedTuple):
    """Connect to the peer. Tell the router ``link_up``, or ``dial_failed``."""

    endpoint: Endpoint


class DropLink(NamedTuple):
    """Close the connection to the peer; the next one starts afresh."""

    incarnation: str


class Gone(NamedTuple):
    """For the log: the peer has left, or is taken for dead, or a newer incarnation has its name."""

    endpoint: Endpoint


class Joined(NamedTuple):
    """All other endpoints have let this one in; it serves from here on."""


class Knows(NamedTuple):
    """It knows which tokens have been revoked: clients with tokens may come from here on."""


class Stop(NamedTuple):
    """This process has to end at once."""

    why: str


class SlotsTransferred(NamedTuple):
    """This endpoint, which leaves, is home of nothing any more. ``in_time``: all others know, and have what it saw."""

    in_time: bool


class Left(NamedTuple):
    """This endpoint has left: its process may end. ``in_time``: everything under way was finished."""

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
    """What one turn has decided. The lists are to be carried out in this order, each from front to back."""

    store: list[StoreCall]
    links: list[tuple[str, list[bytes]]]  # frames for each peer's link
    write: list[tuple[Connection, list[bytes]]]  # frames for each client's socket; then tell the router ``written``
    acts: list[Act]
    more: bool  # there is work left for the next turn: call ``work``
