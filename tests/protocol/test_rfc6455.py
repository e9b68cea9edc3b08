"""RFC 6455 and RFC 7692, case by case, against a running endpoint: by another library (aiohttp) and by raw sockets.

The order is that of the Autobahn test suite's groups. This file does not repeat the cases of
`tests/broker/shell/test_client_socket.py`: the limit on frames, one violation of each kind, slow and silent clients. A
broker does not echo, so each case subscribes to the topic that it publishes to.
"""

from __future__ import annotations

import base64
import hashlib
import itertools
import os
import random
import ssl
import zlib
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from typing import Any

import aiohttp
import orjson
import pytest
import pytest_asyncio

from tests.broker.running import HANDSHAKE, PATIENCE_S, Raw, Running, raw, running

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.usefixtures("transport", "logged")]

TEXT, BINARY, CLOSE, PING, PONG = 0x81, 0x82, 0x88, 0x89, 0x8A
FIRST_TEXT, FIRST_BINARY, MIDDLE, LAST = 0x01, 0x02, 0x00, 0x80
RSV1 = 0x40

SUCCESS = {"result": "success"}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def plain_endpoint(
    tmp_path_factory: pytest.TempPathFactory, transport: str, module_log: object
) -> AsyncIterator[Running]:
    async with running(tmp_path_factory.mktemp("rfc6455")) as endpoint:
        yield endpoint
        assert (await endpoint.metrics())["ingeborg_turns_failed_total"] == 0


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def deflating(
    tmp_path_factory: pytest.TempPathFactory, transport: str, module_log: object
) -> AsyncIterator[Running]:
    async with running(tmp_path_factory.mktemp("rfc7692"), compression=True) as endpoint:
        yield endpoint
        assert (await endpoint.metrics())["ingeborg_turns_failed_total"] == 0


def frame(first: int, payload: bytes = b"", *, mask: bytes | None = None, wide: int = 0) -> bytes:
    """Return a client's frame with a real mask. ``wide``: bytes of the extended length, if more than necessary."""
    mask = os.urandom(4) if mask is None else mask
    size = len(payload)
    wide = wide or (0 if size < 126 else 2 if size < 65536 else 8)
    length = bytes([0x80 | (size if not wide else 126 if wide == 2 else 127)])
    if wide:
        length += size.to_bytes(wide, "big")
    return bytes([first]) + length + mask + bytes(byte ^ mask[at % 4] for at, byte in enumerate(payload))


def command(name: str, **fields: Any) -> bytes:
    return orjson.dumps({"command": name, "client_id": "c", **fields})


def publish(payload: Any) -> bytes:
    return command("publish", topic="echo", payload=payload, dedup=False)


LISTEN = command("listen")


class Echo(Raw):
    """A raw connection that gets the messages it publishes."""

    async def begin(self, head: str = HANDSHAKE) -> bytes:
        """Do the handshake, and subscribe. Returns the response's head."""
        self.writer.write(head.format(path="/").encode())
        answer = await self.reader.readuntil(b"\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 101 "), answer
        return answer

    async def subscribed(self) -> None:
        """Listen and subscribe, so that it gets its own messages."""
        for message in (LISTEN, command("subscribe", topic="echo")):
            self.writer.write(frame(TEXT, message))
            assert orjson.loads((await self.frame())[1]) == SUCCESS

    async def hears(self, payload: Any) -> None:
        """Check that the next frame is that notification."""
        first, data = await self.frame()
        assert first == TEXT, (first, data)
        assert orjson.loads(data)["broadcast"] == payload

    async def serves(self) -> None:
        """Check that the connection still works."""
        self.writer.write(frame(TEXT, LISTEN))
        assert orjson.loads((await self.frame())[1]) == SUCCESS

    async def is_closed(self, code: int) -> None:
        """Check that the endpoint closes with this code, and then ends the stream (RFC 6455 section 7.1.1)."""
        assert await self.close_code() == code
        assert await self.rest() == b""


@asynccontextmanager
async def echo(endpoint: Running, *, subscribed: bool = True) -> AsyncIterator[Echo]:
    async with raw(endpoint.url, limit=1 << 22) as connection:
        made = Echo(connection.reader, connection.writer)
        await made.begin()
        if subscribed:
            await made.subscribed()
        yield made


def trusted(endpoint: Running) -> ssl.SSLContext | bool:
    """aiohttp made its own context before the certificate existed."""
    return ssl.create_default_context() if endpoint.url.startswith("wss") else True


