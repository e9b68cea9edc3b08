"""Malformed frames, commands, HTTP requests and TLS records, drawn from a seed, each with the right answers.

Owns: the attacks, and the permitted answers. Must never: open a connection.

The mutants of ``test_frames.py`` may turn out to be good commands. All of these attacks are wrong in a known way, so
that ``attacker`` can judge every answer.
"""

from __future__ import annotations

import contextlib
import random
import ssl
from collections.abc import Callable
from typing import Any, NamedTuple

import orjson
import ormsgpack

from ingeborg.protocol.lines import LINES
from tests.broker.running import HANDSHAKE, raw_frame

TEXT, BINARY, CONTINUED, CLOSE, PING, PONG = 0x81, 0x82, 0x80, 0x88, 0x89, 0x8A

#: Any other answer of an endpoint is a surprise. ``cut``: the connection ended without an answer.
CUT = "cut"
REFUSED = frozenset({"bad_json", "bad_command", "bad_state", "bad_topic", "bad_filter", "too_large"})
CLIENT_ERRORS = frozenset({CUT, *(f"HTTP {status}" for status in (400, 403, 405, 413, 414, 426, 431, 501, 505))})

GOOD = b'{"command":"publish","client_id":"attacker","topic":"attack","payload":1}'


class Attack(NamedTuple):
    """The traffic of one connection.

    Attributes:
        kind: the attack's name.
        commands: the number of malformed things in it.
        data: the bytes to send.
        answers: the right answers.
        ending: ``eof``: the client ends its stream. ``fin``: it ends TCP's stream, and not TLS's. ``wait``: it waits
            for the endpoint's end. ``reset``: it cuts. ``last``: it waits for the answer to an additional last command,
            whose id is ``LAST``. ``close``: it waits for a close frame.
        each: each malformed thing has an answer; else they have one answer together.
        then: bytes to send once the endpoint has upgraded.
        bare: send the data without TLS.
        past: bytes to send past TLS, after the data, and with ``eof`` after close_notify.
    """

    kind: str
    commands: int
    data: bytes
    answers: frozenset[str]
    ending: str = "wait"
    each: bool = False
    then: bytes = b""
    bare: bool = False
    past: bytes = b""


Random = random.Random


def _upgraded(behind: bytes, path: str = "/") -> bytes:
    return HANDSHAKE.format(path=path).encode() + behind


# -- Frames (RFC 6455): one on each connection, which ends with the first


def _closing(kind: str, code: int, frames: bytes) -> Attack:
    return Attack(kind, 1, _upgraded(frames), frozenset({f"close {code}"}))


def _bad_opcode(rng: Random) -> Attack:
    return _closing(
        "opcode without a meaning", 1002, raw_frame(0x80 | rng.choice((3, 4, 5, 6, 7, 11, 12, 13, 14, 15)), GOOD)
    )


def _reserved_bits(rng: Random) -> Attack:
    first = rng.choice((TEXT, BINARY, PING, PONG, CLOSE)) | rng.randrange(1, 8) << 4
    return _closing("reserved bits", 1002, raw_frame(first, b"" if first & 0x8 else GOOD))


def _unmasked(rng: Random) -> Attack:
    first = rng.choice((TEXT, BINARY, PING, PONG, CLOSE, 0x01, 0x00))
    return _closing("unmasked", 1002, raw_frame(first, GOOD[: rng.choice((0, 2, 73))], masked=False))


def _long_control(rng: Random) -> Attack:
    size = rng.choice((126, 127, 1000, 65535, 65536))
    return _closing("control frame too long", 1002, raw_frame(rng.choice((PING, PONG, CLOSE)), bytes(size)))


def _fragmented_control(rng: Random) -> Attack:
    first = rng.choice((PING, PONG, CLOSE)) & 0x0F
    return _closing("control frame in fragments", 1002, raw_frame(first, rng.randbytes(rng.randrange(3, 126))))


