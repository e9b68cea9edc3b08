"""A WebSocket over an asyncio transport: ``websockets``' Sans-I/O protocol with a thin layer around it.

Owns: the bytes of one connection, from ``data_received`` to ``write``. Must never: know a command or a peer.

The library's own asyncio connections put a queue and several awaits between the socket and the reader of every message.
In this module one call turns a chunk of data from the socket into a list of messages, and one write sends all output of
a turn of the event loop. ``frames`` handles nearly all frames: whole uncompressed messages, and empty pings and pongs
(ADR 7). The library does the rest of the protocol: handshake, fragments, compression, closes, and every violation.
"""

from __future__ import annotations

import asyncio
import codecs
import logging
import os
import socket
import sys
from contextlib import suppress
from typing import Any, Final

from websockets.frames import Frame, Opcode
from websockets.http11 import Request, Response
from websockets.protocol import CONNECTING, OPEN, SERVER, Protocol

from .errors import NOT_UTF8, SLOW_CONSUMER, CloseCode
from .frames import (
    BROKEN,
    ENDS,
    ENOUGH,
    LARGE,
    NOT_TEXT,
    PING,
    PONG,
    STRANGE,
    TEXT,
    LargeMessage,
    empty_frame,
    whole_messages,
)
from .lines import LINES_AT_ONCE, Lined, is_short, lines_of
from .native import mypyc_attr

log = logging.getLogger("ingeborg.sockets")

#: The log of ``websockets``, without its lines about each opened and closed connection.
library_log = logging.getLogger("ingeborg.websockets")
library_log.setLevel(logging.WARNING)

#: Seconds for a connection to finish its handshake, or to answer a close. After a close, the time restarts with each
#: piece of pending data that the peer takes.
PATIENCE_S = 5.0
#: The limit on the whole close, in seconds. It is enough time for megabytes over a slow line, but it stops a peer that
#: takes only an occasional packet. It is also TLS's ``ssl_shutdown_timeout``, which is one time-out that starts with
#: the close.
LINGER_S = 60.0
#: Size of the kernel's receive buffer, in bytes, for a peer that continues to send over TLS after the close.
_LEFT_BYTES = 32 << 10
#: Number of checks of a closing connection within ``PATIENCE_S``.
_LOOKS = 5

#: The place of ``tcpi_bytes_acked`` in Linux's ``struct tcp_info``: the number of bytes that the peer's TCP has
#: acknowledged.
_BYTES_ACKED = slice(120, 128)

#: More bytes than any message has.
_ANY: Final = 1 << 60

#: The end of a request's or a response's head.
_HEAD_ENDS = b"\r\n\r\n"

#: Number of masking keys, of 4 bytes each, that one system call fetches. A call for each frame would cost more than the
#: frame.
_MASKS = 1024

#: Maximum number of pings that this side answers while the peer does not read the pongs. A pong has at most 127 bytes.
#: Without the limit, unread pongs would fill our memory.
PONGS_UNREAD_MAX = 1_000


class Masks:
    """Masking keys that the author of the payloads cannot foresee (RFC 6455 section 5.3)."""

    def __init__(self) -> None:
        self._drawn = b""
        self._used = 0

    def next(self) -> bytes:
        """Return a key of four bytes."""
        start = self._used
        if start == len(self._drawn):
            self._drawn, start = os.urandom(4 * _MASKS), 0
        self._used = start + 4
        return self._drawn[start : start + 4]


#: One supply for all connections of the process.
next_mask = Masks().next

_utf8_decoder = codecs.getincrementaldecoder("utf-8")