@asynccontextmanager
async def other_library(endpoint: Running, **options: Any) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
    timeout = aiohttp.ClientTimeout(total=PATIENCE_S)
    options = {"max_msg_size": 0, "autoclose": False, "ssl": trusted(endpoint), **options}
    async with aiohttp.ClientSession(timeout=timeout) as session, session.ws_connect(endpoint.url, **options) as socket:
        yield socket


async def ask(socket: aiohttp.ClientWebSocketResponse, message: bytes) -> Any:
    await socket.send_str(message.decode())
    return orjson.loads(await socket.receive_str(timeout=PATIENCE_S))


async def subscribe(socket: aiohttp.ClientWebSocketResponse) -> None:
    assert await ask(socket, LISTEN) == SUCCESS
    assert await ask(socket, command("subscribe", topic="echo")) == SUCCESS


# -- 1. Framing (RFC 6455 section 5.2)

SIZES = (0, 1, 124, 125, 126, 127, 128, 254, 255, 256, 65_534, 65_535, 65_536, 65_537, 1_000_000)


async def test_5_2_messages_of_every_length_encoding_by_another_library(plain_endpoint: Running) -> None:
    async with other_library(plain_endpoint) as socket:
        await subscribe(socket)
        for size in SIZES:
            payload = "x" * size
            assert (await ask(socket, publish(payload)))["broadcast"] == payload
        await socket.send_bytes(publish("binary"))
        assert orjson.loads(await socket.receive_str())["broadcast"] == "binary"


async def test_5_2_the_endpoint_uses_the_shortest_length_and_no_mask(plain_endpoint: Running) -> None:
    """Section 5.1: a server does not mask; 5.2: "the minimal number of bytes MUST be used"."""
    around = len(b'{"key":"echo","broadcast":""}')
    async with echo(plain_endpoint) as connection:
        for size in (125, 126, 127, 65_535, 65_536):
            connection.writer.write(frame(TEXT, publish("x" * (size - around))))
            while (head := await connection.reader.readexactly(2)) == bytes([PING, 0]):
                pass
            first, length = head
            wide = {126: 2, 127: 8}.get(length, 0)
            said = int.from_bytes(await connection.reader.readexactly(wide), "big") if wide else length
            assert (first, said) == (TEXT, size)
            assert wide == (0 if size < 126 else 2 if size < 65_536 else 8)
            await connection.reader.readexactly(size)


async def test_5_2_a_length_longer_than_needed_is_understood(plain_endpoint: Running) -> None:
    async with echo(plain_endpoint) as connection:
        for wide in (2, 8):
            connection.writer.write(frame(TEXT, publish(wide), wide=wide))
            await connection.hears(wide)


async def test_5_2_a_length_with_its_highest_bit_set_is_refused(plain_endpoint: Running) -> None:
    async with echo(plain_endpoint) as connection:
        connection.writer.write(bytes([TEXT, 0xFF]) + (2**63 + 5).to_bytes(8, "big") + bytes(9))
        assert await connection.close_code() in (1002, 1009)


@pytest.mark.parametrize("mask", [b"\0\0\0\0", b"\xff\xff\xff\xff", b"\x01\x02\x04\x80"])
async def test_5_3_any_mask_is_taken_off(plain_endpoint: Running, mask: bytes) -> None:
    async with echo(plain_endpoint) as connection:
        for size in range(9):
            connection.writer.write(frame(TEXT, publish("x" * size), mask=mask))
            await connection.hears("x" * size)


async def test_5_2_frames_come_byte_by_byte_or_all_at_once(plain_endpoint: Running) -> None:
    messages = [publish("a"), publish("é" * 100), publish("x" * 300)]
    whole = b"".join(frame(TEXT, message) for message in messages)
    async with echo(plain_endpoint) as connection:
        for pieces in ([whole], [whole[at : at + 1] for at in range(len(whole))], _cut(whole, 7)):
            for piece in pieces:
                connection.writer.write(piece)
                await connection.writer.drain()
            for message in messages:
                await connection.hears(orjson.loads(message)["payload"])


def _cut(data: bytes, seed: int) -> Iterable[bytes]:
    rng = random.Random(seed)
    while data:
        size = rng.randrange(1, 40)
        yield data[:size]
        data = data[size:]


# -- 2. Pings and pongs (sections 5.5.2, 5.5.3)