def _bad_fragments(rng: Random) -> Attack:
    frames = rng.choice(
        (
            raw_frame(CONTINUED, GOOD),
            raw_frame(0x00, GOOD),
            raw_frame(0x01, GOOD[:10]) + raw_frame(TEXT, GOOD),
            raw_frame(0x02, GOOD[:10]) + raw_frame(0x01, GOOD),
            raw_frame(0x01, GOOD[:10]) + raw_frame(PING) + raw_frame(BINARY, GOOD),
        )
    )
    return _closing("fragments out of order", 1002, frames)


def _not_utf8(rng: Random) -> Attack:
    bad = rng.choice(
        (b"\xff", b"\xc3", b"\xc0\xaf", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xf8\x88\x80\x80\x80", b"\x80")
    )
    text = GOOD + bad
    cut = rng.randrange(len(text))
    whole, parts = raw_frame(TEXT, text), raw_frame(0x01, text[:cut]) + raw_frame(CONTINUED, text[cut:])
    return _closing("text that is not UTF-8", 1007, rng.choice((whole, parts)))


def _bad_close(rng: Random) -> Attack:
    code = rng.choice((0, 1, 999, 1004, 1005, 1006, 1015, 1016, 1100, 2000, 2999, 5000, 65535))
    frame = rng.choice((raw_frame(CLOSE, b"\x03"), raw_frame(CLOSE, code.to_bytes(2, "big") + b"bye")))
    return _closing("close code that is none", 1002, frame)


def _close_not_utf8(rng: Random) -> Attack:
    return _closing(
        "close reason not UTF-8", 1007, raw_frame(CLOSE, b"\x03\xe8" + rng.choice((b"\xff", b"\xc3", b"\xed\xbf\xbf")))
    )


def _huge_length(rng: Random) -> Attack:
    length = rng.choice(((16 << 20) + 1, 1 << 31, 1 << 32, 1 << 40, 1 << 62, (1 << 63) - 1, 1 << 63, (1 << 64) - 1))
    frame = raw_frame(rng.choice((TEXT, BINARY, 0x01)), GOOD, length=length)
    return Attack("length beyond the limit", 1, _upgraded(frame), frozenset({"close 1009", "close 1002"}))


def _wrong_length(rng: Random) -> Attack:
    """The header announces more bytes than come before the end."""
    frame = raw_frame(rng.choice((TEXT, BINARY, PING, CLOSE)), GOOD[:20], length=rng.randrange(21, 126))
    return Attack("cut short", 1, _upgraded(frame[: rng.randrange(1, len(frame))]), frozenset({CUT}), "eof")


def _reset_in_a_frame(rng: Random) -> Attack:
    frame = raw_frame(TEXT, bytes(70_000))
    return Attack("reset in a frame", 1, _upgraded(frame[: rng.randrange(len(frame))]), frozenset({CUT}), "reset")


def _reset_in_a_handshake(rng: Random) -> Attack:
    whole = _upgraded(b"")
    return Attack("reset in a handshake", 1, whole[: rng.randrange(len(whole))], frozenset({CUT}), "reset")


# -- Commands: many on each connection, since no command may end it

COMMANDS = 100

#: The ``id`` of the last command: replies leave in the order of the commands.
LAST = b'"the last"'


_THE_LAST = b'{"command":"no such command","id":%b}' % LAST


def _commands(kind: str, rng: Random, draw: Callable[[Random], bytes]) -> Attack:
    messages = [draw(rng) for _ in range(COMMANDS)]
    if rng.random() < 0.5:
        return _in_lines(f"{kind}, in lines", rng, messages)
    frames = b"".join(raw_frame(BINARY if _not_text(message) else TEXT, message) for message in messages)
    return Attack(kind, COMMANDS, _upgraded(frames + raw_frame(TEXT, _THE_LAST)), REFUSED, "last", each=True)


def _in_lines(kind: str, rng: Random, messages: list[bytes]) -> Attack:
    """Put several messages into each frame (SPEC section 1.6). A line feed within one would make it two."""
    lines = [message.replace(b"\n", b"\x0b") for message in messages]
    frames = bytearray()
    while lines:
        some, lines = lines[: (size := rng.randrange(1, 30))], lines[size:]
        data = b"\n".join(some) + rng.choice((b"", b"\n") if some[-1] else (b"\n",))
        frames += raw_frame(BINARY if _not_text(data) else TEXT, data)
    head = HANDSHAKE.format(path="/").removesuffix("\r\n") + f"Sec-WebSocket-Protocol: {LINES}\r\n\r\n"
    return Attack(kind, COMMANDS, head.encode() + frames + raw_frame(TEXT, _THE_LAST), REFUSED, "last", each=True)


def _not_text(message: bytes) -> bool:
    try:
        message.decode()
    except UnicodeDecodeError:
        return True
    return False


NAMES = ("listen", "unlisten", "subscribe", "unsubscribe", "publish", "broadcast", "subscriptions", "history")


def _fields(rng: Random) -> dict[str, object]:
    """Return the fields of a good command."""
    name = rng.choice(NAMES)
    fields: dict[str, object] = {"command": name, "client_id": "attacker"}
    if name in ("subscribe", "unsubscribe"):
        fields["topic"] = rng.choice(("attack", ["attack", "and another"]))
    if name == "subscribe" and rng.random() < 0.6:
        fields |= {"filter": {"a": [1]}} | rng.choice(({"until": "disconnect", "ttl_s": 1}, {"replace": True}))
    if name in ("subscribe", "history") and rng.random() < 0.6:
        fields |= rng.choice(({"last": 1}, {"since": "a.1"}))
    if name == "listen" and rng.random() < 0.6:
        fields["recover"] = rng.choice((True, "a.1"))
    if name == "history":
        fields["topic"] = "attack"
        if rng.random() < 0.6:
            fields |= {"limit": 10, "filter": {"a": [1]}}
    if name == "publish" and rng.random() < 0.6:
        fields["keep_s"] = 1
    if name == "publish":
        fields |= {"topic": "attack", "timestamp": 1}
    if name in ("publish", "broadcast"):
        fields |= {"payload": rng.randrange(1000), "ack": True, "dedup": True}
    if name == "subscriptions":
        fields["limit"] = 10
    return fields


#: For each field, values that it may not have.
WRONG: dict[str, tuple[object, ...]] = {
    "command": (None, 1, True, [], {}, "", "LISTEN", "listne", "x" * 5000, "\0"),
    "client_id": (None, 1.5, True, [], {}, "", "c" * 129, "é" * 65),
    "topic": (None, 1, 1.5, True, {}, "", "x" * 1025, "a\0", "\x7f", "a\x85b", [1], [None], [["a"]], ["a", ""]),
    "ack": (None, 0, 1, "true", [], {}),
    "dedup": (None, 0, 1, "true", "retry", "", "k" * 129, [], {}),
    "until": (None, True, 1, "", "never", "Disconnect", ["disconnect"], {}),
    "ttl_s": (None, True, 0, -1, 1.5, "1", 2_592_001, 2**64 - 1, [], {}),
    "filter": (
        *(None, True, 1, "{}", [], {}, {"a": []}, {"a": 1}, {"a": {}}, {"$or": [{"a": [1]}]}, {"a": [[1]]}),
        *({"a": [{"prefix": 1}]}, {"a": [{"numeric": ["<"]}]}, {"a": [{"near": 1}]}, {"a": [{"exists": 1}]}),
        *({"a": list(range(65))}, {"a": ["x" * 4097]}, {"a": {"b": {"c": {"d": {"e": {"f": [1]}}}}}}),
    ),
    "replace": (None, 0, 1, "true", [], {}),
    "timestamp": (None, "now", True, [], {}),
    "keep_s": (None, True, 0, -1, 1.5, "1", 86_401, 2**64 - 1, [], {}),
    "recover": (None, 1, "", "p" * 129, "é" * 65, [], {}),
    "last": (None, True, 0, -1, 1.5, "1", 1_001, [], {}),
    "since": (1, True, "", "m" * 129, "é" * 65, [], {}),
    "limit": (None, 0, -1, 10_001, 1.0, "10", True, [], {}),
    "id": (1.5, True, [], {}),
}


def _wrong_type(rng: Random) -> bytes:
    fields = _fields(rng)
    name = rng.choice([name for name in fields if name in WRONG] + ["id"])
    fields[name] = rng.choice(WRONG[name])
    return orjson.dumps(fields)


def _missing_field(rng: Random) -> bytes:
    fields = _fields(rng)
    wanted = [name for name in ("command", "client_id", "topic", "payload") if name in fields]
    del fields[rng.choice(wanted)]
    return orjson.dumps(fields)


def _with_payload(payload: bytes) -> bytes:
    return b'{"command":"publish","client_id":"attacker","topic":"attack","payload":%b}' % payload


def _deep(rng: Random) -> bytes:
    depth = rng.choice((255, 300, 1000, 1025, 5000))
    opening, closing = rng.choice(((b"[", b"]"), (b'{"a":', b"}")))
    inner = b"" if opening == b"[" else b"1"
    return _with_payload(opening * depth + inner + closing * rng.choice((depth, depth, 0, depth - 1)))


def _twice(rng: Random) -> bytes:
    key, again = rng.choice(((b'"client_id"', b'"client_id"'), (b'"id"', b'"id"'), (b'"\\u0069d"', b'"id"')))
    if rng.random() < 0.5:
        return b'{"command":"listen",%b:1,"topic":"t","client_id":1,%b:1}' % (key, again)
    return _with_payload(b'[{%b:1,"b":2,"c":[{}],%b:1}]' % (key, again))


def _huge_number(rng: Random) -> bytes:
    digits = b"9" * rng.choice((20, 21, 30, 300, 5000))
    number = rng.choice(
        (digits, b"-" + digits, b"1e999", b"-1e999", b"1" + b"0" * 400 + b".5e9", b"18446744073709551616")
    )
    return rng.choice(
        (_with_payload(number), b'{"command":"listen","client_id":%b}' % number, _with_payload(b"[%b]" % number))
    )


def _lone_surrogate(rng: Random) -> bytes:
    text = b'"%b"' % rng.choice((rb"\ud800", rb"\udfff", rb"a\udbffb", rb"\udc00\ud800"))
    return rng.choice(
        (_with_payload(text), _with_payload(b"{%b:1}" % text), b'{"command":"listen","client_id":%b}' % text)
    )


def _not_json(rng: Random) -> bytes:
    good = orjson.dumps(_fields(rng))
    return rng.choice(
        (
            good[: rng.randrange(len(good))],
            good + rng.choice((b"}", b"{}", b",", b"x", b"\0")),
            b"\xef\xbb\xbf" + good,
            good.decode().encode("utf-16"),
            good.replace(b'"', b"'"),
            b"[" + good + b"]",
            rng.choice((b"null", b"1", b'"listen"', b"true", b"NaN", b"", b" ", b"[]")),
            b"\xff" + rng.randbytes(rng.randrange(60)),
            _with_payload(
                rng.choice((b"NaN", b"Infinity", b"01", b"+1", b".5", b"1.", b"0x10", b'"\t"', b'"\\x"', b"tru", b""))
            ),
        )
    )


# -- HTTP, and other protocols


def _http(kind: str, data: bytes, answers: frozenset[str] = CLIENT_ERRORS, ending: str = "eof") -> Attack:
    return Attack(kind, 1, data, answers, ending)


def _request_line(rng: Random) -> Attack:
    line = rng.choice(
        (
            b"GET /",
            b"GET  /x HTTP/1.1",
            b"GET / HTTP/1.1 ",
            b"GET / HTTP/0.9",
            b"GET /x HTTP/1.0",
            b"GET / HTTP/2.0",
            b"GET / http/1.1",
            b"get / HTTP/1.1",
            b"POST / HTTP/1.1",
            b"PUT /_peer HTTP/1.1",
            b"CONNECT a:1 HTTP/1.1",
            b"TRACE / HTTP/1.1",
            b"PRI * HTTP/2.0",
            b"HELO here",
            b"\0" * 50,
            b"GET /\0 HTTP/1.1",
            b"GET /\xff\xfe HTTP/1.1",
            b"GET / HTTP/1.1\r",
            b"",
            b"GET /" + b"x" * rng.randrange(17_500, 29_300) + b" HTTP/1.1",
            rng.randbytes(rng.randrange(1, 200)).replace(b"\n", b""),
        )
    )
    return _http("bad request line", line + b"\r\nHost: here\r\n\r\n")


def _header_bomb(rng: Random) -> Attack:
    headers = rng.choice(
        (
            b"".join(b"X-%d: x\r\n" % number for number in range(rng.randrange(129, 1000))),
            b"X: " + b"x" * rng.randrange(17_500, 109_300) + b"\r\n",
            b"x" * rng.randrange(17_500, 59_300) + b": x\r\n",
            b"X: x\r\n" * 5_000,
        )
    )
    return _http("header bomb", b"GET / HTTP/1.1\r\n" + headers + b"\r\n")


def _bad_header(rng: Random) -> Attack:
    header = rng.choice(
        (
            b"no colon here",
            b" X: folded",
            b"X : space",
            b": nameless",
            b"X\0Y: z",
            b"X: a\0b",
            b"X: a\rb",
            b"H\xc3\xa9: x",
            b"X: y\r\n z",
        )
    )
    return _http("bad header", b"GET / HTTP/1.1\r\nHost: here\r\n" + header + b"\r\n\r\n")


def _smuggled(rng: Random) -> Attack:
    """One request contains another. The endpoint may answer only the first."""
    inner = b"GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n"
    headers = rng.choice(
        (
            b"Content-Length: %d\r\n" % len(inner),
            b"Content-Length: 0\r\nContent-Length: %d\r\n" % len(inner),
            b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n",
            b"Transfer-Encoding: chunked\r\n",
            b"Transfer-Encoding: xchunked\r\nContent-Length: %d\r\n" % len(inner),
            b"Content-Length: -1\r\n",
            b"Content-Length: 99999999999999999999\r\n",
            b"Content-Length: +%d\r\n" % len(inner),
        )
    )
    path = rng.choice((b"/", b"/healthz", b"/_peer"))
    return _http(
        "smuggling",
        b"GET " + path + b" HTTP/1.1\r\nHost: here\r\n" + headers + b"\r\n" + inner,
        CLIENT_ERRORS | {"HTTP 200", "HTTP 302"},
    )


_UPGRADE = {
    "Host": "here",
    "Upgrade": "websocket",
    "Connection": "Upgrade",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
    "Sec-WebSocket-Version": "13",
}


def _request_with_commands(rng: Random) -> Attack:
    """A request for commands whose body, or whose announcement of the body, is malformed."""
    path = rng.choice((b"/publish", b"/broadcast", b"/subscribe", b"/unsubscribe", b"/history"))
    body = rng.choice((_deep, _twice, _huge_number, _lone_surrogate))(rng)
    if rng.random() < 0.3:
        body = b"[%b]" % body
    kind, length, coding = b"application/json", b"Content-Length: %d\r\n" % len(body), b"Transfer-Encoding: chunked\r\n"
    chunk = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
    kind, announced, sent = rng.choice(
        (
            (kind, length, body),
            (kind, coding, chunk),
            (b"text/plain", length, body),
            (b"multipart/form-data", coding, chunk),
            (kind, length, body[: rng.randrange(len(body))]),
            (kind, coding, b"%x\r\n%b" % (len(body) - 1, body)),
            (kind, coding, b"-1\r\n" + body),
            (kind, coding, b"ffffffffffffffffff\r\n" + body),
            (kind, coding + length, chunk),
            (kind, length + length, body),
            (kind, b"Content-Length: %d\r\n" % 10**9, body),
            (kind, b"Content-Encoding: gzip\r\n" + length, body),
            (kind, b"Idempotency-Key: a\r\nIdempotency-Key: b\r\n" + length, body),
        )
    )
    head = b"POST %b HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: %b\r\n%b\r\n" % (path, kind, announced)
    return _http("request with commands", head + sent, CLIENT_ERRORS | {"HTTP 415"})


def _bad_upgrade(rng: Random) -> Attack:
    headers = dict(_UPGRADE)
    name = rng.choice(
        ("Upgrade", "Connection", "Sec-WebSocket-Key", "Sec-WebSocket-Version", "Origin", "twice", "missing")
    )
    more = b""
    if name == "twice":
        again = rng.choice(("Sec-WebSocket-Key", "Sec-WebSocket-Version"))
        more = f"{again}: {headers[again]}\r\n".encode()
    elif name == "missing":
        del headers[rng.choice(("Upgrade", "Connection", "Sec-WebSocket-Key", "Sec-WebSocket-Version"))]
    else:
        wrong = {
            "Upgrade": ("h2c", "web socket", "", "websocket2"),
            "Connection": ("close", "keep-alive", "", "Upgrades"),
            "Sec-WebSocket-Key": ("", "x", "=" * 24, "dGhlIHNhbXBsZQ==", "\u00e9" * 24, "A" * 5000),
            "Sec-WebSocket-Version": ("", "12", "14", "13, 8", "013", "x"),
            "Origin": ("https://evil.example", "null", "http://localhost.evil.example", "x", "http://[::1"),
        }
        headers[name] = rng.choice(wrong[name])
    text = "".join(f"{key}: {value}\r\n" for key, value in headers.items()).encode("latin-1")
    return _http("bad upgrade", b"GET / HTTP/1.1\r\n" + text + more + b"\r\n")


def _tls_hello(rng: Random) -> Attack:
    body = rng.randbytes(rng.randrange(60, 500)).replace(b"\n", b"\0")
    return _http("TLS hello", b"\x16\x03\x01" + (len(body) + 4).to_bytes(2, "big") + b"\x01\0\0" + body)


_HELLO = ["hello", 3, b"n" * 16, "attacker", "0" * 16, "ws://127.0.0.1:9", b"p" * 32]


def _peer(rng: Random) -> Attack:
    hello: list[Any] = list(_HELLO)
    change = rng.randrange(6)
    if change == 0:
        hello[rng.randrange(len(hello))] = rng.choice((None, -1, 2**63, 1.5, b"", "", [], {}, [[]] * 50, True))
    elif change == 1:
        del hello[rng.randrange(len(hello)) :]
    elif change == 2:
        others: list[list[Any]] = [["welcome", "a", "b", "c", b"p"], ["challenge", 3, b"n"], ["batch"], [1], [[]]]
        hello = rng.choice(others)
    message = ormsgpack.packb(hello)
    if change == 3:
        message = rng.choice((b"", b"\xc1", b"\xdf\xff\xff\xff\xff", b"\x91" * 2000, message[:-3], rng.randbytes(100)))
    first, code = BINARY, 1008
    if change == 4:
        message, code = bytes(5000), 1009
    elif change == 5:
        first, code = TEXT, 1002
        message = b"hello"
    # After the upgrade, since the endpoint ignores data that comes with it, before the challenge.
    right = frozenset({f"close {code}"})
    return Attack("peer's handshake", 1, _upgraded(b"", "/_peer"), right, "close", then=raw_frame(first, message))


# -- TLS, and other protocols


def _client_hello() -> bytes:
    """Return a client's first message. The seed does not determine it: OpenSSL draws its random bytes."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        ssl.create_default_context().wrap_bio(incoming, outgoing, server_hostname="127.0.0.1").do_handshake()
    return outgoing.read()


CLIENT_HELLO = _client_hello()


def _no_tls(rng: Random) -> Attack:
    data = rng.choice(
        (
            b"GET /healthz HTTP/1.1\r\nHost: here\r\n\r\n",
            _upgraded(raw_frame(TEXT, GOOD)),
            b"HELO here\r\n",
            bytes(rng.randrange(1, 1000)),
            rng.randbytes(rng.randrange(1, 1000)),
            b"\x80\x2e\x01\0\x02" + rng.randbytes(43),  # SSL 2
            b"\x16\x03\x01\xff\xff" + rng.randbytes(100),
            b"\x17\x03\x03\0\x20" + rng.randbytes(32),  # data before any key
            b"\x15\x03\x01\0\x02\x02\x28",  # an alert
        )
    )
    return Attack("no TLS", 1, data, frozenset({CUT}), "eof", bare=True)


def _bad_hello(rng: Random) -> Attack:
    """A ClientHello is cut short, or has a few changed bytes. A handshake may begin, and goes no further."""
    data = bytearray(CLIENT_HELLO)
    if rng.random() < 0.5:
        del data[rng.randrange(len(data)) :]
    else:
        for _ in range(rng.randrange(1, 10)):
            data[rng.randrange(len(data))] = rng.randrange(256)
    return Attack("bad ClientHello", 1, bytes(data), frozenset({CUT}), rng.choice(("eof", "reset")), bare=True)


def _bad_record(rng: Random) -> Attack:
    """A frame contains bytes that the client has not encrypted."""
    kind = rng.choice((0x14, 0x15, 0x16, 0x17, 0x18, 0xFF))
    size = rng.choice((0, 1, 32, 1000, 16_640, 16_641, 65_535))
    past = rng.choice(
        (
            bytes([kind, 3, 3]) + size.to_bytes(2, "big") + rng.randbytes(min(size, 2_000)),
            rng.randbytes(rng.randrange(5, 500)),
            CLIENT_HELLO,  # a second handshake
        )
    )
    frame = raw_frame(TEXT, GOOD)
    data = _upgraded(frame[: rng.randrange(len(frame))])
    return Attack("bad record", 1, data, frozenset({CUT}), "fin", past=past)


def _no_close_notify(rng: Random) -> Attack:
    whole = _upgraded(raw_frame(TEXT, GOOD))
    return Attack("end without close_notify", 1, whole[: rng.randrange(len(whole) - 1)], frozenset({CUT}), "fin")


def _behind_close_notify(rng: Random) -> Attack:
    frame = raw_frame(TEXT, GOOD)
    data = _upgraded(frame[: rng.randrange(len(frame))])
    past = rng.choice((rng.randbytes(rng.randrange(1, 500)), CLIENT_HELLO, b"\x17\x03\x03\0\x20" + rng.randbytes(32)))
    return Attack("behind close_notify", 1, data, frozenset({CUT}), "eof", past=past)


#: Kinds with one attack on a connection, in groups.
FRAMES = (
    *(
        _bad_opcode,
        _reserved_bits,
        _unmasked,
        _long_control,
        _fragmented_control,
        _bad_fragments,
        _not_utf8,
        _bad_close,
    ),
    *(_close_not_utf8, _huge_length, _wrong_length, _reset_in_a_frame, _reset_in_a_handshake),
)
REQUESTS = (
    _request_line,
    _header_bomb,
    _bad_header,
    _smuggled,
    _request_with_commands,
    _bad_upgrade,
    _tls_hello,
    _peer,
)
TLS = (_no_tls, _bad_hello, _bad_record, _no_close_notify, _behind_close_notify)
MESSAGES: dict[str, Callable[[Random], bytes]] = {
    "command: wrong type": _wrong_type,
    "command: field missing": _missing_field,
    "command: nested deeply": _deep,
    "command: key twice": _twice,
    "command: number too large": _huge_number,
    "command: lone surrogate": _lone_surrogate,
    "command: not JSON": _not_json,
}

#: The percentage of connections with commands, a hundred each, which are most of the traffic. The other connections
#: draw evenly from the other kinds.
COMMANDS_PER_CENT = 5


def draw(rng: Random, tls: bool = False) -> Attack:
    """Draw the next attack. ``tls``: the endpoint speaks TLS."""
    if rng.randrange(100) < COMMANDS_PER_CENT:
        kind = rng.choice(list(MESSAGES))
        return _commands(kind, rng, MESSAGES[kind])
    return rng.choice(FRAMES + REQUESTS + (TLS if tls else ()))(rng)
