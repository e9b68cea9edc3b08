"""Valid and invalid topics: SPEC section 4."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingeborg.protocol.errors import ProtocolError
from ingeborg.protocol.topics import TOPIC_BYTES_MAX, check_topic


def refusal(topic: object) -> ProtocolError:
    with pytest.raises(ProtocolError) as raised:
        check_topic(topic)
    return raised.value


@pytest.mark.parametrize(
    "topic",
    [
        "a",
        "Some topic",
        " ",
        "Beyoncé – Déjà Vu",
        "a/b/#/*/+/$SYS",
        '"\\',
        "\u00ad\u200b\u2028\ue000\ufeff\uffff",  # invisible, private, or no characters; none in Cc
        "🎵" * 256,
        "x" * 1024,
        "é" * 512,
    ],
)
def test_a_topic_is_taken_as_it_is(topic: str) -> None:
    assert check_topic(topic) is topic


@pytest.mark.parametrize("topic", ["x" * 1025, "é" * 513, "🎵" * 256 + "x", "€" * 342])
def test_a_topic_over_the_limit_is_refused(topic: str) -> None:
    error = refusal(topic)
    assert error.code == "bad_topic"
    assert "1024 bytes" in error.info


def test_the_empty_topic_is_refused() -> None:
    assert refusal("").code == "bad_topic"


@pytest.mark.parametrize("topic", [None, 1, 1.5, True, {}, [], ["a"], b"a"])
def test_what_is_no_string_is_bad_state(topic: object) -> None:
    assert refusal(topic).code == "bad_state"


def test_control_characters_are_those_of_unicode_category_cc_and_no_others() -> None:
    for code in range(0x110000):
        if 0xD800 <= code < 0xE000:
            continue  # lone surrogates do not come through JSON
        character = chr(code)
        if unicodedata.category(character) == "Cc":
            error = refusal(f"a{character}b")
            assert error.code == "bad_topic"
            assert f"U+{code:04X}" in error.info
        elif not character.isprintable() or code < 0x300:  # all of the slow path, and a part of the fast path
            check_topic(f"a{character}b")


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=1100))
def test_the_check_agrees_with_its_definition(topic: str) -> None:
    controls = any(unicodedata.category(character) == "Cc" for character in topic)
    if controls or not 1 <= len(topic.encode()) <= TOPIC_BYTES_MAX:
        assert refusal(topic).code == "bad_topic"
    else:
        assert check_topic(topic) is topic


def test_the_field_is_named() -> None:
    with pytest.raises(ProtocolError, match="Key 'subject' is empty"):
        check_topic("", "subject")
