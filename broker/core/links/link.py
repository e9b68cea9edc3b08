"""A link to one peer: numbered batches, confirmed once processed, kept until then.

Owns: what is on its way to one incarnation of one peer, over as many connections as it takes. Must never: open or read
a connection, or know what an item means.

Each connection begins with an ``Open`` from either side. Sessions that do not fit mean that one side has given the
other up since: both start afresh, and the calls (``calls``) that were under way are made again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Final

from ..limits import SIZES
from .frames import Batch, Done, Open, Ping, Received, Sent, decoded, encode_into, encoded
from .lists import Lists

#: Items in one frame: a frame is built and taken apart in one turn of the loop, which should stay below some 10 ms.
BATCH_ITEMS_MAX: Final = 1_000

#: And about how many bytes, but for a single item that has more. Far below what a receiver takes in one frame.
BATCH_BYTES_MAX: Final = 4 << 20

#: Processed bytes that are confirmed at once. Less waits for the next batch to be sent, or for the next tick: under a
#: light load every third frame would be a bare confirmation.
CONFIRM_BYTES: Final = 1 << 20


def _batch(number: int, last: int, items: list[Sent]) -> tuple[bytes, int]:
    """The bytes of a ``Batch`` of the first items, and how many these are: as many as the limits allow, and one at
    least."""
    said = bytearray()
    count = size = 0
    for item in items[:BATCH_ITEMS_MAX]:
        encode_into(item, said, -1)
        if len(said) > BATCH_BYTES_MAX and count:
            del said[size:]
            break
        size = len(said)
        count += 1
    head = encoded(("batch", number, last, ()))[:-1]  # without the empty array of items, which has one byte
    return b"".join((head, _array_head(count), said)), count


def _array_head(count: int) -> bytes:
    """How MessagePack begins an array with so many items, up to 65,535."""
    return bytes((0x90 | count,)) if count < 16 else b"\xdc" + count.to_bytes(2, "big")


class LinkError(Exception):
    """The peer's frame is not this protocol's; the connection has to be closed."""


class SessionMismatch(LinkError):
    """One side has started afresh; the other has to do the same, after it has taken back what was unconfirmed."""


class Link:
    """One peer's link. ``session`` tells this life of the link from any other (made by the caller, unique).

    ``sent``: the lists that the peer has kept of those sent over it, or will have once what is under way gets there;
    ``kept``: those of the peer's. Within one life of the link every item is processed once, and in order.
    """

    __slots__ = (
        "_confirm",
        "_confirm_bytes",
        "_echo",
        "_number",
        "_open",
        "_out",
        "_peer_session",
        "_processed",
        "_unconfirmed",
        "confirmed_sent_at",
        "down_since",
        "kept",
        "sent",
        "session",
        "unconfirmed_bytes",
    )

    def __init__(self, session: str, list_ids_max: int = SIZES.list_ids_max) -> None:
        self.session = session
        self.sent = Lists(list_ids_max)
        self.kept = Lists(list_ids_max)
        self._peer_session: str | None = None
        self._out: list[Sent] = []
        self._number = 0  # of the last batch sent
        self._processed = 0  # number of the last batch of the peer's that was processed
        self._confirm = False  # something was processed that the peer has not been told of,
        self._confirm_bytes = 0  # in frames of so many bytes
        self._unconfirmed: deque[tuple[int, bytes]] = deque()
        self.unconfirmed_bytes = 0
        self._open = False
        self.down_since: float | None = None  # when the last connection was lost, while there is none
        self._echo: float | None = None
        self.confirmed_sent_at: float | None = None  # our clock, from the latest ping the peer echoed

    @property
    def queued(self) -> int:
        """Items that are not in a frame yet."""
        return len(self._out)

    @property
    def is_open(self) -> bool:
        """Both sides have exchanged their ``open`` on the present connection."""
        return self._open

    def send(self, item: Sent) -> None:
        """Put the item behind what is waiting. It reaches the peer once, in order, if both stay alive."""
        self._out.append(item)

    def connected(self) -> bytes:
        """A connection is up; the frame to send first on it."""
        self._open = False
        self.down_since = None
        return encoded(Open(self.session, self._peer_session, self._processed))

    def disconnected(self, now: float) -> None:
        """The connection is gone; everything unconfirmed stays, for as long as it is of use."""
        self._open = False
        self.down_since = now

    def receive(self, frame: bytes) -> tuple[list[Received] | None, list[bytes]]:
        """A frame came. Returns the items to process now, and the frames to send again. ``None``: what it brings are no
        items.

        Raises ``LinkError``: close the connection. After a ``SessionMismatch`` a new link has to take this one's place.
        """
        try:
            said = decoded(frame)
        except ValueError as error:
            raise LinkError(f"not a frame of this protocol: {error}") from None
        if isinstance(said, Open):
            if self._peer_session not in (None, said.mine) or said.yours not in (None, self.session):
                raise SessionMismatch("one side of the link has started afresh")
            self._peer_session = said.mine
            self._open = True
            self._settle(said.last)
            return [], [data for _, data in self._unconfirmed]
        if not self._open:
            raise LinkError("a frame came before the link was open")
        self._settle(said.last)
        if isinstance(said, Batch):
            number = said.number
            self._confirm_bytes += len(frame)
            if number > self._processed + 1:
                raise LinkError(f"batch {number} came after batch {self._processed}")
            self._confirm = True
            if number > self._processed:
                self._processed = number
                return said.items, []
        elif isinstance(said, Ping):
            self._echo = said.sent
            if said.echo is not None and (self.confirmed_sent_at is None or said.echo > self.confirmed_sent_at):
                self.confirmed_sent_at = said.echo
        return [], []

    def flush(self, confirm: bool = True) -> Iterator[bytes]:
        """What is due on the open connection: batches, or a bare confirmation of what was processed. Without
        ``confirm`` that is left for later, unless it is much."""
        if not self._open:
            return
        while self._out:
            self._number += 1
            data, count = _batch(self._number, self._processed, self._out)
            del self._out[:count]
            self._unconfirmed.append((self._number, data))
            self.unconfirmed_bytes += len(data)
            self._told()
            yield data
        if self._confirm and (confirm or self._confirm_bytes >= CONFIRM_BYTES):
            self._told()
            yield encoded(Done(self._processed))

    def ping(self, now: float) -> Iterator[bytes]:
        """The sign of life to send at ``now``; none while the connection is not open."""
        if self._open:
            self._told()
            yield encoded(Ping(now, self._echo, self._processed))

    def _told(self) -> None:
        self._confirm = False
        self._confirm_bytes = 0

    def _settle(self, last: int) -> None:
        if last > self._number:
            raise LinkError(f"batch {last} is confirmed and was never sent")
        while self._unconfirmed and self._unconfirmed[0][0] <= last:
            self.unconfirmed_bytes -= len(self._unconfirmed.popleft()[1])