async def test_5_5_2_every_ping_is_answered_in_order_with_its_data(plain_endpoint: Running) -> None:
    async with echo(plain_endpoint) as connection:
        data = [b"", b"\0", b"hello", b"\xfe\xff" * 62, *(b"ping %d" % number for number in range(10))]
        connection.writer.write(b"".join(frame(PING, each) for each in data))
        for each in data:
            assert await connection.frame() == (PONG, each)
        for byte in frame(PING, b"slowly"):
            connection.writer.write(bytes([byte]))
            await connection.writer.drain()
        assert await connection.frame() == (PONG, b"slowly")


async def test_5_5_3_a_pong_that_nobody_asked_for_is_passed_over(plain_endpoint: Running) -> None:
    async with echo(plain_endpoint) as connection:
        connection.writer.write(frame(PONG) + frame(PONG, b"unasked") + frame(PING, b"and now"))
        assert await connection.frame() == (PONG, b"and now")
        await connection.serves()


async def test_5_5_2_another_librarys_pings_and_the_endpoints_are_answered(plain_endpoint: Running) -> None:
    async with other_library(plain_endpoint, autoping=False) as socket:
        await socket.ping(b"from aiohttp")
        while (answer := await socket.receive(timeout=PATIENCE_S)).type is aiohttp.WSMsgType.PING:
            pass
        assert (answer.type, answer.data) == (aiohttp.WSMsgType.PONG, b"from aiohttp")


# -- 3. Reserved bits (section 5.2)


@pytest.mark.parametrize("bits", range(1, 8))
@pytest.mark.parametrize("first", [TEXT, BINARY, PING, PONG, CLOSE])
async def test_5_2_reserved_bits_without_an_extension_end_it(plain_endpoint: Running, bits: int, first: int) -> None:
    async with echo(plain_endpoint, subscribed=False) as connection:
        connection.writer.write(frame(first | bits << 4, b"" if first & 0x8 else LISTEN))
        await connection.is_closed(1002)


async def test_5_2_reserved_bits_within_a_message_end_it(plain_endpoint: Running) -> None:
    async with echo(plain_endpoint, subscribed=False) as connection:
        connection.writer.write(frame(FIRST_TEXT, LISTEN[:5]) + frame(LAST | RSV1, LISTEN[5:]))
        await connection.is_closed(1002)


async def test_7_1_7_what_came_whole_before_the_violation_is_answered(plain_endpoint: Running) -> None:
    """The frames come in pieces, so that the answer leaves before the violation. Nothing after the violation counts."""
    async with echo(plain_endpoint) as connection:
        connection.writer.write(frame(TEXT, publish("before")))
        await connection.hears("before")
        connection.writer.write(frame(TEXT | RSV1, publish("bad")) + frame(TEXT, publish("behind")))
        await connection.is_closed(1002)


# -- 4. Opcodes (section 5.2)


@pytest.mark.parametrize("opcode", [3, 4, 5, 6, 7, 11, 12, 13, 14, 15])
@pytest.mark.parametrize("payload", [b"", LISTEN], ids=["empty", "full"])
async def test_5_2_an_opcode_without_a_meaning_ends_it(plain_endpoint: Running, opcode: int, payload: bytes) -> None:
    for fin in (0x80, 0x00):
        async with echo(plain_endpoint, subscribed=False) as connection:
            connection.writer.write(frame(fin | opcode, payload))
            await connection.is_closed(1002)


# -- 5. Fragments (section 5.4)


@pytest.mark.parametrize("first", [FIRST_TEXT, FIRST_BINARY], ids=["text", "binary"])
@pytest.mark.parametrize("cuts", [[], [5], [0], [5, 5], [1, 2, 3], list(range(1, 60))])
async def test_5_4_a_message_may_be_in_fragments_empty_ones_too(
    plain_endpoint: Running, first: int, cuts: list[int]
) -> None:
    message = publish("in fragments")
    edges = [0, *cuts, len(message)]
    parts = [message[start:end] for start, end in itertools.pairwise(edges)]
    parts.append(b"")
    opcodes = [first, *[MIDDLE] * (len(parts) - 2), LAST]
    async with echo(plain_endpoint) as connection:
        connection.writer.write(b"".join(map(frame, opcodes, parts)))
        await connection.hears("in fragments")


async def test_5_4_control_frames_come_between_fragments_and_are_answered_first(plain_endpoint: Running) -> None:
    message = publish("whole")
    async with echo(plain_endpoint) as connection:
        connection.writer.write(frame(FIRST_TEXT, message[:9]) + frame(PING, b"1") + frame(MIDDLE, message[9:20]))
        assert await connection.frame() == (PONG, b"1")
        connection.writer.write(frame(PONG, b"x") + frame(PING) + frame(LAST, message[20:]))
        assert await connection.frame() == (PONG, b"")
        await connection.hears("whole")


