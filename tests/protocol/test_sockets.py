"""Whole messages bypass the library. For any bytes, in any pieces, the outcome has to be the library's.

`tests/broker/shell/test_client_socket.py` tests an endpoint on real sockets.
"""

from __future__ import annotations

import asyncio
import gc
import random
import socket
import sys
import weakref
from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st
from websockets.client import ClientProtocol
from websockets.frames import Frame, Opcode
from websockets.protocol import CLOSED, OPEN, Protocol
from websockets.server import ServerProtocol
from websockets.uri import parse_uri

from ingeborg.protocol import sockets
from ingeborg.protocol.errors import NOT_UTF8
from ingeborg.protocol.frames import binary_frame, masked_binary_frame, masked_text_frame, text_frame, text_head
from ingeborg.protocol.sockets import Masks, Socket
from tests.fuzz import malformed

SIZE_MAX = 300
URI = parse_uri("ws://127.0.0.1/")


_random = random.Random(1)
#: Several attacks of every kind.
ATTACKS = [malformed.draw(_random) for _ in range(2_000)]


class Transport(asyncio.Transport):
    """Keeps the written bytes, and its end."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.ended = False
        self.protocol: Callable[[], Socket | None] = lambda: None

    def write(self, data: Any) -> None:
        self.written += data

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self.ended = True

    def get_write_buffer_size(self) -> int:
        return 0

    def get_protocol(self) -> Any:
        return self.protocol()

    def is_closing(self) -> bool:
        return self.ended

    def abort(self) -> None:
        self.ended = True


class TlsTransport(Transport):
    """Ends one direction with the other. If the peer's end has come already, it reports it at once."""

    def __init__(self, peer_has_ended: bool = False) -> None:
        super().__init__()
        self.closed = self.aborted = False
        self._peer_has_ended = peer_has_ended

    def can_write_eof(self) -> bool:
        return False

    def write_eof(self) -> None:
        raise NotImplementedError

    def close(self) -> None:
        assert not self.ended, "asyncio's breaks when it is closed twice"
        self.ended = self.closed = True
        if self._peer_has_ended:
            self.get_protocol().eof_received()

    def abort(self) -> None:
        self.ended = self.aborted = True


class Ours(Socket):
    """Keeps the messages."""

    def __init__(self, ws: Protocol) -> None:
        super().__init__(ws)
        self.transport = Transport()
        self.transport.protocol = weakref.ref(self)
        self.messages: list[bytes] = []
        self.heads = 0

    def handshake(self, event: Any) -> None:
        self.heads += 1
        if isinstance(self.ws, ServerProtocol):
            self.ws.send_response(self.ws.accept(event))

    def message(self, data: bytes) -> None:
        self.messages.append(data)

    def outcome(self) -> Any:
        assert isinstance(self.transport, Transport)
        return self.messages, self.transport.written, self.transport.ended, self.ws.state, self.heads


class Library(Ours):
    """Passes everything to the library, byte by byte. The library reads a whole chunk before it reports an event, so it
    would answer a ping after a message that has to close the connection."""

    def data_received(self, data: bytes) -> None:
        for byte in data:
            self._receive(bytes([byte]))


class Sliced(Ours):
    """Takes a few bytes at a time, and sometimes only after more has come."""

    turns = 1  # between two chunks

    def __init__(self, ws: Protocol) -> None:
        super().__init__(ws)
        self.quantum_bytes = 7

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        for _ in range(self.turns):
            self.next_quantum()

    def outcome(self) -> Any:
        while self.waits:
            self.next_quantum()
        return super().outcome()


sizes = st.one_of(st.integers(0, 130), st.integers(SIZE_MAX - 2, SIZE_MAX + 2))
data = st.builds(lambda size, fill: bytes([fill]) * size, sizes, st.sampled_from([0x00, 0x20, 0x7F, 0xC3]))
frames = st.one_of(
    st.builds(Frame, st.sampled_from([Opcode.TEXT, Opcode.BINARY]), data),
    st.builds(Frame, st.sampled_from([Opcode.TEXT, Opcode.BINARY, Opcode.CONT]), data, st.booleans()),
    st.builds(Frame, st.sampled_from([Opcode.PING, Opcode.PONG]), st.binary(max_size=125)),
    st.just(Frame(Opcode.CLOSE, b"\x03\xe8")),
)


@st.composite
def chunked(draw: st.DrawFn, masked: bool) -> list[bytes]:
    """Draw mostly valid frames, and perhaps bytes that are no frame, cut anywhere."""
    stream = b""
    for frame in draw(st.lists(frames, max_size=5)):
        wrong = draw(st.sampled_from([""] * 18 + ["mask", "bit"]))
        part = frame.serialize(mask=masked is (wrong != "mask"))
        stream += bytes([part[0] | 0x40]) + part[1:] if wrong == "bit" else part
    stream += draw(st.one_of(st.just(b""), st.binary(max_size=20)))
    cuts = sorted(draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    return [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True) if a < b]


