"""Codecs: the frames of messages in outboxes and in sockets, and how often a message makes them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingeborg.broker.core.codec import COPIED_BYTES, MESSAGES, BareLines, Codec, Lines, TextFrames
from ingeborg.broker.core.message import Message
from ingeborg.protocol.frames import text_frame, whole_messages
from ingeborg.protocol.lines import LINES_BYTES_MAX
from ingeborg.protocol.messages import mid_of, named_notification, notification

SIZES = [1, 2, 124, 125, 126, 65_535, 65_536, COPIED_BYTES - 1, COPIED_BYTES, COPIED_BYTES + 1]


def read(buffers: list[bytes]) -> list[bytes]:
    """Return the messages that a client reads from these buffers."""
    return whole_messages(b"".join(buffers), 0, 1 << 30, False, True, 1 << 30, 1 << 30).messages


def through(codec: Codec, messages: list[bytes]) -> list[bytes]:
    """Return the bytes written to the socket if these messages leave the outbox in one turn."""
    return codec.written([codec.frame(message) for message in messages])


@given(st.lists(st.sampled_from(SIZES), min_size=1, max_size=8))
def test_what_is_written_has_every_message_once_and_in_order(sizes: list[int]) -> None:
    messages = [bytes([65 + index]) * size for index, size in enumerate(sizes)]
    assert read(through(TextFrames(), messages)) == messages
    assert b"\n".join(read(through(Lines(), messages))) == b"\n".join(messages)
    assert through(BareLines(), messages) == [b"\n".join(messages)]
    assert through(MESSAGES, messages) == messages


@pytest.mark.parametrize("codec", [TextFrames(), Lines(), BareLines(), MESSAGES])
def test_where_nothing_leaves_nothing_is_written(codec: Codec) -> None:
    assert codec.written([]) == []


def test_one_frame_is_written_as_the_object_that_the_outbox_held() -> None:
    for codec in (TextFrames(), MESSAGES, BareLines()):
        frame = codec.frame(b"alone")
        assert codec.written([frame])[0] is frame
    assert Lines().written([b"alone"]) == [text_frame(b"alone")]


def test_a_long_line_is_written_behind_its_header_and_not_copied() -> None:
    line = b"x" * (COPIED_BYTES + 1)
    head, same = Lines().written([line])
    assert same is line
    assert head + same == text_frame(line)
    larger = b"y" * (LINES_BYTES_MAX + 1)
    buffers = Lines().written([b"a", larger, b"b", b"c"])
    assert read(buffers) == [b"a", larger, b"b\nc"]
    assert any(buffer is larger for buffer in buffers)


@pytest.mark.parametrize("topic", ["t", ""])
def test_a_message_makes_a_frame_once_for_each_codec(topic: str) -> None:
    codecs: list[Codec] = [TextFrames(), Lines(), TextFrames(), MESSAGES]
    message = Message(topic, b'"news"', "o", 7, 1.0)
    plain, named = notification(topic, b'"news"'), named_notification(topic, b'"news"', mid_of("o", 7))
    made = [(message.frame_for(codec), message.named_for(codec)) for codec in codecs]
    assert made == [(codec.frame(plain), codec.frame(named)) for codec in codecs]
    for codec, (frame, name) in zip(reversed(codecs), reversed(made), strict=True):
        assert message.frame_for(codec) is frame
        assert message.named_for(codec) is name


def test_the_name_may_be_wanted_first() -> None:
    frames, lines = TextFrames(), Lines()
    message = Message("t", b"1", "o", 7, 1.0)
    assert message.named_for(frames) == text_frame(named_notification("t", b"1", "o.7"))
    assert message.frame_for(lines) == notification("t", b"1")
    assert message.frame_for(frames) == text_frame(notification("t", b"1"))