@pytest.mark.parametrize(
    "frames",
    [
        frame(MIDDLE, LISTEN),
        frame(TEXT, LISTEN) + frame(LAST, LISTEN),
        frame(FIRST_TEXT, b"{") + frame(LAST, b"}") + frame(LAST, b"}"),
        frame(FIRST_TEXT, b"{") + frame(BINARY, LISTEN),
        frame(FIRST_BINARY, b"{") + frame(FIRST_BINARY, b"}"),
        frame(FIRST_TEXT, b"{") + frame(PING) + frame(TEXT, LISTEN),
    ],
    ids=["begins-nothing", "after-a-whole", "after-its-last", "a-whole-in-between", "begun-twice", "after-a-ping"],
)
async def test_5_4_fragments_out_of_order_end_it(plain_endpoint: Running, frames: bytes) -> None:
    async with echo(plain_endpoint, subscribed=False) as connection:
        connection.writer.write(frames)
        await connection.is_closed(1002)


@pytest.mark.parametrize("opcode", [CLOSE, PING, PONG])
async def test_5_5_control_frames_are_whole_and_of_125_bytes_at_most(plain_endpoint: Running, opcode: int) -> None:
    for bad in (frame(opcode & 0x0F, b"ab"), frame(opcode, bytes(126)), frame(opcode, bytes(65_536))):
        async with echo(plain_endpoint, subscribed=False) as connection:
            connection.writer.write(bad)
            await connection.is_closed(1002)


# -- 6. UTF-8 (sections 5.6, 8.1)

GOOD_TEXT = (
    "κόσμε",
    "Ω≈ç√∫",
    "\u0080 \u07ff \u0800 \uffff",
    "\U00010000 \U0010ffff",
    "\ud7ff \ue000 \ufffd",
    "\ufdd0 \U0001fffe",  # no characters, and yet UTF-8
    "\ufeff",
    "a\u0301",
)
BAD_UTF8 = {
    "continuation-alone": b"\x80",
    "continuations": b"\xbf\x80",
    "start-alone": b"\xc3",
    "start-of-three": b"\xe2\x82",
    "start-of-four": b"\xf0\x9f\x98",
    "impossible-fe": b"\xfe",
    "impossible-ff": b"\xff",
    "overlong-2": b"\xc0\xaf",
    "overlong-2-largest": b"\xc1\xbf",
    "overlong-3": b"\xe0\x80\xaf",
    "overlong-4": b"\xf0\x80\x80\xaf",
    "five-bytes": b"\xf8\x88\x80\x80\x80",
    "six-bytes": b"\xfc\x84\x80\x80\x80\x80",
    "surrogate-low": b"\xed\xa0\x80",
    "surrogate-high": b"\xed\xbf\xbf",
    "surrogate-pair": b"\xed\xa0\xbd\xed\xb8\x80",
    "beyond-10ffff": b"\xf4\x90\x80\x80",
}


async def test_5_6_text_of_every_length_of_code_point_by_another_library(plain_endpoint: Running) -> None:
    async with other_library(plain_endpoint) as socket:
        await subscribe(socket)
        for text in GOOD_TEXT:
            assert (await ask(socket, publish(text)))["broadcast"] == text


async def test_5_6_a_code_point_may_be_split_over_fragments(plain_endpoint: Running) -> None:
    async with echo(plain_endpoint) as connection:
        for text in GOOD_TEXT:
            message = publish(text)
            parts = [message[at : at + 1] for at in range(len(message))]
            opcodes = [FIRST_TEXT, *[MIDDLE] * (len(parts) - 2), LAST]
            connection.writer.write(b"".join(map(frame, opcodes, parts)))
            await connection.hears(text)


@pytest.mark.parametrize("bad", BAD_UTF8.values(), ids=BAD_UTF8)
async def test_8_1_text_that_is_not_utf8_ends_it(plain_endpoint: Running, bad: bytes) -> None:
    message = b'{"command":"publish","payload":"' + bad + b'"}'
    at = message.index(bad)
    for frames in (frame(TEXT, message), frame(FIRST_TEXT, message[: at + 1]) + frame(LAST, message[at + 1 :])):
        async with echo(plain_endpoint, subscribed=False) as connection:
            connection.writer.write(frames)
            await connection.is_closed(1007)


