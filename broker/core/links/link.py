"""A link to one peer. It sends numbered batches and keeps each batch until the peer confirms that it has processed the
batch.

Owns: the items on their way to one incarnation of one peer, across any number of successive connections. Must never:
open or read a connection, or know an item's meaning.

On each connection both sides first send an ``Open``. If the sessions in the two frames do not match, one side has given
up the link meanwhile. Then both sides start over with new sessions and repeat the unanswered requests (``calls``).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Final

from ..limits import SIZES
from .frames import Batch, Done, Hurry, Open, Ping, Received, Sent, UsualAnswers, decoded, encoded
from .lists import Lists

#: The largest number of items in one frame. The event loop builds or parses a frame in one turn, which should take less
#: than about 10 ms.
BATCH_ITEMS_MAX: Final = 1_000

#: The approximate maximum number of bytes in one frame. A frame with a single item may have more bytes. The maximum is
#: far below the receivers' limit for a frame.
BATCH_BYTES_MAX: Final = 4 << 20

#: A link confirms immediately after it has processed this many bytes. With fewer bytes, the confirmation waits for the
#: next batch or the next tick. If a link confirmed every batch immediately, every third frame under a light load would
#: be only a confirmation.
CONFIRM_BYTES: Final = 1 << 20


def _batch(number: int, last: int, items: list[bytes]) -> bytes:
    """Encode a ``Batch`` of encoded items."""
    head = encoded(("batch", number, last, ()))[:-1]  # without its last byte, which is the empty array of items
    return b"".join((head, _array_head(len(items)), *items))


def _array_head(count: int) -> bytes:
    """Return the MessagePack header of an array with ``count`` items, up to 65,535."""
    return bytes((0x90 | count,)) if count < 16 else b"\xdc" + count.to_bytes(2, "big")


class LinkError(Exception):
    """The peer's frame violates this protocol. The caller must close the connection."""


class SessionMismatch(LinkError):
    """One side has started over. The other side must discard its unconfirmed items and start over as well."""