def both(make: Any, chunks: list[bytes]) -> tuple[Any, Any]:
    async def run(kind: type[Ours]) -> Any:
        socket = kind(make())
        for chunk in chunks:
            socket.data_received(chunk)
        return socket.outcome()

    return asyncio.run(run(Ours)), asyncio.run(run(Library))


@given(chunked(masked=True))
def test_a_server_does_what_the_library_does(chunks: list[bytes]) -> None:
    ours, library = both(lambda: ServerProtocol(state=OPEN, max_size=SIZE_MAX), chunks)
    assert ours == library


@given(chunked(masked=False))
def test_a_client_does_what_the_library_does(chunks: list[bytes]) -> None:
    def make() -> Protocol:
        ws = ClientProtocol(URI, max_size=SIZE_MAX)
        ws.state = OPEN
        ws.parser = Protocol.parse(ws)
        next(ws.parser)
        return ws

    ours, library = both(make, chunks)
    # A client masks its answers with different keys.
    assert (ours[0], len(ours[1]), *ours[2:]) == (library[0], len(library[1]), *library[2:])


@given(st.data())
def test_what_comes_before_the_frames_is_the_librarys_wherever_it_is_cut(draws: st.DataObject) -> None:
    request = (
        b"GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n"
    )
    request = draws.draw(st.sampled_from([request, request.replace(b"13", b"12"), b"nonsense\r\n\r\n"]))
    stream = request + b"".join(draws.draw(chunked(masked=True)))
    cuts = sorted(draws.draw(st.lists(st.integers(0, len(stream)), max_size=6)))
    chunks = [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True) if a < b]
    ours, library = both(lambda: ServerProtocol(max_size=SIZE_MAX), chunks)
    assert (ours[0], ours[2:]) == (library[0], library[2:])  # the responses have a date in them
    assert len(ours[1]) == len(library[1])


@given(chunked(masked=True), st.integers(1, SIZE_MAX), st.integers(0, 3))
def test_a_quantum_at_a_time_comes_to_the_same(chunks: list[bytes], quantum_bytes: int, turns: int) -> None:
    async def run(sliced: bool) -> Any:
        socket = Sliced(ServerProtocol(state=OPEN, max_size=SIZE_MAX))
        socket.quantum_bytes = quantum_bytes if sliced else sys.maxsize
        socket.turns = turns
        for chunk in chunks:
            socket.data_received(chunk)
        return socket.outcome()

    assert asyncio.run(run(True)) == asyncio.run(run(False))


def test_no_more_than_a_quantum_is_taken_at_once() -> None:
    socket = Sliced(ServerProtocol(state=OPEN))
    socket.turns = 0
    frame = Frame(Opcode.TEXT, b"x" * 10).serialize(mask=True)
    socket.quantum_bytes = 2 * len(frame) - 1  # up to the end of the second frame
    socket.data_received(5 * frame)
    taken = [len(socket.messages)]
    while socket.waits:
        socket.next_quantum()
        taken.append(len(socket.messages))
    assert taken == [2, 4, 5]


@pytest.mark.parametrize("ending", ["end of the stream", "connection lost"])
def test_what_had_come_before_the_end_counts(ending: str) -> None:
    socket = Sliced(ServerProtocol(state=OPEN))
    socket.turns = 0
    over: list[int] = []
    socket.closed = lambda: over.append(len(socket.messages))  # type: ignore[method-assign]
    socket.data_received(5 * Frame(Opcode.TEXT, b"x" * 10).serialize(mask=True))
    if ending == "connection lost":
        socket.connection_lost(None)
        assert not over
        while socket.waits:
            socket.next_quantum()
    else:
        socket.eof_received()
        socket.connection_lost(None)
    assert over == [5]


@pytest.mark.parametrize("size", [0, 1, 125, 126, 65535, 65536, 70_000])
def test_frames_are_those_of_the_library(size: int) -> None:
    data = b"x" * size
    assert text_frame(data) == text_head(size) + data == Frame(Opcode.TEXT, data).serialize(mask=False)
    assert binary_frame(data) == Frame(Opcode.BINARY, data).serialize(mask=False)
    ws = ServerProtocol(state=OPEN, max_size=None)
    for masked, opcode in ((masked_text_frame, Opcode.TEXT), (masked_binary_frame, Opcode.BINARY)):
        ws.receive_data(masked(data, b"\x01\x80\xfe\x00"))
        (frame,) = ws.events_received()
        assert isinstance(frame, Frame)
        assert (frame.opcode, bytes(frame.data)) == (opcode, data)


def test_no_two_frames_have_the_same_mask() -> None:
    masks = Masks()
    drawn = [masks.next() for _ in range(5000)]
    assert {len(mask) for mask in drawn} == {4}
    assert len(set(drawn)) > 4990  # once in 300 runs two of 5,000 are the same by chance


def lost_with_a_rest() -> tuple[Sliced, list[bool]]:
    """Return a connection that is lost while data waits, and a list that says whether it has reported its end."""
    socket = Sliced(ServerProtocol(state=OPEN))
    socket.turns = 0
    over: list[bool] = []
    socket.closed = lambda: over.append(True)  # type: ignore[method-assign]
    socket.data_received(3 * Frame(Opcode.TEXT, b"x" * 10).serialize(mask=True))
    socket.connection_lost(None)
    assert not over
    return socket, over


