"""The hashes that stores and endpoints agree on. Their values may not change, since stored keys contain them."""

from __future__ import annotations

from hashlib import blake2b
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingeborg.protocol.hashes import HASH_BYTES, SLOTS, digest, slot_of


@pytest.mark.parametrize(("topic", "slot"), [("", 0), ("Some topic", 336), ("Beyoncé – Déjà Vu", 3358)])
def test_a_topics_slot_never_changes(topic: str, slot: int) -> None:
    assert slot_of(topic) == slot


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_a_slot_is_the_crc_modulo_4096(topic: str) -> None:
    assert slot_of(topic) == crc32(topic.encode()) % 4096 < SLOTS


def test_what_is_no_unicode_has_no_slot() -> None:
    with pytest.raises(UnicodeEncodeError):
        slot_of("\ud800")


@pytest.mark.parametrize(
    ("text", "hashed"),
    [(b"", "cae66941d9efbd404e4d88758ea67670"), (b"Some topic", "31ffbdaeaa11b32228b5a8c27f331e91")],
)
def test_a_digest_never_changes(text: bytes, hashed: str) -> None:
    assert digest(text).hex() == hashed


@given(st.binary(max_size=100))
def test_a_digest_is_128_bits_of_blake2b(text: bytes) -> None:
    assert digest(text) == blake2b(text, digest_size=16).digest()
    assert len(digest(text)) == HASH_BYTES
