"""A WebSocket over an asyncio transport: ``websockets``' Sans-I/O protocol with as little as possible around it.

Owns: the bytes of one connection, from ``data_received`` to ``write``. Must never: know a command or a peer.

Why not the library's own asyncio connections: they put a queue and several awaits between the socket and the reader of
every message. Here a chunk of the socket becomes a row of messages in one call, and what a turn of the loop has to send
leaves in one write. What nearly every frame is, a whole uncompressed message or an empty ping or pong, is read and
written by ``frames`` (ADR 7); the rest of the protocol (handshake, fragments, compression, closes, and every
violation) is the library's.
"""

from __future__ import annotations

import asyncio
import codecs
import logging
import os
import socket
import sys
from contextlib import suppress
from typing import Any, cast

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

log = logging.getLogger("ingeborg.sockets")

#: Where ``websockets`` logs what it does; every connection's coming and going is not news.
library_log = logging.getLogger("ingeborg.websockets")
library_log.setLevel(logging.WARNING)

#: How long a connection may take to finish its handshake, or to answer a close, in seconds. A peer that still takes
#: what it was sent before the end has this long again with each piece,
PATIENCE_S = 5.0
#: but no longer than this in all: time for megabytes over a slow line, and not for a peer that takes a packet now and
#: then. It is TLS's ``ssl_shutdown_timeout``, too, which is one time-out from the beginning of the end on.
LINGER_S = 60.0
#: How much the kernel keeps of what a peer sends over TLS that has been closed upon, in bytes.
_LEFT_BYTES = 32 << 10
#: How often a connection that has been ended is looked at within ``PATIENCE_S``.
_LOOKS = 5

#: Where Linux has the bytes that the peer's TCP has confirmed: ``tcpi_bytes_acked``, in ``struct tcp_info``.
_BYTES_ACKED = slice(120, 128)

#: More bytes than any message has.
_ANY = 1 << 60

#: What ends a request's or a response's head.
_HEAD_ENDS = b"\r\n\r\n"

#: Masking keys drawn from the system at a time, of 4 bytes each: a system call for each frame would cost more than it.
_MASKS = 1024

#: Pings answered to a peer that reads none of it; their pongs, of 127 bytes at most, would fill our memory.
PONGS_UNREAD_MAX = 1_000


class Masks:
    """Masking keys that whoever chooses the payloads cannot foresee (RFC 6455 section 5.3)."""

    def __init__(self) -> None:
        self._drawn = b""
        self._used = 0

    def next(self) -> bytes:
        """Four bytes."""
        start = self._used
        if start == len(self._drawn):
            self._drawn, start = os.urandom(4 * _MASKS), 0
        self._used = start + 4
        return self._drawn[start : start + 4]


#: One supply for all connections of the process.
next_mask = Masks().next

_utf8_decoder = codecs.getincrementaldecoder("utf-8")


