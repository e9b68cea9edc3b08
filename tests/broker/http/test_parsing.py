"""The parser of requests: what it accepts in any pieces, and what it refuses."""

from __future__ import annotations

import gc
import weakref
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingeborg.broker.http.parsing import HEAD_BYTES_MAX, HEADERS_MAX, LINE_BYTES_MAX, RequestParser, origin_form

BODY_BYTES_MAX = 10_000

POST = b"POST /publish?x=1 HTTP/1.1\r\nHost: here\r\nX-Name:  a value \r\nContent-Length: 5\r\n\r\nhello"
CHUNKED = (
    b"POST /a HTTP/1.1\r\nHost: here\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"3;name=value\r\nhel\r\n2\r\nlo\r\n0\r\nX-After: x\r\n\r\n"
)
GET = b"GET http://here:1/b?c HTTP/1.0\r\nIdempotency-Key: k\r\n\r\n"


def seen(parser: RequestParser) -> list[tuple[object, ...]]:
    requests = [
        (one.method, one.target, one.version, tuple(one.fields), one.keys, bytes(one.body), one.keeps_alive)
        for one in parser.complete
    ]
    return [*requests, (parser.arriving is not None, str(parser.error))]


def parsed(*pieces: bytes) -> RequestParser:
    parser = RequestParser(BODY_BYTES_MAX)
    for piece in pieces:
        assert parser.feed(piece) in (len(piece), 0)
    return parser


def test_requests_are_read_whole() -> None:
    parser = parsed(POST + CHUNKED + GET)
    first, second, third = parser.complete
    assert (first.method, first.target, first.path, first.version) == ("POST", "/publish?x=1", "/publish", "1.1")
    assert first.fields == [(b"Host", b"here"), (b"X-Name", b"a value")]
    assert first.head.headers["x-name"] == "a value"
    assert bytes(first.body) == bytes(second.body) == b"hello"
    assert first.has_body
    assert first.keeps_alive
    assert second.fields == [(b"Host", b"here")]
    assert (third.target, third.keys, third.has_body, third.keeps_alive) == ("/b?c", ["k"], False, False)
    assert parser.error is None
    assert not parser.has_begun


