"""The names of messages dispatched under a key, for as long as an origin can ask again. SPEC section 7."""

from __future__ import annotations

import pytest

from ingeborg.broker.core.dedup import names as names_module
from ingeborg.broker.core.dedup.names import Names
from ingeborg.broker.core.message import Message
from tests import wants


def message(number: int) -> Message:
    return Message("t", b"1", "origin", number, 0.0)


def test_the_latest_name_of_a_key_counts() -> None:
    names = Names()
    names.learn(b"7", "origin", 1)
    names.learn(b"7", "origin", 2)
    assert [names.has(b"7", message(number)) for number in (1, 2)] == [False, True]
    assert names.of([b"5", b"7"]) == {1: ("origin", 2)}


def test_so_many_are_known_and_the_oldest_go(monkeypatch: pytest.MonkeyPatch) -> None:
    wants.interpreted()
    monkeypatch.setattr(names_module, "GENERATION", 10)
    names = Names()
    for number in range(35):
        names.learn(b"%d" % number, "origin", number)
    known = [number for number in range(35) if names.has(b"%d" % number, message(number))]
    assert known == list(range(20, 35))
    assert names.of([b"%d" % number for number in range(35)]) == {number: ("origin", number) for number in known}