class Socket(asyncio.Protocol):
    """One connection. Subclasses get ``handshake``, ``message``, ``closed`` and ``writable``."""

    #: What is taken of a chunk at a time, to the end of the frame; the rest waits until ``next_quantum`` is called.
    quantum_bytes = _ANY

    #: Of more than this many bytes a message is large. One that comes in one frame is given to ``large_message``, and
    #: whether a large text is UTF-8 is for whoever reads it to find out.
    large_bytes = _ANY

    #: Whole messages have several lines, each of which is given to ``messages_come`` as a message (``lines``).
    lined: Lined | None = None

    ws: Protocol
    transport: asyncio.Transport

    def __init__(self, ws: Protocol) -> None:
        self.ws = ws
        self.is_writable = True
        # Of a fragmented message; bounded by the protocol's limit on messages. Not a list: of fragments of a byte each,
        # or of none, it would be many times as large as what it holds.
        self._parts = bytearray()
        self._checked: codecs.IncrementalDecoder | None = None  # as far as it has come; None: it is binary
        self._text = False
        self._deaf = False  # we have said goodbye: what still comes is not listened to
        self._half_closed = False
        self._pongs_unread = 0
        self._head: bytes | None = b"" if ws.state is CONNECTING else None  # the end of what came of it; None: all came
        self._buffer = bytearray()  # of a frame that has not come whole
        self._needed = 0  # bytes of it, as far as known
        self._masked = ws.side is SERVER  # what comes is
        self._ping, self._pong = (empty_frame(first, not self._masked) for first in (PING, PONG))
        self.heard = False  # something has come since somebody last set this
        self._rest: tuple[bytes, int] | None = None  # of a chunk, from that byte on: its turn comes later
        self._eof = False  # the peer has half-closed; the rest is not done yet
        self._lost = False  # the connection is gone; its rest is not done yet
        self._passing = 0  # bytes of the frame under way that the protocol still has to be given
        self._passed = 0  # and of the same one, that it has been given
        self._large: LargeMessage | None = None  # under way
        self._abort: asyncio.TimerHandle | None = None
        self._ended = False  # by us: it is cut when its time is over
        self._response_pending = False  # the answer to the request waits, and so does what comes behind it

    # What a subclass says to

    def handshake(self, event: Request | Response) -> None:
        """The peer's HTTP request or response came. Set ``_response_pending`` where the answer has to wait."""
        raise NotImplementedError

    def message(self, data: bytes) -> None:
        """A whole message came."""
        raise NotImplementedError

    def messages_come(self, messages: list[bytes]) -> None:
        """These came one behind the other."""
        for message in messages:
            if not self._deaf:
                self.message(message)

    def large_message(self, message: LargeMessage) -> None:
        """A whole large message came, in one frame."""
        raise NotImplementedError

    def chunk_ends(self) -> None:
        """All messages of a chunk have come, or a quantum of them."""

    def rest_waits(self) -> None:
        """There are more in it: ``next_quantum`` has to be called. Better read no more until then."""

    def head_comes(self, data: bytes) -> None:
        """A chunk came before the request's or response's head was complete: take it, or ``take_later``."""
        self._receive_head(data)

    def ponged(self) -> None:
        """The peer has answered a ping."""

    def closed(self) -> None:
        """The connection is gone."""

    def writable(self) -> None:
        """The transport takes data again."""

    # asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The TCP connection is up; the handshake has ``PATIENCE_S``."""
        self.transport = cast(asyncio.Transport, transport)  # uvloop's is none by class
        if transport.get_extra_info("ssl_object") is not None:
            # While it is not read nothing more is taken from the kernel: what has been is decrypted in one go.
            cast(Any, transport).set_read_buffer_limits(high=1)
        self._abort = asyncio.get_running_loop().call_later(PATIENCE_S, self.transport.abort)

    def data_received(self, data: bytes) -> None:
        """A chunk came: perhaps many frames, perhaps a piece of one."""
        self.heard = True
        if self._rest is not None:  # a TLS transport may still have had it, though it is not to be read
            rest, at = self._rest
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
        if self._rest is not None:
            self.rest_waits()

    def take_later(self, data: bytes) -> None:
        """All of this is left for ``next_quantum``."""
        self._rest = data, 0

    @property
    def unread(self) -> int:
        """Bytes that have come and are not whole messages yet, or have not been looked at."""
        rest = 0 if self._rest is None else len(self._rest[0]) - self._rest[1]
        large = 0 if self._large is None else self._large.held
        lined = 0 if self.lined is None else self.lined.size
        return rest + large + lined + len(self._buffer) + len(self._parts) + (self._passed if self._passing else 0)

    def discard(self) -> None:
        """Let go of all that has come. Nothing that comes is taken any more: the connection has failed."""
        waits, self._rest = self.waits, None
        self._buffer, self._parts = bytearray(), bytearray()
        self._passing, self._large = 0, None
        if self.lined is not None:
            self.lined.clear()
        if self._lost and waits:  # for this its end has waited
            self._over()

    @property
    def waits(self) -> bool:
        """Some of what has come has not been taken yet."""
        return self._rest is not None

    def next_quantum(self) -> None:
        """Take some more of what has come, if there is any left."""
        if self._rest is None or self._response_pending:
            return
        (data, at), self._rest = self._rest, None
        try:
            if self._head is not None:
                self._receive_head(data)
            else:
                self._receive_frames(data, at)
            self.chunk_ends()
        finally:
            if self._rest is None:
                if self._lost:
                    self._over()
                elif self._eof:
                    self._receive_eof()

    def take_on(self) -> None:
        """``next_quantum``; where what came cannot be taken, the connection is cut, and the log says why."""
        try:
            self.next_quantum()
        except Exception:
            log.exception("what came over a connection could not be taken; it is cut")
            self.transport.abort()

    def _receive_head(self, data: bytes) -> None:
        """What comes before the frames: up to there the protocol's own parser has everything."""
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
            self._rest = data, size  # though it may be nothing: what comes now is put to it
        elif len(data) > size:
            self._receive_frames(data[size:])

    def _receive_frames(self, data: bytes, at: int = 0) -> None:
        """Whole messages are taken as they are; the protocol is given the frames it has to know of, and whatever breaks
        the rules, to say so."""
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
            ws = self.ws  # a link's changes on the way
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
            # Whole messages count as such where no fragmented one is under way.
            run = whole_messages(data, at, enough, self._masked, ws.current_size is None, most, self.large_bytes)
            if run.messages:  # else a fragmented message may be under way, of its own kind
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
                self._receive(data[at:])  # which closes the connection
                return
        if at < end:
            self._buffer += data[at:]

    def _come_lined(self, messages: list[bytes]) -> bool:
        """Messages of lines: as many are taken as may be at once, however many they are in. True: more is left."""
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
        """The next lines of what has come as a whole. True: there are more."""
        assert self.lined is not None
        lines = self.lined.take(self.quantum_bytes)
        if self._deaf:
            self.lined.clear()
        else:
            self.messages_come(lines)
        return bool(self.lined)

    def _receive_large(self, data: bytes, at: int) -> int:
        """Up to where the chunk belongs to the large message."""
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
        """A ping or pong without a payload, of which idle connections have nothing else. False: something else, or a
        ping whose answer nobody would read."""
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
        """A text that is not UTF-8 fails with the fragment that shows it: its last one may never come."""
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
        # Not asked here: whether the connection is still open. A close, or a frame that breaks the protocol, that came
        # in the same chunk behind this message has closed it already, and the message counts all the same.
        if self.lined is not None:
            self.lined.push(data)
        else:
            self.message(data)

    def eof_received(self) -> None:
        """The peer has half-closed: with WebSocket there is nothing more to be said."""
        while self._rest is not None and not self.lined and not self._response_pending:
            self.next_quantum()
        if self._rest is None:
            self._receive_eof()
        else:  # lines may be many, and frames may stand behind them: each quantum in its turn
            self._eof = True

    def _receive_eof(self) -> None:
        self._eof = False
        self.ws.receive_eof()
        self.send_protocol()

    def connection_lost(self, exc: Exception | None) -> None:
        """The TCP connection is gone; what had come of it before counts as ever, each quantum in its turn."""
        self.settled()
        if self._rest is None:
            self._over()
        else:
            self._lost = True
            self.pause_writing()

    def _over(self) -> None:
        self.closed()
        # The parser and its protocol hold each other, and so do an error and the frames it came through: without this a
        # closed connection is the collector's to find, and of many it finds at once it is long in getting rid.
        ws = self.ws
        ws.parser.close()
        error: BaseException | None
        for error in (ws.handshake_exc, ws.parser_exc):
            while error is not None:
                error.__traceback__ = None
                error = error.__cause__ or error.__context__

    def pause_writing(self) -> None:
        """The transport's buffer is full: what follows waits in the outbox."""
        self.is_writable = False

    def resume_writing(self) -> None:
        """It has room again."""
        self.is_writable = True
        self._pongs_unread = 0
        self.writable()

    def settled(self) -> None:
        """The handshake is over, in whichever way: patience is not needed any more."""
        if self._abort is not None:
            self._abort.cancel()
            self._abort = None

    # Sending

    def send_protocol(self) -> None:
        """Write what the protocol wants written: handshakes, pongs, closes."""
        for data in self.ws.data_to_send():
            # A transport that is closing may be gone already, though nobody has been told yet.
            if self._half_closed or self.transport.is_closing():
                break
            if data:
                self.transport.write(data)
            else:
                self._end_stream()

    def ping(self) -> None:
        """Ask the peer for a sign of life."""
        if self.ws.state is OPEN:
            self.transport.write(self._ping)

    def close(self, code: CloseCode, *, deaf: bool = True) -> None:
        """Begin the closing handshake. Once the peer takes nothing more, it has ``PATIENCE_S``, then the connection is
        cut. ``deaf``: what the peer has sent before it hears of it does not count."""
        self._deaf = deaf
        if self.ws.state is OPEN:
            self.ws.send_close(code.code, code.reason)
            self.send_protocol()
        self._cut_later()

    def fail(self, code: CloseCode) -> None:
        """The peer broke the protocol: say so and close."""
        self._deaf = True
        self.ws.fail(code.code, code.reason)
        self.send_protocol()
        self._cut_later()

    def _end_stream(self) -> None:
        """Nothing more is said, and what was written still arrives; the peer ends its own side. Closing the TCP
        connection with bytes of the peer's unread would reset it, and the peer might never see why: the close frame, or
        the response."""
        self._half_closed = True
        if self.transport.can_write_eof():
            self.transport.write_eof()
            self._cut_later()
        else:
            self._cut_later()
            # A TLS transport that is closed sends what was written and TLS's own end, then reads on, for nobody, until
            # the peer has sent its own. Where that has come already it says so at once, by ``eof_received``, which must
            # not be in the middle of a chunk.
            asyncio.get_running_loop().call_soon(self._close_transport)

    def _close_transport(self) -> None:
        if not self.transport.is_closing():  # asyncio's takes a second close for the end of the first
            # Until then it decrypts whatever comes, as fast as it comes; so little is to come at once.
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
        """``due``: when it is cut unless the peer takes more than these bytes by then; ``end``: when it is anyway."""
        if self.transport.get_protocol() is not self:
            return  # it is gone, though we have not been told yet; or another protocol has taken it over
        loop = asyncio.get_running_loop()
        now = loop.time()
        if (taken_now := self._taken()) > taken:
            due = now + PATIENCE_S
        if now >= min(due, end):
            self.transport.abort()
        else:
            self._abort = loop.call_later(PATIENCE_S / _LOOKS, self._cut_when_due, end, due, taken_now)

    def _taken(self) -> int:
        """A number that grows as the peer takes what it is sent. Of TLS only the kernel knows: what waits below it, the
        transport does not count."""
        sock = self.transport.get_extra_info("socket")
        if sock is not None and sys.platform == "linux":
            try:
                info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _BYTES_ACKED.stop)
            except (OSError, ValueError):  # uvloop's says the second of one that has closed: the loop has still to tell
                return 0
            if len(info) == _BYTES_ACKED.stop:  # Linux 4.1 or newer
                return int.from_bytes(info[_BYTES_ACKED], sys.byteorder)
        return -self.transport.get_write_buffer_size()