def test_a_connection_that_is_lost_ends_even_if_what_had_come_cannot_be_taken() -> None:
    socket, over = lost_with_a_rest()
    del socket.messages
    with pytest.raises(AttributeError):
        socket.next_quantum()
    assert over == [True]


def test_a_connection_that_is_lost_ends_when_what_had_come_is_let_go_of() -> None:
    socket, over = lost_with_a_rest()
    socket.discard()
    socket.discard()
    socket.next_quantum()
    assert over == [True]


@pytest.mark.parametrize("kind", sorted({attack.kind for attack in ATTACKS}))
def test_a_connection_that_is_over_leaves_nothing_to_the_collector(kind: str) -> None:
    """The collector would free many such connections at once, and every client would wait for it."""
    kept: list[Any] = []
    gc.collect()
    gc.disable()
    try:
        for attack in ATTACKS:
            if attack.kind == kind:
                socket = Ours(ServerProtocol(max_size=SIZE_MAX))
                for data in (attack.data, attack.then):
                    if socket.ws.state is not CLOSED:
                        socket.data_received(data)
                socket.connection_lost(None)
                kept.append(weakref.ref(socket.ws))
        del socket
        assert [ref() for ref in kept] == [None] * len(kept)
    finally:
        gc.enable()


# -- The end, over TLS


def over_tls(peer_has_ended: bool = False) -> tuple[Ours, TlsTransport]:
    socket = Ours(ServerProtocol(state=OPEN))
    transport = TlsTransport(peer_has_ended)
    transport.protocol = weakref.ref(socket)
    socket.transport = transport
    return socket, transport


CLOSED_1002 = b"\x88\x02\x03\xea"


@pytest.mark.parametrize("peer_has_ended", [False, True])
async def test_a_tls_transport_is_closed_once_the_chunk_is_over(peer_has_ended: bool) -> None:
    socket, transport = over_tls(peer_has_ended)
    violation, behind = b"\x83\x80\0\0\0\0", Frame(Opcode.TEXT, b"x").serialize(mask=True)
    socket.data_received(behind + violation + behind)
    assert not transport.closed
    await asyncio.sleep(0)
    assert transport.closed
    assert socket.messages == [b"x"]
    assert transport.written[:1] + transport.written[2:4] == CLOSED_1002[:1] + CLOSED_1002[2:]
    socket.connection_lost(None)


async def test_while_tls_ends_the_kernel_holds_little_of_what_comes() -> None:
    connection, transport = over_tls()
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 128 << 10)
        before = sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
        with mock.patch.object(transport, "get_extra_info", {"socket": sock}.get):
            connection.fail(NOT_UTF8)
            await asyncio.sleep(0)
        assert transport.closed
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) < before / 2
    connection.connection_lost(None)


@pytest.mark.parametrize("error", [OSError(9, "Bad file descriptor"), ValueError("negative file descriptor")])
async def test_a_connection_that_has_closed_and_is_looked_at_before_its_end_is_told_is_cut(error: Exception) -> None:
    connection, transport = over_tls()
    gone = mock.Mock(**{"getsockopt.side_effect": error})
    with mock.patch.object(transport, "get_extra_info", {"socket": gone}.get):
        connection._cut_when_due(0.0, 0.0, 0)
    assert transport.aborted
    connection.connection_lost(None)


async def test_a_tls_transport_that_the_peer_has_closed_is_not_closed_again() -> None:
    socket, transport = over_tls()
    socket.eof_received()
    transport.ended = True  # TLS answers the end itself
    await asyncio.sleep(0)
    assert not transport.closed
    socket.connection_lost(None)


async def test_after_its_end_a_connection_is_cut_when_the_peer_takes_nothing_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By the test's clock, the peer takes a piece every 4 s: for 16 s, or forever."""
    for pieces, cut_at_s in ((4, 16 + 5), (1000, sockets.LINGER_S)):
        socket, transport = over_tls()
        now_s = 0.0
        due: list[tuple[float, Any, tuple[Any, ...]]] = []

        class Clock:
            def time(self) -> float:
                return now_s  # noqa: B023

            def call_soon(self, *_: Any) -> None:
                pass

            def call_later(self, delay_s: float, callback: Any, *arguments: Any) -> Any:
                due.append((now_s + delay_s, callback, arguments))  # noqa: B023
                return mock.Mock()

        def taken() -> int:
            return -1000 + min(int(now_s / 4), pieces)  # noqa: B023

        monkeypatch.setattr(transport, "get_write_buffer_size", lambda: -taken())
        with mock.patch("asyncio.get_running_loop", Clock):
            socket.fail(NOT_UTF8)
            while due and not transport.aborted:
                now_s, callback, arguments = due.pop(0)
                callback(*arguments)
        assert transport.aborted
        assert cut_at_s <= now_s <= cut_at_s + 1.01
