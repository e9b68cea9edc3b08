"""Codecs: the frames of messages in outboxes, and how often a message makes them."""

from __future__ import annotations

import pytest

from ingeborg.broker.core.codec import MESSAGES, Codec, TextFrames
from ingeborg.broker.core.message import Message
from ingeborg.protocol.frames import text_frame
from ingeborg.protocol.messages import mid_of, named_notification, notification


@pytest.mark.parametrize("topic", ["t", ""])
def test_a_message_makes_a_frame_once_for_each_codec(topic: str) -> None:
    codecs: list[Codec] = [TextFrames(), Codec(), TextFrames(), MESSAGES]
    message = Message(topic, b'"news"', "o", 7, 1.0)
    plain, named = notification(topic, b'"news"'), named_notification(topic, b'"news"', mid_of("o", 7))
    made = [(message.frame_for(codec), message.named_for(codec)) for codec in codecs]
    assert made == [(codec.frame(plain), codec.frame(named)) for codec in codecs]
    for codec, (frame, name) in zip(reversed(codecs), reversed(made), strict=True):
        assert message.frame_for(codec) is frame
        assert message.named_for(codec) is name


def test_the_name_may_be_wanted_first() -> None:
    frames, bare = TextFrames(), Codec()
    message = Message("t", b"1", "o", 7, 1.0)
    assert message.named_for(frames) == text_frame(named_notification("t", b"1", "o.7"))
    assert message.frame_for(bare) == notification("t", b"1")
    assert message.frame_for(frames) == text_frame(notification("t", b"1"))
