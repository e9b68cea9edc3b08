"""Which text may be a token, and how texts are said that may have one. The rest is tested through the programs."""

from __future__ import annotations

import pytest

from ingeborg.protocol.credentials import redacted


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("nats://me:secret@host:1/?monitor=2", "nats://host:1/?monitor=2"),
        ("redis://[::1]:6379", "redis://[::1]:6379"),
        ("a: wss://x/?b=c&access_token=secret#d; b: ws://secret@y", "a: wss://x/?b=c&access_token=…#d; b: ws://y"),
        ("amqp://me:sec@ret@host/", "amqp://host/"),
        ("no URL: ann@example.org", "no URL: ann@example.org"),
        ("http://host/path?mail=ann@example.org", "http://host/path?mail=ann@example.org"),
    ],
)
def test_a_text_is_said_without_its_secrets(text: str, said: str) -> None:
    assert redacted(text) == said