def test_bytes_of_a_body_do_not_count_for_the_next_head() -> None:
    body = b"POST / HTTP/1.1\r\nContent-Length: 9000\r\n\r\n" + b" " * 9000
    fields = b"".join(b"X: %b\r\n" % (b"x" * 2000) for _ in range(HEAD_BYTES_MAX // 2100))
    parser = parsed(body[:4000], body[4000:] + b"GET / HTTP/1.1\r\n", fields, b"\r\n")
    assert parser.error is None
    assert [one.method for one in parser.complete] == ["POST", "GET"]
    assert parser.held == 9000


@given(st.lists(st.integers(0, len(POST + CHUNKED + GET)), max_size=8))
def test_the_pieces_of_a_request_make_no_difference(cuts: list[int]) -> None:
    whole = POST + CHUNKED + GET
    pieces = [whole[start:stop] for start, stop in pairwise(sorted({0, len(whole), *cuts}))]
    assert seen(parsed(*pieces)) == seen(parsed(whole))


@given(st.binary(max_size=200), st.binary(max_size=200))
def test_no_bytes_break_the_parser(before: bytes, after: bytes) -> None:
    parser = RequestParser(BODY_BYTES_MAX)
    for piece in (before, POST, after):
        assert 0 <= parser.feed(piece) <= len(piece)
        assert parser.held >= 0


#: Requests that two parsers could read in different ways (RFC 9112 section 11.2), and requests of no known form.
SMUGGLED = {
    "two lengths": b"POST / HTTP/1.1\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\nhello",
    "two different lengths": b"POST / HTTP/1.1\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
    "list of lengths": b"POST / HTTP/1.1\r\nContent-Length: 5, 5\r\n\r\nhello",
    "length and coding": b"POST / HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "coding and length": b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
    "two codings": b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "signed length": b"POST / HTTP/1.1\r\nContent-Length: +5\r\n\r\nhello",
    "length in hex": b"POST / HTTP/1.1\r\nContent-Length: 0x5\r\n\r\nhello",
    "empty length": b"POST / HTTP/1.1\r\nContent-Length: \r\n\r\n",
    "space before colon": b"POST / HTTP/1.1\r\nContent-Length : 5\r\n\r\nhello",
    "folded header": b"GET / HTTP/1.1\r\nX: a\r\n b\r\n\r\n",
    "bare line feeds": b"GET / HTTP/1.1\nHost: here\n\n",
    "one bare line feed": b"GET / HTTP/1.1\r\nHost: here\nX: y\r\n\r\n",
    "bare carriage return": b"GET / HTTP/1.1\r\nHost: here\rX: y\r\n\r\n",
    "nul in a header": b"GET / HTTP/1.1\r\nHost: he\0re\r\n\r\n",
    "empty name": b"GET / HTTP/1.1\r\n: here\r\n\r\n",
    "chunk without CR": b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n5\nhello\n0\n\n",
    "chunk too long": b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhello\r\n0\r\n\r\n",
    "chunk size with a sign": b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n+5\r\nhello\r\n0\r\n\r\n",
    "chunk size with a space": b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n5 \r\nhello\r\n0\r\n\r\n",
    "space in the target": b"GET /a b HTTP/1.1\r\n\r\n",
    "HTTP/0.9": b"GET /\r\n\r\n",
    "HTTP/1.2": b"GET / HTTP/1.2\r\n\r\n",
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "unknown method": b"HELO / HTTP/1.1\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
}


@pytest.mark.parametrize("text", SMUGGLED.values(), ids=SMUGGLED)
@pytest.mark.parametrize("step", [1, 4096])
def test_an_ambiguous_request_is_refused(text: bytes, step: int) -> None:
    parser = parsed(*(text[start : start + step] for start in range(0, len(text), step)))
    assert parser.error is not None
    assert parser.error.status == 400
    assert not parser.complete
    assert parser.feed(POST) == 0


@pytest.mark.parametrize(
    ("text", "status"),
    [
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: gzip\r\n\r\n", 501),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 501),
        (b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 501),
        (b"GET /" + b"x" * LINE_BYTES_MAX + b" HTTP/1.1\r\n\r\n", 414),
        (b"GET /" + b"x" * HEAD_BYTES_MAX, 414),
        (b"GET / HTTP/1.1\r\nX: " + b"x" * LINE_BYTES_MAX + b"\r\n\r\n", 431),
        (b"GET / HTTP/1.1\r\nA: b\r\nX: " + b"x" * HEAD_BYTES_MAX, 431),
        (b"GET / HTTP/1.1\r\n" + (b"X: " + b"x" * 16_000 + b"\r\n") * 5 + b"\r\n", 431),
        (b"GET / HTTP/1.1\r\n" + b"X: x\r\n" * (HEADERS_MAX + 1) + b"\r\n", 431),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n" + b"X: x\r\n" * HEADERS_MAX + b"\r\n", 431),
        (b"POST / HTTP/1.1\r\nContent-Length: 10001\r\n\r\n", 413),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n2711\r\n" + b"x" * 10_001 + b"\r\n0\r\n\r\n", 413),
        (b"\r\n" * HEAD_BYTES_MAX, 400),
    ],
    ids=[
        *("coding", "codings", "chunked-1.0", "target", "endless-target", "header", "endless-header", "headers"),
        *("many", "trailers", "body", "chunked-body", "blank"),
    ],
)
def test_a_request_beyond_a_limit_is_refused(text: bytes, status: int) -> None:
    parser = parsed(*(text[start : start + 4096] for start in range(0, len(text), 4096)))
    assert parser.error is not None
    assert parser.error.status == status


def test_a_request_at_the_limits_is_accepted() -> None:
    headers = b"".join(b"X-%d: x\r\n" % number for number in range(HEADERS_MAX - 1))
    target, value = b"/" + b"x" * (LINE_BYTES_MAX - 1), b"x" * (LINE_BYTES_MAX - len("X: \r\n"))
    body = b"x" * BODY_BYTES_MAX
    length = b"Content-Length: %d\r\n\r\n" % len(body)
    assert len(parsed(b"GET " + target + b" HTTP/1.1\r\nX: " + value + b"\r\n\r\n").complete) == 1
    assert len(parsed(b"POST / HTTP/1.1\r\n" + headers + length + body).complete) == 1


def test_requests_before_a_bad_one_remain() -> None:
    parser = parsed(POST + b"nonsense\r\n\r\n")
    assert [request.method for request in parser.complete] == ["POST"]
    assert parser.error is not None


def test_bytes_after_an_upgrade_are_left() -> None:
    upgrade = b"GET / HTTP/1.1\r\nHost: here\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
    parser = RequestParser(BODY_BYTES_MAX)
    assert parser.feed(POST + upgrade + b"\x81\x80frames") == len(POST + upgrade)
    assert len(parser.complete) == 2
    # A client that offers HTTP/2 continues with HTTP/1.1 if the endpoint does not take the offer.
    assert parser.feed(GET) == len(GET)
    assert len(parser.complete) == 3


def test_a_whole_url_is_reduced_to_its_path() -> None:
    assert origin_form("/a?b") == "/a?b"
    assert origin_form("http://here/a?b") == "/a?b"
    assert origin_form("HTTPS://here:1") == "/"
    assert origin_form("https://[::1]?b") == "/?b"
    assert origin_form("ws://here/a") == "ws://here/a"


def test_a_refused_request_leaves_nothing_to_the_garbage_collector() -> None:
    gc.disable()
    try:
        parser = parsed(b"GET / HTTP/1.1\r\nx: " + LINE_BYTES_MAX * b"x" + b"\r\n\r\n")
        assert parser.error is not None
        parser.close()
        left = weakref.ref(parser)
        del parser
        assert left() is None
    finally:
        gc.enable()
