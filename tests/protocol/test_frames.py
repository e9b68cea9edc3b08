"""Whole messages of a chunk of bytes, against a reader that checks each frame by one rule after the other."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from websockets.utils import apply_mask

from ingeborg.protocol.frames import (
    BINARY,
    BROKEN,
    ENDS,
    ENOUGH,
    LARGE,
    NOT_TEXT,
    OTHERS,
    PING,
    STRANGE,
    TEXT,
    binary_frame,
    masked_binary_frame,
    masked_text_frame,
    text_frame,
    whole_messages,
)

ALL = 1 << 60
MASK = b"\x11\x22\x33\x44"


def read(
    data: bytes,
    enough: int = ALL,
    *,
    masked: bool = False,
    whole: bool = True,
    most: int = ALL,
    large: int = ALL,
) -> tuple[list[bytes], int, int]:
    """Return the messages, the end of the run, and its reason."""
    run = whole_messages(data, 0, enough, masked, whole, most, large)
    return run.messages, run.at, run.why


def naive(data: bytes, masked: bool, most: int, large: int) -> tuple[list[bytes], int, int]:
    """Return the same from the slow reader."""
    at, kind = 0, None
    found: list[bytes] = []
    while True:
        head = data[at:]
        if len(head) < 2:
            return found, at, ENDS
        if (head[1] >= 0x80) != masked or head[0] & 15 not in (0, 1, 2, 8, 9, 10):
            return found, at, BROKEN
        width = {126: 2, 127: 8}.get(head[1] & 0x7F, 0)
        if len(head) < 2 + width:
            return found, at, ENDS
        size = int.from_bytes(head[2 : 2 + width]) if width else head[1] & 0x7F
        begin = 2 + width + 4 * masked
        if head[0] not in (TEXT, BINARY) or size > most:
            return found, at, STRANGE
        if size > large:
            return found, at, LARGE if len(head) >= begin else ENDS
        if len(head) < begin + size:
            return found, at, ENDS
        if kind not in (None, head[0]):
            return found, at, OTHERS
        kind = head[0]
        payload = head[begin : begin + size]
        if masked:
            payload = apply_mask(payload, head[begin - 4 : begin])
        at += begin + size
        if kind == TEXT:
            try:
                payload.decode()
            except UnicodeDecodeError:
                return found, at, NOT_TEXT
        found.append(payload)


payloads = st.one_of(
    st.binary(max_size=4),
    st.text(max_size=4).map(str.encode),
    st.sampled_from([b"x" * size for size in (125, 126, 127, 300, 70_000)]),
)
frames = st.one_of(
    st.builds(text_frame, payloads),
    st.builds(binary_frame, payloads),
    st.builds(lambda data: masked_text_frame(data, MASK), payloads),
    st.builds(lambda data: masked_binary_frame(data, MASK), payloads),
    st.binary(max_size=6),
)


@given(
    st.lists(frames, max_size=6),
    st.integers(0, 200),
    st.booleans(),
    st.sampled_from([0, 3, 126, ALL]),
    st.sampled_from([2, 125, ALL]),
)
@example([masked_text_frame(b"a", MASK)] * 3, 0, True, ALL, ALL)
def test_a_chunk_is_read_as_frame_by_frame(parts: list[bytes], cut: int, masked: bool, most: int, large: int) -> None:
    data = b"".join(parts)
    data = data[: len(data) - cut]
    assert read(data, masked=masked, most=most, large=large) == naive(data, masked, most, large)


@given(st.lists(payloads, min_size=1, max_size=5), st.integers(1, 400))
def test_a_run_ends_behind_the_frame_that_reaches_what_was_asked_for(parts: list[bytes], enough: int) -> None:
    data = b"".join(map(binary_frame, parts))
    messages, at, why = read(data, enough)
    assert messages == parts[: len(messages)]
    assert data[:at] == b"".join(map(binary_frame, messages))
    if why == ENOUGH:
        assert at >= enough
        assert at - len(binary_frame(messages[-1])) < enough
    else:
        assert (at, why) == (len(data), ENDS)


@pytest.mark.parametrize("payload", [b"", b"x" * 125, b"x" * 126, b"x" * 65_535, b"x" * 65_536])
def test_of_a_frame_that_has_not_come_whole_it_says_what_it_needs(payload: bytes) -> None:
    frame = masked_text_frame(payload, MASK)
    for come in {1, 2, 3, 5, 9, 13, len(frame) - 1}:
        if come < len(frame):
            run = whole_messages(b"?" + frame[:come], 1, ALL, True, True, ALL, ALL)
            assert (run.messages, run.at, run.why) == ([], 1, ENDS)
            assert come < run.needed <= len(frame)
    run = whole_messages(frame, 0, ALL, True, True, ALL, ALL)
    assert (run.messages, run.is_text, run.at) == ([payload], True, len(frame))


def test_of_the_next_frame_that_is_something_else_it_says_where_its_payload_is() -> None:
    data = binary_frame(b"one") + b"\x89\x02hi"
    run = whole_messages(data, 0, ALL, False, True, ALL, ALL)
    assert (run.messages, run.at, run.why) == ([b"one"], 5, STRANGE)
    assert (run.first, data[run.body : run.body + run.size]) == (PING, b"hi")
    run = whole_messages(data, 0, ALL, False, True, ALL, 2)
    assert (run.messages, run.at, run.why) == ([], 0, LARGE)
    assert (run.first, data[run.body : run.body + run.size]) == (BINARY, b"one")


def test_within_a_fragmented_message_no_message_is_whole() -> None:
    assert read(binary_frame(b"one"), whole=False) == ([], 0, STRANGE)
