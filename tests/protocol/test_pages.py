"""Fetching an endpoint's HTTP pages, and reading Prometheus's text format."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingeborg.protocol.pages import PageError, fetch, samples


def test_reads_names_labels_values_and_escapes() -> None:
    text = """
# HELP a_total What it counts.
# TYPE a_total counter
a_total{reason="slow \\"reader\\"",path="C:\\\\x\\ny"} 3 1700000000000
ready 1
ingeborg_info{name="e-1",} +Inf
"""
    first, second, third = samples(text)
    assert (first.name, first.value) == ("a_total", 3.0)
    assert first.labels == {"reason": 'slow "reader"', "path": "C:\\x\ny"}
    assert (second.name, second.labels, second.value, second.series) == ("ready", {}, 1.0, "ready")
    assert third.labels == {"name": "e-1"}
    assert third.value == float("inf")


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=30), st.floats(allow_nan=False))
def test_any_label_value_comes_back(text: str, value: float) -> None:
    # Line breaks belong to the format; a label may contain every other character.
    text = "".join(text.split()) if len(text.splitlines()) > 1 or text.splitlines() != [text] else text
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    (sample,) = samples(f'm{{a="{escaped}",b="x"}} {value!r}')
    assert sample.labels == {"a": text, "b": "x"}
    assert sample.value == value


@pytest.mark.parametrize("line", ["<html>", "name", "name{a=1} 2", "name{a=} 2"])
def test_what_is_no_sample_is_named(line: str) -> None:
    with pytest.raises(ValueError, match="not "):
        list(samples(line))


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 4\r\n\r\nwait-and-more", (503, "wait")),
        (b"HTTP/1.1 200 OK\r\n\r\nuntil the end", (200, "until the end")),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\nshort", "not an HTTP answer"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 999999999\r\n\r\n", "the page has 999999999 bytes"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "chunked is not understood"),
        (b"nonsense", "not an HTTP answer"),
        (None, "no answer within"),
    ],
)
async def test_fetching_a_page(answer: bytes | None, expected: tuple[int, str] | str) -> None:
    asked = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readuntil(b"\r\n\r\n"))
        if answer is not None:
            writer.write(answer)
            await writer.drain()
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        url = f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}/some/path"
        if isinstance(expected, str):
            with pytest.raises(PageError, match=expected):
                await fetch(url, "/metrics", timeout_s=0.2 if answer is None else 5)
        else:
            assert (await fetch(url, "/metrics"))[:2] == expected
            assert asked[0].startswith(b"GET /metrics HTTP/1.1\r\n")


@pytest.mark.parametrize("url", ["127.0.0.1:9000", "ftp://x/", "ws:///", "ws://x:port/"])
async def test_what_is_no_url_is_refused(url: str) -> None:
    with pytest.raises(PageError):
        await fetch(url, "/metrics")