@pytest.mark.parametrize("bad", [b"\xff", b"\xed\xa0\x80", b"\xf4\x90", b"\xc0\xaf", b"\xce\xba\x80"])
async def test_8_1_text_fails_with_the_fragment_that_shows_it(plain_endpoint: Running, bad: bytes) -> None:
    """Its last fragment never comes: an endpoint that waited for it would hold all former fragments until then."""
    async with echo(plain_endpoint, subscribed=False) as connection:
        connection.writer.write(frame(FIRST_TEXT, '{"κόσμε'.encode()[:-1]))
        await connection.writer.drain()
        connection.writer.write(frame(MIDDLE, b"\xb5") + frame(MIDDLE, bad))
        await connection.is_closed(1007)


async def test_5_6_binary_messages_may_hold_anything(plain_endpoint: Running) -> None:
    """An endpoint refuses a binary command that is not UTF-8 (SPEC section 2.1), and keeps the connection."""
    async with echo(plain_endpoint) as connection:
        for bad in BAD_UTF8.values():
            connection.writer.write(frame(FIRST_BINARY, bad) + frame(LAST, bad))
            assert orjson.loads((await connection.frame())[1])["error"] == "bad_json"
        await connection.serves()


# -- 7. Closing (sections 5.5.1, 7)

GOOD_CODES = (1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 3000, 3999, 4000, 4999)
BAD_CODES = (0, 1, 999, 1004, 1005, 1006, 1015, 1016, 1100, 2000, 2999, 5000, 65_535)


@pytest.mark.parametrize("code", GOOD_CODES)
async def test_7_4_a_close_is_answered_with_its_code(plain_endpoint: Running, code: int) -> None:
    async with echo(plain_endpoint, subscribed=False) as connection:
        connection.writer.write(frame(CLOSE, code.to_bytes(2, "big") + "auf Wiedersehen, κόσμε".encode()))
        await connection.is_closed(code)


@pytest.mark.parametrize("code", BAD_CODES)
async def test_7_4_a_code_that_may_not_be_sent_ends_it(plain_endpoint: Running, code: int) -> None:
    async with echo(plain_endpoint, subscribed=False) as connection:
        connection.writer.write(frame(CLOSE, code.to_bytes(2, "big")))
        await connection.is_closed(1002)


async def test_5_5_1_a_close_without_a_code_is_answered(plain_endpoint: Running) -> None:
    async with echo(plain_endpoint, subscribed=False) as connection:
        connection.writer.write(frame(CLOSE))
        first, payload = await connection.frame()
        assert (first, payload) == (CLOSE, b"")
        assert await connection.rest() == b""


async def test_5_5_1_a_reason_is_utf8_of_123_bytes_at_most(plain_endpoint: Running) -> None:
    for reason, code in ((b"x" * 123, 1000), (b"x" * 124, 1002), (b"\xc3", 1007), (b"\xed\xa0\x80", 1007)):
        async with echo(plain_endpoint, subscribed=False) as connection:
            connection.writer.write(frame(CLOSE, b"\x03\xe8" + reason))
            await connection.is_closed(code)


async def test_5_5_1_nothing_behind_a_close_is_looked_at(plain_endpoint: Running) -> None:
    behind = (frame(PING, b"x"), frame(CLOSE, b"\x0f\xa0"), frame(TEXT, LISTEN), frame(0x83), frame(TEXT, b"\xff"))
    for each in behind:
        async with echo(plain_endpoint, subscribed=False) as connection:
            connection.writer.write(frame(CLOSE, b"\x03\xe8") + each)
            await connection.is_closed(1000)


async def test_5_4_a_close_within_a_message_ends_it(plain_endpoint: Running) -> None:
    """Control frames may come between fragments. `websockets` treats a close there as a violation, and closes."""
    async with echo(plain_endpoint, subscribed=False) as connection:
        connection.writer.write(frame(FIRST_TEXT, b"{") + frame(CLOSE, b"\x03\xe8") + frame(LAST, b"}"))
        await connection.is_closed(1002)


@pytest.mark.parametrize("code", [1000, 4321])
async def test_7_1_2_another_library_closes_and_is_answered(plain_endpoint: Running, code: int) -> None:
    async with other_library(plain_endpoint) as socket:
        await subscribe(socket)
        assert await socket.close(code=code, message=b"done")
        assert socket.close_code == code