class Link:
    """The link to one peer. ``session`` is a unique string, chosen by the caller, that identifies this life of the
    link.

    ``sent`` has the lists of recipients that this side has sent, which the peer keeps too. ``kept`` has the lists that
    the peer has sent. During one life of the link each side processes every item exactly once and in order.
    """

    __slots__ = (
        "_answers",
        "_confirm",
        "_confirm_bytes",
        "_echo",
        "_full",
        "_hurried",
        "_hurried_on",
        "_is_urgent",
        "_items",
        "_items_bytes",
        "_number",
        "_open",
        "_peer_session",
        "_processed",
        "_unconfirmed",
        "_work",
        "confirmed_sent_at",
        "down_since",
        "kept",
        "patient",
        "sent",
        "session",
        "unconfirmed_bytes",
        "wanted",
    )

    def __init__(self, session: str, list_ids_max: int = SIZES.list_ids_max) -> None:
        self.session = session
        self.sent = Lists(list_ids_max)
        self.kept = Lists(list_ids_max)
        self._peer_session: str | None = None
        # Encoded items for the next batch. If they exceed a batch, ``_full`` has the items of the earlier batches.
        self._items: list[bytes] = []
        self._items_bytes = 0
        self._work = 0  # the number of requests and answers in ``_items``
        self._full: deque[list[bytes]] = deque()
        self._answers: list[int] = []  # usual answers after ``_items``
        self._is_urgent = False  # whether an item must not wait for the next tick
        self.wanted = 0  # the peer waits for the answers to its requests up to this number
        self.patient = 0  # the highest number of this side's requests whose answers can wait
        self._hurried = self._hurried_on = 0  # the highest number in a ``Hurry``, and in one that goes on
        self._number = 0  # the number of the last batch sent
        self._processed = 0  # the number of the last processed batch from the peer
        self._confirm = False  # whether this side has to confirm processed batches
        self._confirm_bytes = 0  # the size of the frames to confirm, in bytes
        self._unconfirmed: deque[tuple[int, bytes]] = deque()
        self.unconfirmed_bytes = 0
        self._open = False
        self.down_since: float | None = None  # when the last connection broke; None while one is up
        self._echo: float | None = None
        self.confirmed_sent_at: float | None = None  # when this side sent the latest ping that the peer echoed

    @property
    def queued(self) -> int:
        """The number of items that are not in a frame yet."""
        return sum(map(len, self._full)) + len(self._items) + bool(self._answers)

    @property
    def is_open(self) -> bool:
        """Whether both sides have sent their ``Open`` on the present connection."""
        return self._open

    def send(self, item: Sent) -> None:
        """Queue an item. It reaches the peer exactly once and in order if both endpoints stay alive."""
        if self._answers:
            self._put_answers()
        self._put(encoded(item), 1)
        self._is_urgent = True

    def _put(self, item: bytes, work: int) -> None:
        """Put an encoded item into the next batch, or begin another batch."""
        self._work += work
        self._items_bytes += len(item)
        if (self._work > BATCH_ITEMS_MAX or self._items_bytes > BATCH_BYTES_MAX) and self._items:
            self._full.append(self._items)
            self._items, self._work, self._items_bytes = [], work, len(item)
        self._items.append(item)

    def _put_answers(self) -> None:
        answers, self._answers = self._answers, []
        self._put(encoded((answers[0], UsualAnswers(answers))), len(answers))

    def answer_usually(self, number: int, can_wait: bool = False) -> None:
        """Queue the usual answer to the peer's request with this number. Successive usual answers share an item. If
        ``can_wait`` is true and the peer is not waiting for this answer, it waits for the next urgent item or
        confirmation."""
        if not can_wait or number <= self.wanted:
            self._is_urgent = True
        self._answers.append(number)
        if len(self._answers) == BATCH_ITEMS_MAX:
            self._put_answers()

    def hurry(self, goes_on: bool) -> bool:
        """Ask the peer for the answers that it lets wait, unless such a ``Hurry`` has already been sent. Return whether
        it was sent now."""
        number = self.patient
        if number <= (self._hurried_on if goes_on else self._hurried):
            return False
        self._hurried = number
        if goes_on:
            self._hurried_on = number
        self.send((number, Hurry(goes_on)))
        return True

    def want(self, number: int) -> None:
        """Let no answer to the peer's requests up to this number wait."""
        self.wanted = max(self.wanted, number)
        self._is_urgent = True

    def connected(self) -> bytes:
        """Begin a new connection, and return the first frame to send on it."""
        self._open = False
        self.down_since = None
        return encoded(Open(self.session, self._peer_session, self._processed))

    def disconnected(self, now: float) -> None:
        """Handle the end of the connection. Unconfirmed batches stay, because the next connection repeats them."""
        self._open = False
        self.down_since = now

    def receive(self, frame: bytes) -> tuple[list[Received] | None, list[bytes]]:
        """Handle a frame.

        Returns:
            Two lists. The first has the items to process now, and is ``None`` if they are malformed. The second has the
                frames to send again.

        Raises:
            LinkError: The caller must close the connection. After a ``SessionMismatch`` it must also replace this link.
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
            raise LinkError("a frame arrived before the link was open")
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
        """Yield the frames to send on the open connection: batches, or a confirmation of processed batches. If
        ``confirm`` is false, a confirmation waits until it covers ``CONFIRM_BYTES``, and answers that can wait do so,
        too."""
        if not self._open:
            return
        confirm = confirm or self._confirm_bytes >= CONFIRM_BYTES
        if self._is_urgent or confirm:
            if self._answers:
                self._put_answers()
            if self._items:
                self._full.append(self._items)
                self._items, self._work, self._items_bytes = [], 0, 0
            self._is_urgent = False
        while self._full:
            self._number += 1
            data = _batch(self._number, self._processed, self._full.popleft())
            self._unconfirmed.append((self._number, data))
            self.unconfirmed_bytes += len(data)
            self._told()
            yield data
        if self._confirm and confirm:
            self._told()
            yield encoded(Done(self._processed))

    def ping(self, now: float) -> Iterator[bytes]:
        """Yield the ``Ping`` to send at ``now``, or nothing while the connection is not open."""
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
