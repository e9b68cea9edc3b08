"""Which text may be a token, and how programs show texts that may contain one. Their tests cover the rest."""

from __future__ import annotations

import pytest

from ingeborg.protocol.redaction import redacted


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("nats://me:secret@host:1/?monitor=2", "nats://host:1/?monitor=2"),
        ("redis://[::1]:6379", "redis://[::1]:6379"),
        ("a: wss://x/?b=c&access_token=secret#d; b: ws://secret@y", "a: wss://x/?b=c&access_token=…#d; b: ws://y"),
        ("amqp://me:sec@ret@host/", "amqp://host/"),
        ("no URL: ann@example.org", "no URL: ann@example.org"),
        ("ws://ann:sec/ret@host/ and ann:secret@host", "ws://host/ and host"),
        (
            "redis://h/0?password=secret ws://h?a=b;Access%5FToken=secret",
            "redis://h/0?password=… ws://h?a=b;Access%5FToken=…",
        ),
        ("no file eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhIn0.c2VjcmV0: what then?", "no file …: what then?"),
    ],
)
def test_a_text_is_said_without_its_secrets(text: str, said: str) -> None:
    assert redacted(text) == said