async def test_7_1_5_another_library_sees_why_it_was_closed(plain_endpoint: Running) -> None:
    async with other_library(plain_endpoint) as socket:
        await socket.send_frame(b"\xff", aiohttp.WSMsgType.TEXT)
        message = await socket.receive(timeout=PATIENCE_S)
        assert (message.type, message.data) == (aiohttp.WSMsgType.CLOSE, 1007)
    async with other_library(plain_endpoint) as socket, other_library(plain_endpoint) as newer:
        assert await ask(socket, LISTEN) == SUCCESS
        assert await ask(newer, LISTEN) == SUCCESS
        message = await socket.receive(timeout=PATIENCE_S)
        assert (message.type, message.data) == (aiohttp.WSMsgType.CLOSE, 4001)


# -- 9. Limits and load (section 10.4)


async def test_10_4_a_thousand_messages_pipelined_by_another_library(plain_endpoint: Running) -> None:
    async with other_library(plain_endpoint) as socket:
        await subscribe(socket)
        for number in range(1_000):
            await socket.send_str(publish(number).decode())
        for number in range(1_000):
            assert orjson.loads(await socket.receive_str(timeout=PATIENCE_S))["broadcast"] == number


async def test_10_4_a_megabyte_in_fragments_of_any_size(plain_endpoint: Running) -> None:
    message = publish("x" * 1_000_000)
    async with echo(plain_endpoint) as connection:
        for size in (4_096, 65_536, 1_000_000):
            parts = [message[at : at + size] for at in range(0, len(message), size)]
            opcodes = [FIRST_TEXT, *[MIDDLE] * (len(parts) - 2), LAST]
            connection.writer.write(
                b"".join(frame(*each, mask=b"\0\0\0\0") for each in zip(opcodes, parts, strict=True))
            )
            await connection.hears("x" * 1_000_000)


# -- 12, 13. Compression (RFC 7692)

OFFER = "Sec-WebSocket-Extensions: {offer}\r\n\r\n"


def offering(offer: str) -> str:
    return HANDSHAKE[: -len("\r\n")] + OFFER.replace("{offer}", offer)


def deflated(data: bytes, *, bits: int = 15) -> bytes:
    """Compress a message without the empty block at its end (RFC 7692 section 7.2.1)."""
    packer = zlib.compressobj(wbits=-bits)
    packed = packer.compress(data) + packer.flush(zlib.Z_SYNC_FLUSH)
    assert packed.endswith(b"\0\0\xff\xff")
    return packed[:-4]


@asynccontextmanager
async def compressed(endpoint: Running, offer: str = "permessage-deflate") -> AsyncIterator[tuple[Echo, str]]:
    """Connect with compression. Returns the extension that the endpoint agreed to."""
    async with raw(endpoint.url, limit=1 << 22) as connection:
        made = Echo(connection.reader, connection.writer)
        head = (await made.begin(offering(offer))).decode().lower()
        agreed = [line.partition(":")[2].strip() for line in head.split("\r\n") if "extensions" in line]
        yield made, "".join(agreed)


class Inflater:
    """Reads the endpoint's messages. ``fresh``: each with a new context (section 7.1.1)."""

    def __init__(self, fresh: bool = False) -> None:
        self._fresh = fresh
        self._made = zlib.decompressobj(wbits=-15)

    async def hears(self, connection: Echo) -> Any:
        if self._fresh:
            self._made = zlib.decompressobj(wbits=-15)
        first, data = await connection.frame()
        assert first & ~RSV1 == TEXT
        return orjson.loads(self._made.decompress(data + b"\0\0\xff\xff") if first & RSV1 else data)