@mypyc_attr(allow_interpreted_subclasses=True)
class Socket:
    """One connection. Subclasses override ``handshake``, ``message``, ``closed`` and ``writable``.

    The class has the methods of ``asyncio.Protocol``, but not that base, because mypyc makes fast attributes only for
    classes without a base from Python. ``as_protocol`` gives a socket the type that asyncio expects.
    """

    def __init__(self, ws: Protocol) -> None:
        self.ws: Any = ws  # a subclass knows the protocol's side
        self.transport: Any = None  # an ``asyncio.Transport``, or uvloop's transport, which has another class
        #: Number of bytes of a chunk to handle at a time, extended to the end of a frame. The rest waits for a call of
        #: ``next_quantum``.
        self.quantum_bytes = _ANY
        #: A message of more bytes than this is large. If a large message comes in one frame, ``large_message`` gets it.
        #: This class does not check that a large text is UTF-8; the reader of the text has to.
        self.large_bytes = _ANY
        #: Set if a message may have several lines (``lines``). ``messages_come`` then gets each line as a message.
        self.lined: Lined | None = None
        self.is_writable = True
        # The fragments of a message, within the protocol's limit on messages. This is not a list: with fragments of one
        # byte or none, a list would be many times as large as its content.
        self._parts = bytearray()
        self._checked: codecs.IncrementalDecoder | None = None  # finds text fragments that are not UTF-8
        self._text = False
        self._deaf = False  # we have closed the connection, and ignore further messages
        self._half_closed = False
        self._pongs_unread = 0
        self._head: bytes | None = b"" if ws.state is CONNECTING else None  # the end of an incomplete HTTP head
        self._buffer = bytearray()  # an incomplete frame
        self._needed = 0  # the size of that frame, as far as known
        self._masked = ws.side is SERVER  # incoming frames are masked
        self._ping, self._pong = (empty_frame(first, not self._masked) for first in (PING, PONG))
        self.heard = False  # data has arrived since a caller last cleared this
        self._rest: tuple[bytes, int] | None = None  # a waiting chunk, and the index of its first unhandled byte
        self._eof = False  # the peer has half-closed the connection, but some of its data still waits
        self._lost = False  # the connection is gone, but some of its data still waits
        self._passing = 0  # bytes of the current frame that the protocol still needs
        self._passed = 0  # bytes of the same frame that the protocol has
        self._large: LargeMessage | None = None  # the large message that is arriving
        self._abort: asyncio.TimerHandle | None = None
        self._ended = False  # we have closed the connection, and a timer will cut it
        self._response_pending = False  # the response waits, and so does further data

    # For subclasses to override

    def handshake(self, event: Request | Response) -> None:
        """Handle the peer's HTTP request or response. Set ``_response_pending`` if the response has to wait."""
        raise NotImplementedError

    def message(self, data: bytes) -> None:
        """Handle a whole message."""
        raise NotImplementedError

    def messages_come(self, messages: list[bytes]) -> None:
        """Handle consecutive messages."""
        for message in messages:
            if not self._deaf:
                self.message(message)

    def large_message(self, message: LargeMessage) -> None:
        """Handle a whole large message, which arrived in one frame."""
        raise NotImplementedError

    def chunk_ends(self) -> None:
        """Act after all messages of a chunk or quantum have been handled."""

    def rest_waits(self) -> None:
        """Arrange for a later call of ``next_quantum``, since the chunk has more data. Reading should pause until
        then."""

    def head_comes(self, data: bytes) -> None:
        """Handle a chunk that arrives before the HTTP head is complete. A subclass may call ``take_later`` instead."""
        self.receive_head(data)

    def ponged(self) -> None:
        """Act on the peer's answer to a ping."""

    def closed(self) -> None:
        """Act on the end of the connection."""

    def writable(self) -> None:
        """Act when the transport accepts data again."""

    # asyncio

    def connection_made(self, transport: Any) -> None:
        """Start using the TCP connection, and give the handshake ``PATIENCE_S``."""
        self.transport = transport
        if transport.get_extra_info("ssl_object") is not None:
            # While reading is paused, take nothing more from the kernel, because the transport immediately decrypts all
            # data that it has taken.
            transport.set_read_buffer_limits(high=1)
        self._abort = asyncio.get_running_loop().call_later(PATIENCE_S, self.transport.abort)

    def data_received(self, data: bytes) -> None:
        """Handle a chunk: many frames, or a piece of a frame."""
        self.heard = True
        waiting = self._rest
        if waiting is not None:  # a TLS transport may still deliver data while reading is paused
            rest, at = waiting
            self._rest = rest[at:] + data, 0
            return
        if self._head is not None:
            self.head_comes(data)
        elif not self._buffer:
            self._receive_frames(data)
        else:
            self._buffer += data
            if len(self._buffer) >= self._needed:
                data, self._buffer = bytes(self._buffer), bytearray()
                self._receive_frames(data)
        self.chunk_ends()
        if self.waits:
            self.rest_waits()

    def take_later(self, data: bytes) -> None:
        """Leave the whole chunk to ``next_quantum``."""
        self._rest = data, 0

    @property
    def unread(self) -> int:
        """Return the number of bytes that have arrived but belong to incomplete messages, or wait for their turn."""
        rest = 0 if self._rest is None else len(self._rest[0]) - self._rest[1]
        large = 0 if self._large is None else self._large.held
        lined = 0 if self.lined is None else self.lined.size
        return rest + large + lined + len(self._buffer) + len(self._parts) + (self._passed if self._passing else 0)

    def discard(self) -> None:
        """Drop all data that has arrived, and ignore further data: the connection has failed."""
        waits, self._rest = self.waits, None
        self._buffer, self._parts = bytearray(), bytearray()
        self._passing, self._large = 0, None
        if self.lined is not None:
            self.lined.clear()
        if self._lost and waits:  # the handling of the connection's end has waited for this data
            self._over()

    @property
    def waits(self) -> bool:
        """Return whether some of the data that has arrived still waits."""
        return self._rest is not None

    def next_quantum(self) -> None:
        """Handle the next quantum of the waiting data, if any."""
        waiting = self._rest
        if waiting is None or self._response_pending:
            return
        data, at = waiting
        self._rest = None
        try:
            if self._head is not None:
                self.receive_head(data[at:] if at else data)
            elif at < len(data) or self.lined:
                self._receive_frames(data, at)
            self.chunk_ends()
        finally:
            if not self.waits:
                if self._lost:
                    self._over()
                elif self._eof:
                    self._receive_eof()

    def take_on(self) -> None:
        """Call ``next_quantum``. If it raises, log the exception and cut the connection."""
        try:
            self.next_quantum()
        except Exception:
            log.exception("handling the data of a connection failed; the connection is cut")
            self.transport.abort()

    def receive_head(self, data: bytes) -> None:
        """Pass the head, which precedes the frames, to the protocol's parser."""
        assert self._head is not None
        text = self._head + data
        end = text.find(_HEAD_ENDS)
        if end < 0:
            self._head = text[1 - len(_HEAD_ENDS) :]
            self._receive(data)
            return
        size = end + len(_HEAD_ENDS) - len(self._head)
        self._head = None
        self._receive(data[:size])
        if self._response_pending:
            self._rest = data, size  # keep it even if it is empty, to append further data
        elif len(data) > size:
            self._receive_frames(data[size:])

    def _receive_frames(self, data: bytes, at: int = 0) -> None:
        """Handle whole messages and empty pings and pongs directly. Pass all other frames to the protocol, which
        reports those that break the rules."""
        end = len(data)
        enough = at + self.quantum_bytes
        if self.lined and self._take_lines():
            self._rest = data, at
            return
        if self._passing:
            begin, at = at, min(at + self._passing, end)
            self._passing -= at - begin
            self._passed += at - begin
            self._receive(data[begin:at])
            if self.lined and self._take_lines():
                self._rest = data, at
                return
        if self._large is not None:
            at = self._receive_large(data, at)
        while at < end:
            ws = self.ws  # a link may replace the protocol meanwhile
            if ws.state is not OPEN:
                if at >= enough:
                    self._rest = data, at
                    return
                begin, at = at, min(end, enough)
                self._receive(data[begin:at])
                if self.lined and self._take_lines():
                    self._rest = data, at
                    return
                continue
            most = _ANY if ws.max_message_size is None else ws.max_message_size
            # A message is whole only while no fragmented message is under way.
            run = whole_messages(data, at, enough, self._masked, ws.current_size is None, most, self.large_bytes)
            if run.messages:  # without messages, a fragmented message may be under way, and its kind stays
                self._text = run.is_text
                if self.lined is not None:
                    if self._come_lined(run.messages):
                        if run.why == NOT_TEXT and not self._deaf:
                            self.fail(NOT_UTF8)
                        self._rest = data, run.at
                        return
                elif not self._deaf:
                    self.messages_come(run.messages)
            at, why = run.at, run.why
            if why == ENDS:
                self._needed = run.needed
                break
            if why == ENOUGH:
                self._rest = data, at
                return
            if why == STRANGE:
                stop = run.body + run.size
                if run.size or stop > end or not self._beat(run.first):
                    self._passing = max(stop - end, 0)
                    self._passed = min(stop, end) - at
                    self._receive(data[at:stop])
                at = stop
                if self.lined and self._take_lines():
                    self._rest = data, min(at, end)
                    return
            elif why == LARGE:
                mask = data[run.body - 4 : run.body] if self._masked else b""
                self._large = LargeMessage(run.first == TEXT, mask, run.size)
                at = self._receive_large(data, run.body)
            elif why == NOT_TEXT:
                if not self._deaf:
                    self.fail(NOT_UTF8)
            elif why == BROKEN:
                self._receive(data[at:])  # closes the connection
                return
        if at < end:
            self._buffer += data[at:]

    def _come_lined(self, messages: list[bytes]) -> bool:
        """Handle as many lines as are allowed at a time, from any number of messages. Returns True if more lines
        wait."""
        lined = self.lined
        assert lined is not None
        lines: list[bytes] = []
        for message in messages:
            if not lined and is_short(message, self.quantum_bytes):
                more = lines_of(message)
                if len(lines) + len(more) <= LINES_AT_ONCE:
                    lines += more
                    continue
            lined.push(message)
        if not lines:
            return bool(lined) and self._take_lines()
        if not self._deaf:
            self.messages_come(lines)
        return bool(lined)

    def _take_lines(self) -> bool:
        """Handle the next lines of the complete messages. Returns True if more lines wait."""
        assert self.lined is not None
        lines = self.lined.take(self.quantum_bytes)
        if self._deaf:
            self.lined.clear()
        else:
            self.messages_come(lines)
        return bool(self.lined)

    def _receive_large(self, data: bytes, at: int) -> int:
        """Add the chunk's part of the large message. Returns the index after that part."""
        large = self._large
        assert large is not None
        stop = min(at + large.left, len(data))
        large.take(data[at:stop])
        if not large.left:
            self._large = None
            if not self._deaf:
                self.large_message(large)
        return stop

    def _beat(self, first: int) -> bool:
        """Handle a ping or pong without a payload, the only traffic of an idle connection. Returns False, without
        handling it, for another frame, or for a ping while the peer does not read."""
        if first == PONG:
            self.ponged()
            return True
        if first == PING and self.is_writable:
            self.transport.write(self._pong)
            return True
        return False

    def _receive(self, data: bytes) -> None:
        ws = self.ws
        ws.receive_data(data)
        for event in ws.events_received():
            if isinstance(event, Frame):
                self._frame(event)
            elif isinstance(event, (Request, Response)):
                self.handshake(event)
        self.send_protocol()

    def _frame(self, frame: Frame) -> None:
        opcode = frame.opcode
        if opcode is Opcode.TEXT or opcode is Opcode.BINARY:
            self._text = opcode is Opcode.TEXT
            if frame.fin:
                self._whole(bytes(frame.data))
            else:
                self._checked = _utf8_decoder() if self._text else None
                self._fragment(frame.data)
        elif opcode is Opcode.CONT:
            self._fragment(frame.data)
            if frame.fin:
                data, self._parts = bytes(self._parts), bytearray()
                self._whole(data)
        elif opcode is Opcode.PONG:
            self.ponged()
        elif opcode is Opcode.PING and not self.is_writable:
            self._pongs_unread += 1
            if self._pongs_unread > PONGS_UNREAD_MAX:
                self.fail(SLOW_CONSUMER)

    def _fragment(self, data: bytes | bytearray | memoryview) -> None:
        """Store a fragment. If a text is not UTF-8, close the connection immediately, since its last fragment may never
        come."""
        if self._deaf:
            return
        self._parts += data
        if len(self._parts) > self.large_bytes:
            self._checked = None
        if self._checked is not None:
            try:
                self._checked.decode(data)
            except UnicodeDecodeError:
                self.fail(NOT_UTF8)

    def _whole(self, data: bytes) -> None:
        if self._deaf:
            return
        if self._text and len(data) <= self.large_bytes and not data.isascii():
            try:
                data.decode()
            except UnicodeDecodeError:
                self.fail(NOT_UTF8)
                return
        # The connection may be closed already, by a close or a bad frame that follows this message in the same chunk.
        # The message still counts.
        if self.lined is not None:
            self.lined.push(data)
        else:
            self.message(data)

    def eof_received(self) -> bool:
        """End the connection, since the peer has half-closed it, and a WebSocket has no use for the other half. Return
        whether the transport has to stay open nevertheless."""
        while self.waits and not self.lined and not self._response_pending:
            self.next_quantum()
        if not self.waits:
            self._receive_eof()
        else:  # many lines and frames may wait, so handle one quantum at a time
            self._eof = True
        return False

    def _receive_eof(self) -> None:
        self._eof = False
        self.ws.receive_eof()
        self.send_protocol()

    def connection_lost(self, exc: Exception | None) -> None:
        """Handle the end of the TCP connection. Data that arrived earlier is still handled, one quantum at a time."""
        self.settled()
        if self._rest is None:
            self._over()
        else:
            self._lost = True
            self.pause_writing()

    def _over(self) -> None:
        self.closed()
        # The parser and its protocol refer to each other, and so do an error and its stack frames. Break these cycles.
        # Otherwise closed connections wait for the garbage collector, which takes long if it finds many of these cycles
        # together.
        ws = self.ws
        ws.parser.close()
        error: BaseException | None
        for error in (ws.handshake_exc, ws.parser_exc):
            while error is not None:
                error.__traceback__ = None
                error = error.__cause__ or error.__context__

    def pause_writing(self) -> None:
        """Record that the transport's buffer is full. Later messages wait in the outbox."""
        self.is_writable = False

    def resume_writing(self) -> None:
        """Record that the transport's buffer has room again."""
        self.is_writable = True
        self._pongs_unread = 0
        self.writable()

    def settled(self) -> None:
        """Cancel the handshake's time-out, since the handshake has ended."""
        if self._abort is not None:
            self._abort.cancel()
            self._abort = None

    # Sending

    def send_protocol(self) -> None:
        """Write the protocol's output: handshakes, pongs, closes."""
        for data in self.ws.data_to_send():
            # A closing transport may be gone already, before the loop reports it.
            if self._half_closed or self.transport.is_closing():
                break
            if data:
                self.transport.write(data)
            else:
                self._end_stream()

    def ping(self) -> None:
        """Send a ping."""
        if self.ws.state is OPEN:
            self.transport.write(self._ping)

    def close(self, code: CloseCode, *, deaf: bool = True) -> None:
        """Begin the closing handshake, and cut the connection once the peer has taken nothing for ``PATIENCE_S``.

        Args:
            code: the close code and its reason.
            deaf: whether to ignore messages that the peer sends before it gets the close.
        """
        self._deaf = deaf
        if self.ws.state is OPEN:
            self.ws.send_close(code.code, code.reason)
            self.send_protocol()
        self._cut_later()

    def fail(self, code: CloseCode) -> None:
        """Close the connection with this code, since the peer broke the protocol."""
        self._deaf = True
        self.ws.fail(code.code, code.reason)
        self.send_protocol()
        self._cut_later()

    def _end_stream(self) -> None:
        """End our side of the stream. Data written before still arrives, and the peer ends its own side. Closing the
        TCP connection with unread bytes of the peer would reset it, and the peer might never see the reason: the close
        frame, or the response."""
        self._half_closed = True
        if self.transport.can_write_eof():
            self.transport.write_eof()
            self._cut_later()
        else:
            self._cut_later()
            # A closed TLS transport sends the pending data and TLS's close_notify. Then it reads and discards until the
            # peer has sent its own close_notify. If that has arrived already, the transport immediately calls
            # ``eof_received``. This must not happen in the middle of a chunk.
            asyncio.get_running_loop().call_soon(self._close_transport)

    def _close_transport(self) -> None:
        if not self.transport.is_closing():  # asyncio's transport treats a second close as the end of the first
            # Until the stream ends, the transport decrypts all incoming data as fast as it arrives. A small receive
            # buffer limits this work.
            sock = self.transport.get_extra_info("socket")
            if sock is not None:
                with suppress(OSError):
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _LEFT_BYTES)
            self.transport.close()

    def _cut_later(self) -> None:
        if not self._ended and not self.transport.is_closing():
            self._ended = True
            self.settled()
            now = asyncio.get_running_loop().time()
            self._cut_when_due(now + LINGER_S, now + PATIENCE_S, self._taken())

    def _cut_when_due(self, end: float, due: float, taken: int) -> None:
        """Cut the connection at ``due`` unless ``_taken`` exceeds ``taken`` before then. Cut it at ``end`` in any
        case."""
        if self.transport.get_protocol() is not self:
            return  # the connection is gone, or another protocol has taken over its transport
        loop = asyncio.get_running_loop()
        now = loop.time()
        if (taken_now := self._taken()) > taken:
            due = now + PATIENCE_S
        if now >= min(due, end):
            self.transport.abort()
        else:
            self._abort = loop.call_later(PATIENCE_S / _LOOKS, self._cut_when_due, end, due, taken_now)

    def _taken(self) -> int:
        """Return a number that grows as the peer takes data. Over TLS only the kernel knows this number, since the
        transport does not count data that waits below TLS."""
        sock = self.transport.get_extra_info("socket")
        if sock is not None and sys.platform == "linux":
            try:
                info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _BYTES_ACKED.stop)
            except (OSError, ValueError):  # uvloop raises ValueError for a socket that has just been closed
                return 0
            if len(info) == _BYTES_ACKED.stop:  # Linux 4.1 or newer
                return int.from_bytes(info[_BYTES_ACKED], sys.byteorder)
        left: int = self.transport.get_write_buffer_size()
        return -left


def as_protocol(socket: Socket) -> Any:
    """Return the socket for a function of asyncio that expects an ``asyncio.Protocol``."""
    return socket