@pytest.mark.parametrize("compress", [9, 12, 15])
async def test_7692_another_library_and_the_endpoint_compress(deflating: Running, compress: int) -> None:
    async with other_library(deflating, compress=compress) as socket:
        assert socket.compress
        await subscribe(socket)
        for size in (*SIZES, 100, 100):
            payload = "a wish, " * (size // 8)
            assert (await ask(socket, publish(payload)))["broadcast"] == payload
        noise = random.Random(1).randbytes(50_000).hex()
        assert (await ask(socket, publish(noise)))["broadcast"] == noise
        await socket.send_bytes(publish("binary"))
        assert orjson.loads(await socket.receive_str())["broadcast"] == "binary"


async def test_7692_5_what_is_not_enabled_is_not_agreed_to(plain_endpoint: Running) -> None:
    async with compressed(plain_endpoint) as (connection, agreed):
        assert agreed == ""
        connection.writer.write(frame(TEXT | RSV1, deflated(LISTEN)))
        await connection.is_closed(1002)
    async with other_library(plain_endpoint, compress=15) as socket:
        assert not socket.compress
        assert await ask(socket, LISTEN) == SUCCESS


async def test_7692_6_messages_may_be_compressed_or_not(deflating: Running) -> None:
    async with compressed(deflating) as (connection, agreed):
        assert agreed.startswith("permessage-deflate")
        inflater = Inflater()
        for each in (frame(TEXT, LISTEN), frame(TEXT | RSV1, deflated(LISTEN)), frame(BINARY, LISTEN)):
            connection.writer.write(each)
            assert await inflater.hears(connection) == SUCCESS


async def test_7692_6_1_a_compressed_message_in_fragments(deflating: Running) -> None:
    packed = deflated(LISTEN)
    async with compressed(deflating) as (connection, _):
        inflater = Inflater()
        for cut in (0, 1, len(packed) // 2, len(packed)):
            first, last = frame(FIRST_TEXT | RSV1, packed[:cut]), frame(LAST, packed[cut:])
            connection.writer.write(first + frame(PING, b"in between") + last)
            assert await connection.frame() == (PONG, b"in between")
            assert await inflater.hears(connection) == SUCCESS


async def test_7692_7_2_3_contexts_are_kept_or_not_as_agreed(deflating: Running) -> None:
    async with compressed(deflating) as (connection, agreed):
        assert "server_no_context_takeover" not in agreed
        inflater, packer = Inflater(), zlib.compressobj(wbits=-15)
        sizes = []
        for _ in range(4):
            packed = packer.compress(LISTEN) + packer.flush(zlib.Z_SYNC_FLUSH)
            sizes.append(len(packed))
            connection.writer.write(frame(TEXT | RSV1, packed[:-4]))
            assert await inflater.hears(connection) == SUCCESS
        assert sizes[-1] < sizes[0] / 2  # the context has made messages smaller
    async with compressed(deflating, "permessage-deflate; server_no_context_takeover") as (connection, agreed):
        assert "server_no_context_takeover" in agreed
        fresh = Inflater(fresh=True)
        for _ in range(3):
            connection.writer.write(frame(TEXT, LISTEN))
            assert await fresh.hears(connection) == SUCCESS


@pytest.mark.parametrize(
    ("offer", "agreed"),
    [
        ("x-unknown", False),
        ("x-unknown, permessage-deflate", True),
        ("permessage-deflate; unknown_parameter", False),
        ("permessage-deflate; server_max_window_bits=7", False),
        ("permessage-deflate; server_max_window_bits=7, permessage-deflate", True),
        ("permessage-deflate; client_max_window_bits", True),
        ("permessage-deflate; client_no_context_takeover; server_max_window_bits=10", True),
    ],
)
async def test_7692_5_1_an_offer_is_agreed_to_or_passed_over(deflating: Running, offer: str, agreed: bool) -> None:
    async with compressed(deflating, offer) as (connection, answer):
        assert answer.startswith("permessage-deflate") is agreed
        connection.writer.write(frame(TEXT, LISTEN))
        assert await Inflater().hears(connection) == SUCCESS


@pytest.mark.parametrize(
    "frames",
    [
        frame(PING | RSV1, b"x"),
        frame(CLOSE | RSV1),
        frame(FIRST_TEXT | RSV1, deflated(LISTEN)) + frame(LAST | RSV1),
        frame(TEXT | 0x20, LISTEN),
        frame(TEXT | RSV1 | 0x10, deflated(LISTEN)),
    ],
    ids=["ping", "close", "continuation", "rsv2", "rsv1-and-3"],
)
async def test_7692_6_reserved_bits_elsewhere_end_it(deflating: Running, frames: bytes) -> None:
    async with compressed(deflating) as (connection, _):
        connection.writer.write(frames)
        await connection.is_closed(1002)


async def test_7692_7_2_2_what_does_not_unpack_ends_it(deflating: Running) -> None:
    for bad in (b"\xff" * 20, b"\x06", deflated(LISTEN)[:-5] + b"\xff\xff\xff\xff\xff"):
        async with compressed(deflating) as (connection, _):
            connection.writer.write(frame(TEXT | RSV1, bad))
            assert await connection.close_code() in (1002, 1007)
    async with compressed(deflating) as (connection, _):
        connection.writer.write(frame(TEXT | RSV1, deflated(b'"\xff"')))
        assert await connection.close_code() == 1007


# -- The opening handshake (section 4)

KEY = "dGhlIHNhbXBsZSBub25jZQ=="
ACCEPT = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="  # section 1.3


async def request(endpoint: Running, headers: dict[str, str], line: str = "GET / HTTP/1.1") -> tuple[str, str]:
    """Return the status and the head of the answer."""
    async with raw(endpoint.url) as connection:
        text = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        connection.writer.write(f"{line}\r\n{text}\r\n".encode("latin-1"))
        with suppress(EOFError):
            head = (await connection.reader.readuntil(b"\r\n\r\n")).decode()
            return head[9:12], head
        return "", ""


def upgrade(**changed: str | None) -> dict[str, str]:
    headers: dict[str, str | None] = {
        "Host": "here",
        "Upgrade": "websocket",
        "Connection": "Upgrade",
        "Sec-WebSocket-Key": KEY,
        "Sec-WebSocket-Version": "13",
    }
    headers |= {name.replace("_", "-"): value for name, value in changed.items()}
    return {name: value for name, value in headers.items() if value is not None}


async def test_4_2_2_the_key_is_answered_as_in_the_rfcs_example(plain_endpoint: Running) -> None:
    status, head = await request(plain_endpoint, upgrade())
    assert status == "101"
    lines = {line.partition(": ")[0].lower(): line.partition(": ")[2] for line in head.split("\r\n")}
    assert lines["sec-websocket-accept"] == ACCEPT
    assert lines["upgrade"].lower() == "websocket"
    assert lines["connection"].lower() == "upgrade"
    assert "sec-websocket-extensions" not in lines
    assert "sec-websocket-protocol" not in lines
    key = base64.b64encode(os.urandom(16)).decode()
    digest = hashlib.sha1((key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11").encode()).digest()
    _, head = await request(plain_endpoint, upgrade(Sec_WebSocket_Key=key))
    assert base64.b64encode(digest).decode() in head


@pytest.mark.parametrize(
    "changed",
    [
        {"Upgrade": "WebSocket"},
        {"Connection": "keep-alive, Upgrade"},
        {"Connection": "UPGRADE"},
        {"Sec_WebSocket_Protocol": "chat, superchat"},
        {"Sec_WebSocket_Extensions": "foo; bar=1, baz"},
        {"X_Anything": "x" * 4000},
    ],
    ids=["upgrade-case", "connection-list", "connection-case", "subprotocols", "extensions", "long-header"],
)
async def test_4_2_1_handshakes_that_are_right(plain_endpoint: Running, changed: dict[str, str]) -> None:
    status, head = await request(plain_endpoint, upgrade(**changed))
    assert status == "101"
    assert "protocol:" not in head.lower()
    lower = {name.lower(): value for name, value in upgrade(**changed).items()}
    assert (await request(plain_endpoint, lower))[0] == "101"  # names are not case-sensitive


@pytest.mark.parametrize(
    ("changed", "statuses"),
    [
        ({"Upgrade": None}, ("426",)),
        ({"Upgrade": "h2c"}, ("426",)),
        ({"Connection": None}, ("426",)),
        ({"Connection": "keep-alive"}, ("426",)),
        ({"Sec_WebSocket_Key": None}, ("400",)),
        ({"Sec_WebSocket_Key": base64.b64encode(b"too short").decode()}, ("400",)),
        ({"Sec_WebSocket_Version": None}, ("400",)),
        ({"Sec_WebSocket_Version": "8"}, ("400",)),
    ],
)
async def test_4_2_1_handshakes_that_are_not(
    plain_endpoint: Running, changed: dict[str, str | None], statuses: tuple[str, ...]
) -> None:
    status, _ = await request(plain_endpoint, upgrade(**changed))
    assert status in statuses


async def test_4_1_only_get_and_http_1_1_may_upgrade(plain_endpoint: Running) -> None:
    for line in ("POST / HTTP/1.1", "GET / HTTP/1.0", "OPTIONS / HTTP/1.1"):
        status, _ = await request(plain_endpoint, upgrade(), line)
        assert not status.startswith(("1", "2", "3"))


async def test_4_4_another_version_is_told_which_one_is_spoken(plain_endpoint: Running) -> None:
    status, head = await request(plain_endpoint, upgrade(Sec_WebSocket_Version="14"))
    assert status in ("400", "426")
    assert "Sec-WebSocket-Version: 13" in head


async def test_4_1_another_library_offers_subprotocols_and_gets_none(plain_endpoint: Running) -> None:
    async with other_library(plain_endpoint, protocols=("chat", "ingeborg")) as socket:
        assert socket.protocol is None
        assert await ask(socket, LISTEN) == SUCCESS
    async with aiohttp.ClientSession() as session:
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await session.ws_connect(
                plain_endpoint.url, origin="https://elsewhere.example", ssl=trusted(plain_endpoint)
            )
        assert refused.value.status == 403  # section 10.2
